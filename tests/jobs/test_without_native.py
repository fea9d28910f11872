"""A dataset is the same, byte by byte, with the native extension and without it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from job_tools import IRIS, SAMPLES, Argument, command, convert
from same_dataset import dataset_of

from recordmill.transforms import native
from recordmill.transforms.native import numpy_loops


@pytest.mark.parametrize(
    ("source", "files"), [("csv", IRIS), ("cifar", SAMPLES / "cifar")]
)
def test_same_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, files: Argument
) -> None:
    constants = {
        name: getattr(native.loops, name)
        for name in numpy_loops.IN_EXTENSION
        if name.isupper()
    }
    loops = Mock(wraps=native.loops, **constants)
    monkeypatch.setattr(native, "loops", loops)
    convert(source, files, tmp_path / "with" / "out", "--shards", 2)
    assert loops.write.called
    assert loops.seal.called
    assert loops.cells.called == (source == "csv")
    monkeypatch.setattr(native, "loops", numpy_loops)
    convert(source, files, tmp_path / "without" / "out", "--shards", 2)
    with_loops = dataset_of(tmp_path / "with" / "out")
    assert with_loops
    assert with_loops == dataset_of(tmp_path / "without" / "out")


def test_version_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ("yes (CRC-32C by instruction)", "yes (CRC-32C by table)")
    assert command("--version").out.splitlines()[1].partition(": ")[2] in ways
    monkeypatch.setenv("RECORDMILL_COMPILED", "no")
    assert command("--version").out.splitlines()[1] == (
        "native extension: no (RECORDMILL_COMPILED turns it off)"
    )
