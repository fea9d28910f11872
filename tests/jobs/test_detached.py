"""Jobs that are given to a runner or started by a launcher."""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import replace
from pathlib import Path

import click
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from dataflow_launcher import MAIN, NOT_OFFERED, command_line, parameters_of
from job_tools import (
    IRIS,
    Ran,
    assert_whole,
    contents,
    convert,
    manifest_of,
    python,
    recordmill,
)
from same_dataset import dataset_of
from store_servers import Place
from store_tools import local_files, options_of, published

from recordmill.beam_jobs.cli import job_commands
from recordmill.beam_jobs.cli.options import all_commands
from recordmill.beam_jobs.pipelines.convert import convert_dataset
from recordmill.beam_jobs.runners.embedded import pipeline_options, run_pipeline
from recordmill.beam_jobs.service.prepare import prepare_run
from recordmill.beam_jobs.service.resolve import resolve_run
from recordmill.beam_jobs.service.run import make_run_metadata, prepare_launch
from recordmill.schemas.input_summary import EMPTY_REPORT
from recordmill.schemas.job import JobSpec, RunOptions, Sharding
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptionsPair
from recordmill.transforms.commit import staging as detached
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire
from recordmill.transforms.tasks import launches
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.workspace import Workspace

# It does what S3 does, in one process: the contract of stores and test_remote_output
# show that.
pytestmark = pytest.mark.not_on("memory")

JOB = JobSpec(source="csv", name="iris", sharding=Sharding(num_shards=2))


def run_unattended(options: RunOptions, job: JobSpec = JOB) -> None:
    """What a runner does with a job that was handed over, here in this process."""
    work(*launched(options, job))


def launched(
    options: RunOptions, job: JobSpec = JOB
) -> tuple[RunContext, list[InputRange]]:
    """What a launcher does until it gives the job to the runner."""
    run = resolve_run(job, options)
    prepared = prepare_run(run)
    context = prepare_launch(run, prepared)
    assert context.publishing.lease_nonce == ""
    return context, prepared.ranges


def work(context: RunContext, ranges: list[InputRange]) -> None:
    """What a runner does with it, on workers that know of nothing else."""
    launches._renew_in.cache_clear()
    beam_options = pipeline_options([], workers=2)
    facts = make_run_metadata(context, beam_options, 0.0, EMPTY_REPORT)
    run_pipeline(lambda p: convert_dataset(p, context, ranges, facts), beam_options)


def options_for(place: Place, **more: bool) -> RunOptions:
    storage = StorageOptionsPair(output=place.options)
    options = RunOptions((str(IRIS),), place.root, exchange="engine", storage=storage)
    # As on a cluster: workers see nothing but the store.
    return replace(options, beam_args=("--runner=FlinkRunner",), detach=True, **more)


def folder_of(tmp_path: Path) -> tuple[Path, RunOptions]:
    folder = tmp_path / "iris"
    place = Place("local", str(folder), StorageOptionsPair().output)
    return folder, replace(options_for(place), exchange="scratch")


