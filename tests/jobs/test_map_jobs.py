"""A person's function on batches, by the command: what it makes, and what is told."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    manifest_of,
    recordmill,
)
from killed_runs import staged, workspaces_kept
from map_tools import UNEVEN, rows_of, script, table, three_inputs

from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images import source as images_source

MAPS = Path(__file__).parents[2] / "examples" / "map"


def test_the_tokeniser(tmp_path: Path) -> None:
    ran = convert(
        *("csv", MAPS / "reviews.csv", tmp_path / "out", "--no-shuffle"),
        *("--map", f"{MAPS / 'tokenise.py'}:tokenise"),
    )
    rows = rows_of(tmp_path / "out")
    ids = [list(row["ids"]) for row in rows]  # type: ignore[call-overload]
    assert ids[1:3] == [[0, 6, 1, 4], [8]]  # the soup was cold; no text
    assert "map: tokenise.py:tokenise" in ran.err
    assert "kept by map: stars, text" in ran.err
    assert "by map: 0 rows dropped, 0 added" in ran.err


def test_the_normalisation(tmp_path: Path) -> None:
    job = ["--map", f"{MAPS / 'normalise.py'}:normalise"]
    convert("csv", IRIS, tmp_path / "out", *job)
    rows = rows_of(tmp_path / "out")
    for name in ("sepal_length_cm", "petal_width_cm"):
        values = [float(str(row[name])) for row in rows]
        mean = sum(values) / len(values)
        assert abs(mean) < 1e-3
        assert abs(sum((v - mean) ** 2 for v in values) / 149 - 1) < 1e-3


def test_the_filter_keeps_images_and_their_classes(tmp_path: Path) -> None:
    """The classes of all folders stay, and what is kept is an image as before."""
    job = ["--map", f"{MAPS / 'only_large.py'}:only_large"]
    convert("images", SAMPLES / "images", tmp_path / "all")
    ran = convert("images", SAMPLES / "images", tmp_path / "out", *job)
    every = {row["filename"]: row for row in rows_of(tmp_path / "all")}
    large = [n for n, row in every.items() if min(row["height"], row["width"]) >= 128]  # type: ignore[call-overload, type-var]
    kept = {row["filename"]: row for row in rows_of(tmp_path / "out")}
    assert sorted(map(str, kept)) == sorted(map(str, large))
    assert 0 < len(large) < len(every)
    for name in large:
        assert kept[name]["label"] == every[name]["label"]
        assert np.array_equal(kept[name]["image"], every[name]["image"])  # type: ignore[arg-type]
    before, after = manifest_of(tmp_path / "all"), manifest_of(tmp_path / "out")
    assert after["features"] == before["features"]
    dropped = len(every) - len(large)
    assert (after["map"]["rows_dropped"], after["map"]["rows_added"]) == (dropped, 0)
    assert after["rows_read"] == len(every)
    assert (tmp_path / "out/label.labels.txt").exists()
    assert f"by map: {dropped} row" in ran.err
    shown = recordmill("inspect", tmp_path / "out").out
    assert f"{dropped} dropped)" in " ".join(shown.split())
    assert_whole(tmp_path / "out")


def test_a_bad_row_is_a_reject_with_its_place_and_bytes(tmp_path: Path) -> None:
    text = """
def picky(batch):
    for value in batch["t"].to_pylist():
        if value in ("t3", "t40"):
            raise ValueError(f"{value!r} is not wanted")
    return batch
"""
    job = ["--map", f"{script(tmp_path, text)}:picky"]
    given = table(tmp_path / "a.csv", range(60))
    ran = recordmill("convert", "csv", given, tmp_path / "out", *job)
    assert ran.status == 65
    said = "ValueError: 't3' is not wanted; first at a.csv line 5: \"3,t3\""
    assert said in ran.err
    assert "2 of 60 rows rejected (limit 0)" in ran.err
    # The way out that the message names.
    convert("csv", given, tmp_path / "out", *job, "--max-rejects", 2)
    assert sorted(row["n"] for row in rows_of(tmp_path / "out")) == [  # type: ignore[type-var]
        n for n in range(60) if n not in (3, 40)
    ]
    assert_whole(tmp_path / "out")


def test_types_that_differ_are_told_with_the_ways_out(tmp_path: Path) -> None:
    text = """
