"""Rewrites irregular examples, written by others or damaged, as the encoder writes them."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from recordmill.schemas.features.feature import (
    Content,
    FeatureSpec,
    map_order,
    shape_text,
)
from recordmill.schemas.proto.example_pb2 import Example, Feature
from recordmill.transforms.decode.entry_walk import Key
from recordmill.transforms.decode.tensors import read_tensor
from recordmill.transforms.encode.wire import varint

_SHOWN_BYTES = 12


class InvalidRecordError(Exception):
    """The error of one record that does not fit the schema."""


def rewrite_example(
    data: bytes,
    owners: Mapping[str, FeatureSpec],
    keys: Mapping[str, Key],
    *,
    refuses_unknown: bool,
) -> bytes:
    """Rewrites an example in the encoder's layout, without unknown features.

    Args:
      data: the example.
      owners: the feature that each key belongs to.
      keys: what is stored for each key.
      refuses_unknown: whether it may have no other keys.

    Raises:
      InvalidRecordError: the example or a feature does not fit the schema.
    """
    features = parse_features(data)
    if features is None:
        raise InvalidRecordError(
            f"{len(data)} bytes that start with {data[:_SHOWN_BYTES].hex()!r} are "
            "not a valid tf.train.Example"
        )
    if refuses_unknown:
        for name in sorted(features.keys() - keys.keys()):
            raise InvalidRecordError(unknown_feature(name))
    entries = b""
    for name in sorted(features.keys() & keys.keys(), key=map_order):
        if features[name].WhichOneof("kind") is not None:
            _normalize(features[name], owners[name], keys[name])
            value = features[name].SerializeToString(deterministic=True)
            entry = _delimited(b"\x0a", name.encode()) + _delimited(b"\x12", value)
            entries += _delimited(b"\x0a", entry)
    return _delimited(b"\x0a", entries)


def parse_features(data: bytes) -> Mapping[str, Feature] | None:
    """Returns the features of an example, or None if the bytes are not an example."""
    try:
        return Example.FromString(data).features.feature
    except DecodeError:
        return None


def has_single_value(feature: FeatureSpec) -> bool:
    """Tells whether the feature has exactly one stored value."""
    return not feature.shape or feature.content is not Content.VALUES


def _normalize(message: Feature, feature: FeatureSpec, key: Key) -> None:
    """Changes the message to what the encoder would write for the feature's key.

    Raises:
      InvalidRecordError: it is of another kind, or not a single value as expected.
    """
    name, kind = key.name.decode(), message.WhichOneof("kind")
    if kind != key.kind:
        raise InvalidRecordError(f"feature {name!r}: {kind}, expected {key.kind}")
    message.DiscardUnknownFields()  # type: ignore[attr-defined]
    values = getattr(message, key.kind).value
    if not has_single_value(feature):
        return
    if len(values) != 1:
        raise InvalidRecordError(f"feature {name!r}: {len(values)} values, expected 1")
    if feature.content is Content.TENSOR:
        try:
            tensor = read_tensor(values[0])
        except ValueError as error:
            reason = f"feature {name!r}: not a valid tensor: {error}"
            raise InvalidRecordError(reason) from error
        fits = len(tensor.shape) == len(feature.shape) and all(
            expected in (None, found)
            for expected, found in zip(feature.shape, tensor.shape, strict=True)
        )
        dtype = "string" if feature.dtype == "bytes" else feature.dtype
        if tensor.dtype != dtype or not fits:
            raise InvalidRecordError(
                f"feature {name!r}: tensor of {tensor.dtype} of shape "
                f"{list(tensor.shape)}, expected {feature.dtype} of shape "
                f"{shape_text(feature.shape)}"
            )
        values[0] = tensor.to_bytes()


def _delimited(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def unknown_feature(name: str) -> str:
    """Returns the error of a record with a feature that is not in the schema."""
    return f"feature {name!r} is not in the schema"
