"""Explains why a run failed, by the errors that its workers noted."""

from __future__ import annotations

import logging

from recordmill.schemas.errors import (
    OTHER,
    PERMANENT,
    USAGE,
    DamagedScratchError,
    RecordmillError,
    error_of,
    kind_of,
)
from recordmill.schemas.names import REJECTS_NAME
from recordmill.transforms.tasks.checkpoints import read_errors
from recordmill.transforms.tasks.workspace import Workspace

_log = logging.getLogger("recordmill")

# Trying again does not help: the job or its input is wrong.
_PERMANENT = ("UsageError", "SchemaError", "RejectLimitError")


def is_scratch_damaged(workspace: Workspace) -> bool:
    """Tests whether the run failed because of damaged scratch, by now removed."""
    kind = DamagedScratchError.__name__
    return any(note["kind"] == kind for note in read_errors(workspace))


def raise_permanent_error(workspace: Workspace) -> None:
    """Raises what a worker noted, if trying again does not help.

    Raises:
      RecordmillError: the job or its input is wrong.
    """
    for note in read_errors(workspace):
        if note["kind"] in _PERMANENT:
            error = error_of(str(note.get("about", OTHER)), str(note["message"]))
            error.add_note(str(note["traceback"]))  # for --debug
            raise error


def explain(error: Exception, workspace: Workspace) -> RecordmillError:
    """Returns the first error that a worker noted, in place of the runner's report."""
    notes = read_errors(workspace)
    if notes:
        _log.error("%s", notes[0]["traceback"])
        kind, message = str(notes[0].get("about", OTHER)), str(notes[0]["message"])
        if not notes[0]["expected"]:
            message = f"unexpected {notes[0]['kind']}: {message}"
    else:
        kind, message = kind_of(error), str(error)
        if not isinstance(error, RecordmillError):
            message = f"the runner failed: {type(error).__name__}: {message}"
    if kind != USAGE:
        message = f"{message}\n{nothing_published(workspace, kind)}"
    explained = error_of(kind, message)
    for note in notes[:1]:
        explained.add_note(str(note["traceback"]))  # for --debug
    return explained


def nothing_published(workspace: Workspace, kind: str) -> str:
    """Tells that nothing was published, where the log is, and how to go on.

    Args:
      workspace: of the run.
      kind: what its error is about.
    """
    found = f"Log and rejects are in {workspace.root}"
    if workspace.shared:
        rejects = workspace.display_path(REJECTS_NAME)
        found = f"The log is {workspace.log}, rejects are in {rejects}"
    if kind in PERMANENT:
        return (
            f"Nothing was published. {found}. The same command would fail again: first "
            "change what the error names"
        )
    return f"Nothing was published. {found}. Run the same command again to resume"
