"""What is asked of job servers and of Flink, and what is told if they do not answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.flink_runner import FlinkRunner
from store_servers import free_port

from recordmill.beam_jobs.runners import portable
from recordmill.beam_jobs.runners.embedded import is_flink
from recordmill.beam_jobs.runners.portable import StrictOptions
from recordmill.schemas.errors import InputError, UsageError


class Options(beam_job_api_pb2_grpc.JobServiceServicer):
    """A job server that has these options."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def DescribePipelineOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        kind = beam_job_api_pb2.PipelineOptionType.STRING
        options = [
            beam_job_api_pb2.PipelineOptionDescriptor(name=name, type=kind)
            for name in self._names
        ]
        return beam_job_api_pb2.DescribePipelineOptionsResponse(options=options)


@contextmanager
def job_server(*names: str) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(Options(names), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def pipeline_at(endpoint: str) -> beam.Pipeline:
    options = PipelineOptions([f"--job_endpoint={endpoint}"] if endpoint else [])
    return beam.Pipeline("PortableRunner", options)


@pytest.mark.parametrize(
    ("options", "is_one"), [(("spark_master_url", "flink_master"), True), ((), False)]
)
def test_flink_behind_a_job_server(options: tuple[str, ...], is_one: bool) -> None:
    with job_server(*options) as endpoint:
        assert is_flink(pipeline_at(endpoint)) is is_one


def test_flink_without_a_job_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "DESCRIBE_SECONDS", 0.1)
    assert is_flink(beam.Pipeline(FlinkRunner()))
    assert not is_flink(beam.Pipeline("DirectRunner"))
    for endpoint in ("", "embed", f"127.0.0.1:{free_port()}"):
        assert not is_flink(pipeline_at(endpoint))


class JobManager(BaseHTTPRequestHandler):
    """Flink's own: a job that runs, two that ended, and one of somebody else."""

    asked: ClassVar[list[str]] = []
    jobs: ClassVar[list[tuple[str, str, str]]] = [
        ("1", "mine", "FINISHED"),
        ("2", "other", "RUNNING"),
        ("3", "mine", "RUNNING"),
        ("4", "mine", "FAILED"),
    ]

    def do_GET(self) -> None:
        jobs = [dict(zip(("jid", "name", "state"), j, strict=True)) for j in self.jobs]
        self._answer(json.dumps({"jobs": jobs}).encode())

    def do_PATCH(self) -> None:
        self._answer(b"{}")

    def _answer(self, body: bytes) -> None:
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_only_the_own_job_is_cancelled_at_flink(scheme: str) -> None:
    """Beam's job server would only stop waiting for it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), JobManager)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    JobManager.asked.clear()
    done, cancelled = threading.Event(), threading.Event()

    class Result:
        def cancel(self) -> None:
            cancelled.set()
            done.set()

    master = f"{scheme}127.0.0.1:{server.server_port}"
    options = PipelineOptions([f"--flink_master={master}", "--job_name=mine"])
    try:
        portable._cancel_job(done, [Result()], options, 60.0)
    finally:
        server.shutdown()
        server.server_close()
    assert cancelled.is_set()
    assert JobManager.asked == ["GET /jobs/overview", "PATCH /jobs/3"]


def test_a_job_that_was_never_submitted_is_not_cancelled() -> None:
    portable._cancel_job(threading.Event(), [], PipelineOptions([]), 0.0)


class LostError(grpc.RpcError):
    """As a channel raises it whose server is gone."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("error", "endpoint", "told"),
    [
        (LostError(), "a:1", "the job server was lost (a:1: UNAVAILABLE). If the job"),
        (LostError(), "", "the job server was lost (the runner's own: UNAVAILABLE)."),
        (grpc.RpcError(), "", "the job server was lost (the runner's own: RpcError)."),
        (InputError("a row"), "a:1", "a row"),
        (ValueError("a bug"), "a:1", "a bug"),
    ],
)
def test_what_is_told_of_a_failure(
    error: BaseException, endpoint: str, told: str
) -> None:
    options = PipelineOptions([f"--job_endpoint={endpoint}"] if endpoint else [])
    found = portable._translate_error(error, options)
    assert str(found).startswith(told)
    assert (found is error) is not isinstance(error, grpc.RpcError)


def test_an_option_that_nobody_knows() -> None:
    options = StrictOptions(["--runner=PortableRunner", "--no_such=1"])
    with pytest.raises(UsageError, match="nor the job server has an option --no_such"):
        options.get_all_options(add_extra_args_fn=lambda parser: None)
    add = lambda parser: parser.add_argument("--no_such")  # noqa: E731
    assert options.get_all_options(add_extra_args_fn=add)["no_such"] == "1"
