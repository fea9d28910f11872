"""Writes the index of a shard while the shard is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from recordmill.schemas.shards import IndexResult
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.dataset.random_access import index_text
from recordmill.transforms.hollow_records import Window, record_lengths
from recordmill.transforms.storage.atomic_files import sync_folder, temp_path
from recordmill.transforms.tfrecord import crc32c


class IndexFile:
    """The index of one shard, written window by window: it takes no memory.

    Like the shard it appears whole or not at all: `finish` gives it its name, and
    leaving the block without that leaves nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = temp_path(path)
        self._file = self._temporary.open("wb")
        self._end = 0  # of the shard so far
        self._bytes = 0
        self._crc = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def noted(self, windows: Iterable[Window]) -> Iterator[Window]:
        """Yields the windows of a shard, and notes where their records are.

        Args:
          windows: framed records, in order.
        """
        for window in windows:
            offsets = self._end + offsets_of(record_lengths(window))
            text = index_text(offsets)
            self._file.write(text)
            self._crc = crc32c(text, self._crc)
            self._bytes += len(text)
            self._end = int(offsets[-1])
            yield window

    def finish(self) -> IndexResult:
        """Gives the file its name, when it is on disk (fsync)."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._temporary.replace(self.path)
        sync_folder(self.path.parent)
        return IndexResult(self._bytes, self._crc)
