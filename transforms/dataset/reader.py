"""Reads the records of a finished dataset shard by shard and verifies all of them."""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.manifest import Manifest, ShardEntry, schema_of
from recordmill.schemas.options import Container, Payload
from recordmill.schemas.text import check_file_name, count
from recordmill.transforms.arrow import I64, binary_array, offsets_of
from recordmill.transforms.dataset.files import (
    READ_BYTES,
    ChecksummedFile,
    open_file,
    require_size,
)
from recordmill.transforms.decode.examples import decode_records
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.decode.readable import (
    FeatureValues,
    decode_example,
    decode_sequence_example,
)
from recordmill.transforms.encode.payloads import raw_feature
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.array_record import ArrayRecordFile
from recordmill.transforms.tfrecord import open_stream, read_records

# The package array_record reads local files alone. A shard in a store is copied to a
# temporary file first: it takes its size on the local disk, but no memory.


def open_array_records(store: Store, entry: ShardEntry) -> ArrayRecordShard:
    """Opens a shard; one in a store is copied to a temporary file, which goes with it.

    Raises:
      OutputError: the file is not the one that the manifest describes.
      UsageError: the package array_record is missing.
    """
    require_size(store, entry)
    uri, name = store.uri_of(entry.file), check_file_name(entry.file, store.uri)
    folder = None
    if isinstance(store, LocalStore):
        path = Path(store.root, name)
    else:
        folder = mkdtemp(prefix="recordmill-")
        path = Path(folder, name)
    try:
        if folder is not None:
            with open_file(store, name) as source, path.open("wb") as target:
                checked = ChecksummedFile(source)
                shutil.copyfileobj(cast("BinaryIO", checked), target, READ_BYTES)
            _require_crc(uri, entry, checked.crc)
        file = ArrayRecordFile(path, uri)
        if file.records != entry.records:
            raise OutputError(
                f"{uri}: {file.records:,} records, the manifest says "
                f"{entry.records:,}; run `recordmill verify` to see what is wrong"
            )
    except BaseException:
        if folder is not None:
            _remove(folder, os.getpid())
        raise
    shard = ArrayRecordShard(uri, entry, path, file, is_copy=folder is not None)
    if folder is not None:
        weakref.finalize(shard, _remove, folder, os.getpid())
    return shard


class ArrayRecordShard:
    """One ArrayRecord shard, open for reading at any place."""

    def __init__(
        self,
        uri: str,
        entry: ShardEntry,
        path: Path,
        file: ArrayRecordFile,
        *,
        is_copy: bool,
    ) -> None:
        self._uri, self._entry, self._path = uri, entry, path
        self._file, self._is_copy = file, is_copy

    def read(self, positions: I64) -> pa.BinaryArray:
        """Returns records in the order of their positions, which may repeat.

        The package checks the hash of each.

        Raises:
          OutputError: one is damaged.
        """
        records = self._file.read(positions.tolist())
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        data = np.frombuffer(b"".join(records), np.uint8)
        return binary_array(offsets_of(lengths), data)

    def records(self) -> Iterator[memoryview]:
        """Yields all records in order, after a check of the whole file.

        Raises:
          OutputError: it is not the file that was written.
        """
        if not self._is_copy:
            with self._path.open("rb") as file:
                checked = ChecksummedFile(file)
                checked.drain()
            _require_crc(self._uri, self._entry, checked.crc)
        for record in self._file.read_all():
            yield memoryview(record)


def _require_crc(uri: str, entry: ShardEntry, crc: int) -> None:
    if f"{crc:08x}" != entry.crc32c:
        raise OutputError(
            f"{uri}: CRC-32C {crc:08x}, the manifest says {entry.crc32c}: this is not the "
            "file that was written. Convert again or restore it"
        )


