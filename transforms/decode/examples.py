"""Decodes serialized tf.train.Examples to an Arrow batch.

The inverse of encode/examples.py. Records in the encoder's own layout (regular records)
are read together, by array steps. Irregular records, written by other programs or
damaged, are parsed by the protobuf runtime one by one and rewritten in the encoder's
layout. Then they are read like the others. So all values are converted by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema, map_sort_key
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, U8, U64
from recordmill.transforms.decode.columns import (
    DecodeErrors,
    check_feature,
    has_single_value,
    read_column,
    read_lists,
)
from recordmill.transforms.decode.wire import (
    WORD_BYTES,
    Mask,
    Spans,
    gather_words,
    padded_parts,
    read_varints,
)
from recordmill.transforms.encode.examples import TAGS, require_steps
from recordmill.transforms.native.numpy_loops import (
    distinct_lengths,
    entry_header,
    varint,
)

# In the encoder's layout (encode/examples.py) the header of a map entry depends only on
# the entry's length. So the walk reads that length, looks up the header for it, and
# compares. All records advance together, one key in each step. If the header differs, the
# record lacks the key. A record whose end is not reached in this way has another layout
# (or is damaged) and is left to the protobuf runtime.
#
# Two records with the int64 features a = 7 and b = 8 in the first, b = 9 in the second:
#
#     record 0   0a 18 | 0a 0a 0a 01 61 12 05 1a 03 0a 01 07 | 0a 0a 0a 01 62 ... 01 08
#     record 1   0a 0c | 0a 0a 0a 01 62 12 05 1a 03 0a 01 09
#
#     enter      positions [2, 28]: after the tag and length of Features
#     key a      entry length 10 (0a) has the header 0a 0a 0a 01 61 12 05 1a 03 0a 01;
#                it matches in record 0 only: present [1, 0], starts [13, -], lengths [1,
#                0] positions [14, 28]
#     key b      present [1, 1], starts [25, 39], lengths [1, 1], positions [26, 40], ends

# Without the name: five tags and five lengths as varints, each below 2 GiB.
_MAX_HEADER_BYTES = 5 * (1 + 5)
_TAG = 0x0A  # of the only field of Example and of Features, and of an entry's key


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the feature map, with the layout of its payload."""

    name: bytes  # UTF-8 bytes
    kind: Kind  # the list that holds the payload
    # the payload is one length-delimited field of the list (packed numbers, one bytes
    # value) instead of a series of such fields
    is_delimited: bool

    @property
    def header_words(self) -> int:
        """Returns the number of 64-bit words for the longest header of an entry."""
        return -(-(len(self.name) + _MAX_HEADER_BYTES) // WORD_BYTES)


def walk_entries(
    data: U8, starts: I64, ends: I64, keys: Sequence[Key]
) -> tuple[list[Spans], Mask]:
    """Returns the payload spans of each key, and a mask of the completely read records.

    Args:
      data: the records, with padding at the end.
      starts: start of each record.
      ends: end of each record.
      keys: the keys, in stored order.
    """
    positions, whole = _enter_features(data, starts, ends)
    key_spans = []
    for key in keys:
        spans = _read_entry(data, positions, ends, key)
        key_spans.append(spans)
        positions = np.where(spans.present, spans.starts + spans.lengths, positions)
    return key_spans, whole & (positions == ends)


def _enter_features(data: U8, starts: I64, ends: I64) -> tuple[I64, Mask]:
    """Returns the positions after the header of Features, and a mask of valid ones."""
    words = gather_words(data, starts).ravel()
    lengths, sizes = read_varints(words >> np.uint64(8))
    positions = starts + 1 + sizes
    whole = (words & np.uint64(0xFF)) == _TAG
    # A varint cut off by the shift results in a length that does not fit the record.
    whole &= positions + lengths.view(np.int64) == ends
    positions = np.where(whole, positions, ends)
    return positions, whole | (starts == ends)  # zero bytes are an empty example


def _read_entry(data: U8, positions: I64, ends: I64, key: Key) -> Spans:
    """Returns the payload spans of the key's entries at the positions."""
    entry_words = gather_words(data, positions, key.header_words)
    distinct, length_indices = distinct_lengths(
        _entry_lengths(entry_words[:, 0], ends - positions)
    )
    # A loop over the distinct lengths, not over the records.
    built = [_build_header(key, length) for length in distinct.tolist()]
    headers = [header for header, _ in built]
    width = key.header_words * WORD_BYTES
    padded = b"".join(header.ljust(width, b"\0") for header in headers)
    compared = b"".join(
        (b"\xff" * len(header)).ljust(width, b"\0") for header in headers
    )
    shape = (len(headers), key.header_words)
    words = np.frombuffer(padded, "<u8").reshape(shape)
    masks = np.frombuffer(compared, "<u8").reshape(shape)
    sizes = np.fromiter(map(len, headers), np.int64, len(headers))
    payloads = np.array([payload for _, payload in built], np.int64)
    if len(distinct) == 1:  # one header for all records
        length_indices = np.zeros(1, np.intp)
    differs = np.zeros(len(entry_words), np.uint64)
    for index in range(key.header_words):
        header, mask = words[length_indices, index], masks[length_indices, index]
        differs |= (entry_words[:, index] ^ header) & mask
    starts, payloads = positions + sizes[length_indices], payloads[length_indices]
    present: Mask = (differs == 0) & (starts + payloads <= ends)
    if present.all():
        return Spans(starts, np.broadcast_to(payloads, starts.shape), present)
    starts = np.where(present, starts, positions)
    return Spans(starts, np.where(present, payloads, 0), present)


def _entry_lengths(words: U64, left: I64) -> I64:
    """Returns the lengths after the entries' tags; 0 if longer than the bytes left."""
    after_tag = words >> np.uint64(8)
    short = after_tag.astype(np.uint8)
    if len(short) and short.max() < 0x80:  # most often all lengths are single bytes
        return short.astype(np.int64)
    lengths, _ = read_varints(after_tag)
    return np.where(lengths < left.view(np.uint64), lengths, np.uint64(0)).view(
        np.int64
    )


_NO_HEADER = (b"", 1 << 40)  # with a payload longer than any record


@lru_cache(1 << 14)
def _build_header(key: Key, entry_length: int) -> tuple[bytes, int]:
    """Returns the header of an entry of this length, and the length of its payload."""
    feature = _payload_length(
        entry_length - len(varint(len(key.name))) - 1 - len(key.name)
    )
    values = None if feature is None else _payload_length(feature)
    if values is None:
        return _NO_HEADER
    payload: int | None = values
    # The encoder omits an empty field of packed numbers, but not an empty bytes value.
    if key.is_delimited and (values or key.kind is Kind.BYTES):
        payload = _payload_length(values)
    if payload is None:
        return _NO_HEADER
    header = entry_header(key.name, TAGS[key.kind], payload, delimited=key.is_delimited)
    return header, payload


def _payload_length(length: int) -> int | None:
    """Returns n such that a tag, the varint n and n bytes are `length` bytes; or None.

    For length 12, n is 10, because the tag and the varint 0a take 2 bytes.
    """
    for prefix in range(2, 7):
        payload_length = length - prefix
        if payload_length >= 0 and len(varint(payload_length)) == prefix - 1:
            return payload_length
    return None


_SHOWN_BYTES = 12


class _InvalidRecordError(Exception):
    """The error of one record that does not fit the schema."""


def rewrite_example(
    data: bytes,
    owners: Mapping[str, FeatureSpec],
    keys: Mapping[str, Key],
    *,
    refuses_unknown: bool,
) -> bytes:
    """Rewrites an example in the encoder's layout, without unknown features."""
    example = _parse(data)
    if example is None:
        raise _InvalidRecordError(
            f"{len(data)} bytes that start with {data[:_SHOWN_BYTES].hex()!r} are "
            "not a valid tf.train.Example"
        )
    features = example.features.feature
    for name in sorted(features):
        if name not in keys and refuses_unknown:
            raise _InvalidRecordError(unknown_feature(name))
        if name not in keys or features[name].WhichOneof("kind") is None:
            del features[name]
    for name, feature in sorted(features.items()):
        expected, kind = keys[name].kind, feature.WhichOneof("kind")
        if kind != expected:
            raise _InvalidRecordError(f"feature {name!r}: {kind}, expected {expected}")
        num_values = len(getattr(feature, expected).value)
        if num_values != 1 and has_single_value(owners[name]):
            raise _InvalidRecordError(
                f"feature {name!r}: {num_values} values, expected 1"
            )
    example.DiscardUnknownFields()  # type: ignore[attr-defined]
    return example.SerializeToString(deterministic=True)


def _parse(data: bytes) -> Example | None:
    with suppress(DecodeError):
        return Example.FromString(data)
    return None


def unknown_feature(name: str) -> str:
    """Returns the reason for a feature that is not in the schema."""
    return f"feature {name!r} is not in the schema"


# Maximum number of features outside the schema: each costs a step over all records.
_MAX_UNKNOWN = 1000
_MAX_UNKNOWN_NAME = 200  # characters of its name

Unknown = Literal["ignore", "error"]


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Decoded records, as columns."""

    batch: pa.RecordBatch  # a row for each record
    # (record index, reason) of each record that does not fit the schema, ascending; the
    # content of their rows is undefined
    row_errors: list[tuple[int, str]]


def decode_records(
    examples: pa.BinaryArray, schema: Schema, *, unknown: Unknown = "ignore"
) -> DecodedRecords:
    """Decodes the features of every example to columns; also returns errors of records.

    The batch has a column for each feature, with its name, in the schema's order; null if
    an example lacks the feature (see columns.py for the types).

    Raises:
      SchemaError: a feature's kind cannot store its dtype.
    """
    for feature in schema.features:
        require_steps(feature, has_lists=False)
        check_feature(feature)
    columns, reasons = _ExampleReader(schema, unknown).read(examples)
    names = [feature.name for feature in schema.features]
    batch = pa.RecordBatch.from_arrays(columns, names)
    return DecodedRecords(batch, sorted(reasons.items()))


class _ExampleReader:
    """A reader of records that learns the features outside the schema."""

    def __init__(self, schema: Schema, unknown: Unknown) -> None:
        self._schema = schema
        self._unknown = unknown
        self._features_by_key = {key: f for f in schema.features for key in f.keys}
        self._keys = {}
        for name, feature in self._features_by_key.items():
            kind = Kind.INT64 if name in feature.keys[1:] else feature.kind
            delimited = kind is not Kind.BYTES or has_single_value(feature)
            self._keys[name] = Key(name.encode(), kind, delimited)
        self._unknown_keys: dict[str, Key] = {}

    def read(self, examples: pa.BinaryArray) -> tuple[list[pa.Array], dict[int, str]]:
        """Returns the columns, and the errors of invalid records, by record."""
        arrays, findings = self._read_regular(examples)
        if findings.irregular.any() and self._find_unknown_keys(
            examples, findings.irregular
        ):
            arrays, findings = self._read_regular(examples)
        if not findings.irregular.any():
            return arrays, findings.reasons
        return self._read_irregular(examples, arrays, findings)

    def _read_regular(
        self, examples: pa.BinaryArray
    ) -> tuple[list[pa.Array], DecodeErrors]:
        """Returns columns that are valid for all records without a finding."""
        all_keys = {**self._keys, **self._unknown_keys}
        names = sorted(all_keys, key=map_sort_key)
        keys = [all_keys[name] for name in names]
        longest = max((len(key.name) for key in keys), default=0)
        data, starts, ends = padded_parts(examples, longest + 8 * WORD_BYTES)
        key_spans, whole = walk_entries(data, starts, ends, keys)
        spans = dict(zip(names, key_spans, strict=True))
        findings = DecodeErrors(~whole)
        arrays = [
            read_column(data, feature, [spans[key] for key in feature.keys], findings)
            for feature in self._schema.features
        ]
        for name, key in sorted(self._unknown_keys.items()):
            read_lists(data, spans[name], key.kind, findings)
            if self._unknown == "error":
                for row in np.flatnonzero(spans[name].present).tolist():
                    findings.reasons.setdefault(row, unknown_feature(name))
        return arrays, findings

    def _find_unknown_keys(self, examples: pa.BinaryArray, irregular: Mask) -> bool:
        """Searches the first irregular record for keys that others may share."""
        example = _parse(examples[int(np.argmax(irregular))].as_py()) or Example()
        keys = {
            name: Key(name.encode(), Kind(kind), is_delimited=kind != Kind.BYTES)
            for name, feature in example.features.feature.items()
            if name not in self._keys
            and len(name) <= _MAX_UNKNOWN_NAME
            and (kind := feature.WhichOneof("kind"))
        }
        if len(keys) <= _MAX_UNKNOWN:
            self._unknown_keys = keys
        return bool(self._unknown_keys)

    def _read_irregular(
        self, examples: pa.BinaryArray, arrays: list[pa.Array], findings: DecodeErrors
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """Rewrites the irregular records in the encoder's layout, then reads them."""
        irregular = np.flatnonzero(findings.irregular)
        reasons = {
            row: why
            for row, why in findings.reasons.items()
            if not findings.irregular[row]
        }
        rewritten = []
        for row in irregular.tolist():  # the protobuf runtime parses one at a time
            data, refuses = examples[row].as_py(), self._unknown == "error"
            try:
                example = rewrite_example(
                    data, self._features_by_key, self._keys, refuses_unknown=refuses
                )
            except _InvalidRecordError as error:
                reasons[row], example = str(error), b""
            rewritten.append(example)
        rewritten_arrays, rewritten_findings = self._read_regular(
            pa.array(rewritten, pa.binary())
        )
        assert not rewritten_findings.irregular.any()  # because they were rewritten
        for index, why in rewritten_findings.reasons.items():
            reasons.setdefault(int(irregular[index]), why)
        regular = np.flatnonzero(~findings.irregular)
        order = pa.array(np.argsort(np.concatenate([regular, irregular])))
        regular_rows = pa.array(regular)
        merged = [
            pa.concat_arrays([array.take(regular_rows), other]).take(order)
            for array, other in zip(arrays, rewritten_arrays, strict=True)
        ]
        return merged, reasons


MAX_FEATURES = 10_000


@dataclass(frozen=True, slots=True)
class ObservedFeature:
    """A summary of the values of one key in the examples so far."""

    kinds: frozenset[str]  # the list types observed
    num_examples: int  # number of examples that have the key
    min_values: int  # in one example
    max_values: int


@dataclass(slots=True)
class ObservedFeatures:
    """The features of the examples so far, by name."""

    by_name: dict[str, ObservedFeature] = field(default_factory=dict)

    def add_example(self, example: Example) -> None:
        """Adds the features of one example; a feature without a list is missing."""
        observed_features = {}
        for name, feature in example.features.feature.items():
            if kind := feature.WhichOneof("kind"):
                size = len(getattr(feature, kind).value)
                observed_features[name] = ObservedFeature(
                    frozenset((kind,)), 1, size, size
                )
        self.add(ObservedFeatures(observed_features))

    def add(self, other: ObservedFeatures) -> None:
        """Adds the features that another worker observed."""
        for name, new in other.by_name.items():
            previous_feature = self.by_name.get(name)
            if previous_feature is not None:
                new = ObservedFeature(
                    previous_feature.kinds | new.kinds,
                    previous_feature.num_examples + new.num_examples,
                    min(previous_feature.min_values, new.min_values),
                    max(previous_feature.max_values, new.max_values),
                )
            elif len(self.by_name) == MAX_FEATURES:
                raise SchemaError(
                    f"the examples have more than {MAX_FEATURES:,} different features "
                    f"({name!r} is one more). Declare the features to keep in a "
                    "`schema`"
                )
            self.by_name[name] = new

    def to_schema(self, num_examples: int) -> Schema:
        """Returns a schema that all examples fit.

        A feature that some examples lack is optional. A feature that always has one value
        is a scalar; with a constant number of values it has a fixed shape, otherwise a
        variable length. Bytes stay bytes: text and images cannot be inferred.

        Raises:
          SchemaError: a feature has values of several kinds, or no example has a feature.
        """
        if not self.by_name:
            raise SchemaError(
                f"none of {format_count(num_examples, 'example')} has a feature: nothing to "
                "write"
            )
        problems = [
            f"feature {name!r} is {' in some examples and '.join(sorted(feature.kinds))} in "
            "others"
            for name, feature in sorted(self.by_name.items())
            if len(feature.kinds) > 1
        ]
        if problems:
            hint = "Declare a `schema`: rows that do not match it are rejected"
            raise SchemaError("\n  ".join(problems) + f"\n{hint}")
        features = []
        for name, feature in self.by_name.items():
            shape: tuple[int | None, ...] = (feature.max_values,)
            if feature.min_values != feature.max_values or feature.max_values == 0:
                shape = (None,)
            features.append(
                FeatureSpec(
                    name,
                    Kind(next(iter(feature.kinds))),
                    shape=() if shape == (1,) else shape,
                    optional=feature.num_examples < num_examples,
                )
            )
        return Schema(tuple(features))
