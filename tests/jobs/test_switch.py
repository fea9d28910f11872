"""The switch to a new dataset: killed anywhere, repeated, taken over by another job."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from job_tools import (
    IRIS,
    Argument,
    assert_unpublished,
    assert_whole,
    contents,
    convert,
    recordmill,
    states,
)


class KilledError(BaseException):
    """Stands for the end of the process."""


def staged(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: Argument) -> None:
    """Runs a job up to its switch, as if the process had been killed there."""

    def no_switch(workspace: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.commit", no_switch)
        assert recordmill("convert", "csv", IRIS, folder, *options).status == 1


def run_until(step: int, *arguments: Argument) -> bool:
    """Runs the command until its given change of the file system.

    Returns:
      Whether the command came to its end before that.
    """
    steps = iter(range(step))

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def change_or_die(*args: object, **options: object) -> object:
            if next(steps, None) is None:
                raise KilledError
            return change(*args, **options)

        return change_or_die

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "unlink", "mkdir"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        try:
            ran = recordmill("convert", "csv", *arguments)
        except KilledError:
            pass
        else:
            assert ran.status == 0, ran.err
            return True
    # This process lives on, so nobody would take its lock for that of a dead run.
    shutil.rmtree(Path(arguments[1]) / ".recordmill" / "lock", ignore_errors=True)
    return False


def published(folder: Path) -> dict[str, str]:
    """The digests of a dataset's files, without those of runs in the making."""
    files = contents(folder)
    return {name: files[name] for name in files if not name.startswith(".recordmill/")}


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
    expected = contents(tmp_path / "fresh" / "iris")
    before = contents(iris) if overwrite else {}
    for step in range(100):
        folder = shutil.copytree(model, tmp_path / str(step) / "iris")
        finished = run_until(step, IRIS, folder, *options)
        if (folder / "manifest.json").exists():
            assert published(folder) in (before, expected), step
        convert("csv", IRIS, folder, *options)
        assert published(folder) == expected, step
        if finished:
            break
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
    assert ran.status == 1
    assert "another job was killed while it published its dataset here" in ran.err
    assert states(folder) == before
    convert("csv", IRIS, folder, "--shards", 2, "--overwrite")
    assert_whole(folder)


def test_switch_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner may repeat the last task although it had succeeded."""
    from recordmill.beam_jobs.pipelines import convert as job

    publish = job.publish_dataset

    def twice(*arguments: object, **facts: object) -> object:
        list(publish(*arguments, **facts))  # type: ignore[arg-type]
        return publish(*arguments, **facts)  # type: ignore[arg-type]

    monkeypatch.setattr(job, "publish_dataset", twice)
    convert("csv", IRIS, tmp_path / "iris", "--shards", 2)
    assert_whole(tmp_path / "iris")


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
    assert recordmill("convert", "csv", wrong, output).status == 1
    assert_unpublished(output)
    convert("csv", wrong, output, "--max-rejects", "50%")
    assert_whole(output)
