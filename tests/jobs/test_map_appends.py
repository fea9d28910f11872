"""A person's function on batches, by the command: rows are appended."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_tools import (
    Argument,
    Ran,
    assert_whole,
    convert,
    manifest_of,
    recordmill,
)
from map_tools import rows_of, script, table, three_inputs


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    return three_inputs(tmp_path)


def refused(ran: Ran) -> str:
    assert ran.status in (65, 73), ran.err
    return ran.err


@pytest.mark.parametrize("declared", [False, True])
def test_append_goes_on_with_the_same_function(declared: bool, tmp_path: Path) -> None:
    """In the types of the first run; another function is refused with the way out."""
    text = """
import pyarrow.compute as pc
def halves(batch):
    mask = pc.not_equal(batch["t"], "t2")
    rows = pc.indices_nonzero(mask)
    return batch.set_column(0, "n", pc.divide(batch["n"], 2)).take(rows), rows
"""
    mapped = script(tmp_path, text)
    folder = tmp_path / "in"
    table(folder / "a.csv", range(4), "%d.5")
    job: list[Argument] = ["csv", folder, tmp_path / "out", "--append"]
    job += ["--map", f"{mapped}:halves", "--max-rejects", 9]
    if declared:
        features = "features: {n: {dtype: float32}, t: {}}\n"
        job += ["--schema", script(tmp_path, features, "s.yaml")]
    convert(*map(str, job))
    table(folder / "b.csv", range(1, 4))  # integers, which were decimals before
    ran = convert(*map(str, job))
    assert "appended: 2 records" in ran.err
    table(folder / "bb.csv", range(0))  # without a row
    assert "appended: 0 records" in convert(*map(str, job)).err
    rows = rows_of(tmp_path / "out")
    assert sorted(row["n"] for row in rows) == [0.25, 0.5, 0.75, 1.5, 1.75]  # type: ignore[type-var]
    facts = manifest_of(tmp_path / "out")
    assert facts["map"]["rows_dropped"] == 2
    assert_whole(tmp_path / "out")
    script(tmp_path, text + "# changed\n")
    table(folder / "c.csv", range(1))
    said = refused(recordmill("convert", *job))
    assert re.search(
        r"Changed: the --map function halves \(checksum \w{8}\), now the --map function "
        r"halves \(checksum \w{8}\)",
        said,
    )
    without = [a for a in job if a not in ("--append", "--max-rejects", 9)]
    convert(*map(str, without), "--overwrite")  # the way out
    assert len(rows_of(tmp_path / "out")) == 6


@pytest.mark.parametrize("source", ["images", "parquet"])
def test_new_files_may_hold_nothing_but_bad_rows(
    source: str, inputs: dict[str, Path], tmp_path: Path
) -> None:
    """As long as rejects are allowed; the features stay those that were there."""
    text = """
def picky(batch):
    for name in ("label", "n"):
        if name in batch.schema.names and 1000 in batch[name].to_pylist():
            raise ValueError(1000)
    if "filename" in batch.schema.names:
        if any("bad" in path for path in batch["filename"].to_pylist()):
            raise ValueError("bad")
    return batch
"""
    given, output = inputs["images"].parent / "set", tmp_path / "out"
    if source == "images":
        inputs["images"].rename(given)
    else:
        given.mkdir()
        inputs["parquet"].rename(given / "a.parquet")
    job: list[Argument] = [source, given, output, "--append", "--max-rejects", 9]
    job += ["--map", f"{script(tmp_path, text)}:picky"]
    convert(*map(str, job))
    before = manifest_of(output)
    if source == "images":
        (given / "a/bad.png").write_bytes((given / "a/0.png").read_bytes())
    else:
        pq.write_table(pa.table({"n": [1000], "t": ["x"]}), given / "b.parquet")
    ran = convert(*map(str, job))
    assert "appended: 0 records" in ran.err
    after = manifest_of(output)
    assert after["features"] == before["features"]
    assert after["rows_rejected"] == before["rows_rejected"] + 1
    good, bad = (given / "a/good.png", given / "a/0.png") if source == "images" else (
        given / "c.parquet", given / "a.parquet"
    )  # fmt: skip
    good.write_bytes(bad.read_bytes())
    convert(*map(str, job))
    assert manifest_of(output)["features"] == before["features"]
    assert_whole(output)
