"""Converts one input range into sorted runs, or into pieces for the runner's shuffle."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError, UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.ranges import (
    InputRange,
    RangeResult,
    ShardPlan,
    SortedRunRef,
    TypeFlags,
    merge_type_flags,
)
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, MAX_CELL_BYTES, U64
from recordmill.transforms.cast.side_files import SidecarFiles
from recordmill.transforms.encode.waiting_rows import lengths_of, payload_rows
from recordmill.transforms.exchange.keys import copy_origins, text_hash, value_hashes
from recordmill.transforms.exchange.pieces import cut_block, reject_pieces
from recordmill.transforms.exchange.plan import (
    Histogram,
    PackedHistogram,
    packed_histogram,
    shard_numbers,
)
from recordmill.transforms.exchange.sorted_runs import Block
from recordmill.transforms.file_content import Checksums
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.base import REFERENCE, RangeFindings, Rows
from recordmill.transforms.sources.label_split import (
    MISSING_KEY,
    class_hashes,
    has_decimal_commas,
)
from recordmill.transforms.tasks.context import RunContext, can_plan_from_sizes
from recordmill.transforms.tasks.frame_records import frame_rows
from recordmill.transforms.tasks.workspace import (
    CHECKPOINT_FOLDER,
    NO_COUNTS,
    Counts,
    LiveCounts,
    checksums_of,
    discard_checkpoint,
    has_task_files,
    load_checkpoint,
    save_checkpoint,
    save_checksums,
    save_rejects,
    write_live_counts,
)
from recordmill.transforms.tfrecord import crc32c

RUN_BYTES = 64 << 20  # size of a sorted run; a range can have several runs
BLOCK_BYTES = 32 << 20  # size of the records measured, or cut into pieces, at once


@dataclass(slots=True)
class RangeReader:
    """A reader of one range, with counts of its rows."""

    context: RunContext  # the run
    input_range: InputRange  # the range
    by_reference: bool  # whether payloads are references to unread rows, not records
    # findings about the rows so far; rows that cannot be encoded are added to the rejects
    range_findings: RangeFindings = field(default_factory=RangeFindings)
    encoded_types: TypeFlags = ()  # the type with which each column was encoded
    # whether all rows were read; if not, read again with `encoded_types`
    is_whole: bool = False
    live_counts: LiveCounts = NO_COUNTS  # gets the progress
    max_rows: int = sys.maxsize  # most rows encoded per batch; limited for estimates
    num_source_rows: int = 0  # number of rows from the source
    num_invalid_rows: int = 0  # number of rejects among these, found during encoding
    _sidecar_files: SidecarFiles | None = field(init=False)

    def __post_init__(self) -> None:
        self._sidecar_files = _sidecar_files_of(self.context, self.input_range)

    def blocks(self, assumed_types: TypeFlags, num_bytes: int) -> Iterator[list[Block]]:
        """Yields all rows as lists of blocks; stops if a batch needs wider types.

        `assumed_types` are the assumed types of the columns (see Source.read). A list
        ends with the batch that reaches `num_bytes` of payloads. The caller clears the
        list after its use.
        """
        source = self.context.source
        self.encoded_types = assumed_types
        range_findings, observed = self.range_findings, self.range_findings.type_flags
        if self.by_reference:
            batches = list_rows(self.context, self.input_range, range_findings)
        elif (
            source.lists_rows and self.context.balanced_classes
        ):  # each copy may be a reject
            references = list_rows(self.context, self.input_range, range_findings)
            batches = chain.from_iterable(
                source.read_listed_rows(r, range_findings) for r in references
            )
        else:
            batches = with_copies(
                self.context,
                self.input_range,
                source.read(self.input_range, assumed_types, range_findings),
                range_findings,
            )
        blocks: list[Block] = []
        held_bytes = 0
        for rows in batches:
            types_before = self.encoded_types
            self.encoded_types = merge_type_flags(
                types_before, range_findings.type_flags
            )
            # A wider type is no problem if nothing was encoded with the narrower type
            # yet: in the first batch, or in a column that was empty so far.
            if source.needs_reencode(observed, types_before, self.encoded_types):
                return
            observed = range_findings.type_flags
            self.num_source_rows += rows.batch.num_rows
            if len(rows.positions):
                done = int(rows.positions[-1]) + 1
                self.live_counts.write_counts(
                    Counts(done, self.rows_read, len(range_findings.rejects))
                )
            if rows.batch.num_rows == 0:
                continue
            for block, size in self._encoded_blocks(
                rows, self.context.schema(self.encoded_types)
            ):
                # An Arrow array is limited to 2 GiB: a huge record gets its own list.
                if blocks and held_bytes + size > MAX_CELL_BYTES:
                    yield blocks
                    blocks, held_bytes = [], 0
                blocks.append(block)
                held_bytes += size
                if held_bytes >= num_bytes:
                    del block
                    yield blocks
                    blocks, held_bytes = [], 0
        if blocks:
            yield blocks
        self.is_whole = True

    @property
    def rows_read(self) -> int:
        """Returns the number of rows of the input that were read, rejects included."""
        range_findings = self.range_findings
        unread = (
            len(range_findings.rejects)
            - self.num_invalid_rows
            + range_findings.num_dropped_rows
            - range_findings.num_added_rows
        )
        return (
            self.num_source_rows
            + unread
            + range_findings.num_sampled_out_rows
            - range_findings.num_copied_rows
        )

    @property
    def checksums(self) -> Checksums:
        """Returns the checksums of all files, or parts of files, that were read."""
        if self._sidecar_files is None:
            return self.range_findings.checksums
        return Checksums(
            (*self.range_findings.checksums, *self._sidecar_files.checksums())
        )

    def save(
        self, name: str, rejects_name: str = "", runs: Sequence[SortedRunRef] = ()
    ) -> RangeResult:
        """Saves rejects and checksums after reading; returns the result of the range.

        `rejects_name` is the task for which rejects are saved, if it is not `name`.
        """
        range_findings, workspace = self.range_findings, self.context.workspace
        rejects = save_rejects(workspace, rejects_name or name, range_findings.rejects)
        return RangeResult(
            range=self.input_range,
            rows_read=self.rows_read,
            rows_rejected=len(range_findings.rejects),
            sorted_runs=tuple(runs),
            observed_types=range_findings.type_flags,
            issues=range_findings.issues,
            encoded_types=self.encoded_types,
            null_counts=range_findings.null_counts,
            rejects=rejects,
            checksums=save_checksums(workspace, name, self.checksums),
            rows_dropped=range_findings.num_dropped_rows,
            rows_added=range_findings.num_added_rows,
            rows_sampled_out=range_findings.num_sampled_out_rows,
            rows_copied=range_findings.num_copied_rows,
        )

    def _encoded_blocks(
        self, rows: Rows, schema: Schema
    ) -> Iterator[tuple[Block, int]]:
        """Yields blocks of a batch, each with the total size of its payloads in bytes."""
        if (num_rows := rows.batch.num_rows) > self.max_rows:
            rows = rows.take_rows(np.arange(self.max_rows) * num_rows // self.max_rows)
        keys, splits = keys_and_splits(self.context, self.input_range, rows)
        for deferred_rows, row_indices in self._deferred_rows(rows, schema):
            lengths = planned_bytes = lengths_of(deferred_rows)
            if rows.planned_bytes is not None:
                planned_bytes = rows.planned_bytes[row_indices]
            block = Block(
                deferred_rows, keys[row_indices], splits[row_indices], planned_bytes
            )
            yield block, int(lengths.sum())

    def _deferred_rows(
        self, rows: Rows, schema: Schema
    ) -> Iterator[tuple[pa.RecordBatch, I64]]:
        """Yields deferred rows, and their indices in the batch."""
        context = self.context
        if self.by_reference:
            references = payload_rows(rows.batch[REFERENCE])
            yield references, np.arange(rows.batch.num_rows, dtype=np.int64)
            return
        for framed in frame_rows(
            rows.batch,
            schema,
            context.job,
            files=self._sidecar_files,
            expected_schema=context.expected_schema,
        ):
            self.range_findings.add_rejects(
                rows, dict(framed.invalid_rows), self.input_range
            )
            self.num_invalid_rows += len(framed.invalid_rows)
            yield framed.rows, framed.row_indices


def _sidecar_files_of(
    context: RunContext, input_range: InputRange
) -> SidecarFiles | None:
    """Returns a reader of the sidecar files that cells name; None if no cell does."""
    if not context.job.reads_files:
        return None
    source = context.source.input_source
    if source.files_roots:
        return SidecarFiles.below_roots(source.files_roots, source.storage)
    root = input_range.uri.removesuffix(input_range.path)
    return SidecarFiles.next_to_table(input_range.uri, root, source.storage)


def keys_and_splits(
    context: RunContext, input_range: InputRange, rows: Rows
) -> tuple[U64, npt.NDArray[np.uint8]]:
    """Returns the order key and the index of the split of each row."""
    keys = rows.order_keys(input_range, context.job)
    if shift := context.source.key_shift:
        keys <<= np.uint64(shift)
    if rows.split_indices is not None:
        return keys, rows.split_indices
    groups, classes = _groups(context, rows), _classes(context, rows)
    return keys, context.assign_splits(groups, input_range, classes)


def with_copies(
    context: RunContext,
    input_range: InputRange,
    batches: Iterator[Rows],
    range_findings: RangeFindings,
) -> Iterator[Rows]:
    """Returns batches of rows, each row followed by its copies, which share its split.

    A copy has its own order key. If the order key is the position, a copy follows its
    row.
    """
    balance = context.balanced_classes
    if balance is None:
        return batches

    def copied(rows: Rows) -> Rows:
        _, splits = keys_and_splits(context, input_range, rows)
        row_indices = np.flatnonzero(splits == balance.split)
        times = np.ones(len(splits), np.int64)
        times[row_indices] = balance.copies_of_rows(rows.take_rows(row_indices))
        repeated_rows = rows.take_rows(np.repeat(np.arange(len(times)), times))
        # Three rows, the second one twice: repeated_rows 0 1 1 2, copies 0 0 1 0.
        copies = np.arange(len(repeated_rows.origins)) - np.repeat(
            times.cumsum() - times, times
        )
        range_findings.num_copied_rows += len(copies) - len(times)
        repeated_rows.group_hashes = (
            repeated_rows.origins
            if repeated_rows.group_hashes is None
            else repeated_rows.group_hashes
        )
        repeated_rows.origins = copy_origins(repeated_rows.origins, copies)
        return repeated_rows

    return map(copied, batches)


def list_rows(
    context: RunContext, input_range: InputRange, range_findings: RangeFindings
) -> Iterator[Rows]:
    """Yields references to the rows of a range, and to their copies."""
    references = context.source.list_references(input_range, range_findings)
    return with_copies(context, input_range, references, range_findings)


def _groups(context: RunContext, rows: Rows) -> U64:
    """Returns a hash per row; rows with equal hashes share a split."""
    column = context.job.split_by
    if column is None:
        return rows.origins if rows.group_hashes is None else rows.group_hashes
    require_column("split_by", column, rows.batch.schema.names)
    return value_hashes(rows.batch[column])


def _classes(context: RunContext, rows: Rows) -> U64 | None:
    """Returns the hash of each row's class, if the splits are exact."""
    if context.split_limits is None:
        return None
    column = context.job.stratify_by
    if column is None:
        return np.full(len(rows.origins), text_hash(MISSING_KEY), np.uint64)
    require_column("stratify_by", column, rows.batch.schema.names)
    comma = has_decimal_commas(context.job, context.source, column)
    return class_hashes(rows.batch[column], decimal_comma=comma)


