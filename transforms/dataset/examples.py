"""Reads selected examples of a finished dataset, by position or by value, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64
from recordmill.transforms.dataset.reader import ReadableShard, shards_to_read
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.encode.payloads import raw_feature
from recordmill.transforms.storage import Store

# examples that are decoded together: each feature has a fixed cost
_EXAMPLES_PER_DECODE = 8
_TRUTH_VALUES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a feature of a record."""

    feature: FeatureSpec
    # the required value; for a feature with a shape, one of its values must be equal
    value: bool | int | float | str | bytes


def parse_condition(
    text: str, schema: Schema, names: Mapping[str, Sequence[str]]
) -> Condition:
    """Parses FEATURE=VALUE; the value may be the name of a class."""
    name, equals, value_text = text.partition("=")
    features = {feature.name: feature for feature in schema.features}
    if not equals or name not in features:
        problem = f"no feature {name!r}" if equals else f"found {text!r}"
        raise UsageError(
            f"`where`: {problem}; expected FEATURE=VALUE, and one of the features "
            f"{', '.join(sorted(features))}"
        )
    feature = features[name]
    if feature.content is Content.IMAGE:
        raise UsageError(
            f"`where`: the values of {name!r} are images, which cannot be compared"
        )
    classes = list(names.get(name, ()))
    if value_text in classes:
        return Condition(feature, classes.index(value_text))
    try:
        return Condition(feature, _value_of(value_text, feature.dtype))
    except ValueError:
        expected = feature.dtype + (" or a class name" if classes else "")
        raise UsageError(
            f"`where`: {value_text!r} is not a value of {name!r} (expected {expected})"
        ) from None


def _matching_records(
    shard: ReadableShard, conditions: Sequence[Condition]
) -> Iterator[tuple[int, bytes]]:
    """Yields (index, bytes) of the records that meet all conditions."""
    schema = shard.select_schema({condition.feature.name for condition in conditions})
    first = 0
    for window in shard.windows():
        batch = decode_payload(window, schema, shard.payload).batch
        row_indices = np.arange(len(window))
        for condition in conditions:
            rows = _rows_with(batch.column(condition.feature.name), condition.value)
            row_indices = np.intersect1d(row_indices, rows)
        for row in row_indices.tolist():
            yield first + row, window[row].as_py()
        first += len(window)


def _rows_with(column: pa.Array, required_value: object) -> I64:
    rows: I64 = np.arange(len(column))
    while pa.types.is_nested(column.type):  # a list: any of its values may match
        rows = rows[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)]
        column = pc.list_flatten(column)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # Arrow cannot compare half floats
    try:
        scalar = pa.scalar(required_value, column.type)
    except (pa.ArrowInvalid, OverflowError):
        return rows[:0]  # the dtype cannot hold the value, such as 300 as uint8
    equal = pc.equal(column, scalar).fill_null(False)
    matching_rows: I64 = rows[equal.to_numpy(zero_copy_only=False)]
    return matching_rows


def _value_of(text: str, dtype: str) -> bool | int | float | str | bytes:
    if dtype == "string":
        return text
    if dtype == "bytes":
        return text.encode()
    if dtype == "bool":
        if text.lower() not in _TRUTH_VALUES:
            raise ValueError(text)
        return _TRUTH_VALUES[text.lower()]
    return float(text) if dtype.startswith("float") else int(text)


@dataclass(frozen=True, slots=True)
class ExamplePreview:
    """One example, with the shard and index that it was read from."""

    split: str  # name of its split
    file: str  # name of its shard
    record_index: int  # zero-based index in the shard
    values: dict[str, Any]  # values by feature; missing values are left out


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of examples."""

    limit: int  # maximum number of examples
    split: str = ""  # name of the split; "" for all splits, in order
    first_index: int = 0  # index of the first example in the selected splits
    conditions: tuple[Condition, ...] = ()  # that each example must meet


def read_examples(
    store: Store, manifest: Manifest, selection: Selection
) -> Iterator[ExamplePreview]:
    """Returns an iterator over the selected examples, in the order of splits and shards.

    Examples are read when the iterator reaches them.

    Raises:
      UsageError: there is no such split, or no example with that index.
      OutputError, CorruptRecordError: a shard or one of the records is damaged.
    """
    shards = shards_to_read(store, manifest, selection.split or None)
    records = sum(shard.entry.records for shard in shards)
    if selection.first_index and selection.first_index >= records:
        raise UsageError(
            f"{store.uri}: no example {selection.first_index:,}: the dataset has "
            f"{format_count(records, 'record')}, counted from 0"
        )
    return _selected_examples(shards, selection)


def _selected_examples(
    shards: Sequence[ReadableShard], selection: Selection
) -> Iterator[ExamplePreview]:
    left, skipped = selection.limit, selection.first_index
    for shard in shards:
        if left <= 0:
            return
        if skipped >= shard.entry.records:
            skipped -= shard.entry.records
            continue
        records: Iterator[tuple[int, bytes]]
        if selection.conditions:
            matches = _matching_records(shard, selection.conditions)
            records = (match for match in matches if match[0] >= skipped)
        else:
            records = islice(enumerate(shard.records()), skipped, None)
        selected_records = islice(records, left)
        while record_group := list(islice(selected_records, _EXAMPLES_PER_DECODE)):
            yield from _preview_examples(shard, *zip(*record_group, strict=True))
            left -= len(record_group)
        skipped = 0


def _preview_examples(
    shard: ReadableShard, indices: tuple[int, ...], records: tuple[bytes, ...]
) -> Iterator[ExamplePreview]:
    batch = shard.decode_records(pa.array(records, pa.binary()), shard.schema, indices)
    may_be_text = (
        shard.payload == "raw" and raw_feature(shard.schema).content is Content.VALUES
    )
    for index, record, row in zip(indices, records, batch.to_pylist(), strict=True):
        values = {name: row[name] for name in sorted(row) if row[name] is not None}
        text = record.decode(errors="replace")
        if may_be_text and text.encode() == record:
            if "".join(text.split()).isprintable():
                values = dict.fromkeys(row, text)
        yield ExamplePreview(shard.split, shard.entry.file, index, values)
