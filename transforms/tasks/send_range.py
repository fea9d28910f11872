"""One input range through the engine's shuffle: measured first, then cut into pieces.

The shard plan must stand before a row can be sent to its shard, and holding all rows
until then would take the engine's memory or disk twice. So a range is read twice: once
to measure it, once to send its rows. Where a format tells sizes unread, measuring is
cheap (fixed-length records) or free (pictures, whose sizes are in the inventory).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recordmill.schemas.dataset.shards import ShardPlan
from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import InputRange, RangeResult, TypeFlags
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.messages import cut_block, reject_pieces
from recordmill.transforms.exchange.plan import (
    Histogram,
    PackedHistogram,
    shard_numbers,
)
from recordmill.transforms.tasks.checkpoints import (
    load_checkpoint,
    save_checkpoint,
    save_rejects,
)
from recordmill.transforms.tasks.context import RunContext, can_plan_from_sizes
from recordmill.transforms.tasks.read_range import RangeReader, keys_and_splits
from recordmill.transforms.tasks.sort_range import make_histogram

BLOCK_BYTES = 32 << 20  # records cut into pieces at once


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """The facts of a range whose rows are still to be sent.

    Attributes:
      result: of the reading that measured; without runs.
      histogram: planned bytes and records by split and bucket.
    """

    result: RangeResult
    histogram: PackedHistogram


def measure_range(
    context: RunContext,
    input_range: InputRange,
    expected: TypeFlags,
    redo: bool = False,
) -> MeasuredRange:
    """Measures a range, or takes up what an earlier try measured.

    Args:
      context: the run.
      input_range: the range.
      expected: what each column is taken for (see Source.read); () guesses.
      redo: whether an earlier result is known to be of the wrong types.
    """
    name = f"range-measured-{input_range.index:06d}"
    kept = f"facts/{name}.histogram"
    earlier = None if redo else load_checkpoint(context.workspace, name, RangeResult)
    if earlier is not None and earlier.range == input_range:
        histogram = context.workspace.get(kept)
        if histogram is not None:
            return MeasuredRange(earlier, histogram)
    if context.source.infers_types and not expected:
        expected = context.source.sample(input_range)
    by_reference = can_plan_from_sizes(context.job, context.source)
    while True:
        reading = RangeReader(context, input_range, by_reference)
        total = Histogram.empty(context.num_splits, context.bucket_bits)
        for block in reading.blocks(expected, BLOCK_BYTES):
            total += make_histogram(
                context, block.keys, block.splits, block.planned_bytes
            )
        if reading.is_whole:
            break
        expected = (
            reading.encoded_types
        )  # the guess was too narrow for some batch: once more
    save_rejects(context.workspace, _sent_name(input_range), reading.rejects)
    measured = MeasuredRange(reading.result(), total.to_bytes())
    context.workspace.put(kept, measured.histogram)
    save_checkpoint(context.workspace, name, measured.result)
    return measured


def send_range(
    context: RunContext,
    measured: RangeResult,
    final: TypeFlags,
    plan: ShardPlan,
    skip: frozenset[int],
) -> Iterator[tuple[int, bytes] | RangeResult]:
    """Reads a range again and sends its rows to their shards.

    Args:
      context: the run.
      measured: what the first reading of the range found.
      final: what each column turned out to be.
      plan: of the shards.
      skip: numbers of the shards that are finished.

    Yields:
      (number of the shard, piece), which account for every row that was planned for a
      shard; and last the range's facts.

    Raises:
      InputError: the range holds other values than when it was measured.
    """
    input_range = measured.range
    reading = RangeReader(context, input_range, by_reference=False)
    from_sizes = can_plan_from_sizes(context.job, context.source)
    sent = np.zeros(plan.num_shards, np.int64)
    num_blocks = 0
    for block in reading.blocks(final, BLOCK_BYTES):
        yield from cut_block(block, plan, (input_range.index, num_blocks), skip)
        num_blocks += 1
        if from_sizes:
            sent += _rows_of_shards(plan, block.keys, block.splits)
    if not reading.is_whole or context.source.needs_reencode(
        reading.observed_types, reading.encoded_types, final
    ):
        raise _changed(input_range, "a column", "holds other values than")
    counts = (
        ("rows", reading.rows_read, measured.rows_read),
        ("rejects", len(reading.rejects), measured.rows_rejected),
    )
    for what, now, before in counts:
        # Only who planned without reading may find more rejects now.
        if now != before and not (from_sizes and what == "rejects"):
            raise _changed(
                input_range, "what stands", f"has {now} {what}, and had {before}"
            )
    if found := len(reading.rejects) - measured.rows_rejected:
        lost = _records_from_sizes(context, input_range, plan) - sent
        if (lost < 0).any() or lost.sum() != found:
            raise _changed(input_range, "what stands", "has other rows than")
        yield from reject_pieces(lost, (input_range.index, num_blocks), skip)
    save_rejects(context.workspace, _sent_name(input_range), reading.rejects)
    result = reading.result()
    save_checkpoint(context.workspace, _sent_name(input_range), result)
    yield result


def _changed(input_range: InputRange, what: str, how: str) -> InputError:
    return InputError(
        f"{input_range.uri}: {what} between byte {input_range.start} and {input_range.stop} {how} when "
        "it was first read: did the file change meanwhile? Run the job again"
    )


def _records_from_sizes(
    context: RunContext, input_range: InputRange, plan: ShardPlan
) -> I64:
    """How many of a range's rows were planned for each shard, rejects included."""
    planned = np.zeros(plan.num_shards, np.int64)
    for rows in context.source.list_references(input_range):
        planned += _rows_of_shards(plan, *keys_and_splits(context, input_range, rows))
    return planned


def _rows_of_shards(plan: ShardPlan, keys: U64, splits: npt.NDArray[np.uint8]) -> I64:
    return np.bincount(shard_numbers(plan, keys, splits), minlength=plan.num_shards)


def _sent_name(input_range: InputRange) -> str:
    return f"range-engine-{input_range.index:06d}"
