"""Reports task errors to launchers, and stores heartbeats of runs without a lease.

Detached jobs and WriteDataset pipelines hold no lease while they convert.

    .recordmill/job-0123456789ab/alive.json      heartbeat of a detached job
    .recordmill/rows-0123456789a/alive.json      heartbeat of a WriteDataset pipeline

Each launch has its own workspace, which contains this file. The run's tasks renew it.
While the heartbeat is recent, or its age is unknown, no other run removes the workspace.
A day after the last heartbeat, the workspace is an orphan. The file is replaced only over
its own last bytes. A run stops and publishes nothing if its file is missing or states
that the run has ended. So a workspace can be removed at any time, if this file is removed
first.

A pipeline on the embedded runner ends with its process. Its heartbeat names that process,
so on the same machine the workspace of a killed pipeline is an orphan at once. When all
rows have been read, the heartbeat also protects the workspace of the dataset's
fingerprint.
"""

from __future__ import annotations

import errno
import re
import socket
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
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
    error_kind,
)
from recordmill.schemas.names import run_metadata_name
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.lease import RunProcess, seconds_since
from recordmill.transforms.storage.store import WORK_FOLDER, parse_json, to_json
from recordmill.transforms.tasks.workspace import Workspace

LIFE_SECONDS = 24 * 3600.0  # a job may wait for its cluster, and sort for hours
RENEW_SECONDS = 600.0  # in each process that executes tasks
HEARTBEAT_NAME = "alive.json"

_JOB = re.compile(r"job-[0-9a-f]{12}")
_PIPELINE = re.compile(r"rows-[0-9a-f]{11}")
_TRIES = 8  # each fails only if another task renewed it in between

_Time = Annotated[float, Field(ge=0, lt=1e11)]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat, as stored in the file of a launch; contains no secrets."""

    run_key: str  # of the job; "" for a pipeline that has not read all rows
    host: str  # of the launcher, for people
    launched: _Time  # when the job was submitted to the runner, in Unix seconds
    renewed: _Time  # time of the last renewal by a task
    nonce: str  # random text, so that no two files are the same
    ended: str = ""  # reason why the job must stop; "" while it may continue
    # the process with which the run ends; None if its tasks may be on other machines
    process: RunProcess | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A detached job or a pipeline with a heartbeat in an output."""

    name: str  # of its workspace
    heartbeat_bytes: bytes  # content of the heartbeat file
    is_live: bool  # whether the job may still be active

    @property
    def heartbeat(self) -> Heartbeat | None:
        return parse_json(self.heartbeat_bytes, Heartbeat)

    def is_of(self, run_key: str) -> bool:
        """Returns whether the launch belongs to the job with this run key."""
        return self.heartbeat is not None and self.heartbeat.run_key == run_key

    @property
    def workspaces(self) -> frozenset[str]:
        """Returns the names of the workspaces that the heartbeat protects."""
        sign = self.heartbeat
        if sign is None or not sign.run_key or not _PIPELINE.fullmatch(self.name):
            return frozenset({self.name})
        return frozenset({self.name, sign.run_key[:16]})

    @property
    def noun(self) -> str:
        """Returns the noun for this kind of run, for messages."""
        return _words_of(self.name).noun

    def describe(self) -> str:
        """Returns a description of the launch, for people."""
        sign = self.heartbeat
        if sign is None:
            return f"{WORK_FOLDER}/{self.name} (its {HEARTBEAT_NAME} cannot be read)"
        began = _words_of(self.name).began
        return (
            f"{WORK_FOLDER}/{self.name} ({began} {_utc(sign.launched)} on {sign.host}, "
            f"last heartbeat {_utc(sign.renewed)})"
        )


@dataclass(frozen=True, slots=True)
class _RunTerms:
    """The words for a kind of run without a lease."""

    noun: str
    began: str  # how it began
    fix: str  # the fix if it was ended


