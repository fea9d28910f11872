"""What finished tasks leave behind: facts to resume from, rejects, errors.

A fact is written after what it tells of and appears whole, so a fact that exists is
true; a killed run is taken up from its facts.
"""

from __future__ import annotations

import base64
import json
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import Reject
from recordmill.transforms.tasks.workspace import Workspace

SECONDS_BETWEEN_LISTS = 2.0  # of a store, where each costs a request

_Fact = TypeVar("_Fact")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)  # takes milliseconds to build
    return _ADAPTERS[kind]


def save_checkpoint(workspace: Workspace, name: str, fact: object) -> None:
    """Writes the fact of a finished task."""
    data = _adapter(type(fact)).dump_json(fact, by_alias=True)
    workspace.put(f"facts/{name}.json", data)


def load_checkpoint(workspace: Workspace, name: str, kind: type[_Fact]) -> _Fact | None:
    """The fact of a task finished by an earlier try, or None."""
    data = workspace.get(f"facts/{name}.json")
    if data is None:
        return None
    try:
        fact: _Fact = _adapter(kind).validate_json(data)
        return fact
    except ValidationError:
        return None


def discard_checkpoint(workspace: Workspace, name: str) -> None:
    """Makes a task be done again, because what its fact tells of is damaged."""
    workspace.discard(f"facts/{name}.json")


class FinishedTasks:
    """Tells from the facts how far a run is."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._listed = -SECONDS_BETWEEN_LISTS
        self._seen: dict[str, float] = {}

    def times(self) -> dict[str, float]:
        """When each task finished, in Unix seconds, by the task's name.

        In a store that is when it was first seen, a few seconds later.
        """
        if not self._workspace.shared:
            seen = {}
            for path in self._workspace.local_path("facts").glob("*.json"):
                with suppress(FileNotFoundError):  # the run is over, and cleans up
                    seen[path.stem] = path.stat().st_mtime
            return {name: at for name, at in seen.items() if not name.startswith(".")}
        if time.monotonic() - self._listed >= SECONDS_BETWEEN_LISTS:
            names = self._workspace.names("facts")
            self._listed, now = time.monotonic(), time.time()
            for name in names:
                if name.endswith(".json"):
                    self._seen.setdefault(name.removesuffix(".json"), now)
        return dict(self._seen)

    def counts(self) -> tuple[int, int]:
        """How many ranges were read, and how many shards written."""
        names = self.times()
        ranges = sum(name.startswith("range-") for name in names)
        return ranges, sum(name.startswith("shard-") for name in names)


def save_rejects(workspace: Workspace, name: str, rejects: Iterable[Reject]) -> int:
    """Writes the rejects of one task as JSON lines; returns how many there are."""
    lines = [
        json.dumps(
            {
                "uri": reject.path,
                "position": reject.position,
                "reason": reject.reason,
                "raw": base64.b64encode(reject.raw).decode(),
            },
            ensure_ascii=False,
        )
        for reject in rejects
    ]
    file = f"{REJECTS_NAME}/{name}.jsonl"
    if lines:
        workspace.put(file, "".join(f"{line}\n" for line in lines).encode())
    else:
        workspace.discard(file)  # of a try that took the columns for other types
    return len(lines)


@contextmanager
def report_errors_to_launcher(workspace: Workspace) -> Iterator[None]:
    """Keeps an error's message where the launcher finds it, whatever the runner."""
    try:
        yield
    except GeneratorExit:
        raise  # a step that was left early, because of another's error
    except BaseException as error:
        note = {
            "expected": isinstance(error, RecordmillError | OSError | MemoryError),
            "kind": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
            "time": time.time(),
        }
        with suppress(Exception):  # what went wrong first says more
            if not workspace.shared:
                workspace.local_path("errors").mkdir(parents=True, exist_ok=True)
            workspace.put(f"errors/{uuid.uuid4().hex}.json", json.dumps(note).encode())
        if isinstance(error, Exception):
            raise
        # A SystemExit would end a worker's thread in silence and hang the runner.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def read_errors(workspace: Workspace) -> list[dict[str, Any]]:
    """The errors noted during the run, oldest first."""
    found = (workspace.get(f"errors/{name}") for name in workspace.names("errors"))
    notes: list[dict[str, Any]] = [json.loads(data) for data in found if data]
    return sorted(notes, key=lambda note: float(note["time"]))
