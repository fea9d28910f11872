"""version: auto: each change is the next version, and latest.json moves last."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from example_counts import steps_to_kill_at
from job_inputs import MIXED_ROWS, MixedInput
from job_tools import (
    HANG_SECONDS,
    IRIS,
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    kill,
    manifest_of,
    recordmill,
    started,
    states,
)
from killed_runs import KilledError

from recordmill.beam_jobs.service.run import run_job
from recordmill.transforms.commit.versions import next_version
from recordmill.transforms.storage import LocalStore

AUTO: list[Argument] = ["--dataset-version", "auto"]


def publish(output: Path, *options: Argument) -> Ran:
    return convert("csv", IRIS, output, *AUTO, *options)


def latest(output: Path) -> str:
    facts = json.loads((output / "latest.json").read_bytes())
    folder = output / facts["path"]
    assert manifest_of(folder)["fingerprint"] == facts["fingerprint"]
    assert manifest_of(folder)["version"] == facts["version"] == facts["path"]
    assert_whole(folder)
    return str(facts["version"])


def names(output: Path) -> list[str]:
    return sorted(path.name for path in output.iterdir())


def test_each_change_is_the_next_version(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    for seed, version in enumerate(["1.0.0", "1.0.1", "1.0.2"]):
        ran = publish(output, "--seed", seed)
        assert f"iris {version}: 150 records" in ran.err
        assert latest(output) == version
    assert names(output) == ["1.0.0", "1.0.1", "1.0.2", "latest.json"]
    # A version is what a job with that version written out gives.
    options: list[Argument] = ["--seed", 1, "--dataset-version", "1.0.1"]
    convert("csv", IRIS, tmp_path / "fresh" / "iris", *options)
    assert contents(output / "1.0.1") == contents(tmp_path / "fresh" / "iris")
    before = states(output)
    ran = publish(output, "--seed", 2)
    assert states(output) == before
    assert "1.0.2: this dataset is already there; nothing to do" in ran.err


def test_going_back_is_a_change(tmp_path: Path) -> None:
    """The newest version counts, not any that was once the same."""
    output = tmp_path / "iris"
    for seed in (0, 1, 0):
        publish(output, "--seed", seed)
    assert latest(output) == "1.0.2"


def test_changed_input(tmp_path: Path) -> None:
    output, source = tmp_path / "out", tmp_path / "in.csv"
    source.write_text("a\n1\n")
    assert recordmill("convert", "csv", source, output, *AUTO).status == 0
    source.write_text("a\n1\n22\n")
    assert recordmill("convert", "csv", source, output, *AUTO).status == 0
    assert latest(output) == "1.0.1"
    assert manifest_of(output / "1.0.1")["rows_read"] == 2


def test_keep(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    for seed in range(4):
        publish(output, "--seed", seed, "--keep", 2)
    assert names(output) == ["1.0.2", "1.0.3", "latest.json"]
    publish(output, "--seed", 3, "--keep", 1)  # also where nothing is new
    assert names(output) == ["1.0.3", "latest.json"]
    assert latest(output) == "1.0.3"


def test_numbers_not_letters_order_versions(tmp_path: Path, iris: Path) -> None:
    output = tmp_path / "iris"
    for version in ("1.0.9", "1.0.10"):
        options: list[Argument] = ["--dataset-version", version]
        convert("csv", IRIS, output / version, "--name", "iris", *options)
    publish(output, "--keep", 1)
    assert (latest(output), names(output)) == ("1.0.10", ["1.0.10", "latest.json"])
    publish(output, "--seed", 1)
    assert latest(output) == "1.0.11"
    assert next_version("2.7.99") == "2.7.100"


def test_failed_run_leaves_the_last_version(tmp_path: Path) -> None:
    output, source = tmp_path / "out", tmp_path / "in.csv"
    source.write_text("a,b\n1,2\n")
    recordmill("convert", "csv", source, output, *AUTO)
    source.write_text("a,b\n1,2\n3\n")
    ran = recordmill("convert", "csv", source, output, *AUTO, "--memory", 0)
    assert ran.status == 65
    assert "1 of 2 rows rejected" in ran.err
    assert latest(output) == "1.0.0"
    # The same job goes on from there when more rejects are allowed.
    facts = output / "1.0.1" / ".recordmill"
    (before,) = facts.glob("*/facts/range-*.json")
    stamp = before.stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "recordmill.transforms.tasks.workspace.Workspace.remove",
            lambda workspace: None,
        )
        options: list[Argument] = ["--max-rejects", 1, "--memory", 0]
        convert("csv", source, output, *AUTO, *options)
    assert before.stat().st_mtime_ns == stamp
    shutil.rmtree(facts)
    assert latest(output) == "1.0.1"


def test_half_made_version_of_another_job_goes(tmp_path: Path) -> None:
    output, source, scratch = tmp_path / "out", tmp_path / "in.csv", tmp_path / "s"
    source.write_text("a,b\n1,2\n3\n")
    options: list[Argument] = [*AUTO, "--scratch", scratch]
    assert recordmill("convert", "csv", source, output, *options).status == 65
    assert list((output / "1.0.0").iterdir())
    assert list(scratch.iterdir())
    source.write_text("a,b\n1,2\n3,44\n")
    convert("csv", source, output, *options)
    assert (latest(output), names(output)) == ("1.0.0", ["1.0.0", "latest.json"])
    assert list(scratch.iterdir()) == []


def test_other_files_stay(tmp_path: Path) -> None:
    """What looks like a version but is none of ours is never removed."""
    output = tmp_path / "iris"
    for name in ("0.9.9", "notes"):
        (output / name).mkdir(parents=True)
        (output / name / "thesis.txt").write_text("years of work")
    (output / "1.0.0").mkdir()
    publish(output, "--keep", 1)
    publish(output, "--keep", 1, "--seed", 1)
    assert names(output) == ["0.9.9", "1.0.1", "latest.json", "notes"]
    assert (output / "0.9.9" / "thesis.txt").exists()


def run_until(step: int, output: Path, *options: Argument) -> bool:
    """Publishes until the given change of the file system before or behind the job.

    Killed inside the job is what test_commit and test_resume are about.

    Returns:
      Whether the command came to its end before that.
    """
    steps = iter(range(step))
    inside = False

    def job(*args: object) -> object:
        nonlocal inside
        inside = True
        outcome = run_job(*args)  # type: ignore[arg-type]
        inside = False
        return outcome

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def change_or_die(*args: object, **more: object) -> object:
            if not inside and next(steps, None) is None:
                raise KilledError
            return change(*args, **more)

        return change_or_die

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.service.run.run_job", job)
        for name in ("replace", "unlink", "mkdir", "rmdir"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        try:
            publish(output, *options)
        except KilledError:
            pass
        else:
            return True
    # This process lives on, so nobody would take its lock for that of a dead run.
    shutil.rmtree(output / ".recordmill" / "lock", ignore_errors=True)
    return False


def test_killed_at_every_step(tmp_path: Path) -> None:
    """latest.json names a whole version at any moment; the next run ends well."""
    model = tmp_path / "model" / "iris"
    for seed in range(2):
        publish(model, "--seed", seed)
    half = (
        model / "1.0.2" / ".recordmill" / "0123456789abcdef"
    )  # of a job that was killed
    half.mkdir(parents=True)
    options: list[Argument] = ["--seed", 2, "--keep", 1]
    for step in steps_to_kill_at(100):
        output = shutil.copytree(model, tmp_path / str(step) / "iris")
        finished = run_until(step, output, *options)
        assert latest_is_whole(output), step
        publish(output, *options)
        assert latest(output) == "1.0.2", step
        assert {name.split("/")[0] for name in contents(output)} == {
            "1.0.2",
            "latest.json",
        }, step
        if finished:
            break
    assert finished
    assert step > 25  # lease; the half one; latest.json; files of the two old ones


def latest_is_whole(output: Path) -> bool:
    facts = json.loads((output / "latest.json").read_bytes())
    ran = recordmill("verify", output / facts["path"])
    return ran.status == 0


def test_kill_9(
    tmp_path: Path, mixed: MixedInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed for good in mid-run: the next run takes the version up again."""
    output = tmp_path / "mixed"
    publish(output)
    facts = "1.0.1/.recordmill/*/facts/[!.]*.json"
    options: list[Argument] = [*mixed.files, output, *AUTO]
    with started("convert", "csv", *options) as process:
        deadline = time.monotonic() + HANG_SECONDS
        while not list(output.glob(facts)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        kill(process)
    assert latest(output) == "1.0.0"
    before = {fact: fact.stat().st_mtime_ns for fact in output.glob(facts)}
    with monkeypatch.context() as patch:
        patch.setattr(
            "recordmill.transforms.tasks.workspace.Workspace.remove",
            lambda workspace: None,
        )
        convert("csv", *options)
    assert {fact: fact.stat().st_mtime_ns for fact in before} == before
    shutil.rmtree(output / "1.0.1" / ".recordmill")
    assert latest(output) == "1.0.1"
    assert manifest_of(output / "1.0.1")["rows_read"] == MIXED_ROWS


def test_a_run_that_slept_publishes_no_missing_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up while the run that took the version over is about to publish."""
    swap = LocalStore.swap
    depth = 0

    def late(store: LocalStore, data: bytes, name: str, *, seen: bytes | None) -> bool:
        nonlocal depth
        if name == "manifest.json":
            depth += 1
            if depth == 2:
                raise OSError("the power went")
            for lock in tmp_path.rglob(".recordmill/lock/*"):  # the lease was lost
                lock.unlink()
            ran = recordmill("convert", "csv", IRIS, tmp_path / "iris", *AUTO, *other)
            assert "the power went" in ran.err
        return swap(store, data, name, seen=seen)

    other = ("--shards", 3)
    monkeypatch.setattr(LocalStore, "swap", late)
    recordmill("convert", "csv", IRIS, tmp_path / "iris", *AUTO, "--shards", 2)
    assert depth == 2
    assert recordmill("verify", tmp_path / "iris" / "1.0.0").status == 0
    monkeypatch.undo()
    publish(tmp_path / "iris", *other)
    assert recordmill("verify", tmp_path / "iris").status == 0


def test_killed_before_latest_moved(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    publish(output)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.service.run.move_latest", kill_now)
        with pytest.raises(KilledError):
            publish(output, "--seed", 1)
    assert latest(output) == "1.0.0"
    before = states(output / "1.0.1")
    publish(output, "--seed", 1)
    assert latest(output) == "1.0.1"
    assert states(output / "1.0.1") == before


def kill_now(*arguments: object) -> None:
    raise KilledError


def iris_to(*options: Argument) -> Callable[[Path], list[Argument]]:
    return lambda folder: [IRIS, folder / "out", *options]


def dataset_in_the_way(folder: Path) -> list[Argument]:
    convert("csv", IRIS, folder / "out")
    return [IRIS, folder / "out", *AUTO]


def file_in_the_way(folder: Path) -> list[Argument]:
    (folder / "out").write_text("a file")
    return [IRIS, folder / "out", *AUTO]


def input_among_versions(folder: Path) -> list[Argument]:
    (folder / "out").mkdir()
    shutil.copy(IRIS, folder / "out" / "iris.csv")
    return [folder / "out" / "iris.csv", folder / "out", *AUTO]


def damaged_version(folder: Path) -> list[Argument]:
    publish(folder / "out")
    next((folder / "out" / "1.0.0").glob("*.tfrecord-*")).unlink()
    return [IRIS, folder / "out", *AUTO]


def files_in_the_next_version(folder: Path) -> list[Argument]:
    (folder / "out" / "1.0.0").mkdir(parents=True)
    (folder / "out" / "1.0.0" / "thesis.txt").write_text("years of work")
    return [IRIS, folder / "out", *AUTO]


@pytest.mark.parametrize(
    ("prepare", "status", "message"),
    [
        (
            dataset_in_the_way,
            73,
            "out: is a dataset itself, so it cannot hold versions",
        ),
        (file_in_the_way, 73, "out: is a file; expected a folder for the versions"),
        (iris_to(*AUTO, "--overwrite"), 2, "--dataset-version auto never overwrites"),
        (iris_to("--keep", 2), 2, "--keep: requires --dataset-version auto"),
        (input_among_versions, 2, "is an input, but lies inside the output folder"),
        (damaged_version, 73, "is missing, the manifest says"),
        (
            files_in_the_next_version,
            73,
            "is not empty (thesis.txt) and does not hold a dataset",
        ),
    ],
)
def test_refused(
    tmp_path: Path, prepare: Callable[[Path], list[Argument]], status: int, message: str
) -> None:
    arguments = prepare(tmp_path)
    before = contents(tmp_path)
    ran = recordmill("convert", "csv", *arguments)
    assert (ran.status, ran.out) == (status, "")
    assert message in ran.err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("command", ["verify", "inspect", "rejects"])
def test_commands_follow_latest_json(tmp_path: Path, command: str) -> None:
    table, output = tmp_path / "in.csv", tmp_path / "out"
    table.write_text("a,b\n1,2\n3\n")
    job = ("csv", table, output, "--dataset-version", "auto", "--max-rejects", 5)
    convert(*job)
    table.write_text("a,b\n1,2\n3\n4\n")
    convert(*job)
    ran = recordmill(command, output, "--json")
    assert ran.status == 0, ran.err
    assert ran.out == recordmill(command, output / "1.0.1", "--json").out
    latest = output / "latest.json"
    latest.write_text(latest.read_text().replace("1.0.1", "1.0.0"))
    assert recordmill(command, output, "--json").out != ran.out
    latest.write_text('{"version": "../elsewhere"}')
    refused = recordmill(command, output)
    assert refused.status == 73
    assert "latest.json: expected a version" in refused.err
    latest.unlink()
    convert(*job)
    assert recordmill(command, output, "--json").out == ran.out
