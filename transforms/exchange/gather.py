"""Gathers a shard's records from sorted runs, for the exchanges scratch and reference.

The two differ only in what a payload is (see sorted_run.py). The engine exchange
gathers its own pieces (see messages.py); all three merge them in the same way (see
merge.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.ranges import SortedRunRef
from recordmill.schemas.shards import ShardTask
from recordmill.transforms.exchange.held_values import HeldValues
from recordmill.transforms.exchange.merge import (
    WINDOW_BYTES,
    Bodies,
    Pieces,
    merge_windows,
)
from recordmill.transforms.exchange.sorted_run_store import SortedRunFolder


def gather(
    folder: SortedRunFolder,
    runs: Sequence[SortedRunRef],
    task: ShardTask,
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """Yields the payloads of a shard in order, in windows.

    Args:
      folder: the folder of the sorted runs.
      runs: all sorted runs of the job, in range order.
      task: the shard.
      window_bytes: planned bytes of a window; a single record may be larger.
      break_ties_by_content: see merge_windows.
    """

    def read_into(number: int, target: memoryview, offset: int) -> None:
        folder.read_into(runs[number], target, offset)

    pieces, held = _find_pieces(folder, runs, task)
    return merge_windows(
        pieces,
        Bodies(held, len(runs), read_into),
        window_bytes,
        break_ties_by_content=break_ties_by_content,
    )


def _find_pieces(
    folder: SortedRunFolder, runs: Sequence[SortedRunRef], task: ShardTask
) -> tuple[Pieces, list[pa.Buffer]]:
    """Returns where a shard's records are, and the bodies that are in memory.

    The body of a run in a file has the number of the run; so does one that is held
    unwritten, as its records are written when they are read.
    """
    found: list[Pieces] = []
    held_chunks: list[pa.Buffer] = []
    for number, run in enumerate(runs):
        if run.counts[task.split_index] == 0:
            continue
        held = folder.held(run)
        if isinstance(held, HeldValues):
            found.append(held.find(task, body=number))
            continue
        if held is not None:
            found.append(held.find(task, first_body=len(runs) + len(held_chunks)))
            held_chunks += held.chunks
            continue
        index = folder.find(run, task.split_index, task.low, task.high)
        if len(index.keys) == 0:
            continue
        found.append(
            Pieces(
                np.full(len(index.keys), number, np.int64),
                index.offsets[:-1],
                np.diff(index.offsets).astype(np.int64),
                index.planned_bytes,
                index.keys,
            )
        )
    return Pieces.joined(found), held_chunks
