"""deploy/Dockerfile is built and its image is run: `make image`, as it takes minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from clusters import prism_binary
from container import Builder, Image, own_network
from job_tools import IRIS, assert_whole, convert
from same_dataset import dataset_of
from services import Service, service, tail

POOL_PORT = 50_000  # Beam's boot program knows no other
USER = 10_001
CONVERT = [
    *("recordmill", "convert", "csv", "/data/iris.csv", "/data/out"),
    *("--name", "iris", "--shards", "3"),
]


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Builder(tmp_path_factory.mktemp("images")).build()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that is the user's, with a table."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copyfile(IRIS, folder / "iris.csv")
    os.chown(folder, USER, USER)
    return folder


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, Any]:
    convert("csv", IRIS, tmp_path / "expected", "--name", "iris", "--shards", 3)
    return written(tmp_path / "expected")


def written(folder: Path) -> dict[str, Any]:
    """What a dataset holds, but not where its inputs were and since when."""
    assert_whole(folder)
    found = dataset_of(folder)
    del found["inventory.jsonl.gz"]
    return found


def test_it_is_nobody_and_writes_to_tmp_alone(image: Image, data: Path) -> None:
    code = f"""
import os, tempfile
assert os.getuid() == os.getgid() == {USER}
assert os.getcwd() == tempfile.gettempdir() == os.environ["HOME"] == "/tmp"
for folder, folders, files in os.walk("/"):
    if folder == "/":
        for mount in ("proc", "dev", "data", "tmp"):
            folders.remove(mount)
    assert not os.access(folder, os.W_OK), folder
"""
    done = image.run(data, "python", "-c", code)
    assert done.returncode == 0, done.stderr


def test_the_command(image: Image, data: Path, expected: dict[str, Any]) -> None:
    done = image.run(data, *CONVERT)
    assert done.returncode == 0, done.stderr
    assert written(data / "out") == expected


def test_a_worker(
    image: Image, data: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    """The entry point starts workers; Prism gives them a job of the image's launcher."""
    job_port = 8_073
    with ExitStack() as stack:
        network = stack.enter_context(own_network())

        def start(command: Sequence[str], port: int) -> Service:
            log = tmp_path / f"{port}.log"
            one = stack.enter_context(service(network.command(command), log))
            one.wait_for(log.stem, lambda: network.listens(port))
            return one

        pool = start(image.command(data, ["--worker_pool"]), POOL_PORT)
        start(
            [prism_binary(), f"--job_port={job_port}", "--serve_http=false"], job_port
        )
        beam = ["--runner=PortableRunner", f"--job_endpoint=127.0.0.1:{job_port}"]
        beam.append("--environment_type=EXTERNAL")
        beam.append(f"--environment_config=127.0.0.1:{POOL_PORT}")
        command = network.command(image.command(data, [*CONVERT, "--", *beam]))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{tail(pool.log)}"
    assert written(data / "out") == expected


def test_the_file_that_flex_templates_start(
    image: Image, data: Path, expected: dict[str, Any]
) -> None:
    file = dict(pair.split("=", 1) for pair in image.config["Env"])[
        "FLEX_TEMPLATE_PYTHON_PY_FILE"
    ]
    done = image.run(
        data,
        *(
            "python",
            file,
            "--source=csv",
            "--name=iris",
            "--shards=3",
            "--inputs=/data/iris.csv",
        ),
        *("--output=/data/out", "--runner=DirectRunner"),
    )
    assert done.returncode == 0, done.stderr
    assert written(data / "out") == expected
