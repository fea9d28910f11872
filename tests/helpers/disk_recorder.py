"""Runs commands and records what they do to a disk: `python disk_recorder.py ROOT LOG`.

Every function of Python that changes names, or syncs, is replaced before anything of
the project is imported. After each call the whole folder is looked at: contents are read
from the files themselves, so it does not matter who wrote them, and a name that appeared
or went without being recorded ends the run. An fsync that is not seen can only make the
disk forget more.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import pickle
import shutil  # noqa: F401  it looks at import whether os.unlink takes descriptors
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from disk_log import Edit, Event, Mark, Names, Synced, Written

_REAL_OPEN = builtins.open


class DiskRecorder:
    """A record of all changes below a folder.

    Attributes:
      events: what happened, in order.
    """

    def __init__(self, root: Path) -> None:
        self.events: list[Event] = []
        self._root = str(root)
        # Path below the root: number of the inode.
        self._names: dict[str, int] = {"": 0}
        self._contents: dict[int, bytes] = {}
        self._numbers = 0
        self._guard = threading.RLock()

    def begin(self) -> None:
        """Notes what is there already, and that all of it is on disk."""
        for path in sorted(Path(self._root).rglob("*")):
            name, number = str(path.relative_to(self._root)), self._new()
            folder, _, last = name.rpartition("/")
            edit = Edit(self._names[folder], last, number)
            self.events.append(Names((edit,), path.is_dir()))
            self._names[name] = number
        self._look()
        self.events += [Synced(number) for number in self._names.values()]

    def mark(self, text: str) -> None:
        with self._guard:
            self.events.append(Mark(text))

    def install(self) -> None:
        """Replaces the functions; for the rest of this process."""
        builtins.open = io.open = self._opening(_REAL_OPEN)  # type: ignore[assignment]
        os.open = self._opening(os.open)
        os.rename = os.replace = self._moving(os.rename)
        os.link = self._linking(os.link)
        os.unlink = os.remove = self._removing(os.unlink)
        os.rmdir = self._removing(os.rmdir)
        os.mkdir = self._making(os.mkdir)
        os.fsync = self._syncing(os.fsync)
        os.fdatasync = self._syncing(os.fdatasync)

    # --- what is replaced ---

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *args: Any, **options: Any) -> Any:
            name = None if isinstance(file, int) else self._name(file, options)
            if name is None:
                return real(file, *args, **options)
            with self._guard:
                opened = real(file, *args, **options)
                if name not in self._names and os.path.lexists(f"{self._root}/{name}"):
                    self._change((name, self._new(b"")))
                return opened

        return call

    def _making(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> None:
            with self._guard:
                real(path, *args, **options)
                if (name := self._name(path, options)) is not None:
                    self._change((name, self._new()), folder=True)

        return call

    def _removing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> None:
            with self._guard:
                name = self._name(path, options)
                real(path, *args, **options)
                if name is not None:
                    self._change((name, None))

        return call

    def _moving(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, **options: Any) -> None:
            with self._guard:
                start = self._name(source, options, "src_dir_fd")
                end = self._name(target, options, "dst_dir_fd")
                self._look()  # what is renamed may be replaced before it is seen
                real(source, target, **options)
                if start is not None or end is not None:
                    if start is None or end is None:
                        raise AssertionError(f"{source} -> {target}: crosses the disk")
                    below = [n for n in self._names if n.startswith(f"{start}/")]
                    if below:
                        raise AssertionError(f"{source}: a folder is renamed")
                    self._change((end, self._names[start]), (start, None))

        return call

    def _linking(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, **options: Any) -> None:
            with self._guard:
                real(source, target, **options)
                start = self._name(source, options, "src_dir_fd")
                end = self._name(target, options, "dst_dir_fd")
                if start is not None and end is not None:
                    self._change((end, self._names[start]))

        return call

    def _syncing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            path = _opened_path(descriptor)
            with self._guard:
                self._look()  # what is written behind this look may not be synced
                real(descriptor)
                name = self._name(path)
                if name in self._names:  # else it was removed
                    self.events.append(Synced(self._names[name]))

        return call

    # --- the disk ---

    def _name(
        self,
        path: Any,
        options: dict[str, Any] | None = None,
        descriptor: str = "dir_fd",
    ) -> str | None:
        """The path below the root; None if it is elsewhere."""
        folder = (options or {}).get(descriptor)
        start = Path() if folder is None else _opened_path(folder)
        whole = (start / os.fsdecode(path)).absolute()
        if whole.parts[:4] == ("/", "proc", "self", "fd") and len(whole.parts) > 5:
            whole = _opened_path(int(whole.parts[4])).joinpath(*whole.parts[5:])
        text = str(whole)
        if text == self._root:
            return ""
        prefix = f"{self._root}/"
        return text.removeprefix(prefix) if text.startswith(prefix) else None

    def _new(self, data: bytes | None = None) -> int:
        self._numbers += 1
        if data is not None:
            self._contents[self._numbers] = data
        return self._numbers

    def _change(self, *changes: tuple[str, int | None], folder: bool = False) -> None:
        edits = []
        for name, number in changes:
            parent, _, last = name.rpartition("/")
            edits.append(Edit(self._names[parent], last, number))
            if number is None:
                del self._names[name]
            else:
                self._names[name] = number
        self.events.append(Names(tuple(edits), folder))
        self._look()

    def _look(self) -> None:
        """Notes what was written, and makes sure that no other name changed."""
        found = {""}
        for folder, folders, files in os.walk(self._root):
            inside = os.path.relpath(folder, self._root)
            prefix = "" if inside == "." else f"{inside}/"
            found |= {f"{prefix}{name}" for name in folders}
            for file in files:
                name = f"{prefix}{file}"
                found.add(name)
                with _REAL_OPEN(f"{self._root}/{name}", "rb") as opened:
                    data = opened.read()
                number = self._names.get(name, 0)
                if data != self._contents.get(number):
                    self._contents[number] = data
                    self.events.append(Written(number, data))
        if found != self._names.keys():
            raise AssertionError(f"not recorded: {sorted(found ^ self._names.keys())}")


def _opened_path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def main(root: str, log: str) -> None:
    recorder = DiskRecorder(Path(root))
    recorder.begin()
    recorder.install()
    from recordmill.beam_jobs.cli.main import run

    for command in json.load(sys.stdin):
        recorder.mark("begin")
        status = run(command)
        if status:
            raise AssertionError(f"{command}: exit status {status}")
        recorder.mark("end")
    Path(log).write_bytes(pickle.dumps(recorder.events))


if __name__ == "__main__":
    main(*sys.argv[1:])
