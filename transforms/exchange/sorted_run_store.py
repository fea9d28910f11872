"""Where sorted runs lie: in a folder that all workers see, or in a store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import RunRef
from recordmill.transforms.exchange.sorted_run_index import (
    ReadPart,
    RunIndex,
    find_records,
    whole_index,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.direct_io import SCRATCH_SPEED, read_into
from recordmill.transforms.tfrecord import crc32c


class RunFolder(ABC):
    """Sorted runs by their stems (see runs). A small value that pickles."""

    __slots__ = ()

    @abstractmethod
    def writing(self, stem: str) -> AbstractContextManager[Path]:
        """A context: a path without ending, where `write_run` puts both files."""

    @abstractmethod
    def _index_file(self, run: RunRef) -> tuple[ReadPart, str]:
        """What reads a run's .index file, and the file's name for people."""

    def index(self, run: RunRef) -> RunIndex:
        """All records of a run.

        Raises:
          RecordmillError: the index is not what the run's facts say.
          OSError, MissingFileError: it is gone.
        """
        read, where = self._index_file(run)
        return whole_index(read, run, where)

    def find(self, run: RunRef, split_index: int, low: int, high: int) -> RunIndex:
        """The records of a split with low <= key < high; errors as of `index`."""
        read, where = self._index_file(run)
        return find_records(read, run, where, split_index, low, high)

    @abstractmethod
    def read_into(self, run: RunRef, target: memoryview, offset: int) -> None:
        """Fills `target` with the run's payload from byte `offset` on.

        Raises:
          RecordmillError: the file is gone or ends before.
        """

    @abstractmethod
    def _payload_bytes(self, run: RunRef) -> int | None:
        """The size of a run's .records file, or None if there is none."""

    @abstractmethod
    def _payload_is_whole(self, run: RunRef) -> bool:
        """Whether a .records file of the right size has the right checksum."""

    def is_there(self, run: RunRef) -> bool:
        """Whether a run's files have the right sizes, and its index the right checksum.

        The payload is not read: framed records have checksums of their own, which
        whoever gathers them compares.
        """
        try:
            self.index(run)
        except (OSError, RecordmillError):  # a MissingFileError is one, too
            return False
        return self._payload_bytes(run) == run.payload_bytes

    def is_whole(self, run: RunRef) -> bool:
        """Whether both files of a run are there as they were written."""
        return self.is_there(run) and self._payload_is_whole(run)


@dataclass(frozen=True, slots=True)
class LocalRuns(RunFolder):
    """Runs in a local folder."""

    folder: str

    @contextmanager
    def writing(self, stem: str) -> Iterator[Path]:
        yield Path(self.folder, stem)

    def _index_file(self, run: RunRef) -> tuple[ReadPart, str]:
        path = Path(self.folder, f"{run.stem}.index")

        def read(start: int, stop: int) -> bytes:
            with path.open("rb", buffering=0) as file:
                return os.pread(file.fileno(), stop - start, start)

        return read, str(path)

    def read_into(self, run: RunRef, target: memoryview, offset: int) -> None:
        path = Path(self.folder, f"{run.stem}.records")
        read_into(path, target, offset, direct=SCRATCH_SPEED.direct)

    def _payload_bytes(self, run: RunRef) -> int | None:
        try:
            return Path(self.folder, f"{run.stem}.records").stat().st_size
        except OSError:
            return None

    def _payload_is_whole(self, run: RunRef) -> bool:
        try:
            payload = Path(self.folder, f"{run.stem}.records").read_bytes()
        except OSError:
            return False
        return crc32c(payload) == run.payload_crc32c


@dataclass(frozen=True, slots=True)
class StoredRuns(RunFolder):
    """Runs in a store, for workers that share no file system."""

    store: Store
    folder: str

    @contextmanager
    def writing(self, stem: str) -> Iterator[Path]:
        with TemporaryDirectory(prefix="run-") as near:
            yield Path(near, stem)
            for ending in ("records", "index"):  # the index last: it tells of both
                file = f"{stem}.{ending}"
                self.store.put_file(Path(near, file), f"{self.folder}/{file}")

    def _index_file(self, run: RunRef) -> tuple[ReadPart, str]:
        name = self._name(run, "index")
        return partial(self.store.read_range, name), self.store.uri_of(name)

    def read_into(self, run: RunRef, target: memoryview, offset: int) -> None:
        name = self._name(run, "records")
        data = self.store.read_range(name, offset, offset + len(target))
        if len(data) < len(target):
            raise RecordmillError(
                f"{self.store.uri_of(name)}: the scratch file ends before byte "
                f"{offset + len(target)}"
            )
        target[:] = data

    def _payload_bytes(self, run: RunRef) -> int | None:
        return self.store.size(self._name(run, "records"))

    def _payload_is_whole(self, run: RunRef) -> bool:
        known = self.store.checksum(self._name(run, "records"))
        return known in (None, run.payload_crc32c)  # None: the store keeps none

    def _name(self, run: RunRef, ending: str) -> str:
        return f"{self.folder}/{run.stem}.{ending}"
