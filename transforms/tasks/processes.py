"""Executes the tasks of a run in processes, because threads share the interpreter lock.

The runner's workers remain threads of the launcher. Each worker passes its task to an
idle process, and waits: a task is a function of the run's context and a few small
arguments. It reads and writes files, or files in memory (sorted_runs.py), so that only
metadata passes through a socket.

A process is a new interpreter that imports this package, but no module of the program
that runs the job: neither Beam nor `__main__`, which may be a script or a notebook. It
ends when its socket is closed, which the system also does if the launcher is killed.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import LifoQueue, SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO, cast
from weakref import WeakValueDictionary

from recordmill.schemas.errors import UsageError, WorkerDiedError
from recordmill.transforms.report_stream import as_report
from recordmill.transforms.tasks.launches import TaskFailed, task_error_of
from recordmill.transforms.tasks.memory import share_arenas
from recordmill.transforms.tasks.workspace import LOG_FORMAT

if TYPE_CHECKING:
    from recordmill.transforms.tasks.context import RunContext

_START = "import sys; sys.path[:] = {path}; from {module} import serve; serve({socket})"
_SECONDS_TO_END = 5.0

# The runner pickles the context into each step, even for threads of this process. The
# copies find the processes by this number.
_running: WeakValueDictionary[int, TaskProcesses] = WeakValueDictionary()


class TaskProcesses:
    """The processes that execute the tasks of one run."""

    def __init__(self, context: RunContext, number: int) -> None:
        """Starts the processes, which takes a second in the background."""
        budget = context.workspace.budget.shared_by(number)
        workspace = replace(context.workspace, budget=budget)
        data = pickle.dumps(replace(context, workspace=workspace))
        self._processes = [_Process(context, data) for _ in range(number)]
        self._idle_processes = LifoQueue[_Process]()
        for process in self._processes:
            self._idle_processes.put(process)
        _running[id(self)] = self

    def __reduce__(self) -> tuple[Callable[[int], TaskProcesses], tuple[int]]:
        return _processes_of, (id(self),)

    def call(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Executes a task with the context in a process; returns its result.

        Raises:
          TaskFailed: the task raised an error.
          WorkerDiedError: the process ended.
        """
        process = self._idle_processes.get()
        try:
            return process.call(task, arguments)
        finally:
            self._idle_processes.put(process)

    def require_alive(self) -> None:
        """Raises WorkerDiedError if a process has ended."""
        for process in self._processes:
            process.require_alive()

    def close(self) -> None:
        """Ends all processes, even during a task."""
        for process in self._processes:
            process.close()


def _processes_of(number: int) -> TaskProcesses:
    return _running[number]


class _Process:
    """A process and the socket to it."""

    def __init__(self, context: RunContext, data: bytes) -> None:
        launcher_socket, process_socket = socket.socketpair()
        # A script may have added a pathlib.Path, which imports ignore.
        path = [folder for folder in sys.path if isinstance(folder, str)]
        code = _START.format(path=path, module=__name__, socket=process_socket.fileno())
        with process_socket, context.workspace.open_log() as log:
            self._popen = subprocess.Popen(
                # -u: the output of a map function is not buffered.
                [sys.executable, "-u", "-c", code],
                stdin=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[process_socket.fileno()],
                process_group=0,  # Ctrl-C is for the launcher
            )
        self._connection, self._log = (
            Connection(launcher_socket.detach()),
            context.workspace.log,
        )
        self._data: bytes | None = data
        self._sent_arguments: tuple[Any, ...] = ()

    def call(self, task: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            # All shards have the same table of runs, which may be large: it is sent once.
            sent = dict(enumerate(self._sent_arguments))
            new = {
                index: argument
                for index, argument in enumerate(arguments)
                if index not in sent or sent[index] is not argument
            }
            request = self._data, task, len(arguments), new
            self._connection.send_bytes(pickle.dumps(request))
            self._data, self._sent_arguments = None, arguments
            result, note = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(_SECONDS_TO_END)
            self.require_alive()
            raise WorkerDiedError("a worker died: its socket is closed") from error
        if note is not None:
            raise TaskFailed(note)
        return result

    def require_alive(self) -> None:
        status = self._popen.poll()
        if status is None:
            return
        self._end_group()
        ending, advice = (
            f"with status {status}",
            f"Its last output may be in {self._log}",
        )
        if status < 0:
            advice = (
                "It may have run out of memory (use fewer `workers`), or been killed."
            )
            with suppress(ValueError):  # real-time signals have no name
                ending = f"by {signal.Signals(-status).name}"
        raise WorkerDiedError(
            f"a worker died: process {self._popen.pid} ended {ending}. {advice} Run the same "
            "command again to resume"
        )

    def close(self) -> None:
        self._end_group()
        self._popen.wait()
        # The socket stays open: a thread may still be waiting for a response.

    def _end_group(self) -> None:
        """Ends the process, and all processes that a map function started in it."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)


def serve(descriptor: int) -> None:
    """Executes tasks until the launcher closes the socket, or dies."""
    # A map function may print: a failed write to the terminal must not fail its rows.
    sys.stdout = cast("TextIO", as_report(sys.stdout))
    sys.stderr = cast("TextIO", as_report(sys.stderr))
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    share_arenas()
    connection = Connection(descriptor)
    requests = SimpleQueue[bytes]()
    reader = threading.Thread(target=_read, args=(connection, requests), daemon=True)
    reader.start()
    context, last = None, list[Any]()
    while True:
        result, note = None, None
        try:
            data, task, number, new = pickle.loads(requests.get())
            context = context if data is None else _load(data)
            last = [new[i] if i in new else last[i] for i in range(number)]
            result = task(context, *last)
            if isinstance(result, Iterator):
                result = list(result)
        except BaseException as error:
            note = task_error_of(error, context.workspace if context else None)
        connection.send((result, note))
        del result


def _load(data: bytes) -> RunContext:
    try:
        context: RunContext = pickle.loads(data)
    except Exception as error:
        raise UsageError(
            f"a worker process cannot load the job: {type(error).__name__}: {error}. "
            "Everything that the job uses must be in modules that can be imported; or "
            "use threads: `-- --direct_running_mode=in_memory`"
        ) from error
    return context


def _read(connection: Connection, requests: SimpleQueue[bytes]) -> None:
    """Reads requests into a queue; ends the process when the socket is closed."""
    with suppress(EOFError, OSError):
        while True:
            requests.put(connection.recv_bytes())
    os.killpg(0, signal.SIGKILL)  # including its child processes
