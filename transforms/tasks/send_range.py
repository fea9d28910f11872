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
from recordmill.schemas.ranges import Bits, InputRange, RangeResult
from recordmill.transforms.encode.wire import I64, U64
from recordmill.transforms.exchange.messages import cut_block, reject_pieces
from recordmill.transforms.exchange.plan import Histogram, PackedHistogram, numbers_of
from recordmill.transforms.tasks.checkpoints import load_fact, save_fact, save_rejects
from recordmill.transforms.tasks.context import RunContext, known_unread
from recordmill.transforms.tasks.read_range import RangeReading, place_rows
from recordmill.transforms.tasks.sort_range import counted

BLOCK_BYTES = 32 << 20  # records cut into pieces at once


@dataclass(frozen=True, slots=True)
class Measured:
    """The facts of a range whose rows are still to be sent.

    Attributes:
      result: of the reading that measured; without runs.
      histogram: planned bytes and records by split and bucket.
    """

    result: RangeResult
    histogram: PackedHistogram


def measure_range(
    context: RunContext, spot: InputRange, expected: Bits, redo: bool = False
) -> Measured:
    """Measures a range, or takes up what an earlier try measured.

    Args:
      context: the run.
      spot: the range.
      expected: what each column is taken for (see Source.read); () guesses.
      redo: whether an earlier result is known to be of the wrong types.
    """
    name = f"range-measured-{spot.index:06d}"
    kept = f"facts/{name}.histogram"
    earlier = None if redo else load_fact(context.scratch, name, RangeResult)
    if earlier is not None and earlier.range == spot:
        histogram = context.scratch.get(kept)
        if histogram is not None:
            return Measured(earlier, histogram)
    if context.source.infers_types and not expected:
        expected = context.source.sample(spot)
    by_reference = known_unread(context.job, context.source)
    while True:
        reading = RangeReading(context, spot, by_reference)
        total = Histogram.empty(context.num_splits, context.bits)
        for block in reading.blocks(expected, BLOCK_BYTES):
            total += counted(context, block.keys, block.splits, block.weights)
        if reading.is_whole:
            break
        expected = reading.used  # the guess was too narrow for some batch: once more
    save_rejects(context.scratch, _sent_name(spot), reading.rejects)
    measured = Measured(reading.result(), total.to_bytes())
    context.scratch.put(kept, measured.histogram)
    save_fact(context.scratch, name, measured.result)
    return measured


def send_range(
    context: RunContext,
    measured: RangeResult,
    final: Bits,
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
    spot = measured.range
    reading = RangeReading(context, spot, by_reference=False)
    planned_unread = known_unread(context.job, context.source)
    sent = np.zeros(plan.num_shards, np.int64)
    num_blocks = 0
    for block in reading.blocks(final, BLOCK_BYTES):
        yield from cut_block(block, plan, (spot.index, num_blocks), skip)
        num_blocks += 1
        if planned_unread:
            sent += _rows_of_shards(plan, block.keys, block.splits)
    if not reading.is_whole or context.source.touched(
        reading.observed, reading.used, final
    ):
        raise _changed(spot, "a column", "holds other values than")
    counts = (
        ("rows", reading.rows_read, measured.rows_read),
        ("rejects", len(reading.rejects), measured.rows_rejected),
    )
    for what, now, before in counts:
        # Only who planned without reading may find more rejects now.
        if now != before and not (planned_unread and what == "rejects"):
            raise _changed(spot, "what stands", f"has {now} {what}, and had {before}")
    if found := len(reading.rejects) - measured.rows_rejected:
        lost = _planned_unread(context, spot, plan) - sent
        if (lost < 0).any() or lost.sum() != found:
            raise _changed(spot, "what stands", "has other rows than")
        yield from reject_pieces(lost, (spot.index, num_blocks), skip)
    save_rejects(context.scratch, _sent_name(spot), reading.rejects)
    result = reading.result()
    save_fact(context.scratch, _sent_name(spot), result)
    yield result


def _changed(spot: InputRange, what: str, how: str) -> InputError:
    return InputError(
        f"{spot.uri}: {what} between byte {spot.start} and {spot.stop} {how} when "
        "it was first read: did the file change meanwhile? Run the job again"
    )


def _planned_unread(context: RunContext, spot: InputRange, plan: ShardPlan) -> I64:
    """How many of a range's rows were planned for each shard, rejects included."""
    planned = np.zeros(plan.num_shards, np.int64)
    for rows in context.source.refer(spot):
        planned += _rows_of_shards(plan, *place_rows(context, spot, rows))
    return planned


def _rows_of_shards(plan: ShardPlan, keys: U64, splits: npt.NDArray[np.uint8]) -> I64:
    return np.bincount(numbers_of(plan, keys, splits), minlength=plan.num_shards)


def _sent_name(spot: InputRange) -> str:
    return f"range-engine-{spot.index:06d}"
