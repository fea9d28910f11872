"""Says what a disk holds after its power was lost: of all that was not synced, any part.

What counts is what POSIX promises: the content of a file is on disk after an fsync of
the file, a name after an fsync of its folder. All else may be there or not, each thing
on its own: a name without its data, a removal without the name that was made before it.
A rename happens whole: no file system that is in use loses a file that is renamed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """One name in one folder that was given to an inode, or taken away (None)."""

    folder: int
    name: str
    inode: int | None


@dataclass(frozen=True, slots=True)
class Names:
    """What one call changed: a rename gives a name and takes one away.

    Attributes:
      edits: what is given comes first.
      folder: whether the call made a folder.
    """

    edits: tuple[Edit, ...]
    folder: bool = False

    @property
    def gives(self) -> bool:
        return self.edits[0].inode is not None


@dataclass(frozen=True, slots=True)
class Written:
    """A file has this content now."""

    inode: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Synced:
    """A file or a folder was synced."""

    inode: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A command began or ended."""

    text: str


Event = Names | Written | Synced | Mark


@dataclass(slots=True)
class _File:
    synced: bytes = b""
    since: list[bytes] = field(default_factory=list)


# Which calls that nothing made durable are on disk, and what of the bytes.
KeepsNames = Callable[[Names, random.Random], bool]
KeepsData = Callable[[bytes, Sequence[bytes], random.Random], bytes]


def _torn(synced: bytes, since: Sequence[bytes], draw: random.Random) -> bytes:
    """Any mixture of what the file held since its last fsync."""
    last = since[-1]
    kind = draw.randrange(5)
    if kind == 0:
        return synced
    if kind == 1:
        return last
    if kind == 2:
        return last[: draw.randint(0, len(last))]
    if kind == 3:
        return bytes(len(last))
    cut = draw.randint(0, len(last))
    return last[:cut] + bytes(len(last) - cut)


def _nothing(synced: bytes, since: Sequence[bytes], draw: random.Random) -> bytes:
    return synced


def _everything(synced: bytes, since: Sequence[bytes], draw: random.Random) -> bytes:
    return since[-1]


LOSSES: dict[str, tuple[KeepsNames, KeepsData]] = {
    "nothing": (lambda call, draw: True, _everything),
    "all is lost": (lambda call, draw: False, _nothing),
    "names without data": (lambda call, draw: True, _nothing),
    "data without names": (lambda call, draw: False, _everything),
    "removals alone": (lambda call, draw: not call.gives, _torn),
    "no removals": (lambda call, draw: call.gives, _torn),
    "any": (lambda call, draw: draw.random() < 0.5, _torn),
    "few": (lambda call, draw: draw.random() < 0.9, _torn),
}


class Disk:
    """A disk as it may be when the power goes after some events."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._files: dict[int, _File] = {}
        self._calls: list[Names] = []
        self._synced_at: dict[int, int] = {}  # folder: calls before its last fsync
        for event in events:
            if isinstance(event, Names):
                self._calls.append(event)
            elif isinstance(event, Written):
                file = self._files.setdefault(event.inode, _File())
                file.since.append(event.data)
            elif isinstance(event, Synced):
                self._synced_at[event.inode] = len(self._calls)
                if (synced := self._files.get(event.inode)) and synced.since:
                    self._files[event.inode] = _File(synced.since[-1])

    def after_loss(self, loss: str, draw: random.Random) -> dict[str, bytes | None]:
        """The files, by path, and None for each folder."""
        keeps_call, keeps_data = LOSSES[loss]
        folders: dict[int, dict[str, int]] = {0: {}}
        for call in self._calls:
            if call.folder and (made := call.edits[0].inode) is not None:
                folders[made] = {}
        for number, call in enumerate(self._calls):
            durable = [number < self._synced_at.get(e.folder, 0) for e in call.edits]
            # Of a rename, never the removal alone.
            whole = durable[-1] or keeps_call(call, draw)
            for edit, is_durable in zip(call.edits, durable, strict=True):
                names = folders[edit.folder]
                if not (whole or is_durable):
                    continue
                if edit.inode is None:
                    names.pop(edit.name, None)
                else:
                    names[edit.name] = edit.inode
        contents = {
            inode: keeps_data(file.synced, file.since, draw)
            if file.since
            else file.synced
            for inode, file in self._files.items()
        }
        found: dict[str, bytes | None] = {}
        self._collect(0, "", folders, contents, found)
        return found

    def _collect(
        self,
        folder: int,
        prefix: str,
        folders: dict[int, dict[str, int]],
        contents: dict[int, bytes],
        found: dict[str, bytes | None],
    ) -> None:
        for name, inode in folders[folder].items():
            path = f"{prefix}{name}"
            if inode in folders:
                found[path] = None
                self._collect(inode, f"{path}/", folders, contents, found)
            else:
                found[path] = contents.get(inode, b"")


def write_files(files: dict[str, bytes | None], root: Path) -> None:
    """Makes the files and folders of a disk."""
    for name, data in files.items():
        path = root / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
