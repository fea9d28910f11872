"""Decodes serialized tf.train.Examples to an Arrow batch.

The inverse of encode/examples.py. Records in the encoder's own layout (regular ones)
are read by array steps over all of them at once (see entry_walk.py). Irregular ones,
written by others or damaged, go through the protobuf runtime one by one: rewritten in
the encoder's layout, they are read like the others. So all values take one way to
Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.features.feature import (
    FeatureSpec,
    Kind,
    Schema,
    map_order,
)
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.decode.entry_walk import Key, padding_bytes, walk_entries
from recordmill.transforms.decode.feature_column import (
    Findings,
    check_feature,
    read_column,
)
from recordmill.transforms.decode.irregular_examples import (
    InvalidRecordError,
    has_single_value,
    parse_features,
    rewrite_example,
    unknown_feature,
)
from recordmill.transforms.decode.value_lists import read_lists
from recordmill.transforms.decode.wire import Mask, padded_parts

# A window's bytes stay in the processor's cache during the steps over its keys.
_WINDOW_BYTES = 8 << 20
_WINDOW_ROWS = 1 << 14

# Limit of features that are not in the schema: each costs a step over all records.
_MAX_UNKNOWN = 1000
_MAX_UNKNOWN_NAME = 200  # characters of its name

Unknown = Literal["ignore", "error"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded records, as columns.

    Attributes:
      batch: a row for each record.
      row_errors: (record index, reason) of each record that does not fit the schema,
        ascending; the content of their rows is undefined.
    """

    batch: pa.RecordBatch
    row_errors: list[tuple[int, str]]


def decode_batch(
    examples: pa.BinaryArray, schema: Schema, *, unknown: Unknown = "ignore"
) -> pa.RecordBatch:
    """Decodes the features of every example to columns.

    Args:
      examples: serialized tf.train.Examples.
      schema: the features to read.
      unknown: whether a feature that is not in the schema is ignored or an error.

    Returns:
      A column for each feature, under its name, in the schema's order; null where an
      example lacks it. For their types see feature_column.py.

    Raises:
      SchemaError: a feature's kind cannot store its dtype.
      RowsError: examples are damaged or do not fit the schema.
    """
    decoded = decode_records(examples, schema, unknown=unknown)
    if decoded.row_errors:
        rows, reasons = zip(*decoded.row_errors, strict=True)
        raise RowsError(list(rows), list(reasons))
    return decoded.batch


def decode_records(
    examples: pa.BinaryArray, schema: Schema, *, unknown: Unknown = "ignore"
) -> Decoded:
    """Decodes like decode_batch, but returns errors of records instead of raising."""
    for feature in schema.features:
        if feature.sequence:
            raise SchemaError(
                f"feature {feature.name!r} is a feature list, which only a "
                "tf.train.SequenceExample can hold, not a tf.train.Example"
            )
        check_feature(feature)
    reader = _Reader(schema, unknown)
    windows, row_errors, start = [], [], 0
    for window in _windows(examples):
        arrays, reasons = reader.read(window)
        windows.append(arrays)
        row_errors += [(start + row, reasons[row]) for row in sorted(reasons)]
        start += len(window)
    names = [feature.name for feature in schema.features]
    columns = [pa.concat_arrays(arrays) for arrays in zip(*windows, strict=True)]
    return Decoded(pa.RecordBatch.from_arrays(columns, names), row_errors)


def _windows(examples: pa.BinaryArray) -> Iterator[pa.BinaryArray]:
    """Yields the records in windows of bounded size; at least one, even if empty."""
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
    """A reader of windows, which remembers features that are not in the schema."""

    def __init__(self, schema: Schema, unknown: Unknown) -> None:
        self._schema = schema
        self._unknown = unknown
        self._owners = {key: f for f in schema.features for key in f.keys}
        self._keys = {key: _key_of(f, key) for key, f in self._owners.items()}
        self._unknown_keys: dict[str, Key] = {}

    def read(self, examples: pa.BinaryArray) -> tuple[list[pa.Array], dict[int, str]]:
        """Returns the columns, and the errors of invalid records, by record."""
        arrays, found = self._read_regular(examples)
        if found.irregular.any() and self._find_unknown_keys(examples, found.irregular):
            arrays, found = self._read_regular(examples)
        if not found.irregular.any():
            return arrays, found.reasons
        return self._read_irregular(examples, arrays, found)

    def _read_regular(
        self, examples: pa.BinaryArray
    ) -> tuple[list[pa.Array], Findings]:
        """Returns columns that are valid for all records without a finding."""
        all_keys = {**self._keys, **self._unknown_keys}
        keys = [all_keys[name] for name in sorted(all_keys, key=map_order)]
        data, starts, ends = padded_parts(examples, padding_bytes(keys))
        key_spans, whole = walk_entries(data, starts, ends, keys)
        spans = {
            key.name.decode(): span for key, span in zip(keys, key_spans, strict=True)
        }
        found = Findings(~whole)
        arrays = [
            read_column(data, feature, [spans[key] for key in feature.keys], found)
            for feature in self._schema.features
        ]
        for name, key in sorted(self._unknown_keys.items()):
            found.irregular |= read_lists(data, spans[name], key.kind).irregular
            if self._unknown == "error":
                for row in np.flatnonzero(spans[name].present).tolist():
                    found.reasons.setdefault(row, unknown_feature(name))
        return arrays, found

    def _find_unknown_keys(self, examples: pa.BinaryArray, irregular: Mask) -> bool:
        """Searches the first irregular record for keys that others may share."""
        features = parse_features(examples[int(np.argmax(irregular))].as_py())
        keys = {
            name: Key(name.encode(), Kind(kind), delimited=kind != Kind.BYTES)
            for name, feature in (features or {}).items()
            if name not in self._keys
            and len(name) <= _MAX_UNKNOWN_NAME
            and (kind := feature.WhichOneof("kind"))
        }
        new = keys.keys() - self._unknown_keys.keys()
        if len(self._unknown_keys) + len(new) > _MAX_UNKNOWN:
            return False
        self._unknown_keys |= keys
        return bool(new)

    def _read_irregular(
        self, examples: pa.BinaryArray, arrays: list[pa.Array], found: Findings
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """Rewrites the irregular records in the encoder's layout, then reads them."""
        irregular = np.flatnonzero(found.irregular)
        reasons = {
            row: why for row, why in found.reasons.items() if not found.irregular[row]
        }
        rewritten = []
        rewrite = partial(
            rewrite_example,
            owners=self._owners,
            keys=self._keys,
            refuses_unknown=self._unknown == "error",
        )
        for row in irregular.tolist():  # the protobuf runtime takes one at a time
            try:
                rewritten.append(rewrite(examples[row].as_py()))
            except InvalidRecordError as error:
                reasons[row] = str(error)
                rewritten.append(b"")
        others, found_here = self._read_regular(pa.array(rewritten, pa.binary()))
        assert not found_here.irregular.any()  # as they were rewritten
        for index, why in found_here.reasons.items():
            reasons.setdefault(int(irregular[index]), why)
        regular = np.flatnonzero(~found.irregular)
        order = pa.array(np.argsort(np.concatenate([regular, irregular])))
        kept = pa.array(regular)
        merged = [
            pa.concat_arrays([array.take(kept), other]).take(order)
            for array, other in zip(arrays, others, strict=True)
        ]
        return merged, reasons


def _key_of(feature: FeatureSpec, key: str) -> Key:
    kind = Kind.INT64 if key in feature.keys[1:] else feature.kind
    return Key(
        key.encode(),
        kind,
        delimited=kind is not Kind.BYTES or has_single_value(feature),
    )
