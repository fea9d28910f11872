"""Reads Parquet and Arrow IPC files and streams, which are cut into ranges at groups.

Column types come from the files. A group is a row group of Parquet or a record batch of
Arrow. The unit of ranges and positions is the row of a file. A range consists of one or
several complete groups. The origin of a row is its file and its row number in it, so it
does not depend on the groups.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputSummary, InputWarning, SkippedFiles
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.encode.columns import inside_lists, lists_of
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.images.summary import (
    UNDECODABLE,
    observe_images,
    readers_get,
    undecodable_in,
    warn_undecodable,
    with_images,
)
from recordmill.transforms.parallel import ahead
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Append,
    Findings,
    Rows,
    RowSink,
    Source,
    missing_required,
    number_ranges,
)
from recordmill.transforms.sources.file_splits import NO_SPLITS, FileSplits
from recordmill.transforms.sources.hugging_face import (
    Meaning,
    check_files,
    check_labels,
    meaning_of,
    merged_meaning,
    require_same_classes,
    told_of_labels,
)
from recordmill.transforms.sources.partitions import NO_PARTITIONS, Partitions
from recordmill.transforms.sources.plain_types import (
    flat_batch,
    left_out_fact,
    merged_columns,
    plain_columns,
    plain_schema,
    require_features,
)
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import open_stream, size_of


@contextmanager
def told_of(uri: str, file_type: str) -> Iterator[None]:
    """Converts exceptions of Arrow's readers to InputError.

    Args:
      uri: the file, for the message.
      file_type: the expected type of the file, such as "a Parquet file".

    Raises:
      InputError: an Arrow reader raised an exception.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"{uri}: cannot be read as {file_type}: {reason}. Copy or write the file again; "
            "if it has another format, name only the files to convert"
        ) from error


FileKind = Literal["parquet", "arrow"]
WHAT = {"parquet": "a Parquet file", "arrow": "an Arrow IPC file"}
WHOLE_BYTES = 16 << 20  # maximum size of a file that is read at once
BATCH_BYTES = 4 << 20  # approximate bytes of rows that are read and encoded at once
BATCH_ROWS = 1 << 16
_CONTINUED = b"\xff" * 4  # before each message of a stream
_STREAM_END = _CONTINUED + bytes(4)
_READ_BYTES = 1 << 20  # of a column that are read at once
_OPENED_AT_ONCE = 16  # files whose metadata are read concurrently before the run
_ENTRY_BYTES = 32  # of a feature in a record, without its name and its value
Cut = tuple[int, int]
"""The end of a range: the row of the file, and the group."""


class _Group(NamedTuple):
    """A group: its number of rows and their approximate bytes in memory."""

    rows: int
    size: int


class _TableFile(NamedTuple):
    """An open table file. Its functions raise Arrow's exceptions and OSError."""

    schema: pa.Schema
    groups: Callable[[], list[_Group]]
    # (first group, stop) -> the batches of these groups
    batches: Callable[[int, int], Iterator[pa.RecordBatch]]


class _FoundTable(NamedTuple):
    """The metadata of a table file, which are known before its rows are read."""

    file: InputFile
    columns: dict[str, pa.DataType]
    groups: list[_Group]
    meaning: Meaning


def _open_table(kind: FileKind, window: InputStream, size: int) -> _TableFile:
    """Opens a table file of this format."""
    file = pa.PythonFile(window, mode="r")
    if kind == "parquet":
        return _open_parquet(file)
    head = window.read(2 * len(_CONTINUED))
    window.seek(0)
    # Streams of Arrow before 0.15 are not recognized: they have no such marker.
    if head.startswith(_CONTINUED):
        return _open_stream(file, window, size)
    return _open_arrow(file, size)


