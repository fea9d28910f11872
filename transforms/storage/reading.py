"""Reads files by URI: on this machine, in a store, or in an archive.

`open_input` chooses the reader of a file once. Each process builds its file systems from
the URI and options without secrets; credentials come from the environment. Local files
are read without fsspec: a plain pread is several times faster. Transient errors of remote
storage are retried.
"""

from __future__ import annotations

import io
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import (
    ArchiveMember,
    FileChecksum,
    FileStat,
    InputFile,
    parse_member,
)
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, U8
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.storage.clouds import (
    AnotherVersionError,
    can_read_version,
    remote_file,
)
from recordmill.transforms.storage.errors import input_error, safe_cause, with_retries
from recordmill.transforms.storage.input_stream import (
    BLOCK_BYTES,
    InflateError,
    Inflater,
    InputStream,
)
from recordmill.transforms.storage.read_member import UNPACKED
from recordmill.transforms.tfrecord import crc32c

REQUESTS = 32  # concurrent requests of each worker
FILES_AHEAD = 4 * REQUESTS  # files that are read or queued before they are needed
BYTES_AHEAD = 8 << 20  # total size of these files, if they are several
TOGETHER_BYTES = 1 << 20  # total size of the files that one call of native loops reads
MAX_GAP_BYTES = 1 << 20  # reading so many unused bytes is faster than another request
SPAN_BYTES = 8 << 20  # read at once

_Outcome = TypeVar("_Outcome")
FileToRead = tuple[str, FileStat]  # URI; size and version that are required


def is_local(uri: str) -> bool:
    """Returns whether a URI names a file on this machine."""
    return "://" not in uri or uri.startswith("file://")


def local_path(uri: str) -> Path:
    """Returns the path of a local URI.

    Raises:
      ValueError: the URI names a file in a store.
    """
    if not is_local(uri):
        raise ValueError(f"{uri}: is not a file on this machine")
    return Path(uri.removeprefix("file://"))


def full_uri(uri: str) -> str:
    """Returns the absolute path of a local URI, or the URI itself without a last "/"."""
    if is_local(uri):
        return os.path.abspath(local_path(uri))  # noqa: PTH100 (keeps links)
    return uri.rstrip("/")


def real_uri(uri: str) -> str:
    """Returns the canonical URI of a file, which is equal for all spellings."""
    uri = full_uri(uri)
    return os.path.realpath(uri).rstrip("/") if is_local(uri) else uri


def open_input(
    uri: str, options: StorageOptions = NO_OPTIONS, stat: FileStat | None = None
) -> Input:
    """Returns the reader of a file; nothing is read yet.

    `stat` is the required size and version of the file; None if unknown. See
    `can_read_version`.
    """
    if stat is not None and (member := parse_member(stat.version)):
        archive = open_input(member.archive_uri(uri), options, member.archive_stat)
        return MemberInput(uri, stat, member, archive)
    if is_local(uri):
        return LocalInput(uri, stat)
    return ObjectInput(uri, options, stat)


