"""Runs pipelines on runners outside this process; cancels the job if the launcher ends.

    launcher -- job API --> job server --> engine --> workers

Without this, Beam waits minutes for a job server that does not answer, and lets a job
run on whose launcher was interrupted.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.request import Request, urlopen

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.job_server import StopOnExitJobServer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineState

from recordmill.beam_jobs.runners.portable_options import (
    LOCAL_MASTERS,
    require_listening,
    runner_of,
)
from recordmill.schemas.errors import Interrupted, RecordmillError, UsageError

POLL_SECONDS = 0.2
CANCEL_SECONDS = 20.0
INTERRUPTED_CANCEL_SECONDS = 6.0  # who sends a signal soon sends SIGKILL


def run_remote(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    on_poll: Callable[[], None],
) -> None:
    """Runs a pipeline to its end, and calls `on_poll` from this thread meanwhile.

    The job is cancelled if this is interrupted (a signal, an error of `on_poll`).

    Raises:
      RecordmillError: the job server does not answer, or is lost during the run.
      Exception: the error with which the pipeline failed.
    """
    runner = runner_of(options)
    results: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            pipeline = beam.Pipeline(runner=runner, options=options)
            build(pipeline)
            results.append(pipeline.run())
            state = results[0].wait_until_finish()
            if state not in (PipelineState.DONE, None):
                raise RecordmillError(f"the job ended in state {state}")
        except BaseException as error:  # raised again in the caller's thread
            failures.append(error)
        finally:
            done.set()

    # Not join(): if a signal interrupts it, Python 3.11 reports the thread as ended.
    done = threading.Event()
    thread = threading.Thread(target=run, name="pipeline", daemon=True)
    with ExitStack() as stack:
        if isinstance(runner, PortableRunner):
            stack.enter_context(_job_server(runner, options))
        thread.start()
        try:
            while not done.wait(POLL_SECONDS):
                on_poll()
        except BaseException as error:
            hurry = isinstance(error, Interrupted)
            seconds = INTERRUPTED_CANCEL_SECONDS if hurry else CANCEL_SECONDS
            _cancel(done, results, options, seconds)
            raise
    if failures:
        raise _translate_error(failures[0], options) from failures[0]


def submit(build: Callable[[beam.Pipeline], object], options: PipelineOptions) -> str:
    """Submits a pipeline to a runner that runs it alone, or only translates it.

    Returns:
      The job's id at the runner; "" if there is none.

    Raises:
      UsageError: the job would end with this process.
      RecordmillError: the job server does not answer.
    """
    runner = runner_of(options)
    portable = options.view_as(PortableOptions)
    if isinstance(runner, PortableRunner):
        endpoint = portable.job_endpoint
        if not endpoint or endpoint == "embed":
            raise UsageError(
                "`detach` needs a job server that outlives this command: give its "
                "--job_endpoint"
            )
        if portable.environment_type in (None, "LOOPBACK"):
            raise UsageError(
                "`detach` needs workers that outlive this command: give "
                "--environment_type=EXTERNAL, PROCESS or DOCKER"
            )
        require_listening(endpoint, "job server", "--job_endpoint")
    pipeline = beam.Pipeline(runner=runner, options=options)
    build(pipeline)
    result = pipeline.run()
    if isinstance(runner, PortableRunner):
        return str(vars(result)["_job_id"])
    name = getattr(result, "job_id", str)  # Dataflow's method
    with suppress(AttributeError):  # of a template, which is not a job yet
        return str(name())
    return ""


@contextmanager
def _job_server(runner: PortableRunner, options: PipelineOptions) -> Iterator[None]:
    """Waits until the job server answers; starts it if the runner has its own.

    Raises:
      RecordmillError: it does not answer.
    """
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint == "embed":
        yield
        return
    if endpoint:
        require_listening(endpoint, "job server", "--job_endpoint")
        yield
        return
    if isinstance(runner, FlinkRunner):
        master = options.view_as(FlinkRunnerOptions).flink_master
        if master not in LOCAL_MASTERS:
            require_listening(master, "Flink JobManager", "--flink_master")
    server = runner.default_job_server(options)
    # Its wrapper handles SIGINT, only in the main thread, and would stop the server
    # before the job can be cancelled; and it relies on exit functions, which do not run
    # here.
    if isinstance(server, StopOnExitJobServer):
        server = server._job_server
    try:
        service = server.start()
    except Exception as error:
        raise RecordmillError(
            f"the job server of --runner={type(runner).__name__} does not start: "
            f"{error}. Its output is in the log"
        ) from error
    runner.default_job_server = lambda _: _Started(service)  # type: ignore[method-assign]
    try:
        yield
    finally:
        with suppress(Exception):  # the job has ended
            server.stop()


class _Started:
    """A job server that is already running."""

    def __init__(self, service: object) -> None:
        self._service = service

    def start(self) -> object:
        return self._service


def _cancel(
    done: threading.Event,
    results: Sequence[Any],
    options: PipelineOptions,
    seconds: float,
) -> None:
    """Cancels the job and waits that long for it: workers write until its end."""
    deadline = time.monotonic() + seconds
    while not (results or done.is_set()) and time.monotonic() < deadline:
        time.sleep(0.05)  # it can be cancelled only after it was submitted
    if not results:
        return

    def cancel() -> None:
        with suppress(Exception):  # the error that led here matters more
            _cancel_on_flink(options)
        with suppress(Exception):
            results[0].cancel()

    # In a thread of its own: the request has no deadline.
    threading.Thread(target=cancel, name="cancel", daemon=True).start()
    done.wait(max(0.0, deadline - time.monotonic()))


def _cancel_on_flink(options: PipelineOptions) -> None:
    """Cancels the job at Flink itself: Beam's job server only stops waiting for it."""
    master = options.view_as(FlinkRunnerOptions).flink_master
    if master in LOCAL_MASTERS:
        return
    root = master if "://" in master else f"http://{master}"
    name = options.view_as(GoogleCloudOptions).job_name
    with urlopen(f"{root}/jobs/overview", timeout=CANCEL_SECONDS) as answer:
        jobs = json.load(answer)["jobs"]
    for job in jobs:
        if job["name"] == name and job["state"] not in ("FINISHED", "FAILED"):
            request = Request(f"{root}/jobs/{job['jid']}", method="PATCH")
            urlopen(request, timeout=CANCEL_SECONDS).close()


def _translate_error(error: BaseException, options: PipelineOptions) -> BaseException:
    """Returns the error to raise for a failure of the pipeline's thread."""
    if not isinstance(error, grpc.RpcError) or isinstance(error, RecordmillError):
        return error
    code = error.code().name if hasattr(error, "code") else type(error).__name__
    server = options.view_as(PortableOptions).job_endpoint or "the runner's own"
    return RecordmillError(
        f"the job server was lost ({server}: {code}). If the job still runs, it cannot "
        "publish any more; cancel it at the runner"
    )
