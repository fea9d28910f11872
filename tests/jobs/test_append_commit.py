"""The switch to a dataset that was appended to: killed anywhere, it is old or new."""

from __future__ import annotations

import errno
import mmap
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from append_tools import assert_sound, write_rows
from example_counts import steps_to_kill_at
from job_inputs import MixedInput
from job_tools import (
    Argument,
    Ran,
    contents,
    convert,
    ended,
    ints,
    kill,
    manifest_of,
    recordmill,
    started,
)
from killed_runs import WRITING, failing, replaced, run_until, staged
from same_dataset import assert_readable, dataset_of

from recordmill.transforms import temporary
from recordmill.transforms.commit import inputs
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.storage import local
from recordmill.transforms.storage.store import Data

OPTIONS: list[Argument] = ["--shard-size", "2kB", "--max-rejects", 5]
APPEND: list[Argument] = [*OPTIONS, "--append"]
# Of the larger input: a hundred shards.
LARGE: list[Argument] = ["--shard-size", "250kB", "--max-rejects", 5]
MAX_STEPS = 200


def published(folder: Path) -> dict[str, str]:
    """The digests of a dataset's files, without what tells when it was made."""
    return {
        name: digest
        for name, digest in contents(folder).items()
        if not name.startswith((".recordmill/", "run-a"))
    }


