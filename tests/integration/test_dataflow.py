"""What Dataflow's runner makes of the job, as far as it goes without Dataflow.

The runner is the real one, and storage is fake-gcs-server; nothing asks for
credentials. What the service does with the job is not seen here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from job_tools import COMMAND, IRIS, SAMPLES, Ran
from store_servers import SECRET, SERVERS

from recordmill.transforms.storage import Store, open_store

RUNNER = [
    "--runner=DataflowRunner",
    "--no_auth",
    "--no_save_main_session",
    "--project=project-a",
    "--region=us-central1",
    "--sdk_container_image=registry.example/recordmill:0.1.0",
]
SOURCES = [("csv", IRIS), ("cifar", SAMPLES / "cifar"), ("images", SAMPLES / "images")]


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the address of the server that has it."""

    url: str
    store: Store
    address: str


@pytest.fixture
def bucket(server: Callable[[str], str], tmp_path: Path) -> Bucket:
    place = SERVERS["gcs"].make_place(server("gcs"), tmp_path)
    url = place.root.removesuffix("/some/out")
    return Bucket(url, open_store(url, place.options), server("gcs"))


def translate(bucket: Bucket, *arguments: str | Path) -> Ran:
    """Runs the real command in a process of its own, as Beam keeps its clients."""
    where = [f"--temp_location={bucket.url}/tmp"]
    where += [f"--staging_location={bucket.url}/stage"]
    environment = {
        "STORAGE_EMULATOR_HOST": bucket.address,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [str(COMMAND), *map(str, arguments), *where],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("source", "given"), SOURCES)
def test_a_dry_run_translates_and_makes_nothing(
    source: str, given: Path, bucket: Bucket, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = ["convert", source, given, output, "--json", "--", "--dry_run=True"]
    ran = translate(bucket, *command, *RUNNER)
    assert ran.status == 0, ran.err
    told = {"status": "translated", "output": str(output), "template": ""}
    assert json.loads(ran.out) == told
    assert not output.exists()
    assert bucket.store.list() == {}


def test_a_template_holds_the_whole_job(bucket: Bucket, tmp_path: Path) -> None:
    """As in a Flex launch: the launcher asks for a template, and takes it from there."""
    template = tmp_path / "job.json"
    output = tmp_path / "out"
    wish = f"--template_location={template}"
    ran = translate(bucket, "convert", "csv", IRIS, output, "--", wish, *RUNNER)
    assert ran.status == 0, ran.err
    # Before it there may be lines on the progress: one every ten seconds.
    assert ran.err.endswith(
        f"{template}: Dataflow template written. {output} is published after Dataflow "
        "runs the template\n"
    )
    # What its workers will read is there; its last step publishes.
    assert [entry.name for entry in output.iterdir()] == [".recordmill"]
    job = json.loads(template.read_text())
    assert job["type"] == "JOB_TYPE_BATCH"
    (pool,) = job["environment"]["workerPools"]
    images = [image["containerImage"] for image in pool["sdkHarnessContainerImages"]]
    assert images == ["registry.example/recordmill:0.1.0"]
    assert "pickled_main_session" not in {file["name"] for file in pool["packages"]}

    staged = {name.split("/")[-1]: name for name in bucket.store.list("stage")}
    assert set(staged) == {"pipeline.pb", "submission_environment_dependencies.txt"}
    for name in staged.values():
        assert SECRET.encode() not in bucket.store.read(name)
    data = bucket.store.read(staged["pipeline.pb"])
    pipeline = beam_runner_api_pb2.Pipeline.FromString(data)
    names = {step.unique_name for step in pipeline.components.transforms.values()}
    assert {
        "Range",
        "ConvertRanges",
        "PlanShards",
        "SendRanges",
        "WriteShards",
        "PublishDataset",
    } <= names
