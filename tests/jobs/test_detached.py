"""Jobs that are given to a runner and published by their own last step.

What a real engine does with a detached job is in integration/test_clusters.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from job_tools import IRIS, assert_whole, contents, convert, recordmill
from same_dataset import dataset_of
from store_servers import Place
from store_tools import local_files, options_of, published

from recordmill.beam_jobs.pipelines.convert import convert_dataset
from recordmill.beam_jobs.runners.embedded import pipeline_options, run_pipeline
from recordmill.beam_jobs.service.prepare import prepare_run
from recordmill.beam_jobs.service.resolve import resolve
from recordmill.beam_jobs.service.set_up import prepare_workspace, run_metadata
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.job.job_spec import JobSpec, Sharding
from recordmill.schemas.job.run_options import RunOptions
from recordmill.schemas.job.storage_options import BothSides
from recordmill.transforms.commit import detached as detached
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire
from recordmill.transforms.tasks.workspace import Workspace

JOB = JobSpec(source="csv", name="iris", sharding=Sharding(num_shards=2))


def run_unattended(options: RunOptions, job: JobSpec = JOB) -> None:
    """What a runner does with a job that was handed over, here in this process."""
    prepared = prepare_run(resolve(job, options))
    context, ranges = prepared.context, prepared.ranges
    assert context.lease == ""
    # As on a cluster: workers see nothing but the store.
    shared = context.workspace.store.uri[:1] != "/"
    workspace = replace(context.workspace, shared=shared)
    context = prepare_workspace(replace(context, workspace=workspace), prepared.inputs)
    beam_options = pipeline_options([], workers=2)
    facts = run_metadata(context, beam_options)
    run_pipeline(lambda p: convert_dataset(p, context, ranges, facts), beam_options)


def options_for(place: Place, **more: bool) -> RunOptions:
    storage = BothSides(output=place.options)
    options = RunOptions((str(IRIS),), place.root, exchange="engine", storage=storage)
    return replace(options, **more)


def test_the_last_step_publishes_and_cleans_up(
    store_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = options_for(store_place)
    run_unattended(options)
    convert("csv", IRIS, tmp_path / "iris", "--shards", 2)
    assert published(store_place) == local_files(tmp_path / "iris")
    # The step may come twice, and so may the whole job.
    run_unattended(options)
    assert published(store_place) == local_files(tmp_path / "iris")
    reach = options_of(store_place.options)
    assert recordmill("verify", store_place.root, *reach).status == 0


def test_a_last_step_that_was_broken_off_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the worker dies that publishes: its lease is still there, too."""
    leases = []

    def breaking(workspace: Workspace, _: Manifest | None) -> Manifest:
        shard = next(iter(workspace.store.list(workspace.store_name("staging"))))
        workspace.store.move(shard, shard.rpartition("/")[2])
        raise OSError("the power went")

    place = Place("local", str(tmp_path / "iris"), BothSides().output)
    with monkeypatch.context() as patch:
        patch.setattr(detached, "commit", breaking)
        with pytest.raises(Exception, match="the power went"):
            run_unattended(options_for(place))
    assert not (tmp_path / "iris" / "manifest.json").exists()
    leases.append(acquire(LocalStore(str(tmp_path / "iris"))))
    monkeypatch.setattr(detached.time, "sleep", lambda _: leases.pop().release())
    run_unattended(options_for(place))
    assert not leases
    convert("csv", IRIS, tmp_path / "model" / "iris", "--shards", 2)
    assert contents(tmp_path / "iris") == contents(tmp_path / "model" / "iris")


def test_a_dataset_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    place = Place("local", str(tmp_path / "iris"), BothSides().output)
    convert("csv", IRIS, tmp_path / "iris", "--shards", 3)
    before = contents(tmp_path / "iris")
    with pytest.raises(Exception, match="holds another dataset"):
        run_unattended(options_for(place))
    assert {
        k: v for k, v in contents(tmp_path / "iris").items() if k in before
    } == before
    run_unattended(options_for(place, overwrite=True))
    assert_whole(tmp_path / "iris")
    convert("csv", IRIS, tmp_path / "model" / "iris", "--shards", 2)
    assert dataset_of(tmp_path / "iris") == dataset_of(tmp_path / "model" / "iris")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "the embedded one ends with this process"),
        (
            ["--dataset-version", "auto", "--", "--runner=FlinkRunner"],
            "--dataset-version auto",
        ),
        (
            ["--", "--runner=PortableRunner", "--job_endpoint=embed"],
            "--detach needs a job server that outlives this command",
        ),
        (
            [
                "--",
                "--runner=PortableRunner",
                "--job_endpoint=127.0.0.1:9",
                "--environment_type=LOOPBACK",
            ],
            "--detach needs workers that outlive this command",
        ),
    ],
)
def test_what_cannot_be_detached(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--detach", *arguments)
    assert ran.status == 2
    assert reason in ran.err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_an_output_that_cannot_be_written_is_told_before_a_job_is_given_away() -> None:
    runner = ["--runner=PortableRunner", "--job_endpoint=127.0.0.1:9"]
    runner += ["--environment_type=EXTERNAL", "--environment_config=127.0.0.1:8"]
    output = "/proc/self/task/out"  # root may write everywhere else
    ran = recordmill("convert", "csv", IRIS, output, "--detach", "--", *runner)
    assert ran.status == 1
    assert output in ran.err
    assert "cannot be written" in ran.err


def test_a_job_server_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recordmill.beam_jobs.runners.portable_options.CONNECT_SECONDS", 0.5
    )
    runner = ["--runner=PortableRunner", "--job_endpoint=127.0.0.1:9"]
    runner += ["--environment_type=EXTERNAL", "--environment_config=127.0.0.1:8"]
    ran = recordmill(
        "convert", "csv", IRIS, tmp_path / "out", "--detach", "--", *runner
    )
    assert ran.status == 1
    assert "no job server answers at 127.0.0.1:9" in ran.err
