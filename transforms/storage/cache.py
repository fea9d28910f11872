"""Keeps what is read of a dataset's shards in a store in a local folder of limited size.

    cache/
      4f0c...e1.3145728-4194304     a MiB of a shard, and its CRC-32C
      total                         bytes of all of them; counted again when it is not right
      lock, lock-000, ...           who writes; who reads a part from the store (flock)

Shards never change, so neither do parts. Several processes use one folder: a part that one
reads from the store, another waits for. Who writes holds the lock, so any other temporary file
is of a process that was killed. Parts that were not used for the longest time go first.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from recordmill.transforms.parallel import ahead
from recordmill.transforms.storage.local import make_folders, renamed, try_lock
from recordmill.transforms.storage.remote import RemoteStore
from recordmill.transforms.storage.store import is_temp_file
from recordmill.transforms.tfrecord import crc32c

PART_BYTES = 1 << 20
_PARALLEL = 16  # parts at once
_CRC_BYTES = 4
_LOCKS = 1000  # of parts that are being read from the store
_LOCK_SECONDS = 10.0  # a stopped process holds up others no longer
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

    def _part(self, name: str, fetch: Callable[[], bytes]) -> bytes | memoryview:
        key = sha256(f"{self.url}/{name}".encode()).hexdigest()[:32]
        path = Path(self.folder, key)
        found: bytes | memoryview | None = _load(path)
        if found is None:
            with _locked(Path(self.folder, f"lock-{int(key, 16) % _LOCKS:03}")):
                found = _load(path)  # another process has read it meanwhile
                if found is None:
                    found = fetched = fetch()
                    with suppress(OSError):  # a full disk: it is only not kept
                        _keep(path, fetched, self.limit)
        return found


def with_cache(store: RemoteStore, folder: Path, limit: int) -> CachedStore:
    """Returns the same store with a cache; makes its folder."""
    make_folders(folder)
    how = store.url, store.options, store.retry_policy
    return CachedStore(*how, folder=str(folder), limit=limit)


def _load(path: Path) -> memoryview | None:
    """Returns a part that is there and whole, and marks it as used now."""
    try:
        data = memoryview(path.read_bytes())
        os.utime(path)
    except FileNotFoundError:
        return None
    part, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    return part if crc32c(part).to_bytes(_CRC_BYTES, "little") == crc else None


def _keep(path: Path, data: bytes, limit: int) -> None:
    """Writes a part, after it has removed others if the folder would be too large."""
    size = len(data) + _CRC_BYTES
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
        elif not path.name.startswith(("lock", _TOTAL)):
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
    with path.open("ab") as file:
        until = time.monotonic() + _LOCK_SECONDS
        while not try_lock(file.fileno()) and time.monotonic() < until:
            time.sleep(0.002)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may have the file, too
