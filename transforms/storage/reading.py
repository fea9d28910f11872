"""Reads files by URI, locally or through fsspec.

File systems are built where they are used, from the URI and options without secrets;
credentials come from the environment. Local files are read without fsspec: a plain
pread is several times faster. Transient errors of remote storage are retried.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recordmill.schemas.archive_member import member_of
from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.ranges import Seen
from recordmill.transforms.arrow import U8
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.read_local import (
    fill_from,
    path_text,
    read_part,
    read_seen_file,
    require_seen,
)
from recordmill.transforms.storage.read_member import read_member
from recordmill.transforms.storage.read_version import (
    AnotherVersionError,
    can_read_version,
    read_version,
)
from recordmill.transforms.storage.retry import with_retries
from recordmill.transforms.storage.storage_errors import (
    describe_failure,
    input_error,
    safe_cause,
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
