"""Keeps what is read of a dataset's shards in a store in a local folder of limited size.

    cache/recordmill-parts/
      4f0c...e1                32 hex digits: a MiB of a shard, and its CRC-32C
      total                    bytes of all of them; counted again when it is not right
      lock, lock-000, ...      who writes; who reads a part from the store (flock)

No other file is touched. Shards never change, so neither do parts. Several processes use one
folder: a part that one reads from the store, another waits for. Who writes holds the lock, so
any other temporary file is of a process that was killed. Parts that were not used for the
longest time go first. Where the folder cannot be used, reading continues without it.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from numbers import Integral
from os import PathLike, fspath
from pathlib import Path

from recordmill.schemas.errors import UsageError
from recordmill.schemas.storage_options import require_secretless_url
from recordmill.transforms.parallel import ahead
from recordmill.transforms.storage.local import renamed, try_lock
from recordmill.transforms.storage.local_folder import (
    LinkError,
    LocalFolder,
    open_folder,
)
from recordmill.transforms.storage.remote import RemoteStore
from recordmill.transforms.storage.store import Store, is_temp_file
from recordmill.transforms.tfrecord import crc32c

PART_BYTES = 1 << 20
_PARALLEL = 16  # parts at once
_CRC_BYTES = 4
_LOCKS = 1000  # of parts that are being read from the store
_LOCK_SECONDS = 10.0  # a stopped process holds up others no longer
_FOLDER = "recordmill-parts"
_PART = re.compile(r"[0-9a-f]{32}")
_TOTAL = "total"
_TOTAL_DIGITS = 40


@dataclass(frozen=True, slots=True)
class CachedStore(RemoteStore):
    """A store whose files never change, and of which what is read is kept in a folder."""

    folder: str = ""
    limit: int = 0  # bytes of the folder

    def read(self, name: str) -> bytes:
        return bytes(self._part(f"{name}/all", lambda: RemoteStore.read(self, name)))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        def piece(begin: int) -> memoryview:
            part = self._part(
                f"{name}/{begin}",
                lambda: RemoteStore.read_range(self, name, begin, begin + PART_BYTES),
            )
            return memoryview(part)[max(0, start - begin) : stop - begin]

        begins = range(start - start % PART_BYTES, stop, PART_BYTES)
        return b"".join(ahead(begins, piece, _PARALLEL))

    def forget(self, name: str) -> bool:
        found = False
        begins = range(0, RemoteStore.size(self, name) or 0, PART_BYTES)
        with suppress(OSError, LinkError), _opened(self.folder) as parts:
            for part in ("all", *begins):
                with suppress(FileNotFoundError):
                    os.unlink(self._key(f"{name}/{part}"), dir_fd=parts.descriptor)
                    found = True
        return found

    def _key(self, name: str) -> str:
        """Returns the name of the file that keeps a part."""
        return sha256(f"{self.url}/{name}".encode()).hexdigest()[:32]

    def _part(self, name: str, fetch: Callable[[], bytes]) -> bytes | memoryview:
        key = self._key(name)
        found: bytes | memoryview | None = _load(self.folder, key)
        with ExitStack() as held:
            if found is None:
                lock = f"lock-{int(key, 16) % _LOCKS:03}"
                with suppress(OSError, LinkError):
                    held.enter_context(_locked(self.folder, lock))
                found = _load(self.folder, key)  # another process has read it meanwhile
            if found is None:
                found = fetched = fetch()
                try:
                    _keep(self.folder, key, fetched, self.limit)
                # A full disk, a folder of somebody else, a link in it.
                except (OSError, LinkError) as error:
                    reason = error.strerror if isinstance(error, OSError) else error
                    warnings.warn(
                        f"{self.folder}: a part of a shard cannot be kept: {reason}; "
                        "reading continues without. Name another `cache`",
                        stacklevel=2,
                    )
        return found


def with_cache(store: Store, cache: str | PathLike[str], limit: int) -> Store:
    """Returns the same store with a cache in a folder; a local store needs none.

    Raises:
      UsageError: it is no local folder, or no limit.
    """
    given = fspath(cache)
    require_secretless_url(given, "cache")
    folder = os.path.expanduser(given)  # noqa: PTH111
    # That of Path raises for a folder that may not be looked into.
    if not given or "://" in given or os.path.isfile(folder):  # noqa: PTH113
        raise UsageError(f"cache={given!r}: expected the name of a local folder")
    if not isinstance(limit, Integral) or limit < 0:
        raise UsageError(
            f"cache_bytes={limit!r}: expected a number of bytes, like {10 << 30}"
        )
    if not isinstance(store, RemoteStore):
        return store
    how = store.url, store.options, store.retry_policy
    return CachedStore(*how, folder=str(Path(folder).absolute() / _FOLDER), limit=limit)


@contextmanager
def _opened(folder: str, *, create: bool = False) -> Iterator[LocalFolder]:
    """Opens the folder of parts, unless it is a link."""
    above, name = os.path.split(folder)
    with open_folder(above, name, create=create) as parts:
        yield parts


def _load(folder: str, key: str) -> memoryview | None:
    """Returns a part that is there and whole, and marks it as used now."""
    try:
        with _opened(folder) as parts:
            descriptor = parts.open_to_read(key, follows_link=False)
        with os.fdopen(descriptor, "rb") as file:
            data = memoryview(file.read())
            with suppress(OSError):  # of another user, or on a disk that is only read
                os.utime(descriptor)
    except (OSError, LinkError):
        return None
    part, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    return part if crc32c(part).to_bytes(_CRC_BYTES, "little") == crc else None


def _keep(folder: str, key: str, data: bytes, limit: int) -> None:
    """Writes a part, after it has removed others if the folder would be too large."""
    size = len(data) + _CRC_BYTES
    if size > limit:
        return  # all others would go for nothing
    with _locked(folder, "lock") as parts:
        total = _total(parts) + size
        if total > limit:
            total = _make_room(parts, limit * 7 // 8 - size) + size
        if total <= limit:
            # Before the part: a kill in between makes the sum too large, never too small.
            with renamed(parts.path_of(_TOTAL)) as temporary:
                temporary.write_text(f"{total}")
            with renamed(parts.path_of(key)) as temporary:
                temporary.write_bytes(
                    data + crc32c(data).to_bytes(_CRC_BYTES, "little")
                )


def _total(parts: LocalFolder) -> int:
    try:
        file = parts.open_to_read(_TOTAL, follows_link=False)
        try:
            return int(os.read(file, _TOTAL_DIGITS))
        finally:
            os.close(file)
    except (FileNotFoundError, ValueError):  # cut short by a kill
        return _make_room(parts, 1 << 62)


def _make_room(parts: LocalFolder, limit: int) -> int:
    """Removes the parts least recently used beyond a limit; returns bytes of the others."""
    files = []
    for name in parts.names():
        if is_temp_file(name):
            parts.unlink(name)
        elif _PART.fullmatch(name) and (status := parts.status(name)) is not None:
            files.append((status.st_mtime_ns, status.st_size, name))
    total = sum(size for _, size, _ in files)
    for _, size, name in sorted(files):
        if total <= limit:
            break
        parts.unlink(name)
        total -= size
    return total


@contextmanager
def _locked(folder: str, name: str) -> Iterator[LocalFolder]:
    """Holds a lock, or goes on without it when another process has not ended in time.

    Yields the folder of parts, which is made if it is missing.
    """
    with _opened(folder, create=True) as parts:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        lock = parts.open(name, flags)
        try:
            until = time.monotonic() + _LOCK_SECONDS
            while not try_lock(lock):
                if time.monotonic() > until:
                    parts.unlink(name)  # nobody waits for a stopped process again
                    break
                time.sleep(0.002)
            try:
                yield parts
            finally:
                with suppress(OSError):  # a forked child may have the file, too
                    fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            os.close(lock)