def test_long_lists_of_inputs_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of a dataset, of one appended to, and of one that replaces it.

    Some disks map no files, such as a mount by FUSE that passes each read on.
    """
    found, kinds = [], list[type]()
    new_map, spilled = mmap.mmap, inputs.spill_bytes

    def noted(parts: Iterable[bytes]) -> Data:
        kinds.append(type(packed := spilled(parts)))
        return packed

    def refused(file: int, *arguments: Any, **options: Any) -> mmap.mmap:
        if file == -1:  # memory, not a file
            return new_map(file, *arguments, **options)
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(inputs, "spill_bytes", noted)
    write_rows(tmp_path / "in/a.csv", 0, 40)
    write_rows(tmp_path / "more/in/a.csv", 0, 40)
    write_rows(tmp_path / "more/in/b.csv", 40, 20)
    shutil.copystat(tmp_path / "in/a.csv", tmp_path / "more/in/a.csv")
    for spill, can_map in ((1 << 30, True), (0, True), (0, False)):
        monkeypatch.setattr(temporary, "SPILL_BYTES", spill)
        monkeypatch.setattr(local, "_READ_BYTES", 64 if spill == 0 else 1 << 20)
        monkeypatch.setattr(mmap, "mmap", new_map if can_map else refused)
        folder = tmp_path / f"{spill}-{can_map}" / "out"
        convert("csv", tmp_path / "in", folder, *OPTIONS)
        found.append(published(folder))
        convert("csv", tmp_path / "more/in", folder, *APPEND)
        found.append(published(folder))
        convert("csv", tmp_path / "in", folder, *OPTIONS, "--overwrite")
        assert recordmill("verify", folder).status == 0
        found.append(published(folder))
    assert found[:3] == found[3:6] == found[6:]
    assert kinds == [bytes] * 6 + [memoryview] * 12


class Model:
    """A dataset, its input with one more file, and an append killed at its switch."""

    def __init__(self, root: Path) -> None:
        self.source = root / "in"
        write_rows(self.source / "a.csv", 0, 40)
        self.folder = root / "model" / "out"
        convert("csv", self.source, self.folder, *OPTIONS)
        self.before = published(self.folder)
        write_rows(self.source / "b.csv", 40, 20)
        with (self.source / "b.csv").open("a") as file:
            file.write("too,few\n")
        done = shutil.copytree(self.folder, root / "done" / "out")
        convert("csv", self.source, done, *APPEND)
        self.after = published(done)
        staged(self.source, self.folder, *APPEND)

    def killed_at(self, step: int, root: Path) -> tuple[Path, Path, bool]:
        """Input and output after the append was killed at a step of its switch, and
        whether it came to its end before.
        """
        source = shutil.copytree(self.source, root / "in")  # with their times
        folder = shutil.copytree(self.folder, root / "out")
        finished = run_until(step, source, folder, *APPEND)
        # At any moment one of the two is there, whole; its inventory comes right behind
        # the manifest.
        found = published(folder)
        whole = self.after if self.is_new(folder) else self.before
        late = {"inputs-a00001.jsonl.gz", "inventory-a00001.jsonl.gz"}
        assert {
            n: d for n, d in whole.items() if n not in late
        }.items() <= found.items()
        assert_readable(folder)
        return source, folder, finished

    def is_new(self, folder: Path) -> bool:
        return manifest_of(folder).get("appended", 0) == 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("append"))


def the_same_again(model: Model, source: Path, folder: Path) -> None:
    convert("csv", source, folder, *APPEND)
    assert published(folder) == model.after


def one_more_file(model: Model, source: Path, folder: Path) -> None:
    """It is another append then, and nothing of the killed one is left."""
    was_new = model.is_new(folder)
    write_rows(source / "c.csv", 60, 10)
    convert("csv", source, folder, *APPEND)
    assert sorted(ints(folder, "id")) == [*range(70)]
    assert manifest_of(folder)["appended"] == 1 + was_new


def one_file_less(model: Model, source: Path, folder: Path) -> None:
    was_new = model.is_new(folder)
    (source / "b.csv").unlink()
    ran = recordmill("convert", "csv", source, folder, *APPEND)
    if was_new:
        assert ran.status == 65
        assert "1 is missing (b.csv)" in ran.err
        write_back = shutil.copy2(model.source / "b.csv", source)
        assert write_back
        convert("csv", source, folder, *APPEND)
        assert published(folder) == model.after
    else:
        assert (ran.status, "nothing to do" in ran.err) == (0, True)
        assert model.before.items() <= published(folder).items()
        assert recordmill("clean", folder).status == 0
        assert published(folder).keys() == model.before.keys()


def cleaned(model: Model, source: Path, folder: Path) -> None:
    was_new = model.is_new(folder)
    ran = recordmill("clean", folder)
    assert ran.status == 0, ran.err
    if was_new:
        assert published(folder) == model.after
    else:  # its manifest may have another generation: no dead run's can follow it
        assert published(folder).keys() == model.before.keys()


def overwritten(model: Model, source: Path, folder: Path) -> None:
    convert("csv", source, folder, *OPTIONS, "--overwrite")
    fresh = folder.parent / "fresh" / "out"
    convert("csv", source, fresh, *OPTIONS)
    assert dataset_of(folder) == dataset_of(fresh)
    assert recordmill("clean", folder).status == 0


def state_of(folder: Path) -> tuple[frozenset[str], bytes]:
    """What a killed run left, but for names and times that are never the same."""
    names = frozenset(re.sub(r"[0-9a-f]{32}", "*", name) for name in contents(folder))
    return names, (folder / "manifest.json").read_bytes()


THEN = [the_same_again, one_more_file, one_file_less, cleaned, overwritten]


def test_killed_at_every_step(tmp_path: Path, model: Model) -> None:
    """Whatever comes then finds a whole dataset, and leaves one without remains."""
    seen = set()
    for step in steps_to_kill_at(MAX_STEPS):
        root = tmp_path / str(step)
        source, folder, finished = model.killed_at(step, root)
        state = state_of(folder)
        for then in [] if state in seen else THEN:
            own = root / then.__name__
            own_source = shutil.copytree(source, own / "in")
            own_folder = shutil.copytree(folder, own / "out")
            then(model, own_source, own_folder)
            manifest = manifest_of(own_folder)
            checked = verify_dataset(str(own_folder), deep=True)
            assert checked.problems == (), (step, then)
            assert checked.records == manifest["rows_read"] - manifest["rows_rejected"]
            assert not (own_folder / ".recordmill").exists(), (step, then)
        seen.add(state)
        shutil.rmtree(root)
        if finished:
            break
    assert finished
    assert len({manifest for _, manifest in seen}) == 2
    # Of shards, inventory, rejects, run.json, manifest and TFDS's two.
    assert len(seen) >= len(steps_to_kill_at(9))


def test_a_staged_run_that_was_to_overwrite(tmp_path: Path) -> None:
    """The dataset keeps files that are called as those of the killed run."""
    source, folder = tmp_path / "in", tmp_path / "out"
    write_rows(source / "a.csv", 0, 40)
    convert("csv", source, folder, *OPTIONS)
    staged(source, folder, *OPTIONS, "--seed", 1, "--overwrite")
    write_rows(source / "b.csv", 40, 20)
    convert("csv", source, folder, *APPEND)
    assert_sound(folder, 60)


def test_the_last_task_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner may do so although it had succeeded."""
    from recordmill.beam_jobs.pipelines import convert as job

    publish = job.publish_dataset

    def twice(*arguments: Any, **facts: Any) -> Any:
        list(publish(*arguments, **facts))
        return publish(*arguments, **facts)

    monkeypatch.setattr(job, "publish_dataset", twice)
    source, folder = tmp_path / "in", tmp_path / "out"
    for number in range(2):
        write_rows(source / f"{number}.csv", number * 10, 10)
        convert("csv", source, folder, *APPEND)
    assert_sound(folder, 20)
    assert manifest_of(folder)["appended"] == 1


