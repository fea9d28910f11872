"""Tells launchers of tasks: their errors, and the signs of life of detached jobs.

These hold no lease while they convert.

    .recordmill/job-0123456789ab/alive.json

Each launch has a workspace of its own, with this file in it. The job's tasks renew it.
As long as it is young, or cannot be judged, nobody else removes that workspace; a day
after the last sign of life it is an orphan. The file is rewritten only over its own last
bytes, and a job whose file is gone, or says that the job is over, stops and publishes
nothing. So a workspace may be taken away at any time, if this file goes first.
"""

from __future__ import annotations

import errno
import re
import socket
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from recordmill.schemas.errors import (
    NO_ROOM,
    BusyError,
    OutputError,
    RecordmillError,
    kind_of,
)
from recordmill.schemas.names import run_metadata_name
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.lease import seconds_since
from recordmill.transforms.storage.store import WORK_FOLDER, bytes_of, value_of
from recordmill.transforms.tasks.workspace import Workspace

LIFE_SECONDS = 24 * 3600.0  # a job may wait for its cluster, and sort for hours
RENEW_SECONDS = 600.0  # in each process that executes tasks
SIGN_NAME = "alive.json"

_NAME = re.compile(r"job-[0-9a-f]{12}")
_TRIES = 8  # each fails only if another task renewed it in between

_Time = Annotated[float, Field(ge=0, lt=1e11)]


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """What a launch's file says; contains no secrets."""

    run_key: str  # of the job
    host: str  # the launcher's, for people
    launched: _Time  # when the job was given to the runner, in Unix seconds
    renewed: _Time  # when a task was at work last
    nonce: str  # random text, so that no two files are the same
    ended: str = ""  # why the job must not go on; "" while it may


@dataclass(frozen=True, slots=True)
class Launch:
    """A detached job that left its file in an output."""

    name: str  # of its workspace
    data: bytes  # the bytes of the file
    is_live: bool  # whether the job may still be at work

    @property
    def sign(self) -> SignOfLife | None:
        return value_of(self.data, SignOfLife)

    def is_of(self, run_key: str) -> bool:
        """Tells whether it is a launch of the job with this run key."""
        return self.sign is not None and self.sign.run_key == run_key

    def describe(self) -> str:
        """Returns which job it is, for people."""
        sign = self.sign
        if sign is None:
            return f"{WORK_FOLDER}/{self.name} (its {SIGN_NAME} cannot be read)"
        return (
            f"{WORK_FOLDER}/{self.name} (launched {_utc(sign.launched)} on {sign.host}, "
            f"last heartbeat {_utc(sign.renewed)})"
        )


def new_launch_name() -> str:
    """Returns a name for the workspace of one launch; no other has it."""
    return f"job-{uuid.uuid4().hex[:12]}"


def is_launch(name: str) -> bool:
    """Tells whether the workspace of that name is a detached job's."""
    return _NAME.fullmatch(name) is not None


def begin_launch(workspace: Workspace, run_key: str) -> None:
    """Writes the first sign of life, before anything else is in the workspace."""
    now = time.time()
    sign = SignOfLife(run_key, socket.gethostname(), now, now, uuid.uuid4().hex)
    workspace.store.put_bytes(bytes_of(sign), workspace.store_name(SIGN_NAME))


