"""Counts what a task has done so far, in a small file, for reports on progress.

A checkpoint tells of a task only when it is finished. Until then its counts are in a
file of the workspace that the task writes anew some times a second, so that threads,
processes and the launcher need share nothing but a folder. A task whose folder is not
on this machine is counted only when it is finished.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from recordmill.transforms.hollow_records import Window, window_bytes
from recordmill.transforms.tasks.workspace import Workspace

FOLDER = "live"
SECONDS_BETWEEN_NOTES = 0.5
_FORM = struct.Struct("<4Q")


@dataclass(frozen=True, slots=True)
class Counts:
    """What a task, or several, have done.

    Attributes:
      positions: of the input, in the unit of the source (see `InputRange`).
      rows: that were read, rejects included; of a shard, records that were written.
      rejected: rows that become no record.
      bytes: of records that were written.
    """

    positions: int = 0
    rows: int = 0
    rejected: int = 0
    bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.positions + other.positions,
            self.rows + other.rows,
            self.rejected + other.rejected,
            self.bytes + other.bytes,
        )


class LiveCounts:
    """The counts of one unfinished task.

    Args:
      path: of its file; None keeps no counts.
      clock: gives seconds.
    """

    def __init__(
        self, path: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self._next = clock() + SECONDS_BETWEEN_NOTES  # a short task needs no file
        self._written = Counts()

    def note(self, counts: Counts) -> None:
        """Writes the counts, unless it did so just before."""
        if self._path is None or (now := self._clock()) < self._next:
            return
        self._next = now + SECONDS_BETWEEN_NOTES
        try:
            # In place: one that was emptied first could be read empty.
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(file, _FORM.pack(*astuple(counts)), 0)
            finally:
                os.close(file)
        except OSError:
            self._path = None  # no such folder here: progress is not worth an error

    def note_written(self, records: Window) -> None:
        """Adds records to those that were written."""
        self._written += Counts(rows=len(records), bytes=window_bytes(records))
        self.note(self._written)

    def note_bytes(self, size: int) -> None:
        """Adds bytes to those that were written, or checked."""
        self._written += Counts(bytes=size)
        self.note(self._written)

    def close(self) -> None:
        """Removes the file: the task has left its checkpoint, or failed."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


NO_COUNTS = LiveCounts(None)


@contextmanager
def counting(workspace: Workspace, task: str) -> Iterator[LiveCounts]:
    """Gives the counts of a task, kept where the launcher of the run looks for them."""
    path = None if workspace.shared else workspace.local_path(f"{FOLDER}/{task}")
    live = LiveCounts(path)
    try:
        yield live
    finally:
        live.close()


def counted(windows: Iterable[Window], live: LiveCounts) -> Iterator[Window]:
    """Yields windows of records, and counts those that were taken."""
    for window in windows:
        yield window
        live.note_written(window)


def read_live_counts(workspace: Workspace) -> dict[str, Counts]:
    """Returns the counts of the unfinished tasks, by name."""
    found: dict[str, Counts] = {}
    if workspace.shared:
        return found
    for path in workspace.local_path(FOLDER).glob("*"):
        with suppress(OSError, struct.error):  # finished, or being written just now
            found[path.name] = Counts(*_FORM.unpack(path.read_bytes()))
    return found
