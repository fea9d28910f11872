"""Reads files of this machine, and checks that they are those of the inventory.

Reads files by URI, locally or through fsspec.

File systems are built where they are used, from the URI and options without secrets;
credentials come from the environment. Local files are read without fsspec: a plain
pread is several times faster. Transient errors of remote storage are retried.

Reads files of this machine, some of them by one call of the native functions.

A picture of 75 kB takes four calls of the system, and after each of them a thread has to
get the interpreter back from the others. One call for a million bytes leaves it to them.

Reads whole files in order; of those in a store, several are requested at once.

A request takes 20 to 100 ms and most of it is waiting, so one after the other would read
some ten pictures a second. More files wait for a request than there are requests, so that
these go on while the caller works on what it has. Files of this machine are read when they
are asked for, some at once: threads would only wait for each other.

Joins rows that lie near each other in a file, so that one request reads several.

Rows of 3 bytes at offsets 30, 0, 4 and 100, with gaps of up to 10 bytes:

    order    [1, 2, 0, 3]     offsets rising: 0, 4, 30, 100
    gaps     1, 23, 67        between the end of each row and the next one
    spans    rows [1, 2] are bytes 0 to 7, [0] is 30 to 33, [3] is 100 to 103

Reads rows and parts from anywhere in a file into an array.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import member_of
from recordmill.schemas.ranges import Seen
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, U8
from recordmill.transforms.storage.errors import (
    describe_failure,
    input_error,
    safe_cause,
    with_retries,
)
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.read_member import read_member
from recordmill.transforms.storage.read_version import (
    AnotherVersionError,
    can_read_version,
    read_version,
)


def path_text(uri: str) -> str:
    """Returns the path of a local URI as text, for where a pathlib.Path takes too long.

    Ask `reading.is_local` before: of the URI of a file in a store this is none.
    """
    return uri.removeprefix("file://")


def read_part(descriptor: int, start: int, length: int) -> bytes:
    """Returns bytes of an open file; fewer if it ends before."""
    first = os.pread(descriptor, length, start)
    if len(first) == length or not first:
        return first
    chunks = [first]
    done = len(first)
    while done < length:
        chunk = os.pread(descriptor, length - done, start + done)
        if not chunk:
            break
        chunks.append(chunk)
        done += len(chunk)
    return b"".join(chunks)


def fill_from(descriptor: int, start: int, target: U8) -> int:
    """Fills an array with bytes of an open file; returns how many there were."""
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target.data[done:]], start + done)
        if not count:
            break
        done += count
    return done


def read_seen_file(uri: str, seen: Seen) -> bytes:
    """Reads a local file whose size is known.

    Raises:
      ChangedInputError: it is another one by now.
    """
    # As pathlib and io do it, 75 kB take 12 us; so, 6 us.
    descriptor = os.open(path_text(uri), os.O_RDONLY)
    try:
        data = read_part(descriptor, 0, seen.size)
        require_seen(descriptor, uri, seen)
        return data
    finally:
        os.close(descriptor)


def require_seen(descriptor: int, uri: str, seen: Seen | None) -> None:
    """Checks that a local file is the one of the inventory; call it after reading.

    Raises:
      ChangedInputError: it is not, so what was read may be a mix of both.
    """
    if seen is None:
        return
    now = os.fstat(descriptor)
    if now.st_size != seen.size:
        raise ChangedInputError(
            f"{uri}: has {now.st_size} bytes, but had {seen.size} when the run began; "
            "did it change meanwhile?"
        )
    if seen.version and str(now.st_mtime_ns) != seen.version:
        raise ChangedInputError(
            f"{uri}: was written again after the run began (with {now.st_size} bytes as "
            "before). Run the same command again when nothing writes to the inputs"
        )


def is_local(uri: str) -> bool:
    """Tells whether a URI names a file of this machine."""
    return "://" not in uri or uri.startswith("file://")


def local_path(uri: str) -> Path:
    """Returns the path of a local URI.

    Raises:
      ValueError: it is the URI of a file in a store, which must not be taken for a path.
    """
    if not is_local(uri):
        raise ValueError(f"{uri}: is not a file of this machine")
    return Path(path_text(uri))


def full_uri(uri: str) -> str:
    """Returns the absolute path of a local URI, or the URI itself without a last "/"."""
    if is_local(uri):
        return os.path.abspath(local_path(uri))  # noqa: PTH100 (keeps links)
    return uri.rstrip("/")


def read_range(
    uri: str,
    start: int,
    stop: int,
    options: StorageOptions = NO_OPTIONS,
    seen: Seen | None = None,
) -> bytes:
    """Returns the bytes from start to stop of a file; fewer if the file ends before.

    Args:
      uri: the file.
      start: first byte.
      stop: one after the last byte.
      options: for the storage of the inputs.
      seen: what the file has to be, or None; see `can_read_version`.

    Raises:
      ChangedInputError: it is another one by now.
      InputError: the file cannot be read.
    """
    if start >= stop:
        return b""
    if seen is not None and (member := member_of(seen.version)):
        return read_member(uri, seen, member, start, stop, _ArchiveReader(options))
    try:
        if is_local(uri):
            with local_path(uri).open("rb", buffering=0) as file:
                data = read_part(file.fileno(), start, stop - start)
                require_seen(file.fileno(), uri, seen)
                return data
    except OSError as error:
        raise input_error(error, f"{uri}: cannot be read: {error}") from error

    if seen is not None and can_read_version(uri, seen):
        return _read_seen(uri, options, seen, (start, stop))

    def read() -> bytes:
        system, path = filesystem_of(uri, options)
        # Stores answer differently to a range after the end, so never ask for one.
        size = system.size(path)
        if start >= size:
            return b""
        return bytes(system.cat_file(path, start=start, end=min(stop, size)))

    return _read_remote(uri, read)


def read_into(
    uri: str,
    start: int,
    target: U8,
    options: StorageOptions = NO_OPTIONS,
    seen: Seen | None = None,
) -> int:
    """Fills an array with the bytes of a file from `start` on.

    Args:
      uri: the file.
      start: first byte.
      target: the array.
      options: for the storage of the inputs.
      seen: what the file has to be, or None; see `can_read_version`.

    Returns:
      How many there were; fewer than its size if the file ends before.

    Raises:
      ChangedInputError: it is another one by now.
      InputError: the file cannot be read.
    """
    if not is_local(uri) or (seen is not None and member_of(seen.version)):
        data = read_range(uri, start, start + len(target), options, seen)
        target[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)
    try:
        with local_path(uri).open("rb", buffering=0) as file:
            done = fill_from(file.fileno(), start, target)
            require_seen(file.fileno(), uri, seen)
            return done
    except OSError as error:
        raise input_error(error, f"{uri}: cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _ArchiveReader:
    """Reads archives, if they are as they were listed."""

    options: StorageOptions

    def __call__(self, uri: str, start: int, stop: int, seen: Seen) -> bytes:
        return read_range(uri, start, stop, self.options, seen)


def _read_seen(
    uri: str, options: StorageOptions, seen: Seen, part: tuple[int, int] | None
) -> bytes:
    """Reads all or a part of a file in a store, in the version that was listed.

    Raises:
      ChangedInputError: there is another version now.
      InputError: the file cannot be read.
    """

    def read() -> bytes:
        return read_version(uri, *filesystem_of(uri, options), seen, part)

    try:
        return with_retries(read)
    except AnotherVersionError:
        raise ChangedInputError(
            f"{uri}: was written again or removed after the run began (its version was "
            f"{seen.version}). Run the same command again when nothing writes to the "
            "inputs"
        ) from None
    except Exception as error:
        raise _remote_error(uri, error) from safe_cause(error)


def _read_remote(uri: str, read: Callable[[], bytes]) -> bytes:
    try:
        return with_retries(read)
    except Exception as error:
        raise _remote_error(uri, error) from safe_cause(error)


def _remote_error(uri: str, error: Exception) -> InputError:
    return input_error(error, f"{uri}: cannot be read: {describe_failure(error, uri)}")


def read_file(
    uri: str, options: StorageOptions = NO_OPTIONS, seen: Seen | None = None
) -> bytes:
    """Returns all bytes of a file.

    Args:
      uri: the file.
      options: for the storage of the inputs.
      seen: what the file has to be, or None; see `can_read_version`.

    Raises:
      ChangedInputError: it is another one by now.
      InputError: the file cannot be read.
    """
    if seen is not None and member_of(seen.version):
        return read_range(uri, 0, seen.size, options, seen)
    try:
        if is_local(uri):
            if seen is not None:
                return read_seen_file(uri, seen)
            return local_path(uri).read_bytes()
    except OSError as error:
        raise input_error(error, f"{uri}: cannot be read: {error}") from error

    if seen is not None and can_read_version(uri, seen):
        return _read_seen(uri, options, seen, None)

    def read() -> bytes:
        system, path = filesystem_of(uri, options)
        return bytes(system.cat_file(path))

    return _read_remote(uri, read)


TOGETHER_BYTES = 1 << 20

FileToRead = tuple[str, Seen]  # uri; size and version that it has to have


def read_together(
    files: Iterable[FileToRead], options: StorageOptions
) -> Iterator[bytes]:
    """Yields the bytes of each file of this machine, in order.

    Args:
      files: their URIs, and what each has to be.
      options: for their storage.

    Raises:
      ChangedInputError: a file is another one by now.
      InputError: a file cannot be read.
    """
    for group in _groups(files):
        read = _by_native(group)
        yield from read
        # Members of archives have other versions; what is not as it was is told here.
        for uri, seen in group[len(read) :]:
            yield read_file(uri, options, seen)


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


def _by_native(files: Sequence[FileToRead]) -> list[bytes]:
    """Returns the bytes of the files up to one that is not as it was listed."""
    try:
        times = [
            int(seen.version) if seen.version else native.loops.ANY_TIME
            for _, seen in files
        ]
        modified = np.array(times, np.int64)
    except (ValueError, OverflowError):
        return []
    paths = tuple(os.fsencode(path_text(uri)) for uri, _ in files)
    sizes = np.array([seen.size for _, seen in files], np.int64)
    return native.loops.files(paths, sizes, modified)


REQUESTS = 32  # at once, by each worker
FILES_AHEAD = 4 * REQUESTS  # that are read or wait for it before they are needed
BYTES_AHEAD = 8 << 20  # of these together, or one file


def read_files(
    files: Iterable[FileToRead], options: StorageOptions
) -> Generator[bytes, None, None]:
    """Yields the bytes of each file, in order.

    Args:
      files: local ones, or those of one store.
      options: for their storage.

    Raises:
      ChangedInputError: a file is another one by now.
      InputError: a file cannot be read.
    """
    ahead: deque[tuple[Future[bytes], int]] = deque()
    num_bytes = 0
    threads: ThreadPoolExecutor | None = None
    try:
        coming = iter(files)
        for uri, seen in coming:
            if is_local(uri):
                yield from read_together(chain([(uri, seen)], coming), options)
                return
            while ahead and (
                len(ahead) >= FILES_AHEAD or num_bytes + seen.size > BYTES_AHEAD
            ):
                first, size = ahead.popleft()
                num_bytes -= size
                yield first.result()
            threads = threads or ThreadPoolExecutor(REQUESTS, "read-files")
            ahead.append((threads.submit(read_file, uri, options, seen), seen.size))
            num_bytes += seen.size
        while ahead:
            yield ahead.popleft()[0].result()
    finally:
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)


MAX_GAP_BYTES = 1 << 20  # bytes that are read for nothing take less time than a request
SPAN_BYTES = 8 << 20  # read at once


def row_spans(
    offsets: I64,
    row_bytes: int,
    *,
    max_gap_bytes: int = MAX_GAP_BYTES,
    span_bytes: int = SPAN_BYTES,
) -> Iterator[tuple[I64, int, int]]:
    """Yields the parts of a file that hold rows of equal length, in order of the file.

    Args:
      offsets: byte offset of each row.
      row_bytes: size of a row.
      max_gap_bytes: the most that is read between two rows and not used.
      span_bytes: all rows of a part begin in one interval of so many bytes.

    Yields:
      The indices of the rows in a part, its first byte, and one after its last byte.
    """
    if not len(offsets):
        return
    order = np.argsort(offsets, kind="stable")
    rising = offsets[order]
    is_far = np.diff(rising) > row_bytes + max_gap_bytes
    is_beyond = np.diff(rising // span_bytes) > 0
    for rows in np.split(order, np.flatnonzero(is_far | is_beyond) + 1):
        yield rows, int(offsets[rows[0]]), int(offsets[rows[-1]]) + row_bytes


def read_rows(
    uri: str,
    offsets: I64,
    target: U8,
    positions: I64,
    options: StorageOptions = NO_OPTIONS,
    seen: Seen | None = None,
) -> None:
    """Reads rows of equal length from scattered offsets of a file.

    Args:
      uri: the file.
      offsets: byte offset of each row.
      target: array of shape (rows, bytes of a row).
      positions: row of `target` that each is copied to.
      options: for the storage of the inputs.
      seen: what the file has to be, or None; see `can_read_version`.

    Raises:
      ChangedInputError: it is another one by now, or ends before a row does.
      InputError: the file cannot be read.
    """
    size = target.shape[1]
    if is_local(uri) and not (seen is not None and member_of(seen.version)):
        lengths = np.full(len(offsets), size, np.int64)
        gather_parts(uri, offsets, lengths, target.reshape(-1), positions * size, seen)
        return
    for rows, start, stop in row_spans(offsets, size):
        data = np.frombuffer(read_range(uri, start, stop, options, seen), np.uint8)
        if len(data) < stop - start:
            raise _cut_short(uri, stop)
        target[positions[rows]] = sliding_window_view(data, size)[offsets[rows] - start]


def gather_parts(
    uri: str, offsets: I64, lengths: I64, target: U8, starts: I64, seen: Seen | None
) -> None:
    """Reads parts of different lengths from anywhere in a file of this machine.

    Args:
      uri: the file.
      offsets: byte offset of each part.
      lengths: its bytes.
      target: what they are copied to.
      starts: where each begins there.
      seen: what the file has to be, or None.

    Raises:
      ChangedInputError: it is another one by now, or ends before a part does.
      InputError: the file cannot be read.
    """
    try:
        # A window of rows lies in dozens of files: a pathlib.Path takes longer than this.
        descriptor = os.open(path_text(uri), os.O_RDONLY)
        try:
            short = native.loops.gather(descriptor, offsets, starts, lengths, target)
            require_seen(descriptor, uri, seen)  # tells more
            if short >= 0:
                raise _cut_short(uri, int(offsets[short] + lengths[short]))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise input_error(error, f"{uri}: cannot be read: {error}") from error


def _cut_short(uri: str, stop: int) -> ChangedInputError:
    return ChangedInputError(
        f"{uri}: ends before byte {stop}; it was longer when the run began. Do not "
        "change inputs during a run; run again"
    )
