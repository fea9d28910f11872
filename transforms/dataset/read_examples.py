"""Reads some examples of a finished dataset, whatever its records hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from recordmill.schemas.dataset.manifest import Manifest, ShardEntry, schema_of
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.schemas.text import count
from recordmill.transforms.dataset.conditions import Condition, rows_with
from recordmill.transforms.dataset.files import open_file
from recordmill.transforms.dataset.read_shards import require_splits, shard_to_read
from recordmill.transforms.decode.decode_batch import decode_records
from recordmill.transforms.decode.readable import (
    FeatureValues,
    decode_example,
    decode_sequence_example,
)
from recordmill.transforms.encode.payloads import raw_feature
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import open_stream, read_records


@dataclass(frozen=True, slots=True)
class ExamplePreview:
    """One example, with the shard and index that it was read from.

    Attributes:
      split: name of its split.
      file: name of its shard.
      record_index: zero-based index in the shard.
      values: values by feature; empty for JSON.
      json_text: the indented text of a JSON record; empty for other payloads.
    """

    split: str
    file: str
    record_index: int
    values: dict[str, FeatureValues]
    json_text: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which examples are read.

    Attributes:
      limit: how many at most.
      split: of which split; "" for all, in their order.
      first: index of the first one among all records of the selected splits.
      conditions: what each must have; see conditions.py.
    """

    limit: int
    split: str = ""
    first: int = 0
    conditions: tuple[Condition, ...] = ()


def read_examples(
    store: Store, manifest: Manifest, selection: Selection
) -> Iterator[ExamplePreview]:
    """Returns the selected examples, in the order of splits and shards.

    They are read one after another as they are asked for.

    Raises:
      UsageError: there is no such split, or no example with that index.
      OutputError: a shard cannot be opened, or a record is not a valid example.
      CorruptRecordError: one of the records is damaged.
    """
    splits = require_splits(store, manifest, *filter(None, [selection.split]))
    records = sum(manifest.splits[name].records for name in splits)
    if selection.first and selection.first >= records:
        raise UsageError(
            f"{store.uri}: no example {selection.first:,}: there are "
            f"{count(records, 'record')}, counted from 0"
        )
    return _selected(store, manifest, selection, splits)


def _selected(
    store: Store, manifest: Manifest, selection: Selection, splits: Sequence[str]
) -> Iterator[ExamplePreview]:
    left, skipped = selection.limit, selection.first
    schema = schema_of(manifest)
    for split in splits:
        for shard in manifest.splits[split].shards:
            if left <= 0:
                return
            if skipped >= shard.records:
                skipped -= shard.records
                continue
            for index, data in _records(store, manifest, shard, skipped, selection):
                values, text = _contents(data, schema, manifest.payload)
                yield ExamplePreview(split, shard.file, index, values, text)
                left -= 1
                if left <= 0:
                    return
            skipped = 0


def _records(
    store: Store,
    manifest: Manifest,
    shard: ShardEntry,
    skipped: int,
    selection: Selection,
) -> Iterator[tuple[int, bytes]]:
    """Yields (index, data) of the records of a shard that meet the conditions."""
    if selection.conditions:
        yield from _matching(store, manifest, shard, skipped, selection.conditions)
        return
    if manifest.container == "array_record":
        numbered = enumerate(shard_to_read(store, manifest, shard).records())
        for index, record in islice(numbered, skipped, None):
            yield index, bytes(record)
        return
    try:
        file = open_file(store, shard.file)
    except OSError as error:
        raise OutputError(
            f"{store.uri}: {shard.file} cannot be read: {error.strerror}; "
            "run `recordmill verify` to see what else is missing"
        ) from error
    with file:
        stream = open_stream(file, manifest.compression)
        records = enumerate(map(bytes, read_records(stream, shard.file)))
        yield from islice(records, skipped, None)


def _matching(
    store: Store,
    manifest: Manifest,
    shard: ShardEntry,
    skipped: int,
    conditions: Sequence[Condition],
) -> Iterator[tuple[int, bytes]]:
    """Yields (index, data) of the records that meet conditions, by whole windows."""
    schema = schema_of(manifest)
    first = 0
    for window in shard_to_read(store, manifest, shard).windows():
        for row in rows_with(window, conditions, schema, manifest.payload).tolist():
            if first + row >= skipped:
                yield first + row, window[row].as_py()
        first += len(window)


def _contents(
    data: bytes, schema: Schema, payload: Payload
) -> tuple[dict[str, FeatureValues], str]:
    """Returns (values of a record's features, its JSON text); one of them is empty."""
    if payload == "json":
        return {}, _indent_json(data)
    if payload == "raw":
        return {raw_feature(schema).name: [_text_or_bytes(data)]}, ""
    if payload == "sequence_example":
        return decode_sequence_example(data), ""
    values = decode_example(data)
    _join_ragged(values, data, schema)
    return dict(sorted(values.items())), ""


def _text_or_bytes(data: bytes) -> str | bytes:
    """Returns a raw record as text if it is printable, otherwise as bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text if "".join(text.split()).isprintable() else data


def _join_ragged(values: dict[str, FeatureValues], data: bytes, schema: Schema) -> None:
    """Replaces the keys of each ragged feature by its lists, if they are valid."""
    for feature in schema.features:
        if not feature.is_ragged:
            continue
        decoded = decode_records(pa.array([data], pa.binary()), Schema((feature,)))
        joined = decoded.batch[0][0].as_py()
        if joined is not None and not decoded.row_errors:
            for key in feature.keys:
                del values[key]
            values[feature.name] = joined


def _indent_json(data: bytes) -> str:
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except ValueError as error:
        raise OutputError(
            f"a record of {len(data)} bytes, {data[:24]!r}..., is not valid JSON: {error}"
        ) from error
