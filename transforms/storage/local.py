"""Stores a dataset's files on a file system of this machine or a network mount.

A file is written under a temporary name, synced, renamed, and its folder is synced.
Folders appear and disappear with the files in them, as in object stores. Writes, removals
and the listings for removals follow no link below the folder that a person named
(local_folder.py). Reads follow links to files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from recordmill.schemas.errors import BusyError, MissingFileError, OutputError
from recordmill.schemas.names import check_file_name
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.local_folder import (
    LinkError,
    LocalFolder,
    link_error,
    open_folder,
    sync,
)
from recordmill.transforms.storage.store import (
    SWAP_FOLDER,
    WORK_FOLDER,
    Data,
    Level,
    Store,
    is_temp_file,
)
from recordmill.transforms.tfrecord import crc32c


def temp_path(path: Path) -> Path:
    """Returns a hidden path in the folder of `path` that no other writer uses."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


@contextmanager
def write_then_rename(path: Path) -> Iterator[Path]:
    """Yields a temporary path; renames the file to `path`, or removes it after an error.

    Neither the file nor its folder is synced; see `sync_folder`.
    """
    temporary = temp_path(path)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):  # missing
            temporary.unlink()
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # the error of a failed write has no name
        raise


def write_windows(
    path: Path, windows: Iterable[Data], *, durable: bool = False
) -> tuple[int, int]:
    """Writes a file under a temporary name, then renames it; returns size and CRC-32C.

    If `durable`, the bytes are on disk at return; the folder is not synced.
    """
    size = crc = 0
    with write_then_rename(path) as temporary, temporary.open("wb") as file:
        for window in windows:
            size += file.write(window)
            crc = crc32c(window, crc)
        if durable:
            file.flush()
            sync(file.fileno(), path)
    return size, crc


def write_named_file(path: Path, content: bytes) -> None:
    """Writes a file that a person named, completely or not at all.

    A device like /dev/null receives the bytes. A rename over the device, which root may
    do, would replace it by a regular file for every program on the machine.
    """
    if path.is_char_device():
        path.write_bytes(content)
    else:
        write_windows(path, [content])


def blocks_of(path: Path) -> Iterator[bytes]:
    """Yields the bytes of a file in blocks of some MB."""
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            yield block


# No file system supports conditional renames. So the content is compared, and the file
# renamed, under a lock (flock). The kernel releases the lock whenever its holder ends. A
# paused holder keeps the lock: other processes wait for some seconds, then raise
# BusyError.
#
#     out/.recordmill/swap/.lock.<32 zeros>           the lock, below the file's folder
#     out/.recordmill/swap/.manifest.json.<32 hex>    the new content, to be renamed
#
# Both have names of temporary files, so no listing shows them.
#
# A network mount can pass the lock of a silent machine to another machine, and people
# remove lock files. So the new content is staged in the folder of the lock. A new holder
# of the lock first removes the staged files: a late holder finds nothing to rename, and
# starts over.

LOCK_SECONDS = 30.0  # longest wait for another swap; one takes milliseconds

_LOCK = f".lock.{0:032}"
# File systems without locks: only the staged content (above) prevents conflicts.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
# File systems without hard links: FAT, some network mounts.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