def _remove(folder: str, process: int) -> None:
    """Removes a copy, unless it is the parent's of a process that was forked."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


WINDOW_BYTES = 8 << 20  # of records decoded at once; a single record may be larger
WINDOW_RECORDS = 1 << 12


@dataclass(frozen=True, slots=True)
class ShardToRead:
    """One shard and what is needed to read it.

    Attributes:
      store: of the dataset.
      entry: the shard's entry in the manifest.
      compression: of the shard.
      container: its file format.
    """

    store: Store
    entry: ShardEntry
    compression: str
    container: Container

    @property
    def uri(self) -> str:
        return self.store.uri_of(self.entry.file)

    def records(self) -> Iterator[memoryview]:
        """Yields the data of every record in order; keeps a window of the file in memory.

        Both checksums of each record are verified before it is yielded; at the end the
        number of records and the file's checksum. Of an ArrayRecord file, which has no
        such checksums, the whole file is verified first.

        Raises:
          CorruptRecordError: a record is damaged; names file, record and byte offset.
          OutputError: the file is not the one that the manifest describes.
        """
        if self.container == "array_record":
            yield from open_array_records(self.store, self.entry).records()
            return
        expected = self.entry
        require_size(self.store, expected)
        count = 0
        with open_file(self.store, expected.file) as file:
            checked = ChecksummedFile(file)
            stream = open_stream(cast("BinaryIO", checked), self.compression)
            for record in read_records(stream, self.uri):
                count += 1
                yield record
            checked.drain()
        crc32c = f"{checked.crc:08x}"
        if (count, crc32c) != (expected.records, expected.crc32c):
            raise OutputError(
                f"{self.uri}: {count} records and CRC-32C {crc32c}, the manifest says "
                f"{expected.records} and {expected.crc32c}: no record is damaged, but "
                "this is not the file that was written. Convert again or restore it"
            )

    def windows(self) -> Iterator[pa.BinaryArray]:
        """Yields the records as arrays of bounded size."""
        window: list[memoryview] = []
        num_bytes = 0
        for record in self.records():
            window.append(record)
            num_bytes += len(record)
            if num_bytes >= WINDOW_BYTES or len(window) >= WINDOW_RECORDS:
                yield _binary_array(window)
                window, num_bytes = [], 0
        if window:
            yield _binary_array(window)

    def batches(self, schema: Schema, payload: Payload) -> Iterator[pa.RecordBatch]:
        """Yields the records' features as columns, as `decode_payload` makes them.

        Raises:
          OutputError: a record does not fit the schema.
        """
        # Only here: verifying imports this module too, and decodes nothing.
        from recordmill.transforms.decode.payloads import decode_payload

        first = 0
        for window in self.windows():
            decoded = decode_payload(window, schema, payload)
            for row, reason in decoded.row_errors:
                raise OutputError(
                    f"{self.uri}: record {first + row} does not fit the dataset's "
                    f"schema: {reason}; run `recordmill verify --deep` to see all such"
                )
            yield decoded.batch
            first += len(window)


def shards_to_read(
    store: Store, manifest: Manifest, splits: Sequence[str] | None
) -> list[ShardToRead]:
    """Returns the shards of some splits, in the manifest's order.

    Args:
      store: of the dataset.
      manifest: its manifest.
      splits: their names; None takes all.

    Raises:
      UsageError: a split does not exist.
    """
    wanted = require_splits(store, manifest, *(splits or ()))
    return [
        shard_to_read(store, manifest, shard)
        for name in wanted
        for shard in manifest.splits[name].shards
    ]


def shard_to_read(store: Store, manifest: Manifest, shard: ShardEntry) -> ShardToRead:
    """Returns one shard of a dataset."""
    return ShardToRead(store, shard, manifest.compression, manifest.container)


def require_splits(store: Store, manifest: Manifest, *names: str) -> list[str]:
    """Returns the named splits, or all, in the manifest's order.

    Raises:
      UsageError: a split does not exist.
    """
    for name in names:
        if name not in manifest.splits:
            raise UsageError(
                f"{store.uri}: no split {name!r}; there are "
                f"{', '.join(map(repr, manifest.splits))}"
            )
    return [name for name in manifest.splits if not names or name in names]


def _binary_array(window: Sequence[memoryview]) -> pa.BinaryArray:
    lengths = np.fromiter(map(len, window), np.int64, len(window))
    return binary_array(offsets_of(lengths), np.frombuffer(b"".join(window), np.uint8))


_TRUTH_VALUES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Condition:
    """What a record must have.

    Attributes:
      feature: that is looked at.
      value: that it must have; of a feature with a shape, among its values.
    """

    feature: FeatureSpec
    value: bool | int | float | str | bytes


def parse_condition(
    text: str, schema: Schema, names: Mapping[str, Sequence[str]]
) -> Condition:
    """Parses FEATURE=VALUE, where the value may be the name of a class.

    Raises:
      UsageError: there is no such feature, or it cannot have the value.
    """
    name, equals, value = text.partition("=")
    features = {feature.name: feature for feature in schema.features}
    if not equals or name not in features:
        raise UsageError(
            f"`where`: expected FEATURE=VALUE, got {text!r}; the features are "
            f"{', '.join(sorted(features))}"
        )
    feature = features[name]
    if feature.content is Content.IMAGE:
        raise UsageError(f"`where`: the values of {name!r} are images, not to compare")
    classes = list(names.get(name, ()))
    if value in classes:
        return Condition(feature, classes.index(value))
    try:
        return Condition(feature, _value_of(value, feature.dtype))
    except ValueError:
        expected = feature.dtype + (" or a class name" if classes else "")
        raise UsageError(
            f"`where`: {value!r} is no value of {name!r} (expected {expected})"
        ) from None


def rows_with(
    records: pa.BinaryArray,
    conditions: Sequence[Condition],
    schema: Schema,
    payload: Payload,
) -> I64:
    """Returns the indices of the records that meet all conditions, in order."""
    if payload in ("example", "json"):  # no other feature has to be decoded
        wanted = {condition.feature.name for condition in conditions}
        schema = Schema(tuple(f for f in schema.features if f.name in wanted))
    batch = decode_payload(records, schema, payload).batch
    found = np.arange(len(records))
    for condition in conditions:
        rows = _rows_with(batch.column(condition.feature.name), condition.value)
        found = np.intersect1d(found, rows)
    return found


def _rows_with(column: pa.Array, value: object) -> I64:
    rows: I64 = np.arange(len(column))
    while pa.types.is_nested(column.type):  # a list: any of its values may be the one
        rows = rows[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)]
        column = pc.list_flatten(column)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # Arrow compares no half floats
    try:
        scalar = pa.scalar(value, column.type)
    except (pa.ArrowInvalid, OverflowError):
        return rows[:0]  # 300 is no uint8: no record has it
    equal = pc.equal(column, scalar).fill_null(False)
    found: I64 = rows[equal.to_numpy(zero_copy_only=False)]
    return found


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
