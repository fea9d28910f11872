"""What every store can do: whole files under names relative to one root.

A store is a small frozen value (root and non-secret options). Building one touches no
storage, so it pickles to any worker; connections are made there, on first use.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from recordmill.schemas.errors import OutputError

WORK_FOLDER = ".recordmill"  # of the runs in progress, inside the output

_ASIDE = re.compile(r"(?:.*/)?\.[^/]+\.[0-9a-f]{32}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a store said when it was tried.

    Attributes:
      exclusive: whether `create` really lets only one of several through.
      free_bytes: space left, None where it cannot be known.
    """

    exclusive: bool
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Level:
    """What lies directly in a folder.

    Attributes:
      files: their names, from the store's root on, and sizes; by name.
      folders: names of the folders, likewise. Where folders are more than parts of
        names, one that holds no file may be among them.
      unfinished: hidden files of writers, which are at work or were killed.
      checksums: CRC-32C of those files for which the store keeps one.
    """

    files: dict[str, int]
    folders: tuple[str, ...]
    unfinished: dict[str, int]
    checksums: dict[str, int] = field(default_factory=dict, compare=False)


class Store(ABC):
    """The files below one root. Names are relative, with `/` between the parts.

    Every method raises OutputError if the storage refuses, saying where, what and the
    way out. Transient faults (timeouts, lost connections, 5xx) are tried again first.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root, as people write it."""

    @property
    @abstractmethod
    def exclusive(self) -> bool:
        """Whether `create` is exclusive by what is known of this kind of store."""

    @abstractmethod
    def below(self, folder: str) -> Store:
        """The store of a folder in this one."""

    @abstractmethod
    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        """Puts a copy of a local file; readers see all of it or nothing of it.

        A file of that name is replaced in one step. Safe to repeat.

        Args:
          source: the local file; must not change meanwhile.
          name: where to.
          crc32c: of its bytes; compared with what the store computed, if it does.
        """

    @abstractmethod
    def put_bytes(self, data: bytes, name: str) -> None:
        """Puts a small file, whole or not at all. Safe to repeat."""

    @abstractmethod
    def create(self, data: bytes, name: str) -> bool:
        """Puts a small file unless there is one of that name.

        Returns:
          Whether `data` is what stands there now. Where an answer was lost on its way,
          an earlier try of this call may have put it: so a file that equals `data`
          counts as created, and who needs to be the only one puts something of its own
          into `data`.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """All bytes of a file; MissingFileError if there is none."""

    @abstractmethod
    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes start to stop; fewer if the file ends before. MissingFileError."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Bytes of a file, or None if there is none."""

    @abstractmethod
    def modified(self, name: str) -> float | None:
        """When a file was written by the store's clock, in Unix seconds; or None."""

    @abstractmethod
    def list(self, folder: str = "") -> dict[str, int]:
        """Names and sizes of all files in a folder and those below, by name."""

    @abstractmethod
    def list_level(self, folder: str = "") -> Level:
        """What lies directly in a folder: cheap, however much is below it."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Removes files. One that is missing is fine."""

    def remove_tree(self, folder: str) -> None:
        """Removes a folder and all below it, in any order. One that is missing is fine.

        For what no reader trusts (any more): killed amid it, a part of it stays.
        """
        self.delete(self.list(folder))

    @abstractmethod
    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Moves files, (source, target) each, in any order, replacing the targets.

        Each target is whole or not there at any moment. An object store copies, looks
        whether the copy is whole, then deletes the source. MissingFileError if a source
        is missing.
        """

    def move(self, source: str, target: str) -> None:
        """Moves one file, as `move_all` does."""
        self.move_all([(source, target)])

    def checksum(self, name: str) -> int | None:
        """CRC-32C of a file, if the store keeps one; nothing is read for it."""
        return None

    def free_bytes(self) -> int | None:
        """Space left for new files, None where it cannot be known."""
        return None

    def unfinished(self) -> dict[str, int]:
        """Hidden files that killed writers left, with sizes; `delete` removes them.

        A writer that is at work has such files too: ask when none is.
        """
        return {}

    def with_short_retries(self) -> Store:
        """The same store, which gives up on faults after seconds, not minutes."""
        return self

    def uri_of(self, name: str) -> str:
        """Where a file is, as people write it."""
        return f"{self.uri.rstrip('/')}/{name}"

    def preflight(self) -> Preflight:
        """Makes sure that files can be written, read and removed here.

        Raises:
          OutputError: they cannot; what to do about it.
        """
        store = self.with_short_retries()
        name = f"{WORK_FOLDER}/probe-{uuid.uuid4().hex}"
        first, second = uuid.uuid4().bytes, uuid.uuid4().bytes
        try:
            created = store.create(first, name)
            if not created or store.read(name) != first:
                raise OutputError(
                    f"{store.uri_of(name)}: was written, but reads otherwise; this "
                    "storage cannot be trusted with a dataset"
                )
            # There are stores that know nothing of conditions and simply overwrite.
            exclusive = self.exclusive and not store.create(second, name)
        except BaseException:
            with suppress(OutputError):  # the first error says more
                store.delete([name])
            raise
        store.delete([name])
        return Preflight(exclusive, store.free_bytes())


def check_name(name: str) -> str:
    """The name, if it stays below the root and means the same in every store.

    Raises:
      ValueError: it does not, which is a bug of the caller.
    """
    parts = name.split("/")
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"names are relative paths like a/b, got {name!r}")
    return name


def is_temp_file(name: str) -> bool:
    """Whether this is the hidden file of a writer at work (recordmill.transforms.storage.atomic_files)."""
    return _ASIDE.fullmatch(name) is not None