class Input(ABC):
    """A reader of one file in its version in the inventory.

    The methods raise ChangedInputError if the file has changed, and InputError if it
    cannot be read.
    """

    uri: str

    @abstractmethod
    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Returns the bytes from start to stop, or to the end; fewer after the end."""

    def read_into(self, start: int, target: U8) -> int:
        """Fills an array with the bytes from `start` on; returns the number of bytes."""
        data = self.read(start, start + len(target))
        target[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)

    def read_rows(self, offsets: I64, target: U8, positions: I64) -> None:
        """Reads rows of equal length at any offsets.

        Args:
          offsets: of each row in the file.
          target: array of rows, shape (target rows, row bytes).
          positions: index in `target` to which each row is copied.
        """
        size = target.shape[1]
        for rows, start, stop in row_spans(offsets, size):
            data = np.frombuffer(self.read(start, stop), np.uint8)
            if len(data) < stop - start:
                raise _cut_short_error(self.uri, stop)
            row_bytes = sliding_window_view(data, size)[offsets[rows] - start]
            target[positions[rows]] = row_bytes


@dataclass(slots=True)
class LocalInput(Input):
    """A file on this machine."""

    uri: str
    stat: FileStat | None

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        end = self.stat.size if stop is None and self.stat is not None else stop
        if end is None:  # also for a pipe
            return self._read_opened(lambda descriptor: _read_all(descriptor)[start:])
        if start >= end:
            return b""
        return self._read_opened(lambda descriptor: _read_part(descriptor, start, end))

    def read_into(self, start: int, target: U8) -> int:
        return self._read_opened(lambda file: fill_from(file, start, target.data))

    def read_rows(self, offsets: I64, target: U8, positions: I64) -> None:
        size = target.shape[1]
        lengths = np.full(len(offsets), size, np.int64)
        self.gather(offsets, lengths, target.reshape(-1), positions * size)

    def gather(self, offsets: I64, lengths: I64, target: U8, starts: I64) -> None:
        """Reads parts of different lengths at any offsets.

        `starts` are the offsets of the parts in the target.
        """
        short = self._read_opened(
            lambda file: native.loops.gather(file, offsets, starts, lengths, target)
        )
        if short >= 0:
            raise _cut_short_error(self.uri, int(offsets[short] + lengths[short]))

    def _read_opened(self, read: Callable[[int], _Outcome]) -> _Outcome:
        """Calls a function with the open file; checks that the file has not changed."""
        try:
            # For 75 kB, pathlib and io take 12 us, and these calls take 6 us.
            descriptor = os.open(self.uri.removeprefix("file://"), os.O_RDONLY)
            try:
                outcome = read(descriptor)
                _require_unchanged(descriptor, self.uri, self.stat)
                return outcome
            finally:
                os.close(descriptor)
        except OSError as error:
            raise input_error(error, self.uri, "read") from error


@dataclass(slots=True)
class ObjectInput(Input):
    """A file in a remote store."""

    uri: str
    options: StorageOptions
    stat: FileStat | None

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        if stop is not None and start >= stop:
            return b""
        uri, stat = self.uri, self.stat

        def read() -> bytes:
            file = remote_file(uri, self.options)
            if stat is not None and can_read_version(uri, stat):
                return file.read_version(stat, None if stop is None else (start, stop))
            return file.read() if stop is None else file.read_between(start, stop)

        try:
            return with_retries(read)
        except AnotherVersionError:
            raise ChangedInputError(
                f"{uri}: was written again or removed after the run began (its version "
                f"was {stat and stat.version}). Run the same command again when nothing "
                "writes to the inputs"
            ) from None
        except Exception as error:
            raise input_error(error, uri, "read") from safe_cause(error)


INFLATED_BYTES = 16 << 20  # largest member that is inflated in memory
_HEADER = struct.Struct("<4s5H3I2H")  # precedes each member of a zip file
_EXTRA_BYTES = 512  # assumed size of a header's extra field; most are smaller


@dataclass(slots=True)
class MemberInput(Input):
    """A member of an archive.

    A member of a plain tar archive, and a stored member of a zip file, is read directly
    from the archive. A deflated member is inflated as a whole, in memory or into a file
    (read_member.py). A compressed tar archive is unpacked into a file.
    """

    uri: str
    stat: FileStat
    member: ArchiveMember
    archive: Input

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        member, size = self.member, self.stat.size
        stop = size if stop is None else min(stop, size)
        if start >= stop:
            return b""
        is_whole = stop - start == size
        if member.kind == "tar":
            data = self.archive.read(member.offset + start, member.offset + stop)
        elif member.kind == "stored" and is_whole:
            data = self._with_header()
            self._require_crc(_crc32(data))
        elif member.kind == "stored":
            first = self._data_offset(self._header())
            data = self.archive.read(first + start, first + stop)
        elif member.kind != "deflated":
            with UNPACKED.open_archive(
                self.archive.uri, member.archive_stat, member.kind, self.archive.read
            ) as file:
                data = os.pread(file, stop - start, member.offset + start)
        elif is_whole and size <= INFLATED_BYTES:
            data = b"".join(self._inflate(io.BytesIO(self._with_header())))
        else:
            key = (self.archive.uri, member.version)
            with UNPACKED.open_unpacked(
                key, self.archive.uri, lambda: self._inflate(self._packed())
            ) as file:
                data = os.pread(file, stop - start, start)
        return self._require_size(data, stop - start)

    def _header(self) -> bytes:
        return self.archive.read(self.member.offset, self.member.offset + _HEADER.size)

    def _data_offset(self, head: bytes) -> int:
        """Returns the offset of a zip member's data in the archive."""
        if len(head) < _HEADER.size or head[:4] != b"PK\3\4":
            raise self._damage_error(
                "has no header at the position in the archive's index"
            )
        *_, name_bytes, extra_bytes = _HEADER.unpack_from(head)
        return int(self.member.offset + _HEADER.size + name_bytes + extra_bytes)

    def _with_header(self) -> bytes:
        """Returns all stored bytes, mostly read in one request with their header."""
        begin, size = self.member.offset, self.member.stored_bytes
        guess = _HEADER.size + 4 * self.member.name_chars + _EXTRA_BYTES
        head = self.archive.read(begin, begin + guess + size)
        first = self._data_offset(head)
        data = head[first - begin : first - begin + size]
        if len(data) < size:
            data += self.archive.read(first + len(data), first + size)
        return self._require_size(data, size)

    def _packed(self) -> InputStream:
        first = self._data_offset(self._header())
        part = first, first + self.member.stored_bytes
        return InputStream(self.archive.read, part[1], uri=self.uri, part=part)

    def _inflate(self, packed: IO[bytes] | InputStream) -> Iterator[bytes]:
        inflater, size = Inflater(packed, "deflate"), self.stat.size
        total = crc = 0
        try:
            while total <= size and (block := inflater.read(BLOCK_BYTES)):
                total += len(block)
                crc = _crc32(block, crc)
                yield block
        except EOFError:
            total = -1
        except InflateError as error:
            raise self._damage_error(f"cannot be inflated: {error}") from error
        if total != size:
            raise self._damage_error(f"does not inflate to its {size:,} bytes")
        self._require_crc(crc)

    def _require_crc(self, crc32: int) -> None:
        if f"{crc32:08x}" != self.member.crc32:
            raise self._damage_error(
                f"has the CRC {crc32:08x}, but its archive records {self.member.crc32}"
            )

    def _require_size(self, data: bytes, size: int) -> bytes:
        if len(data) != size:
            raise InputError(
                f"{self.uri}: ends {size - len(data):,} bytes too early. The archive is "
                "cut short: copy it again"
            )
        return data

    def _damage_error(self, problem: str) -> InputError:
        return InputError(
            f"{self.uri}: {problem}. The archive is damaged: copy it again"
        )


