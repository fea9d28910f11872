"""Where sorted runs lie: in a folder that all workers see, or in a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from schemas.errors import MissingFileError, RecordmillError
from schemas.ranges import RunRef
from transforms.exchange.block_io import SCRATCH_SPEED, read_into
from transforms.exchange.runs import RunIndex, parse_index
from transforms.stores import Store
from transforms.tfrecord import crc32c


class RunFolder(ABC):
    """Sorted runs by their stems (see runs). A small value that pickles."""

    __slots__ = ()

    @abstractmethod
    def writing(self, stem: str) -> AbstractContextManager[Path]:
        """A context: a path without ending, where `write_run` puts both files."""

    @abstractmethod
    def index(self, run: RunRef) -> RunIndex:
        """A run's index, checked.

        Raises:
          RecordmillError: the file is gone or is not what the run's facts say.
        """

    @abstractmethod
    def read_into(self, run: RunRef, target: memoryview, offset: int) -> None:
        """Fills `target` with the run's payload from byte `offset` on.

        Raises:
          RecordmillError: the file is gone or ends before.
        """

    @abstractmethod
    def is_whole(self, run: RunRef) -> bool:
        """Whether both files of a run are there as they were written."""


@dataclass(frozen=True, slots=True)
class LocalRuns(RunFolder):
    """Runs in a local folder."""

    folder: str

    @contextmanager
    def writing(self, stem: str) -> Iterator[Path]:
        yield Path(self.folder, stem)

    def index(self, run: RunRef) -> RunIndex:
        path = Path(self.folder, f"{run.stem}.index")
        return parse_index(path.read_bytes(), run, str(path))

    def read_into(self, run: RunRef, target: memoryview, offset: int) -> None:
        path = Path(self.folder, f"{run.stem}.records")
        read_into(path, target, offset, direct=SCRATCH_SPEED.direct)

    def is_whole(self, run: RunRef) -> bool:
        records = Path(self.folder, f"{run.stem}.records")
        try:
            index = Path(self.folder, f"{run.stem}.index").read_bytes()
            if records.stat().st_size != run.payload_bytes:
                return False
            return (
                crc32c(index) == run.index_crc32c
                and crc32c(records.read_bytes()) == run.payload_crc32c
            )
        except OSError:
            return False


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

    def index(self, run: RunRef) -> RunIndex:
        name = self._name(run, "index")
        return parse_index(self.store.read(name), run, self.store.uri_of(name))

    def read_into(self, run: RunRef, target: memoryview, offset: int) -> None:
        name = self._name(run, "records")
        data = self.store.read_range(name, offset, offset + len(target))
        if len(data) < len(target):
            raise RecordmillError(
                f"{self.store.uri_of(name)}: the scratch file ends before byte "
                f"{offset + len(target)}"
            )
        target[:] = data

    def is_whole(self, run: RunRef) -> bool:
        records = self._name(run, "records")
        known = self.store.checksum(records)  # None: the store keeps none
        try:
            index = self.store.read(self._name(run, "index"))
        except MissingFileError:
            return False
        return (
            crc32c(index) == run.index_crc32c
            and self.store.size(records) == run.payload_bytes
            and known in (None, run.payload_crc32c)
        )

    def _name(self, run: RunRef, ending: str) -> str:
        return f"{self.folder}/{run.stem}.{ending}"
