"""Replaces or removes a small local file only if its content is what the caller saw.

No file system renames on a condition. So the content is compared, and the file renamed,
under a lock (flock). The kernel drops the lock when its holder ends, however it ends. A
holder that is paused keeps it: others wait for some seconds, then say that it is busy.

    out/.recordmill/swap/.lock.<32 zeros>           the lock, below the file's folder
    out/.recordmill/swap/.manifest.json.<32 hex>    the new content, to be renamed

Both have names of temporary files, so no listing shows them.

A network mount can give the lock of a silent machine to another one, and people remove
lock files. So the new content waits in the folder of the lock, and whoever gets the lock
first removes what waits there: a late holder finds nothing to rename, and begins anew.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recordmill.schemas.errors import BusyError
from recordmill.transforms.storage.atomic_files import (
    NO_LINKS,
    make_folder,
    sync_folder,
    temp_path,
    write_synced,
)
from recordmill.transforms.storage.store import SWAP_FOLDER, is_temp_file

LOCK_SECONDS = 30.0  # longest wait for another swap; one takes milliseconds

_LOCK = f".lock.{0:032}"
# File systems without locks: only the second guard of the module's text is left.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


def swap_file(path: Path, data: bytes, seen: bytes | None) -> bool:
    """Gives a file the content `data` if its content is `seen`; on disk at return.

    Args:
      path: of the file; its folder must exist.
      data: the new content.
      seen: the content that is replaced; None if there must be no file.

    Returns:
      Whether the content is `data` now.

    Raises:
      BusyError: another process does not end its swap in this folder.
      FileNotFoundError: a folder, or the new content, was removed meanwhile: the file
        was not touched by this call, so call it again.
    """
    folder = path.parent / SWAP_FOLDER
    with _locked(folder):
        for left in folder.iterdir():
            if is_temp_file(left.name) and left.name != _LOCK:
                left.unlink(missing_ok=True)
        waiting = temp_path(folder / path.name)
        try:
            write_synced(waiting, data)
            found = _content(path)  # never before the new content waits
            if found not in (seen, data):
                return False
            if found != data and seen is None:
                _link(waiting, path)
            elif found != data:
                waiting.replace(path)
            sync_folder(path.parent)  # of an earlier try, too
        except FileExistsError:  # created meanwhile, by other means than a swap
            return _content(path) == data
        finally:
            with suppress(OSError):
                waiting.unlink(missing_ok=True)
    return True


def discard_file(path: Path, seen: bytes) -> bool:
    """Removes a file if its content is `seen`; on disk at return.

    Args:
      path: of the file.
      seen: the content that is removed.

    Returns:
      Whether there is no such file now.

    Raises:
      BusyError: another process does not end its swap in this folder.
    """
    with _locked(path.parent / SWAP_FOLDER):
        found = _content(path)
        if found == seen:
            path.unlink()
            sync_folder(path.parent)
            return True
    return found is None


def _link(waiting: Path, path: Path) -> None:
    try:
        os.link(waiting, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        waiting.replace(path)  # the lock is held, so no other swap can come between


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, which exists meanwhile and is gone in the end."""
    lock = folder / _LOCK
    descriptor = _lock(lock)
    try:
        yield
    finally:
        with suppress(OSError):
            # While it is held: else the lock of another one would be removed.
            if _is_at(descriptor, lock):
                lock.unlink()
        with suppress(OSError):  # a forked child may have the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
        with suppress(OSError):  # not empty, or already removed
            folder.rmdir()
            folder.parent.rmdir()


def _lock(lock: Path) -> int:
    """Waits for a lock; returns the descriptor that holds it."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        # A holder that ends removes file and folder, so each try begins anew.
        if (descriptor := _open(lock)) is not None:
            try:
                if _try_lock(descriptor) and _is_at(descriptor, lock):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        if time.monotonic() > until:
            raise BusyError(
                f"{lock}: another process replaces a file here and has not ended that "
                f"in {LOCK_SECONDS:.0f} s. It may be paused: let it go on, or end it. "
                "Then run again"
            )
        time.sleep(random.uniform(0.001, 0.02))


def _open(lock: Path) -> int | None:
    """Opens a lock's file; None if its folder was removed meanwhile."""
    work = lock.parent.parent
    try:
        make_folder(work)
        make_folder(lock.parent)
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        if not work.parent.is_dir():
            raise
        return None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
