"""Saves what finished tasks leave: checkpoints to resume from, rejects, checksums, errors.

A checkpoint is written after the files that it describes, and in one step, so one that
exists is true. A run that was killed is resumed from its checkpoints.
"""

from __future__ import annotations

import json
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator, Sequence
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
from recordmill.schemas.input_files import FileChecksum, TaskChecksums
from recordmill.schemas.names import REJECTS_NAME, rejects_prefix
from recordmill.schemas.ranges import Reject, RejectTotals
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.tasks.launches import keep_alive
from recordmill.transforms.tasks.rejects import reject_line
from recordmill.transforms.tasks.workspace import Workspace

CHECKPOINTS = "facts"  # the folder

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


# The checksums of what tasks read of the inputs wait until the dataset is staged. A few are
# part of a task's result. More, as those of 4,096 images, would be too much for what passes
# through the runner: they are in a file beside the task's checkpoint.

MOST_IN_RESULT = 8
PREPARE = "prepare"  # the task that has no result
_ENDING = ".checksums"


def save_checksums(
    workspace: Workspace, name: str, checksums: Sequence[FileChecksum]
) -> TaskChecksums:
    """Keeps the checksums of what one task read."""
    if len(checksums) <= MOST_IN_RESULT and name != PREPARE:
        return TaskChecksums(tuple(checksums))
    data = json.dumps(checksums, ensure_ascii=False, separators=(",", ":"))
    workspace.put(f"{CHECKPOINTS}/{name}{_ENDING}", data.encode())
    return TaskChecksums(in_file=len(checksums))


def keeps_checksums(workspace: Workspace, name: str, checksums: TaskChecksums) -> bool:
    """Tells whether the checksums of a finished task are kept as it wrote them."""
    if not checksums.in_file:
        return True
    return len(_kept(workspace, f"{name}{_ENDING}")) == checksums.in_file


def checksums_of(
    workspace: Workspace, name: str, checksums: TaskChecksums
) -> Sequence[FileChecksum]:
    """Returns what `save_checksums` kept of one task, as far as it is there."""
    if checksums.in_file:
        return _kept(workspace, f"{name}{_ENDING}")
    return checksums.few


def load_checksums(
    workspace: Workspace, results: Iterable[TaskChecksums]
) -> list[FileChecksum] | None:
    """Returns the checksums of all that a run read; None if some were lost."""
    found: list[FileChecksum] = []
    wanted = 0
    for result in results:
        found += result.few
        wanted += result.in_file
    for name in workspace.names(CHECKPOINTS):
        if name.endswith(_ENDING):
            kept = _kept(workspace, name)
            found += kept
            wanted -= len(kept)
    # Of a task that was repeated in another way, there may be more.
    return None if wanted > 0 else found


def _kept(workspace: Workspace, file: str) -> Sequence[FileChecksum]:
    data = workspace.get(f"{CHECKPOINTS}/{file}") or b"[]"
    try:
        return list(map(FileChecksum._make, json.loads(data)))
    except (ValueError, TypeError):
        return ()  # cut short when the machine lost its power
