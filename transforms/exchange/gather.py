"""The exchange: how the pieces of a shard reach its writer, in windows of bounded size.

A piece is the slice of one sorted run that belongs to one shard. The writer reads its
slices window by window, each window's records in order key order; a tie goes to the
earlier range, so the order is total. Scratch and by reference share this file: they
differ only in what a payload is (see runs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from schemas.ranges import RunRef
from schemas.shards import ShardTask
from transforms.encode.wire import I64, U64, binary_array
from transforms.exchange.block_io import SCRATCH_SPEED, read_into
from transforms.exchange.runs import read_index

WINDOW_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Pieces:
    """All pieces of one shard; arrays have one entry per record, run after run."""

    run_of: I64
    starts: U64  # byte offset in the run's .records
    lengths: I64
    weights: U64
    keys: U64


def gather(
    folder: Path,
    runs: Sequence[RunRef],
    task: ShardTask,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[pa.BinaryArray]:
    """The payloads of a shard in order, a window at a time.

    Args:
      folder: scratch folder with the runs.
      runs: all runs of the job, in range order.
      task: the shard.
      window_bytes: planned bytes of a window; one record may be more.
    """
    pieces = _find_pieces(folder, runs, task)
    order = np.argsort(pieces.keys, kind="stable")
    ends = np.cumsum(pieces.weights[order])
    starts = [0]
    while starts[-1] < len(order):
        before = ends[starts[-1] - 1] if starts[-1] else np.uint64(0)
        limit = before + np.uint64(window_bytes)
        starts.append(
            max(starts[-1] + 1, int(np.searchsorted(ends, limit, side="right")))
        )
    windows = [order[a:b] for a, b in pairwise(starts)]
    if len(windows) < 2:
        for wanted in windows:
            yield _read_window(folder, runs, pieces, wanted)
        return
    # The next window is read while the caller works on this one.
    with ThreadPoolExecutor(1, "read-ahead") as ahead:
        read = partial(_read_window, folder, runs, pieces)
        coming = ahead.submit(read, windows[0])
        for wanted in windows[1:]:
            window, coming = coming.result(), ahead.submit(read, wanted)
            yield window
        yield coming.result()


def _find_pieces(folder: Path, runs: Sequence[RunRef], task: ShardTask) -> _Pieces:
    run_of, starts, lengths, weights, keys = [], [], [], [], []
    for number, run in enumerate(runs):
        if run.counts[task.split_index] == 0:
            continue
        index = read_index(folder, run)
        first, end = index.slice_of(task.split_index, task.low, task.high)
        if first == end:
            continue
        run_of.append(np.full(end - first, number, np.int64))
        # Copies: a view would keep the whole index, and all of them the whole input's.
        starts.append(index.offsets[first:end].copy())
        lengths.append(np.diff(index.offsets[first : end + 1]).astype(np.int64))
        weights.append(index.weights[first:end].copy())
        keys.append(index.keys[first:end].copy())
    if not keys:
        nothing = np.zeros(0, np.uint64)
        none = np.zeros(0, np.int64)
        return _Pieces(none, nothing, none, nothing, nothing)
    return _Pieces(
        np.concatenate(run_of),
        np.concatenate(starts),
        np.concatenate(lengths),
        np.concatenate(weights),
        np.concatenate(keys),
    )


def _read_window(
    folder: Path, runs: Sequence[RunRef], pieces: _Pieces, wanted: I64
) -> pa.BinaryArray:
    """Reads one contiguous slice of every run concerned and puts records in order."""
    # Within a run the wanted records lie side by side, because both are sorted.
    in_storage = np.sort(wanted)
    lengths = pieces.lengths[in_storage]
    offsets = np.zeros(len(wanted) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffer = np.empty(int(offsets[-1]), np.uint8)
    whole = buffer.data
    run_of = pieces.run_of[in_storage]
    firsts = np.flatnonzero(np.diff(run_of, prepend=-1))
    for first, end in zip(firsts, [*firsts[1:], len(wanted)], strict=True):
        path = folder / f"{runs[run_of[first]].stem}.records"
        read_into(
            path,
            whole[offsets[first] : offsets[end]],
            int(pieces.starts[in_storage[first]]),
            direct=SCRATCH_SPEED.direct,
        )
    stored = binary_array(offsets, buffer)
    if bool(np.all(wanted[:-1] < wanted[1:])):
        return stored
    return stored.take(pa.array(np.searchsorted(in_storage, wanted)))