def swap_file(
    folder: LocalFolder, name: str, data: Data, expected_content: bytes | None
) -> bool:
    """Replaces the expected content of a file durably; returns whether it has `data`.

    Raises:
      FileNotFoundError: a folder, or the staged content, was removed meanwhile. This call
        did not touch the file, so call it again.
    """
    with _locked(folder) as swaps:
        for old_file in swaps.names():
            if is_temp_file(old_file) and old_file != _LOCK:
                swaps.unlink(old_file)
        staged_name = temp_path(Path(name)).name
        try:
            descriptor = swaps.open(staged_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                sync(file.fileno(), folder.path / name)
            if not _has_content(
                folder, name, expected_content
            ):  # only after the new content is staged
                if not _has_content(folder, name, data):
                    return False
            elif expected_content is None:
                _add_name(swaps, staged_name, folder, name)
            else:
                swaps.rename(staged_name, folder, name)
            folder.sync()  # also for an earlier try
        except FileExistsError:  # created meanwhile, but not by a swap
            return _has_content(folder, name, data)
        finally:
            with suppress(OSError):
                swaps.unlink(staged_name)
    return True


def discard_file(folder: LocalFolder, name: str, expected_content: bytes) -> bool:
    """Removes a file with the expected content durably; returns whether it is missing."""
    with _locked(folder):
        if not _has_content(folder, name, expected_content):
            return _has_content(folder, name, None)
        folder.unlink(name)
        folder.sync()
    return True


def _add_name(
    swaps: LocalFolder, staged_name: str, folder: LocalFolder, name: str
) -> None:
    try:
        swaps.add_hard_link(staged_name, folder, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # The lock is held, so no other swap can happen in between.
        swaps.rename(staged_name, folder, name)


def _has_content(folder: LocalFolder, name: str, data: Data | None) -> bool:
    """Returns whether a file has this content; None matches a missing file."""
    try:
        descriptor = folder.open_to_read(name, follows_link=True)
    except FileNotFoundError:
        return data is None
    with os.fdopen(descriptor, "rb") as file:
        if data is None or os.fstat(file.fileno()).st_size != len(data):
            return False
        # As bytes: views are compared element by element, which takes 20 times as long.
        return all(
            file.read(_READ_BYTES) == bytes(data[start : start + _READ_BYTES])
            for start in range(0, len(data), _READ_BYTES)
        )


@contextmanager
def _locked(folder: LocalFolder) -> Iterator[LocalFolder]:
    """Acquires the lock on a folder's swaps, and yields the folder of the lock.

    The folder of the lock is removed in the end.
    """
    lock, swaps = _lock(folder)
    try:
        yield swaps
    finally:
        with suppress(OSError):
            # Before the release: otherwise the lock of another process could be removed.
            if _is_lock_file(lock, swaps):
                swaps.unlink(_LOCK)
        with suppress(OSError):  # a forked child may also have the descriptor
            fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
        os.close(swaps.descriptor)
        _remove_swap_folder(folder)


def _remove_swap_folder(folder: LocalFolder) -> None:
    """Removes the folder of the lock, and the work folder, if they are empty."""
    work, _, last = SWAP_FOLDER.partition("/")
    with suppress(OSError, LinkError):  # not empty, or already removed
        above = folder.open_below(work)
        try:
            above.remove_folder(last)
        finally:
            os.close(above.descriptor)
        folder.remove_folder(work)


def _lock(folder: LocalFolder) -> tuple[int, LocalFolder]:
    """Waits for the lock on a folder's swaps.

    Returns the descriptor that holds the lock, and the open folder of the lock file.
    """
    until = time.monotonic() + LOCK_SECONDS
    while True:
        # A holder removes file and folder at its end, so each try starts over.
        if (swaps := _open_swap_folder(folder)) is not None:
            if (lock := _try_lock_in(swaps)) is not None:
                return lock, swaps
            os.close(swaps.descriptor)
        if time.monotonic() > until:
            raise BusyError(
                f"{folder.path / SWAP_FOLDER / _LOCK}: another process is replacing a "
                f"file here and has not finished in {LOCK_SECONDS:.0f} s. It may be "
                "paused: let it continue, or end it. Then run again"
            )
        time.sleep(random.uniform(0.001, 0.02))


def _open_swap_folder(folder: LocalFolder) -> LocalFolder | None:
    """Creates and opens the folder of the lock; None if another process removed it."""
    work, _, last = SWAP_FOLDER.partition("/")
    # Without fsync: these folders are removed at the end of a swap.
    folder.make_folder(work, durable=False)
    with suppress(FileNotFoundError):
        above = folder.open_below(work)
        try:
            above.make_folder(last, durable=False)
            return above.open_below(last)
        finally:
            os.close(above.descriptor)
    return None


def _try_lock_in(swaps: LocalFolder) -> int | None:
    """Returns the descriptor that holds the lock; None if another process holds it."""
    try:
        lock = swaps.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        if try_lock(lock) and _is_lock_file(lock, swaps):
            return lock
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def try_lock(descriptor: int) -> bool:
    """Locks a file without waiting; returns whether it succeeded.

    It also succeeds on a file system without locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_lock_file(lock: int, swaps: LocalFolder) -> bool:
    status = swaps.status(_LOCK)
    return status is not None and os.path.samestat(os.fstat(lock), status)


@contextmanager
def _converted_errors(path: object, done: str) -> Iterator[None]:
    """Converts an error of the system to an OutputError with the fix."""
    try:
        yield
    except OSError as error:
        raise output_error(error, str(path), done) from error


_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


@contextmanager
def _converted_read_errors(path: Path) -> Iterator[None]:
    with _converted_errors(path, "read"):
        try:
            yield
        except _NO_FILE as error:
            raise MissingFileError(f"{path}: is missing") from error


_READ_BYTES = 8 << 20  # read from a file at once
_TRIES = 5  # another process may remove a new folder while it is empty
_Result = TypeVar("_Result")


def _retry_missing_folder(path: Path, write: Callable[[], _Result]) -> _Result:
    """Calls a function that writes a file; repeats the call if the folder was removed."""
    with _converted_errors(path, "written"):
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                return write()
        return write()


@dataclass(frozen=True, slots=True)
class LocalStore(Store):
    """A store of the files in a local folder and its subfolders.

    If not `synced`, small files may be lost or cut short when the machine loses power,
    and `delete` leaves empty folders. Otherwise small files and removals are on disk when
    a call returns.

    Nothing is written, removed or listed through a link below the `anchor`. Reads follow
    links to regular files, and links between the anchor and the root, such as a linked
    version folder. If `follows_links` is false, reads follow no links: recordmill creates
    no links in its own folders.
    """

    root: str  # absolute path of the folder; created with the first file
    is_durable: bool = field(default=True, kw_only=True)
    anchor: str = field(default="", kw_only=True)  # the folder above; "" for the root
    follows_links: bool = field(default=True, kw_only=True)

    @property
    def uri(self) -> str:
        return self.root

    @property
    def swaps_exclusively(self) -> bool:
        return True

    def subfolder_store(self, folder: str) -> LocalStore:
        is_own = _is_in_work_folder(folder)
        return LocalStore(
            str(self._path(folder)),
            anchor=self.anchor or self.root,
            follows_links=self.follows_links and not is_own,
        )

    @contextmanager
    def open_to_write(
        self, folder: str = "", *, create: bool = False
    ) -> Iterator[LocalFolder]:
        """Opens a folder for writing and removing files, without following a link.

        Raises:
          LinkError: a link is in the way.
          FileNotFoundError: it is missing, or another process has just removed it.
          NotADirectoryError: a file is in the way.
        """
        anchor = self.anchor or self.root
        inside = f"{self.root[len(anchor) :]}/{folder}".strip("/")
        with open_folder(anchor, inside, create=create) as opened:
            yield opened

    @contextmanager
    def _open_to_read(self, folder: str) -> Iterator[LocalFolder]:
        if not self.follows_links:
            with self.open_to_write(folder) as opened:
                yield opened
            return
        with open_folder(self.root, folder) as opened:
            yield opened

    def make_folder(self, folder: str = "") -> None:
        """Creates a folder and its parents durably; raises OSError if that fails."""
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError), self.open_to_write(folder, create=True):
                return
        with self.open_to_write(folder, create=True):
            pass

    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        if not source.is_file():
            raise OutputError(f"{source}: cannot be copied to {self.root}: is missing")
        self._write(lambda: blocks_of(source), name, durable=True)

    def put_bytes(self, data: Data, name: str) -> None:
        self._write(lambda: [data], name, durable=self.is_durable)

    def swap(self, data: Data, name: str, *, expected_content: bytes | None) -> bool:
        folder, last = self._split(name)

        def swap() -> bool:
            try:
                with self.open_to_write(
                    folder, create=expected_content is None
                ) as opened:
                    return swap_file(opened, last, data, expected_content)
            except (FileNotFoundError, NotADirectoryError):
                if expected_content is None or self._has_folder(folder):
                    raise
                return False

        return _retry_missing_folder(self._path(name), swap)

    def discard(self, name: str, *, expected_content: bytes) -> bool:
        folder, last = self._split(name)
        with _converted_errors(self._path(name), "removed"):
            try:
                with self.open_to_write(folder) as opened:
                    if not discard_file(opened, last, expected_content):
                        return False
            except FileNotFoundError:
                return True  # the folder is missing as well
        self._remove_empty([folder])
        return True

    def read(self, name: str) -> bytes:
        with (
            self._opened_file(name) as file,
            os.fdopen(file, "rb", closefd=False) as data,
        ):
            return data.read()

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        with self._opened_file(name) as file:
            return _read_at(file, start, max(0, stop - start))

    def size(self, name: str) -> int | None:
        status = self._stat(name)
        return status.st_size if status else None

    def modified_time(self, name: str) -> float | None:
        status = self._stat(name)
        return status.st_mtime if status else None

    def is_link(self, name: str) -> bool:
        """Returns whether a file or folder is a symbolic link."""
        folder, last = self._split(name)
        with (
            _converted_errors(self._path(name), "read"),
            suppress(*_NO_FILE),
            self._open_to_read(folder) as opened,
        ):
            status = opened.status(last)
            return status is not None and stat.S_ISLNK(status.st_mode)
        return False

    def list_level(self, folder: str = "") -> Level:
        path, prefix = self._folder_path(folder), f"{folder}/" if folder else ""
        files: dict[str, int] = {}
        folders, linked_folders = list[str](), list[str]()
        with (
            _converted_errors(path, "listed"),
            suppress(*_NO_FILE),
            self._open_to_read(folder) as opened,
            os.scandir(opened.descriptor) as dir_entries,
        ):
            for dir_entry in dir_entries:
                name = prefix + dir_entry.name
                if dir_entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif not dir_entry.is_symlink():
                    with suppress(FileNotFoundError):  # removed meanwhile
                        files[name] = dir_entry.stat(follow_symlinks=False).st_size
                elif self._refuses_links(name):
                    raise link_error(path / dir_entry.name)
                elif (status := _target_status(opened, dir_entry.name)) is None:
                    files[name] = 0
                elif stat.S_ISDIR(status.st_mode):
                    linked_folders.append(name)
                else:
                    files[name] = status.st_size
        return Level.of(files, folders, linked_folders=linked_folders)

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        # Consecutive names in one folder are removed together, in their order.
        for folder, group in groupby(map(self._split, names), itemgetter(0)):
            lasts = [last for _, last in group]
            folders.add(folder)
            with (
                _converted_errors(self._folder_path(folder), "removed"),
                suppress(*_NO_FILE),
                self.open_to_write(folder) as opened,
            ):
                for last in lasts:
                    # A name that is not a file is ignored.
                    with suppress(*_NO_FILE):
                        opened.unlink(last)
        if self.is_durable:
            self._remove_empty(folders)

    def remove_root(self) -> None:
        """Removes the root with all its content; only for a store with an anchor."""
        inside = self.root[len(self.anchor) :].strip("/")
        LocalStore(self.anchor).remove_tree(inside)

    def remove_tree(self, folder: str) -> None:
        above, last = self._split(folder)
        with _converted_errors(self._path(folder), "removed"):
            try:
                with self.open_to_write(above) as opened:
                    opened.remove_tree(last)
            except FileNotFoundError:
                return
        self._remove_empty([above])

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        touched_folders = set()
        for source, target in pairs:
            (from_folder, name), (to_folder, new_name) = map(
                self._split, (source, target)
            )
            with _converted_errors(self._path(target), "written"):
                try:
                    with (
                        self.open_to_write(from_folder) as origin,
                        self.open_to_write(to_folder, create=True) as end,
                    ):
                        origin.rename(name, end, new_name)
                except (FileNotFoundError, NotADirectoryError) as error:
                    problem = f"{self._path(source)}: is missing, cannot be moved"
                    raise MissingFileError(problem) from error
            touched_folders |= {from_folder, to_folder}
        self._remove_empty(touched_folders)

    def list_tree(self, folder: str) -> dict[str, int]:
        path, prefix = self._folder_path(folder), f"{folder}/" if folder else ""
        files = dict[str, int]()
        with (
            _converted_errors(path, "listed"),
            suppress(*_NO_FILE),
            self._open_to_read(folder) as opened,
        ):
            self._walk(str(opened.path_of(".")), prefix, files)
        return dict(sorted(files.items()))

    def _walk(self, path: str, prefix: str, files: dict[str, int]) -> None:
        """Adds names and sizes of the files in a folder and its subfolders.

        A subfolder may be replaced by a link meanwhile. So only names are listed; their
        removal checks the path again.
        """
        pending_folders = [(path, prefix)]  # a tree may be deeper than Python's stack
        while pending_folders:
            path, prefix = pending_folders.pop()
            try:
                dir_entries = os.scandir(path)
            except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
                continue
            with dir_entries:
                for dir_entry in dir_entries:
                    name = prefix + dir_entry.name
                    if dir_entry.is_dir(follow_symlinks=False):
                        pending_folders.append((f"{path}/{dir_entry.name}", f"{name}/"))
                    elif not dir_entry.is_symlink():
                        with suppress(FileNotFoundError):  # removed meanwhile
                            files[name] = dir_entry.stat().st_size
                    elif self._refuses_links(name):
                        raise link_error(Path(self.root, name))
                    else:
                        files[name] = 0
                        with suppress(OSError):  # its target is missing
                            files[name] = dir_entry.stat().st_size

    def _path(self, name: str) -> Path:
        return Path(self.root, check_file_name(name, self.uri))

    def _folder_path(self, folder: str) -> Path:
        """Returns the path of a folder, which may be the root."""
        return self._path(folder) if folder else Path(self.root)

    def _split(self, name: str) -> tuple[str, str]:
        """Returns the folder of a file, and its name in this folder."""
        folder, _, last = check_file_name(name, self.uri).rpartition("/")
        return folder, last

    def _refuses_links(self, name: str) -> bool:
        return not self.follows_links or _is_in_work_folder(name)

    def _has_folder(self, folder: str) -> bool:
        try:
            with self._open_to_read(folder):
                return True
        except OSError:
            return False

    @contextmanager
    def _opened_file(self, name: str) -> Iterator[int]:
        """Opens a regular file for reading; yields its descriptor."""
        folder, last = self._split(name)
        with _converted_read_errors(self._path(name)):
            with self._open_to_read(folder) as opened:
                follows = not self._refuses_links(name)
                file = opened.open_to_read(last, follows_link=follows)
            try:
                yield file
            finally:
                os.close(file)

    def _stat(self, name: str) -> os.stat_result | None:
        folder, last = self._split(name)
        with _converted_errors(self._path(name), "read"):
            try:
                with self._open_to_read(folder) as opened:
                    refuses = self._refuses_links(name)
                    status = opened.status(last, follows_link=not refuses)
            except (FileNotFoundError, NotADirectoryError):
                return None
        if status is not None and stat.S_ISLNK(status.st_mode):
            raise link_error(self._path(name))
        return status if status and stat.S_ISREG(status.st_mode) else None

    def _write(
        self, windows: Callable[[], Iterable[Data]], name: str, *, durable: bool
    ) -> None:
        folder, last = self._split(name)

        def write() -> None:
            with self.open_to_write(folder, create=True) as opened:
                write_windows(opened.path_of(last), windows(), durable=durable)
                if self.is_durable:
                    opened.sync()

        _retry_missing_folder(self._path(name), write)

    def _remove_empty(self, folders: Iterable[str]) -> None:
        """Removes empty folders, and makes all removals in them durable.

        Parents that become empty are also removed, except for the root and its parents.
        """
        for folder in sorted(folders, reverse=True):
            nonempty_folder = folder
            with suppress(OSError, LinkError):  # not empty
                while nonempty_folder:
                    above, _, last = nonempty_folder.rpartition("/")
                    # A folder that is missing was already removed.
                    with (
                        suppress(FileNotFoundError),
                        self.open_to_write(above) as opened,
                    ):
                        opened.remove_folder(last)
                    nonempty_folder = above
            with (
                suppress(FileNotFoundError, NotADirectoryError, LinkError),
                self.open_to_write(nonempty_folder) as opened,
            ):
                opened.sync()


def _is_in_work_folder(name: str) -> bool:
    return WORK_FOLDER in name.split("/")


def _target_status(folder: LocalFolder, name: str) -> os.stat_result | None:
    """Returns the status of the target of a link; None if the target is missing."""
    try:
        return folder.status(name, follows_link=True)
    except (OSError, LinkError):  # a circle of links, or no permission
        return None


def _read_at(file: int, start: int, length: int) -> bytes:
    """Returns bytes of a file from a position; fewer if the file ends before."""
    pieces, remaining = list[bytes](), length
    while remaining and (piece := os.pread(file, remaining, start)):
        pieces.append(piece)
        start, remaining = start + len(piece), remaining - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
