"""A person's function on batches, by the command: what it makes, and what is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    assert_whole,
    convert,
    manifest_of,
    recordmill,
)
from map_tools import UNEVEN, rows_of, script, table

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
        "--label: names a column of the input, but --map makes the columns" in ran.err
    )
    ran = recordmill("convert", "csv", *job, "--split-column", "t")
    assert ran.err.endswith("--map makes the columns; leave out one of them\n")
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
