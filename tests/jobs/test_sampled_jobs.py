"""Limits and samples of jobs, by the command."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path

import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    assert_whole,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
)
from tables_in_formats import cut_small

from recordmill.transforms.sources.csv import source as csv_source

EXCHANGES = ("scratch", "engine")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """1,000 rows in two files; of each, `id` is the number in the whole input."""
    (tmp_path / "in").mkdir()
    for name, numbers in (("a", range(600)), ("b", range(600, 1000))):
        rows = "\n".join(f"{n},{'xy'[n % 3 == 0]}" for n in numbers)
        (tmp_path / f"in/{name}.csv").write_text(f"id,kind\n{rows}\n")
    return tmp_path / "in"


def ids(folder: Path, *splits: str) -> list[int]:
    return [n for split in splits or ("train",) for n in ints(folder, "id", split)]


def test_a_limit_is_the_beginning_of_the_dataset(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "all", "--seed", 5)
    whole = ids(tmp_path / "all")
    for limit in (1, 100, 999, 1000, 2000):
        output = tmp_path / str(limit)
        convert("csv", table, output, "--seed", 5, "--limit", limit)
        assert ids(output) == whole[:limit]
        left_out = max(0, 1000 - limit)
        assert manifest_of(output)["sampling"] == {"rows_left_out": left_out}
        assert_whole(output)


def test_a_limit_without_shuffle_is_the_head_of_the_input(
    table: Path, tmp_path: Path
) -> None:
    convert("csv", table, tmp_path / "out", "--no-shuffle", "--limit", 700)
    assert ids(tmp_path / "out") == list(range(700))


@pytest.mark.parametrize("order", [["--shuffle"], ["--no-shuffle"]])
def test_shards_of_few_rows_are_balanced(
    table: Path, tmp_path: Path, order: list[str]
) -> None:
    """Although all of them have small order keys."""
    job: list[Argument] = [*order, "--limit", 40, "--shards", 4]
    for exchange in EXCHANGES:
        convert("csv", table, tmp_path / exchange, *job, "--exchange", exchange)
        shards = manifest_of(tmp_path / exchange)["splits"]["train"]["shards"]
        assert [shard["records"] for shard in shards] == [10] * 4


def test_samples_are_nested(table: Path, tmp_path: Path) -> None:
    """By a share of the same rows, however it is written; another seed has others."""
    splits: list[Argument] = ["--split", "train=0.7", "--split", "test=0.3"]
    found = {}
    for name, more in {
        "5%": ["--sample", "5%"],
        "0.05": ["--sample", 0.05],
        "20%": ["--sample", "20%"],
        "100%": ["--sample", "100%"],
        "seed": ["--sample", "20%", "--seed", 1],
        "order": ["--sample", "20%", "--no-shuffle"],
        "both": ["--sample", "20%", "--limit", 50],
    }.items():
        convert("csv", table, tmp_path / name, "--name", "n", *splits, *more)
        own = ids(tmp_path / name, "train", "test")
        found[name] = set(own)
        assert len(own) == len(found[name])
        facts = manifest_of(tmp_path / name)
        assert facts["sampling"] == {"rows_left_out": 1000 - len(own)}
    assert contents(tmp_path / "5%") == contents(tmp_path / "0.05")
    assert found["5%"] < found["20%"] < found["100%"] == set(range(1000))
    assert found["both"] < found["20%"] == found["order"] != found["seed"]
    assert (len(found["both"]), 150 < len(found["20%"]) < 250) == (50, True)
    convert("csv", table, tmp_path / "whole", *splits)
    for split in ("train", "test"):  # a row that is kept stays in its split
        kept = set(ids(tmp_path / "20%", split))
        assert kept == found["20%"] & set(ids(tmp_path / "whole", split))


def test_splits_of_a_limit_are_exact(table: Path, tmp_path: Path) -> None:
    splits: list[Argument] = ["--split", "train=0.8", "--split", "test=0.2"]
    output = tmp_path / "out"
    convert("csv", table, output, "--limit", 50, *splits, "--split-exact")
    records = {k: v["records"] for k, v in manifest_of(output)["splits"].items()}
    assert records == {"train": 40, "test": 10}


def test_any_cut_and_worker(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes by every exchange and any number of workers, of many ranges."""
    cut_small(monkeypatch, 500)
    planned = recordmill("convert", "csv", table, tmp_path / "out", "--plan", "--json")
    assert json.loads(planned.out)["ranges"] > 10
    model = None
    for exchange in EXCHANGES:
        for workers in (1, 3):
            output = tmp_path / f"{exchange}{workers}"
            more: list[Argument] = ["--exchange", exchange, "--workers", workers]
            convert("csv", table, output, "--name", "n", "--limit", 77, *more)
            model = model or contents(output)
            assert contents(output) == model
            assert len(ids(output)) == 77


@pytest.mark.parametrize(
    "options",
    [["--limit", 300], ["--sample", "20%"], ["--balance", "kind=oversample"]],
    ids=lambda options: options[0],
)
def test_worker_processes_give_the_same_bytes(
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[Argument],
) -> None:
    own = csv_source.CsvSource.__init__  # its default is known when it is defined
    cut = partialmethod(own, range_bytes=1 << 10)
    monkeypatch.setattr(csv_source.CsvSource, "__init__", cut)
    found = []
    for mode in ("in_memory", "multi_processing"):
        beam = ["--", f"--direct_running_mode={mode}", "--direct_num_workers=2"]
        output = tmp_path / mode
        convert("csv", table, output, "--name", "n", *options, *beam)
        assert_whole(output)
        found.append(contents(output))
    assert "embedded (2 processes)" in (output / "run.json").read_text()
    assert found[0] == found[1]


