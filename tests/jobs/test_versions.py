"""version: auto: each change is the next version, latest.json moves last, in every store."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from example_counts import steps_to_kill_at
from job_inputs import MIXED_ROWS, MixedInput
from job_tools import (
    IRIS,
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    ended,
    kill,
    manifest_of,
    recordmill,
    started,
    states,
    wait_until,
)
from killed_runs import (
    CHANGES_OF_A_DISK,
    KilledError,
    failing,
    replaced,
    workspaces_kept,
)
from store_servers import SERVERS, Place, display_path
from store_tools import options_of

from recordmill.beam_jobs.service.run import run_job
from recordmill.transforms.commit.versions import next_version
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import LEASE_NAME, Holder
from recordmill.transforms.storage.local_folder import LocalFolder
from recordmill.transforms.storage.remote import RemoteStore
from recordmill.transforms.storage.store import WORK_FOLDER

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


def test_going_back_is_a_change(tmp_path: Path) -> None:
    """The newest version counts, not any that was once the same."""
    output = tmp_path / "iris"
    for seed in (0, 1, 0):
        publish(output, "--seed", seed)
    assert latest(output) == "1.0.2"


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
    with workspaces_kept():
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
        for owner, name in (*CHANGES_OF_A_DISK, (LocalFolder, "remove_folder")):
            patch.setattr(owner, name, counted(getattr(owner, name)))
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


def test_kill_9(tmp_path: Path, mixed: MixedInput) -> None:
    """Killed for good in mid-run: the next run takes the version up again."""
    output = tmp_path / "mixed"
    publish(output)
    facts = "1.0.1/.recordmill/*/facts/[!.]*.json"
    options: list[Argument] = [*mixed.files, output, *AUTO]
    with started("convert", "csv", *options) as process:
        wait_until(lambda: list(output.glob(facts)), process)
        kill(process)
    assert latest(output) == "1.0.0"
    before = {fact: fact.stat().st_mtime_ns for fact in output.glob(facts)}
    with workspaces_kept():
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

    def late(
        store: LocalStore, data: bytes, name: str, *, expected_content: bytes | None
    ) -> bool:
        nonlocal depth
        if name == "manifest.json":
            depth += 1
            if depth == 2:
                raise OSError("the power went")
            for lock in tmp_path.rglob(".recordmill/lock/*"):  # the lease was lost
                lock.unlink()
            ran = recordmill("convert", "csv", IRIS, tmp_path / "iris", *AUTO, *other)
            assert "the power went" in ran.err
        return swap(store, data, name, expected_content=expected_content)

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
    moving = "recordmill.beam_jobs.service.run.move_latest"
    with replaced(moving, kill_now), pytest.raises(KilledError):
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
        (file_in_the_way, 73, "out: is a file; expected a folder for the versions"),
        (iris_to(*AUTO, "--overwrite"), 2, "--dataset-version auto never overwrites"),
        (iris_to("--keep", 2), 2, "--keep: requires --dataset-version auto"),
        (input_among_versions, 2, "is an input, but is inside the output folder"),
        (damaged_version, 73, "is missing, the manifest records"),
        (
            files_in_the_next_version,
            73,
            "is not empty (thesis.txt) and does not contain a dataset",
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
    assert (
        "latest.json: not a valid latest.json: version: expected a version"
        in refused.err
    )
    latest.unlink()
    convert(*job)
    assert recordmill(command, output, "--json").out == ran.out


pytestmark = pytest.mark.usefixtures("cache")
# A store in memory does what S3 does, as the contract of stores and test_stores show: S3
# has the test that does most.
in_memory = pytest.mark.not_on("s3")


def job_for(place: Place, *options: Argument) -> list[Argument]:
    auto: list[Argument] = ["--name", "iris", "--dataset-version", "auto"]
    return ["csv", IRIS, place.root, *auto, *options, *options_of(place.options)]


def publish_to(place: Place, *options: Argument) -> Ran:
    ran = recordmill("convert", *job_for(place, *options))
    assert ran.status == 0, ran.err
    return ran


def latest_in(place: Place) -> str:
    """The version that latest.json names; it must be whole."""
    facts = json.loads(place.store.read("latest.json"))
    folder = place.store.subfolder_store(facts["path"])
    manifest = json.loads(folder.read("manifest.json"))
    assert manifest["fingerprint"] == facts["fingerprint"]
    ran = recordmill("verify", folder.uri, *options_of(place.options))
    assert ran.status == 0, ran.out
    return str(facts["version"])


def tops(store: Store) -> set[str]:
    """What lies in the folder of versions, empty folders left out."""
    return {name.split("/")[0] for name in store.list()}


@pytest.mark.not_on("memory")
def test_each_change_is_the_next_version(
    store_place: Place, tmp_path: Path, cache: Path
) -> None:
    store = store_place.store
    for seed in range(4):
        publish_to(store_place, "--seed", seed, "--keep", 2)
        assert latest_in(store_place) == f"1.0.{seed}"
    assert tops(store) == {"1.0.2", "1.0.3", "latest.json"}
    fresh = tmp_path / "fresh"
    options: list[Argument] = ["--seed", 3, "--dataset-version", "1.0.3"]
    convert("csv", IRIS, fresh, "--name", "iris", *options)
    below = store.subfolder_store("1.0.3")
    found = {name: below.read(name) for name in below.list() if name != "run.json"}
    assert found == {name: (fresh / name).read_bytes() for name in contents(fresh)}
    before = {name: store.modified_time(name) for name in store.list()}
    facts = json.loads(publish_to(store_place, "--seed", 3, "--json").out)
    assert (facts["status"], facts["version"]) == ("unchanged", "1.0.3")
    assert {name: store.modified_time(name) for name in store.list()} == before
    planned = recordmill("convert", *job_for(store_place, "--plan", "--json"))
    assert json.loads(planned.out)["version"] == "1.0.4"
    assert not [path for path in cache.rglob("*") if path.is_file()]


@in_memory
def test_a_folder_that_is_a_dataset(store_place: Place) -> None:
    target = ["csv", IRIS, store_place.root, "--name", "iris"]
    reach = options_of(store_place.options)
    assert recordmill("convert", *target, *reach).status == 0
    before = store_place.store.list()
    ran = recordmill("convert", *job_for(store_place))
    assert ran.status == 73
    assert "is a dataset itself, so it cannot contain versions" in ran.err
    assert store_place.store.list() == before


@in_memory
def test_files_that_are_none_of_ours_stay(store_place: Place) -> None:
    store = store_place.store
    for name in ("0.9.9/thesis.txt", "notes/a", "0.9.8/chapter/1.txt"):
        store.put_bytes(b"years of work", name)
    for seed in range(2):
        publish_to(store_place, "--seed", seed, "--keep", 1)
    assert tops(store) == {"0.9.8", "0.9.9", "1.0.1", "notes", "latest.json"}


@in_memory
def test_what_another_job_left_half_done_goes(store_place: Place, cache: Path) -> None:

    with failing("stage"):
        ran = recordmill("convert", *job_for(store_place, "--shards", 7))
    assert ran.status == 1
    assert any("00007" in name for name in store_place.store.list())
    publish_to(store_place, "--shards", 2)
    assert latest_in(store_place) == "1.0.0"
    assert not any("00007" in name for name in store_place.store.list())
    assert tops(store_place.store) == {"1.0.0", "latest.json"}
    assert not [path for path in cache.rglob("*") if path.is_file()]


def copied(files: dict[str, bytes], place: Place) -> None:
    for name, data in files.items():
        place.store.put_bytes(data, name)


def run_until_in(step: int, place: Place, *options: Argument) -> bool:
    """Publishes until the given change of the store before or behind the job.

    Returns:
      Whether the command came to its end before that.
    """
    steps = iter(range(step))
    inside = False
    guard = threading.Lock()
    do = RemoteStore._with_file

    def job(*args: Any) -> object:
        nonlocal inside
        inside = True
        outcome = run_job(*args)
        inside = False
        return outcome

    def do_or_die(self: RemoteStore, done: str, *more: Any) -> object:
        with guard:
            if not inside and done != "read" and next(steps, None) is None:
                raise KilledError
        return do(self, done, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.service.run.run_job", job)
        patch.setattr(RemoteStore, "_with_file", do_or_die)
        try:
            publish_to(place, *options)
        except KilledError:
            pass
        else:
            return True
    # This process lives on, so nobody would take its lock for that of a dead run.
    place.store.delete([LEASE_NAME])
    return False


def test_killed_at_every_step_of_an_object_store(tmp_path: Path) -> None:
    """latest.json names a whole version at any moment; the next run tidies up."""
    memory = SERVERS["memory"]
    model = memory.make_place("", tmp_path)
    for seed in range(3):
        publish_to(model, "--seed", seed)
    model.store.put_bytes(b"half", f"1.0.3/{WORK_FOLDER}/another/staging/a")
    files = {name: model.store.read(name) for name in model.store.list()}
    options: list[Argument] = ["--seed", 3, "--keep", 1]
    for step in steps_to_kill_at(100):
        place = memory.make_place("", tmp_path)
        copied(files, place)
        finished = run_until_in(step, place, *options)
        assert latest_in(place) in ("1.0.2", "1.0.3"), step
        publish_to(place, *options)
        assert latest_in(place) == "1.0.3", step
        assert tops(place.store) == {"1.0.3", "latest.json"}, step
        if finished:
            break
    assert finished
    assert step > 20  # probe, lease, half one, latest.json, three old ones


def start(place: Place, mixed: MixedInput, *options: Argument) -> Any:
    return started(
        *["convert", "csv", *mixed.files, place.root, "--name", "mixed"],
        *["--dataset-version", "auto", *options, *options_of(place.options)],
    )


@pytest.fixture
def shared_place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Callable[[str], str],
) -> Place:
    """A store that several processes see."""
    return display_path(request.param, tmp_path, monkeypatch, server)


@pytest.mark.parametrize("shared_place", ["s3"], indirect=True)
def test_of_two_runs_at_once_one_wins_and_one_is_told(
    shared_place: Place, mixed: MixedInput
) -> None:
    """Two processes, two different jobs: they would publish the same version."""
    with (
        start(shared_place, mixed, "--seed", 1) as first,
        start(shared_place, mixed, "--seed", 2) as second,
    ):
        ran = [ended(process) for process in (first, second)]
    statuses = sorted(each.status for each in ran)
    assert statuses in ([0, 75], [0, 0]), [each.err for each in ran]
    if statuses == [0, 75]:
        (told,) = [each.err for each in ran if each.status]
        assert "another run is writing here" in told
        assert latest_in(shared_place) == "1.0.0"
    else:  # one came when the other had ended
        assert latest_in(shared_place) == "1.0.1"
    assert shared_place.store.size(LEASE_NAME) is None


@pytest.mark.parametrize("shared_place", ["local"], indirect=True)
def test_the_second_is_told_while_the_first_works(
    shared_place: Place, mixed: MixedInput
) -> None:
    store = shared_place.store
    with start(shared_place, mixed, "--seed", 1) as first:
        wait_until(lambda: store.size(LEASE_NAME), first)
        # Stopped, so that the second surely comes meanwhile; its lease is fresh.
        os.kill(first.pid, signal.SIGSTOP)
        with start(shared_place, mixed, "--seed", 2) as second:
            told = ended(second)
        os.kill(first.pid, signal.SIGCONT)
        ran = ended(first)
    assert told.status == 75
    assert f"{shared_place.root}: another run is writing here (process" in told.err
    assert f"process {first.pid} on" in told.err
    assert ran.status == 0, ran.err
    assert latest_in(shared_place) == "1.0.0"
    assert json.loads(store.read("1.0.0/manifest.json"))["seed"] == 1


@pytest.mark.parametrize("shared_place", ["s3"], indirect=True)
def test_a_killed_run_is_taken_over(shared_place: Place, mixed: MixedInput) -> None:
    """Of this machine: at once, amid its work."""
    store = shared_place.store

    def has_finished_some() -> bool:
        """A range, noted beside the output, or a shard, which came to the store."""
        names = store.list(f"1.0.0/{WORK_FOLDER}")
        return any("/facts/range-" in name or "/staging/" in name for name in names)

    with start(shared_place, mixed, "--shards", 8) as process:
        wait_until(has_finished_some, process)
        kill(process)
    assert store.size("latest.json") is None
    assert store.size(LEASE_NAME)
    with start(shared_place, mixed, "--shards", 8) as process:
        ran = ended(process)
    assert ran.status == 0, ran.err
    assert latest_in(shared_place) == "1.0.0"
    assert tops(store) == {"1.0.0", "latest.json"}


@in_memory
def test_the_lock_of_a_dead_machine_is_taken_over(store_place: Place) -> None:
    """Its lock says for how long it counts; nobody has renewed it since."""
    holder = replace(Holder.this_process(1.0), host="elsewhere", pid=7)
    store_place.store.put_bytes(holder.to_bytes(), LEASE_NAME)
    time.sleep(2.5)
    publish_to(store_place)
    assert latest_in(store_place) == "1.0.0"
    assert tops(store_place.store) == {"1.0.0", "latest.json"}


@in_memory
def test_nothing_moves_when_the_lease_was_lost(store_place: Place) -> None:
    """Taken over in mid-run: the version is whole, but latest.json stays."""
    publish_to(store_place)

    def lose(*args: Any) -> object:
        outcome = run_job(*args)
        holder = replace(Holder.this_process(60.0), host="elsewhere", pid=7)
        store_place.store.put_bytes(holder.to_bytes(), LEASE_NAME)
        return outcome

    with replaced("recordmill.beam_jobs.service.run.run_job", lose):
        ran = recordmill("convert", *job_for(store_place, "--seed", 1))
    assert ran.status == 75
    assert "this run lost its lease on the output" in ran.err
    assert latest_in(store_place) == "1.0.0"