def _crc32(data: bytes, crc: int = 0) -> int:
    # Imported here: readers of datasets without compression do not need the package.
    from zlib_ng import zlib_ng

    return zlib_ng.crc32(data, crc)


def read_range(
    uri: str,
    start: int,
    stop: int,
    options: StorageOptions = NO_OPTIONS,
    stat: FileStat | None = None,
) -> bytes:
    """Returns the bytes from start to stop of a file; see `open_input` and `Input`."""
    return open_input(uri, options, stat).read(start, stop)


def read_file(
    uri: str, options: StorageOptions = NO_OPTIONS, stat: FileStat | None = None
) -> bytes:
    """Returns all bytes of a file; see `open_input` and `Input`."""
    return open_input(uri, options, stat).read()


def read_head(file: InputFile, size: int, options: StorageOptions) -> bytes:
    """Returns the first bytes of a file that was listed; b"" if it cannot be read."""
    stop = 0 if file.problem else min(file.size, size)
    return read_range(file.uri, 0, stop, options, file.stat)


def checksum_of(path: str, data: bytes) -> FileChecksum:
    """Returns the checksum of the first bytes of a file."""
    return FileChecksum(path, 0, len(data), crc32c(data))


def read_summed(file: InputFile, options: StorageOptions) -> tuple[bytes, FileChecksum]:
    """Returns all bytes of a file that was listed, and their checksum."""
    data = read_range(file.uri, 0, file.size, options, file.stat)
    return data, checksum_of(file.path, data)


