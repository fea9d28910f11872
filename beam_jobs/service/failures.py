"""What went wrong in a run, by the notes that its workers left."""

from __future__ import annotations

import logging

from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.errors import DamagedScratchError, RecordmillError, UsageError
from recordmill.transforms.tasks.checkpoints import read_errors
from recordmill.transforms.tasks.workspace import Workspace

_log = logging.getLogger("recordmill")

# No further try mends these: the job or its input is wrong.
_FOR_GOOD = ("UsageError", "SchemaError", "RejectLimitError")


def was_damaged(workspace: Workspace) -> bool:
    """Whether the run failed of scratch that was damaged, and now is forgotten."""
    kind = DamagedScratchError.__name__
    return any(note["kind"] == kind for note in read_errors(workspace))


def stop_for_good(workspace: Workspace) -> None:
    """Spares an engine the tries that cannot help: the job or its input is wrong."""
    for note in read_errors(workspace):
        if note["kind"] in _FOR_GOOD:
            raise RecordmillError(str(note["message"]))


def explained(error: Exception, workspace: Workspace) -> RecordmillError:
    """The first error that a worker noted, instead of the runner's long account."""
    notes = read_errors(workspace)
    if not notes and isinstance(error, UsageError):
        return UsageError(str(error))
    if not notes and isinstance(error, RecordmillError):
        return RecordmillError(f"{error}\n{where_left(workspace)}")
    if not notes:
        return RecordmillError(
            f"the runner failed: {type(error).__name__}: {error}\n{where_left(workspace)}"
        )
    note = notes[0]
    _log.error("%s", note["traceback"])
    message = str(note["message"])
    if not note["expected"]:
        message = f"unexpected {note['kind']}: {message}"
    if note["kind"] == "UsageError":
        return UsageError(message)
    return RecordmillError(f"{message}\n{where_left(workspace)}")


def where_left(workspace: Workspace) -> str:
    places = f"Log and rejects are in {workspace.root}"
    if workspace.shared:
        rejects = workspace.display_path(REJECTS_NAME)
        places = f"The log is {workspace.log}, rejects are in {rejects}"
    return (
        f"Nothing was published. {places}; the same command goes on from what is "
        "finished"
    )
