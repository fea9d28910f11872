"""Converts one input range: into sorted runs, or into pieces for the runner's shuffle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.ranges import InputRange, RangeResult, SortedRunRef, TypeFlags
from recordmill.schemas.shards import ShardPlan
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.merge import Block
from recordmill.transforms.exchange.pieces import cut_block, reject_pieces
from recordmill.transforms.exchange.plan import (
    Histogram,
    PackedHistogram,
    packed_histogram,
    shard_numbers,
)
from recordmill.transforms.sources.base import RowSink
from recordmill.transforms.tasks.checkpoints import (
    checksums_of,
    discard_checkpoint,
    keeps_checksums,
    keeps_rejects,
    load_checkpoint,
    save_checkpoint,
    save_checksums,
    save_rejects,
)
from recordmill.transforms.tasks.context import RunContext, can_plan_from_sizes
from recordmill.transforms.tasks.progress_reader import LiveCounts, counting
from recordmill.transforms.tasks.read_range import RangeReader, keys_and_splits
from recordmill.transforms.tfrecord import crc32c

RUN_BYTES = 64 << 20  # of records in one sorted run; a range can have several

_NO_ROWS = np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros(0, np.int64)


def convert_range(
    context: RunContext,
    input_range: InputRange,
    assumed_types: TypeFlags,
    redo: bool = False,
) -> RangeResult:
    """Converts a range, or loads what an earlier try finished.

    Args:
      context: the run.
      input_range: the range.
      assumed_types: what each column is taken for (see Source.read); () guesses.
      redo: whether an earlier result is known to have other types.
    """
    name = f"range-{context.exchange}-{input_range.index:06d}"
    earlier = None if redo else load_checkpoint(context.workspace, name, RangeResult)
    if earlier is not None and earlier.range == input_range:
        # References have no checksums of their own, but are small enough to read.
        folder = context.workspace.runs
        by_reference = context.exchange == "reference"
        check = folder.is_whole if by_reference else folder.is_present
        if all(map(check, earlier.runs)) and keeps_rejects(
            context.workspace,
            name,
            earlier.rows_rejected,
            earlier.rejects,
            context.part,
        ):
            if keeps_checksums(context.workspace, name, earlier.checksums):
                return earlier
    if context.source.infers_types and not assumed_types:
        assumed_types = context.source.sample(input_range)
    with counting(context.workspace, name) as live:
        reader, runs = _sort_rows(context, input_range, name, assumed_types, live)
        rejects = save_rejects(context.workspace, name, reader.rejects)
        checksums = save_checksums(context.workspace, name, reader.all_checksums)
        result = reader.result(rejects, checksums, tuple(runs))
        save_checkpoint(context.workspace, name, result)
    return result


def _sort_rows(
    context: RunContext,
    input_range: InputRange,
    name: str,
    assumed_types: TypeFlags,
    live: LiveCounts,
) -> tuple[RangeReader, list[SortedRunRef]]:
    """Writes the rows of a range into sorted runs, again if a batch needs wider types."""
    by_reference = context.exchange == "reference"
    folder = context.workspace.runs
    while True:
        reader = RangeReader(context, input_range, by_reference, live=live)
        runs: list[SortedRunRef] = []
        began = time.monotonic()
        for blocks in reader.blocks(assumed_types, RUN_BYTES):
            stem = f"{name}-{len(runs):03d}"
            took = time.monotonic() - began
            runs.append(folder.save(stem, blocks, context.num_splits, took))
            blocks.clear()  # not kept while the next ones are read
            began = time.monotonic()
        if reader.is_whole:
            return reader, runs
        assumed_types = reader.encoded_types


def range_histogram(
    context: RunContext, result: RangeResult
) -> Iterator[PackedHistogram]:
    """Yields planned bytes and records of a range for each bucket of order keys.

    They are to be added: one for each run or batch, and at least one.
    """
    # Runs of references have the planned bytes of all rows: no need to list them again.
    is_listed = context.exchange == "reference" and result.runs
    if context.source.sizes_known_upfront and not is_listed:
        yield from histogram_from_sizes(context, result.range)
        return
    yield make_histogram(context, *_NO_ROWS)
    for run in result.runs:
        keys, planned_bytes = context.workspace.runs.keys_and_sizes(run)
        splits = np.repeat(np.arange(len(run.counts), dtype=np.uint8), run.counts)
        yield make_histogram(context, keys, splits, planned_bytes)


def histogram_from_sizes(
    context: RunContext, input_range: InputRange
) -> Iterator[PackedHistogram]:
    """Yields the histogram that the source knows before reading, rejects included.

    It is the same for every exchange.
    """
    yield make_histogram(context, *_NO_ROWS)
    for rows in context.source.list_references(input_range, RowSink()):
        assert rows.planned_bytes is not None  # known unread
        keys, splits = keys_and_splits(context, input_range, rows)
        yield make_histogram(context, keys, splits, rows.planned_bytes)


def make_histogram(
    context: RunContext, keys: U64, splits: npt.NDArray[np.uint8], planned_bytes: I64
) -> PackedHistogram:
    """Returns the histogram of rows that are in any order."""
    return packed_histogram(
        keys, splits, planned_bytes, context.num_splits, context.bucket_bits
    )


# A row can be sent to its shard only when the shard plan is known. Keeping all rows until
# then would take the engine's memory or disk a second time, so a range is read twice: to
# measure it, and to send its rows. Where sizes are known before reading, measuring is
# cheap (fixed-length records) or free (images, whose sizes are in the inventory).

BLOCK_BYTES = 32 << 20  # records cut into pieces at once

_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """A measured range, whose rows are still to be sent.

    Attributes:
      result: summary of the first reading, without sorted runs.
      histogram: planned bytes and records for each split and bucket.
    """

    result: RangeResult
    histogram: PackedHistogram


def measure_range(
    context: RunContext,
    input_range: InputRange,
    assumed_types: TypeFlags,
    redo: bool = False,
) -> MeasuredRange:
    """Measures a range, or loads what an earlier try measured.

    Args:
      context: the run.
      input_range: the range.
      assumed_types: what each column is taken for (see Source.read); () guesses.
      redo: whether an earlier result is known to have other types.
    """
    name = _measured_name(input_range)
    kept = f"facts/{name}.histogram"
    earlier = None if redo else load_checkpoint(context.workspace, name, RangeResult)
    if earlier is not None and earlier.range == input_range:
        histogram = _unsealed(context.workspace.get(kept) or b"")
        if histogram is not None:
            return MeasuredRange(earlier, histogram)
    if context.source.infers_types and not assumed_types:
        assumed_types = context.source.sample(input_range)
    by_reference = can_plan_from_sizes(context.job, context.source)
    with counting(context.workspace, name) as live:
        while True:
            reader = RangeReader(context, input_range, by_reference, live=live)
            total = Histogram.empty(context.num_splits, context.bucket_bits)
            for blocks in reader.blocks(assumed_types, BLOCK_BYTES):
                for block in blocks:
                    total.add_bytes(
                        make_histogram(
                            context, block.keys, block.splits, block.planned_bytes
                        )
                    )
                blocks.clear()
            if reader.is_whole:
                break
            assumed_types = reader.encoded_types  # a batch needs wider types
        rejects = save_rejects(
            context.workspace, _sent_name(input_range), reader.rejects
        )
        checksums = save_checksums(context.workspace, name, reader.all_checksums)
        measured = MeasuredRange(reader.result(rejects, checksums), total.to_bytes())
        context.workspace.put(kept, _sealed(measured.histogram))
        save_checkpoint(context.workspace, name, measured.result)
    return measured


def _sealed(data: bytes) -> bytes:
    """Returns bytes with their checksum: a file that is not synced may be torn later."""
    return data + crc32c(data).to_bytes(_CRC_BYTES, "little")


def _unsealed(sealed: bytes) -> bytes | None:
    """Returns what was sealed; None if that is damaged, or of an earlier version."""
    data = sealed[:-_CRC_BYTES]
    return data if data and _sealed(data) == sealed else None


def send_range(
    context: RunContext,
    measured: RangeResult,
    final_types: TypeFlags,
    plan: ShardPlan,
    skip: frozenset[int],
) -> Iterator[tuple[int, bytes] | RangeResult]:
    """Reads a range again and sends its rows to their shards.

    Args:
      context: the run.
      measured: the summary of the first reading.
      final_types: what each column holds in the whole input.
      plan: of the shards.
      skip: numbers of the shards that are finished.

    Yields:
      (number of the shard, piece); all of them account for every row that was planned
      for a shard. At last the summary of the range: nothing but that one of an earlier
      try, if all shards are finished.

    Raises:
      ChangedInputError: the range holds other values than when it was measured.
    """
    if len(skip) == plan.num_shards:  # an earlier try failed behind all of them
        earlier = _sent_before(context, measured.range)
        if earlier is not None:
            yield earlier
            return
    with counting(context.workspace, _sent_name(measured.range)) as live:
        yield from _send_rows(context, measured, final_types, plan, skip, live)


def _sent_before(context: RunContext, input_range: InputRange) -> RangeResult | None:
    """Returns the summary of a range that an earlier try sent, if all of it is kept."""
    name = _sent_name(input_range)
    earlier = load_checkpoint(context.workspace, name, RangeResult)
    if earlier is None or earlier.range != input_range:
        return None
    is_kept = keeps_rejects(
        context.workspace, name, earlier.rows_rejected, earlier.rejects, context.part
    ) and keeps_checksums(context.workspace, name, earlier.checksums)
    return earlier if is_kept else None


def _send_rows(
    context: RunContext,
    measured: RangeResult,
    final_types: TypeFlags,
    plan: ShardPlan,
    skip: frozenset[int],
    live: LiveCounts,
) -> Iterator[tuple[int, bytes] | RangeResult]:
    """Reads a range again and yields what `send_range` says."""
    input_range = measured.range
    reader = RangeReader(context, input_range, by_reference=False, live=live)
    from_sizes = can_plan_from_sizes(context.job, context.source)
    sent = np.zeros(plan.num_shards, np.int64)
    num_blocks = 0
    for blocks in reader.blocks(final_types, BLOCK_BYTES):
        block = Block.joined(blocks)
        yield from cut_block(block, plan, (input_range.index, num_blocks), skip)
        num_blocks += 1
        if from_sizes:
            sent += _rows_of_shards(plan, block.keys, block.splits)
    if not reader.is_whole or context.source.needs_reencode(
        reader.sink.observed, reader.encoded_types, final_types
    ):
        raise _changed(input_range, "a column has other types")
    counts = (
        ("row", reader.rows_read, measured.rows_read),
        ("reject", len(reader.rejects), measured.rows_rejected),
    )
    for noun, now, before in counts:
        # A plan from sizes alone did not know of rejects: there may be more now.
        if now != before and not (from_sizes and noun == "reject"):
            raise _changed(input_range, f"{count(now, noun)}, before {before:,}")
    by_map = (reader.sink.dropped, reader.sink.added)
    first = (measured.rows_dropped, measured.rows_added)
    if by_map != first:
        raise _changed(
            input_range,
            f"the function of `map` dropped {by_map[0]:,} and added {by_map[1]:,} rows, "
            f"before {first[0]:,} and {first[1]:,}. It has to make the same of the same "
            "rows",
        )
    if found := len(reader.rejects) - measured.rows_rejected:
        lost = _records_from_sizes(context, input_range, plan) - sent
        if (lost < 0).any() or lost.sum() != found:
            raise _changed(input_range, "other rows than before")
        yield from reject_pieces(lost, (input_range.index, num_blocks), skip)
    name = _sent_name(input_range)
    rejects = save_rejects(context.workspace, name, reader.rejects)
    checksums = save_checksums(context.workspace, name, reader.all_checksums)
    measured_name = _measured_name(input_range)
    measured_sums = checksums_of(context.workspace, measured_name, measured.checksums)
    if set(measured_sums) - set(reader.all_checksums):
        discard_checkpoint(context.workspace, measured_name)
        raise _changed(input_range, "other bytes than before")
    result = reader.result(rejects, checksums)
    save_checkpoint(context.workspace, name, result)
    yield result


def _changed(input_range: InputRange, found: str) -> ChangedInputError:
    return ChangedInputError(
        f"{input_range.where} changed during the run: {found}. "
        "Run the job again, and do not write to its inputs meanwhile"
    )


def _records_from_sizes(
    context: RunContext, input_range: InputRange, plan: ShardPlan
) -> I64:
    """Counts the rows of a range that were planned for each shard, rejects included."""
    planned = np.zeros(plan.num_shards, np.int64)
    for rows in context.source.list_references(input_range, RowSink()):
        planned += _rows_of_shards(plan, *keys_and_splits(context, input_range, rows))
    return planned


def _rows_of_shards(plan: ShardPlan, keys: U64, splits: npt.NDArray[np.uint8]) -> I64:
    return np.bincount(shard_numbers(plan, keys, splits), minlength=plan.num_shards)


def _measured_name(input_range: InputRange) -> str:
    return f"range-measured-{input_range.index:06d}"


def _sent_name(input_range: InputRange) -> str:
    return f"range-engine-{input_range.index:06d}"