def test_shards_are_not_written_again(tmp_path: Path) -> None:
    source, folder = tmp_path / "in", tmp_path / "out"
    write_rows(source / "a.csv", 0, 40)
    convert("csv", source, folder, *APPEND)
    write_rows(source / "b.csv", 40, 20)
    with failing("stage"):
        assert recordmill("convert", "csv", source, folder, *APPEND).status == 1
    with failing(WRITING):
        plan = recordmill("convert", "csv", source, folder, *APPEND, "--plan")
        assert "would resume an interrupted run" in plan.out
        convert("csv", source, folder, *APPEND)
    assert_sound(folder, 60)


def test_of_two_at_once_one_is_told(tmp_path: Path) -> None:
    from recordmill.beam_jobs.pipelines import convert as job

    source, folder = tmp_path / "in", tmp_path / "out"
    write_rows(source / "a.csv", 0, 40)
    convert("csv", source, folder, *APPEND)
    write_rows(source / "b.csv", 40, 20)
    stage, second = job.stage, list[Ran]()

    def meanwhile(*arguments: Any) -> Any:
        def run() -> None:
            second.append(recordmill("convert", "csv", source, folder, *APPEND))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return stage(*arguments)

    with replaced("recordmill.beam_jobs.pipelines.convert.stage", meanwhile):
        convert("csv", source, folder, *APPEND)
    assert [ran.status for ran in second] == [75]
    assert "another run is writing here" in second[0].err
    assert_sound(folder, 60)


def test_another_run_came_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appended the same, or something else, before this one had the lease."""
    from recordmill.beam_jobs.service import run as launch

    source, folder = tmp_path / "in", tmp_path / "out"
    write_rows(source / "a.csv", 0, 40)
    convert("csv", source, folder, *APPEND)
    prepare_run = launch.prepare_run

    def late(*arguments: Any) -> Any:
        prepared = prepare_run(*arguments)
        monkeypatch.undo()
        if more:
            write_rows(source / "c.csv", 60, 10)
        convert("csv", source, folder, *APPEND)
        return prepared

    for number, more in enumerate((False, True)):
        write_rows(source / f"b{number}.csv", 40, 20)
        monkeypatch.setattr("recordmill.beam_jobs.service.run.prepare_run", late)
        ran = recordmill("convert", "csv", source, folder, *APPEND)
        if more:
            assert ran.status == 75
            assert "the dataset changed while the append was prepared" in ran.err
        else:
            assert (ran.status, "nothing to do" in ran.err) == (0, True)
        assert recordmill("verify", folder).status == 0


@pytest.mark.parametrize("number", range(3))
def test_killed_at_any_moment(
    tmp_path: Path, mixed: MixedInput, number: int, appended: tuple[Path, float]
) -> None:
    """kill -9: the old dataset or the new one is there, and the next run ends well."""
    model, seconds = appended
    folder = shutil.copytree(model / "base" / "out", tmp_path / "out")
    before = published(folder)
    job = [*mixed.files, folder, *LARGE, "--append"]
    moment = 0.4 + 0.6 * (number + random.Random(number).random()) / 3
    with started("convert", "csv", *job) as process:
        time.sleep(moment * seconds)
        kill(process)
    if manifest_of(folder).get("appended", 0) == 0:
        assert before.items() <= published(folder).items()
    convert("csv", *job)
    assert published(folder) == published(model / "done" / "out")
    assert verify_dataset(str(folder)).problems == ()
    assert not (folder / ".recordmill").exists()


@pytest.fixture(scope="module")
def appended(
    tmp_path_factory: pytest.TempPathFactory, mixed: MixedInput
) -> tuple[Path, float]:
    """Datasets before and after an append, and the seconds that it took."""
    root = tmp_path_factory.mktemp("appended")
    convert("csv", mixed.files[0], root / "base" / "out", *LARGE)
    done = shutil.copytree(root / "base" / "out", root / "done" / "out")
    start = time.monotonic()
    with started("convert", "csv", *mixed.files, done, *LARGE, "--append") as process:
        ran = ended(process)
    assert ran.status == 0, ran.err
    return root, time.monotonic() - start