def test_the_last_step_publishes_and_cleans_up(
    store_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = options_for(store_place)
    launch = launched(options)
    work(*launch)
    convert("csv", IRIS, tmp_path / "iris", "--shards", 2)
    assert published(store_place) == local_files(tmp_path / "iris")
    # All its tasks may come twice, as the runner may lose their results.
    work(*launch)
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
        workspace.store.move_all([(shard, shard.rpartition("/")[2])])
        raise OSError("the power went")

    place = Place("local", str(tmp_path / "iris"), StorageOptionsPair().output)
    with monkeypatch.context() as patch:
        patch.setattr(detached, "commit", breaking)
        launch = launched(options_for(place))
        with pytest.raises(Exception, match="the power went"):
            work(*launch)
    assert not (tmp_path / "iris" / "manifest.json").exists()
    leases.append(acquire(LocalStore(str(tmp_path / "iris"))))
    monkeypatch.setattr(detached.time, "sleep", lambda _: leases.pop().release())
    work(*launch)
    assert not leases
    convert("csv", IRIS, tmp_path / "model" / "iris", "--shards", 2)
    assert contents(tmp_path / "iris") == contents(tmp_path / "model" / "iris")


def test_a_dataset_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    place = Place("local", str(tmp_path / "iris"), StorageOptionsPair().output)
    convert("csv", IRIS, tmp_path / "iris", "--shards", 3)
    before = contents(tmp_path / "iris")
    with pytest.raises(Exception, match="contains another dataset"):
        run_unattended(options_for(place))
    assert {
        k: v for k, v in contents(tmp_path / "iris").items() if k in before
    } == before
    run_unattended(options_for(place, overwrite=True))
    assert_whole(tmp_path / "iris")
    convert("csv", IRIS, tmp_path / "model" / "iris", "--shards", 2)
    assert dataset_of(tmp_path / "iris") == dataset_of(tmp_path / "model" / "iris")


OTHER = JOB.model_copy(update={"seed": 2})


def dataset_files(folder: Path) -> dict[str, str]:
    found = contents(folder)
    return {name: found[name] for name in found if not name.startswith(".recordmill/")}


def test_of_two_launches_the_first_publishes(tmp_path: Path) -> None:
    """And the other one says so, however often its last step is tried."""
    folder, options = folder_of(tmp_path)
    first, second = launched(options), launched(options, OTHER)
    assert first[0].workspace.name != second[0].workspace.name
    work(*first)
    published_first = dataset_files(folder)
    for _ in range(2):
        with pytest.raises(Exception, match="changed since this job was launched"):
            work(*second)
    assert verify_dataset(str(folder)).is_undamaged
    assert dataset_files(folder) == published_first
    # It is over, so its files are nobody's; and the way out of the message works.
    assert recordmill("clean", folder).err.count("is active") == 0
    assert contents(folder) == published_first
    run_unattended(replace(options, overwrite=True), OTHER)
    assert manifest_of(folder)["seed"] == 2
    assert_whole(folder)


def test_two_launches_of_one_job(tmp_path: Path) -> None:
    folder, options = folder_of(tmp_path)
    first, second = launched(options), launched(options)
    work(*first)
    before = dataset_files(folder)
    work(*second)
    assert contents(folder) == before


def test_a_launch_replaces_what_it_saw(tmp_path: Path) -> None:
    folder, options = folder_of(tmp_path)
    convert("csv", IRIS, folder, "--shards", 3)
    launch = launched(replace(options, overwrite=True))
    ran = convert("csv", IRIS, folder, "--seed", 7, "--overwrite")
    assert f"also running here: .recordmill/{launch[0].workspace.name}" in ran.err
    with pytest.raises(Exception, match="changed since this job was launched"):
        work(*launch)
    assert verify_dataset(str(folder)).is_undamaged
    assert manifest_of(folder)["seed"] == 7


def test_clean_leaves_a_detached_job_its_files(tmp_path: Path) -> None:
    folder, options = folder_of(tmp_path)
    launch = launched(options)
    before = contents(folder)
    for more in (["--dry-run"], []):
        ran = recordmill("clean", folder, *more)
        assert ran.status == 0
        assert "0 files" in ran.err
        assert f"keeps its files: .recordmill/{launch[0].workspace.name}" in ran.err
        told = json.loads(recordmill("clean", folder, *more, "--json").out)
        assert launch[0].workspace.name in told["at_work"][0]
        assert contents(folder) == before
    work(*launch)
    assert_whole(folder)


def test_a_job_that_was_ended_publishes_nothing(tmp_path: Path) -> None:
    folder, options = folder_of(tmp_path)
    launch = launched(options)
    assert recordmill("clean", folder, "--detached").status == 0
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    with pytest.raises(
        Exception, match=r"alive.json: no longer exists.*submit it again"
    ):
        work(*launch)
    assert not (folder / "manifest.json").exists()
    run_unattended(options)
    assert_whole(folder)


def test_a_job_without_a_sign_of_life_for_a_day_is_dead(tmp_path: Path) -> None:
    folder, options = folder_of(tmp_path)
    launch = launched(options)
    sign = folder / launch[0].workspace.store_name(launches.HEARTBEAT_NAME)
    text = json.loads(sign.read_bytes())
    long_ago = time.time() - launches.LIFE_SECONDS - 60
    sign.write_text(json.dumps(text | {"renewed": long_ago}))
    # A clock that jumped is not enough: the store's says that it is young.
    assert recordmill("clean", folder).err.count("keeps its files") == 1
    os.utime(sign, (long_ago, long_ago))
    launches.keep_alive(launch[0].workspace, at_once=True)
    assert recordmill("clean", folder).err.count("keeps its files") == 1
    sign.write_text(json.dumps(text | {"renewed": long_ago}))
    os.utime(sign, (long_ago, long_ago))
    assert recordmill("clean", folder).err.count("keeps its files") == 0
    assert not sign.exists()


def test_version_auto_waits_for_a_detached_job(tmp_path: Path) -> None:
    folder, options = folder_of(tmp_path)
    job = JOB.model_copy(update={"version": "1.0.0"})
    launched(replace(options, output=str(folder / "1.0.0")), job)
    auto = ("convert", "csv", IRIS, folder, "--dataset-version", "auto")
    ran = recordmill(*auto)
    assert ran.status == 75
    assert "a detached job is running here" in ran.err
    way_out = ran.err.partition("`recordmill ")[2].partition("`")[0]
    assert recordmill(*way_out.split()).status == 0
    assert recordmill(*auto).status == 0
    assert_whole(folder / "1.0.0")


def test_the_same_command_finishes_what_a_dead_last_step_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, options = folder_of(tmp_path)
    launch = launched(options)
    with monkeypatch.context() as patch:
        patch.setattr(detached, "commit", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            work(*launch)
    ran = recordmill("convert", "csv", IRIS, folder, "--shards", 3)
    assert ran.status == 73
    assert "run its command again to finish it" in ran.err
    convert("csv", IRIS, folder, "--name", "iris", "--shards", 2)
    assert verify_dataset(str(folder)).is_undamaged
    work(*launch)  # finds that it is done
    assert not (folder / ".recordmill").exists()


PORTABLE = "-- --runner=PortableRunner --job_endpoint"


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("", "the embedded runner ends with this process"),
        ("--dataset-version auto -- --runner=FlinkRunner", "--dataset-version auto"),
        (
            f"{PORTABLE}=embed",
            "--detach needs a job server that runs longer than this command",
        ),
        (
            f"{PORTABLE}=127.0.0.1:9 --environment_type=LOOPBACK",
            "--detach needs workers that run longer than this command",
        ),
    ],
)
def test_what_cannot_be_detached(tmp_path: Path, typed: str, reason: str) -> None:
    output = tmp_path / "out"
    ran = recordmill("convert", "csv", IRIS, output, "--detach", *typed.split())
    assert ran.status == 2
    assert reason in ran.err
    assert not (output / "manifest.json").exists()


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
    monkeypatch.setattr("recordmill.beam_jobs.runners.portable.CONNECT_SECONDS", 0.5)
    runner = ["--runner=PortableRunner", "--job_endpoint=127.0.0.1:9"]
    runner += ["--environment_type=EXTERNAL", "--environment_config=127.0.0.1:8"]
    ran = recordmill(
        "convert", "csv", IRIS, tmp_path / "out", "--detach", "--", *runner
    )
    assert ran.status == 1
    assert "no job server answers at 127.0.0.1:9" in ran.err
    assert not list((tmp_path / "out").rglob("alive.json"))