def size_of(file: InputFile | InputRange) -> int:
    """Returns the size of a file, or of the file of a range, in the inventory."""
    if file.stat is None:
        raise ValueError(f"{file.uri}: the range has no size of its file")
    return file.stat.size


def open_stream(
    file: InputFile | InputRange,
    options: StorageOptions,
    *,
    part: tuple[int, int] | None = None,
    compression: str = "",
    encoding: str = "utf-8",
    window_bytes: int = 0,
) -> InputStream:
    """Opens a file or a part of it as a stream; see `InputStream`."""
    return InputStream(
        open_input(file.uri, options, file.stat).read,
        size_of(file),
        uri=file.uri,
        part=part,
        compression=compression,
        encoding=encoding,
        window_bytes=window_bytes,
    )


def read_files(
    files: Iterable[FileToRead], options: StorageOptions
) -> Generator[bytes, None, None]:
    """Yields the bytes of each file, in order; files in a store are requested ahead.

    A request takes 20 to 100 ms, mostly waiting, so sequential requests would read some
    ten images a second. Files on this machine are read in groups when they are needed:
    threads would only wait for each other.
    """
    coming = iter(files)
    for first in coming:
        remaining_files = chain([first], coming)
        if is_local(first[0]):
            for group in _groups(remaining_files):
                read = _read_together(group)
                yield from read
                # Archive members and changed files are read (and reported) one by one.
                for uri, stat in group[len(read) :]:
                    yield read_file(uri, options, stat)
        else:
            yield from map_ahead(
                remaining_files,
                lambda file: read_file(file[0], options, file[1]),
                REQUESTS,
                most=FILES_AHEAD,
                most_bytes=BYTES_AHEAD,
                size_of=lambda file: file[1].size,
            )


def _groups(files: Iterable[FileToRead]) -> Iterator[list[FileToRead]]:
    group: list[FileToRead] = []
    num_bytes = 0
    for file in files:
        group.append(file)
        num_bytes += file[1].size
        if num_bytes >= TOGETHER_BYTES:
            yield group
            group, num_bytes = [], 0
    yield group


def _read_together(files: Sequence[FileToRead]) -> list[bytes]:
    """Returns the bytes of local files, up to the first one that has changed.

    An image of 75 kB takes four system calls, and after each of them a thread has to
    reacquire the interpreter lock. One native call for all files needs the lock once.
    """
    try:
        times = [
            int(stat.version) if stat.version else native.loops.ANY_TIME
            for _, stat in files
        ]
        modified = np.array(times, np.int64)
    except (ValueError, OverflowError):
        return []
    paths = tuple(os.fsencode(uri.removeprefix("file://")) for uri, _ in files)
    sizes = np.array([stat.size for _, stat in files], np.int64)
    return native.loops.read_files(paths, sizes, modified)


