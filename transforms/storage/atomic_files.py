"""Writes small local files so that readers see the whole file or none."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from recordmill.transforms.tfrecord import crc32c

# File systems without hard links: FAT, some network mounts.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


def temp_path(path: Path) -> Path:
    """Returns a hidden name beside `path` that no other writer uses."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


@contextmanager
def renamed(path: Path) -> Iterator[Path]:
    """Yields a temporary name for a file that then gets its own; after an error it goes.

    Neither the file nor its folder is synced; see sync_folder.
    """
    temporary = temp_path(path)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # a failed write does not tell it
        raise


def write_windows(
    path: Path, windows: Iterable[bytes | memoryview], *, durable: bool = False
) -> tuple[int, int]:
    """Writes a file under a temporary name, then renames it; returns its bytes and CRC-32C.

    If `durable`, its bytes are on disk then; its folder is not synced.
    """
    size = crc = 0
    with renamed(path) as temporary, temporary.open("wb") as file:
        for window in windows:
            size += file.write(window)
            crc = crc32c(window, crc)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return size, crc


def write_atomic(path: Path, data: bytes | memoryview) -> None:
    """Writes a small file under a temporary name, then renames it; syncs nothing."""
    write_windows(path, [data])


def make_folder(folder: Path) -> None:
    """Makes a folder if there is none; its parent must exist.

    Other processes may make it and remove it at the same time, since folders go with
    their last file. So it may be missing at return: what is done in it next finds that
    out, and tries again. (`Path.mkdir(exist_ok=True)` raises FileExistsError when the
    folder that was in its way is gone before its second look.)

    Raises:
      FileExistsError: there is something else than a folder.
      FileNotFoundError: there is no parent.
    """
    try:
        folder.mkdir()
    except FileExistsError:
        with suppress(FileNotFoundError):  # removed since
            if not stat.S_ISDIR(folder.stat().st_mode):
                raise


def sync_folder(folder: Path) -> None:
    """Makes the renames in a folder durable (fsync)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Writes a file and waits until its bytes are on disk; its folder is not synced."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def link_new(temporary: Path, path: Path) -> None:
    """Gives a finished file its name, unless another file has that name.

    Readers see the whole file, unlike after O_EXCL and a write.

    Raises:
      FileExistsError: another file has the name.
    """
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # FAT and some network file systems have no links. The name is reserved first,
        # so a reader may see the file without its bytes, but never another run's file.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        temporary.replace(path)
