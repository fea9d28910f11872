"""Writes the records of one shard to a TFRecord file (direct I/O) or an ArrayRecord file.

Caching data that is used once only fills the page cache. In a container the cache counts
against the memory limit, and on many virtual machines a new cache page costs ten times
the copy of its bytes. Direct I/O avoids both, but waits for the disk. Shards use direct
I/O, because they must be on disk before they count. Scratch files do not, because they
may never reach the disk.

Direct I/O (open(2), O_DIRECT) needs buffers, offsets and lengths that are multiples of a
block. File systems without it (tmpfs, some network file systems) refuse the flag; their
files are written through the cache.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import FULL_ERRNOS, OutputError, UsageError
from recordmill.schemas.text import format_count
from recordmill.transforms import native
from recordmill.transforms.arrow import U8, array_parts, extract_binary
from recordmill.transforms.encode.waiting_rows import RecordWindow
from recordmill.transforms.storage.local import write_then_rename
from recordmill.transforms.storage.local_folder import sync, sync_folder
from recordmill.transforms.tfrecord import FRAME_BYTES, HEAD_BYTES, crc32c

BLOCK_BYTES = 4096
BUFFER_BYTES = 4 << 20
_WRITE_BUFFERS = 3
_O_DIRECT = getattr(os, "O_DIRECT", 0)

# Reused buffers: with newly allocated pages, shards of 8 MB took 1.4 times as long.
_spare_buffers: deque[U8] = deque(maxlen=4 * _WRITE_BUFFERS)


def _aligned_buffer() -> U8:
    """Returns an unused page-aligned buffer; its content is arbitrary."""
    with suppress(IndexError):
        return _spare_buffers.pop()
    return np.frombuffer(mmap.mmap(-1, BUFFER_BYTES, mmap.MAP_PRIVATE), np.uint8)


def _open(path: Path, flags: int) -> tuple[int, bool]:
    """Opens a file; returns its descriptor and whether it uses direct I/O."""
    if _O_DIRECT:
        try:
            return os.open(path, flags | _O_DIRECT, 0o666), True
        except OSError:
            pass  # no direct I/O here; the next open raises any other error
    return os.open(path, flags, 0o666), False


class BlockWriter:
    """A sequential writer of one new file.

    Direct writes wait for the disk, so a separate thread does them while the caller fills
    other buffers. Two of the three buffers can be queued: some writes take far longer
    than others.
    """

    def __init__(self, path: Path, *, name: Path | None = None) -> None:
        """Creates the file; errors contain its final name, if it is renamed later."""
        self._name = str(name or path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._descriptor, self.is_direct = _open(path, flags)
        self._buffer, *self._free = (_aligned_buffer() for _ in range(_WRITE_BUFFERS))
        self._filled = 0
        self.size = 0
        self._background_writer: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Future[None], U8]] = deque()  # oldest first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if self._background_writer is not None:
            self._background_writer.shutdown(wait=True)
        if error is None:
            _spare_buffers.extend([self._buffer, *self._free])
        os.close(self._descriptor)  # may fail if the disk is full

    def write(self, pieces: list[memoryview]) -> None:
        """Appends the bytes of all pieces."""
        done, total = 0, sum(map(len, pieces))
        self.size += total
        if not self.is_direct:
            for piece in pieces:
                self._write_now(piece)
            return
        while done < total:
            room = self._buffer.data[self._filled :]
            copied = native.loops.copy(pieces, done, room)
            done += copied
            self._filled += copied
            if self._filled == BUFFER_BYTES:
                self._write_behind()

    def _write_behind(self) -> None:
        if self._background_writer is None:
            self._background_writer = ThreadPoolExecutor(1, "write-behind")
        full = self._buffer
        write = self._background_writer.submit(self._write_now, full.data)
        self._pending.append((write, full))
        if not self._free:
            self._wait()
        self._buffer = self._free.pop()
        self._filled = 0

    def _write_now(self, view: memoryview) -> None:
        """Writes all bytes of a view; an error contains the name of the file."""
        try:
            while view:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except OSError as error:
                    if error.errno != errno.EINVAL or not self._end_direct_writes():
                        raise
        except OSError as error:
            error.filename = self._name
            raise

    def _end_direct_writes(self) -> bool:
        """Ends direct writes, in favor of the cache; returns whether writes were direct.

        If only a part of a block fits (a limit, a full disk), a direct write fails with
        "invalid argument". A write through the cache raises the actual error.
        """
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
        return bool(flags & _O_DIRECT)

    def _wait(self) -> None:
        """Waits for the oldest write in the background; raises its error if it failed."""
        write, buffer = self._pending.popleft()
        write.result()
        self._free.append(buffer)

    def finish(self) -> None:
        """Writes the remaining bytes, and waits until the file is on disk (fsync)."""
        while self._pending:
            self._wait()
        if self._filled:
            padded = -(-self._filled // BLOCK_BYTES) * BLOCK_BYTES
            self._buffer[self._filled : padded] = 0
            self._write_now(self._buffer.data[:padded])
            os.ftruncate(self._descriptor, self.size)
            self._filled = 0
        sync(self._descriptor, Path(self._name))


# Deflate does not specify the compressed form: each library, and each version of it, can
# produce other bytes. So the library is installed with the project, in the locked
# version, instead of the machine's own library. zlib-ng (2.2 and later) finds the same
# matches on every processor. At level 6 it takes half the time of zlib, for the same
# size. Source: RFC 1952 (gzip), https://github.com/zlib-ng/zlib-ng.

DEFAULT_LEVEL = 6
_WITH_HEADER = 16 + 15  # a gzip header without name, with mtime 0; a window of 32 KiB
_GZIP_BLOCK_BYTES = 256 << 10  # compressed at once


def gzip_packer(level: int = DEFAULT_LEVEL) -> Any:
    """Returns a gzip compressor that produces the same bytes on every machine.

    Its `compress` and `flush` return the finished bytes of the stream. The level is from
    1 (fast) to 9 (small).
    """
    # Imported here: readers of datasets do not need the package.
    from zlib_ng import zlib_ng

    return zlib_ng.compressobj(level, zlib_ng.DEFLATED, _WITH_HEADER)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The size and checksum of a shard file that was just written."""

    records: int
    bytes: int  # size of the file, after compression
    example_bytes: int  # size of all payloads without frames, before compression
    crc32c: int  # of the file's bytes
    sha256: str = ""  # of the file's bytes; "" if not requested


