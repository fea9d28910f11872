"""The switch to a new dataset: killed anywhere, repeated, taken over by another job."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from example_counts import steps_to_kill_at
from job_tools import (
    IRIS,
    Argument,
    assert_unpublished,
    assert_whole,
    convert,
    manifest_of,
    recordmill,
    states,
)
from killed_runs import run_until, staged
from same_dataset import assert_readable, dataset_of

from recordmill.transforms.commit import commit as commit_module


@pytest.mark.parametrize("overwrite", [False, True])
def test_switch_killed_at_every_step(
    tmp_path: Path, iris: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """Killed at any step, the same command brings the whole dataset and only it."""
    model = tmp_path / "model" / "iris"
    options: list[Argument] = ["--shards", 3, "--max-rejects", 1]
    if overwrite:
        shutil.copytree(iris, model)
        options.append("--overwrite")
    staged(model, monkeypatch, *options)
    convert("csv", IRIS, tmp_path / "fresh" / "iris", *options)
    expected = dataset_of(tmp_path / "fresh" / "iris")
    before = dataset_of(iris)
    splits = manifest_of(tmp_path / "fresh" / "iris")["splits"]
    for step in steps_to_kill_at(100):
        folder = shutil.copytree(model, tmp_path / str(step) / "iris")
        finished = run_until(step, IRIS, folder, *options)
        if (folder / "manifest.json").exists():
            assert_readable(folder)
            assert overwrite or manifest_of(folder)["splits"] == splits, step
        convert("csv", IRIS, folder, *options)
        assert dataset_of(folder) == expected, step
        assert_whole(folder)
        if finished:
            break
    assert before != expected
    assert step > 6  # three shards, two files for TFDS, run.json, the manifest
    assert finished


def test_half_switched_by_another_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another job left half published is replaced wholly, and only if asked."""
    folder = tmp_path / "iris"
    staged(folder, monkeypatch, "--shards", 3)
    for step in range(1, 100):
        if list(folder.glob("iris-train*")):
            break
        assert not run_until(step, IRIS, folder, "--shards", 3)
    before = states(folder)
    ran = recordmill("convert", "csv", IRIS, folder, "--shards", 2)
    assert ran.status == 73
    assert "another job was killed while it published its dataset here" in ran.err
    assert states(folder) == before
    convert("csv", IRIS, folder, "--shards", 2, "--overwrite")
    assert_whole(folder)


def test_scratch_goes_although_killed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run killed right behind its manifest leaves scratch to the next one."""
    folder = tmp_path / "iris"
    with monkeypatch.context() as patch:
        patch.setattr(
            "recordmill.transforms.tasks.workspace.Workspace.remove",
            lambda workspace: None,
        )
        convert("csv", IRIS, folder)
    assert (folder / ".recordmill").is_dir()
    convert("csv", IRIS, folder)
    assert_whole(folder)


def test_nothing_is_left_of_an_earlier_try(tmp_path: Path) -> None:
    """A job that failed leaves its rejects; one that then succeeds takes them away."""
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n3\n")
    output = tmp_path / "out"
    assert recordmill("convert", "csv", wrong, output).status == 65
    assert_unpublished(output)
    convert("csv", wrong, output, "--max-rejects", "50%")
    assert_whole(output)


@pytest.mark.parametrize("way", ["clean", "convert"])
def test_killed_right_behind_the_swap(
    tmp_path: Path, iris: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The dataset is there; what is beside it is not damaged, but waits."""
    folder = shutil.copytree(iris, tmp_path / "iris")
    job: list[Argument] = ["csv", IRIS, folder, "--shards", 3, "--overwrite"]
    finish = commit_module.finish

    def killed(store: Any, **grace: bool) -> Any:
        """Stands for the step behind the swap, not for that before the run."""
        return finish(store, **grace) if grace else 1 / 0

    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "finish", killed)
        assert recordmill("convert", *job).status == 1
    ran = recordmill("verify", folder)
    assert ran.status == 1
    assert "not in place yet" in ran.out
    assert "--overwrite" not in ran.out
    advice = ran.out.partition("`recordmill ")[2].partition("`")[0].split()
    assert recordmill(*(advice if way == "clean" else ["convert", *job])).status == 0
    assert recordmill("verify", folder).status == 0
    assert_whole(folder)
