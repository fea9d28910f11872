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
from recordmill.schemas.input_summary import InputReport, InputWarning, SkippedFiles
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms.encode.columns import inside_lists, lists_of
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.images.summary import (
    UNDECODABLE,
    append_problem,
    decoding_report,
    observe_images,
    warn_undecodable,
    with_images,
)
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Append,
    InputFindings,
    RangeFindings,
    Rows,
    Source,
    missing_required,
    number_ranges,
)
from recordmill.transforms.sources.file_splits import NO_SPLITS, FileSplits
from recordmill.transforms.sources.hugging_face import (
    ColumnMetadata,
    check_files,
    check_labels,
    merge_column_metadata,
    read_column_metadata,
    report_unlabelled,
    require_same_classes,
)
from recordmill.transforms.sources.partitions import NO_PARTITIONS, Partitions
from recordmill.transforms.sources.plain_types import (
    flatten_batch,
    merge_columns,
    plain_columns,
    plain_schema,
    report_left_out_columns,
    require_features,
)
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import open_stream, size_of


@contextmanager
def reader_errors(uri: str, file_type: str) -> Iterator[None]:
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


TableFormat = Literal["parquet", "arrow"]
FILE_TYPES = {"parquet": "a Parquet file", "arrow": "an Arrow IPC file"}
WHOLE_BYTES = 16 << 20  # maximum size of a file that is read at once
BATCH_BYTES = 4 << 20  # approximate bytes of rows that are read and encoded at once
BATCH_ROWS = 1 << 16
_MESSAGE_MARKER = b"\xff" * 4  # before each message of a stream
_STREAM_END = _MESSAGE_MARKER + bytes(4)
_READ_BYTES = 1 << 20  # of a column that are read at once
_CONCURRENT_FILES = 16  # files whose metadata are read concurrently before the run
_FEATURE_BYTES = 32  # of a feature in a record, without its name and its value
RangeEnd = tuple[int, int]
"""The end of a range: the row of the file, and the group."""


class _Group(NamedTuple):
    """A group: its number of rows and their approximate bytes in memory."""

    num_rows: int
    size_bytes: int


class _TableFile(NamedTuple):
    """An open table file. Its functions raise Arrow's exceptions and OSError."""

    schema: pa.Schema
    groups: Callable[[], list[_Group]]
    # (first group, stop) -> the batches of these groups
    batches: Callable[[int, int], Iterator[pa.RecordBatch]]


class _TableMetadata(NamedTuple):
    """The metadata of a table file, which are known before its rows are read."""

    file: InputFile
    columns: dict[str, pa.DataType]
    groups: list[_Group]
    meaning: ColumnMetadata


