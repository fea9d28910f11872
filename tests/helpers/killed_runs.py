"""Runs that end before their time, as if their process had been killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from job_tools import IRIS, Argument, recordmill


class KilledError(BaseException):
    """Stands for the end of the process."""


def staged(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: Argument) -> None:
    """Runs a job up to its switch, as if the process had been killed there."""

    def no_switch(*_: object) -> None:
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
    for held in ("lock", "swap"):
        folder = Path(arguments[1]) / ".recordmill" / held
        shutil.rmtree(folder, ignore_errors=True)
    return False
