"""Caches parts of a remote dataset's shards in a local folder of limited size.

    cache/recordmill-parts/
      4f0c...e1                32 hex digits: a MiB of a shard, and its CRC-32C
      total                    the sum of their sizes in bytes; recounted if it is invalid
      lock, lock-000, ...      held by the writer, and by the reader of a part (flock)

No other file is touched. Shards never change, so neither do parts. Several processes can
share one folder: while one process reads a part from the store, the others wait for it.
The writer holds the lock, so any other temporary file was left by a killed process. The
least recently used parts are removed first. If the folder cannot be used, reading
continues without it.
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
from recordmill.schemas.storage_options import require_url_without_secret
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.storage.local import try_lock, write_then_rename
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
_LOCKS = 1000  # for parts that are being read from the store
_LOCK_SECONDS = 10.0  # longest time that a stopped process blocks others
_FOLDER = "recordmill-parts"
_PART = re.compile(r"[0-9a-f]{32}")
_TOTAL = "total"
_TOTAL_DIGITS = 40


@dataclass(frozen=True, slots=True)
class CachedStore(RemoteStore):
    """A remote store of unchanging files, with a local cache of the bytes read."""

    folder: str = ""
    limit: int = 0  # most bytes in the folder

    def read(self, name: str) -> bytes:
        return bytes(
            self._cached_part(f"{name}/all", lambda: RemoteStore.read(self, name))
        )

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        def piece(begin: int) -> memoryview:
            part = self._cached_part(
                f"{name}/{begin}",
                lambda: RemoteStore.read_range(self, name, begin, begin + PART_BYTES),
            )
            return memoryview(part)[max(0, start - begin) : stop - begin]

        begins = range(start - start % PART_BYTES, stop, PART_BYTES)
        return b"".join(map_ahead(begins, piece, _PARALLEL))

    def remove_from_cache(self, name: str) -> bool:
        was_cached = False
        begins = range(0, RemoteStore.size(self, name) or 0, PART_BYTES)
        with suppress(OSError, LinkError), _open_parts_folder(self.folder) as parts:
            for part in ("all", *begins):
                with suppress(FileNotFoundError):
                    os.unlink(self._key(f"{name}/{part}"), dir_fd=parts.descriptor)
                    was_cached = True
        return was_cached

    def _key(self, name: str) -> str:
        """Returns the name of the file that keeps a part."""
        return sha256(f"{self.url}/{name}".encode()).hexdigest()[:32]

    def _cached_part(self, name: str, fetch: Callable[[], bytes]) -> bytes | memoryview:
        key = self._key(name)
        part: bytes | memoryview | None = _load_part(self.folder, key)
        with ExitStack() as locks:
            if part is None:
                lock = f"lock-{int(key, 16) % _LOCKS:03}"
                with suppress(OSError, LinkError):
                    locks.enter_context(_lock_parts_folder(self.folder, lock))
                part = _load_part(
                    self.folder, key
                )  # another process has read it meanwhile
            if part is None:
                part = fetched = fetch()
                try:
                    _save_part(self.folder, key, fetched, self.limit)
                # A full disk, a folder of another user, or a link in it.
                except (OSError, LinkError) as error:
                    reason = error.strerror if isinstance(error, OSError) else error
                    warnings.warn(
                        f"{self.folder}: a part of a shard cannot be cached: {reason}; "
                        "reading continues without a cache. Use another `cache`",
                        stacklevel=2,
                    )
        return part


def with_cache(store: Store, cache: str | PathLike[str], limit: int) -> Store:
    """Returns the store with a cache in a local folder; a local store gets no cache.

    Raises:
      UsageError: the cache is no local folder, or the limit is no number of bytes.
    """
    cache_path = fspath(cache)
    require_url_without_secret(cache_path, "cache")
    folder = os.path.expanduser(cache_path)  # noqa: PTH111
    # `Path.is_file` raises an error for a folder without read permission.
    if not cache_path or "://" in cache_path or os.path.isfile(folder):  # noqa: PTH113
        raise UsageError(f"cache={cache_path!r}: expected the name of a local folder")
    if not isinstance(limit, Integral) or limit < 0:
        raise UsageError(
            f"cache_bytes={limit!r}: expected a number of bytes, like {10 << 30}"
        )
    if not isinstance(store, RemoteStore):
        return store
    store_fields = store.url, store.options, store.retry_policy
    return CachedStore(
        *store_fields, folder=str(Path(folder).absolute() / _FOLDER), limit=limit
    )


@contextmanager
def _open_parts_folder(folder: str, *, create: bool = False) -> Iterator[LocalFolder]:
    """Opens the folder of parts, unless it is a link."""
    above, name = os.path.split(folder)
    with open_folder(above, name, create=create) as parts:
        yield parts


def _load_part(folder: str, key: str) -> memoryview | None:
    """Returns a part if it is cached and undamaged, and marks it as used now."""
    try:
        with _open_parts_folder(folder) as parts:
            descriptor = parts.open_to_read(key, follows_link=False)
        with os.fdopen(descriptor, "rb") as file:
            data = memoryview(file.read())
            with suppress(OSError):  # owned by another user, or on a read-only disk
                os.utime(descriptor)
    except (OSError, LinkError):
        return None
    part, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    return part if crc32c(part).to_bytes(_CRC_BYTES, "little") == crc else None


def _save_part(folder: str, key: str, data: bytes, limit: int) -> None:
    """Writes a part; removes other parts first if the folder would be too large."""
    size = len(data) + _CRC_BYTES
    if size > limit:
        return  # even an empty cache would be too small
    with _lock_parts_folder(folder, "lock") as parts:
        total = _total_bytes(parts) + size
        if total > limit:
            total = _make_room(parts, limit * 7 // 8 - size) + size
        if total <= limit:
            # Before the part: after a kill in between, the sum is too large, which is
            # safe.
            with write_then_rename(parts.path_of(_TOTAL)) as temporary:
                temporary.write_text(f"{total}")
            with write_then_rename(parts.path_of(key)) as temporary:
                temporary.write_bytes(
                    data + crc32c(data).to_bytes(_CRC_BYTES, "little")
                )


def _total_bytes(parts: LocalFolder) -> int:
    try:
        file = parts.open_to_read(_TOTAL, follows_link=False)
        try:
            return int(os.read(file, _TOTAL_DIGITS))
        finally:
            os.close(file)
    except (FileNotFoundError, ValueError):  # cut short by a kill
        return _make_room(parts, 1 << 62)


def _make_room(parts: LocalFolder, limit: int) -> int:
    """Removes the least recently used parts beyond a limit.

    Returns the total size in bytes of the remaining parts.
    """
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
def _lock_parts_folder(folder: str, name: str) -> Iterator[LocalFolder]:
    """Holds a lock; continues without it if another process does not release it in time.

    Yields the folder of parts, which is created if it is missing.
    """
    with _open_parts_folder(folder, create=True) as parts:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        lock = parts.open(name, flags)
        try:
            until = time.monotonic() + _LOCK_SECONDS
            while not try_lock(lock):
                if time.monotonic() > until:
                    parts.unlink(name)  # no other process waits for it again
                    break
                time.sleep(0.002)
            try:
                yield parts
            finally:
                with suppress(OSError):  # a forked child may also have the file
                    fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            os.close(lock)
