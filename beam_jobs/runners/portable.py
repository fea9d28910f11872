"""Runs pipelines on runners outside this process; cancels the job if the launcher ends.

    launcher -- job API --> job server --> engine --> workers

Without this module, Beam waits minutes for a job server that does not answer, and a job
continues to run after its launcher was interrupted.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SparkRunnerOptions,
    StandardOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.job_server import StopOnExitJobServer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.portability.spark_runner import SparkRunner
from apache_beam.runners.runner import PipelineRunner, PipelineState, create_runner

from recordmill.beam_jobs.runners.new_pipeline import new_pipeline
from recordmill.schemas.errors import Interrupted, RecordmillError, UsageError
from recordmill.transforms.exchange.pieces import PIECE_BYTES
from recordmill.transforms.parallel import run_in_thread

# Without these checks, Beam downloads a job server that the user did not choose, ignores
# misspelt options, and runs workers in an image without recordmill.

CONNECT_SECONDS = 10.0  # maximum wait for a job server that may still be starting
# An experiment of Beam's Java runners: the bytes of one message to a worker. Up to a
# hundred messages are held in direct memory, which is 128 MB in Flink by default.
_MESSAGE_BYTES_EXPERIMENT = "data_buffer_size_limit"
LOCAL_MASTERS = ("[auto]", "[local]", "local")


class StrictOptions(PipelineOptions):
    """Options that are checked after the job server has declared its own options."""

    def get_all_options(self, *args: Any, **keywords: Any) -> dict[str, Any]:
        add_known = keywords.get("add_extra_args_fn")
        if add_known is None:
            return dict(super().get_all_options(*args, **keywords))
        unknown: list[str] = []

        def add_and_check(parser: Any) -> None:
            add_known(parser)
            unknown.extend(parser.parse_known_args(self._flags)[1])

        options = super().get_all_options(
            *args, **{**keywords, "add_extra_args_fn": add_and_check}
        )
        if unknown:
            raise UsageError(
                f"neither Beam nor the job server has an option {unknown[0]}"
            )
        return dict(options)


def check_remote(
    options: PipelineOptions, runner: PipelineRunner, beam_args: Sequence[str]
) -> None:
    """Checks the options of a runner outside this process; raises UsageError."""
    if not isinstance(runner, PortableRunner):
        return  # Dataflow's runner checks its options itself, and accesses storage for it
    errors = PipelineOptionsValidator(options, runner).validate()
    if errors:
        raise UsageError(f"Beam option: {errors[0].strip()}")
    if not options.view_as(PortableOptions).job_endpoint:
        _require_job_server(runner, options)
    _require_environment(runner, options)
    # In spite of the class name, `job_name` is an option of all runners.
    cloud_options = options.view_as(GoogleCloudOptions)
    cloud_options.job_name = (
        cloud_options.job_name or f"recordmill-{uuid.uuid4().hex[:12]}"
    )
    if not any(arg.startswith("--job_server_timeout") for arg in beam_args):
        # The timeout limits each request. On Prism it limits the whole job, because the
        # stream of job states is one request. require_listening checks that the server
        # answers.
        options.view_as(PortableOptions).job_server_timeout = 30 * 24 * 3600
    debug = options.view_as(DebugOptions)
    if debug.lookup_experiment(_MESSAGE_BYTES_EXPERIMENT) is None:
        debug.add_experiment(f"{_MESSAGE_BYTES_EXPERIMENT}={PIECE_BYTES}")


def create_runner_for(options: PipelineOptions) -> PipelineRunner:
    """Returns the runner that the options name; raises UsageError if it is unknown."""
    name = str(options.view_as(StandardOptions).runner)
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"--runner={name}: {error}") from error


def _require_job_server(runner: PortableRunner, options: PipelineOptions) -> None:
    """Requires a named job server, so that Beam downloads none."""
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
            f"--runner={name} would download its job server: set {option}=FILE (from "
            f"{source}, of Beam's version), or --job_endpoint=HOST:PORT of a running "
            "one"
        )
    if "://" not in file and not Path(file).is_file():
        raise UsageError(f"{option}={file}: no such file")


def _require_environment(runner: PortableRunner, options: PipelineOptions) -> None:
    """Requires an environment for the workers in which recordmill is installed."""
    portable = options.view_as(PortableOptions)
    kind = portable.environment_type
    master = options.view_as(FlinkRunnerOptions).flink_master
    if kind is None and (
        isinstance(runner, PrismRunner | SparkRunner)  # LOOPBACK
        or (isinstance(runner, FlinkRunner) and master in LOCAL_MASTERS)
        or portable.job_endpoint == "embed"
    ):
        spark = str(options.view_as(SparkRunnerOptions).spark_master_url)
        if not isinstance(runner, SparkRunner) or spark.startswith("local"):
            return
    image = portable.environment_config or portable.lookup_environment_option(
        "docker_container_image"
    )
    if kind in (None, "DOCKER") and not image:
        raise UsageError(
            f"the workers of --runner={type(runner).__name__} would run in Beam's own "
            "image, which does not contain recordmill: set "
            "--environment_type=EXTERNAL, PROCESS or LOOPBACK, or DOCKER with "
            "--environment_config=IMAGE"
        )


def require_listening(address: str, server: str, option: str) -> None:
    """Waits up to CONNECT_SECONDS for a server that listens at an address host:port."""
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
                    f"no {server} answers at {address} ({error}). Start it, or correct "
                    f"{option}"
                ) from error
        time.sleep(0.2)


POLL_SECONDS = 0.2
CANCEL_SECONDS = 20.0
INTERRUPTED_CANCEL_SECONDS = 6.0  # the sender of a signal soon sends SIGKILL


def run_remote(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    on_poll: Callable[[], None],
    *,
    folder: str = "",
) -> None:
    """Runs a pipeline to its end, and calls `on_poll` from this thread meanwhile.

    An interruption (a signal, or an error of `on_poll`) cancels the job. `folder` is the
    local folder in which Beam creates its temporary folder; by default TMPDIR.

    Raises:
      RecordmillError: the job server does not answer, or is lost during the run.
      Exception: the error with which the pipeline failed.
    """
    runner = create_runner_for(options)
    results: list[Any] = []
    done = threading.Event()

    def run() -> None:
        pipeline = new_pipeline(runner, options, folder)
        build(pipeline)
        results.append(pipeline.run())
        state = results[0].wait_until_finish()
        if state not in (PipelineState.DONE, None):
            raise RecordmillError(f"the job ended in state {state}")

    with ExitStack() as stack:
        if isinstance(runner, PortableRunner):
            stack.enter_context(_job_server(runner, options))
        try:
            run_in_thread(run, done, on_poll, POLL_SECONDS)
        except BaseException as error:
            if done.is_set():
                raise _translate_error(error, options) from error
            hurry = isinstance(error, Interrupted)
            seconds = INTERRUPTED_CANCEL_SECONDS if hurry else CANCEL_SECONDS
            _cancel_job(done, results, options, seconds)
            raise


def submit_pipeline(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    *,
    folder: str = "",
) -> str:
    """Submits a pipeline to a runner that runs or translates it; returns the job id.

    This process does not wait for the job. `folder` is the local folder in which Beam
    creates its temporary folder; by default TMPDIR.

    Raises:
      UsageError: the job would end with this process.
      RecordmillError: the job server does not answer.
    """
    runner = create_runner_for(options)
    portable = options.view_as(PortableOptions)
    if isinstance(runner, PortableRunner):
        endpoint = portable.job_endpoint
        if not endpoint or endpoint == "embed":
            raise UsageError(
                "`detach` needs a job server that runs longer than this command: set "
                "--job_endpoint"
            )
        if portable.environment_type in (None, "LOOPBACK"):
            raise UsageError(
                "`detach` needs workers that run longer than this command: set "
                "--environment_type=EXTERNAL, PROCESS or DOCKER"
            )
        require_listening(endpoint, "job server", "--job_endpoint")
    pipeline = new_pipeline(runner, options, folder)
    build(pipeline)
    result = pipeline.run()
    if isinstance(runner, PortableRunner):
        return str(vars(result)["_job_id"])
    name = getattr(result, "job_id", str)  # Dataflow's method
    with suppress(AttributeError):  # a template is not a job yet
        return str(name())
    return ""


@contextmanager
def _job_server(runner: PortableRunner, options: PipelineOptions) -> Iterator[None]:
    """Waits until the job server answers; starts it if the runner has its own server."""
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint:
        if endpoint != "embed":
            require_listening(endpoint, "job server", "--job_endpoint")
        yield
        return
    if isinstance(runner, FlinkRunner):
        master = options.view_as(FlinkRunnerOptions).flink_master
        if master not in LOCAL_MASTERS:
            require_listening(master, "Flink JobManager", "--flink_master")
    server = runner.default_job_server(options)
    # The wrapper handles SIGINT, which works only in the main thread, and would stop the
    # server before the job is cancelled. It also relies on exit functions, which this
    # process does not run.
    if isinstance(server, StopOnExitJobServer):
        server = server._job_server
    try:
        service = server.start()
    except Exception as error:
        raise RecordmillError(
            f"the job server of --runner={type(runner).__name__} failed to start: "
            f"{error}. The log has its output"
        ) from error
    started = SimpleNamespace(start=lambda: service)
    runner.default_job_server = lambda _: started  # type: ignore[method-assign]
    try:
        yield
    finally:
        with suppress(Exception):  # the job has ended
            server.stop()


def _cancel_job(
    done: threading.Event,
    results: Sequence[Any],
    options: PipelineOptions,
    seconds: float,
) -> None:
    """Cancels the job; waits up to `seconds` for its end, as workers write until then."""
    deadline = time.monotonic() + seconds
    while not (results or done.is_set()) and time.monotonic() < deadline:
        time.sleep(0.05)  # a job can be cancelled only after it was submitted
    if not results:
        return

    def cancel() -> None:
        with suppress(Exception):  # the original error matters more
            _cancel_on_flink(options)
        with suppress(Exception):
            results[0].cancel()

    # In a separate thread, because the request has no deadline.
    threading.Thread(target=cancel, name="cancel", daemon=True).start()
    done.wait(max(0.0, deadline - time.monotonic()))


def _cancel_on_flink(options: PipelineOptions) -> None:
    """Cancels the job in Flink itself: Beam's job server only stops waiting for it."""
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
    """Returns the error to raise after a failure of the pipeline's thread."""
    if not isinstance(error, grpc.RpcError) or isinstance(error, RecordmillError):
        return error
    code = error.code().name if hasattr(error, "code") else type(error).__name__
    server = options.view_as(PortableOptions).job_endpoint or "the runner's own"
    return RecordmillError(
        f"the job server was lost ({server}: {code}). If the job is still running, it "
        "can no longer publish; cancel it in the runner"
    )


DESCRIBE_SECONDS = 10.0


def runs_on_flink(pipeline: beam.Pipeline) -> bool:
    """Returns True if Flink runs a pipeline, directly or through a job server."""
    runner = pipeline.runner
    if isinstance(runner, FlinkRunner):
        return True
    if type(runner) is not PortableRunner:
        return False
    endpoint = pipeline.options.view_as(PortableOptions).job_endpoint
    if not endpoint or endpoint == "embed":
        return False
    # A job server, which may still be starting, declares Flink's options if it is
    # Flink's.
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        try:
            answer = service.DescribePipelineOptions(
                request, timeout=DESCRIBE_SECONDS, wait_for_ready=True
            )
        except grpc.RpcError:
            return False  # submitting the job will show the error
    return any(option.name == "flink_master" for option in answer.options)
