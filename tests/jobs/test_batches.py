"""Batches of images of several sizes, and of rows with missing values."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from job_tools import convert, recordmill
from PIL import Image

from recordmill import open_dataset
from recordmill.schemas.errors import UsageError

SIZES = [(20, 30), (25, 30), (20, 35)]


@pytest.fixture(autouse=True)
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's default_collate, of arrays, numbers and text."""

    def default_collate(values: list[Any]) -> Any:
        return values if isinstance(values[0], str) else np.stack(values)

    data = ModuleType("torch.utils.data")
    data.default_collate = default_collate  # type: ignore[attr-defined]
    for name in ("torch", "torch.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for index, size in enumerate(SIZES):
        folder = tmp_path / "images" / "ab"[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (index + 1,) * 3).save(folder / f"{index}.png")
    return tmp_path / "images"


def test_images_of_several_sizes_are_padded(images: Path, tmp_path: Path) -> None:
    convert("images", images, tmp_path / "out", "--no-shuffle")
    data = open_dataset(tmp_path / "out", decode=True)
    rows = data[:]
    batch = data.collate(rows)
    assert batch["image"].shape == (3, 35, 25, 3)
    for padded, row in zip(batch["image"], rows, strict=True):
        height, width, _ = row["image"].shape
        assert (padded[:height, :width] == row["image"]).all()
        assert padded.sum() == row["image"].sum()
    assert batch["label"].shape == (3,)


def test_everybody_says_that_sizes_may_differ(images: Path, tmp_path: Path) -> None:
    ran = convert("images", images, tmp_path / "out")
    said = "may differ in size: for batches of one shape convert with --resize"
    assert said in ran.err
    shown = recordmill("inspect", tmp_path / "out").out
    assert said in " ".join(shown.split())
    code = recordmill("inspect", tmp_path / "out", "--tf").out
    assert ".ragged_batch(32)" in code
    assert "padded_batch, or convert with resize" in code
    ran = convert("images", images, tmp_path / "same", "--resize", "16x16")
    assert "differ in size" not in ran.err
    shown = recordmill("inspect", tmp_path / "same").out
    assert "differ in size" not in shown
    data = open_dataset(tmp_path / "same", decode=True)
    assert {row["image"].shape for row in data} == {(16, 16, 3)}
    code = recordmill("inspect", tmp_path / "same", "--tf").out
    assert ".batch(32)" in code
    assert "differ" not in code


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_missing_values_are_filled(tmp_path: Path, compression: str) -> None:
    table = tmp_path / "in.jsonl"
    table.write_text(
        '{"n": 1, "t": "a", "v": [1, 2]}\n{"n": null}\n{"n": 3, "v": [4, 5]}\n'
    )
    out = tmp_path / "out"
    convert("jsonl", table, out, "--no-shuffle", "--compression", compression)
    plain = open_dataset(out)
    with pytest.raises(UsageError, match=r"open the dataset with fill=\{'n': ...\}"):
        plain.collate(list(plain))
    data = open_dataset(out, fill={"n": -1, "t": "", "v": [0, 0]})
    rows = list(data.stream())
    assert [(row["n"], row["t"], [*row["v"]]) for row in rows] == [
        (1, "a", [1, 2]),
        (-1, "", [0, 0]),
        (3, "", [4, 5]),
    ]
    assert [row["n"] for row in data] == [1, -1, 3]
    batch = data.collate(rows)
    assert batch["v"].tolist() == [[1, 2], [0, 0], [4, 5]]
    if compression == "none":
        (columns,) = data.numpy_batches(3)
        assert columns["n"].dtype == np.int64
        assert columns["n"].tolist() == [1, -1, 3]


def test_what_cannot_fill(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("n,t\n1,a\n,b\n")
    convert("csv", tmp_path / "in.csv", tmp_path / "out")
    with pytest.raises(UsageError, match="fill: no feature 'm'; the features are n, t"):
        open_dataset(tmp_path / "out", fill={"m": 0})
    data = open_dataset(tmp_path / "out", fill={"n": "none"})
    with pytest.raises(UsageError, match="fill: 'n' cannot have 'none'"):
        data[0]
