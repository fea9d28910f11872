"""Reads shards that are ArrayRecord files: in order, or single records.

The package array_record reads local files alone. A shard in a store is copied to a
temporary file first: it takes its size on the local disk, but no memory.
"""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from recordmill.schemas.dataset.manifest import ShardEntry
from recordmill.schemas.errors import OutputError
from recordmill.schemas.file_names import check_file_name
from recordmill.transforms.arrow import I64, binary_array, offsets_of
from recordmill.transforms.dataset.files import (
    READ_BYTES,
    ChecksummedFile,
    open_file,
    require_size,
)
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.array_record import ArrayRecordFile


def open_array_records(store: Store, entry: ShardEntry) -> ArrayRecordShard:
    """Opens a shard; one in a store is copied to a temporary file, which goes with it.

    Raises:
      OutputError: the file is not the one that the manifest describes.
      UsageError: the package array_record is missing.
    """
    require_size(store, entry)
    uri, name = store.uri_of(entry.file), check_file_name(entry.file, store.uri)
    folder = None
    if isinstance(store, LocalStore):
        path = Path(store.root, name)
    else:
        folder = mkdtemp(prefix="recordmill-")
        path = Path(folder, name)
    try:
        if folder is not None:
            with open_file(store, name) as source, path.open("wb") as target:
                checked = ChecksummedFile(source)
                shutil.copyfileobj(cast("BinaryIO", checked), target, READ_BYTES)
            _require_crc(uri, entry, checked.crc)
        file = ArrayRecordFile(path, uri)
        if file.records != entry.records:
            raise OutputError(
                f"{uri}: {file.records:,} records, the manifest says "
                f"{entry.records:,}; run `recordmill verify` to see what is wrong"
            )
    except BaseException:
        if folder is not None:
            _remove(folder, os.getpid())
        raise
    shard = ArrayRecordShard(uri, entry, path, file, is_copy=folder is not None)
    if folder is not None:
        weakref.finalize(shard, _remove, folder, os.getpid())
    return shard


class ArrayRecordShard:
    """One ArrayRecord shard, open for reading at any place."""

    def __init__(
        self,
        uri: str,
        entry: ShardEntry,
        path: Path,
        file: ArrayRecordFile,
        *,
        is_copy: bool,
    ) -> None:
        self._uri, self._entry, self._path = uri, entry, path
        self._file, self._is_copy = file, is_copy

    def read(self, positions: I64) -> pa.BinaryArray:
        """Returns records in the order of their positions, which may repeat.

        The package checks the hash of each.

        Raises:
          OutputError: one is damaged.
        """
        records = self._file.read(positions.tolist())
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        data = np.frombuffer(b"".join(records), np.uint8)
        return binary_array(offsets_of(lengths), data)

    def records(self) -> Iterator[memoryview]:
        """Yields all records in order, after a check of the whole file.

        Raises:
          OutputError: it is not the file that was written.
        """
        if not self._is_copy:
            with self._path.open("rb") as file:
                checked = ChecksummedFile(file)
                checked.drain()
            _require_crc(self._uri, self._entry, checked.crc)
        for record in self._file.read_all():
            yield memoryview(record)


def _require_crc(uri: str, entry: ShardEntry, crc: int) -> None:
    if f"{crc:08x}" != entry.crc32c:
        raise OutputError(
            f"{uri}: CRC-32C {crc:08x}, the manifest says {entry.crc32c}: this is not the "
            "file that was written. Convert again or restore it"
        )


def _remove(folder: str, process: int) -> None:
    """Removes a copy, unless it is the parent's of a process that was forked."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