def require_column(option: str, column: str, names: Sequence[str]) -> None:
    """Raises UsageError if the column that an option names does not exist."""
    if column not in names:
        raise UsageError(
            f"`{option}` {column}: no such column; the input has {', '.join(names)}"
        )


def _read_all_rows(
    context: RunContext,
    input_range: InputRange,
    live: LiveCounts,
    assumed_types: TypeFlags,
    keep: Callable[[list[Block], float], object],
    begin: Callable[[], object],
    *,
    by_reference: bool,
    num_bytes: int,
) -> RangeReader:
    """Reads all rows of a range; starts over if a batch needs wider types.

    Args:
      context: the run.
      input_range: the range.
      live: gets the progress.
      assumed_types: the assumed types of the columns; () guesses them from a sample.
      keep: gets blocks, and the seconds that it took to create them.
      begin: is called before the first row of each attempt.
      by_reference: whether rows are only listed, as references.
      num_bytes: least size of the payloads in one call of `keep`, but for the last.
    """
    if context.source.infers_types and not assumed_types:
        assumed_types = context.source.sample_type_flags(input_range)
    while True:
        reader = RangeReader(context, input_range, by_reference, live_counts=live)
        begin()
        began = time.monotonic()
        for blocks in reader.blocks(assumed_types, num_bytes):
            keep(blocks, time.monotonic() - began)
            blocks.clear()  # frees their memory before the next blocks are read
            began = time.monotonic()
        types_before, assumed_types = assumed_types, reader.encoded_types
        if reader.is_whole:
            settled = _settle_types(reader)
            if settled in (reader.range_findings.type_flags, types_before):
                return reader
            assumed_types = settled


