"""Runners outside this process: checked beforehand, cancelled when their launcher ends.

    launcher -- job API --> job server --> engine --> workers

Left to itself, Beam downloads a job server that nobody chose, waits minutes for one that
is not there, throws away options that are misspelt, runs workers in an image without
recordmill, and leaves a job running whose launcher was interrupted.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SparkRunnerOptions,
    StandardOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.job_server import StopOnExitJobServer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.portability.spark_runner import SparkRunner
from apache_beam.runners.runner import PipelineRunner, PipelineState, create_runner

from schemas.errors import RecordmillError, UsageError

POLL_SECONDS = 0.2
CONNECT_SECONDS = 10.0  # for a job server that may be starting just now
CANCEL_SECONDS = 20.0
_LOCAL_MASTERS = ("[auto]", "[local]", "local")


class StrictOptions(PipelineOptions):
    """Options that only the job server may know are checked once it has told its own."""

    def get_all_options(self, *args: Any, **named: Any) -> dict[str, Any]:
        add_known = named.get("add_extra_args_fn")
        if add_known is None:
            return dict(super().get_all_options(*args, **named))
        unknown: list[str] = []

        def add_and_look(parser: Any) -> None:
            add_known(parser)
            unknown.extend(parser.parse_known_args(self._flags)[1])

        given = super().get_all_options(
            *args, **{**named, "add_extra_args_fn": add_and_look}
        )
        if unknown:
            raise UsageError(
                f"neither Beam nor the job server knows an option {unknown[0]}"
            )
        return dict(given)


def asks_job_server(options: PipelineOptions) -> bool:
    """Whether the runner has a job server, which has options of its own.

    Raises:
      UsageError: there is no such runner.
    """
    return isinstance(_runner(options), PortableRunner)


def check_remote(options: PipelineOptions, beam_args: Sequence[str]) -> None:
    """Finds what is wrong with the options before anything is started or made.

    Raises:
      UsageError: says which option is missing or wrong.
    """
    runner = _runner(options)
    errors = PipelineOptionsValidator(options, runner).validate()
    if errors:
        raise UsageError(f"Beam option: {errors[0].strip()}")
    if not isinstance(runner, PortableRunner):
        return
    if not options.view_as(PortableOptions).job_endpoint:
        _require_job_server(runner, options)
    _require_environment(runner, options)
    named = options.view_as(GoogleCloudOptions)  # every runner's, in spite of its name
    named.job_name = named.job_name or f"recordmill-{uuid.uuid4().hex[:12]}"
    if not any(arg.startswith("--job_server_timeout") for arg in beam_args):
        # It would limit not only each request but, on Prism, the whole job: the stream
        # of its states is a request. That the server is there is looked at apart.
        options.view_as(PortableOptions).job_server_timeout = 30 * 24 * 3600


def run_remote(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    on_poll: Callable[[], None],
) -> None:
    """Runs a pipeline to its end, calling `on_poll` from this thread meanwhile.

    If this is interrupted (Ctrl-C, SIGTERM, an error of `on_poll`), the job is cancelled.

    Raises:
      RecordmillError: no job server answers, or it is lost in mid-run.
      Exception: whatever the pipeline failed with.
    """
    runner = _runner(options)
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
        except BaseException as error:  # carried to the caller's thread
            failures.append(error)
        finally:
            done.set()

    # Not join(): where a signal interrupts it, Python 3.11 takes the thread for ended.
    done = threading.Event()
    thread = threading.Thread(target=run, name="pipeline", daemon=True)
    with ExitStack() as stack:
        stack.enter_context(_interrupted_by_sigterm())
        if isinstance(runner, PortableRunner):
            stack.enter_context(_job_server(runner, options))
        thread.start()
        try:
            while not done.wait(POLL_SECONDS):
                on_poll()
        except BaseException:
            _cancel(done, results, options)
            raise
    if failures:
        raise _told(failures[0], options) from failures[0]


def _runner(options: PipelineOptions) -> PipelineRunner:
    name = str(options.view_as(StandardOptions).runner)
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"--runner={name}: {error}") from error


def _require_job_server(runner: PortableRunner, options: PipelineOptions) -> None:
    """Makes sure that a job server is named, so that Beam downloads none."""
    name = type(runner).__name__
    flink = options.view_as(FlinkRunnerOptions)
    spark = options.view_as(SparkRunnerOptions)
    if isinstance(runner, PrismRunner):
        option = "--prism_location"
        file = options.view_as(PrismRunnerOptions).prism_location
        source = "go install github.com/apache/beam/sdks/v2/go/cmd/prism"
    elif isinstance(runner, FlinkRunner):
        if flink.flink_submit_uber_jar and flink.flink_job_server_jar:
            return
        option, file = "--flink_job_server_jar", flink.flink_job_server_jar
        source = f"Maven's beam-runners-flink-{flink.flink_version}-job-server"
    elif isinstance(runner, SparkRunner):
        option, file = "--spark_job_server_jar", spark.spark_job_server_jar
        source = f"Maven's beam-runners-spark-{spark.spark_version}-job-server"
    else:
        raise UsageError(f"--runner={name} needs --job_endpoint=HOST:PORT")
    if not file:
        raise UsageError(
            f"--runner={name} would have to download its job server: give "
            f"{option}=FILE (from {source}, of Beam's own version), or one that runs "
            "already, by --job_endpoint=HOST:PORT"
        )
    if "://" not in file and not Path(file).is_file():
        raise UsageError(f"{option}={file}: no such file")


def _require_environment(runner: PortableRunner, options: PipelineOptions) -> None:
    """Makes sure that the workers will be somewhere where recordmill is installed."""
    portable = options.view_as(PortableOptions)
    kind = portable.environment_type
    master = options.view_as(FlinkRunnerOptions).flink_master
    if kind is None and (
        isinstance(runner, PrismRunner | SparkRunner)  # LOOPBACK
        or (isinstance(runner, FlinkRunner) and master in _LOCAL_MASTERS)
        or portable.job_endpoint == "embed"
    ):
        if not isinstance(runner, SparkRunner) or _is_local_spark(options):
            return
    image = portable.environment_config or portable.lookup_environment_option(
        "docker_container_image"
    )
    if kind in (None, "DOCKER") and not image:
        raise UsageError(
            f"the workers of --runner={type(runner).__name__} would run in Beam's own "
            "image, which has no recordmill: say where they run by --environment_type="
            "EXTERNAL, PROCESS or LOOPBACK, or DOCKER with --environment_config=IMAGE"
        )


def _is_local_spark(options: PipelineOptions) -> bool:
    return str(options.view_as(SparkRunnerOptions).spark_master_url).startswith("local")


@contextmanager
def _job_server(runner: PortableRunner, options: PipelineOptions) -> Iterator[None]:
    """Makes sure that the job server answers; starts it if the runner has its own.

    Raises:
      RecordmillError: it does not.
    """
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint == "embed":
        yield
        return
    if endpoint:
        _require_listening(endpoint, "job server", "--job_endpoint")
        yield
        return
    if isinstance(runner, FlinkRunner):
        master = options.view_as(FlinkRunnerOptions).flink_master
        if master not in _LOCAL_MASTERS:
            _require_listening(master, "Flink JobManager", "--flink_master")
    server = runner.default_job_server(options)
    # Its wrapper takes SIGINT for itself, in the main thread alone, and stops the server
    # before the job could be cancelled; and counts on exit functions, which never run.
    if isinstance(server, StopOnExitJobServer):
        server = server._job_server
    try:
        service = server.start()
    except Exception as error:
        raise RecordmillError(
            f"the job server of --runner={type(runner).__name__} does not start: "
            f"{error}; what it printed is in the log"
        ) from error
    runner.default_job_server = lambda _: _Started(service)  # type: ignore[method-assign]
    try:
        yield
    finally:
        with suppress(Exception):  # what counts has happened
            server.stop()


class _Started:
    """A job server that runs already."""

    def __init__(self, service: object) -> None:
        self._service = service

    def start(self) -> object:
        return self._service


def _require_listening(address: str, what: str, option: str) -> None:
    """Waits a few seconds for somebody to listen at host:port.

    Raises:
      UsageError: the address is none.
      RecordmillError: nobody does.
    """
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise UsageError(f"{option}={address}: expected HOST:PORT")
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RecordmillError(
                    f"no {what} answers at {address} ({error}): is it started, and "
                    f"is {option} its address?"
                ) from error
        time.sleep(0.2)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Turns SIGTERM, which schedulers send, into an exception like Ctrl-C's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cancel(
    done: threading.Event, results: Sequence[Any], options: PipelineOptions
) -> None:
    """Cancels the job, and waits a little for its end: its workers write until then."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while not (results or done.is_set()) and time.monotonic() < deadline:
        time.sleep(0.05)  # it is being submitted, and can be cancelled after that
    if not results:
        return

    def cancel() -> None:
        with suppress(Exception):  # the error that led here is the one to tell
            _cancel_on_flink(options)
        with suppress(Exception):
            results[0].cancel()

    # In a thread of its own: the request has no deadline.
    threading.Thread(target=cancel, name="cancel", daemon=True).start()
    done.wait(max(0.0, deadline - time.monotonic()))


