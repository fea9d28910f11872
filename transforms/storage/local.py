"""Keeps a dataset's files on a file system of this machine or a network mount.

A file is written under a temporary name, synced, renamed, and its folder is synced.
Folders appear and disappear with the files in them, as in object stores.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from recordmill.schemas.errors import BusyError, MissingFileError, OutputError
from recordmill.schemas.names import check_file_name
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.store import (
    SWAP_FOLDER,
    Data,
    Level,
    Store,
    is_temp_file,
)
from recordmill.transforms.tfrecord import crc32c


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
        with suppress(OSError):  # not there
            temporary.unlink()
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # a failed write does not tell it
        raise


def write_windows(
    path: Path, windows: Iterable[Data], *, durable: bool = False
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
            sync(file.fileno(), path)
    return size, crc


def blocks_of(path: Path) -> Iterator[bytes]:
    """Yields the bytes of a file, some MB at once."""
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            yield block


def sync(descriptor: int, path: Path) -> None:
    """Waits until a file or folder is on disk (fsync); an error names it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise


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
        sync(descriptor, folder)
    finally:
        os.close(descriptor)


# In object stores there are no folders; so in a local one none is seen that holds nothing.
# Another process may make or remove the same folders at any moment.


def make_folders(folder: Path) -> None:
    """Makes a folder and those above it, durably; they may be gone again at return.

    Raises:
      FileExistsError: there is something else than a folder.
      FileNotFoundError: another process removed a folder meanwhile; try again.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        make_folder(each)
        sync_folder(each.parent)


def remove_empty(folders: Iterable[Path], root: Path) -> None:
    """Removes folders that became empty, and makes all removals in them durable.

    Those above them that are empty then go, too, but not `root` and what is above it.
    """
    for folder in sorted(folders, reverse=True):
        with suppress(OSError):  # not empty
            while folder != root:
                with suppress(FileNotFoundError):  # already removed
                    folder.rmdir()
                folder = folder.parent
        with suppress(FileNotFoundError, NotADirectoryError):
            sync_folder(folder)


def nearest_folder(folder: Path) -> Path:
    """Returns a folder, or the next one above it that is there."""
    while not folder.exists():
        folder = folder.parent
    return folder


# No file system renames on a condition. So the content is compared, and the file renamed,
# under a lock (flock). The kernel drops the lock when its holder ends, however it ends. A
# holder that is paused keeps it: others wait for some seconds, then say that it is busy.
#
#     out/.recordmill/swap/.lock.<32 zeros>           the lock, below the file's folder
#     out/.recordmill/swap/.manifest.json.<32 hex>    the new content, to be renamed
#
# Both have names of temporary files, so no listing shows them.
#
# A network mount can give the lock of a silent machine to another one, and people remove
# lock files. So the new content waits in the folder of the lock, and whoever gets the lock
# first removes what waits there: a late holder finds nothing to rename, and begins anew.

LOCK_SECONDS = 30.0  # longest wait for another swap; one takes milliseconds

_LOCK = f".lock.{0:032}"
# File systems without locks: only the second guard of the module's text is left.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
# File systems without hard links: FAT, some network mounts.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


def swap_file(path: Path, data: Data, seen: bytes | None) -> bool:
    """Gives a file the content `data` if it has `seen`; returns whether it has, on disk.

    Raises FileNotFoundError if a folder, or the new content, was removed meanwhile: the
    file was not touched by this call, so call it again.
    """
    folder = path.parent / SWAP_FOLDER
    with _locked(folder):
        for left in folder.iterdir():
            if is_temp_file(left.name) and left.name != _LOCK:
                left.unlink(missing_ok=True)
        waiting = temp_path(folder / path.name)
        try:
            with waiting.open("wb") as file:
                file.write(data)
                file.flush()
                sync(file.fileno(), path)
            if not _holds(path, seen):  # never before the new content waits
                if not _holds(path, data):
                    return False
            elif seen is None:
                _link(waiting, path)
            else:
                waiting.replace(path)
            sync_folder(path.parent)  # of an earlier try, too
        except FileExistsError:  # created meanwhile, by other means than a swap
            return _holds(path, data)
        finally:
            with suppress(OSError):
                waiting.unlink(missing_ok=True)
    return True


def discard_file(path: Path, seen: bytes) -> bool:
    """Removes a file if its content is `seen`; returns whether it is gone, on disk."""
    with _locked(path.parent / SWAP_FOLDER):
        if not _holds(path, seen):
            return _holds(path, None)
        path.unlink()
        sync_folder(path.parent)
    return True


def _link(waiting: Path, path: Path) -> None:
    try:
        os.link(waiting, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        waiting.replace(path)  # the lock is held, so no other swap can come between


def _holds(path: Path, data: Data | None) -> bool:
    """Tells whether a file has this content, by blocks; None is that of no file."""
    try:
        with path.open("rb") as file:
            if data is None or os.fstat(file.fileno()).st_size != len(data):
                return False
            # As bytes: a view is compared value by value, which takes 20 times as long.
            return all(
                file.read(_READ_BYTES) == bytes(data[start : start + _READ_BYTES])
                for start in range(0, len(data), _READ_BYTES)
            )
    except FileNotFoundError:
        return data is None


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
                if try_lock(descriptor) and _is_at(descriptor, lock):
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


def try_lock(descriptor: int) -> bool:
    """Returns whether a file is locked now; where there are no locks, it counts as such."""
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


@contextmanager
def _failing(path: object, done: str) -> Iterator[None]:
    """Raises what the system says as an error of the output, with the way out."""
    try:
        yield
    except OSError as error:
        raise output_error(error, str(path), done) from error


_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with _failing(path, "read"):
        try:
            yield
        except _NO_FILE as error:
            raise MissingFileError(f"{path}: is missing") from error


_READ_BYTES = 8 << 20  # of a file at once
_TRIES = 5  # another process may remove the folder just made, while it is empty
_Result = TypeVar("_Result")


def _again(path: Path, write: Callable[[], _Result]) -> _Result:
    """Calls a function that writes a file, again where its folder was removed."""
    with _failing(path, "written"):
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                return write()
        return write()


@dataclass(frozen=True, slots=True)
class LocalStore(Store):
    """A store of the files in a local folder and its subfolders.

    If not `synced`, small files may be lost, or cut short, when the machine loses its
    power, and `delete` leaves empty folders. Else they, and removals, are on disk when a
    call returns.
    """

    root: str  # absolute path of the folder; created with the first file
    synced: bool = field(default=True, kw_only=True)

    @property
    def uri(self) -> str:
        return self.root

    @property
    def exclusive(self) -> bool:
        return True

    def below(self, folder: str) -> LocalStore:
        return LocalStore(str(self._path(folder)))

    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        if not source.is_file():
            raise OutputError(f"{source}: cannot be copied to {self.root}: is missing")
        self._write(lambda: blocks_of(source), name, durable=True)

    def put_bytes(self, data: Data, name: str) -> None:
        self._write(lambda: [data], name, durable=self.synced)

    def swap(self, data: Data, name: str, *, seen: bytes | None) -> bool:
        path = self._path(name)

        def swap() -> bool:
            if seen is None:
                make_folders(path.parent)
            elif not path.parent.is_dir():
                return False
            return swap_file(path, data, seen)

        return _again(path, swap)

    def discard(self, name: str, *, seen: bytes) -> bool:
        path = self._path(name)
        with _failing(path, "removed"):
            try:
                if not discard_file(path, seen):
                    return False
            except FileNotFoundError:
                return True  # nor is its folder there
        remove_empty([path.parent], Path(self.root))
        return True

    def read(self, name: str) -> bytes:
        path = self._path(name)
        with _reading(path):
            return path.read_bytes()

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        path = self._path(name)
        with _reading(path), path.open("rb") as file:
            file.seek(start)
            return file.read(max(0, stop - start))

    def size(self, name: str) -> int | None:
        status = self._stat(name)
        return status.st_size if status else None

    def modified(self, name: str) -> float | None:
        status = self._stat(name)
        return status.st_mtime if status else None

    def list_level(self, folder: str = "") -> Level:
        path = self._path(folder) if folder else Path(self.root)
        prefix = f"{folder}/" if folder else ""
        files, folders = {}, []
        with _failing(path, "listed"), suppress(*_NO_FILE):
            for entry in os.scandir(path):
                name = prefix + entry.name
                if entry.is_dir():
                    folders.append(name)
                else:
                    with suppress(FileNotFoundError):  # removed meanwhile
                        files[name] = entry.stat().st_size
        return Level.of(files, folders)

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            path = self._path(name)
            # Where it is not a file, there is nothing to remove.
            with _failing(path, "removed"), suppress(*_NO_FILE):
                path.unlink(missing_ok=True)
                folders.add(path.parent)
        if self.synced:
            remove_empty(folders, Path(self.root))

    def remove_tree(self, folder: str) -> None:
        path = self._path(folder)
        with _failing(path, "removed"):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                return
        remove_empty([path.parent], Path(self.root))

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        touched_folders = set()
        for source, target in pairs:
            start, end = self._path(source), self._path(target)
            with _failing(end, "written"):
                try:
                    make_folders(end.parent)
                    start.replace(end)
                except (FileNotFoundError, NotADirectoryError) as error:
                    what = f"{start}: is missing, cannot be moved"
                    raise MissingFileError(what) from error
            touched_folders |= {start.parent, end.parent}
        remove_empty(touched_folders, Path(self.root))

    def _path(self, name: str) -> Path:
        return Path(self.root, check_file_name(name, self.uri))

    def _stat(self, name: str) -> os.stat_result | None:
        path = self._path(name)
        with _failing(path, "read"):
            try:
                status = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return status if stat.S_ISREG(status.st_mode) else None

    def all_files(self, folder: str) -> dict[str, int]:
        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise output_error(error, str(error.filename), "listed") from error

        start = self._path(folder) if folder else Path(self.root)
        # Text, not paths, which take ten times as long: a run has two files of each range.
        cut = len(os.path.join(Path(self.root), ""))  # noqa: PTH118
        found = {}
        for parent, _, files in os.walk(start, onerror=fail):
            for file in files:
                path = os.path.join(parent, file)  # noqa: PTH118
                with suppress(FileNotFoundError):  # removed meanwhile
                    found[path[cut:]] = os.stat(path).st_size  # noqa: PTH116
        return dict(sorted(found.items()))

    def _write(
        self, windows: Callable[[], Iterable[Data]], name: str, *, durable: bool
    ) -> None:
        path = self._path(name)

        def write() -> None:
            make_folders(path.parent)
            write_windows(path, windows(), durable=durable)
            if self.synced:
                sync_folder(path.parent)

        _again(path, write)
