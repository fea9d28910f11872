"""Opens local folders without following a link, and works in them by their descriptors.

A path is resolved anew by every call that gets it, so a check of it says nothing about the
next call: another process may have put a link in the place of a folder meanwhile. A
descriptor stays with the folder that was opened. Each component below an anchor, the
folder that a person named, is therefore opened on its own, relative to the one above it:

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
_DESCRIPTOR_PATHS = Path("/proc/self/fd")  # of Linux; macOS has none for folders


class LinkError(OutputRefusedError):
    """A link, or another special file, in a place where recordmill works."""


def link_error(path: Path, *, kind: str = "a symbolic link") -> LinkError:
    """Returns the error for a link below an output."""
    return LinkError(
        f"{path}: is {kind}; recordmill writes, removes and lists no files through it, "
        "because it may lead out of the output folder. Remove it (what it leads to stays as "
        "it is), or put a real file or folder there"
    )


def sync(descriptor: int, path: Path) -> None:
    """Waits until a file or folder is on disk (fsync); an error names it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A local folder that is open; its entries are reached by its descriptor."""

    descriptor: int
    path: Path  # as people write it, for messages

    def open(self, name: str, flags: int) -> int:
        """Opens an entry that is no link; returns its descriptor.

        Raises:
          LinkError: the entry is a symbolic link.
        """
        with self._naming(name):
            return os.open(
                name,
                flags | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o666,
                dir_fd=self.descriptor,
            )

    def open_to_read(self, name: str, *, follows_link: bool) -> int:
        """Opens a regular file for reading; returns its descriptor.

        Raises:
          LinkError: it is a link that must not be followed, or no regular file. A FIFO
            would block, and opening a device can have effects, so neither is opened.
        """
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        with self._naming(name):
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
        """Returns the status of an entry; None if it does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError), self._naming(name):
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=follows_link)
        return None

    def names(self) -> list[str]:
        """Returns the names of all entries."""
        return os.listdir(self.descriptor)  # noqa: PTH208

    def unlink(self, name: str) -> None:
        """Removes a file, or a link itself; a missing one is ignored."""
        with suppress(FileNotFoundError), self._naming(name):
            os.unlink(name, dir_fd=self.descriptor)

    def rename(self, name: str, target: LocalFolder, new_name: str) -> None:
        """Moves an entry to another folder, where it replaces a file or a link."""
        with target._naming(new_name):
            os.replace(
                name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor
            )

    def add_name(self, name: str, target: LocalFolder, new_name: str) -> None:
        """Gives a file one more name (a hard link), which must not exist."""
        with target._naming(new_name):
            os.link(
                name,
                new_name,
                src_dir_fd=self.descriptor,
                dst_dir_fd=target.descriptor,
                follow_symlinks=False,
            )

    def remove_folder(self, name: str) -> None:
        """Removes a folder that is empty; raises OSError if it is not."""
        with self._naming(name):
            os.rmdir(name, dir_fd=self.descriptor)

    def remove_tree(self, name: str) -> None:
        """Removes a folder with all that is in it; of links in it only the links.

        Raises:
          LinkError: it is a link itself.
        """
        status = self.status(name)
        if status is not None and stat.S_ISLNK(status.st_mode):
            raise link_error(self.path / name)
        with self._naming(name):
            shutil.rmtree(name, dir_fd=self.descriptor)

    def sync(self) -> None:
        """Makes the renames and removals in this folder durable (fsync)."""
        sync(self.descriptor, self.path)

    def make_folder(self, name: str, *, durable: bool = True) -> None:
        """Makes a folder if there is no entry of that name.

        Raises:
          FileNotFoundError: this folder itself was removed.
        """
        with suppress(FileExistsError), self._naming(name):
            os.mkdir(name, dir_fd=self.descriptor)
            if durable:
                self.sync()

    def open_below(self, name: str) -> LocalFolder:
        """Opens a folder in this one; the caller closes its descriptor.

        Raises:
          LinkError: it is a symbolic link.
          FileNotFoundError: it is missing.
          NotADirectoryError: it is a file.
        """
        with self._naming(name):
            try:
                flags = _FOLDER_FLAGS | os.O_NOFOLLOW
                descriptor = os.open(name, flags, dir_fd=self.descriptor)
            except NotADirectoryError:  # of a link, too
                status = self.status(name)
                if status is not None and stat.S_ISLNK(status.st_mode):
                    raise link_error(self.path / name) from None
                raise
        return LocalFolder(descriptor, self.path / name)

    def path_of(self, name: str) -> Path:
        """Returns a path to an entry for libraries that take paths only.

        On Linux it leads through the descriptor, so it reaches this very folder whatever
        becomes of its path. Elsewhere it is the path that was checked.
        """
        if _DESCRIPTOR_PATHS.is_dir():
            return _DESCRIPTOR_PATHS / str(self.descriptor) / name
        return self.path / name

    def _with_real_paths(self, error: OSError) -> None:
        """Puts the folder's path in the place of `path_of` in an error."""
        start = f"{_DESCRIPTOR_PATHS / str(self.descriptor)}/"
        if isinstance(error.filename, str) and error.filename.startswith(start):
            error.filename = f"{self.path}/{error.filename.removeprefix(start)}"
        error.args = tuple(
            each.replace(start, f"{self.path}/") if isinstance(each, str) else each
            for each in error.args
        )

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Puts the whole path of an entry into the errors of the system."""
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
    missing folders are made, durably; another process may remove them again.

    Args:
      anchor: absolute path.
      folder: relative path, "" for the anchor itself.
      create: whether missing folders are made, the anchor as well.

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


# In object stores there are no folders; so in a local one none is seen that holds nothing.
# Another process may make or remove the same folders at any moment.


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


def nearest_folder(folder: Path) -> Path:
    """Returns a folder, or the next one above it that is there."""
    while not folder.exists():
        folder = folder.parent
    return folder