def row_spans(
    offsets: I64,
    row_bytes: int,
    *,
    max_gap_bytes: int = MAX_GAP_BYTES,
    span_bytes: int = SPAN_BYTES,
) -> Iterator[tuple[I64, int, int]]:
    """Yields the parts of a file that hold rows of equal length, in order of the file.

    Rows of 3 bytes at offsets 30, 0, 4 and 100, with gaps of up to 10 bytes:

        order    [1, 2, 0, 3]     offsets rising: 0, 4, 30, 100
        gaps     1, 23, 67        between the end of each row and the next one
        spans    rows [1, 2] are bytes 0 to 7, [0] is 30 to 33, [3] is 100 to 103

    Between two rows, at most `max_gap_bytes` are read without being used. All rows of a
    part begin in one interval of `span_bytes`. Yields the indices of the rows in a part,
    the offset of its first byte, and the offset after its last byte.
    """
    if not len(offsets):
        return
    order = np.argsort(offsets, kind="stable")
    rising = offsets[order]
    is_far = np.diff(rising) > row_bytes + max_gap_bytes
    is_beyond = np.diff(rising // span_bytes) > 0
    for rows in np.split(order, np.flatnonzero(is_far | is_beyond) + 1):
        yield rows, int(offsets[rows[0]]), int(offsets[rows[-1]]) + row_bytes


def _read_part(descriptor: int, start: int, stop: int) -> bytes:
    """Returns bytes of an open file; fewer if it ends before."""
    first = os.pread(descriptor, stop - start, start)
    if len(first) == stop - start or not first:
        return first
    chunks, done = [first], start + len(first)
    while done < stop and (chunk := os.pread(descriptor, stop - done, done)):
        chunks.append(chunk)
        done += len(chunk)
    return b"".join(chunks)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def fill_from(descriptor: int, start: int, target: memoryview) -> int:
    """Fills memory with the bytes of an open file; returns the number of bytes."""
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done:]], start + done)
        if not count:
            break
        done += count
    return done


def _require_unchanged(descriptor: int, uri: str, stat: FileStat | None) -> None:
    """Checks, after reading, that a local file has not changed since it was listed."""
    if stat is None:
        return
    status = os.fstat(descriptor)
    if status.st_size != stat.size:
        raise ChangedInputError(
            f"{uri}: has {status.st_size} bytes, but had {stat.size} when the run began; "
            "did it change in the meantime?"
        )
    if stat.version and str(status.st_mtime_ns) != stat.version:
        raise ChangedInputError(
            f"{uri}: was written again after the run began (with {status.st_size} bytes as "
            "before). Run the same command again when nothing writes to the inputs"
        )


def _cut_short_error(uri: str, stop: int) -> ChangedInputError:
    return ChangedInputError(
        f"{uri}: ends before byte {stop}; it was longer when the run began. Do not "
        "change inputs during a run; run again"
    )


_FILES_PER_CALL = 8192  # files per call


def file_status(paths: Sequence[str]) -> tuple[I64, I64, I64]:
    """Returns the sizes, modification times and change times of local files.

    Links are followed. The modification time refers to the content, and the change time
    to any change, renames included; both are in nanoseconds since 1970. The size is -1 if
    the path is no regular file, its status cannot be read, or 64 bits cannot represent
    its times. A million files take a second; with Python's own calls they take three.
    """
    facts = np.zeros((3, len(paths)), np.int64)
    facts[0] = -1
    starts = range(0, len(paths), _FILES_PER_CALL)
    if len(starts) < 2:
        _read_status(paths, facts)
    else:
        with ThreadPoolExecutor(usable_cores(), "file-status") as threads:
            slices = [slice(start, start + _FILES_PER_CALL) for start in starts]
            parts = [(paths[part_slice], facts[:, part_slice]) for part_slice in slices]
            list(threads.map(_read_status, *zip(*parts, strict=True)))
    sizes, modified, changed = facts
    return sizes, modified, changed


def _read_status(paths: Sequence[str], facts: I64) -> None:
    """Reads size and times of each path into a column of `facts`."""
    # Bytes that are not UTF-8 stay unchanged; a path with a zero byte names no file.
    names = ["" if "\0" in path else path for path in paths]
    joined = os.fsencode("".join([f"{name}\0" for name in names]))
    native.loops.read_status(joined, *facts)
