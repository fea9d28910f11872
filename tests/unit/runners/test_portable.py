"""Runners outside this process: what is found wrong before any of them is asked."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import DebugOptions
from job_tools import (
    HANG_SECONDS,
    IRIS,
    assert_unpublished,
    contents,
    convert,
    recordmill,
)
from store_servers import free_port

from recordmill.beam_jobs.runners import portable as portable_options
from recordmill.beam_jobs.runners.embedded import pipeline_options
from recordmill.transforms.exchange.pieces import PIECE_BYTES

ENDPOINT = "--job_endpoint=127.0.0.1:1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--runner=NoSuchRunner"],
            "--runner=NoSuchRunner: Unexpected pipeline runner",
        ),
        (["--runner=no.such.Runner"], "--runner=no.such.Runner: No module named"),
        (["--runner=PortableRunner"], "PortableRunner needs --job_endpoint=HOST:PORT"),
        (
            ["--runner=PrismRunner"],
            "would download its job server: set --prism_location=FILE",
        ),
        (
            ["--runner=PrismRunner", "--prism_location=nowhere/prism"],
            "--prism_location=nowhere/prism: no such file",
        ),
        (
            ["--runner=FlinkRunner", "--flink_version=1.20"],
            "--flink_job_server_jar=FILE (from Maven's "
            "beam-runners-flink-1.20-job-server",
        ),
        (
            ["--runner=FlinkRunner", "--flink_job_server_jar=nowhere.jar"],
            "--flink_job_server_jar=nowhere.jar: no such file",
        ),
        (["--runner=SparkRunner"], "set --spark_job_server_jar=FILE"),
        (
            ["--runner=PortableRunner", ENDPOINT],
            "Beam's own image, which does not contain recordmill: set "
            "--environment_type",
        ),
        (
            ["--runner=FlinkRunner", ENDPOINT, "--flink_master=127.0.0.1:8081"],
            "Beam's own image, which does not contain recordmill",
        ),
        (
            ["--runner=PortableRunner", ENDPOINT, "--environment_type=EXTERNAL"],
            "Option external_service_address is required",
        ),
        (["--runner=PortableRunner", ENDPOINT, "stray"], "Beam has no option stray"),
    ],
)
def test_wrong_options(tmp_path: Path, options: list[str], message: str) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--", *options)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert not (tmp_path / "out").exists()


def test_messages_to_workers_are_small() -> None:
    """A hundred of them wait in a Flink TaskManager's direct memory."""
    remote = ["--runner=PortableRunner", ENDPOINT, "--environment_type=LOOPBACK"]
    for given, size in (([], PIECE_BYTES), (["data_buffer_size_limit=5"], 5)):
        options = pipeline_options(
            [*remote, *[f"--experiments={experiment}" for experiment in given]], 1
        )
        debug = options.view_as(DebugOptions)
        assert debug.lookup_experiment("data_buffer_size_limit") == str(size)


@pytest.mark.slow
def test_no_job_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable_options, "CONNECT_SECONDS", 1.0)
    options = ["--runner=PortableRunner", f"--job_endpoint=127.0.0.1:{free_port()}"]
    options += ["--environment_type=LOOPBACK"]
    began = time.monotonic()
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--", *options)
    assert time.monotonic() - began < HANG_SECONDS
    assert (ran.status, ran.out) == (1, "")
    assert "no job server answers at 127.0.0.1:" in ran.err
    assert "Connection refused" in ran.err
    assert_unpublished(tmp_path / "out")


@pytest.mark.parametrize("address", ["somewhere", "127.0.0.1", "127.0.0.1:many", "::"])
def test_address_that_is_none(tmp_path: Path, address: str) -> None:
    options = ["--runner=PortableRunner", f"--job_endpoint={address}"]
    options += ["--environment_type=LOOPBACK"]
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--", *options)
    assert (ran.status, ran.out) == (2, "")
    assert f"--job_endpoint={address}: expected HOST:PORT" in ran.err


def test_job_server_that_does_not_start(tmp_path: Path) -> None:
    jar = tmp_path / "empty.jar"
    jar.write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as master:
        options = ["--runner=FlinkRunner", f"--flink_job_server_jar={jar}"]
        options += [f"--flink_master=127.0.0.1:{master.getsockname()[1]}"]
        options += ["--environment_type=LOOPBACK"]
        options += ["--job_server_java_launcher=false"]  # the program that only fails
        ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--", *options)
    assert (ran.status, ran.out) == (1, "")
    assert "the job server of --runner=FlinkRunner failed to start" in ran.err
    assert_unpublished(tmp_path / "out")


def test_job_api_inside_this_process(tmp_path: Path, iris: Path) -> None:
    """Beam's own job server of the embedded runner: portable, and needs no server."""
    output = tmp_path / "iris"
    options = ["--runner=PortableRunner", "--job_endpoint=embed"]
    options += ["--environment_type=LOOPBACK"]
    convert("csv", IRIS, output, "--shards", 2, "--", *options)
    assert contents(output) == contents(iris)
