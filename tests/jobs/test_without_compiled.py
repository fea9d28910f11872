"""A dataset is the same, byte by byte, with the compiled loops and without them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from job_tools import IRIS, SAMPLES, Argument, command, convert
from same_dataset import dataset_of

from recordmill.transforms import compiled
from recordmill.transforms.compiled import Loops


@pytest.mark.parametrize(
    ("source", "files"), [("csv", IRIS), ("cifar", SAMPLES / "cifar")]
)
def test_same_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, files: Argument
) -> None:
    constants = {name: getattr(compiled.loops, name) for name in Loops.__annotations__}
    loops = Mock(wraps=compiled.loops, **constants)
    monkeypatch.setattr(compiled, "loops", loops)
    convert(source, files, tmp_path / "with" / "out", "--shards", 2)
    assert loops.write.called
    assert loops.seal.called
    assert loops.cells.called == (source == "csv")
    monkeypatch.setattr(compiled, "loops", None)
    convert(source, files, tmp_path / "without" / "out", "--shards", 2)
    with_loops = dataset_of(tmp_path / "with" / "out")
    assert with_loops
    assert with_loops == dataset_of(tmp_path / "without" / "out")


def test_version_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ("yes (CRC-32C by instruction)", "yes (CRC-32C by table)")
    assert command("--version").out.splitlines()[1].partition(": ")[2] in ways
    monkeypatch.setenv("RECORDMILL_COMPILED", "no")
    assert command("--version").out.splitlines()[1] == (
        "compiled loops: no (RECORDMILL_COMPILED turns them off)"
    )