def _settle_types(reader: RangeReader) -> TypeFlags:
    """Returns the final types of the whole input, or the observed types of a range."""
    sink, input_range = reader.range_findings, reader.input_range
    if input_range.num_positions < input_range.total_positions:
        return sink.type_flags
    rows = reader.rows_read - len(sink.rejects)
    range_findings = reader.context.findings(
        sink.type_flags, sink.null_counts, sink.issues, rows
    )
    return reader.context.source.input_source.final_type_flags(range_findings)


def _load_earlier_result(
    context: RunContext, input_range: InputRange, name: str
) -> RangeResult | None:
    """Returns the result of an earlier try of a task for this range, or None."""
    checkpoint = load_checkpoint(context.workspace, name, RangeResult)
    return (
        checkpoint
        if checkpoint is not None and checkpoint.range == input_range
        else None
    )


@dataclass(frozen=True)
class BoundaryScan:
    """The boundary scan of one range, as stored in its checkpoint."""

    range: InputRange
    boundary: int


PARALLEL_SCANS = 4  # some read a whole range


def scan_boundaries(context: RunContext, ranges: Sequence[InputRange]) -> list[int]:
    """Scans ranges, several at once: in a store, scans mostly wait for responses."""
    return list(map_ahead(ranges, partial(_scan_boundary, context), PARALLEL_SCANS))


