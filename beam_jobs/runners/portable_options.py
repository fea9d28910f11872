"""Checks the options of runners outside this process, before anything is started.

Without this, Beam downloads a job server that nobody chose, ignores misspelt options,
and runs workers in an image without recordmill.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.portability.spark_runner import SparkRunner
from apache_beam.runners.runner import PipelineRunner, create_runner

from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.transforms.exchange.messages import PIECE_BYTES

CONNECT_SECONDS = 10.0  # for a job server that may still be starting
# Experiment of Beam's Java runners: bytes in one message to a worker. Up to a hundred
# messages are held in direct memory, of which Flink has 128 MB by default.
_MESSAGE_BYTES = "data_buffer_size_limit"
LOCAL_MASTERS = ("[auto]", "[local]", "local")


class StrictOptions(PipelineOptions):
    """Options that are checked after the job server has declared its own."""

    def get_all_options(self, *args: Any, **named: Any) -> dict[str, Any]:
        add_known = named.get("add_extra_args_fn")
        if add_known is None:
            return dict(super().get_all_options(*args, **named))
        unknown: list[str] = []

        def add_and_check(parser: Any) -> None:
            add_known(parser)
            unknown.extend(parser.parse_known_args(self._flags)[1])

        options = super().get_all_options(
            *args, **{**named, "add_extra_args_fn": add_and_check}
        )
        if unknown:
            raise UsageError(
                f"neither Beam nor the job server has an option {unknown[0]}"
            )
        return dict(options)


def asks_job_server(options: PipelineOptions) -> bool:
    """Returns whether the runner has a job server, which declares its own options.

    Raises:
      UsageError: there is no such runner.
    """
    return isinstance(runner_of(options), PortableRunner)


def check_remote(options: PipelineOptions, beam_args: Sequence[str]) -> None:
    """Checks the options of a runner outside this process.

    Raises:
      UsageError: an option is missing or not valid.
    """
    runner = runner_of(options)
    if not isinstance(runner, PortableRunner):
        return  # Dataflow's runner checks its options itself, and reads its storage for it
    errors = PipelineOptionsValidator(options, runner).validate()
    if errors:
        raise UsageError(f"Beam option: {errors[0].strip()}")
    if not options.view_as(PortableOptions).job_endpoint:
        _require_job_server(runner, options)
    _require_environment(runner, options)
    named = options.view_as(
        GoogleCloudOptions
    )  # of all runners, in spite of the class name
    named.job_name = named.job_name or f"recordmill-{uuid.uuid4().hex[:12]}"
    if not any(arg.startswith("--job_server_timeout") for arg in beam_args):
        # It limits each request and, on Prism, the whole job, as the stream of its
        # states is one request. Whether the server answers is checked by
        # require_listening.
        options.view_as(PortableOptions).job_server_timeout = 30 * 24 * 3600
    limit = f"{_MESSAGE_BYTES}={PIECE_BYTES}"
    debug = options.view_as(DebugOptions)
    if debug.lookup_experiment(_MESSAGE_BYTES) is None:
        debug.add_experiment(limit)


def runner_of(options: PipelineOptions) -> PipelineRunner:
    name = str(options.view_as(StandardOptions).runner)
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"--runner={name}: {error}") from error


def _require_job_server(runner: PortableRunner, options: PipelineOptions) -> None:
    """Requires that a job server is named, so that Beam downloads none."""
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
            f"--runner={name} would download its job server: give {option}=FILE (from "
            f"{source}, of Beam's version), or a running one by --job_endpoint=HOST:PORT"
        )
    if "://" not in file and not Path(file).is_file():
        raise UsageError(f"{option}={file}: no such file")


def _require_environment(runner: PortableRunner, options: PipelineOptions) -> None:
    """Requires that the workers run where recordmill is installed."""
    portable = options.view_as(PortableOptions)
    kind = portable.environment_type
    master = options.view_as(FlinkRunnerOptions).flink_master
    if kind is None and (
        isinstance(runner, PrismRunner | SparkRunner)  # LOOPBACK
        or (isinstance(runner, FlinkRunner) and master in LOCAL_MASTERS)
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
            "image, which has no recordmill: give --environment_type=EXTERNAL, PROCESS "
            "or LOOPBACK, or DOCKER with --environment_config=IMAGE"
        )


def _is_local_spark(options: PipelineOptions) -> bool:
    return str(options.view_as(SparkRunnerOptions).spark_master_url).startswith("local")


def require_listening(address: str, server: str, option: str) -> None:
    """Waits up to CONNECT_SECONDS for a server that listens at host:port.

    Raises:
      UsageError: the address is not valid.
      RecordmillError: no server listens.
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
                    f"no {server} answers at {address} ({error}): is it started, and "
                    f"is {option} its address?"
                ) from error
        time.sleep(0.2)
