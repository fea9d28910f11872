"""Stores sorted runs in a folder, in a store or in memory, and gathers shards of them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import MissingFileError, RecordmillError
from recordmill.schemas.ranges import SortedRunRef
from recordmill.schemas.shards import ShardTask
from recordmill.transforms.exchange.held_runs import (
    HELD_RUNS,
    NO_BUDGET,
    HeldRun,
    HeldValues,
    HoldBudget,
)
from recordmill.transforms.exchange.merge import (
    WINDOW_BYTES,
    Block,
    Bodies,
    Pieces,
    merge_windows,
)
from recordmill.transforms.exchange.sorted_run import (
    ReadRange,
    SortedRunIndex,
    find_records,
    read_index,
    write_sorted_run,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import crc32c


class SortedRunFolder(ABC):
    """A folder of sorted runs; a small value that can be pickled."""

    __slots__ = ()

    @abstractmethod
    def writing(self, stem: str) -> AbstractContextManager[Path]:
        """Returns a context with the path, without ending, for `write_sorted_run`."""

    def save(
        self, stem: str, blocks: Sequence[Block], num_splits: int, seconds: float = 0.0
    ) -> SortedRunRef:
        """Saves a run.

        Args:
          stem: its name.
          blocks: its records.
          num_splits: number of splits of the job.
          seconds: that it took to make the blocks.
        """
        with self.writing(stem) as path:
            return write_sorted_run(path, blocks, num_splits)

    @property
    def has_room(self) -> bool:
        """Tells whether there may be room in memory for another run."""
        return False

    def held(self, run: SortedRunRef) -> HeldRun | None:
        """Returns a run that is in memory; None if it is in files.

        Raises:
          RecordmillError: this process has not made it.
        """
        return None

    def release(self) -> None:  # noqa: B027 (files stay)
        """Lets go of the runs in memory."""

    @abstractmethod
    def _index_file(self, run: SortedRunRef) -> tuple[ReadRange, str]:
        """Returns a function that reads a run's .index file, and the file's URI."""

    def index(self, run: SortedRunRef) -> SortedRunIndex:
        """Reads the index of all records of a run.

        Raises:
          RecordmillError: the index is not the one that the SortedRunRef describes.
          OSError, MissingFileError: it is missing.
        """
        held = self.held(run)
        if held is not None:
            return held.index
        read, uri = self._index_file(run)
        return read_index(read, run, uri)

    def find(
        self, run: SortedRunRef, split_index: int, low: int, high: int
    ) -> SortedRunIndex:
        """Reads the index of a split's records with low <= key < high."""
        read, uri = self._index_file(run)
        return find_records(read, run, uri, split_index, low, high)

    @abstractmethod
    def read_into(self, run: SortedRunRef, target: memoryview, offset: int) -> None:
        """Fills `target` with the run's payload that begins at byte `offset`.

        Raises:
          RecordmillError: the file ends too early.
        """

    @abstractmethod
    def _payload_bytes(self, run: SortedRunRef) -> int | None:
        """Returns the size of a run's .records file, or None if it is missing."""

    @abstractmethod
    def _payload_is_whole(self, run: SortedRunRef) -> bool:
        """Tells whether a .records file of the right size has the right checksum."""

    def is_present(self, run: SortedRunRef) -> bool:
        """Tells whether a run's files have the right sizes, and its index its checksum.

        The payload is not read: framed records have checksums of their own, which are
        verified when they are gathered.
        """
        try:
            if self.held(run) is not None:
                return True
            self.index(run)
        except (OSError, RecordmillError):  # MissingFileError is a RecordmillError
            return False
        return self._payload_bytes(run) == run.payload_bytes

    def is_whole(self, run: SortedRunRef) -> bool:
        """Tells whether both files of a run exist as they were written."""
        return self.is_present(run) and (run.in_memory or self._payload_is_whole(run))