def _open_table(kind: TableFormat, window: InputStream, size: int) -> _TableFile:
    """Opens a table file of this format."""
    file = pa.PythonFile(window, mode="r")
    if kind == "parquet":
        return _open_parquet(file)
    head = window.read(2 * len(_MESSAGE_MARKER))
    window.seek(0)
    # Streams of Arrow before 0.15 are not recognized: they have no such marker.
    if head.startswith(_MESSAGE_MARKER):
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
        size = sum(max(0, group.size_bytes) for group in range_groups)
        yield from parquet_file.iter_batches(
            batch_size=_batch_rows(sum(group.num_rows for group in range_groups), size),
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
            yield from _split_batch(arrow_file.get_batch(index))

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
            yield from _split_batch(batch)

    return _TableFile(reader().schema, groups, batches)


def _split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
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
        if (parts := _outer_and_children(array)) is None:
            raise
    outer, children = parts
    if outer is not None:
        outer.validate(full=True)
    for child in children:
        _require_valid(child)


def _outer_and_children(
    array: pa.Array,
) -> tuple[pa.Array | None, list[pa.Array]] | None:
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


def _cut_groups(groups: Sequence[_Group], range_bytes: int) -> tuple[RangeEnd, ...]:
    """Returns the ends of the ranges; a range ends when its groups are large enough."""
    ends: list[RangeEnd] = []
    start, row, num_bytes = 0, 0, 0
    for index, group in enumerate(groups, 1):
        row, num_bytes = row + group.num_rows, num_bytes + max(0, group.size_bytes)
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

    format_name: TableFormat = "parquet"
    as_declared: bool = False  # True if a declared schema defines the features
    requested_columns: tuple[str, ...] = ()  # the columns of that schema
    # True if files may have other columns (`extra_columns`)
    ignores_extra_columns: bool = False
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES  # of the groups of a range, in memory
    storage: StorageOptions = NO_OPTIONS
    # The following describe the whole input, after `prepare`.
    splits: FileSplits = NO_SPLITS
    partitions: Partitions = NO_PARTITIONS
    types: tuple[tuple[str, pa.DataType], ...] = ()
    # (path, ends of the ranges) of each file with rows
    range_ends: tuple[tuple[str, tuple[RangeEnd, ...]], ...] = ()
    empty_file_checksums: tuple[FileChecksum, ...] = ()  # of files without rows
    left_out_columns: tuple[str, ...] = ()  # columns that become no feature
    skipped_files: tuple[SkippedFiles, ...] = ()
    record_bytes: int = 0  # approximate bytes of all records
    column_metadata: ColumnMetadata = field(
        default_factory=ColumnMetadata
    )  # the metadata of columns

    reports_checksums = True

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        tables, skipped_files = _find_tables(files)
        if not tables:
            raise InputError(
                f"no input is {FILE_TYPES[self.format_name]} ({format_count(len(files), 'input file')}): "
                "they are empty, or their names begin with '_' or '.'"
            )
        existing_files = _find_tables(append.existing_inventory)[0] if append else []
        splits = self.splits.find_rule(tables, existing_files)
        partitions = self.partitions.find_columns(tables, splits, existing_files)
        schema, requested_columns = (
            append.schema if append else None,
            self.requested_columns,
        )
        if schema:
            requested_columns = tuple(feature.name for feature in schema.features)
        source = replace(
            self, requested_columns=requested_columns, partitions=partitions
        )
        opened_tables = list(
            map_ahead(tables, source._read_metadata, _CONCURRENT_FILES)
        )
        first = opened_tables[0].columns.keys()
        used_columns = {*requested_columns} & first or {*first}
        left_out = {
            name for table in opened_tables for name in table.columns
        } - used_columns
        for table in opened_tables if self.ignores_extra_columns else ():
            for name in left_out & table.columns.keys():
                del table.columns[name]
        types = merge_columns(
            [(table.file, table.columns) for table in opened_tables], requested_columns
        )
        meaning = merge_column_metadata(
            [(table.file.uri, table.meaning) for table in opened_tables]
        )
        meaning.keep_files(types)
        meaning.classes = {
            name: class_names
            for name, class_names in meaning.classes.items()
            if name in types
        }
        if schema:
            sizes = [column.name for column in meaning.size_fields()]
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
        feature_bytes = sum(len(name) + _FEATURE_BYTES for name in types)
        for file, _, groups, _ in opened_tables:
            if ends := _cut_groups(groups, self.range_bytes):
                cuts.append((file.path, ends))
            else:
                crc = open_stream(file, self.storage).checksum_of_part()
                unread.append(FileChecksum(file.path, 0, file.size, crc))
                skipped_files.append(("no rows", file.path))
            num_bytes += sum(
                max(0, size) + rows * feature_bytes for rows, size in groups
            )
        return replace(
            self,
            fixed_schema=schema,
            left_out_columns=tuple(left_out)
            if self.as_declared or self.ignores_extra_columns
            else (),
            splits=splits,
            partitions=partitions,
            types=tuple(types.items()),
            range_ends=tuple(cuts),
            skipped_files=SkippedFiles.count_by_reason(skipped_files),
            empty_file_checksums=tuple(unread),
            record_bytes=num_bytes,
            column_metadata=meaning,
        )

    def _read_metadata(self, file: InputFile) -> _TableMetadata:
        """Reads the metadata of a file."""
        window = open_stream(file, self.storage)
        with reader_errors(file.uri, FILE_TYPES[self.format_name]):
            table = _open_table(self.format_name, window, file.size)
            groups = table.groups()
            columns = plain_columns(
                *(self.partitions.extend_columns(file, table.schema), file.uri),
                as_declared=self.as_declared,
                used_columns=self.requested_columns
                if self.ignores_extra_columns
                else (),
            )
        meaning = read_column_metadata(table.schema)
        if self.as_declared:  # the declared schema defines classes and images
            meaning.classes.clear()
            meaning.keep_files(self.requested_columns)
        return _TableMetadata(file, meaning.dataset_types(columns), groups, meaning)

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.empty_file_checksums

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
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
        facts += [*self.splits.report_lines, *self.partitions.report_lines]
        if metadata_text := self.column_metadata.describe():
            facts.append(("by metadata", metadata_text))
        facts += report_left_out_columns(self.left_out_columns)
        unused = (
            f"{problem}: is not used"
            for problem in self.column_metadata.unused_metadata
        )
        warnings = [InputWarning("unused-metadata", message) for message in unused]
        if input_findings is not None:
            facts += [
                *decoding_report(input_findings.schema),
                *report_unlabelled(input_findings.issues),
            ]
            images = [
                issue for issue in input_findings.issues if issue.code == UNDECODABLE
            ]
            warnings += warn_undecodable(images)
        return InputReport(tuple(facts), tuple(warnings), self.skipped_files)

    def columns(self) -> pa.Schema:
        return pa.schema([*self.types, *self.column_metadata.size_fields()])

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        if self.fixed_schema is not None:
            return self.fixed_schema
        classes = self.column_metadata.classes
        leaves_out = self.ignores_extra_columns and self.requested_columns
        sizes = {
            column.name for column in self.column_metadata.size_fields() if leaves_out
        }
        features = [
            replace(feature, class_names=classes.get(feature.column, ()))
            for feature in plain_schema(self.columns(), nulls).features
            if feature.column not in sizes.difference(self.requested_columns)
        ]
        return with_images(
            Schema(tuple(features)), self.column_metadata.image_columns, observed
        )

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        cuts = dict(self.range_ends)
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
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        uri, size = input_range.uri, size_of(input_range)
        groups, part = self._groups_and_bytes(input_range, size)
        window = open_stream(input_range, self.storage, part=part)
        if part == (0, size) and size <= WHOLE_BYTES:
            window.part(0, size)  # buffers the file, because Arrow reads in any order
        columns, row = pa.schema(self.types), input_range.start
        range_findings.checksums.append(
            FileChecksum(input_range.path, *part, window.checksum_of_part())
        )
        with reader_errors(uri, FILE_TYPES[self.format_name]):
            table = _open_table(self.format_name, window, size)
            batches, rename_column = (
                table.batches(*groups),
                read_column_metadata(table.schema).dataset_name,
            )
        while row < input_range.stop:
            with reader_errors(uri, FILE_TYPES[self.format_name]):
                file_batch = next(batches, None)
                if file_batch is None or row + file_batch.num_rows > input_range.stop:
                    raise pa.ArrowInvalid(
                        "does not have the number of rows in its metadata: "
                        f"{input_range.stop - input_range.start}"
                    )
                file_batch = self.partitions.add_columns(file_batch, input_range.path)
                batch = flatten_batch(file_batch, columns, rename_column)
            yield self._create_rows(batch, input_range, row, range_findings)
            row += file_batch.num_rows

    def _groups_and_bytes(
        self, input_range: InputRange, size: int
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the groups of a range, and the bytes whose checksum the range reports.

        Both are pairs (first, stop). The bytes divide the file evenly among its ranges.
        """
        cuts = dict(self.range_ends)[input_range.path]
        first = 0
        for index, (stop, last) in enumerate(cuts):
            if stop == input_range.stop:
                start_byte = size * index // len(cuts)
                return (first, last), (start_byte, size * (index + 1) // len(cuts))
            first = last
        raise ValueError(f"{input_range.uri}: no range ends at row {input_range.stop}")

    def _create_rows(
        self,
        batch: pa.RecordBatch,
        input_range: InputRange,
        row: int,
        range_findings: RangeFindings,
    ) -> Rows:
        """Creates rows; rejects rows with a damaged image or a missing value."""
        images, uri = self.column_metadata.image_columns, input_range.uri
        batch, headers, problems = check_files(batch, self.column_metadata)
        label_problems, issues = check_labels(batch, self.column_metadata.classes, uri)
        problems |= label_problems | missing_required(batch, self.fixed_schema)
        # There are no headers if there are no image columns.
        for index, row_headers in enumerate(headers):
            if problem := append_problem(row_headers, self.fixed_schema):
                problems[index] = problem
        numbers = np.arange(row, row + batch.num_rows, dtype=np.int64)
        rows = Rows(
            batch=batch,
            origins=origins_in(input_range.path, 0, numbers),
            positions=numbers - input_range.start,
            raw_row=lambda index: (row + index, row_as_json(batch, index)),
        )
        rows = range_findings.reject_rows(rows, problems, input_range)
        kept_indices = [index for index in range(len(headers)) if index not in problems]
        names = [f"{uri}: row {row + index}" for index in kept_indices]
        observed, undecodable = observe_images(
            images, [headers[index] for index in kept_indices], names
        )
        nulls = [column.null_count for column in rows.batch.columns]
        range_findings.add_batch_findings(
            observed=observed, nulls=nulls, issues=[*issues, *undecodable]
        )
        return rows
