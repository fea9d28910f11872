"""Reads sidecar files: next to the table or below a given root, never outside."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.arrow import MAX_CELL_BYTES
from recordmill.transforms.storage.clouds import filesystem_of
from recordmill.transforms.storage.errors import with_retries
from recordmill.transforms.storage.left_out import is_skipped
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.tfrecord import crc32c


def root_prefixes(roots: Sequence[str]) -> list[str]:
    """Returns the prefix of the paths below each root, which differs from input paths.

    >>> root_prefixes(["images", "gs://bucket/more"])
    ['files_root:/', 'files_root:2/']
    """
    return [f"files_root:{at + 1 if at else ''}/" for at in range(len(roots))]


class SidecarFileError(Exception):
    """The error of a row whose path is not allowed, or names no file."""


@dataclass(frozen=True)
class SidecarFiles:
    """The sidecar files in a folder within a root. Creating it accesses no storage."""

    root: str  # uri of the input root
    folder: str  # uri of the folder that paths are relative to, the root or below it
    storage: StorageOptions = NO_OPTIONS  # options of the inputs' storage
    # prefix of paths in checksums, if an option names the root (`files_root`)
    path_prefix: str = ""
    other_roots: tuple[
        SidecarFiles, ...
    ] = ()  # below other roots, for cells that name these
    _folder_within_root: dict[str, bool] = field(
        default_factory=dict, repr=False, compare=False
    )
    _read_files: set[tuple[str, int, int]] = field(
        default_factory=set, repr=False, compare=False
    )

    @classmethod
    def next_to_table(
        cls, uri: str, root: str, storage: StorageOptions = NO_OPTIONS
    ) -> SidecarFiles:
        """Returns the files next to a table with this uri."""
        above, slash, _ = uri.rpartition("/")
        return cls(root, above or slash or ".", storage)

    @classmethod
    def below_roots(
        cls, roots: Sequence[str], storage: StorageOptions = NO_OPTIONS
    ) -> SidecarFiles:
        """Returns the files below several roots; relative paths belong to the first."""
        first, *more = (
            cls(root, root, storage, mark)
            for root, mark in zip(roots, root_prefixes(roots), strict=True)
        )
        return replace(first, other_roots=tuple(more))

    def read(self, path: str) -> bytes:
        """Returns all bytes of a file.

        Raises:
          SidecarFileError: the path leads out of the root, or names no file, or the file is
            too large for a record.
        """
        for other in self.other_roots:
            if path.startswith(other.root.rstrip("/") + "/"):
                return other.read(path)
        uri = self._resolve(path)
        try:
            size = self._size_of(uri)
            if size > MAX_CELL_BYTES:
                raise SidecarFileError(
                    f"{path!r} has {size} bytes, more than a record can contain "
                    f"({MAX_CELL_BYTES})"
                )
            if is_local(self.root):
                content = Path(uri).read_bytes()
            else:
                content = bytes(with_retries(lambda: self._filesystem().cat_file(uri)))
        except (FileNotFoundError, NotADirectoryError):
            raise SidecarFileError(f"{path!r}: no such file") from None
        except IsADirectoryError:
            raise SidecarFileError(f"{path!r} is not a file") from None
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                raise SidecarFileError(f"{path!r}: {error.strerror}") from error
            raise InputError(f"{uri}: cannot be read: {error}") from error
        self._read_files.add((uri, len(content), crc32c(content)))
        return content

    def _size_of(self, uri: str) -> int:
        if is_local(self.root):
            status = os.stat(uri)  # noqa: PTH116 (the hot call)
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError
            return status.st_size
        file_info = with_retries(lambda: self._filesystem().info(uri))
        if file_info["type"] != "file" or file_info["size"] is None:
            raise IsADirectoryError
        return int(file_info["size"])

    def checksums(self) -> Iterator[FileChecksum]:
        """Yields the checksum of each file that was read.

        A file that was replaced between two reads has two checksums.
        """
        above = len(self._normal_paths[0].rstrip("/")) + 1 if self._read_files else 0
        for uri, size, crc in sorted(self._read_files):
            yield FileChecksum(f"{self.path_prefix}{uri[above:]}", 0, size, crc)
        for other in self.other_roots:
            yield from other.checksums()

    def _resolve(self, path: str) -> str:
        if not path or "\0" in path:
            raise SidecarFileError(f"{path!r} is not a valid path")
        if self.path_prefix:
            path = path.removeprefix(self.root.rstrip("/") + "/")
        if path.startswith("/") or "://" in path:
            folder = self._root_name if self.path_prefix else "the table's folder"
            other_roots = "".join(
                f", or a path below {sidecar_files.root}"
                for sidecar_files in self.other_roots
            )
            raise SidecarFileError(
                f"{path!r} is absolute, expected a path relative to {folder}{other_roots}"
            )
        location = posixpath.normpath(posixpath.join(self._normal_paths[1], path))
        if not _is_within(location, self._normal_paths[0]):
            raise SidecarFileError(f"{path!r} is outside {self._root_name}")
        # Hidden files are not in the inventory, and may contain secret keys.
        if is_skipped(location[len(self._normal_paths[0].rstrip("/")) :]):
            raise SidecarFileError(
                f"{path!r} is hidden; recordmill skips hidden files and files of "
                "operating systems"
            )
        if not is_local(self.root):
            return location
        # Links may lead out of the root. A folder is resolved once for all its files.
        above = posixpath.dirname(location)
        if above not in self._folder_within_root:
            self._folder_within_root[above] = self._is_within_root(above)
        is_link = os.path.islink(location)  # noqa: PTH114 (the hot call)
        if not self._folder_within_root[above] or (
            is_link and not self._is_within_root(location)
        ):
            raise SidecarFileError(
                f"{path!r} is a link that leads out of {self._root_name}"
            )
        return location

    @property
    def _root_name(self) -> str:
        return f"the files root {self.root}" if self.path_prefix else "the input root"

    @cached_property
    def _normal_paths(self) -> tuple[str, str]:
        """Returns the root and the folder as paths of the file system."""
        return self._normal_path(self.root), self._normal_path(self.folder)

    def _is_within_root(self, location: str) -> bool:
        return _is_within(
            os.path.realpath(location), os.path.realpath(self._normal_paths[0])
        )

    def _filesystem(self) -> Any:
        # From the root alone: a path like a::b must not become a chain of file systems.
        return filesystem_of(self.root, self.storage)[0]

    def _normal_path(self, uri: str) -> str:
        if is_local(uri):
            return os.path.abspath(local_path(uri))  # noqa: PTH100 (keeps links)
        return posixpath.normpath(filesystem_of(uri, self.storage)[1])


def _is_within(location: str, root: str) -> bool:
    return location == root or location.startswith(root.rstrip("/") + "/")
