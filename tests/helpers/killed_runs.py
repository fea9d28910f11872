"""Runs that end before their time, as if their process had been killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from job_tools import Argument, recordmill

from recordmill.transforms.storage.local_folder import LocalFolder

# Every change of names in an output goes through one of these.
CHANGES_OF_A_DISK = [
    (Path, "replace"),
    *(
        (LocalFolder, name)
        for name in ("rename", "unlink", "make_folder", "remove_tree")
    ),
]


class KilledError(BaseException):
    """Stands for the end of the process."""


PIPELINE = "recordmill.beam_jobs.pipelines.convert"
WRITING = "recordmill.transforms.tasks.write_shard.write_records"


@contextmanager
def replaced(name: str, by: object) -> Iterator[None]:
    """Puts something in the place of an object of that full name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, by)
        yield


@contextmanager
def failing(step: str) -> Iterator[None]:
    """Runs end at a step, as if the machine went down.

    Args:
      step: a function's full name, or the name of one that the pipeline calls: `stage`,
        when all shards are written, or `commit`, at the switch to the new dataset.
    """

    def fail(*_: object, **__: object) -> None:
        raise OSError("the power went")

    with replaced(step if "." in step else f"{PIPELINE}.{step}", fail):
        yield


@contextmanager
def workspaces_kept() -> Iterator[None]:
    """Runs leave their workspace when they end, so that one can look into it."""
    name = "recordmill.transforms.tasks.workspace.Workspace.remove"
    with replaced(name, lambda workspace: None):
        yield


def staged(source: Path, folder: Path, *options: Argument) -> None:
    """Runs a job up to its switch, as if the process had been killed there."""
    with failing("commit"):
        assert recordmill("convert", "csv", source, folder, *options).status == 1


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
        for owner, name in CHANGES_OF_A_DISK:
            patch.setattr(owner, name, counted(getattr(owner, name)))
        try:
            ran = recordmill("convert", "csv", *arguments)
        except KilledError:
            pass
        else:
            assert ran.status == 0, ran.err
            return True
    # This process lives on, so nobody would take its lock for that of a dead run.
    for held in ("lock", "swap", ".recordmill"):
        folder = Path(arguments[1]) / ".recordmill" / held
        shutil.rmtree(folder, ignore_errors=True)
    return False