_JOB_WORDS = _RunTerms("detached job", "launched", "submit it again")
_PIPELINE_WORDS = _RunTerms("pipeline", "begun", "run the pipeline again")


def _words_of(name: str) -> _RunTerms:
    return _PIPELINE_WORDS if _PIPELINE.fullmatch(name) else _JOB_WORDS


def new_launch_name() -> str:
    """Returns a unique name for the workspace of a launch."""
    return f"job-{uuid.uuid4().hex[:12]}"


def is_launch(name: str) -> bool:
    """Returns whether a workspace has a heartbeat, by its name.

    Such workspaces belong to detached jobs and pipelines.
    """
    return any(pattern.fullmatch(name) for pattern in (_JOB, _PIPELINE))


def _launch_of(workspace: Workspace) -> str:
    """Returns the name of the workspace with a run's heartbeat, or ""."""
    name = workspace.heartbeat_run or workspace.name
    return name if is_launch(name) else ""


def _heartbeat_name(launch: str) -> str:
    return f"{WORK_FOLDER}/{launch}/{HEARTBEAT_NAME}"


def begin_launch(
    workspace: Workspace, run_key: str, process: RunProcess | None = None
) -> None:
    """Writes the first heartbeat, before any other file of the workspace.

    `process` is the process with which the run ends, if any.
    """
    launch_time, host = time.time(), socket.gethostname()
    sign = Heartbeat(
        run_key, host, launch_time, launch_time, uuid.uuid4().hex, process=process
    )
    workspace.store.put_bytes(to_json(sign), workspace.store_name(HEARTBEAT_NAME))