def _cancel_on_flink(options: PipelineOptions) -> None:
    """Cancels the job at Flink itself: Beam's job server only stops to wait for it."""
    master = options.view_as(FlinkRunnerOptions).flink_master
    if master in _LOCAL_MASTERS:
        return
    root = master if "://" in master else f"http://{master}"
    name = options.view_as(GoogleCloudOptions).job_name
    with urlopen(f"{root}/jobs/overview", timeout=CANCEL_SECONDS) as answer:
        jobs = json.load(answer)["jobs"]
    for job in jobs:
        if job["name"] == name and job["state"] not in ("FINISHED", "FAILED"):
            request = Request(f"{root}/jobs/{job['jid']}", method="PATCH")
            urlopen(request, timeout=CANCEL_SECONDS).close()


def _told(error: BaseException, options: PipelineOptions) -> BaseException:
    """What to raise for a failure of the pipeline's thread."""
    if not isinstance(error, grpc.RpcError) or isinstance(error, RecordmillError):
        return error
    code = error.code().name if hasattr(error, "code") else type(error).__name__
    server = options.view_as(PortableOptions).job_endpoint or "the runner's own"
    return RecordmillError(
        f"lost the job server ({server}: {code}). If the job still runs, it can no "
        "longer publish; cancel it there"
    )
