"""TensorFlow expressions that turn a stored value into the feature's own."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.features.feature import Content, FeatureSpec, Kind
from recordmill.transforms.decode.code_text import Call, Code, call

STORED = {Kind.BYTES: "tf.string", Kind.FLOAT: "tf.float32", Kind.INT64: "tf.int64"}
# Types that tf.io.decode_raw does not know: read as others of the same bits.
_RAW_TWINS = {"uint32": "tf.int32", "uint64": "tf.int64"}
_DECODED_CHANNELS = (1, 3, 4)  # tf.io.decode_image's


def reshape(value: Code, shape: Sequence[int | None]) -> Call:
    """To a shape with one unknown dimension at most; the value is flat."""
    unknown = 0 if 0 in shape else -1  # beside a 0 there is nothing to find out
    sides = [unknown if size is None else size for size in shape]
    return call("tf.reshape", value, str(sides))


def tf_type(feature: FeatureSpec) -> str:
    """The feature's own type in TensorFlow."""
    return f"tf.{'string' if feature.dtype == 'bytes' else feature.dtype}"


def cast(value: str, feature: FeatureSpec) -> tuple[Code, ...]:
    """From the type it is stored in to its own."""
    wanted = tf_type(feature)
    if wanted == STORED[feature.kind]:
        return ()
    return (call("tf.cast", value, wanted),)


def decode_image(value: str, feature: FeatureSpec) -> Call:
    """The pixels of a picture."""
    items = [value, "expand_animations=False"]
    channels = feature.shape[2] if len(feature.shape) == 3 else None
    if channels in _DECODED_CHANNELS:
        items.insert(1, f"channels={channels}")
    if feature.dtype != "uint8":
        items.append(f"dtype={tf_type(feature)}")
    return call("tf.io.decode_image", *items)


def raw_values(value: str, feature: FeatureSpec) -> Call:
    """The flat values of an array's bytes."""
    twin = _RAW_TWINS.get(feature.dtype)
    if twin is None:
        return call("tf.io.decode_raw", value, tf_type(feature))
    return call("tf.bitcast", call("tf.io.decode_raw", value, twin), tf_type(feature))


def decode_raw(
    value: str, feature: FeatureSpec, shape: Sequence[int | None]
) -> tuple[Code, ...]:
    """An array's bytes, or a vector of such, as an array of this shape."""
    return (raw_values(value, feature), reshape(value, shape))


def parse_tensor(value: str, feature: FeatureSpec) -> Call:
    """A serialized tensor as a tensor of its declared shape."""
    parsed = call("tf.io.parse_tensor", value, f"out_type={tf_type(feature)}")
    return call("tf.ensure_shape", parsed, str(list(feature.shape)))


def each_step(value: str, feature: FeatureSpec) -> Call:
    """Decodes arrays or tensors, one for each item of a vector."""
    shape, dtype = feature.shape, tf_type(feature)
    if feature.content is Content.ARRAY:
        decoded = reshape(raw_values("step", feature), shape)
    else:
        decoded = parse_tensor("step", feature)
    items = [str(list(shape)), dtype]
    signature = call("fn_output_signature=tf.TensorSpec", *items)
    if None in shape:
        # All ragged: of no steps at all, TensorFlow cannot stack uniform dimensions.
        rank = f"ragged_rank={len(shape) - 1}"
        signature = call("fn_output_signature=tf.RaggedTensorSpec", *items, rank)
        if len(shape) > 1:
            decoded = call("tf.RaggedTensor.from_tensor", decoded, rank)
    step = Call(f"lambda step: {decoded.head}", decoded.items, decoded.tail)
    return call("tf.map_fn", step, value, signature)