def _scan_boundary(context: RunContext, input_range: InputRange) -> int:
    """Scans the boundary of a range, or loads the result of an earlier try."""
    name = f"survey-{input_range.index:06d}"
    checkpoint = load_checkpoint(context.workspace, name, BoundaryScan)
    if checkpoint is not None and checkpoint.range == input_range:
        return checkpoint.boundary
    boundary = context.source.input_source.scan_boundaries(input_range)
    save_checkpoint(context.workspace, name, BoundaryScan(input_range, boundary))
    return boundary


def convert_range(
    context: RunContext,
    input_range: InputRange,
    assumed_types: TypeFlags,
    redo: bool = False,
) -> RangeResult:
    """Writes the rows of a range into sorted runs, or loads the result of an earlier try.

    `assumed_types` are the assumed types of the columns (see Source.read); () guesses.
    With `redo`, an earlier result is ignored, because it has other types.
    """
    name = f"range-{context.exchange}-{input_range.index:06d}"
    folder = context.workspace.sorted_run_folder
    by_reference = context.exchange == "reference"
    earlier_result = None if redo else _load_earlier_result(context, input_range, name)
    if earlier_result is not None:
        # References have no checksums themselves, but are small enough to read.
        check = folder.is_whole if by_reference else folder.is_present
        is_kept = has_task_files(context.workspace, name, earlier_result, context.part)
        if is_kept and all(map(check, earlier_result.sorted_runs)):
            return earlier_result
    runs: list[SortedRunRef] = []

    def keep(blocks: list[Block], seconds: float) -> None:
        stem = f"{name}-{len(runs):03d}"
        runs.append(folder.save(stem, blocks, context.num_splits, seconds))

    with write_live_counts(context.workspace, name) as live:
        reader = _read_all_rows(
            *(context, input_range, live, assumed_types, keep, runs.clear),
            by_reference=by_reference,
            num_bytes=RUN_BYTES,
        )
        result = reader.save(name, runs=runs)
        save_checkpoint(context.workspace, name, result)
    return result


def range_histogram(context: RunContext, packed: bytes) -> Iterator[PackedHistogram]:
    """Yields histograms of the planned bytes and records of ranges, to be added up.

    `packed` are the results of the ranges. Each range yields a histogram for each run or
    batch, at least one. Sizes known before reading, rejects included, are the same for
    every exchange.
    """
    for result in RangeResult.unpack([packed]):
        yield from _histograms_of(context, result)


