"""Keeps the sorted runs that are held in memory instead of files, up to a budget.

Held runs belong to this process. Whoever starts a job says how much it may hold, and
lets go of all of it at the end. A run that was held by a process that was killed is not
there any more: its range is read again. So the budget bounds the work that went into
held runs, too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from recordmill.transforms.encode.unwritten_records import UnwrittenRecords
from recordmill.transforms.exchange.block import Block
from recordmill.transforms.exchange.held_records import HeldRecords
from recordmill.transforms.exchange.held_values import HeldValues

HeldRun: TypeAlias = HeldRecords | HeldValues

_ROW_BYTES = 40  # of the arrays of a held run, for each record


@dataclass(frozen=True, slots=True)
class HoldBudget:
    """What the held runs of a job may have together.

    Attributes:
      num_bytes: memory.
      seconds: that workers took to make them, which a killed run loses.
    """

    num_bytes: int
    seconds: float = math.inf


NO_BUDGET = HoldBudget(0)


def held_bytes(blocks: Sequence[Block]) -> int:
    """Returns the memory that a held run of these blocks takes."""
    held: dict[int, int] = {}
    for block in blocks:
        if isinstance(block.payloads, UnwrittenRecords):
            held[id(block)] = block.payloads.held_bytes
        elif (buffer := block.payloads.buffers()[2]) is not None:
            held[buffer.address] = buffer.size
    return sum(held.values()) + _ROW_BYTES * sum(len(block.keys) for block in blocks)


class HeldRuns:
    """The held runs of this process, by folder and stem."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], tuple[HeldRun, int, float]] = {}
        self._bytes = 0
        self._seconds = 0.0

    def hold(
        self,
        folder: str,
        stem: str,
        blocks: Sequence[Block],
        num_splits: int,
        seconds: float,
        budget: HoldBudget,
    ) -> HeldRun | None:
        """Holds a run in place of an earlier one of this name.

        Args:
          folder: of the run.
          stem: its name.
          blocks: its records.
          num_splits: number of splits of the job.
          seconds: that it took to make the blocks.
          budget: of all held runs.

        Returns:
          None if there is no room for it.
        """
        needed = held_bytes(blocks)
        self._drop((folder, stem))
        if not self._fits(needed, seconds, budget):
            return None
        values = HeldValues.of(blocks, num_splits)
        if values is None:
            blocks = [block.written() for block in blocks]
            needed = held_bytes(blocks)
        run = values or HeldRecords.of(blocks, num_splits)
        with self._lock:
            # Others may have filled the room meanwhile.
            if not self._fits(needed, seconds, budget):
                return None
            self._bytes += needed
            self._seconds += seconds
            self._runs[folder, stem] = (run, needed, seconds)
        return run

    def has_room(self, budget: HoldBudget) -> bool:
        """Tells whether there is room for one more row."""
        return self._fits(1, 0.0, budget)

    def _fits(self, needed: int, seconds: float, budget: HoldBudget) -> bool:
        return (
            self._bytes + needed <= budget.num_bytes
            and self._seconds + seconds <= budget.seconds
        )

    def get(self, folder: str, stem: str) -> HeldRun | None:
        """Returns a held run, or None."""
        found = self._runs.get((folder, stem))
        return found[0] if found else None

    def release(self, folder: str) -> None:
        """Lets go of all runs of a folder."""
        for key in [key for key in self._runs if key[0] == folder]:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        with self._lock:
            _, num_bytes, seconds = self._runs.pop(key, (None, 0, 0.0))
            self._bytes -= num_bytes
            self._seconds -= seconds


HELD_RUNS = HeldRuns()
