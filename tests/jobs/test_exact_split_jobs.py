"""Exact and stratified splits by the command: the numbers, and the same bytes."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import (
    SAMPLES,
    Argument,
    contents,
    convert,
    ints,
    manifest_of,
    recordmill,
)
from tables_in_formats import cut_small, write_table

from recordmill.beam_jobs.service import label_split
from recordmill.transforms.exchange import exact_splits
from recordmill.transforms.exchange.exact_splits import divide

EIGHT_TWO: list[Argument] = ["--split", "train=0.8", "--split", "test=0.2"]
# As text, typed, with missing values: the classes of one column.
KINDS = ["07", "7", "8", "8.0", "", "NA", "9"] * 30


def records(folder: Path) -> dict[str, int]:
    splits: dict[str, Any] = manifest_of(folder)["splits"]
    return {name: split["records"] for name, split in splits.items()}


def test_exact_splits_of_images(tmp_path: Path) -> None:
    """By references, by files and through the engine."""
    for exchange in ("reference", "scratch", "engine"):
        convert(
            *("images", SAMPLES / "images", tmp_path / exchange, "--name", "same"),
            *EIGHT_TWO,
            *("--split-exact", "--exchange", exchange),
        )
        assert records(tmp_path / exchange) == {"train": 8, "test": 2}
        assert contents(tmp_path / exchange) == contents(tmp_path / "reference")


@pytest.mark.parametrize("label", ["", "kind"])
def test_each_class_has_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    """Whatever types the columns have in the ranges; as the engine has them."""
    cut_small(monkeypatch, 1024)
    kinds = ["7", "8", "9"] * 70 if label else KINDS
    file = write_table(tmp_path / "a", "csv", {"id": list(range(210)), "kind": kinds})
    job: list[Argument] = [*EIGHT_TWO, "--stratify-by", "kind", "--name", "same"]
    job += ["--label", "kind"] if label else []
    ran = convert("csv", file, tmp_path / "out", *job)
    assert records(tmp_path / "out") == {"train": 168, "test": 42}
    values = [kinds[row] for row in ints(tmp_path / "out", "id", "test")]
    classes = Counter(
        {"07": "7", "8.0": "8", "NA": ""}.get(value, value) for value in values
    )
    assert "train 168, test 42 rows, of each of" in ran.err
    counts = Counter(
        {"07": "7", "8.0": "8", "NA": ""}.get(value, value) for value in kinds
    )
    for name, rows in counts.items():
        assert abs(classes[name] - Fraction(rows, 5)) < 1
    if not label:
        convert("csv", file, tmp_path / "engine", *job, "--exchange", "engine")
        assert contents(tmp_path / "engine") == contents(tmp_path / "out")


@pytest.mark.parametrize("said", ["", "table", "schema"])
def test_classes_are_numbers_as_cells_are(tmp_path: Path, said: str) -> None:
    """1,5 and 1,50 are one class only where the table, or its schema, has such numbers."""
    kinds = ["1,5", "1,50"] * 4
    columns = {"id": list(range(8)), "kind": kinds}
    file = write_table(tmp_path / "a", "csv", columns)
    job: list[Argument] = ["--split", "a=0.5", "--split", "b=0.5"]
    job += ["--stratify-by", "kind"]
    if said == "table":
        job += ["--decimal", "comma"]
    if said == "schema":
        (tmp_path / "s.yaml").write_text(
            "features: {id: int64, kind: {dtype: float32, decimal: comma}}"
        )
        job += ["--schema", tmp_path / "s.yaml"]
    told = convert("csv", file, tmp_path / "out", *job).err
    num_classes = "1 class" if said else "2 classes"
    assert f"a 4, b 4 rows, of each of {num_classes} by kind" in told
    found = Counter(kinds[row] for row in ints(tmp_path / "out", "id", "a"))
    assert said or found == {"1,5": 2, "1,50": 2}


def test_each_part_of_an_append_is_exact(tmp_path: Path) -> None:
    job: list[Argument] = [*EIGHT_TWO, "--split-exact", "--append"]
    for number, rows in enumerate((10, 5)):
        write_table(tmp_path / "in" / str(number), "jsonl", {"id": list(range(rows))})
        convert("jsonl", tmp_path / "in", tmp_path / "out", *job)
    assert records(tmp_path / "out") == {"train": 12, "test": 3}


def test_limits_outside_their_window_are_found_by_a_wider_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_table(tmp_path / "a", "parquet", {"id": np.arange(5000)})
    job: list[Argument] = [*EIGHT_TWO, "--split-exact", "--name", "same"]
    convert("parquet", file, tmp_path / "out", *job)
    monkeypatch.setattr(exact_splits, "ALL_KEPT", 1)
    monkeypatch.setattr(label_split, "WIDTH", 2**-12)
    tried = []
    find = label_split.find_limits

    def noted(*arguments: Any) -> Any:
        tried.append(find(*arguments))
        return tried[-1]

    monkeypatch.setattr(label_split, "find_limits", noted)
    convert("parquet", file, tmp_path / "again", *job)
    assert tried[0] is None
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    assert records(tmp_path / "out") == {"train": 4000, "test": 1000}


def test_what_cannot_be_exact_is_told(tmp_path: Path) -> None:
    job: list[Argument] = ["convert", "csv", SAMPLES / "iris", tmp_path / "out"]
    for options, told in (
        (["--split-exact"], "--split-exact: requires --split"),
        ([*EIGHT_TWO, "--split-exact", "--split-by", "species"], "groups of them"),
        ([*EIGHT_TWO, "--stratify-by", "kind"], "no such column; the input has sepal"),
        (["--split-column", "species", "--split-exact"], "nothing to --split-exact"),
    ):
        ran = recordmill(*job, *options)
        assert ran.status == 2
        assert told in ran.err


def test_numbers_stay_within_a_row_of_their_shares() -> None:
    """Of many small classes, too: all of them together have their share."""
    numbers = divide([5] * 1000, [Fraction(9, 10), Fraction(1, 10)])
    assert sum(test for _, test in numbers) == 500