@dataclass(frozen=True, slots=True)
class LocalSortedRuns(SortedRunFolder):
    """Sorted runs in a local folder.

    Attributes:
      folder: its path.
      budget: what the runs of this process may hold in memory instead.
    """

    folder: str
    budget: HoldBudget = NO_BUDGET

    def save(
        self, stem: str, blocks: Sequence[Block], num_splits: int, seconds: float = 0.0
    ) -> SortedRunRef:
        if self.has_room:
            held = HELD_RUNS.hold(
                self.folder, stem, blocks, num_splits, seconds, self.budget
            )
            if held is not None:
                return held.reference(stem)
        return super(LocalSortedRuns, self).save(
            stem, [block.written() for block in blocks], num_splits, seconds
        )

    @property
    def has_room(self) -> bool:
        return HELD_RUNS.has_room(self.budget)

    def held(self, run: SortedRunRef) -> HeldRun | None:
        if not run.in_memory:
            return None
        held = HELD_RUNS.get(self.folder, run.stem)
        if held is None:
            raise MissingFileError(
                f"the sorted run {run.stem} is not in memory any more"
            )
        return held

    def release(self) -> None:
        HELD_RUNS.release(self.folder)

    @contextmanager
    def writing(self, stem: str) -> Iterator[Path]:
        yield Path(self.folder, stem)

    def _index_file(self, run: SortedRunRef) -> tuple[ReadRange, str]:
        path = f"{self.folder}/{run.stem}.index"

        def read(start: int, stop: int) -> bytes:
            # Each shard reads a part of each: as pathlib opens, this took twice as long.
            file = os.open(path, os.O_RDONLY)
            try:
                return os.pread(file, stop - start, start)
            finally:
                os.close(file)

        return read, path

    def read_into(self, run: SortedRunRef, target: memoryview, offset: int) -> None:
        held = self.held(run)
        if isinstance(held, HeldValues):
            held.read_into(target, offset)
            return
        path = Path(self.folder, f"{run.stem}.records")
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            done = 0
            while done < len(target):
                if not (count := file.readinto(target[done:])):
                    raise _ends_early(str(path), offset + len(target))
                done += count

    def _payload_bytes(self, run: SortedRunRef) -> int | None:
        try:
            return Path(self.folder, f"{run.stem}.records").stat().st_size
        except OSError:
            return None

    def _payload_is_whole(self, run: SortedRunRef) -> bool:
        try:
            payload = Path(self.folder, f"{run.stem}.records").read_bytes()
        except OSError:
            return False
        return crc32c(payload) == run.payload_crc32c


def _ends_early(uri: str, wanted: int) -> RecordmillError:
    return RecordmillError(f"{uri}: the scratch file ends before byte {wanted}")


@dataclass(frozen=True, slots=True)
class StoredSortedRuns(SortedRunFolder):
    """Sorted runs in a store, for workers that do not share a file system."""

    store: Store
    folder: str

    @contextmanager
    def writing(self, stem: str) -> Iterator[Path]:
        with TemporaryDirectory(prefix="run-") as local_folder:
            yield Path(local_folder, stem)
            for ending in ("records", "index"):  # the index last, as it describes both
                file = f"{stem}.{ending}"
                self.store.put_file(Path(local_folder, file), f"{self.folder}/{file}")

    def _index_file(self, run: SortedRunRef) -> tuple[ReadRange, str]:
        name = self._name(run, "index")
        return partial(self.store.read_range, name), self.store.uri_of(name)

    def read_into(self, run: SortedRunRef, target: memoryview, offset: int) -> None:
        name = self._name(run, "records")
        data = self.store.read_range(name, offset, offset + len(target))
        if len(data) < len(target):
            raise _ends_early(self.store.uri_of(name), offset + len(target))
        target[:] = data

    def _payload_bytes(self, run: SortedRunRef) -> int | None:
        return self.store.size(self._name(run, "records"))

    def _payload_is_whole(self, run: SortedRunRef) -> bool:
        known = self.store.checksum(self._name(run, "records"))
        return known in (None, run.payload_crc32c)  # None: the store keeps no checksums

    def _name(self, run: SortedRunRef, ending: str) -> str:
        return f"{self.folder}/{run.stem}.{ending}"


# The two differ only in what a payload is. The engine exchange
# gathers its own pieces (pieces.py); all three merge them in the same way (merge.py).


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