def test_images_that_are_left_out_are_not_read(tmp_path: Path) -> None:
    """By no exchange, so a broken one is no reject, and everything is the same."""
    given = tmp_path / "in"
    (given / "a").mkdir(parents=True)
    data = next((SAMPLES / "images").rglob("*.png")).read_bytes()
    job: list[Argument] = ["--limit", 4, "--name", "n", "--max-rejects", 1]
    for number in range(12):
        (given / f"a/{number}.png").write_bytes(data)
    convert("images", given, tmp_path / "all", "--name", "n")
    order = [
        each.features.feature["filename"].bytes_list.value[0].decode()
        for each in examples_of(tmp_path / "all")
    ]
    (given / order[-1]).write_bytes(b"no image")  # behind the limit
    (given / order[2]).write_bytes(b"no image")  # within it
    model = None
    for exchange in ("reference", "scratch", "engine"):
        output = tmp_path / exchange
        convert("images", given, output, *job, "--exchange", exchange)
        found = contents(output)  # files of rejects are named by their tasks
        found = {name.partition("rejects/")[0]: data for name, data in found.items()}
        model = model or found
        assert found == model
    facts = manifest_of(output)
    assert (facts["rows_read"], facts["rows_rejected"]) == (12, 1)
    assert facts["sampling"] == {"rows_left_out": 8}
    assert facts["splits"]["train"]["records"] == 3


def test_what_is_told(table: Path, tmp_path: Path) -> None:
    """By plan, run.json, summary, inspect and `--json`."""
    output = tmp_path / "out"
    job: list[Argument] = [table, output, "--limit", 10, "--sample", "50%"]
    planned = recordmill("convert", "csv", *job, "--plan")
    assert "sample: 50% of the rows, chosen by seed 0" in planned.out
    assert "limit: the first 10 of " in planned.out
    assert "train    10 records" in planned.out
    ran = convert("csv", *job)
    told = "990 rows left out (1,000 read = 10 records + 0 rejected + 990 left out)"
    assert f"by sampling: {told}" in ran.err
    facts = dict(json.loads((output / "run.json").read_bytes())["understood"]["facts"])
    assert facts["sample"] == "50% of the rows, chosen by seed 0"
    assert told in " ".join(recordmill("inspect", output).out.split())
    ran = recordmill("convert", "csv", *job, "--overwrite", "--seed", 3, "--json")
    assert json.loads(ran.out)["rows_left_out"] == 990
    recordmill("report", output, "--output", tmp_path / "page.html")
    assert "Rows left out by sampling" in (tmp_path / "page.html").read_text()


def test_a_changed_count_is_found(table: Path, tmp_path: Path) -> None:
    """`verify` adds up the rows of a manifest."""
    output = tmp_path / "out"
    convert("csv", table, output, "--limit", 10)
    facts = manifest_of(output)
    facts["sampling"]["rows_left_out"] = 989
    (output / "manifest.json").write_text(json.dumps(facts))
    ran = recordmill("verify", output)
    assert ran.status != 0
    assert "989 left out by sampling make 999" in ran.out + ran.err


def test_a_large_input_is_estimated(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the ranges that are looked at keep no row."""
    cut_small(monkeypatch, 500)
    monkeypatch.setattr("recordmill.transforms.tasks.estimate.WHOLE_BYTES", 0)
    job: list[Argument] = ["--limit", 10, "--no-shuffle", "--plan", "--json"]
    ran = recordmill("convert", "csv", table, tmp_path / "out", *job)
    (split,) = json.loads(ran.out)["splits"].values()
    assert 8 <= split["records"] <= 12


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--limit", 0], "0"),
        (["--sample", "0%"], "expected a share above 0 and at most 100%, found 0%"),
        (["--sample", "120%"], "expected a share above 0 and at most 100%"),
        (["--sample", "1"], "1 may mean 1% or all rows: write 1% or 100%"),
        (["--sample", "few"], "expected a share like 1% or 0.01, found 'few'"),
        (["--limit", 9, "--append"], "--limit: selects from the rows of the whole"),
        (["--sample", "9%", "--append"], "nothing can be appended; leave out one"),
        (["--sample", "0.0001%"], "left out by sampling. Raise --sample"),
    ],
)
def test_what_is_refused(options: list[Argument], told: str, tmp_path: Path) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", *options)
    assert ran.status != 0
    assert told in ran.err


def test_nothing_is_appended_to_a_sample(table: Path, tmp_path: Path) -> None:
    """The way out makes it whole."""
    convert("csv", table, tmp_path / "out", "--limit", 10)
    ran = recordmill("convert", "csv", table, tmp_path / "out", "--append")
    assert ran.status != 0
    assert "--limit 10" in ran.err
    assert "--overwrite" in ran.err
    convert("csv", table, tmp_path / "out", "--overwrite")
    assert len(ids(tmp_path / "out")) == 1000