def _open_parquet(file: pa.NativeFile) -> _TableFile:
    """Opens a Parquet file; its groups are the row groups."""
    # With a buffer, Arrow reads each column in parts.
    parquet_file = pq.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False)

    def groups() -> list[_Group]:
        metadata = parquet_file.metadata
        row_groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        if any(group.num_rows < 0 for group in row_groups):
            raise pa.ArrowInvalid("a row group has fewer than 0 rows")
        return [_Group(group.num_rows, group.total_byte_size) for group in row_groups]

    def batches(first: int, stop: int) -> Iterator[pa.RecordBatch]:
        range_groups = groups()[first:stop]
        size = sum(max(0, group.size) for group in range_groups)
        yield from parquet_file.iter_batches(
            batch_size=_batch_rows(sum(group.rows for group in range_groups), size),
            row_groups=list(range(first, stop)),
            use_threads=False,
        )

    return _TableFile(parquet_file.schema_arrow, groups, batches)


def _open_arrow(file: pa.NativeFile, size: int) -> _TableFile:
    """Opens an Arrow IPC file; its groups are the record batches."""
    arrow_file = pa.ipc.open_file(file)

    def groups() -> list[_Group]:
        # One column is enough to count rows, so only the first is read.
        fields = [0] if len(arrow_file.schema) else []
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        column_reader = pa.ipc.open_file(file, options=options)
        rows = [
            column_reader.get_batch(i).num_rows
            for i in range(column_reader.num_record_batches)
        ]
        total = max(1, sum(rows))
        return [_Group(num_rows, size * num_rows // total) for num_rows in rows]

    def batches(first: int, stop: int) -> Iterator[pa.RecordBatch]:
        for index in range(first, stop):
            yield from _in_steps(arrow_file.get_batch(index))

    return _TableFile(arrow_file.schema, groups, batches)


def _open_stream(file: pa.NativeFile, window: InputStream, size: int) -> _TableFile:
    """Opens a stream; it has no index of its batches, so all of it is one group."""
    window.seek(max(0, size - len(_STREAM_END)))
    if window.read(len(_STREAM_END)) != _STREAM_END:
        raise pa.ArrowInvalid(
            "the stream has no end-of-stream marker: it is cut short, or its writer "
            "was not closed"
        )

    def reader() -> pa.ipc.RecordBatchStreamReader:
        file.seek(0)
        return pa.ipc.open_stream(file)

    def groups() -> list[_Group]:
        rows = sum(batch.num_rows for batch in reader())
        return [_Group(rows, size)] if rows else []

    def batches(first: int, stop: int) -> Iterator[pa.RecordBatch]:
        for batch in reader() if first < stop else ():
            yield from _in_steps(batch)

    return _TableFile(reader().schema, groups, batches)


def _in_steps(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a batch in small batches; checks offsets and indices."""
    batch.validate()
    for column in batch.columns:
        _require_valid(column)
    step = _batch_rows(batch.num_rows, batch.nbytes)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _require_valid(array: pa.Array) -> None:
    """Checks that offsets and indices are inside their buffers, at every level.

    Text that is not UTF-8 is allowed here, because encoding checks it cell by cell. Arrow
    reports such text before it checks the offsets of the surrounding lists and of later
    fields. Each level is then validated separately.

    Raises:
      pa.ArrowInvalid: an offset or an index is outside its buffer.
    """
    try:
        array.validate(full=True)
        return
    except pa.ArrowInvalid as error:
        arrow_type = array.type
        if "UTF8" not in str(error):
            raise
        is_text = pt.is_string(arrow_type) or pt.is_large_string(arrow_type)
        if is_text or pt.is_string_view(arrow_type):
            return  # Arrow checks everything else before the bytes of text
        if (parts := _parts_of(array)) is None:
            raise
    outer, children = parts
    if outer is not None:
        outer.validate(full=True)
    for child in children:
        _require_valid(child)


def _parts_of(array: pa.Array) -> tuple[pa.Array | None, list[pa.Array]] | None:
    """Returns an array with its children replaced by nulls, and the children.

    The array is None if it has neither offsets nor indices. Returns None for a type that
    cannot become a feature.
    """
    arrow_type = array.type
    if isinstance(array, pa.ExtensionArray):
        return None, [array.storage]
    if pt.is_struct(arrow_type):
        return None, array.flatten()
    if pt.is_dictionary(arrow_type):
        nulls = pa.nulls(len(array.dictionary))
        outer = pa.DictionaryArray.from_arrays(array.indices, nulls, safe=False)
        return outer, [array.dictionary]
    if pt.is_fixed_size_list(arrow_type):
        return None, [array.values]
    if not pt.is_list(arrow_type) and not pt.is_large_list(arrow_type):
        return None
    outer = pa.Array.from_buffers(
        pa.list_(pa.null()) if pt.is_list(arrow_type) else pa.large_list(pa.null()),
        len(array),
        buffers=array.buffers()[:2],
        null_count=array.null_count,
        offset=array.offset,
        children=[pa.nulls(len(array.values))],
    )
    return outer, [array.values]


def _batch_rows(rows: int, size: int) -> int:
    """Returns the number of rows to read at once, for rows with a total size in bytes."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(1, size)))


def _cut_groups(groups: Sequence[_Group], range_bytes: int) -> tuple[Cut, ...]:
    """Returns the ends of the ranges; a range ends when its groups are large enough."""
    ends: list[Cut] = []
    start, row, num_bytes = 0, 0, 0
    for index, group in enumerate(groups, 1):
        row, num_bytes = row + group.rows, num_bytes + max(0, group.size)
        if row > start and (num_bytes >= range_bytes or index == len(groups)):
            ends.append((row, index))
            start, num_bytes = row, 0
    return tuple(ends)


def row_as_json(batch: pa.RecordBatch, row: int) -> bytes:
    r"""Returns a row as JSON; bytes that are not UTF-8 are escaped as \xff."""

    def format_cell(cell: object) -> str:
        if isinstance(cell, bytes):
            return cell.decode(errors="backslashreplace")
        return str(cell)

    cell_by_column: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        cell = column.slice(row, 1)
        try:
            (cell_by_column[name],) = cell.to_pylist()
        except UnicodeDecodeError:
            as_bytes = lists_of(pa.binary(), inside_lists(cell.type)[1])
            (cell_by_column[name],) = cell.cast(as_bytes).to_pylist()
    text = json.dumps(cell_by_column, ensure_ascii=False, default=format_cell)
    return text.encode(errors="backslashreplace")


def _find_tables(
    files: Sequence[InputFile],
) -> tuple[list[InputFile], list[tuple[str, str]]]:
    """Returns the tables, and pairs (reason, path) of the skipped files."""
    # Programs that write many files add _SUCCESS or _metadata.
    tables, skipped_files = [], []
    for file in files:
        if PurePosixPath(file.path).name.startswith(("_", ".")):
            skipped_files.append(("the name begins with '_' or '.'", file.path))
        elif not file.size:
            skipped_files.append(("empty", file.path))
        else:
            tables.append(file)
    return tables, skipped_files


@dataclass(frozen=True)
class ColumnarSource(Source):
    """A source of tables with typed columns, in Parquet or Arrow IPC files.

    A group larger than `range_bytes` is one range.
    """

    kind: FileKind = "parquet"
    as_declared: bool = False  # True if a declared schema defines the features
    wanted: tuple[str, ...] = ()  # the columns of that schema
    leaves_out: bool = False  # True if files may have other columns (`extra_columns`)
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES  # of the groups of a range, in memory
    storage: StorageOptions = NO_OPTIONS
    # The following describe the whole input, after `prepare`.
    splits: FileSplits = NO_SPLITS
    partitions: Partitions = NO_PARTITIONS
    types: tuple[tuple[str, pa.DataType], ...] = ()
    # (path, ends of the ranges) of each file with rows
    cuts: tuple[tuple[str, tuple[Cut, ...]], ...] = ()
    unread: tuple[FileChecksum, ...] = ()  # of files without rows
    left_out: tuple[str, ...] = ()  # columns that become no feature
    passed_over: tuple[SkippedFiles, ...] = ()
    record_bytes: int = 0  # approximate bytes of all records
    meaning: Meaning = field(default_factory=Meaning)  # the metadata of columns

    tells_checksums = True

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        tables, skipped_files = _find_tables(files)
        if not tables:
            raise InputError(
                f"no input is {WHAT[self.kind]} ({count(len(files), 'input file')}): "
                "they are empty, or their names begin with '_' or '.'"
            )
        existing_files = _find_tables(append.kept)[0] if append else []
        splits = self.splits.found_in(tables, existing_files)
        partitions = self.partitions.found_in(tables, splits, existing_files)
        schema, requested_columns = append.schema if append else None, self.wanted
        if schema:
            requested_columns = tuple(feature.name for feature in schema.features)
        source = replace(self, wanted=requested_columns, partitions=partitions)
        opened_tables = list(ahead(tables, source._look_at, _OPENED_AT_ONCE))
        first = opened_tables[0].columns.keys()
        used_columns = {*requested_columns} & first or {*first}
        left_out = {
            name for table in opened_tables for name in table.columns
        } - used_columns
        for table in opened_tables if self.leaves_out else ():
            for name in left_out & table.columns.keys():
                del table.columns[name]
        types = merged_columns(
            [(table.file, table.columns) for table in opened_tables], requested_columns
        )
        meaning = merged_meaning(
            [(table.file.uri, table.meaning) for table in opened_tables]
        )
        meaning.keep_files(types)
        meaning.classes = {
            name: class_names
            for name, class_names in meaning.classes.items()
            if name in types
        }
        if schema:
            sizes = [column.name for column in meaning.sizes()]
            require_features([*types, *sizes], schema, folders=partitions.keys)
            for feature in schema.features:
                if feature.class_names and feature.column in types:
                    # Labels in files without metadata are those of the dataset.
                    names = feature.class_names
                    found_names = meaning.classes.setdefault(feature.column, names)
                    require_same_classes(
                        opened_tables[0].file.uri, feature.column, found_names, names
                    )
        cuts, unread, num_bytes = [], [], 0
        feature_bytes = sum(len(name) + _ENTRY_BYTES for name in types)
        for file, _, groups, _ in opened_tables:
            if ends := _cut_groups(groups, self.range_bytes):
                cuts.append((file.path, ends))
            else:
                crc = open_stream(file, self.storage).drain()
                unread.append(FileChecksum(file.path, 0, file.size, crc))
                skipped_files.append(("no rows", file.path))
            num_bytes += sum(
                max(0, size) + rows * feature_bytes for rows, size in groups
            )
        return replace(
            self,
            fixed_schema=schema,
            left_out=tuple(left_out) if self.as_declared or self.leaves_out else (),
            splits=splits,
            partitions=partitions,
            types=tuple(types.items()),
            cuts=tuple(cuts),
            passed_over=SkippedFiles.counted(skipped_files),
            unread=tuple(unread),
            record_bytes=num_bytes,
            meaning=meaning,
        )

    def _look_at(self, file: InputFile) -> _FoundTable:
        """Reads the metadata of a file."""
        window = open_stream(file, self.storage)
        with told_of(file.uri, WHAT[self.kind]):
            table = _open_table(self.kind, window, file.size)
            groups = table.groups()
            columns = plain_columns(
                *(self.partitions.merged(file, table.schema), file.uri),
                as_declared=self.as_declared,
                used_columns=self.wanted if self.leaves_out else (),
            )
        meaning = meaning_of(table.schema)
        if self.as_declared:  # the declared schema defines classes and images
            meaning.classes.clear()
            meaning.keep_files(self.wanted)
        return _FoundTable(file, meaning.types(columns), groups, meaning)

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.unread

    def understood(self, range_findings: Findings | None = None) -> InputSummary:
        facts = [
            (
                "columns",
                ", ".join(f"{name} {arrow_type}" for name, arrow_type in self.types),
            )
        ]
        narrowed = [
            name
            for name, arrow_type in self.types
            if pt.is_float64(inside_lists(arrow_type)[0])
        ]
        if narrowed and not self.as_declared:
            facts.append(("stored as float32", ", ".join(narrowed)))
        facts += [*self.splits.facts, *self.partitions.facts]
        meaning = self.meaning
        if metadata_text := meaning.facts():
            facts.append(("by metadata", metadata_text))
        facts += left_out_fact(self.left_out)
        unused = (f"{problem}: is not used" for problem in meaning.unused)
        warnings = [InputWarning("unused-metadata", message) for message in unused]
        if range_findings is not None:
            facts += [
                *readers_get(range_findings.schema),
                *told_of_labels(range_findings.issues),
            ]
            images = [
                issue for issue in range_findings.issues if issue.code == UNDECODABLE
            ]
            warnings += warn_undecodable(images)
        return InputSummary(tuple(facts), tuple(warnings), self.passed_over)

    def columns(self) -> pa.Schema:
        return pa.schema([*self.types, *self.meaning.sizes()])

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        if self.fixed_schema is not None:
            return self.fixed_schema
        classes = self.meaning.classes
        leaves_out = self.leaves_out and self.wanted
        sizes = {column.name for column in self.meaning.sizes() if leaves_out}
        features = [
            replace(feature, class_names=classes.get(feature.column, ()))
            for feature in plain_schema(self.columns(), nulls).features
            if feature.column not in sizes.difference(self.wanted)
        ]
        return with_images(Schema(tuple(features)), self.meaning.images, observed)

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        cuts = dict(self.cuts)
        return number_ranges(
            [
                (file, start, stop)
                for file in files
                for start, stop in pairwise(
                    [0, *(row for row, _ in cuts.get(file.path, ()))]
                )
            ],
            self.splits,
        )

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return max(self.record_bytes, sum(file.size for file in files))

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        uri, size = input_range.uri, size_of(input_range)
        groups, part = self._part(input_range, size)
        window = open_stream(input_range, self.storage, part=part)
        if part == (0, size) and size <= WHOLE_BYTES:
            window.part(0, size)  # buffers the file, because Arrow reads in any order
        columns, row = pa.schema(self.types), input_range.start
        sink.checksums.append(FileChecksum(input_range.path, *part, window.drain()))
        with told_of(uri, WHAT[self.kind]):
            table = _open_table(self.kind, window, size)
            batches, rename_column = (
                table.batches(*groups),
                meaning_of(table.schema).named,
            )
        while row < input_range.stop:
            with told_of(uri, WHAT[self.kind]):
                file_batch = next(batches, None)
                if file_batch is None or row + file_batch.num_rows > input_range.stop:
                    raise pa.ArrowInvalid(
                        "does not have the number of rows in its metadata: "
                        f"{input_range.stop - input_range.start}"
                    )
                file_batch = self.partitions.added(file_batch, input_range.path)
                batch = flat_batch(file_batch, columns, rename_column)
            yield self._rows(batch, input_range, row, sink)
            row += file_batch.num_rows

    def _part(
        self, input_range: InputRange, size: int
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the groups of a range, and the bytes whose checksum the range reports.

        Both are pairs (first, stop). The bytes divide the file evenly among its ranges.
        """
        cuts = dict(self.cuts)[input_range.path]
        first = 0
        for index, (stop, last) in enumerate(cuts):
            if stop == input_range.stop:
                start_byte = size * index // len(cuts)
                return (first, last), (start_byte, size * (index + 1) // len(cuts))
            first = last
        raise ValueError(f"{input_range.uri}: no range ends at row {input_range.stop}")

    def _rows(
        self, batch: pa.RecordBatch, input_range: InputRange, row: int, sink: RowSink
    ) -> Rows:
        """Creates rows; rejects rows with a damaged image or a missing value."""
        images, uri = self.meaning.images, input_range.uri
        batch, headers, problems = check_files(batch, self.meaning)
        label_problems, issues = check_labels(batch, self.meaning.classes, uri)
        problems |= label_problems | missing_required(batch, self.fixed_schema)
        # There are no headers if there are no image columns.
        for index, row_headers in enumerate(headers):
            if problem := undecodable_in(row_headers, self.fixed_schema):
                problems[index] = problem
        numbers = np.arange(row, row + batch.num_rows, dtype=np.int64)
        rows = Rows(
            batch=batch,
            origins=origins_in(input_range.path, 0, numbers),
            positions=numbers - input_range.start,
            raw=lambda index: (row + index, row_as_json(batch, index)),
        )
        rows = sink.reject(rows, problems, input_range)
        kept_indices = [index for index in range(len(headers)) if index not in problems]
        names = [f"{uri}: row {row + index}" for index in kept_indices]
        observed, undecodable = observe_images(
            images, [headers[index] for index in kept_indices], names
        )
        nulls = [column.null_count for column in rows.batch.columns]
        sink.add(observed=observed, nulls=nulls, issues=[*issues, *undecodable])
        return rows
