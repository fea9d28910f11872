"""version: auto in every store, and one run at a time over a folder of versions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from example_counts import steps_to_kill_at
from job_inputs import MixedInput
from job_tools import (
    HANG_SECONDS,
    IRIS,
    Argument,
    Ran,
    contents,
    convert,
    ended,
    kill,
    recordmill,
    started,
)
from killed_runs import KilledError
from store_servers import SERVERS, Place, display_path
from store_tools import options_of

from recordmill.beam_jobs.service.run import run_job
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease import LOCK_FOLDER, Holder
from recordmill.transforms.storage.remote import RemoteStore
from recordmill.transforms.storage.store import WORK_FOLDER

# It does what S3 does, in one process: the contract of stores and test_remote_output
# show that.
pytestmark = [pytest.mark.not_on("memory"), pytest.mark.usefixtures("cache")]


def job_for(place: Place, *options: Argument) -> list[Argument]:
    auto: list[Argument] = ["--name", "iris", "--dataset-version", "auto"]
    return ["csv", IRIS, place.root, *auto, *options, *options_of(place.options)]


def publish(place: Place, *options: Argument) -> Ran:
    ran = recordmill("convert", *job_for(place, *options))
    assert ran.status == 0, ran.err
    return ran


def latest(place: Place) -> str:
    """The version that latest.json names; it must be whole."""
    facts = json.loads(place.store.read("latest.json"))
    folder = place.store.below(facts["path"])
    manifest = json.loads(folder.read("manifest.json"))
    assert manifest["fingerprint"] == facts["fingerprint"]
    ran = recordmill("verify", folder.uri, *options_of(place.options))
    assert ran.status == 0, ran.out
    return str(facts["version"])


def tops(store: Store) -> set[str]:
    """What lies in the folder of versions, empty folders left out."""
    return {name.split("/")[0] for name in store.list()}


def test_each_change_is_the_next_version(
    store_place: Place, tmp_path: Path, cache: Path
) -> None:
    store = store_place.store
    for seed in range(4):
        publish(store_place, "--seed", seed, "--keep", 2)
        assert latest(store_place) == f"1.0.{seed}"
    assert tops(store) == {"1.0.2", "1.0.3", "latest.json"}
    fresh = tmp_path / "fresh"
    options: list[Argument] = ["--seed", 3, "--dataset-version", "1.0.3"]
    convert("csv", IRIS, fresh, "--name", "iris", *options)
    below = store.below("1.0.3")
    found = {name: below.read(name) for name in below.list() if name != "run.json"}
    assert found == {name: (fresh / name).read_bytes() for name in contents(fresh)}
    before = {name: store.modified(name) for name in store.list()}
    facts = json.loads(publish(store_place, "--seed", 3, "--json").out)
    assert (facts["status"], facts["version"]) == ("unchanged", "1.0.3")
    assert {name: store.modified(name) for name in store.list()} == before
    planned = recordmill("convert", *job_for(store_place, "--plan", "--json"))
    assert json.loads(planned.out)["version"] == "1.0.4"
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_folder_that_is_a_dataset(store_place: Place) -> None:
    target = [
        "csv",
        IRIS,
        store_place.root,
        "--name",
        "iris",
        *options_of(store_place.options),
    ]
    assert recordmill("convert", *target).status == 0
    before = store_place.store.list()
    ran = recordmill("convert", *job_for(store_place))
    assert ran.status == 73
    assert "is a dataset itself, so it cannot hold versions of one" in ran.err
    assert store_place.store.list() == before


def test_files_that_are_none_of_ours_stay(store_place: Place) -> None:
    store = store_place.store
    for name in ("0.9.9/thesis.txt", "notes/a", "0.9.8/chapter/1.txt"):
        store.put_bytes(b"years of work", name)
    for seed in range(2):
        publish(store_place, "--seed", seed, "--keep", 1)
    assert tops(store) == {"0.9.8", "0.9.9", "1.0.1", "notes", "latest.json"}


def test_what_another_job_left_half_done_goes(
    store_place: Place, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", broken)
        ran = recordmill("convert", *job_for(store_place, "--shards", 7))
    assert ran.status == 1
    assert any("00007" in name for name in store_place.store.list())
    publish(store_place, "--shards", 2)
    assert latest(store_place) == "1.0.0"
    assert not any("00007" in name for name in store_place.store.list())
    assert tops(store_place.store) == {"1.0.0", "latest.json"}
    assert not [path for path in cache.rglob("*") if path.is_file()]


def copied(files: dict[str, bytes], place: Place) -> None:
    for name, data in files.items():
        place.store.put_bytes(data, name)


def run_until(step: int, place: Place, *options: Argument) -> bool:
    """Publishes until the given change of the store before or behind the job.

    Returns:
      Whether the command came to its end before that.
    """
    steps = iter(range(step))
    inside = False
    guard = threading.Lock()
    do = RemoteStore._do

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
        patch.setattr(RemoteStore, "_do", do_or_die)
        try:
            publish(place, *options)
        except KilledError:
            pass
        else:
            return True
    # This process lives on, so nobody would take its lock for that of a dead run.
    place.store.delete(place.store.list(LOCK_FOLDER))
    return False


def test_killed_at_every_step_of_an_object_store(tmp_path: Path) -> None:
    """latest.json names a whole version at any moment; the next run tidies up."""
    memory = SERVERS["memory"]
    model = memory.make_place("", tmp_path)
    for seed in range(3):
        publish(model, "--seed", seed)
    model.store.put_bytes(b"half", f"1.0.3/{WORK_FOLDER}/another/staging/a")
    files = {name: model.store.read(name) for name in model.store.list()}
    options: list[Argument] = ["--seed", 3, "--keep", 1]
    for step in steps_to_kill_at(100):
        place = memory.make_place("", tmp_path)
        copied(files, place)
        finished = run_until(step, place, *options)
        assert latest(place) in ("1.0.2", "1.0.3"), step
        publish(place, *options)
        assert latest(place) == "1.0.3", step
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


LOCK = f"{LOCK_FOLDER}/000001.json"


def wait_for(process: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(params=["local", "s3"])
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
        assert latest(shared_place) == "1.0.0"
    else:  # one came when the other had ended
        assert latest(shared_place) == "1.0.1"
    assert shared_place.store.size(LOCK) is None


def test_the_second_is_told_while_the_first_works(
    shared_place: Place, mixed: MixedInput
) -> None:
    store = shared_place.store
    with start(shared_place, mixed, "--seed", 1) as first:
        wait_for(first, lambda: store.size(LOCK))
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
    assert latest(shared_place) == "1.0.0"
    assert json.loads(store.read("1.0.0/manifest.json"))["seed"] == 1


def test_a_killed_run_is_taken_over(shared_place: Place, mixed: MixedInput) -> None:
    """Of this machine: at once, amid its work."""
    store = shared_place.store

    def has_finished_some() -> bool:
        """A range, noted beside the output, or a shard, which came to the store."""
        names = store.list(f"1.0.0/{WORK_FOLDER}")
        return any("/facts/range-" in name or "/staging/" in name for name in names)

    with start(shared_place, mixed, "--shards", 8) as process:
        wait_for(process, has_finished_some)
        kill(process)
    assert store.size("latest.json") is None
    assert store.list(LOCK_FOLDER)
    with start(shared_place, mixed, "--shards", 8) as process:
        ran = ended(process)
    assert ran.status == 0, ran.err
    assert latest(shared_place) == "1.0.0"
    assert tops(store) == {"1.0.0", "latest.json"}


def test_the_lock_of_a_dead_machine_is_taken_over(store_place: Place) -> None:
    """Its lock says for how long it counts; nobody has renewed it since."""
    holder = replace(Holder.this_process(1.0), host="elsewhere", pid=7)
    store_place.store.put_bytes(holder.to_bytes(), LOCK)
    time.sleep(2.5)
    publish(store_place)
    assert latest(store_place) == "1.0.0"
    # The number stays known, as the machine may have slept; nothing else is left.
    assert tops(store_place.store) == {"1.0.0", "latest.json", WORK_FOLDER}
    [lock] = store_place.store.list(WORK_FOLDER)
    assert lock == f"{LOCK_FOLDER}/000002.json"
    before = store_place.store.modified(lock), store_place.store.read(lock)
    publish(store_place)  # there is nothing to do, so the lease is not taken
    assert (store_place.store.modified(lock), store_place.store.read(lock)) == before


def test_nothing_moves_when_the_lease_was_lost(
    store_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken over in mid-run: the version is whole, but latest.json stays."""
    publish(store_place)

    def lose(*args: Any) -> object:
        outcome = run_job(*args)
        holder = replace(Holder.this_process(60.0), host="elsewhere", pid=7)
        store_place.store.put_bytes(holder.to_bytes(), f"{LOCK_FOLDER}/000002.json")
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.service.run.run_job", lose)
        ran = recordmill("convert", *job_for(store_place, "--seed", 1))
    assert ran.status == 75
    assert "this run lost its lease on the output" in ran.err
    assert latest(store_place) == "1.0.0"