def write_records(
    path: Path,
    records: Iterable[pa.BinaryArray | RecordWindow],
    compression: str,
    gzip_level: int = DEFAULT_LEVEL,
    *,
    with_sha256: bool = False,
) -> WrittenFile:
    """Writes framed records to a file that appears completely or not at all.

    The bytes are written to a temporary file in the same folder. When they are on disk
    (fsync), the file is renamed and its folder is synced.

    The compression is "none" or "gzip"; the level is from 1 (fast) to 9 (small).
    """
    tally, windows = _Tally(), map(RecordWindow.from_records, records)
    digest = sha256() if with_sha256 else None
    if compression == "gzip":
        parts = _compressed_pieces(windows, tally, gzip_level)
    else:
        parts = _plain_pieces(windows, tally)
    # A shard counts only once it is on disk, so the page cache is of no use.
    with (
        write_then_rename(path) as temporary,
        BlockWriter(temporary, name=path) as file,
    ):
        for pieces in parts:
            file.write(pieces)
            if digest:
                for piece in pieces:
                    digest.update(piece)
        file.finish()
    sync_folder(path.parent)
    example_bytes = tally.framed_bytes - tally.records * FRAME_BYTES
    facts = (tally.records, file.size, example_bytes, tally.crc32c)
    return WrittenFile(*facts, digest.hexdigest() if digest else "")


@dataclass(slots=True)
class _Tally:
    """The counts of written records, and the checksum of their file."""

    records: int = 0
    framed_bytes: int = 0
    crc32c: int = 0

    def add(self, window: RecordWindow) -> None:
        self.records += len(window)
        self.framed_bytes += int(window.lengths.sum())

    def add_to_checksum(self, data: bytes) -> list[memoryview]:
        """Adds bytes of the file to its checksum; returns them as pieces."""
        self.crc32c = crc32c(data, self.crc32c)
        return [memoryview(data)]


def _plain_pieces(
    windows: Iterable[RecordWindow], tally: _Tally
) -> Iterator[list[memoryview]]:
    for window in windows:
        tally.add(window)
        tally.crc32c = window.crc32c_after(tally.crc32c)
        yield list(window.iterate_pieces())


def _compressed_pieces(
    windows: Iterable[RecordWindow], tally: _Tally, level: int
) -> Iterator[list[memoryview]]:
    packer = gzip_packer(level)
    for block in _blocks_of(windows, tally):
        yield tally.add_to_checksum(packer.compress(block))
    yield tally.add_to_checksum(packer.flush())


def _blocks_of(windows: Iterable[RecordWindow], tally: _Tally) -> Iterator[memoryview]:
    """Yields the bytes of windows in blocks of equal size; the last one is shorter.

    At level 1, zlib-ng looks for matches within the bytes of one call, so the compressed
    bytes would otherwise depend on the windows.
    """
    block, filled = memoryview(bytearray(_GZIP_BLOCK_BYTES)), 0
    for window in windows:
        tally.add(window)
        for piece in window.iterate_pieces():
            source = memoryview(piece)
            while source:
                fragment = source[: _GZIP_BLOCK_BYTES - filled]
                block[filled : filled + len(fragment)] = fragment
                filled += len(fragment)
                source = source[len(fragment) :]
                if filled == _GZIP_BLOCK_BYTES:
                    yield block
                    filled = 0
    yield block[:filled]


