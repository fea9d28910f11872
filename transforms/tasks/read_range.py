"""Reads one input range: rows become blocks of framed records with order keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, TaskChecksums
from recordmill.schemas.ranges import (
    InputRange,
    RangeResult,
    Reject,
    RejectTotals,
    SortedRunRef,
    TypeFlags,
    merge_type_flags,
)
from recordmill.transforms.arrow import I64, MAX_CELL_BYTES, U64
from recordmill.transforms.cast.side_files import SideFiles
from recordmill.transforms.encode.waiting_rows import lengths_of, payload_rows
from recordmill.transforms.exchange.keys import (
    position_keys,
    shuffle_keys,
    text_hash,
    value_hashes,
)
from recordmill.transforms.exchange.merge import Block
from recordmill.transforms.sources.base import REFERENCE, Rows, RowSink, RowSource
from recordmill.transforms.sources.label_split import (
    MISSING_KEY,
    class_hashes,
    has_decimal_commas,
)
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.frame_records import frame_rows
from recordmill.transforms.tasks.progress_reader import NO_COUNTS, Counts, LiveCounts


@dataclass(slots=True)
class RangeReader:
    """A reader of one range; counts what it reads.

    Attributes:
      context: the run.
      input_range: the range.
      by_reference: whether payloads are references to unread rows, not records.
      sink: what was found beside the rows so far; rows that cannot be encoded are
        rejects, too.
      rows_given: rows that the source gave.
      invalid: those of them that are rejects.
      encoded_types: what each column was taken for.
      files: reads the files that cells name.
      is_whole: whether all rows were read; if not, read again with `encoded_types`.
      live: where it notes how far it is.
    """

    context: RunContext
    input_range: InputRange
    by_reference: bool
    sink: RowSink = field(default_factory=RowSink)
    rows_given: int = 0
    invalid: int = 0
    encoded_types: TypeFlags = ()
    files: SideFiles = field(init=False)
    is_whole: bool = False
    live: LiveCounts = NO_COUNTS

    def __post_init__(self) -> None:
        self.files = side_files_of(self.input_range, self.context.source)

    def blocks(self, assumed_types: TypeFlags, num_bytes: int) -> Iterator[list[Block]]:
        """Yields all rows in lists; stops where a batch turns out to need wider types.

        Args:
          assumed_types: what each column is taken for (see Source.read).
          num_bytes: payload bytes of a list, which ends with the batch that reaches
            them. The caller clears it when it has done with it.
        """
        source = self.context.source
        self.encoded_types = assumed_types
        sink, observed = self.sink, self.sink.observed
        if self.by_reference:
            batches = source.list_references(self.input_range, sink)
        else:
            batches = source.read(self.input_range, assumed_types, sink)
        blocks: list[Block] = []
        held = 0
        for rows in batches:
            before = self.encoded_types
            self.encoded_types = merge_type_flags(before, sink.observed)
            # Types may still widen while no value was encoded with the narrower one: in
            # the first batch, or in a column that was empty so far.
            if source.needs_reencode(observed, before, self.encoded_types):
                return
            observed = sink.observed
            self.rows_given += rows.batch.num_rows
            self._note(rows)
            if rows.batch.num_rows == 0:
                continue
            for block, size in self._encoded(
                rows, self.context.schema(self.encoded_types)
            ):
                # An Arrow array holds 2 GiB: a huge record is alone in its list.
                if blocks and held + size > MAX_CELL_BYTES:
                    yield blocks
                    blocks, held = [], 0
                blocks.append(block)
                held += size
                if held >= num_bytes:
                    del block
                    yield blocks
                    blocks, held = [], 0
        if blocks:
            yield blocks
        self.is_whole = True

    @property
    def rejects(self) -> list[Reject]:
        """Returns the rows that are no records."""
        return self.sink.rejects

    @property
    def rows_read(self) -> int:
        """Returns how many rows of the input were read, rejects included."""
        unread = len(self.rejects) - self.invalid + self.sink.dropped - self.sink.added
        return self.rows_given + unread

    @property
    def all_checksums(self) -> list[FileChecksum]:
        """Returns the checksums of all that was read."""
        return [*self.sink.checksums, *self.files.checksums()]

    def result(
        self,
        rejects: RejectTotals,
        checksums: TaskChecksums,
        runs: tuple[SortedRunRef, ...] = (),
    ) -> RangeResult:
        """Returns the summary of the range, once all of it was read.

        Args:
          rejects: the saved ones.
          checksums: the saved ones.
          runs: the sorted runs written.
        """
        return RangeResult(
            range=self.input_range,
            rows_read=self.rows_read,
            rows_rejected=len(self.rejects),
            runs=runs,
            observed_types=self.sink.observed,
            issues=self.sink.issues,
            encoded_types=self.encoded_types,
            nulls=self.sink.nulls,
            rejects=rejects,
            checksums=checksums,
            rows_dropped=self.sink.dropped,
            rows_added=self.sink.added,
        )

    def _note(self, rows: Rows) -> None:
        if len(rows.positions):
            done = int(rows.positions[-1]) + 1
            self.live.note(Counts(done, self.rows_read, len(self.rejects)))

    def _encoded(self, rows: Rows, schema: Schema) -> Iterator[tuple[Block, int]]:
        """Encodes a batch, unless it goes by reference, and gives each row its key.

        Yields:
          A block, and the bytes of its payloads.
        """
        keys, splits = keys_and_splits(self.context, self.input_range, rows)
        for waiting, kept in self._waiting(rows, schema):
            lengths = planned_bytes = lengths_of(waiting)
            if rows.planned_bytes is not None:
                planned_bytes = rows.planned_bytes[kept]
            block = Block(waiting, keys[kept], splits[kept], planned_bytes)
            yield block, int(lengths.sum())

    def _waiting(
        self, rows: Rows, schema: Schema
    ) -> Iterator[tuple[pa.RecordBatch, I64]]:
        """Yields rows that wait for their shard, and their indices in the batch."""
        context = self.context
        if self.by_reference:
            references = payload_rows(rows.batch[REFERENCE])
            yield references, np.arange(rows.batch.num_rows, dtype=np.int64)
            return
        for framed in frame_rows(
            rows.batch,
            schema,
            context.job,
            files=self.files,
            expected_schema=context.expected_schema,
        ):
            for row, reason in framed.invalid_rows:
                path = rows.paths[row] if rows.paths else self.input_range.path
                position, raw = rows.raw(row)
                self.rejects.append(Reject(path, position, reason, raw))
                self.invalid += 1
            yield framed.rows, framed.kept


def side_files_of(input_range: InputRange, source: RowSource) -> SideFiles:
    """Returns a reader of the files that the cells of a table can name."""
    if source.input.files_root:
        return SideFiles.below(source.input.files_root, source.input.storage)
    root = input_range.uri.removesuffix(input_range.path)
    return SideFiles.beside(input_range.uri, root, source.input.storage)


def keys_and_splits(
    context: RunContext, input_range: InputRange, rows: Rows
) -> tuple[U64, npt.NDArray[np.uint8]]:
    """Returns the order key and the index of the split of each row."""
    if context.job.shuffle:
        keys = shuffle_keys(rows.origins, context.job.seed)
    else:
        keys = position_keys(input_range, rows.positions)
    if rows.splits is not None:
        return keys, rows.splits
    groups, classes = _groups(context, rows), _classes(context, rows)
    return keys, context.splits_of(groups, input_range, classes)


def _groups(context: RunContext, rows: Rows) -> U64:
    """Returns a hash per row; rows with equal hashes share a split."""
    column = context.job.split_by
    if column is None:
        return rows.origins if rows.groups is None else rows.groups
    require_column("split_by", column, rows.batch.schema.names)
    return value_hashes(rows.batch[column])


def _classes(context: RunContext, rows: Rows) -> U64 | None:
    """Returns the hash of each row's class, if the splits are exact."""
    if context.limits is None:
        return None
    column = context.job.stratify_by
    if column is None:
        return np.full(len(rows.origins), text_hash(MISSING_KEY), np.uint64)
    require_column("stratify_by", column, rows.batch.schema.names)
    comma = has_decimal_commas(context.job, context.source, column)
    return class_hashes(rows.batch[column], decimal_comma=comma)


def require_column(option: str, column: str, names: Sequence[str]) -> None:
    """Checks that there is the column that an option names.

    Raises:
      UsageError: if not; tells which there are.
    """
    if column not in names:
        raise UsageError(
            f"`{option}` {column}: no such column; the input has {', '.join(names)}"
        )