def _histograms_of(
    context: RunContext, result: RangeResult
) -> Iterator[PackedHistogram]:
    if context.exchange == "engine":
        histogram = _load_histogram(context, result.range)
        if histogram is None:  # lost meanwhile
            measure_range(context, result.range, result.encoded_types, redo=True)
            histogram = _load_histogram(context, result.range)
        yield histogram or b""
        return
    if not result.sorted_runs:
        yield Histogram.empty(context.num_splits, context.bucket_bits).to_bytes()
    # Runs of references contain the planned bytes of all rows: no need to list them
    # again.
    is_listed = context.exchange == "reference" and result.sorted_runs
    if context.source.sizes_known_upfront and not is_listed:
        yield from histograms_from_sizes(context, result.range)
        return
    for run in result.sorted_runs:
        keys, planned_bytes = context.workspace.sorted_run_folder.keys_and_sizes(run)
        splits = np.repeat(np.arange(len(run.counts), dtype=np.uint8), run.counts)
        yield make_histogram(context, keys, splits, planned_bytes)


def histograms_from_sizes(
    context: RunContext, input_range: InputRange
) -> Iterator[PackedHistogram]:
    """Yields the histograms of a range whose sizes are known before it is read."""
    for rows in list_rows(context, input_range, RangeFindings()):
        assert rows.planned_bytes is not None  # known before reading
        keys, splits = keys_and_splits(context, input_range, rows)
        yield make_histogram(context, keys, splits, rows.planned_bytes)


def make_histogram(
    context: RunContext, keys: U64, splits: npt.NDArray[np.uint8], planned_bytes: I64
) -> PackedHistogram:
    """Returns the histogram of rows in any order."""
    return packed_histogram(
        keys, splits, planned_bytes, context.num_splits, context.bucket_bits
    )


# A row can be sent to its shard only when the shard plan is known. Keeping all rows until
# then would take the engine's memory or disk a second time, so a range is read twice: to
# measure it, and to send its rows. If sizes are known before reading, measuring is cheap
# (fixed-length records) or free (images, whose sizes are in the inventory).


def measure_range(
    context: RunContext,
    input_range: InputRange,
    assumed_types: TypeFlags,
    redo: bool = False,
) -> RangeResult:
    """Measures a range, or loads the result of an earlier try; see `convert_range`."""
    name, workspace = _measured_name(input_range), context.workspace
    earlier_result = None if redo else _load_earlier_result(context, input_range, name)
    if earlier_result is not None and _load_histogram(context, input_range) is not None:
        return earlier_result
    total = Histogram.empty(context.num_splits, context.bucket_bits)

    def begin() -> None:
        total.bytes[:] = total.records[:] = 0

    def add(blocks: list[Block], _: float) -> None:
        for block in blocks:
            part = (block.keys, block.splits, block.planned_bytes)
            total.add(make_histogram(context, *part))

    with write_live_counts(workspace, name) as live:
        reader = _read_all_rows(
            *(context, input_range, live, assumed_types, add, begin),
            by_reference=can_plan_from_sizes(context.job, context.source),
            num_bytes=BLOCK_BYTES,
        )
        result = reader.save(name, _sent_name(input_range))
        workspace.write_file(
            _histogram_file(input_range), _with_checksum(total.to_bytes())
        )
        save_checkpoint(workspace, name, result)
    return result


def _histogram_file(input_range: InputRange) -> str:
    return f"{CHECKPOINT_FOLDER}/{_measured_name(input_range)}.histogram"


def _load_histogram(
    context: RunContext, input_range: InputRange
) -> PackedHistogram | None:
    """Returns the histogram of a measured range; None if its file is damaged."""
    histogram = context.workspace.read_file(_histogram_file(input_range)) or b""
    return (
        histogram[:-4]
        if histogram[:-4] and _with_checksum(histogram[:-4]) == histogram
        else None
    )


def _with_checksum(data: bytes) -> bytes:
    """Returns bytes with their checksum: a file that is not synced may be torn."""
    return data + crc32c(data).to_bytes(4, "little")