COMMANDS = [job_commands.run_command, *all_commands(job_commands.convert).values()]

CASES = {  # parameters: arguments
    # A job file with its settings; Beam's options stay apart.
    "--runner=R --job_file=gs://b/j.yaml '--set=n=2 date=2026-11-20'": (
        "run --set=n=2 --set=date=2026-11-20 gs://b/j.yaml -- --runner=R"
    ),
    # A job file's output instead of its own.
    "--job_file=j --output=gs://b/o": "run --output=gs://b/o j --",
    # Several inputs, one of them with a space in its name.
    """--source=csv "--inputs=gs://b/x/*.csv 'gs://b/a b.csv'" --output=gs://o""": (
        "convert csv gs://b/x/*.csv 'gs://b/a b.csv' gs://o --"
    ),
    # Flags, and those that say what holds anyway.
    "--source=cifar --inputs=i --output=o --shuffle=false --overwrite": (
        "convert cifar --no-shuffle --overwrite i o --"
    ),
    "--source=cifar --inputs=i --output=o --shuffle=true --json=False": (
        "convert cifar --shuffle i o --"
    ),
    # Names with "-", and what was left empty.
    "--source=csv --inputs=i --output=o --max_rejects=1% --schema=": (
        "convert csv --max-rejects=1% i o --"
    ),
    # Given twice, as Airflow gives lists.
    "--source=csv --inputs=i --output=o --split=a=0.5 --split=b=0.5": (
        "convert csv --split=a=0.5 --split=b=0.5 i o --"
    ),
}

