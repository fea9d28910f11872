"""Keeps the checksums of what tasks read of the inputs, until the dataset is staged.

A few of them are part of a task's result. More, as those of 4,096 images, would be too
much for what passes through the runner: they are in a file beside the task's checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from recordmill.schemas.input_files import FileChecksum, TaskChecksums
from recordmill.transforms.tasks.checkpoints import CHECKPOINTS
from recordmill.transforms.tasks.workspace import Workspace

MOST_IN_RESULT = 8
PREPARE = "prepare"  # the task that has no result

_ENDING = ".checksums"


def save_checksums(
    workspace: Workspace, name: str, checksums: Sequence[FileChecksum]
) -> TaskChecksums:
    """Keeps the checksums of one task.

    Args:
      workspace: of the run.
      name: of the task.
      checksums: of what it read.
    """
    if len(checksums) <= MOST_IN_RESULT and name != PREPARE:
        return TaskChecksums(tuple(checksums))
    data = json.dumps(checksums, ensure_ascii=False, separators=(",", ":"))
    workspace.put(f"{CHECKPOINTS}/{name}{_ENDING}", data.encode())
    return TaskChecksums(in_file=len(checksums))


def keeps_checksums(
    workspace: Workspace, name: str, checksums: TaskChecksums | None
) -> bool:
    """Tells whether the checksums of a finished task are kept as it wrote them."""
    if checksums is None or not checksums.in_file:
        return True  # an earlier version had none
    return len(_read(workspace, f"{name}{_ENDING}") or ()) == checksums.in_file


def checksums_of(
    workspace: Workspace, name: str, checksums: TaskChecksums | None
) -> Sequence[FileChecksum]:
    """Returns what `save_checksums` kept of one task, as far as it is known."""
    if checksums is None:
        return ()  # an earlier version had none
    if checksums.in_file:
        return _read(workspace, f"{name}{_ENDING}") or ()
    return checksums.few


def load_checksums(
    workspace: Workspace, results: Iterable[TaskChecksums | None]
) -> list[FileChecksum] | None:
    """Returns the checksums of all that a run read.

    Args:
      workspace: of the run.
      results: those in the results of all tasks.

    Returns:
      None if some are not known: a task was finished by an earlier version.
    """
    found: list[FileChecksum] = []
    wanted = 0
    for result in results:
        if result is None:
            return None
        found += result.few
        wanted += result.in_file
    for checksums in _all_files(workspace):
        found += checksums
        wanted -= len(checksums)
    # Of a task that was repeated in another way, there may be more.
    return None if wanted > 0 else found


def _all_files(workspace: Workspace) -> Iterator[list[FileChecksum]]:
    for name in workspace.names(CHECKPOINTS):
        if name.endswith(_ENDING):
            yield _read(workspace, name) or []


def _read(workspace: Workspace, file: str) -> list[FileChecksum] | None:
    data = workspace.get(f"{CHECKPOINTS}/{file}")
    try:
        return None if data is None else list(map(FileChecksum._make, json.loads(data)))
    except (ValueError, TypeError):
        return None  # cut short when the machine lost its power
