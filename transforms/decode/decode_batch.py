"""Serialized tf.train.Examples -> an Arrow batch: the inverse of recordmill.transforms.encode.examples.

Records as the encoder writes them are read by steps over all of them at once (see
recordmill.transforms.decode.entry_walk). Those laid out otherwise, by other writers, and damaged ones go
through the protobuf runtime one by one: written anew in the encoder's layout, they are
read like the others, so there is one way from wire to Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.features.feature import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    map_order,
)
from recordmill.schemas.proto.example_pb2 import Example, Feature
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.decode.entry_walk import Key, room_behind, walk_entries
from recordmill.transforms.decode.feature_column import (
    Findings,
    check_feature,
    read_column,
)
from recordmill.transforms.decode.tensors import read_tensor
from recordmill.transforms.decode.value_lists import read_lists
from recordmill.transforms.decode.wire import Mask, padded_parts
from recordmill.transforms.encode.arrow_types import shape_text
from recordmill.transforms.encode.wire import varint

# A window's bytes stay in the processor's cache while each key walks over them.
_WINDOW_BYTES = 8 << 20
_WINDOW_ROWS = 1 << 14

# Features that the schema does not have, of which each is a step for all records.
_MAX_STRANGERS = 1000
_MAX_STRANGER = 200  # characters of its name

_SHOWN_BYTES = 12

Unknown = Literal["ignore", "error"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns.

    Attributes:
      batch: a row for each record.
      refused: (record index, reason) of records that cannot be read as the schema says,
        ascending; their rows hold anything.
    """

    batch: pa.RecordBatch
    refused: list[tuple[int, str]]


def decode_batch(
    examples: pa.BinaryArray, schema: Schema, *, unknown: Unknown = "ignore"
) -> pa.RecordBatch:
    """The features of every example as columns.

    Args:
      examples: serialized tf.train.Examples.
      schema: which features to read, and as what.
      unknown: "error" refuses examples with a feature that the schema does not have.

    Returns:
      A column for each feature, under its name, in the schema's order; null where an
      example lacks it. Their types: see recordmill.transforms.decode.feature_column.

    Raises:
      SchemaError: a feature's kind does not go with its dtype.
      RowsError: examples that are damaged or do not fit the schema.
    """
    decoded = decode_records(examples, schema, unknown=unknown)
    if decoded.refused:
        rows, reasons = zip(*decoded.refused, strict=True)
        raise RowsError(list(rows), list(reasons))
    return decoded.batch


def decode_records(
    examples: pa.BinaryArray, schema: Schema, *, unknown: Unknown = "ignore"
) -> Decoded:
    """Like decode_batch, but gives those that do not fit beside all others."""
    for feature in schema.features:
        if feature.sequence:
            raise SchemaError(
                f"feature {feature.name!r} is a feature list, which a "
                "tf.train.SequenceExample has and a tf.train.Example has not"
            )
        check_feature(feature)
    reader = _Reader(schema, unknown)
    parts, refused, start = [], [], 0
    for window in _windows(examples):
        arrays, reasons = reader.read(window)
        parts.append(arrays)
        refused += [(start + row, reasons[row]) for row in sorted(reasons)]
        start += len(window)
    names = [feature.name for feature in schema.features]
    columns = [pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True)]
    return Decoded(pa.RecordBatch.from_arrays(columns, names), refused)


def _windows(examples: pa.BinaryArray) -> Iterator[pa.BinaryArray]:
    """Cuts the records into stretches of few bytes; at least one, even if empty."""
    offsets, _ = array_parts(examples)
    start = 0
    while True:
        stop = (
            np.searchsorted(offsets, offsets[start] + _WINDOW_BYTES, side="right") - 1
        )
        stop = min(max(int(stop), start + 1), start + _WINDOW_ROWS, len(examples))
        yield examples.slice(start, stop - start)
        if stop == len(examples):
            return
        start = stop