import pyarrow as pa
def by_value(batch):
    values = [n if n < 500 else n / 2 for n in batch["n"].to_pylist()]
    return pa.RecordBatch.from_pydict({"v": pa.array(values)})
"""
    given = [table(tmp_path / "in" / f"{i}.csv", range(i, i + 300)) for i in (0, 500)]
    mapped = script(tmp_path, text)
    output = tmp_path / "out"
    # The last rows alone are of another type, so the first ones do not show it.
    lines = given[0].read_text() + "900,t\n"
    given[0].write_text(lines)
    given.pop()
    job: list[Argument] = ["csv", *given, output, "--map", f"{mapped}:by_value"]
    ran = recordmill("convert", *job)
    assert ran.status == 65
    assert "column 'v' is int64 for some rows and double for others" in ran.err
    schema = script(tmp_path, "features: {v: {dtype: float32}}\n", "schema.yaml")
    convert(*map(str, job), "--schema", schema)
    script(tmp_path, text.replace("pa.array(values)", "pa.array(values, 'double')"))
    convert(*map(str, job), "--overwrite")
    assert max(row["v"] for row in rows_of(output)) == 450  # type: ignore[type-var]


def test_a_declared_schema_describes_what_the_function_makes(tmp_path: Path) -> None:
    text = """
import pyarrow as pa
def box(batch):
    boxes = pa.array([[n, n + 1] for n in batch["n"].to_pylist()], pa.list_(pa.int64()))
    return pa.RecordBatch.from_pydict({"box": boxes, "t": batch["t"]})
"""
    job = ["--map", f"{script(tmp_path, text)}:box", "--no-shuffle"]
    given = table(tmp_path / "a.csv", range(3))
    schema = script(
        tmp_path, "features: {box: {dtype: int64, shape: [2]}, t: {}}\n", "s.yaml"
    )
    convert("csv", given, tmp_path / "out", *job, "--schema", schema)
    assert [list(r["box"]) for r in rows_of(tmp_path / "out")] == [  # type: ignore[call-overload]
        [0, 1], [1, 2], [2, 3]
    ]  # fmt: skip
    script(tmp_path, "features: {nbox: {dtype: int64}}\n", "s.yaml")
    ran = recordmill("convert", "csv", given, tmp_path / "no", *job, "--schema", schema)
    assert "no column 'nbox' among box, t; did you mean 'box'?" in ran.err


def test_job_files_name_it_beside_them(tmp_path: Path) -> None:
    """The text is what counts: by whatever path it is found, it is the same dataset."""
    table(tmp_path / "a.csv", range(9))
    script(tmp_path, UNEVEN)
    job = script(
        tmp_path,
        "source: csv\ninputs: a.csv\noutput: out\nmap: ./my_map.py:uneven\n"
        "max_rejects: 50%\n",
        "job.yaml",
    )
    ran = recordmill("run", job)
    assert ran.status == 0, ran.err
    (tmp_path / "elsewhere").mkdir()
    again = script(tmp_path / "elsewhere", UNEVEN, "renamed.py")
    options: list[Argument] = ["--map", f"{again}:uneven", "--max-rejects", "50%"]
    ran = convert("csv", tmp_path / "a.csv", tmp_path / "out", *options)
    assert "nothing to do" in ran.err
    job.write_text(job.read_text().replace("my_map.py:uneven", "my_map.py"))
    ran = recordmill("plan", job)
    assert "map: expected FILE.py:FUNCTION or MODULE:FUNCTION, found" in ran.err


def test_plan_tries_it_and_writes_nothing(tmp_path: Path) -> None:
    given = table(tmp_path / "a.csv", range(9))
    mapped = script(tmp_path, UNEVEN + "\ndef wrong(batch):\n    return batch['x']\n")
    options: list[Argument] = [given, tmp_path / "out", "--plan", "--max-rejects", 9]
    ran = recordmill("convert", "csv", *options, "--map", f"{mapped}:uneven")
    assert ran.status == 0, ran.err
    assert "map: my_map.py:uneven" in ran.out + ran.err
    ran = recordmill("convert", "csv", *options, "--map", f"{mapped}:wrong")
    assert ran.status == 2
    assert "raised for each of the first 9 rows" in ran.err
    given.write_text("n,t\n1,x\n")
    ran = recordmill("convert", "csv", *options, "--map", f"{mapped}:wrong")
    assert "raised for the first row: " in ran.err
    assert "The columns are n int64, t string" in ran.err
    assert not (tmp_path / "out").exists()


def test_a_label_of_what_the_function_makes_is_declared(tmp_path: Path) -> None:
    text = "def same(batch): return batch"
    job: list[Argument] = [table(tmp_path / "a.csv", range(3)), tmp_path / "out"]
    job += ["--map", f"{script(tmp_path, text)}:same"]
    ran = recordmill("convert", "csv", *job, "--label", "t")
    assert ran.status == 2
    assert (
        "--label: names a column of the input, but --map creates the columns" in ran.err
    )
    ran = recordmill("convert", "csv", *job, "--split-column", "t")
    assert ran.err.endswith("--map creates the columns; leave out one of them\n")
    declared = "features: {t: {classes: [t2, t1, t0]}}\n"  # the way out
    schema = script(tmp_path, declared, "schema.yaml")
    convert("csv", *job, "--schema", schema, "--no-shuffle")
    assert [row["t"] for row in rows_of(tmp_path / "out")] == [2, 1, 0]


def test_records_that_are_there_are_decoded_for_it(tmp_path: Path) -> None:
    """TFRecord files have no columns, unless they are decoded: the message says how."""
    convert("csv", table(tmp_path / "a.csv", range(9)), tmp_path / "first")
    text = """
