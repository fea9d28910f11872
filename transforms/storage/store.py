"""Defines the interface of all stores, which keep files under names relative to one root.

A store is a small frozen object (root and options without secrets). Creating it touches
no storage, so it can be pickled to any worker; connections are opened there at first use.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from recordmill.schemas.errors import MissingFileError, OutputError

WORK_FOLDER = ".recordmill"  # for unfinished runs, inside the output
SWAP_FOLDER = f"{WORK_FOLDER}/swap"  # on local disk, during a swap

Data = bytes | memoryview
"""All bytes of a file, or a view of a memory-mapped file."""

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

_TEMP_NAME = re.compile(r"(?:.*/)?\.[^/]+\.[0-9a-f]{32}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Level:
    """The files and folders directly in a folder; names are relative to the root.

    On a file system, empty folders may be among them; object stores have none.
    """

    files: dict[str, int]  # names and sizes, by name
    folders: tuple[str, ...]
    unfinished: dict[str, int]  # temporary files of active or killed writers
    # CRC-32C of the files for which the store keeps one.
    checksums: dict[str, int] = field(default_factory=dict, compare=False)
    # On local disk: symbolic links to folders, which are not in `folders`.
    linked_folders: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        files: dict[str, int],
        folders: Iterable[str],
        checksums: dict[str, int] | None = None,
        linked_folders: Iterable[str] = (),
    ) -> Level:
        """Returns the level of a listed folder, with sorted names."""
        ordered = sorted(files.items())
        finished = {name: size for name, size in ordered if not is_temp_file(name)}
        unfinished = {name: size for name, size in ordered if is_temp_file(name)}
        links = tuple(sorted(linked_folders))
        return cls(finished, tuple(sorted(folders)), unfinished, checksums or {}, links)


class Store(ABC):
    """A set of files below one root. Names are relative, with `/` between folders.

    Every method raises OutputError if the storage refuses, and MissingFileError if a
    required file is missing. Transient errors (timeouts, lost connections, status 5xx)
    are retried first.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def uri(self) -> str:
        """Returns the URI of the root, as people write it."""

    @property
    @abstractmethod
    def swaps_exclusively(self) -> bool:
        """Returns whether this kind of store is expected to swap exclusively."""

    @abstractmethod
    def subfolder_store(self, folder: str) -> Store:
        """Returns the store of a folder in this one."""

    @abstractmethod
    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        """Puts a copy of a local file; readers see all of it or nothing.

        A file of that name is replaced in one step. Safe to repeat. The local file must not
        change during the call; the CRC-32C of its bytes is compared with the store's own
        checksum, if it has one.
        """

    @abstractmethod
    def put_bytes(self, data: Data, name: str) -> None:
        """Puts a small file; readers see all of it or nothing. Safe to repeat."""

    @abstractmethod
    def swap(self, data: Data, name: str, *, expected_content: bytes | None) -> bool:
        """Puts a small file if it still has the expected content, in one step.

        If several swaps have the same `expected_content`, only one succeeds, unless their
        `data` is equal. Safe to repeat. If `exclusive` is false, the file is read, put
        and read again: two swaps at the same moment may then both succeed.

        Args:
          data: the new content.
          name: the file.
          expected_content: the current content of the file; None if it must not exist.

        Returns:
          True if the file's content is `data` now. If a response was lost, an earlier
            try of this call may have put the file, so a file that equals `data` counts
            as put. A caller that must be the only writer includes unique bytes in
            `data`.

        Raises:
          BusyError: on local disk, another process is stopped during its swap.
        """

    def discard(self, name: str, *, expected_content: bytes) -> bool:
        """Removes a small file if it still has the expected content.

        Returns whether the file is missing now. Safe to repeat after a lost response. If
        `exclusive` is false, a version that is put at the same moment is also removed.
        """
        content = self.read_if_exists(name)
        if content is None or content != expected_content:
            return content is None
        self.delete([name])
        return True

    def remove_from_cache(self, name: str) -> bool:
        """Removes a file from the cache, if any; returns whether it was cached."""
        return False

    def read_if_exists(self, name: str) -> bytes | None:
        """Returns all bytes of a file, or None if there is no such file."""
        try:
            return self.read(name)
        except MissingFileError:
            return None

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Returns all bytes of a file."""

    @abstractmethod
    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Returns the bytes from start to stop; fewer if the file ends before."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Returns the size of a file in bytes, or None if there is no such file."""

    @abstractmethod
    def modified_time(self, name: str) -> float | None:
        """Returns a file's modification time (Unix seconds, store's clock), or None."""

    @abstractmethod
    def list_tree(self, folder: str) -> dict[str, int]:
        """Returns names and sizes of all files in a folder and below it, by name."""

    def list(self, folder: str = "") -> dict[str, int]:
        """Returns names and sizes of the finished files in a folder and below it."""
        sizes = self.list_tree(folder)
        return {name: size for name, size in sizes.items() if not is_temp_file(name)}

    @abstractmethod
    def list_level(self, folder: str = "") -> Level:
        """Returns the files and folders directly in a folder."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Removes files; ignores missing files."""

    def remove_tree(self, folder: str) -> None:
        """Removes a folder and its content in any order; ignores a missing folder.

        For folders without readers: a killed call leaves some of the files.
        """
        self.delete(self.list(folder))

    @abstractmethod
    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Moves files, given as (source, target), in any order; targets are replaced.

        At any moment a target is complete or does not exist. An object store copies the
        file, checks that the copy is complete, then deletes the source.
        """

    def for_each(
        self, action: Callable[[_Argument], _Result], arguments: Iterable[_Argument]
    ) -> Sequence[_Result]:
        """Returns the results of a function that uses this store, one per argument.

        Remote stores call it for several arguments at once, because requests are slow.
        """
        return [action(argument) for argument in arguments]

    def put_all(self, files: Mapping[str, Data]) -> None:
        """Puts small files, by name, in any order."""
        self.for_each(lambda name: self.put_bytes(files[name], name), files)

    def keeps_conditions(self, name: str) -> bool:
        """Returns whether `swap` is really exclusive here.

        The file must exist; its content may be changed.
        """
        return self.swaps_exclusively and not self.swap(
            uuid.uuid4().bytes, name, expected_content=None
        )

    def checksum(self, name: str) -> int | None:
        """Returns the CRC-32C that the store keeps for a file, or None."""
        return None

    def list_temp_files(self, folder: str = "") -> dict[str, int]:
        """Returns names and sizes of the temporary files in a folder and below it.

        They belong to active writers, or were left by killed ones.
        """
        sizes = self.list_tree(folder)
        return {name: size for name, size in sizes.items() if is_temp_file(name)}

    def with_short_retries(self) -> Store:
        """Returns the same store, with retries for seconds instead of minutes."""
        return self

    def uri_of(self, name: str) -> str:
        """Returns the URI of a file, as people write it."""
        return f"{self.uri.rstrip('/')}/{name}"

    def preflight(self) -> bool:
        """Checks that files can be written, read and removed here.

        Returns whether `swap` is really exclusive.

        Raises:
          OutputError: the storage refuses, or returns other bytes than were written.
        """
        store = self.with_short_retries()
        name, first = new_probe(), uuid.uuid4().bytes
        try:
            if (
                not store.swap(first, name, expected_content=None)
                or store.read(name) != first
            ):
                raise OutputError(
                    f"{store.uri_of(name)}: the bytes read differ from those written; "
                    "this storage is not reliable, choose another one"
                )
            exclusive = store.keeps_conditions(name)
        except BaseException:
            with suppress(OutputError):  # the first error is the useful one
                store.delete([name])
            raise
        store.delete([name])
        return exclusive


def new_probe() -> str:
    """Returns a unique name for a trial write."""
    return f"{WORK_FOLDER}/probe-{uuid.uuid4().hex}"


_adapter: Callable[[type], TypeAdapter[Any]] = cache(
    TypeAdapter
)  # takes milliseconds to build
_Parsed = TypeVar("_Parsed")


def parse_json(
    data: bytes, kind: type[_Parsed], *, strict: bool = True
) -> _Parsed | None:
    """Returns the dataclass instance in a JSON file; None if the JSON is not valid."""
    try:
        return cast("_Parsed", _adapter(kind).validate_json(data, strict=strict))
    except ValidationError:
        return None


def to_json(value: object) -> bytes:
    """Returns a dataclass instance as JSON, which `parse_json` reads."""
    return _adapter(type(value)).dump_json(value, by_alias=True)


def is_temp_file(name: str) -> bool:
    """Returns whether a name belongs to a temporary file (see `temp_path`)."""
    return _TEMP_NAME.fullmatch(name) is not None
