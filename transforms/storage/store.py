"""Defines what every store can do: keep whole files under names relative to one root.

A store is a small frozen value (root and options without secrets). Building one touches
no storage, so it can be pickled to any worker; connections are made there at first use.
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

WORK_FOLDER = ".recordmill"  # of unfinished runs, inside the output
SWAP_FOLDER = f"{WORK_FOLDER}/swap"  # of swaps on local disk, only while they last

Data = bytes | memoryview
"""All bytes of a file; a view of those that are mapped before they are put."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_TEMP_NAME = re.compile(r"(?:.*/)?\.[^/]+\.[0-9a-f]{32}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Level:
    """The files and folders directly in a folder; names are relative to the root.

    Where folders exist on their own (not in object stores), empty ones may be among them.
    """

    files: dict[str, int]  # names and sizes, by name
    folders: tuple[str, ...]
    unfinished: dict[str, int]  # of writers that are at work or were killed
    # CRC-32C of the files for which the store keeps one.
    checksums: dict[str, int] = field(default_factory=dict, compare=False)
    # On local disk: symbolic links to folders, which are not among the folders.
    linked_folders: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        files: dict[str, int],
        folders: Iterable[str],
        checksums: dict[str, int] | None = None,
        linked_folders: Iterable[str] = (),
    ) -> Level:
        """Returns what was found in a folder, in order."""
        ordered = sorted(files.items())
        finished = {name: size for name, size in ordered if not is_temp_file(name)}
        unfinished = {name: size for name, size in ordered if is_temp_file(name)}
        links = tuple(sorted(linked_folders))
        return cls(finished, tuple(sorted(folders)), unfinished, checksums or {}, links)


class Store(ABC):
    """A set of files below one root. Names are relative, with `/` between folders.

    Every method raises OutputError if the storage refuses, and MissingFileError where it
    needs a file that is missing. Transient errors (timeouts, lost connections, status 5xx)
    are retried first.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def uri(self) -> str:
        """Returns the root, as people write it."""

    @property
    @abstractmethod
    def exclusive(self) -> bool:
        """Tells whether this kind of store is expected to swap exclusively."""

    @abstractmethod
    def below(self, folder: str) -> Store:
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
    def swap(self, data: Data, name: str, *, seen: bytes | None) -> bool:
        """Puts a small file if its content is still exactly `seen`, in one step.

        Of several swaps with the same `seen` only one succeeds, unless their `data` is
        the same. Safe to repeat. Where `exclusive` is false, the file is read, put and
        read again: two swaps within the same moment may then both succeed.

        Where `seen` is None, there must be no such file.

        Returns:
          Whether the file's content is `data` now. If an answer was lost, an earlier
          try of this call may have put it, so a file that equals `data` counts as put.
          A caller that must be the only one puts a unique value into `data`.

        Raises:
          BusyError: on local disk, another process is stopped amid its swap.
        """

    def discard(self, name: str, *, seen: bytes) -> bool:
        """Removes a small file if its content is still exactly `seen`.

        Returns whether there is no such file now. Safe to repeat after a lost answer. Where
        `exclusive` is false, a version that comes within that moment is removed, too.
        """
        found = self.find(name)
        if found is None or found != seen:
            return found is None
        self.delete([name])
        return True

    def forget(self, name: str) -> bool:
        """Drops what a cache holds of a file; returns whether there was any."""
        return False

    def find(self, name: str) -> bytes | None:
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
    def modified(self, name: str) -> float | None:
        """Returns when a file was written, in Unix seconds of the store's clock, or None."""

    @abstractmethod
    def all_files(self, folder: str) -> dict[str, int]:
        """Lists names and sizes of all files in a folder and its subfolders, by name."""

    def list(self, folder: str = "") -> dict[str, int]:
        """Lists those of `all_files` that are finished."""
        found = self.all_files(folder)
        return {name: size for name, size in found.items() if not is_temp_file(name)}

    @abstractmethod
    def list_level(self, folder: str = "") -> Level:
        """Returns what lies directly in a folder; subfolders are not listed."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Removes files; missing ones are ignored."""

    def remove_tree(self, folder: str) -> None:
        """Removes a folder and all below it, in any order; a missing one is ignored.

        For folders that no reader uses any more: a killed call leaves some files
        behind.
        """
        self.delete(self.list(folder))

    @abstractmethod
    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Moves files, given as (source, target), in any order; targets are replaced.

        At any moment a target is whole or does not exist. An object store copies,
        checks that the copy is complete, then deletes the source.
        """

    def for_each(
        self, action: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Sequence[_Result]:
        """Calls a function that asks this store, for each item; returns the results.

        Where an answer takes long, for several items at once.
        """
        return [action(item) for item in items]

    def put_all(self, files: Mapping[str, Data]) -> None:
        """Puts small files, by name, in any order."""
        self.for_each(lambda name: self.put_bytes(files[name], name), files)

    def keeps_conditions(self, name: str) -> bool:
        """Tells whether `swap` is really exclusive here.

        There is a file of that name; its content may be changed.
        """
        return self.exclusive and not self.swap(uuid.uuid4().bytes, name, seen=None)

    def checksum(self, name: str) -> int | None:
        """Returns the CRC-32C that the store keeps of a file, or None."""
        return None

    def unfinished(self, folder: str = "") -> dict[str, int]:
        """Returns names and sizes of the temporary files in a folder and below it.

        Killed writers left them. Writers that are at work have such files too.
        """
        found = self.all_files(folder)
        return {name: size for name, size in found.items() if is_temp_file(name)}

    def with_short_retries(self) -> Store:
        """Returns the same store, with retries for seconds instead of minutes."""
        return self

    def uri_of(self, name: str) -> str:
        """Returns the URI of a file, as people write it."""
        return f"{self.uri.rstrip('/')}/{name}"

    def preflight(self) -> bool:
        """Checks that files can be written, read and removed here, or raises OutputError.

        Returns whether `swap` really lets only one of several writers succeed.
        """
        store = self.with_short_retries()
        name, first = new_probe(), uuid.uuid4().bytes
        try:
            if not store.swap(first, name, seen=None) or store.read(name) != first:
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
    """Returns a name for a trial write that no other has."""
    return f"{WORK_FOLDER}/probe-{uuid.uuid4().hex}"


_adapter: Callable[[type], TypeAdapter[Any]] = cache(
    TypeAdapter
)  # takes milliseconds to build
_Value = TypeVar("_Value")


def value_of(data: bytes, kind: type[_Value], *, strict: bool = True) -> _Value | None:
    """Returns the dataclass that is in a JSON file; None if it is not valid."""
    try:
        return cast("_Value", _adapter(kind).validate_json(data, strict=strict))
    except ValidationError:
        return None


def bytes_of(value: object) -> bytes:
    """Returns a dataclass as JSON, which `value_of` reads."""
    return _adapter(type(value)).dump_json(value, by_alias=True)


def is_temp_file(name: str) -> bool:
    """Tells whether a name is that of a temporary file (see `temp_path`)."""
    return _TEMP_NAME.fullmatch(name) is not None
