"""Saves what finished tasks leave: checkpoints to resume from, rejects, errors.

A checkpoint is written after the files that it describes, and in one step, so one that
exists is true. A run that was killed is resumed from its checkpoints.
"""

from __future__ import annotations

import json
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from recordmill.schemas.errors import (
    NO_ROOM,
    OTHER,
    OutputError,
    RecordmillError,
    kind_of,
)
from recordmill.schemas.names import REJECTS_NAME, rejects_prefix
from recordmill.schemas.ranges import Reject, RejectTotals
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.tasks.launches import keep_alive
from recordmill.transforms.tasks.rejects import reject_line
from recordmill.transforms.tasks.workspace import Workspace

CHECKPOINTS = "facts"  # the folder: it keeps its first name, so that older runs resume

_Checkpoint = TypeVar("_Checkpoint")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)  # takes milliseconds to build
    return _ADAPTERS[kind]


def save_checkpoint(workspace: Workspace, name: str, checkpoint: object) -> None:
    """Writes the checkpoint of a finished task, a dataclass, as JSON."""
    data = _adapter(type(checkpoint)).dump_json(checkpoint, by_alias=True)
    workspace.put(f"{CHECKPOINTS}/{name}.json", data)


def load_checkpoint(
    workspace: Workspace, name: str, kind: type[_Checkpoint]
) -> _Checkpoint | None:
    """Returns the checkpoint of a task that an earlier try finished, or None."""
    data = workspace.get(f"{CHECKPOINTS}/{name}.json")
    if data is None:
        return None
    try:
        checkpoint: _Checkpoint = _adapter(kind).validate_json(data)
        return checkpoint
    except ValidationError:
        return None


def discard_checkpoint(workspace: Workspace, name: str) -> None:
    """Removes a checkpoint whose files are damaged, so that the task is repeated."""
    workspace.discard(f"{CHECKPOINTS}/{name}.json")


def save_rejects(
    workspace: Workspace, name: str, rejects: Iterable[Reject]
) -> RejectTotals:
    """Writes the rejects of one task as JSON lines; returns their totals."""
    file = f"{REJECTS_NAME}/{name}.jsonl"
    data = b"".join(reject_line(reject) + b"\n" for reject in rejects)
    if data:
        workspace.put(file, data, durable=True)
    else:
        workspace.discard(file)  # of an earlier try that assumed other types
    return RejectTotals.of(data)


def keeps_rejects(
    workspace: Workspace, name: str, rows: int, totals: RejectTotals, part: int
) -> bool:
    """Tells whether the rejects of a finished task are kept as it wrote them.

    Args:
      workspace: of the run.
      name: of the task.
      rows: how many rows it rejected.
      totals: of the rejects that it wrote.
      part: the part of the dataset that the run makes.
    """
    if totals.rows != rows:
        return False  # a checkpoint of an earlier version, which had no totals
    if not rows:
        return True
    file = f"{REJECTS_NAME}/{name}.jsonl"
    data = workspace.get(file)
    if data is None:  # a run that was killed while it staged had moved them
        staged = f"staging/{REJECTS_NAME}/{rejects_prefix(part)}{name}.jsonl"
        try:
            data = workspace.store.read(workspace.store_name(staged))
        except OutputError:
            return False
    return RejectTotals.of(data) == totals


@contextmanager
def report_errors_to_launcher(workspace: Workspace) -> Iterator[None]:
    """Saves an error where the launcher finds it, on every runner; shows a sign of life.

    Raises:
      BusyError: the run is a detached job that must not go on.
    """
    try:
        keep_alive(workspace)
        yield
    except GeneratorExit:
        raise  # the runner closed this step, because another one failed
    except BaseException as error:
        note = {
            "expected": isinstance(error, RecordmillError | OSError | MemoryError),
            "kind": type(error).__name__,
            "about": kind_of(error),
            "message": _message_of(error, workspace),
            "traceback": traceback.format_exc(),
            "time": time.time(),
        }
        with suppress(Exception):  # the first error matters more than this one
            if not workspace.shared:
                workspace.local_path("errors").mkdir(parents=True, exist_ok=True)
            file = f"errors/{uuid.uuid4().hex}.json"
            try:
                workspace.put(file, json.dumps(note).encode())
            except Exception:  # there may be room for a short one
                note["traceback"] = ""
                workspace.put(file, json.dumps(note).encode())
        if isinstance(error, Exception):
            raise
        # SystemExit would end the worker's thread without a message, and the runner
        # would wait for ever.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _message_of(error: BaseException, workspace: Workspace) -> str:
    """Returns the message of an error; that of a full disk tells the way out, too."""
    if isinstance(error, OSError) and kind_of(error) == NO_ROOM:
        return str(
            output_error(error, error.filename or str(workspace.root), "written")
        )
    return str(error)


def read_errors(workspace: Workspace) -> list[dict[str, Any]]:
    """Returns the errors that tasks of the run reported, oldest first."""
    found = (workspace.get(f"errors/{name}") for name in workspace.names("errors"))
    notes = [note for data in found if data and (note := _parse_note(data))]
    return sorted(notes, key=lambda note: float(note["time"]))


def _parse_note(data: bytes) -> dict[str, Any] | None:
    """Returns what a worker noted; None of a note that was damaged."""
    try:
        note = json.loads(data)
        return {
            "expected": bool(note["expected"]),
            "kind": str(note["kind"]),
            "about": str(note.get("about", OTHER)),
            "message": str(note["message"]),
            "traceback": str(note.get("traceback", "")),
            "time": float(note["time"]),
        }
    except (
        ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
    ):  # fmt: skip
        return None