def send_range(
    context: RunContext,
    measured: RangeResult,
    final_types: TypeFlags,
    plan: ShardPlan,
    skip: frozenset[int],
) -> Iterator[tuple[int, bytes] | RangeResult]:
    """Reads a range again and sends its rows to their shards.

    Yields pairs (number of the shard, piece). Their records and rejects add up to the
    rows planned for each shard. The last element is the result of the range. If all
    shards are finished, only the result of an earlier try is yielded.

    Raises:
      ChangedInputError: the range has changed since it was measured.
    """
    input_range = measured.range
    name = _sent_name(input_range)
    if len(skip) == plan.num_shards:  # an earlier try failed after writing them
        earlier_result = _load_earlier_result(context, input_range, name)
        if earlier_result is not None and has_task_files(
            context.workspace, name, earlier_result, context.part
        ):
            yield earlier_result
            return
    with write_live_counts(context.workspace, name) as live:
        by_reference = context.sends_references
        reader = RangeReader(context, input_range, by_reference, live_counts=live)
        from_sizes = can_plan_from_sizes(context.job, context.source)
        sent = np.zeros(plan.num_shards, np.int64)
        num_blocks = 0
        for blocks in reader.blocks(final_types, BLOCK_BYTES):
            block = Block.join_blocks(blocks)
            yield from cut_block(block, plan, (input_range.index, num_blocks), skip)
            num_blocks += 1
            if from_sizes:
                sent += _rows_of_shards(plan, block.keys, block.splits)
        _require_same_rows(context, reader, measured, final_types)
        if (
            num_new_rejects := len(reader.range_findings.rejects)
            - measured.rows_rejected
        ):
            # Only if the plan was computed from sizes, which does not include rejects.
            lost = -sent
            for rows in list_rows(context, input_range, RangeFindings()):
                keys, splits = keys_and_splits(context, input_range, rows)
                lost += _rows_of_shards(plan, keys, splits)
            if (lost < 0).any() or lost.sum() != num_new_rejects:
                raise _changed_input_error(input_range, "other rows than before")
            yield from reject_pieces(lost, (input_range.index, num_blocks), skip)
        result = reader.save(name)
        measured_name = _measured_name(input_range)
        measured_checksums = checksums_of(
            context.workspace, measured_name, measured.checksums
        )
        if set(measured_checksums) - set(reader.checksums):
            discard_checkpoint(context.workspace, measured_name)
            raise _changed_input_error(input_range, "other bytes than before")
        save_checkpoint(context.workspace, name, result)
        yield result


def _require_same_rows(
    context: RunContext, reader: RangeReader, measured: RangeResult, types: TypeFlags
) -> None:
    """Checks that the second reading of a range agrees with the measured result."""
    range_findings, source = reader.range_findings, context.source
    if not reader.is_whole or source.needs_reencode(
        range_findings.type_flags, reader.encoded_types, types
    ):
        raise _changed_input_error(measured.range, "a column has other types")
    if reader.rows_read != measured.rows_read:
        actual_count = format_count(reader.rows_read, "row")
        raise _changed_input_error(
            measured.range, f"{actual_count}, before {measured.rows_read:,}"
        )
    # A plan computed from sizes does not include rejects: there may be more now.
    if len(
        range_findings.rejects
    ) != measured.rows_rejected and not can_plan_from_sizes(context.job, source):
        actual_count = format_count(len(range_findings.rejects), "reject")
        raise _changed_input_error(
            measured.range, f"{actual_count}, before {measured.rows_rejected:,}"
        )
    if (range_findings.num_dropped_rows, range_findings.num_added_rows) != (
        measured.rows_dropped,
        measured.rows_added,
    ):
        raise _changed_input_error(
            measured.range,
            f"the function of `map` dropped {range_findings.num_dropped_rows:,} and added {range_findings.num_added_rows:,} "
            f"rows, before {measured.rows_dropped:,} and {measured.rows_added:,}. It must "
            "return the same rows for the same input",
        )


def _changed_input_error(input_range: InputRange, problem: str) -> ChangedInputError:
    return ChangedInputError(
        f"{input_range.location} changed during the run: {problem}. Run the job again when "
        "nothing writes to its inputs"
    )


def _rows_of_shards(plan: ShardPlan, keys: U64, splits: npt.NDArray[np.uint8]) -> I64:
    return np.bincount(shard_numbers(plan, keys, splits), minlength=plan.num_shards)


def _measured_name(input_range: InputRange) -> str:
    return f"range-measured-{input_range.index:06d}"


def _sent_name(input_range: InputRange) -> str:
    return f"range-engine-{input_range.index:06d}"
