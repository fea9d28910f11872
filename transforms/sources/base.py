"""Defines the interface of every input format: a Source lists, cuts and reads its input.

A source is a frozen dataclass: building one accesses no storage, and it is sent to the
workers pickled. `prepare` is the only step that reads from the input before the run. The
order of the calls:

    prepare(files, append) -> cut(files)
    -> survey(each range) -> apply_boundaries, if needs_boundary_scan
    -> sample(some ranges) -> read(each range), or list_references + read_windows
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import (
    InputRange,
    Reject,
    RejectCode,
    RowIssue,
    TypeFlags,
    merge_type_flags,
)
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.keys import position_keys, shuffle_keys
from recordmill.transforms.file_content import Checksums
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.native.numpy_loops import U32
from recordmill.transforms.sources.file_splits import NO_SPLITS, FileSplits
from recordmill.transforms.sources.listing import NamedFile
from recordmill.transforms.sources.plain_types import plain_schema
from recordmill.transforms.sources.text_columns import TypeFlag
from recordmill.transforms.storage import Store

_RangeSample = TypeVar("_RangeSample")


@dataclass(slots=True)
class Rows:
    """Rows read from one input range."""

    # the columns; for references, only the columns known without reading a row
    batch: pa.RecordBatch
    origins: U64  # a hash of each row's origin, the same in every run
    positions: I64  # each row's position in its range, rising (see keys.position_keys)
    # row index -> (byte offset in the file, the row's raw bytes), for rejects
    raw_row: Callable[[int], tuple[int, bytes]]
    # each row's file, if a range has several files; () for the path of the range
    paths: Sequence[str] = ()
    # planned bytes of each row, if the plan must not depend on reading
    planned_bytes: I64 | None = None
    # the index of each row's split among `input_splits`, if a column names it
    split_indices: npt.NDArray[np.uint8] | None = None
    # a hash for each row; rows with equal hashes stay in one split. None means
    # `origins`
    group_hashes: U64 | None = None

    def order_keys(self, input_range: InputRange, job: JobSpec) -> U64:
        """Returns the order key of each row, before any shift (`key_shift`)."""
        if job.shuffle:
            return shuffle_keys(self.origins, job.seed)
        return position_keys(input_range, self.positions)

    def take_rows(self, row_indices: I64, batch: pa.RecordBatch | None = None) -> Rows:
        """Returns the rows at these indices, with another batch if one is given."""
        return replace(
            self,
            batch=self.batch.take(pa.array(row_indices)) if batch is None else batch,
            origins=self.origins[row_indices],
            positions=self.positions[row_indices],
            raw_row=lambda row: self.raw_row(int(row_indices[row])),
            paths=[self.paths[row] for row in row_indices] if self.paths else (),
            planned_bytes=(
                None if self.planned_bytes is None else self.planned_bytes[row_indices]
            ),
            split_indices=None
            if self.split_indices is None
            else self.split_indices[row_indices],
            group_hashes=None
            if self.group_hashes is None
            else self.group_hashes[row_indices],
        )


@dataclass(slots=True)
class RangeFindings:
    """The findings about one input range that are collected while its rows are read."""

    rejects: list[Reject] = field(default_factory=list)  # rows that could not be read
    # checksums of the parts of the input that were read; after a range was read
    # completely, they cover each of its bytes (`reports_checksums`)
    checksums: Checksums = field(default_factory=Checksums)
    issues: tuple[RowIssue, ...] = ()  # issues that are reported after the run
    # the type flags of each column, if the source infers types
    type_flags: TypeFlags = ()
    # number of missing values of each column, in the schema's column order
    null_counts: tuple[int, ...] = ()
    # number of input rows for which a function (`map`) returned no row and that are
    # not rejects
    num_dropped_rows: int = 0
    # number of rows after the first that a function made of an input row
    num_added_rows: int = 0
    num_sampled_out_rows: int = 0  # number of rows that sampling dropped
    num_copied_rows: int = 0  # number of copies that balancing created

    def add_batch_findings(
        self,
        *,
        observed: TypeFlags = (),
        nulls: Sequence[int] = (),
        issues: Sequence[RowIssue] = (),
    ) -> None:
        """Adds the type flags, missing values and issues of one batch."""
        self.type_flags = merge_type_flags(self.type_flags, observed)
        if nulls:
            previous_nulls = self.null_counts or (0,) * len(nulls)
            self.null_counts = tuple(map(sum, zip(previous_nulls, nulls, strict=True)))
        if issues:
            self.issues = RowIssue.merge_issues((self.issues, tuple(issues)))

    def reject_rows(
        self,
        rows: Rows,
        reasons: Mapping[int, str],
        input_range: InputRange,
        code: RejectCode = "value",
    ) -> Rows:
        """Adds rows, by index, to the rejects; returns the remaining rows."""
        if not reasons:
            return rows
        self.add_rejects(rows, reasons, input_range, code)
        return rows.take_rows(np.delete(np.arange(rows.batch.num_rows), list(reasons)))

    def add_rejects(
        self,
        rows: Rows,
        reasons: Mapping[int, str],
        input_range: InputRange,
        code: RejectCode = "value",
    ) -> None:
        """Adds rows, by index, to the rejects."""
        for row in sorted(reasons):
            path = rows.paths[row] if rows.paths else input_range.path
            position, raw = rows.raw_row(row)
            self.rejects.append(Reject(path, position, reasons[row], raw, code))


@dataclass(slots=True)
class ReferencedRows:
    """Rows read by reference."""

    batch: pa.RecordBatch  # the columns of the rows that could be read
    row_indices: I64  # the indices of their references; the remaining rows are rejects
    # row index -> (path, byte offset in the file, the row's raw bytes)
    raw_row: Callable[[int], tuple[str, int, bytes]]
    # the CRC-32C of each value of the batch's only column of views (see
    # recordmill.transforms.arrow), or None
    view_crcs: U32 | None = None
    # the same values as bytes, if they are also held outside the batch
    view_values: Sequence[bytes] | None = None


class InputFindings(NamedTuple):
    """The findings about all rows of an input after they were read."""

    schema: Schema  # the features of the records
    issues: tuple[RowIssue, ...] = ()
    type_flags: TypeFlags = ()  # the type flags of each column
    null_counts: tuple[int, ...] = ()  # number of missing values of each column
    num_rows: int = 0  # number of rows without the rejects
    is_complete: bool = True  # False if only a part of the rows was read


REFERENCE = "reference"  # the column of references
FRAMED = "framed record"  # the only column of a source whose rows are complete records
RANGE_BYTES = 16 << 20  # input of one task; a constant, so the cut ignores the workers


class RowSource(ABC):
    """The rows of an input, as its format reads them or as a transform creates them.

    A transform (label and split columns, a user's function, a sample) wraps another
    RowSource. Only `input` cuts the files and locates the rows.

    Rows with a size known before they are read, such as images and records of a fixed
    size, need not be kept until their shard is written: `list_references` lists them,
    and the writer of a shard reads the rows of that shard with `read_windows`.
    """

    # True if `list_references` and `read_windows` can be called
    supports_references = False
    # True if `list_references` can be called to count rows, even if they are not
    # exchanged by reference
    lists_rows = False
    sizes_known_upfront = False  # True if the plan counts file sizes
    # number of high bits that no order key has set; order keys are shifted by it
    key_shift = 0

    @property
    @abstractmethod
    def input_source(self) -> Source:
        """Returns the source that reads the files."""

    @abstractmethod
    def with_source(self, source: Source) -> RowSource:
        """Returns the same rows, read by another source of the same files."""

    def source_before_sampling(self) -> tuple[RowSource, float]:
        """Returns the rows before sampling, and the approximate share that it keeps."""
        return self, 1.0

    @property
    def infers_types(self) -> bool:
        """Returns True if column types are inferred from the cells.

        If so, the type flags of `sample`, `RangeFindings.type_flags`, `schema` and
        `needs_reencode` are values of `text_columns.TypeFlag`; otherwise they are empty.
        """
        return self.input_source.infers_types

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Returns names and types of the columns of `read`, after `prepare`."""

    def sample_type_flags(self, input_range: InputRange) -> TypeFlags:
        """Returns the type flags of each column in a few rows of a range."""
        return ()

    @abstractmethod
    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        """Returns the features, given the type flags and missing values of all rows."""

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        """Returns True if a range must be encoded again with wider types.

        Args:
          observed: the type flags of the range.
          used: the type flags with which the range was encoded.
          final: the type flags of the whole input.
        """
        return False

    @abstractmethod
    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        """Reads a range in batches.

        Args:
          input_range: the range.
          expected: the type flags to assume for each column; a batch has the types that
            follow from them and from all batches so far.
          range_findings: collects the findings about a batch before that batch is yielded.
        """

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        """Reads a range; columns whose types are inferred are read as text.

        Class names are therefore spelled as in the file.
        """
        names = self.columns().names if self.infers_types else ()
        text_flags = (int(TypeFlag.TEXT),) * len(names)
        return self.read(input_range, text_flags, RangeFindings())

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        """Returns the report on how the input was interpreted.

        Args:
          input_findings: the findings about all rows; None before they were read.
        """
        return InputReport()

    def input_splits(self) -> tuple[str, ...]:
        """Returns the splits that file names or a column of the input define.

        They replace the default split; () if the input defines no splits.
        """
        return self.input_source.input_splits()

    def input_split_rows(self) -> tuple[int, ...]:
        """Returns the number of rows of each of `input_splits`, if ranges have no split."""
        return ()

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        """Returns an upper estimate of the bytes of all records.

        It determines the size of the histogram.
        """
        return self.input_source.estimated_bytes(files)

    def input_schema(self, observed: TypeFlags) -> Schema | None:
        """Returns the features of the rows before `map`; None if there is no `map`."""
        return None

    @property
    def has_fixed_roles(self) -> bool:
        """Returns True if only files, not columns, can define labels and splits."""
        return self.supports_references

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Returns True if exchange by reference is the fastest for these files."""
        return False

    def list_references(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Lists references to the rows of a range in the column REFERENCE.

        The other columns are known without reading a row. Requires
        `supports_references` or `lists_rows`.
        """
        raise NotImplementedError

    def read_listed_rows(
        self, rows: Rows, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Reads some rows of `list_references`, as `read` does; requires `lists_rows`."""
        raise NotImplementedError

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], range_findings: RangeFindings
    ) -> Iterator[ReferencedRows]:
        """Reads the rows of each window of references, in order.

        A source in a store requests the next windows while the caller works. The rows
        of a window may be yielded in several parts. A window without references yields
        an empty batch with the columns.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RowTransform(RowSource):
    """A row source that transforms the rows of another row source."""

    inner_source: RowSource

    @property
    def input_source(self) -> Source:
        return self.inner_source.input_source

    def with_source(self, source: Source) -> Self:
        return replace(self, inner_source=self.inner_source.with_source(source))

    def sample_type_flags(self, input_range: InputRange) -> TypeFlags:
        return self.inner_source.sample_type_flags(input_range)

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        return self.inner_source.needs_reencode(observed, used, final)

    def input_splits(self) -> tuple[str, ...]:
        return self.inner_source.input_splits()

    def input_split_rows(self) -> tuple[int, ...]:
        return self.inner_source.input_split_rows()


@dataclass(frozen=True, slots=True)
class Append:
    """An existing dataset to which new files are appended."""

    # the files that were converted before and still exist
    existing_inventory: Inventory
    schema: Schema | None  # of the existing dataset; None if the job declares it


class Source(RowSource):
    """The input of a run in one format."""

    storage: StorageOptions  # options of the storage of the inputs
    splits = NO_SPLITS  # the rule by which names define splits, after `prepare`
    # the schema of the dataset to which rows are appended; every row must match it
    fixed_schema: Schema | None = None
    # root folders of the sidecar files that cells name; () means the table's folder
    files_roots: tuple[str, ...] = ()
    named_files: tuple[
        NamedFile, ...
    ] = ()  # files named by options that rows depend on
    # options of the format that replace `label` and `split_column`
    role_options: Mapping[str, str] = MappingProxyType({})
    # True if `prepare` accepts files with a `problem`; otherwise such a file raises an
    # error before `prepare`
    handles_unreadable = False
    # True if the format reads tar archives and zip files itself; otherwise an archive
    # given as an input is listed as a folder of its members
    reads_archives = False
    # True if `read` reports checksums of all bytes that it read; otherwise a file that
    # was rewritten with the same bytes counts as changed
    reports_checksums = False
    infers_types = False
    decimal_comma = False  # True if numbers in text have a decimal comma

    @property
    def input_source(self) -> Source:
        return self

    def with_source(self, source: Source) -> RowSource:
        return source

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        """Returns the source with the headers, types and classes of the whole input.

        Args:
          files: the files to convert; `cut` may cut no other files.
          append: the dataset to which they are appended, if any. They are then
            interpreted together with the existing files of that dataset.

        Raises:
          InputError: the files do not have this format, or do not form one dataset.
        """
        return self

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        """Returns the checksums of files that `prepare` read and that rows depend on.

        Files that `read` reads are not included. Must be called before
        `spill_inventory`.
        """
        return ()

    def input_splits(self) -> tuple[str, ...]:
        return self.splits.names

    def issue_problem(self, input_findings: InputFindings) -> str:
        """Returns the reason why rows with these issues must not be published, or "".

        Called after all rows were read and before anything is published.
        """
        return ""

    def type_notes(self, input_findings: InputFindings) -> list[str]:
        """Returns notes on cells that may have changed the types of columns."""
        return []

    def final_type_flags(self, input_findings: InputFindings) -> TypeFlags:
        """Returns the type flags of all rows, after the flags of all ranges are known."""
        return input_findings.type_flags

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        """Cuts the files into input ranges; only constants determine the cut.

        By default, each file that is not empty becomes one range. Files of another
        format are skipped.
        """
        return cut_blocks(files, None, self.splits)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        return self.fixed_schema or plain_schema(self.columns(), nulls)

    def needs_boundary_scan(self, ranges: Sequence[InputRange]) -> bool:
        """Returns True if these ranges can be read only after a boundary scan of each."""
        return False

    def scan_boundaries(self, input_range: InputRange) -> int:
        """Returns the boundary scan of a range, packed into an integer.

        `apply_boundaries` needs the scans of all ranges before any range can be read.
        """
        return 0

    def apply_boundaries(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """Returns the ranges with the results of their boundary scans, in range order."""
        return list(ranges)

    def with_boundaries(
        self, ranges: Sequence[InputRange], mapper: Callable[..., Iterable[int]] = map
    ) -> list[InputRange]:
        """Returns ranges that can be read, after their boundary scans if needed.

        `mapper` applies the boundary scan to each range, as the builtin `map` does.
        """
        if not self.needs_boundary_scan(ranges):
            return list(ranges)
        return self.apply_boundaries(ranges, list(mapper(self.scan_boundaries, ranges)))

    def read_for_statistics(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Reads the columns of a range from which statistics are computed.

        Columns of text whose types are inferred are read as text.
        """
        return self.read(input_range, (), range_findings)

    def spill_inventory(self, store: Store, name: str) -> Self:
        """Writes a large list of files to a file in a store, for workers to read.

        Returns the source without that list, small enough to be sent to each worker.
        """
        return self

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        """Returns small ranges, spread over the input; each can be read on its own."""
        return list(ranges[:: -(-len(ranges) // 4)])

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return Inventory.from_files(files).num_bytes


def number_ranges(
    parts: Sequence[tuple[InputFile, int, int] | tuple[InputFile, int, int, str]],
    splits: FileSplits = NO_SPLITS,
) -> list[InputRange]:
    """Creates input ranges from tuples (file, start, stop, split) in input order.

    A tuple without a split gets the split of its file.
    """
    total_positions = sum(part[2] - part[1] for part in parts)
    ranges = []
    position = 0
    for index, (file, start, stop, *explicit_splits) in enumerate(parts):
        ranges.append(
            InputRange(
                index=index,
                path=file.path,
                uri=file.uri,
                start=start,
                stop=stop,
                first_position=position,
                total_positions=total_positions,
                split=explicit_splits[0] if explicit_splits else splits.split_of(file),
                stat=file.stat,
            )
        )
        position += stop - start
    return ranges


def cut_blocks(
    files: Sequence[InputFile], block_bytes: int | None, splits: FileSplits
) -> list[InputRange]:
    """Cuts files into blocks of this size; None makes each file one range.

    Empty files are skipped.
    """
    parts = [
        (file, start, min(start + step, file.size))
        for file in files
        for step in (block_bytes or file.size,)
        for start in range(0, file.size, max(1, step))
    ]
    return number_ranges(parts, splits)


def spread_evenly(
    ranges: Sequence[InputRange], count: int, size: int
) -> list[InputRange]:
    """Returns ranges of the same size, spread evenly over larger ranges.

    Each returned range is inside one of `ranges` and begins at a multiple of `size` in
    it. `size` has the unit of the ranges. Fewer than `count` are returned if the ranges
    are small.
    """
    ends = list(accumulate(input_range.num_positions for input_range in ranges))
    spread_ranges: dict[tuple[int, int], InputRange] = {}
    for number in range(count):
        position = ends[-1] * (2 * number + 1) // (2 * count)
        index = bisect_right(ends, position)
        input_range = ranges[index]
        offset = position - (ends[index] - input_range.num_positions)
        start = input_range.start + offset // size * size
        spread_ranges[index, start] = replace(
            input_range,
            start=start,
            stop=min(start + size, input_range.stop),
            first_position=input_range.first_position + start - input_range.start,
        )
    return list(spread_ranges.values())


def read_sample_ranges(
    read: Callable[[InputRange], _RangeSample], ranges: Sequence[InputRange]
) -> Iterator[_RangeSample]:
    """Yields the result of `read` for each range of a sample; skips unreadable ranges.

    Without a boundary scan, a range can begin inside a quoted field.

    Raises:
      InputError: no range can be read.
    """
    problem: InputError | None = None
    any_read = False
    for input_range in ranges:
        try:
            range_sample = read(input_range)
        except InputError as error:
            problem = error
            continue
        any_read = True
        yield range_sample
    if problem is not None and not any_read:
        raise problem


@dataclass(frozen=True, slots=True)
class PipelineRowsSource(Source):
    """The source of a run whose rows come from a pipeline, not from files."""

    fixed_schema: Schema
    storage: StorageOptions = NO_OPTIONS

    def columns(self) -> pa.Schema:
        return pa.schema([])

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        return []

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        return iter(())


def missing_required(batch: pa.RecordBatch, schema: Schema | None) -> dict[int, str]:
    """Returns the reason for each row that lacks a required value, by ascending index.

    `schema` is the schema of the dataset to which the rows are appended, or None.
    """
    reasons: dict[int, str] = {}
    for feature in schema.features if schema else ():
        column = batch.column(feature.column)
        if not feature.optional and column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            reason = f"{feature.name}: missing; every record of the dataset has it"
            for row in np.flatnonzero(missing).tolist():
                reasons.setdefault(row, reason)
    return dict(sorted(reasons.items()))
