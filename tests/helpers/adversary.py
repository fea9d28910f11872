"""Runs real commits over a store whose operations a scheduler orders, delays and kills.

Every operation of every run waits for its turn, so one seed gives one history. There is
no lease: a run may always believe that it has one, as it does after a long pause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from recordmill.schemas.errors import MissingFileError, RecordmillError
from recordmill.transforms.storage.store import Level, Store

Effect = Callable[[], Any]


class KilledError(BaseException):
    """Stands for the end of a process."""


class Baton:
    """Lets one run at a time do one operation.

    Attributes:
      files: what is in the store.
      before: what was there before the last operation.
      actors: the runs.
      check: is called after each operation that changed something.
      taken_late: files that an operation of a killed run removed when it arrived.
    """

    def __init__(self, check: Callable[[Actor | None], None]) -> None:
        self.files: dict[str, bytes] = {}
        self.before: dict[str, bytes] = {}
        self.actors: list[Actor] = []
        self.check = check
        self.late: list[Effect] = []
        self.taken_late: set[str] = set()
        self._here = threading.local()

    def start(self, name: str, work: Callable[[Actor], object]) -> Actor:
        actor = Actor(name, self)
        self.actors.append(actor)

        def run() -> None:
            self._here.actor = actor
            try:
                actor.wait(lambda: None)
                actor.result = work(actor)
            except (RecordmillError, KilledError) as error:
                actor.error = error
            except BaseException as error:
                actor.bug = error
            actor.pending = None
            actor.back.release()

        actor.thread = threading.Thread(target=run, daemon=True)
        actor.thread.start()
        actor.back.acquire()
        return actor

    def do(self, effect: Effect, *, writes: bool, what: str = "") -> Any:
        """Does an operation when it is the caller's turn."""
        actor = getattr(self._here, "actor", None)
        if actor is None:
            return effect()
        actor.wait(effect, writes=writes, what=what)
        result = effect()
        if actor.repeat:  # the answer was lost, so the client asks again
            actor.repeat = False
            actor.wait(effect, writes=writes, what=what)
            result = effect()
        return result

    def turn(self, actor: Actor, *, repeat: bool = False) -> None:
        """Lets a run do its next operation."""
        before = self.before = self.files.copy()
        actor.repeat = repeat and actor.writes
        actor.go.release()
        actor.back.acquire()
        actor.steps += 1
        if actor.bug is not None:
            raise actor.bug
        if self.files != before:
            self.check(actor)

    def kill(self, actor: Actor, *, late: bool = False) -> None:
        """Ends a run; its operation may still be on its way to the store."""
        effect = actor.pending
        actor.killed = True
        actor.go.release()
        actor.back.acquire()
        if late and effect is not None and actor.writes:
            self.late.append(effect)

    def land(self) -> None:
        """Lets an operation of a killed run arrive."""
        effect, before = self.late.pop(), set(self.files)
        try:
            effect()
        except RecordmillError:
            return
        self.taken_late |= before - self.files.keys()
        self.check(None)

    def end_all(self) -> None:
        """Ends all runs, so that none of their threads stays."""
        for actor in self.actors:
            if actor.is_alive:
                self.kill(actor)

    def pause_before(self, actor: Actor, what: str) -> None:
        """Lets a run go on until it is to do an operation like "swap manifest.json"."""
        while actor.is_alive and actor.what != what:
            self.turn(actor)

    def finish(self, actor: Actor) -> None:
        while actor.is_alive:
            self.turn(actor)


@dataclass
class Actor:
    """One run, which waits before each of its operations."""

    name: str
    baton: Baton
    result: object = None
    error: BaseException | None = None
    bug: BaseException | None = None
    pending: Effect | None = None
    writes: bool = False
    what: str = ""  # the operation that it waits for, if it is a swap
    killed: bool = False
    repeat: bool = False
    steps: int = 0
    allowed: set[str] = field(default_factory=set)  # digests it may replace
    may_end_jobs: bool = False  # detached ones of others
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        return self.pending is not None

    def wait(self, effect: Effect, *, writes: bool = False, what: str = "") -> None:
        if self.killed:
            raise KilledError
        self.pending, self.writes, self.what = effect, writes, what
        self.back.release()
        self.go.acquire()
        if self.killed:
            raise KilledError


@dataclass(frozen=True)
class SlowStore(Store):
    """A store in memory, each of whose operations waits for its turn.

    Attributes:
      baton: gives the turns.
      root: the folder.
    """

    baton: Baton
    root: str = ""
    conditional: bool = True  # whether `swap` looks at what is there

    @property
    def uri(self) -> str:
        return f"slow://store/{self.root}".rstrip("/")

    @property
    def swaps_exclusively(self) -> bool:
        return True

    def subfolder_store(self, folder: str) -> SlowStore:
        return SlowStore(self.baton, f"{self.root}{folder}/", self.conditional)

    def put_file(self, source: Any, name: str, *, crc32c: int | None = None) -> None:
        self.put_bytes(source.read_bytes(), name)

    def put_bytes(self, data: bytes, name: str) -> None:
        self._write(lambda: self._files.__setitem__(self.root + name, data))

    def swap(self, data: bytes, name: str, *, expected_content: bytes | None) -> bool:
        def swap() -> bool:
            found = self._files.get(self.root + name)
            if self.conditional and found not in (expected_content, data):
                return False
            self._files[self.root + name] = data
            return True

        return bool(self.baton.do(swap, writes=True, what=f"swap {name}"))

    def discard(self, name: str, *, expected_content: bytes) -> bool:
        def discard() -> bool:
            if self._files.get(self.root + name) == expected_content:
                del self._files[self.root + name]
            return self.root + name not in self._files

        return bool(self._write(discard))

    def read(self, name: str) -> bytes:
        found = self._read(lambda: self._files.get(self.root + name))
        if found is None:
            raise MissingFileError(f"{name}: is missing")
        return bytes(found)

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        return self.read(name)[start:stop]

    def size(self, name: str) -> int | None:
        found = self._read(lambda: self._files.get(self.root + name))
        return None if found is None else len(found)

    def modified_time(self, name: str) -> float | None:
        return None if self.size(name) is None else 0.0

    def list_tree(self, folder: str) -> dict[str, int]:
        start = f"{self.root}{folder}/" if folder else self.root

        def found() -> dict[str, int]:
            return {
                name.removeprefix(self.root): len(data)
                for name, data in sorted(self._files.items())
                if name.startswith(start)
            }

        return dict(self._read(found))

    def list_temp_files(self, folder: str = "") -> dict[str, int]:
        return {}

    def list_level(self, folder: str = "") -> Level:
        start = f"{folder}/" if folder else ""
        files, folders = {}, set()
        for name, size in self.list(folder).items():
            top, slash, _ = name.removeprefix(start).partition("/")
            if slash:
                folders.add(start + top)
            else:
                files[name] = size
        return Level(files, tuple(sorted(folders)), {})

    def delete(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._write(lambda name=name: self._files.pop(self.root + name, None))  # type: ignore[misc]

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Copies, then deletes, as object stores do."""
        for source, target in list(pairs):

            def copy(source: str = source, target: str = target) -> bool:
                data = self._files.get(self.root + source)
                if data is not None:
                    self._files[self.root + target] = data
                return data is not None

            if not self._write(copy):
                raise MissingFileError(f"{source}: is missing")
            self.delete([source])

    @property
    def _files(self) -> dict[str, bytes]:
        return self.baton.files

    def _read(self, effect: Effect) -> Any:
        return self.baton.do(effect, writes=False)

    def _write(self, effect: Effect) -> Any:
        return self.baton.do(effect, writes=True)
