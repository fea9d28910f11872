"""Compares inputs with what a dataset was made from, by reading those that may differ.

Size and version (modification time or etag) tell quickly that a file is the same. A copy
has another version, and so has a file that was touched: those are read, and the checksum
of their content decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

from recordmill.schemas.errors import InputError
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count, human_bytes
from recordmill.transforms.commit.input_log import KeptFile
from recordmill.transforms.file_content import bytes_of_content, contents
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

PART_BYTES = 8 << 20  # read at once by each thread
_THREADS = 8
_AHEAD = 2 * _THREADS  # parts

Pair = tuple[KeptFile, InputFile]


@dataclass
class ContentCheck:
    """A comparison of files with those of a dataset; reads each file once at most.

    Attributes:
      storage: options of the inputs' storage.
      tell: is told before files are read.
    """

    storage: StorageOptions = NO_OPTIONS
    tell: Callable[[str], None] = lambda _: None
    _known: dict[InputFile, str] = field(default_factory=dict, repr=False)

    def changed(self, pairs: Sequence[Pair]) -> Iterator[InputFile]:
        """Yields the files that are not the same any more; stop when you know enough.

        Nothing is read if any file is surely another one.

        Args:
          pairs: each file as it was kept, and as it is now.
        """
        unsure: list[Pair] = []
        any_changed = False
        for kept, file in pairs:
            same = same_unread(kept, file)
            if same is False:
                any_changed = True
                yield file
            elif same is None:
                unsure.append((kept, file))
        if any_changed:
            return
        todo = [(kept, file) for kept, file in unsure if file not in self._known]
        if todo:
            self._tell(todo)
        yield from self._changed_by_content(unsure)

    def versions_read(self) -> dict[str, str]:
        """Returns the versions of the files that were read, by path."""
        return {file.path: file.version for file in self._known}

    def is_known_as_same(self, kept: KeptFile, file: InputFile) -> bool:
        """Tells whether a file is the same, as far as that is known without reading."""
        same = same_unread(kept, file)
        return self._known.get(file) == kept.content if same is None else same

    def _tell(self, pairs: Sequence[Pair]) -> None:
        total = sum(_bytes_to_read(kept) or 0 for kept, _ in pairs)
        files = count(len(pairs), "input file")
        have = "has another time" if len(pairs) == 1 else "have other times"
        self.tell(
            f"{files} of the same name and size {have}: reading {human_bytes(total)} to "
            "compare"
        )

    def _changed_by_content(self, pairs: Sequence[Pair]) -> Iterator[InputFile]:
        unread = []
        for kept, file in pairs:
            if file not in self._known:
                unread.append((kept, file))
            elif self._known[file] != kept.content:
                yield file
        parts = [
            (file, start, min(start + PART_BYTES, size))
            for kept, file in unread
            if (size := _bytes_to_read(kept))
            for start in range(0, size, PART_BYTES)
        ]
        kept_of = {file.path: kept for kept, file in unread}
        for file, own in groupby(self._read(parts), lambda found: found[0]):
            checksums = [checksum for _, checksum in own]
            found = contents(checksums, {file.path: file.size}).get(file.path, "")
            self._known[file] = found
            if found != kept_of[file.path].content:
                yield file

    def _read(
        self, parts: Iterable[tuple[InputFile, int, int]]
    ) -> Iterator[tuple[InputFile, FileChecksum]]:
        """Yields the checksums of parts in order; a few are read ahead."""

        def read(file: InputFile, start: int, stop: int) -> FileChecksum:
            data = read_range(file.uri, start, stop, self.storage, file.seen)
            if len(data) < stop - start:
                raise InputError(
                    f"{file.uri}: ends at byte {start + len(data)}, but had {file.size} "
                    "bytes when it was listed; did it change meanwhile?"
                )
            return FileChecksum(file.path, start, stop, crc32c(data))

        running: deque[tuple[InputFile, Future[FileChecksum]]] = deque()
        with ThreadPoolExecutor(_THREADS) as threads:
            try:
                for part in parts:
                    running.append((part[0], threads.submit(read, *part)))
                    if len(running) >= _AHEAD:
                        file, future = running.popleft()
                        yield file, future.result()
                while running:
                    file, future = running.popleft()
                    yield file, future.result()
            finally:
                for _, future in running:
                    future.cancel()


def same_unread(kept: KeptFile, file: InputFile) -> bool | None:
    """Tells whether a file is the same; None if it has to be read for that."""
    if (kept.size, kept.is_unreadable) != (file.size, bool(file.problem)):
        return False
    if kept.is_unreadable or kept.version == file.version:
        return True
    if kept.content is None:
        return False
    return None if _bytes_to_read(kept) else True


def _bytes_to_read(kept: KeptFile) -> int:
    return bytes_of_content(kept.content or "", kept.size) or 0