def keep_alive(workspace: Workspace, *, at_once: bool = False) -> None:
    """Renews the heartbeat of a run, every ten minutes in each process.

    Does nothing for a run without a heartbeat. With `at_once`, the heartbeat is renewed
    immediately.

    Raises:
      BusyError: the run must stop.
    """
    if not _launch_of(workspace):
        return
    if at_once:
        _renew(workspace)
    else:
        _renew_in(workspace, int(time.monotonic() // RENEW_SECONDS))


def add_run_key(workspace: Workspace, run_key: str) -> None:
    """Adds a pipeline's run key to its heartbeat, which then protects both workspaces.

    Raises:
      BusyError: the pipeline must stop.
    """
    _renew(workspace, run_key)


class HeartbeatTimer:
    """A timer with which a long task renews the heartbeat of its run.

    It is fast enough to be called for each row.
    """

    def __init__(
        self, workspace: Workspace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workspace, self._clock = workspace, clock
        self._due = clock()

    def tick(self) -> None:
        """Renews the heartbeat if the last renewal was ten minutes ago.

        Raises:
          BusyError: the run must stop.
        """
        if (current_time := self._clock()) >= self._due:
            self._due = current_time + RENEW_SECONDS
            keep_alive(self._workspace)


@contextmanager
def with_heartbeat(workspace: Workspace) -> Iterator[None]:
    """Renews the heartbeat of a run at the start of a task, and handles its errors.

    If the files of a task were removed, any error of it is replaced by BusyError. A run
    that ends with its process repeats no task, so an error ends its heartbeat.

    Raises:
      BusyError: the run must stop.
    """
    keep_alive(workspace)
    try:
        yield
    except Exception as error:
        handle_task_error(workspace, error)
        raise


def handle_task_error(workspace: Workspace, error: Exception) -> None:
    """Ends the heartbeat of a run that fails with the error of a task.

    Raises:
      BusyError: another process ended the run, which caused the error.
    """
    if not (launch := _launch_of(workspace)):
        return
    store, name = workspace.store, _heartbeat_name(launch)
    try:
        data = store.read_if_exists(name)
    except OutputError:
        return  # the first error matters more
    if data is None and not _has_published(workspace):
        raise _run_ended_error(workspace) from error
    sign = parse_json(data, Heartbeat) if data else None
    if sign is not None and sign.process is not None:
        end_launch(workspace, str(error))


@lru_cache(maxsize=16)
def _renew_in(workspace: Workspace, _period: int) -> None:
    """Renews a heartbeat once in each period, unless the job must stop."""
    try:
        _renew(workspace)
    except BusyError:
        raise
    except OutputError:
        pass  # a heartbeat is valid for a day: the next period tries again


def _run_ended_error(workspace: Workspace) -> BusyError:
    launch = _launch_of(workspace)
    words = _words_of(launch)
    return BusyError(
        f"{workspace.store.uri_of(_heartbeat_name(launch))}: no longer exists, so another "
        f"run or `recordmill clean` ended this {words.noun}, or treated it as dead. "
        f"Nothing was published; {words.fix}"
    )


def _renew(workspace: Workspace, run_key: str = "") -> None:
    """Renews a heartbeat, and adds the run key to it if it is given."""
    store, name = workspace.store, _heartbeat_name(_launch_of(workspace))
    for _ in range(_TRIES):
        data = store.read_if_exists(name)
        if data is None:
            if _has_published(workspace):
                # Tasks are repeated, because the runner lost their results.
                workspace.make_folders()
                return
            raise _run_ended_error(workspace)
        sign = parse_json(data, Heartbeat)
        if sign is not None and sign.ended:
            raise BusyError(sign.ended)
        if sign is None:
            return  # written by another version
        renewed_heartbeat = replace(
            sign,
            run_key=run_key or sign.run_key,
            renewed=time.time(),
            nonce=uuid.uuid4().hex,
        )
        if store.swap(to_json(renewed_heartbeat), name, expected_content=data):
            return
    if run_key:
        raise BusyError(
            f"{store.uri_of(name)}: other tasks renewed it at the same time; run the "
            "pipeline again"
        )


def end_launch(workspace: Workspace, reason: str) -> None:
    """Marks a run as ended in its heartbeat, so that all its tasks stop."""
    if not _launch_of(workspace):
        return
    store, name = workspace.store, _heartbeat_name(_launch_of(workspace))
    with suppress(OutputError):  # then the heartbeat expires
        data = store.read_if_exists(name)
        sign = parse_json(data, Heartbeat) if data else None
        if data is not None and sign is not None:
            store.swap(
                to_json(replace(sign, ended=reason)), name, expected_content=data
            )


def find_launch(
    store: Store, name: str, clock: Callable[[], float] = time.time
) -> Launch | None:
    """Returns the launch with the workspace of that name; None without a heartbeat."""
    data = store.read_if_exists(_heartbeat_name(name))
    if data is None:
        return None
    return Launch(name, data, _is_live(store, _heartbeat_name(name), data, clock()))


def require_no_launch(store: Store) -> None:
    """Raises BusyError if a detached job or a pipeline may be active in an output."""
    for launch in _live_launches(store):
        raise BusyError(
            f"{store.uri}: a {launch.noun} is running here: {launch.describe()}. Wait "
            "until it has ended. If it was cancelled, `recordmill clean --detached "
            f"{store.uri}` removes what it left"
        )


def has_live_launch(store: Store) -> bool:
    """Returns whether a detached job or a pipeline may be active in an output."""
    return any(True for _ in _live_launches(store))


def live_workspaces(store: Store) -> frozenset[str]:
    """Returns the names of the workspaces in an output that heartbeats protect."""
    kept_names = (launch.workspaces for launch in _live_launches(store))
    return frozenset[str]().union(*kept_names)


def _live_launches(store: Store) -> Iterator[Launch]:
    for folder in store.list_level(WORK_FOLDER).folders:
        name = folder.removeprefix(f"{WORK_FOLDER}/")
        if is_launch(name) and (launch := find_launch(store, name)) and launch.is_live:
            yield launch


def _is_live(store: Store, name: str, data: bytes, current_time: float) -> bool:
    """Returns whether a heartbeat is, or may be, recent.

    `current_time` is in Unix seconds. A clock that jumped must not make an active job
    look dead: a job is dead only if its heartbeat is also old by the store's clock.
    """
    sign = parse_json(data, Heartbeat)
    if sign is not None:
        if sign.ended or (sign.process is not None and sign.process.has_died()):
            return False
        if abs(current_time - sign.renewed) <= LIFE_SECONDS:
            return True
    age = seconds_since(store, store.modified_time(name))
    if age is None:
        return sign is None
    return age <= LIFE_SECONDS


def _has_published(workspace: Workspace) -> bool:
    """Returns whether this launch published its dataset, or found it published."""
    store = workspace.store
    manifest = find_manifest(store)
    if manifest is None:
        return False
    if workspace.heartbeat_run and manifest.fingerprint[:16] == workspace.name:
        return True
    metadata = store.read_if_exists(run_metadata_name(manifest.appended)) or b""
    return f'"{_launch_of(workspace)}"'.encode() in metadata


def _utc(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class TaskError:
    """An error of a task, as stored in its file."""

    expected: bool  # whether it is a recordmill error or an error of the machine
    kind: str  # name of its class
    about: str  # its `kind_of`
    message: str  # its text
    traceback: str  # in the worker
    time: float  # when it was raised, in Unix seconds


class TaskFailed(Exception):  # noqa: N818  like similar classes of other libraries
    """The error for a task that failed in another process."""

    def __init__(self, note: TaskError) -> None:
        super().__init__(note.message)
        self.task_error = note


# The last unsaved error of each workspace without disk space; this process may be the
# launcher.
_unsaved_errors: dict[str, TaskError] = {}


@contextmanager
def report_errors_to_launcher(workspace: Workspace) -> Iterator[None]:
    """Saves errors of a task for the launcher, on every runner; renews the heartbeat.

    Raises:
      BusyError: the run has a heartbeat, and must stop.
    """
    try:
        with with_heartbeat(workspace):
            yield
    except GeneratorExit:
        raise  # the runner closed this step, because another one failed
    except BaseException as error:
        note = task_error_of(error, workspace)
        try:
            workspace.write_file(f"errors/{uuid.uuid4().hex}.json", to_json(note))
        except Exception:  # the first error matters more than this one
            _unsaved_errors[str(workspace.root)] = note
        if isinstance(error, Exception):
            raise
        # SystemExit would end the worker's thread without a message, and the runner
        # would wait forever.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def task_error_of(error: BaseException, workspace: Workspace | None) -> TaskError:
    """Returns the task error for an exception in an `except` block.

    `workspace` is None if the job could not be loaded.
    """
    if isinstance(error, TaskFailed):
        return error.task_error
    message = str(error)
    if workspace is not None and isinstance(error, OSError):
        if error_kind(error) == NO_ROOM or error.errno == errno.EIO:  # adds the fix
            path = error.filename or str(workspace.root)
            message = str(output_error(error, path, "written"))
    return TaskError(
        isinstance(error, RecordmillError | OSError | MemoryError),
        type(error).__name__,
        error_kind(error),
        message,
        traceback.format_exc(),
        time.time(),
    )


def discard_unsaved_error(workspace: Workspace) -> None:
    """Removes the unsaved error of an earlier try (the others: `Workspace.create`)."""
    _unsaved_errors.pop(str(workspace.root), None)


def read_errors(workspace: Workspace) -> list[TaskError]:
    """Returns the errors that tasks of the run reported, oldest first."""
    notes = list[TaskError]()
    for file in workspace.list_names("errors"):
        note = parse_json(workspace.read_file(f"errors/{file}") or b"", TaskError)
        notes += [note] if note is not None else []  # damaged files are skipped
    if not notes and (unsaved := _unsaved_errors.get(str(workspace.root))):
        notes.append(unsaved)
    return sorted(notes, key=lambda note: note.time)
