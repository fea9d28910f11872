"""A person's function on batches, by the command: exchanges, splits, killed runs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from job_tools import (
    Argument,
    assert_whole,
    contents,
    convert,
    manifest_of,
    recordmill,
)
from killed_runs import staged
from map_tools import UNEVEN, rows_of, script, three_inputs

from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.tasks.workspace import Workspace


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    return three_inputs(tmp_path)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts tables and folders of images into several ranges."""
    cut = CsvSource.cut
    monkeypatch.setattr(
        CsvSource, "cut", lambda self, files: cut(replace(self, range_bytes=200), files)
    )
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 3)


@pytest.mark.parametrize("source", ["csv", "images"])
@pytest.mark.usefixtures("small_ranges")
def test_all_exchanges_give_the_same_bytes(
    source: str, inputs: dict[str, Path], tmp_path: Path
) -> None:
    """Of a function that drops, multiplies and refuses rows; and every row is counted."""
    job: list[Argument] = [
        *("--map", f"{script(tmp_path, UNEVEN)}:uneven", "--name", "set"),
        *("--shards", 2, "--max-rejects", "90%"),
        *("--split", "train=0.5", "--split", "dev=0.5"),
    ]
    made = {}
    for exchange in ("scratch", "engine"):
        output = tmp_path / exchange
        convert(source, inputs[source], output, *job, "--exchange", exchange)
        made[exchange] = {
            name.replace(f"-{exchange}-", "-"): digest  # of files of rejects
            for name, digest in contents(output).items()
        }
        assert_whole(output)
    assert made["scratch"] == made["engine"]
    facts = manifest_of(tmp_path / "scratch")
    dropped, added = facts["map"]["rows_dropped"], facts["map"]["rows_added"]
    splits = {name: rows_of(tmp_path / "scratch", name) for name in ("train", "dev")}
    records = sum(map(len, splits.values()))
    assert facts["rows_read"] + added == records + facts["rows_rejected"] + dropped
    assert min(dropped, added, facts["rows_rejected"]) > 0
    name = "filename" if source == "images" else "t"
    copies = {
        split: Counter(str(row[name]) for row in rows) for split, rows in splits.items()
    }
    # All copies of a row are in one split, and as many as there should be.
    assert copies["train"].keys() & copies["dev"].keys() == set()
    assert set((copies["train"] + copies["dev"]).values()) == {1, 2, 3}
    reasons = [
        json.loads(line)["reason"]
        for path in (tmp_path / "scratch/rejects").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert set(reasons) == {"map uneven: ValueError: a row of kind 4"}


@pytest.mark.usefixtures("small_ranges")
def test_copies_stand_together_in_the_order_of_the_input(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    text = """
import numpy as np
def numbered(batch):
    rows = np.repeat(np.arange(batch.num_rows), 3)
    copies = np.tile(np.arange(3), batch.num_rows)
    return batch.take(rows).append_column("copy", copies), rows
"""
    job = ["--map", f"{script(tmp_path, text)}:numbered", "--no-shuffle"]
    for exchange in ("scratch", "engine"):
        output = tmp_path / exchange
        convert("csv", inputs["csv"], output, *job, "--exchange", exchange)
        found = [(row["n"], row["copy"]) for row in rows_of(output)]
        assert found == [(n, copy) for n in range(60) for copy in range(3)]


@pytest.mark.usefixtures("small_ranges")
def test_types_that_widen_later_are_mapped_again(tmp_path: Path) -> None:
    """Integers for 5,000 bytes, then one decimal: all ranges are mapped as decimals."""
    lines = [f"{n},t{n}" for n in range(600)]
    lines[430] = "0.5,t"
    given = tmp_path / "a.csv"
    given.write_text("n,t\n" + "\n".join(lines) + "\n")
    text = """
import pyarrow.compute as pc
def halves(batch):
    return batch.set_column(0, "n", pc.divide(batch["n"], 2))
"""
    job = ["--map", f"{script(tmp_path, text)}:halves", "--no-shuffle"]
    convert("csv", given, tmp_path / "out", *job)
    expected = [n / 2 for n in range(600)]  # integers would be divided without rest
    expected[430] = 0.25
    assert [row["n"] for row in rows_of(tmp_path / "out")] == expected


def test_a_killed_run_goes_on(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = script(tmp_path, UNEVEN)
    job: list[Argument] = ["--map", f"{mapped}:uneven", "--max-rejects", "90%"]
    job += ["--name", "set"]
    monkeypatch.setattr("killed_runs.IRIS", inputs["csv"])
    staged(tmp_path / "out", monkeypatch, *job)
    (left,) = (tmp_path / "out/.recordmill").glob("*/facts/range-*.json")
    seen = left.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "remove", lambda workspace: None)
        convert("csv", inputs["csv"], tmp_path / "out", *job)
    assert left.stat().st_mtime_ns == seen  # it was not mapped again
    convert("csv", inputs["csv"], tmp_path / "other", *job)
    for name, digest in contents(tmp_path / "other").items():
        assert contents(tmp_path / "out")[name] == digest


def test_no_references_to_rows_that_a_function_makes(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    job: list[Argument] = ["--map", f"{script(tmp_path, UNEVEN)}:uneven"]
    ran = recordmill(
        *("convert", "images", inputs["images"], tmp_path / "out", *job),
        *("--exchange", "reference"),
    )
    assert "unknown, because the function of --map makes the rows" in ran.err
    assert "Use --exchange auto" in ran.err
    convert(
        *("images", inputs["images"], tmp_path / "out", *job),
        *("--exchange", "auto", "--max-rejects", "90%"),
    )


def test_exact_splits_count_the_rows_that_the_function_leaves(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    text = """
import numpy as np
def even(batch):
    rows = np.flatnonzero(batch["n"].to_numpy() % 2 == 0)
    return batch.take(rows), rows
def twice(batch):
    rows = np.repeat(np.arange(batch.num_rows), 2)
    return batch.take(rows), rows
"""
    mapped = script(tmp_path, text)
    job: list[Argument] = ["--split", "train=0.8", "--split", "test=0.2"]
    given, output = inputs["csv"], tmp_path / "out"
    convert("csv", given, output, *job, "--split-exact", "--map", f"{mapped}:even")
    assert [len(rows_of(output, split)) for split in ("train", "test")] == [24, 6]
    more: list[Argument] = [*job, "--overwrite", "--map", f"{mapped}:twice"]
    ran = recordmill("convert", "csv", given, output, *more, "--split-exact")
    assert "--map makes several rows of one" in ran.err
    assert not (output / ".recordmill").exists()  # told before anything is written
    convert("csv", given, output, *more)  # the way out
    ran = recordmill("convert", "csv", given, output, *more, "--stratify-by", "t")
    assert "--stratify-by with --map needs an input whose columns have types" in ran.err