def keep_alive(workspace: Workspace, *, now: bool = False) -> None:
    """Renews a detached job's sign of life, in each process every ten minutes.

    Does nothing if the workspace is not a detached job's; `now` asks the store in any
    case.

    Raises:
      BusyError: the job must not go on.
    """
    if not is_launch(workspace.name):
        return
    if now:
        _renew(workspace)
    else:
        _renew_in(workspace, int(time.monotonic() // RENEW_SECONDS))


@lru_cache(maxsize=16)
def _renew_in(workspace: Workspace, _period: int) -> None:
    """Renews a sign of life; once in each period, unless the job must not go on."""
    try:
        _renew(workspace)
    except BusyError:
        raise
    except OutputError:
        pass  # a sign lives for a day: the next period tries again


def _renew(workspace: Workspace) -> None:
    store, name = workspace.store, workspace.store_name(SIGN_NAME)
    for _ in range(_TRIES):
        data = store.find(name)
        if data is None:
            if _has_published(workspace):
                # Tasks are repeated, because the runner lost their results.
                workspace.make_folders()
                return
            raise BusyError(
                f"{store.uri_of(name)}: is gone, so another run or `recordmill clean` took "
                "this detached job for dead, or ended it. Nothing was published; submit it "
                "again"
            )
        sign = value_of(data, SignOfLife)
        if sign is not None and sign.ended:
            raise BusyError(sign.ended)
        if sign is None:
            return  # written by another version
        fresh = replace(sign, renewed=time.time(), nonce=uuid.uuid4().hex)
        if store.swap(bytes_of(fresh), name, seen=data):
            return


def end_launch(workspace: Workspace, reason: str) -> None:
    """Notes that a detached job cannot publish any more, so that all its tasks stop."""
    if not is_launch(workspace.name):
        return
    store, name = workspace.store, workspace.store_name(SIGN_NAME)
    with suppress(OutputError):  # then it expires
        data = store.find(name)
        sign = value_of(data, SignOfLife) if data else None
        if data is not None and sign is not None:
            store.swap(bytes_of(replace(sign, ended=reason)), name, seen=data)


def find_launch(store: Store, name: str) -> Launch | None:
    """Reads the sign of life in the workspace of that name; None without one."""
    file = f"{WORK_FOLDER}/{name}/{SIGN_NAME}"
    data = store.find(file)
    return None if data is None else Launch(name, data, _is_live(store, file, data))


def require_no_launch(store: Store) -> None:
    """Raises BusyError if a detached job may be at work in an output."""
    for launch in _live_launches(store):
        raise BusyError(
            f"{store.uri}: a detached job is at work here: {launch.describe()}. Wait until "
            f"it has ended. If it was cancelled, `recordmill clean --detached {store.uri}` "
            "removes what it left"
        )


def has_live_launch(store: Store) -> bool:
    """Tells whether a detached job may be at work in an output."""
    return any(True for _ in _live_launches(store))


def _live_launches(store: Store) -> Iterator[Launch]:
    for folder in store.list_level(WORK_FOLDER).folders:
        name = folder.removeprefix(f"{WORK_FOLDER}/")
        if is_launch(name) and (launch := find_launch(store, name)) and launch.is_live:
            yield launch


def _is_live(store: Store, name: str, data: bytes) -> bool:
    """Tells whether a sign of life is young, or may be.

    A clock that jumped must not make a working job look dead: it is dead only if the
    store's clock says so, too.
    """
    sign = value_of(data, SignOfLife)
    if sign is not None:
        if sign.ended:
            return False
        if abs(time.time() - sign.renewed) <= LIFE_SECONDS:
            return True
    age = seconds_since(store, store.modified(name))
    if age is None:
        return sign is None
    return age <= LIFE_SECONDS


def _has_published(workspace: Workspace) -> bool:
    """Tells whether the dataset that is there was published by this very launch."""
    store = workspace.store
    manifest = find_manifest(store)
    if manifest is None:
        return False
    metadata = store.find(run_metadata_name(manifest.appended)) or b""
    return f'"{workspace.name}"'.encode() in metadata


def _utc(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class TaskError:
    """An error of a task, as its file says it."""

    expected: bool  # whether it is one of ours, or of the machine
    kind: str  # name of its class
    about: str  # its `kind_of`
    message: str  # its text
    traceback: str  # of the worker
    time: float  # when it was raised, in Unix seconds


class TaskFailed(Exception):  # noqa: N818  as others call what a future raises
    """A task failed in another process."""

    def __init__(self, note: TaskError) -> None:
        super().__init__(note.message)
        self.note = note


# The last of each workspace for which there was no room; the launcher may be this process.
_unsaved: dict[str, TaskError] = {}


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
        note = note_of(error, workspace)
        try:
            workspace.put(f"errors/{uuid.uuid4().hex}.json", bytes_of(note))
        except Exception:  # the first error matters more than this one
            _unsaved[str(workspace.root)] = note
        if isinstance(error, Exception):
            raise
        # SystemExit would end the worker's thread without a message, and the runner
        # would wait for ever.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def note_of(error: BaseException, workspace: Workspace | None) -> TaskError:
    """Returns what is noted of an error that is handled now; a job may not be loaded."""
    if isinstance(error, TaskFailed):
        return error.note
    message = str(error)
    if workspace is not None and isinstance(error, OSError):
        if kind_of(error) == NO_ROOM or error.errno == errno.EIO:  # tells the way out
            where = error.filename or str(workspace.root)
            message = str(output_error(error, where, "written"))
    return TaskError(
        isinstance(error, RecordmillError | OSError | MemoryError),
        type(error).__name__,
        kind_of(error),
        message,
        traceback.format_exc(),
        time.time(),
    )


def forget_errors(workspace: Workspace) -> None:
    """Removes the error of an earlier try that found no room; `Workspace.create` the others."""
    _unsaved.pop(str(workspace.root), None)


def read_errors(workspace: Workspace) -> list[TaskError]:
    """Returns the errors that tasks of the run reported, oldest first."""
    notes = list[TaskError]()
    for file in workspace.names("errors"):
        note = value_of(workspace.get(f"errors/{file}") or b"", TaskError)
        notes += [note] if note is not None else []  # damaged ones are left out
    if not notes and (unsaved := _unsaved.get(str(workspace.root))):
        notes.append(unsaved)
    return sorted(notes, key=lambda note: note.time)