import pyarrow.compute as pc
def odd(batch):
    rows = pc.indices_nonzero(pc.equal(pc.bit_wise_and(batch["n"], 1), 1))
    return batch.take(rows), rows
"""
    job: list[Argument] = ["--map", f"{script(tmp_path, text)}:odd", "--no-shuffle"]
    job = [*(tmp_path / "first").glob("*.tfrecord*"), tmp_path / "out", *job]
    ran = recordmill("convert", "tfrecord", *job)
    assert ran.status == 2
    assert "use --records decode" in ran.err
    convert("tfrecord", *job, "--records", "decode")
    assert sorted(row["n"] for row in rows_of(tmp_path / "out")) == [1, 3, 5, 7]  # type: ignore[type-var]


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    return three_inputs(tmp_path)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts tables and folders of images into several ranges."""
    cut = CsvSource.cut_ranges
    monkeypatch.setattr(
        CsvSource,
        "cut_ranges",
        lambda self, files: cut(replace(self, range_bytes=200), files),
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


def test_a_killed_run_goes_on(inputs: dict[str, Path], tmp_path: Path) -> None:
    mapped = script(tmp_path, UNEVEN)
    job: list[Argument] = ["--map", f"{mapped}:uneven", "--max-rejects", "90%"]
    job += ["--name", "set"]
    staged(inputs["csv"], tmp_path / "out", *job)
    (left,) = (tmp_path / "out/.recordmill").glob("*/facts/range-*.json")
    seen = left.stat().st_mtime_ns
    with workspaces_kept():
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
    assert "which images does not know with these options" in ran.err
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
    assert "--map makes several rows from one" in ran.err
    assert not (output / ".recordmill").exists()  # told before anything is written
    convert("csv", given, output, *more)  # the way out
    ran = recordmill("convert", "csv", given, output, *more, "--stratify-by", "t")
    assert "--stratify-by with --map needs an input whose columns have types" in ran.err


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
