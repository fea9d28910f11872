"""Converts one input range into sorted runs of records, or of references to rows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from recordmill.schemas.ranges import InputRange, RangeResult, SortedRunRef, TypeFlags
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.plan import PackedHistogram, packed_histogram
from recordmill.transforms.tasks.checkpoints import (
    keeps_rejects,
    load_checkpoint,
    save_checkpoint,
    save_rejects,
)
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.kept_checksums import keeps_checksums, save_checksums
from recordmill.transforms.tasks.progress_reader import LiveCounts, counting
from recordmill.transforms.tasks.read_range import RangeReader, keys_and_splits

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
        reader = RangeReader(
            context, input_range, by_reference, live=live, unwritten=folder.has_room
        )
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
        index = context.workspace.runs.index(run)
        splits = np.repeat(np.arange(len(run.counts), dtype=np.uint8), run.counts)
        planned_bytes = index.planned_bytes.astype(np.int64)
        yield make_histogram(context, index.keys, splits, planned_bytes)


def histogram_from_sizes(
    context: RunContext, input_range: InputRange
) -> Iterator[PackedHistogram]:
    """Yields the histogram that the source knows before reading, rejects included.

    It is the same for every exchange.
    """
    yield make_histogram(context, *_NO_ROWS)
    for rows in context.source.list_references(input_range):
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