WRONG = [
    (
        [],
        "give job_file, or source (images, audio, text, cifar, csv, parquet, arrow, jsonl, binary, idx, numpy, tfrecord, webdataset), inputs and output",
    ),
    (
        ["--source=cvs"],
        "source: expected one of images, audio, text, cifar, csv, parquet, arrow, jsonl, binary, idx, numpy, tfrecord, webdataset, got cvs",
    ),
    (["--source=csv", "--output=o"], "source=csv also needs inputs"),
    (["--job_file=j", "--inputs=i"], "inputs: not an option of recordmill run"),
    (["--job_file=j", "--source=csv"], "source: not an option of recordmill run"),
    (
        ["--source=csv", "--inputs=i", "--output=o", "--variant=cifar10"],
        "variant: not an option of recordmill convert csv",
    ),
    (
        ["--source=csv", "--inputs=i", "--output=o", "--shuffle=no"],
        "shuffle: expected true or false, got no",
    ),
    (["--source=csv", "--inputs='i", "--output=o"], "inputs: No closing quotation: 'i"),
]


@pytest.mark.parametrize(("given", "arguments"), CASES.items())
def test_parameters_become_arguments(given: str, arguments: str) -> None:
    assert command_line(shlex.split(given)) == shlex.split(arguments)


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_is_wrong_is_told(given: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as error:
        command_line(given)
    assert error.value.message == message


def test_no_parameter_is_called_like_an_option_of_beam() -> None:
    """One of the same name would never reach Beam."""
    ours = {name for command in COMMANDS for name in parameters_of(command)}
    beams = set(PipelineOptions([]).get_all_options())
    assert {"set", "split", "max_rejects"} <= ours
    assert not (ours | {"job_file", "source", "inputs"}) & beams


def test_what_is_not_offered_are_options() -> None:
    named = {
        name.lstrip("-").replace("-", "_")
        for command in COMMANDS
        for option in command.params
        for name in option.opts
    }
    assert named >= NOT_OFFERED


def launch(*arguments: str) -> Ran:
    code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    return python(code, str(MAIN), *arguments)


def test_the_file_that_a_launcher_calls(tmp_path: Path) -> None:
    output = tmp_path / "out"
    given = ["--source=csv", f"--inputs={IRIS}", f"--output={output}", "--shards=3"]
    ran = launch(*given, "--runner=DirectRunner")
    assert ran.status == 0, ran.err
    assert len(manifest_of(output)["splits"]["train"]["shards"]) == 3


def test_its_usage_errors_are_told() -> None:
    ran = launch("--source=csv")
    assert ran.status == 2
    assert "Error: source=csv also needs inputs" in ran.err
