"""Opens local folders without following a link, and changes them by their descriptors.

Every call resolves a path again, so a check of a path is no guarantee for the next call:
another process may have replaced a folder by a link meanwhile. A descriptor always refers
to the folder that was opened. The anchor is the folder that a person named. Each
component below the anchor is therefore opened separately, relative to its parent:

    openat(AT_FDCWD, "/data/out", O_DIRECTORY)                      the anchor; may be a link
    openat(3, ".recordmill", O_DIRECTORY | O_NOFOLLOW)              ELOOP or ENOTDIR if a link
    openat(4, "lock", O_DIRECTORY | O_NOFOLLOW)
    unlinkat(5, "lease.json")

Source: openat(2), section "Rationale for openat() and other directory file descriptor APIs".
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from recordmill.schemas.errors import OutputRefusedError

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DESCRIPTOR_PATHS = Path("/proc/self/fd")  # on Linux; macOS has none for folders


class LinkError(OutputRefusedError):
    """The error for a link or another special file below an output."""


def link_error(path: Path, *, kind: str = "a symbolic link") -> LinkError:
    """Returns the error for a link below an output."""
    return LinkError(
        f"{path}: is {kind}; recordmill writes, removes and lists no files through it, "
        "because it may lead out of the output folder. Remove it (its target is not "
        "changed), or put a real file or folder there"
    )


def sync(descriptor: int, path: Path) -> None:
    """Writes a file or folder to disk (fsync); an error contains its path."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """An open local folder; its files and subfolders are accessed by its descriptor."""

    descriptor: int
    path: Path  # as people write it, for messages

    def open(self, name: str, flags: int) -> int:
        """Opens a file that is no link; returns its descriptor.

        Raises:
          LinkError: the file is a symbolic link.
        """
        with self._with_full_path(name):
            return os.open(
                name,
                flags | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o666,
                dir_fd=self.descriptor,
            )

    def open_to_read(self, name: str, *, follows_link: bool) -> int:
        """Opens a regular file for reading; returns its descriptor.

        Raises:
          LinkError: the file is a link that must not be followed, or no regular file. A
            FIFO would block, and opening a device can have effects, so neither is opened.
        """
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        with self._with_full_path(name):
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=follows_link)
            if stat.S_ISLNK(status.st_mode):
                raise link_error(self.path / name)
            _require_regular(self.path / name, status)
            if not follows_link:
                flags |= os.O_NOFOLLOW
            file = os.open(name, flags, dir_fd=self.descriptor)
            try:
                _require_regular(self.path / name, os.fstat(file))
            except BaseException:
                os.close(file)
                raise
            return file

    def status(self, name: str, *, follows_link: bool = False) -> os.stat_result | None:
        """Returns the status of a file or folder; None if it does not exist."""
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._with_full_path(name),
        ):
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=follows_link)
        return None

    def names(self) -> list[str]:
        """Returns the names of all files and subfolders."""
        return os.listdir(self.descriptor)  # noqa: PTH208

    def unlink(self, name: str) -> None:
        """Removes a file, or a link but not its target; ignores a missing file."""
        with suppress(FileNotFoundError), self._with_full_path(name):
            os.unlink(name, dir_fd=self.descriptor)

    def rename(self, name: str, target: LocalFolder, new_name: str) -> None:
        """Moves a file to another folder, where it replaces a file or a link."""
        with target._with_full_path(new_name):
            os.replace(
                name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor
            )

    def add_hard_link(self, name: str, target: LocalFolder, new_name: str) -> None:
        """Adds a name to a file (a hard link); the name must not exist."""
        with target._with_full_path(new_name):
            os.link(
                name,
                new_name,
                src_dir_fd=self.descriptor,
                dst_dir_fd=target.descriptor,
                follow_symlinks=False,
            )

    def remove_folder(self, name: str) -> None:
        """Removes an empty folder; raises OSError if it is not empty."""
        with self._with_full_path(name):
            os.rmdir(name, dir_fd=self.descriptor)

    def remove_tree(self, name: str) -> None:
        """Removes a folder with all its content; targets of links in it stay.

        Raises:
          LinkError: the folder is a link itself.
        """
        status = self.status(name)
        if status is not None and stat.S_ISLNK(status.st_mode):
            raise link_error(self.path / name)
        with self._with_full_path(name):
            shutil.rmtree(name, dir_fd=self.descriptor)

    def sync(self) -> None:
        """Makes the renames and removals in this folder durable (fsync)."""
        sync(self.descriptor, self.path)

    def make_folder(self, name: str, *, durable: bool = True) -> None:
        """Creates a subfolder if the name does not exist.

        Raises:
          FileNotFoundError: this folder itself was removed.
        """
        with suppress(FileExistsError), self._with_full_path(name):
            os.mkdir(name, dir_fd=self.descriptor)
            if durable:
                self.sync()

    def open_below(self, name: str) -> LocalFolder:
        """Opens a subfolder; the caller closes its descriptor.

        Raises:
          LinkError: the name is a symbolic link.
          FileNotFoundError: the subfolder is missing.
          NotADirectoryError: the name is a file.
        """
        with self._with_full_path(name):
            try:
                flags = _FOLDER_FLAGS | os.O_NOFOLLOW
                descriptor = os.open(name, flags, dir_fd=self.descriptor)
            except NotADirectoryError:  # also for a link
                status = self.status(name)
                if status is not None and stat.S_ISLNK(status.st_mode):
                    raise link_error(self.path / name) from None
                raise
        return LocalFolder(descriptor, self.path / name)

    def path_of(self, name: str) -> Path:
        """Returns the path of a file for libraries that accept only paths.

        On Linux the path contains the descriptor, so it always refers to this folder,
        even if the folder is moved. On other systems it is the path that was checked.
        """
        if _DESCRIPTOR_PATHS.is_dir():
            return _DESCRIPTOR_PATHS / str(self.descriptor) / name
        return self.path / name

    def _with_real_paths(self, error: OSError) -> None:
        """Replaces paths from `path_of` in an error by the folder's path."""
        start = f"{_DESCRIPTOR_PATHS / str(self.descriptor)}/"
        if isinstance(error.filename, str) and error.filename.startswith(start):
            error.filename = f"{self.path}/{error.filename.removeprefix(start)}"
        error.args = tuple(
            argument.replace(start, f"{self.path}/")
            if isinstance(argument, str)
            else argument
            for argument in error.args
        )

    @contextmanager
    def _with_full_path(self, name: str) -> Iterator[None]:
        """Adds the whole path of a file to errors of the system."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise link_error(self.path / name) from error
            error.filename, error.filename2 = str(self.path / name), None
            raise


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise link_error(path, kind="a FIFO, a socket or a device, not a file")


@contextmanager
def open_folder(
    anchor: str, folder: str = "", *, create: bool = False
) -> Iterator[LocalFolder]:
    """Opens a folder below an anchor without following a link between the two.

    The anchor is a folder that a person named, so it may be a link. With `create`,
    missing folders are created durably; another process may remove them again.

    Args:
      anchor: absolute path.
      folder: relative path, "" for the anchor itself.
      create: whether missing folders, including the anchor, are created.

    Raises:
      LinkError: a component of `folder` is a symbolic link.
      FileNotFoundError: a folder is missing, or another process has just removed it.
      NotADirectoryError: a component is a file.
    """
    if create:
        make_folders(Path(anchor))
    opened = LocalFolder(os.open(anchor, _FOLDER_FLAGS), Path(anchor))
    try:
        for name in folder.split("/") if folder else ():
            try:
                below = opened.open_below(name)
            except FileNotFoundError:
                if not create:
                    raise
                opened.make_folder(name)
                below = opened.open_below(name)
            os.close(opened.descriptor)
            opened = below
        yield opened
    except OSError as error:
        opened._with_real_paths(error)
        raise
    finally:
        os.close(opened.descriptor)


def sync_folder(folder: Path) -> None:
    """Makes the renames in a folder durable (fsync)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor, folder)
    finally:
        os.close(descriptor)


# Object stores have no folders, so a local store shows no empty folders. Another process
# may create or remove the same folders at any moment.


def make_folder(folder: Path) -> None:
    """Creates a folder if it does not exist; its parent must exist.

    Other processes may create and remove the same folder, because a folder is removed
    with its last file. So the folder may be missing at return: the next operation in it
    fails, and the caller tries again. (`Path.mkdir(exist_ok=True)` raises FileExistsError
    if the existing folder is removed before its second check.)

    Raises:
      FileExistsError: the path is no folder.
      FileNotFoundError: the parent is missing.
    """
    try:
        folder.mkdir()
    except FileExistsError:
        with suppress(FileNotFoundError):  # removed since
            if not stat.S_ISDIR(folder.stat().st_mode):
                raise


def make_folders(folder: Path) -> None:
    """Creates a folder and its parents durably; they may be removed again at return.

    Raises:
      FileExistsError: one of the paths is no folder.
      FileNotFoundError: another process removed a folder meanwhile; try again.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for missing_folder in reversed(missing):
        make_folder(missing_folder)
        sync_folder(missing_folder.parent)


def nearest_folder(folder: Path) -> Path:
    """Returns a folder, or its nearest parent that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder
