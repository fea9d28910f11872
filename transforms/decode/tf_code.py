"""Builds TensorFlow expressions that turn a stored value into the feature's value."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.features.feature import Content, FeatureSpec, Kind
from recordmill.transforms.decode.code_text import Call, Code, call

STORED = {Kind.BYTES: "tf.string", Kind.FLOAT: "tf.float32", Kind.INT64: "tf.int64"}
# Types that tf.io.decode_raw does not support, read as others of the same size.
_RAW_TWINS = {"uint32": "tf.int32", "uint64": "tf.int64"}
_DECODED_CHANNELS = (1, 3, 4)  # tf.io.decode_image's


def reshape(value: Code, shape: Sequence[int | None]) -> Call:
    """Returns code that reshapes a flat value; at most one dimension may be unknown."""
    unknown = 0 if 0 in shape else -1  # with a 0, TensorFlow cannot infer a -1
    sides = [unknown if size is None else size for size in shape]
    return call("tf.reshape", value, str(sides))


def tf_type(feature: FeatureSpec) -> str:
    """Returns the TensorFlow type of the feature's values."""
    return f"tf.{'string' if feature.dtype == 'bytes' else feature.dtype}"


def cast(value: str, feature: FeatureSpec) -> tuple[Code, ...]:
    """Returns code that casts to the feature's type; empty if none is needed."""
    own_type = tf_type(feature)
    if own_type == STORED[feature.kind]:
        return ()
    return (call("tf.cast", value, own_type),)


def decode_image(value: str, feature: FeatureSpec, channels: int | None = None) -> Call:
    """Returns code that decodes a picture to pixels.

    Args:
      value: code of the encoded picture.
      feature: a picture.
      channels: of the pixels; by default what the feature says, or those of the picture.
    """
    items = [value, "expand_animations=False"]
    if channels is None:
        channels = feature.shape[2] if len(feature.shape) == 3 else None
    if channels in _DECODED_CHANNELS:
        items.insert(1, f"channels={channels}")
    if feature.dtype not in ("uint8", "bytes"):  # bytes: pictures of several formats
        items.append(f"dtype={tf_type(feature)}")
    return call("tf.io.decode_image", *items)


def raw_values(value: str, feature: FeatureSpec) -> Call:
    """Returns code that decodes an array's bytes to flat values."""
    twin = _RAW_TWINS.get(feature.dtype)
    if twin is None:
        return call("tf.io.decode_raw", value, tf_type(feature))
    return call("tf.bitcast", call("tf.io.decode_raw", value, twin), tf_type(feature))


def decode_raw(
    value: str, feature: FeatureSpec, shape: Sequence[int | None]
) -> tuple[Code, ...]:
    """Returns code that decodes the bytes of one or more arrays to this shape."""
    return (raw_values(value, feature), reshape(value, shape))


def parse_tensor(value: str, feature: FeatureSpec) -> Call:
    """Returns code that parses a serialized tensor of the declared shape."""
    parsed = call("tf.io.parse_tensor", value, f"out_type={tf_type(feature)}")
    return call("tf.ensure_shape", parsed, str(list(feature.shape)))


def each_step(value: str, feature: FeatureSpec) -> Call:
    """Returns code that decodes a vector of arrays or tensors, one for each item."""
    shape, dtype = feature.shape, tf_type(feature)
    if feature.content is Content.ARRAY:
        decoded = reshape(raw_values("step", feature), shape)
    else:
        decoded = parse_tensor("step", feature)
    items = [str(list(shape)), dtype]
    signature = call("fn_output_signature=tf.TensorSpec", *items)
    if None in shape:
        # All dimensions are ragged: without steps TensorFlow cannot stack uniform ones.
        rank = f"ragged_rank={len(shape) - 1}"
        signature = call("fn_output_signature=tf.RaggedTensorSpec", *items, rank)
        if len(shape) > 1:
            decoded = call("tf.RaggedTensor.from_tensor", decoded, rank)
    step = Call(f"lambda step: {decoded.head}", decoded.items, decoded.tail)
    return call("tf.map_fn", step, value, signature)
