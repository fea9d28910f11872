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
from recordmill.transforms.parallel import ahead
from recordmill.transforms.storage.local import renamed, try_lock
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
        for part in ("all", *begins):
            with suppress(OSError):
                self._path(f"{name}/{part}").unlink()
                found = True
        return found

    def _path(self, name: str) -> Path:
        key = sha256(f"{self.url}/{name}".encode()).hexdigest()[:32]
        return Path(self.folder, key)

    def _part(self, name: str, fetch: Callable[[], bytes]) -> bytes | memoryview:
        path = self._path(name)
        found: bytes | memoryview | None = _load(path)
        with ExitStack() as held:
            if found is None:
                lock = path.with_name(f"lock-{int(path.name, 16) % _LOCKS:03}")
                with suppress(OSError):
                    held.enter_context(_locked(lock))
                found = _load(path)  # another process has read it meanwhile
            if found is None:
                found = fetched = fetch()
                try:
                    _keep(path, fetched, self.limit)
                except OSError as error:  # a full disk, a folder of somebody else
                    warnings.warn(
                        f"{self.folder}: a part of a shard cannot be kept: "
                        f"{error.strerror}; reading continues without. Name another `cache`",
                        stacklevel=2,
                    )
        return found


def with_cache(store: Store, cache: str | PathLike[str], limit: int) -> Store:
    """Returns the same store with a cache in a folder; a local store needs none.

    Raises:
      UsageError: it is no local folder, or no limit.
    """
    given = fspath(cache)
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


def _load(path: Path) -> memoryview | None:
    """Returns a part that is there and whole, and marks it as used now."""
    try:
        data = memoryview(path.read_bytes())
    except OSError:
        return None
    with suppress(OSError):  # of another user, or on a disk that is only read
        os.utime(path)
    part, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    return part if crc32c(part).to_bytes(_CRC_BYTES, "little") == crc else None


def _keep(path: Path, data: bytes, limit: int) -> None:
    """Writes a part, after it has removed others if the folder would be too large."""
    size = len(data) + _CRC_BYTES
    if size > limit:
        return  # all others would go for nothing
    with _locked(path.with_name("lock")):
        total = _total(path.parent) + size
        if total > limit:
            total = _make_room(path.parent, limit * 7 // 8 - size) + size
        if total <= limit:
            # Before the part: a kill in between makes the sum too large, never too small.
            path.with_name(_TOTAL).write_text(f"{total}")
            with renamed(path) as temporary:
                temporary.write_bytes(
                    data + crc32c(data).to_bytes(_CRC_BYTES, "little")
                )


def _total(folder: Path) -> int:
    try:
        return int((folder / _TOTAL).read_text())
    except (FileNotFoundError, ValueError):  # cut short by a kill
        return _make_room(folder, 1 << 62)


def _make_room(folder: Path, limit: int) -> int:
    """Removes the parts least recently used beyond a limit; returns bytes of the others."""
    found = []
    for path in folder.iterdir():
        if is_temp_file(path.name):
            path.unlink(missing_ok=True)
        elif _PART.fullmatch(path.name):
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size
    return total


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock, or goes on without it when another process has not ended in time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        until = time.monotonic() + _LOCK_SECONDS
        while not try_lock(file.fileno()):
            if time.monotonic() > until:
                path.unlink(missing_ok=True)  # nobody waits for a stopped process again
                break
            time.sleep(0.002)
        try:
            yield
        finally:
            with suppress(OSError):  # a forked child may have the file, too
                fcntl.flock(file, fcntl.LOCK_UN)