# The package array_record opens only local paths, and reports no error: a file that is
# missing or cut short has no records. So the records are counted after writing and
# reading.
#
# Each record is a separate uncompressed chunk (`group_size:1,uncompressed`): any record
# can be read alone, and the bytes depend on the records and on the version of the
# package, not on threads. Chunks have hashes, which the package checks when it reads
# them.

_WRITER = "group_size:1,uncompressed"
# Without threads: a data loader may fork its workers from a process with a reader.
_READER = "readahead_buffer_size:0,max_parallelism:0"
_READ_BYTES = 8 << 20  # approximate size of the records read at once
_READ_RECORDS = 1 << 12
_BUFFER_BYTES = 1 << 16  # per open file; small, because a thousand may be open


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
            "'.[array-record]' in the folder of recordmill's source"
        ) from error
    return array_record_module


def write_array_records(
    path: Path,
    windows: Iterable[pa.BinaryArray | RecordWindow],
    *,
    with_sha256: bool = False,
) -> WrittenFile:
    """Writes the payloads of framed records to an ArrayRecord file.

    The file appears completely or not at all. `path` is the final name of the shard. The
    TFRecord frames of the windows are not written.
    """
    module = _module()
    records = num_bytes = 0
    with write_then_rename(path) as temporary:
        writer = module.ArrayRecordWriter(str(temporary), _WRITER)
        try:
            for window in windows:
                # One Python call per record takes 2 us, or 5 us for 3 kB: the package
                # has no call for several records.
                offsets, data = array_parts(
                    RecordWindow.from_records(window).join_records()
                )
                starts, lengths = offsets[:-1] + HEAD_BYTES, np.diff(offsets)
                payloads = extract_binary(data, starts, lengths - FRAME_BYTES)
                for record in payloads.to_pylist():
                    writer.write(record)
                    num_bytes += len(record)
                records += len(window)
            writer.close()
            num_read_records = ArrayRecordFile(temporary).records
        except RuntimeError as error:  # the only error class of the package
            raise _os_error(path, str(error)) from error
        if num_read_records != records:
            raise OSError(
                f"{path}: {format_count(num_read_records, 'record')} in the written file, expected "
                f"{records:,}"
            )
        digest = sha256() if with_sha256 else None
        size, checksum = _sync_and_checksum(
            temporary, digest.update if digest else None
        )
    sync_folder(path.parent)
    found_sha256 = digest.hexdigest() if digest else ""
    return WrittenFile(records, size, num_bytes, checksum, found_sha256)


def _os_error(path: Path, message: str) -> OSError:
    """Returns the error of the system for a message of the package."""
    for code in (*FULL_ERRNOS, errno.EIO, errno.EACCES):
        if os.strerror(code) in message:
            return OSError(code, message, str(path))
    return OSError(f"{path}: cannot be written: {message}")


def _sync_and_checksum(
    path: Path, see: Callable[[bytes], None] | None
) -> tuple[int, int]:
    """Writes a file to disk (fsync); returns its size and CRC-32C.

    `see` is called with each block of its bytes.
    """
    size = crc = 0
    with path.open("rb") as file:
        sync(file.fileno(), path)
        while block := file.read(_READ_BYTES):
            size += len(block)
            crc = crc32c(block, crc)
            if see is not None:
                see(block)
    return size, crc


class ArrayRecordFile:
    """A reader of an ArrayRecord file on this machine, with access to any record.

    Several threads may read. The package does not document that it is thread-safe, so a
    lock serializes them. A forked process opens the file again, because its parent may be
    reading at the same time.

    An incomplete file has 0 `records`. A damaged record raises OutputError. `uri` is the
    name of the file in messages.
    """

    def __init__(self, path: Path, uri: str = "") -> None:
        self._path, self._uri = path, uri or str(path)
        self._open()
        self.records = int(self._reader.num_records())

    def _open(self) -> None:
        self._process, self._read_lock = os.getpid(), threading.Lock()
        self._reader = _module().ArrayRecordReader(
            str(self._path), _READER, file_reader_buffer_size=_BUFFER_BYTES
        )

    def _read(self, *positions: Any) -> list[bytes]:
        """Reads records by the arguments of the package: positions, or start and stop."""
        if self._process != os.getpid():
            self._open()
        try:
            with self._read_lock:
                return list(self._reader.read(*positions))
        except (RuntimeError, IndexError) as error:
            raise OutputError(
                f"{self._uri}: {error}; run `recordmill verify` to see what else is wrong"
            ) from error

    def read(self, positions: Sequence[int]) -> list[bytes]:
        """Returns records in the order of their positions, which may repeat."""
        return self._read(positions) if len(positions) else []

    def read_all(self) -> Iterator[list[bytes]]:
        """Yields all records in order, in lists of some MB or of one large record."""
        mean = self._path.stat().st_size // max(1, self.records)
        step = max(1, min(_READ_RECORDS, _READ_BYTES // max(1, mean)))
        for start in range(0, self.records, step):
            yield self._read(start, min(start + step, self.records))