class _Reader:
    """Reads windows of records; remembers which features the schema does not have."""

    def __init__(self, schema: Schema, unknown: Unknown) -> None:
        self._schema = schema
        self._unknown = unknown
        self._owners = {key: f for f in schema.features for key in f.keys}
        self._keys = {key: _key_of(f, key) for key, f in self._owners.items()}
        self._strangers: dict[str, Key] = {}

    def read(self, examples: pa.BinaryArray) -> tuple[list[pa.Array], dict[int, str]]:
        """Columns, and by record the reason why it cannot be read."""
        arrays, found = self._read_laid_out(examples)
        if found.odd.any() and self._meet_strangers(examples, found.odd):
            arrays, found = self._read_laid_out(examples)
        if not found.odd.any():
            return arrays, found.reasons
        return self._read_others(examples, arrays, found)

    def _read_laid_out(
        self, examples: pa.BinaryArray
    ) -> tuple[list[pa.Array], Findings]:
        """Columns that are right for all records but those found odd or refused."""
        every = {**self._keys, **self._strangers}
        keys = [every[name] for name in sorted(every, key=map_order)]
        data, starts, ends = padded_parts(examples, room_behind(keys))
        walked, whole = walk_entries(data, starts, ends, keys)
        spans = {
            key.name.decode(): span for key, span in zip(keys, walked, strict=True)
        }
        found = Findings(~whole)
        arrays = [
            read_column(data, feature, [spans[key] for key in feature.keys], found)
            for feature in self._schema.features
        ]
        for name, key in sorted(self._strangers.items()):
            found.odd |= read_lists(data, spans[name], key.kind).odd
            if self._unknown == "error":
                for row in np.flatnonzero(spans[name].present).tolist():
                    found.reasons.setdefault(row, unknown_feature(name))
        return arrays, found

    def _meet_strangers(self, examples: pa.BinaryArray, odd: Mask) -> bool:
        """Looks in the first odd record for features that others may have as well."""
        features = _parse(examples[int(np.argmax(odd))].as_py())
        met = {
            name: Key(name.encode(), Kind(kind), delimited=kind != Kind.BYTES)
            for name, feature in (features or {}).items()
            if name not in self._keys
            and len(name) <= _MAX_STRANGER
            and (kind := feature.WhichOneof("kind"))
        }
        new = met.keys() - self._strangers.keys()
        if len(self._strangers) + len(new) > _MAX_STRANGERS:
            return False
        self._strangers |= met
        return bool(new)

    def _read_others(
        self, examples: pa.BinaryArray, arrays: list[pa.Array], found: Findings
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """Takes in the odd records, rewritten as the encoder would have them."""
        odd = np.flatnonzero(found.odd)
        reasons = {row: why for row, why in found.reasons.items() if not found.odd[row]}
        rewritten = []
        for row in odd.tolist():  # the protobuf runtime takes one at a time
            try:
                rewritten.append(self._rewrite(examples[row].as_py()))
            except _RefusedError as error:
                reasons[row] = str(error)
                rewritten.append(b"")
        others, found_here = self._read_laid_out(pa.array(rewritten, pa.binary()))
        assert not found_here.odd.any()  # _rewrite leaves nothing else
        for index, why in found_here.reasons.items():
            reasons.setdefault(int(odd[index]), why)
        laid_out = np.flatnonzero(~found.odd)
        order = pa.array(np.argsort(np.concatenate([laid_out, odd])))
        kept = pa.array(laid_out)
        merged = [
            pa.concat_arrays([array.take(kept), other]).take(order)
            for array, other in zip(arrays, others, strict=True)
        ]
        return merged, reasons

    def _rewrite(self, data: bytes) -> bytes:
        """The example in the encoder's layout, without what the schema does not have.

        Raises:
          _RefusedError: a feature is not of the kind, or not what its kind should hold.
        """
        features = _parse(data)
        if features is None:
            raise _RefusedError(
                f"{len(data)} bytes that start with {data[:_SHOWN_BYTES].hex()!r} are no "
                "tf.train.Example"
            )
        if self._unknown == "error":
            for name in sorted(features.keys() - self._keys.keys()):
                raise _RefusedError(unknown_feature(name))
        entries = b""
        for name in sorted(features.keys() & self._keys.keys(), key=map_order):
            if features[name].WhichOneof("kind") is not None:
                _make_plain(features[name], self._owners[name], self._keys[name])
                value = features[name].SerializeToString(deterministic=True)
                entry = _delimited(b"\x0a", name.encode()) + _delimited(b"\x12", value)
                entries += _delimited(b"\x0a", entry)
        return _delimited(b"\x0a", entries)


class _RefusedError(Exception):
    """One record cannot be read; the message says why."""


def _key_of(feature: FeatureSpec, key: str) -> Key:
    kind = Kind.INT64 if key in feature.keys[1:] else feature.kind
    return Key(key.encode(), kind, delimited=kind is not Kind.BYTES or _single(feature))


def _single(feature: FeatureSpec) -> bool:
    """Whether there is just one stored value."""
    return not feature.shape or feature.content is not Content.VALUES


def _make_plain(message: Feature, feature: FeatureSpec, key: Key) -> None:
    """Leaves in the message what the encoder would write for the feature's key.

    Raises:
      _RefusedError: it is of another kind, or holds no single value where it should.
    """
    name, kind = key.name.decode(), message.WhichOneof("kind")
    if kind != key.kind:
        raise _RefusedError(f"feature {name!r}: {kind}, expected {key.kind}")
    message.DiscardUnknownFields()  # type: ignore[attr-defined]
    values = getattr(message, key.kind).value
    if not _single(feature):
        return
    if len(values) != 1:
        raise _RefusedError(f"feature {name!r}: {len(values)} values, expected one")
    if feature.content is Content.TENSOR:
        try:
            tensor = read_tensor(values[0])
        except ValueError as error:
            raise _RefusedError(f"feature {name!r} is no tensor: {error}") from error
        fits = len(tensor.shape) == len(feature.shape) and all(
            wanted in (None, found)
            for wanted, found in zip(feature.shape, tensor.shape, strict=True)
        )
        dtype = "string" if feature.dtype == "bytes" else feature.dtype
        if tensor.dtype != dtype or not fits:
            raise _RefusedError(
                f"feature {name!r}: tensor of {tensor.dtype} of shape "
                f"{list(tensor.shape)}, expected {feature.dtype} of shape "
                f"{shape_text(feature)}"
            )
        values[0] = tensor.to_bytes()


def _parse(data: bytes) -> Mapping[str, Feature] | None:
    """The features of an example; None if the bytes are none."""
    try:
        return Example.FromString(data).features.feature
    except DecodeError:
        return None


def _delimited(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def unknown_feature(name: str) -> str:
    """Why a record with this feature is refused."""
    return f"feature {name!r} is not in the schema"
