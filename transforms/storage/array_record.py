"""Writes and reads ArrayRecord files, by the package array_record.

The package opens local paths alone, and does not say if it cannot: a file that is missing
or cut short has no records. So what was written is counted, and what is read as well.

Each record is a chunk of its own and not compressed (`group_size:1,uncompressed`): any
record can be read alone, and the bytes depend on the records and on the version of the
package, not on threads. Chunks have hashes, which the package checks as it reads them.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from recordmill.schemas.errors import FULL, OutputError, UsageError
from recordmill.schemas.text import count
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.storage.atomic_files import renamed, sync_folder
from recordmill.transforms.storage.shard_file import WrittenFile
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, crc32c

_WRITER = "group_size:1,uncompressed"
# Without threads: a reader may be taken along into a forked worker of a data loader.
_READER = "readahead_buffer_size:0,max_parallelism:0"
_READ_BYTES = 8 << 20  # of records read at once, about
_READ_RECORDS = 1 << 12
_BUFFER_BYTES = 1 << 16  # of each open file; of a thousand, too


def require_container(container: str) -> None:
    """Checks that shards of this file format can be written and read here."""
    if container == "array_record":
        _module()


def _module() -> Any:
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        raise UsageError(
            "`container=array_record` needs the package array_record, which is not "
            f"installed ({error}): pip install array_record, or pip install "
            "'.[array_record]' in the folder of recordmill's source"
        ) from error
    return array_record_module


def write_array_records(path: Path, windows: Iterable[pa.BinaryArray]) -> WrittenFile:
    """Writes the data of framed records to a file that appears whole or not at all.

    `path` is the final name of the shard. The windows' frames are left out.
    """
    module = _module()
    records = num_bytes = 0
    with renamed(path) as temporary:
        writer = module.ArrayRecordWriter(str(temporary), _WRITER)
        try:
            for window in windows:
                # A Python call for each record, 2 us, or 5 us for one of 3 kB: the
                # package takes them one by one.
                for record in _without_frames(window):
                    writer.write(record)
                    num_bytes += len(record)
                records += len(window)
            writer.close()
            found = ArrayRecordFile(temporary).records
        except RuntimeError as error:  # the only one that it raises
            raise _os_error(path, str(error)) from error
        if found != records:
            raise OSError(
                f"{path}: {count(found, 'record')} found in what was written, expected "
                f"{records:,}"
            )
        size, checksum = _synced(temporary)
    sync_folder(path.parent)
    return WrittenFile(records, size, num_bytes, checksum)


def _os_error(path: Path, what: str) -> OSError:
    """Returns an error of the system, of which the package gives the text alone."""
    for code in (*FULL, errno.EIO, errno.EACCES):
        if os.strerror(code) in what:
            return OSError(code, what, str(path))
    return OSError(f"{path}: cannot be written: {what}")


def _without_frames(window: pa.BinaryArray) -> Iterator[bytes]:
    offsets, data = array_parts(window)
    begins = (offsets[:-1] + HEAD_BYTES).tolist()
    stops = (offsets[1:] - TAIL_BYTES).tolist()
    for begin, stop in zip(begins, stops, strict=True):
        yield data[begin:stop].tobytes()


def _synced(path: Path) -> tuple[int, int]:
    """Returns (size, CRC-32C) of a file, when it is on disk (fsync)."""
    size = crc = 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while block := file.read(_READ_BYTES):
            size += len(block)
            crc = crc32c(block, crc)
    return size, crc


class ArrayRecordFile:
    """An ArrayRecord file on this machine, open for reading at any place.

    Several threads may read; the package does not say that they may, so they take turns. A
    process that was forked opens the file again, as its parent may be reading just now.

    It has 0 `records` if it is not whole. A damaged record is an OutputError. `uri` is its
    name for messages.
    """

    def __init__(self, path: Path, uri: str = "") -> None:
        self._path, self._uri = path, uri or str(path)
        self._open()
        self.records = int(self._reader.num_records())

    def _open(self) -> None:
        self._process, self._turn = os.getpid(), threading.Lock()
        self._reader = _module().ArrayRecordReader(
            str(self._path), _READER, file_reader_buffer_size=_BUFFER_BYTES
        )

    def _read(self, *what: Any) -> list[bytes]:
        """Reads what the package's `read` takes: positions, or start and stop."""
        if self._process != os.getpid():
            self._open()
        try:
            with self._turn:
                return list(self._reader.read(*what))
        except (RuntimeError, IndexError) as error:
            raise OutputError(
                f"{self._uri}: {error}; run `recordmill verify` to see what else is wrong"
            ) from error

    def read(self, positions: Sequence[int]) -> list[bytes]:
        """Returns records in the order of their positions, which may repeat."""
        return self._read(positions) if len(positions) else []

    def read_all(self) -> Iterator[bytes]:
        """Yields all records in order; some MB of them are in memory, or a large one."""
        mean = self._path.stat().st_size // max(1, self.records)
        step = max(1, min(_READ_RECORDS, _READ_BYTES // max(1, mean)))
        for start in range(0, self.records, step):
            yield from self._read(start, min(start + step, self.records))
