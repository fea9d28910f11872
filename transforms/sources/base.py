"""Defines what every input format offers: a Source lists, cuts and reads its input.

A source is a frozen value: building one touches no storage, and it travels to the
workers pickled. `prepare` is the one step that reads of the input before the run. The
order of the calls:

    prepare(files, append) -> cut(files) -> survey(range) of each, where needed -> resolve_ranges
    -> sample(range) of some -> read(range) of each, or list_references + read_windows
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
from recordmill.schemas.input_summary import InputSummary
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

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Rows:
    """Rows read from one input range."""

    # the columns; for references, only what is known without reading a row
    batch: pa.RecordBatch
    origins: U64  # a hash of each row's origin, the same in every run
    positions: I64  # each row's position in its range, rising (see keys.position_keys)
    # row index -> (byte offset in the file, the row's raw bytes); for rejects
    raw: Callable[[int], tuple[int, bytes]]
    # each row's file, where a range holds several; else () for the range's own
    paths: Sequence[str] = ()
    # planned bytes of each row, where the plan must not depend on reading
    planned_bytes: I64 | None = None
    # the index of each row's split among `own_splits`, where a column tells it
    splits: npt.NDArray[np.uint8] | None = None
    # a hash for each row, where those with equal ones stay in one split; None:
    # `origins`
    groups: U64 | None = None

    def order_keys(self, input_range: InputRange, job: JobSpec) -> U64:
        """Returns the order key of each row, before any shift (`key_shift`)."""
        if job.shuffle:
            return shuffle_keys(self.origins, job.seed)
        return position_keys(input_range, self.positions)

    def taken(self, kept: I64, batch: pa.RecordBatch | None = None) -> Rows:
        """Returns the rows of these indices, with another batch if one is given."""
        return replace(
            self,
            batch=self.batch.take(pa.array(kept)) if batch is None else batch,
            origins=self.origins[kept],
            positions=self.positions[kept],
            raw=lambda row: self.raw(int(kept[row])),
            paths=[self.paths[row] for row in kept] if self.paths else (),
            planned_bytes=(
                None if self.planned_bytes is None else self.planned_bytes[kept]
            ),
            splits=None if self.splits is None else self.splits[kept],
            groups=None if self.groups is None else self.groups[kept],
        )


@dataclass(slots=True)
class RowSink:
    """What is found beside the rows of a range while it is read."""

    rejects: list[Reject] = field(default_factory=list)  # rows that could not be read
    # of parts of the input that were read; once a range was read whole, they name each
    # of its bytes (`tells_checksums`)
    checksums: Checksums = field(default_factory=Checksums)
    issues: tuple[RowIssue, ...] = ()  # rows that the end of the run reports
    # the type flags of each column, if the source infers types
    observed: TypeFlags = ()
    # missing values of each column, in the schema's column order
    nulls: tuple[int, ...] = ()
    # rows of the input that are neither rows nor rejects, because a function (`map`)
    # leaves them out
    dropped: int = 0
    added: int = 0  # rows beside the first that comes from a row of the input
    left_out: int = 0  # rows that sampling left out
    copied: int = 0  # copies that balancing made

    def add(
        self,
        *,
        observed: TypeFlags = (),
        nulls: Sequence[int] = (),
        issues: Sequence[RowIssue] = (),
    ) -> None:
        """Adds what a batch has."""
        self.observed = merge_type_flags(self.observed, observed)
        if nulls:
            earlier = self.nulls or (0,) * len(nulls)
            self.nulls = tuple(map(sum, zip(earlier, nulls, strict=True)))
        if issues:
            self.issues = RowIssue.merged((self.issues, tuple(issues)))

    def reject(
        self,
        rows: Rows,
        reasons: Mapping[int, str],
        input_range: InputRange,
        code: RejectCode = "value",
    ) -> Rows:
        """Rejects some rows, by their index; returns the others."""
        if not reasons:
            return rows
        self.add_rejects(rows, reasons, input_range, code)
        return rows.taken(np.delete(np.arange(rows.batch.num_rows), list(reasons)))

    def add_rejects(
        self,
        rows: Rows,
        reasons: Mapping[int, str],
        input_range: InputRange,
        code: RejectCode = "value",
    ) -> None:
        """Adds rows, by their index, to the rejects."""
        for row in sorted(reasons):
            path = rows.paths[row] if rows.paths else input_range.path
            position, raw = rows.raw(row)
            self.rejects.append(Reject(path, position, reasons[row], raw, code))


@dataclass(slots=True)
class ReferencedRows:
    """Rows read by reference."""

    batch: pa.RecordBatch  # the columns of the rows that could be read
    kept: I64  # the indices of their references; the other rows are rejects
    # row index -> (path, byte offset in the file, the row's raw bytes)
    raw: Callable[[int], tuple[str, int, bytes]]
    # the CRC-32C of each value of the batch's only column of views (see
    # recordmill.transforms.arrow), or None
    view_crcs: U32 | None = None
    # these values, where they are known apart from the batch
    view_values: Sequence[bytes] | None = None


class Findings(NamedTuple):
    """What all rows of an input had, once they were read."""

    schema: Schema  # the features of the records
    issues: tuple[RowIssue, ...] = ()
    observed: TypeFlags = ()
    nulls: tuple[int, ...] = ()  # missing values of each column
    rows: int = 0  # that are no rejects
    is_all: bool = True  # whether no others are left


REFERENCE = "reference"  # the column of references
FRAMED = "framed record"  # the only column of a source that has whole records already
RANGE_BYTES = 16 << 20  # input of one task; fixes the cut, so never depends on workers


class RowSource(ABC):
    """The rows of an input: as its format reads them, or as a transform makes them.

    A transform (label and split columns, a user's function, a sample) stands on another
    RowSource; how files are cut and where rows lie is asked of `input` alone.

    Rows with a size known before they are read, such as images and records of a fixed
    size, need not be kept until their shard is written: `list_references` tells which
    there are, and the writer of a shard reads its own by `read_windows`.
    """

    supports_references = False  # whether these two can be called
    # whether `list_references` can, although rows are not exchanged so: to count them
    lists_rows = False
    sizes_known_upfront = False  # whether the plan counts file sizes
    # bits by which order keys are shifted, because no row has one of these set
    key_shift = 0

    @property
    @abstractmethod
    def input(self) -> Source:
        """Returns the source that reads the files."""

    @abstractmethod
    def on(self, source: Source) -> RowSource:
        """Returns the same rows of another source, which reads the same files."""

    def unsampled(self) -> tuple[RowSource, float]:
        """Returns all rows, and about what share of them this source has."""
        return self, 1.0

    @property
    def infers_types(self) -> bool:
        """Tells whether column types follow from the cells.

        If so, the type flags of `sample`, `RowSink.observed`, `schema` and
        `needs_reencode` are those of `text_columns.TypeFlag`; else they are empty.
        """
        return self.input.infers_types

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Returns names and types of the columns that `read` gives, once prepared."""

    def sample(self, input_range: InputRange) -> TypeFlags:
        """Returns the type flags of the columns in a few rows of a range."""
        return ()

    @abstractmethod
    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        """Returns the features, given the type flags and missing values of all rows."""

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        """Tells whether a range must be encoded again because types came out wider.

        Args:
          observed: the range's own type flags.
          used: those that it was encoded for.
          final: those of the whole input.
        """
        return False

    @abstractmethod
    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        """Reads a range in batches.

        Args:
          input_range: the range.
          expected: the type flags to assume for each column; a batch has the types that
            this asks for together with all batches so far.
          sink: gets what is found beside the rows, before the batch that it is about.
        """

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        """Reads a range with columns whose types are inferred as text.

        So names of classes are what is written.
        """
        names = self.columns().names if self.infers_types else ()
        text = (int(TypeFlag.TEXT),) * len(names)
        return self.read(input_range, text, RowSink())

    def understood(self, found: Findings | None = None) -> InputSummary:
        """Returns what the input was taken for, once prepared, or once all was read."""
        return InputSummary()

    def own_splits(self) -> tuple[str, ...]:
        """Returns the splits that all of the input is divided into by itself.

        They take the place of the default split; () where files are in no split.
        """
        return self.input.own_splits()

    def own_split_rows(self) -> tuple[int, ...]:
        """Returns the rows of each of `own_splits`, where ranges do not tell them."""
        return ()

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        """Returns an upper estimate of all records' bytes; it sizes the histogram."""
        return self.input.estimated_bytes(files)

    def input_schema(self, observed: TypeFlags) -> Schema | None:
        """Returns the features of rows before a function (`map`); None without one."""
        return None

    @property
    def refuses_roles(self) -> bool:
        """Tells whether labels and splits are those of files, not of columns."""
        return self.supports_references

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Tells whether exchange by reference is the fastest for these files."""
        return False

    def list_references(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        """Lists references to a range's rows instead of the rows, in column REFERENCE.

        The other columns are those that are known without reading a row. Only where
        `supports_references` or `lists_rows`.
        """
        raise NotImplementedError

    def read_listed(self, rows: Rows, sink: RowSink) -> Iterator[Rows]:
        """Reads some of the rows of `list_references`, as `read` does; if `lists_rows`."""
        raise NotImplementedError

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], sink: RowSink
    ) -> Iterator[ReferencedRows]:
        """Reads the rows that windows of references stand for, one after the other.

        A source that waits for a store asks for the next ones while the caller works.
        A window may come in parts; one without references tells the columns.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RowTransform(RowSource):
    """The rows that a transform makes of those of another source."""

    inner: RowSource

    @property
    def input(self) -> Source:
        return self.inner.input

    def on(self, source: Source) -> Self:
        return replace(self, inner=self.inner.on(source))

    def sample(self, input_range: InputRange) -> TypeFlags:
        return self.inner.sample(input_range)

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        return self.inner.needs_reencode(observed, used, final)

    def own_splits(self) -> tuple[str, ...]:
        return self.inner.own_splits()

    def own_split_rows(self) -> tuple[int, ...]:
        return self.inner.own_split_rows()


@dataclass(frozen=True, slots=True)
class Append:
    """A dataset that new files are appended to."""

    # the files that were converted before, as they are still there
    kept: Inventory
    schema: Schema | None  # of the dataset that is there; None if the job declares it


class Source(RowSource):
    """The input of a run in one format."""

    storage: StorageOptions  # options of the inputs' storage
    splits = NO_SPLITS  # by which names tell the splits of files, once prepared
    # of the dataset that rows are appended to, which all of them have to fit
    fixed_schema: Schema | None = None
    # folders that cells name files below; none: the table's own
    files_roots: tuple[str, ...] = ()
    named_files: tuple[NamedFile, ...] = ()  # that rows depend on, beside the inputs
    # the format's own options that stand for `label` and `split_column`
    role_options: Mapping[str, str] = MappingProxyType({})
    # whether `prepare` takes files that have a `problem`; else one is an error before
    handles_unreadable = False
    # whether it reads tar archives and zip files; else one that is an input stands for
    # its members, as a folder for its files
    reads_archives = False
    # whether rows come with the checksums of all that was read; else a file that was
    # written again is another one, even with the same bytes
    tells_checksums = False
    infers_types = False
    decimal_comma = False  # whether numbers in text have a comma before their places

    @property
    def input(self) -> Source:
        return self

    def on(self, source: Source) -> RowSource:
        return source

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        """Returns the source with what it must know of the whole input: headers, classes.

        Args:
          files: to convert; the only ones that `cut` may cut.
          append: the dataset that they are appended to, if any: then they are read as
            if they stood beside its files.

        Raises:
          InputError: the input cannot be of this format, or of one dataset.
        """
        return self

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        """Returns the checksums of what `prepare` read and what rows depend on.

        Only of files that `read` does not read. Asked before `spill_inventory`.
        """
        return ()

    def own_splits(self) -> tuple[str, ...]:
        return self.splits.names

    def issue_problem(self, found: Findings) -> str:
        """Returns why a dataset may not have rows with these issues, or "".

        Asked once all rows were read, before anything is published.
        """
        return ""

    def issue_notes(self, found: Findings) -> list[str]:
        """Returns what rows had that may have changed the types of columns."""
        return []

    def settle_types(self, found: Findings) -> TypeFlags:
        """Returns the type flags of all rows, once each range knows its own."""
        return found.observed

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        """Cuts the files into input ranges, by constants alone.

        By default a file with bytes is a range. Files that are not of this format are
        left out.
        """
        return cut_blocks(files, None, self.splits)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        return self.fixed_schema or plain_schema(self.columns(), nulls)

    def needs_survey(self, ranges: Sequence[InputRange]) -> bool:
        """Tells whether these ranges can be read only after a survey of each."""
        return False

    def survey(self, input_range: InputRange) -> int:
        """Returns what must be known of each range before any can be read."""
        return 0

    def resolve_ranges(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """Returns the ranges with what the surveys found; both in range order."""
        return list(ranges)

    def surveyed(
        self, ranges: Sequence[InputRange], each: Callable[..., Iterable[int]] = map
    ) -> list[InputRange]:
        """Returns ranges that can be read; `each` is how they are surveyed, if needed."""
        if not self.needs_survey(ranges):
            return list(ranges)
        return self.resolve_ranges(ranges, list(each(self.survey, ranges)))

    def read_for_statistics(
        self, input_range: InputRange, sink: RowSink
    ) -> Iterator[Rows]:
        """Reads the columns of a range that statistics are made of.

        Columns of text whose types are inferred come as text.
        """
        return self.read(input_range, (), sink)

    def spill_inventory(self, store: Store, name: str) -> Self:
        """Writes a large list of files to a file of a store, for workers to read.

        Returns the source without that list, small enough to be sent to each worker.
        """
        return self

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        """Returns small ranges, spread over the input, each readable on its own."""
        return list(ranges[:: -(-len(ranges) // 4)])

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return Inventory.of(files).num_bytes


def number_ranges(
    parts: Sequence[tuple[InputFile, int, int] | tuple[InputFile, int, int, str]],
    splits: FileSplits = NO_SPLITS,
) -> list[InputRange]:
    """Makes input ranges from (file, start, stop, split) in input order.

    The split of parts without one is that of their file.
    """
    total = sum(part[2] - part[1] for part in parts)
    ranges = []
    position = 0
    for index, (file, start, stop, *own) in enumerate(parts):
        ranges.append(
            InputRange(
                index=index,
                path=file.path,
                uri=file.uri,
                start=start,
                stop=stop,
                first_position=position,
                total_positions=total,
                split=own[0] if own else splits.of(file),
                seen=file.seen,
            )
        )
        position += stop - start
    return ranges


def cut_blocks(
    files: Sequence[InputFile], block_bytes: int | None, splits: FileSplits
) -> list[InputRange]:
    """Cuts files with bytes into blocks of this size; None: a file is a range."""
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
    """Returns ranges of the same size, spread evenly over larger ones.

    Each lies within one of these, and begins at a multiple of the size, which is in the
    unit of ranges. They are fewer than `count` where ranges are small.
    """
    ends = list(accumulate(input_range.num_positions for input_range in ranges))
    chosen: dict[tuple[int, int], InputRange] = {}
    for number in range(count):
        position = ends[-1] * (2 * number + 1) // (2 * count)
        index = bisect_right(ends, position)
        input_range = ranges[index]
        inside = position - (ends[index] - input_range.num_positions)
        start = input_range.start + inside // size * size
        chosen[index, start] = replace(
            input_range,
            start=start,
            stop=min(start + size, input_range.stop),
            first_position=input_range.first_position + start - input_range.start,
        )
    return list(chosen.values())


def map_readable(
    read: Callable[[InputRange], _Found], ranges: Sequence[InputRange]
) -> Iterator[_Found]:
    """Yields what is read of each range of a sample, but for those that cannot be read.

    A range can begin inside a quoted field, as a boundary scan would have found.

    Raises:
      InputError: none can be read.
    """
    problem: InputError | None = None
    any_read = False
    for input_range in ranges:
        try:
            found = read(input_range)
        except InputError as error:
            problem = error
            continue
        any_read = True
        yield found
    if problem is not None and not any_read:
        raise problem


@dataclass(frozen=True, slots=True)
class PipelineRowsSource(Source):
    """The source of a run whose rows come from a pipeline, not from files."""

    fixed_schema: Schema
    storage: StorageOptions = NO_OPTIONS

    def columns(self) -> pa.Schema:
        return pa.schema([])

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return []

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        return iter(())


def missing_required(batch: pa.RecordBatch, schema: Schema | None) -> dict[int, str]:
    """Returns the reason of each row that misses a value, by row, ascending.

    The schema is that of the dataset that the rows are appended to, or None.
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
