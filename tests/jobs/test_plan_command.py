"""`recordmill plan` and `convert --plan`: what would happen, told by looking alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_inputs import MixedInput
from job_tools import IRIS, SAMPLES, Argument, codes_of, convert, recordmill, states
from killed_runs import failing


def plan(source: str, *arguments: Argument, status: int = 0) -> dict[str, Any]:
    """What the plan says; that it changes nothing is checked everywhere."""
    output = arguments[-1].parent if isinstance(arguments[-1], Path) else None
    before = states(output) if output else {}
    ran = recordmill("convert", source, *arguments, "--plan", "--json")
    assert (ran.status, ran.err) == (status, "")
    assert (states(output) if output else {}) == before
    facts: dict[str, Any] = json.loads(ran.out)
    return facts


def leave_free(patch: pytest.MonkeyPatch, num_bytes: float) -> None:
    """Makes every disk have so much space."""
    usage = shutil.disk_usage("/")._replace(free=int(num_bytes))
    disk_usage = "recordmill.beam_jobs.service.prepare.shutil.disk_usage"
    patch.setattr(disk_usage, lambda folder: usage)


def made(source: str, *arguments: Argument) -> dict[str, Any]:
    """What the run then makes."""
    facts: dict[str, Any] = json.loads(convert(source, *arguments, "--json").out)
    return facts


def assert_near(planned: dict[str, Any], real: dict[str, Any], share: float) -> None:
    """Rows, records, bytes and shards, of the whole and of each split."""
    for key in ("records", "bytes", "shards"):
        assert planned[key] == pytest.approx(real[key], rel=share, abs=1), key
        for name, split in real["splits"].items():
            got = planned["splits"][name][key]
            assert got == pytest.approx(split[key], rel=share, abs=1), (name, key)
    assert planned["rows"] == pytest.approx(real["rows_read"], rel=share)
    assert list(planned["splits"]) == list(real["splits"])
    assert len(planned["run_key"]) == len(real["fingerprint"])


SPLITS: list[Argument] = ["--split", "train=0.8", "--split", "val=0.2"]


@pytest.mark.parametrize("more", [["--shard-size", "2kB"], ["--shards", 3], ["--compression", "gzip"]])  # fmt: skip
@pytest.mark.parametrize(
    ("source", "inputs"),
    [("csv", IRIS), ("cifar", SAMPLES / "cifar"), ("images", SAMPLES / "images")],
)
def test_small_input_is_planned_exactly(
    tmp_path: Path, source: str, inputs: Path, more: list[Argument]
) -> None:
    planned = plan(source, *SPLITS, *more, inputs, tmp_path / "data")
    real = made(source, *SPLITS, *more, inputs, tmp_path / "data")
    assert planned["exact"]
    # So little data, each split packed by itself.
    assert_near(planned, real, 0.35 if "gzip" in more else 0.05)
    for name, split in real["splits"].items():
        for key in ("records", "shards"):
            assert planned["splits"][name][key] == split[key], name
    if "gzip" not in more and source != "images":
        assert planned["bytes"] == real["bytes"]


@pytest.mark.parametrize("more", [["--shard-size", "1MB"], ["--shards", 7], ["--readers", 2]])  # fmt: skip
def test_large_csv(tmp_path: Path, mixed: MixedInput, more: list[Argument]) -> None:
    """Several ranges, texts with commas, quotes and newlines."""
    options: list[Argument] = [*SPLITS, *more, *mixed.files, tmp_path / "data"]
    planned = plan("csv", *options)
    assert not planned["exact"]
    assert (planned["files"], planned["ranges"]) == (2, 3)
    assert_near(planned, made("csv", *options), 0.05)


def test_large_csv_compressed(tmp_path: Path, mixed: MixedInput) -> None:
    """The shards are planned by what goes in, their sizes are of what comes out."""
    options: list[Argument] = [*SPLITS, "--compression", "gzip", mixed.files[1]]
    options.append(tmp_path / "data")
    assert_near(plan("csv", *options), made("csv", *options), 0.05)


def test_large_cifar(tmp_path: Path, cifar_folder: Path) -> None:
    options: list[Argument] = [*SPLITS, "--shard-size", "1MB", cifar_folder]
    planned = plan("cifar", *options, tmp_path / "data")
    assert not planned["exact"]
    real = made("cifar", *options, tmp_path / "data")
    assert_near(planned, real, 0.05)
    assert (planned["rows"], planned["splits"]["test"]["records"]) == (7000, 500)


def test_many_images(tmp_path: Path, image_folder: Path) -> None:
    """Planned unread, so the shards are those of the run."""
    options: list[Argument] = [*SPLITS, "--shard-size", "100kB", image_folder]
    planned = plan("images", *options, tmp_path / "data")
    real = made("images", *options, tmp_path / "data")
    assert_near(planned, real, 0.05)
    for name, split in real["splits"].items():
        assert planned["splits"][name]["shards"] == split["shards"]
        assert planned["splits"][name]["records"] == split["records"]


@pytest.mark.parametrize(("rows", "exact"), [(60_000, True), (90_000, False)])
def test_rows_that_grow(tmp_path: Path, rows: int, exact: bool) -> None:
    """Later rows are longer; the last cell makes a column of integers one of text."""
    random = np.random.default_rng(1)
    lengths = [int(random.integers(n // 200 + 1)) for n in range(rows)]
    lines = [f'{n},"{"x" * length}"' for n, length in enumerate(lengths)]
    source = tmp_path / "in" / "in.csv"
    source.parent.mkdir()
    source.write_text("\n".join(["id,text", *lines, "last,1"]))
    options: list[Argument] = ["--shard-size", "500kB", source.parent]
    options += ["--odd-cells", "widen"]
    planned = plan("csv", *options, tmp_path / "data")
    assert planned["exact"] == exact
    # A sample may miss that cell: then the records are smaller by 3 %.
    real = made("csv", *options, tmp_path / "data")
    assert_near(planned, real, 0 if exact else 0.08)


def test_parts_inside_quotes(tmp_path: Path) -> None:
    """A part that begins inside a long quoted text is read as the run reads it."""
    text = "\n".join(["1,2,3", "a,b", "just words"] * 20_000)
    source = tmp_path / "in.csv"
    source.write_text("".join(["a,b,c\n", *[f'{n},"{text}",{n}\n' for n in range(30)]]))
    planned = plan("csv", source, tmp_path / "data")
    assert not planned["exact"]
    real = made("csv", source, tmp_path / "data")
    assert planned["rows"] == pytest.approx(real["rows_read"], abs=8)
    assert planned["bytes"] == pytest.approx(real["bytes"], rel=0.3)


@pytest.mark.parametrize("large", [False, True])
def test_declared_schema(tmp_path: Path, mixed: MixedInput, large: bool) -> None:
    """The rows are conformed as the run does it: other records, other rejects."""
    files = mixed.files if large else (IRIS,)
    features = "{id: int32, score: {dtype: float32, max: 99}}"
    if not large:
        features = "{sepal_length_cm: {dtype: float32, max: 5}}"
    schema = tmp_path / "schema.yaml"
    schema.write_text(f"features: {features}\n")
    options: list[Argument] = ["--schema", schema, "--payload", "json", "--shards", 2]
    options += ["--max-rejects", "99%", *files, tmp_path / "data"]
    planned = plan("csv", *options)
    real = made("csv", *options)
    assert real["rows_rejected"] > 50
    assert planned["exact"] != large
    assert planned["rows_rejected"] == pytest.approx(real["rows_rejected"], rel=0.05)
    assert_near(planned, real, 0.05 if large else 0)


def test_rows_that_pull_files_in(tmp_path: Path) -> None:
    """Few of the files are read, however many there are."""
    data = tmp_path / "data"
    data.mkdir()
    random = np.random.default_rng(2)
    sizes = random.integers(0, 30_000, 800).tolist()
    lines = [f"{n}.bin,{'x' * 40}" for n in range(800)]
    for number, size in enumerate(sizes):
        (data / f"{number}.bin").write_bytes(bytes(size))
    rows = data / "rows.csv"
    rows.write_text("\n".join(["path,text", *lines]))
    schema = tmp_path / "schema.yaml"
    schema.write_text("features: {file: {column: path, bytes_from: path}}\n")
    options: list[Argument] = ["--schema", schema, "--shard-size", "1MB", rows]
    (tmp_path / "out").mkdir()
    planned = plan("csv", *options, tmp_path / "out" / "data")
    assert not planned["exact"]
    assert planned["files"] == 802  # the table once as input, once as a file below it
    real = made("csv", *options, tmp_path / "out" / "data")
    assert planned["rows"] == real["rows_read"]
    assert_near(planned, real, 0.1)  # by 512 files whose sizes differ so much


def test_rejects_are_warned_of(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1,2\n3\n4,5\n")
    planned = plan("csv", source, tmp_path / "out")
    assert (planned["rows"], planned["rows_rejected"], planned["records"]) == (3, 1, 2)
    assert planned["understood"]["warnings"] == [
        {
            "code": "reject-limit",
            "message": "about 1 row would be rejected (limit 0): expected 2 columns, "
            "found 1",
        }
    ]
    assert codes_of(plan("csv", "--max-rejects", 1, source, tmp_path / "out")) == []


def test_split_without_a_row(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a\n1\n")
    planned = plan("csv", *SPLITS, source, tmp_path / "out")
    assert codes_of(planned) == ["empty-split"]
    real = made("csv", *SPLITS, source, tmp_path / "out")
    assert real["understood"]["warnings"] == planned["understood"]["warnings"]


# --- what is there already ---


def test_another_dataset(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    convert("csv", IRIS, output)
    planned = plan("csv", "--seed", 1, IRIS, output, status=73)
    assert planned["verdict"] == "refused"
    assert "contains another dataset (iris 1.0.0" in planned["reason"]
    assert planned["records"] == 150
    assert plan("csv", "--seed", 1, "--overwrite", IRIS, output)["verdict"] == "replace"


def test_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    planned = plan("csv", IRIS, tmp_path / "out", status=73)
    assert "is not empty (thesis.txt)" in planned["reason"]


def test_killed_run(tmp_path: Path) -> None:
    """A run that can go on is told, one that only has to publish too."""
    source, output = tmp_path / "in.csv", tmp_path / "out"
    source.write_text("a,b\n1,2\n3\n")
    assert recordmill("convert", "csv", source, output).status == 65
    planned = plan("csv", "--max-rejects", 1, source, output)
    assert (planned["verdict"], planned["finished_ranges"]) == ("resume", 1)
    with failing("commit"):
        ran = recordmill("convert", "csv", source, output, "--max-rejects", "1")
        assert ran.status == 1
    assert plan("csv", "--max-rejects", 1, source, output)["verdict"] == "publish"


def test_next_version(tmp_path: Path) -> None:
    auto: list[Argument] = ["--dataset-version", "auto"]
    output = tmp_path / "iris"
    planned = plan("csv", *auto, IRIS, output)
    assert (planned["verdict"], planned["version"]) == ("convert", "1.0.0")
    convert("csv", *auto, IRIS, output)
    planned = plan("csv", *auto, IRIS, output)
    assert (planned["verdict"], planned["version"]) == ("unchanged", "1.0.0")
    half = output / "1.0.1" / ".recordmill" / "0123456789abcdef"
    half.mkdir(parents=True)
    planned = plan("csv", *auto, "--seed", 1, IRIS, output)
    assert (planned["verdict"], planned["version"]) == ("convert", "1.0.1")
    assert planned["output"] == f"{output}/1.0.1"
    assert planned["removed"] == [f"{output}/1.0.1"]


def test_a_disk_that_is_too_small_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_free(monkeypatch, 10_000)
    planned = plan("csv", IRIS, tmp_path / "out")
    assert planned["verdict"] == "convert"
    [warning] = planned["understood"]["warnings"]
    assert warning["message"].startswith(f"{tmp_path}: needs about ")
    assert "but 10.0 kB are free; free some space" in warning["message"]


def test_what_memory_holds_needs_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, output = tmp_path / "in.csv", tmp_path / "out"
    table.write_text("a\n" + "".join(f"{n:0300}\n" for n in range(10_000)))
    planned = plan("csv", table, output)
    leave_free(monkeypatch, 1.2 * planned["bytes"])
    small = plan("csv", "--memory", "0", table, output)
    assert codes_of(small) == ["full-disk"]
    assert codes_of(plan("csv", table, output)) == []


# --- how it is told ---


def test_people_read_stdout(tmp_path: Path) -> None:
    ran = recordmill(
        "convert", "csv", IRIS, tmp_path / "iris", "--plan", "--workers", 2
    )
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == f"iris 1.0.0 in {tmp_path}/iris: would convert"
    assert lines[1] == "  input    1 file, 3.9 kB, 1 range"
    assert lines[2] == "  delimiter: comma"
    assert lines[6] == "  rows     150"
    assert lines[7] == "  train    150 records in 1 shard of 23.8 kB"
    assert lines[8].startswith("  exchange scratch")
    convert("csv", IRIS, tmp_path / "iris")
    ran = recordmill("convert", "csv", IRIS, tmp_path / "iris", "--plan")
    assert "already exists: nothing to do" in ran.out


def test_plan_of_a_job_file(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        f"source: csv\ninputs: {IRIS}\noutput: iris\nshards: '{{{{ n }}}}'\n"
    )
    before = states(tmp_path)
    ran = recordmill("plan", job, "--set", "n=4", "--json")
    assert (ran.status, ran.err) == (0, "")
    planned = json.loads(ran.out)
    assert states(tmp_path) == before
    real = json.loads(recordmill("run", job, "--set", "n=4", "--json").out)
    assert_near(planned, real, 0)
    assert recordmill("plan", job, "--set", "n=5").status == 73
    text = recordmill("plan", job, "--set", "n=5").out
    assert "would be refused\n  because" in text


SAID = {  # by plan and run: what is typed behind `convert`, status, message
    "csv nothing out": (65, "no such file or folder"),
    f"csv {IRIS} out --scratch gs://b": (2, "a local folder"),
    f"images {IRIS} out": (65, "is text with delimiters, not images"),
    f"csv {IRIS} out --split-by colour": (2, "no such column"),
    f"csv {IRIS} out --exchange reference": (
        2,
        "--exchange reference needs record sizes",
    ),
}


def test_what_the_run_would_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for typed, (status, message) in SAID.items():
        ran = recordmill("convert", *typed.split(), "--plan")
        assert (ran.status, ran.out) == (status, "")
        assert message in ran.err
        assert recordmill("convert", *typed.split()).status == status


def test_one_row_is_told_in_the_singular(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"a": 1}\n')
    told = recordmill(
        "convert", "jsonl", tmp_path / "one.jsonl", tmp_path / "out", "--plan"
    )
    assert "  train    1 record in 1 shard " in told.out
    assert "  types: by the 1 row\n" in told.out
