"""Balanced classes of jobs, by the command."""

from __future__ import annotations

from collections import Counter
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
from tables_in_formats import FORMATS, write_table

KINDS = ["a"] * 31 + ["b"] * 7 + ["c"] * 2 + ["a"] * 20
SPLITS: list[Argument] = ["--split", "train=0.7", "--split", "test=0.3"]
EXCHANGES = ("scratch", "engine")


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def table(tmp_path: Path, source: str) -> Path:
    """Sixty rows in two files."""
    for name, rows in (("a", slice(0, 25)), ("b", slice(25, 60))):
        columns = {"id": list(range(60))[rows], "kind": KINDS[rows]}
        write_table(tmp_path / "in" / name, source, columns)
    return tmp_path / "in"


def by_each(source: str, table: Path, tmp_path: Path, *job: Argument) -> Path:
    """Converts by every exchange, to the same bytes; returns one of them."""
    for exchange in EXCHANGES:
        output = tmp_path / f"out-{exchange}"
        convert(source, table, output, "--name", "n", *job, "--exchange", exchange)
        assert_whole(output)
        assert contents(output) == contents(tmp_path / f"out-{EXCHANGES[0]}")
    return output


def ids(folder: Path, split: str = "train") -> Counter[int]:
    return Counter(ints(folder, "id", split))


def kinds(rows: Counter[int]) -> Counter[str]:
    return Counter(KINDS[row] for row in rows.elements())


def test_large_classes_lose_rows(source: str, table: Path, tmp_path: Path) -> None:
    job: list[Argument] = ["--balance", "kind=undersample", *SPLITS]
    output = by_each(source, table, tmp_path, *job)
    found = ids(output) + ids(output, "test")
    assert kinds(found) == {"a": 2, "b": 2, "c": 2}
    assert manifest_of(output)["sampling"] == {"rows_left_out": 54}
    convert(source, table, tmp_path / "all", *SPLITS)
    for split in ("train", "test"):  # a row stays in its split
        assert ids(output, split) == found & ids(tmp_path / "all", split)


@pytest.mark.parametrize("more", [[], ["--no-shuffle"], ["--split-exact"]])
def test_rows_of_small_classes_are_copied_in_train(
    source: str, table: Path, tmp_path: Path, more: list[str]
) -> None:
    """Evenly; the other splits stay as they are, and no record is lost by its key."""
    job: list[Argument] = [*SPLITS, *more]
    output = by_each(source, table, tmp_path, *job, "--balance", "kind=oversample")
    convert(source, table, tmp_path / "all", *job)
    before, after = ids(tmp_path / "all"), ids(output)
    assert ids(output, "test") == ids(tmp_path / "all", "test")
    assert set(after) == set(before)
    most = max(kinds(before).values())
    assert kinds(after) == dict.fromkeys(kinds(before), most)
    for name, rows in kinds(before).items():
        times = {number for row, number in after.items() if KINDS[row] == name}
        assert times <= {most // rows, -(-most // rows)}
    copied = after.total() - before.total()
    assert manifest_of(output)["sampling"] == {
        "rows_left_out": 0,
        "rows_copied": copied,
    }
    if "--no-shuffle" in more:
        order = ints(output, "id")
        assert order == sorted(order)


def test_rows_get_weights(source: str, table: Path, tmp_path: Path) -> None:
    job: list[Argument] = ["--balance", "kind=weights", "--label", "kind"]
    output = by_each(source, table, tmp_path, *job)
    found = {
        (
            each.features.feature["kind"].int64_list.value[0],
            each.features.feature["sample_weight"].float_list.value[0],
        )
        for each in examples_of(output)
    }
    sizes = Counter(KINDS)
    expected = {(n, 60 / (3 * sizes[kind])) for n, kind in enumerate("abc")}
    assert sorted(found) == [
        (label, pytest.approx(weight)) for label, weight in sorted(expected)
    ]


def test_classes_of_a_sample_are_balanced(
    source: str, table: Path, tmp_path: Path
) -> None:
    sample: list[Argument] = ["--sample", "60%"]
    convert(source, table, tmp_path / "all", *sample)
    least = min(kinds(ids(tmp_path / "all")).values())
    output = by_each(source, table, tmp_path, *sample, "--balance", "kind=undersample")
    names = kinds(ids(tmp_path / "all"))
    assert kinds(ids(output)) == dict.fromkeys(names, least)
    assert ids(output) <= ids(tmp_path / "all")


def test_images_are_the_same_by_every_exchange(tmp_path: Path) -> None:
    """Also a broken one: each copy of it is a reject."""
    data = next((SAMPLES / "images").rglob("*.png")).read_bytes()
    for name in ("a/1", "a/2", "a/3", "a/4", "a/5", "b/6", "b/7"):
        file = tmp_path / f"in/{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"no image" if name == "b/6" else data)
    for rule in ("undersample", "oversample", "weights"):
        model = None
        for exchange in ("reference", *EXCHANGES):
            output = tmp_path / f"{rule}-{exchange}"
            job: list[Argument] = ["--max-rejects", 3, "--exchange", exchange]
            job += ["--balance", f"label={rule}", "--name", "n"]
            convert("images", tmp_path / "in", output, *job)
            assert_whole(output)
            files = contents(output)
            found = {k.partition("rejects/")[0]: v for k, v in files.items()}
            model = model or found
            assert found == model
        facts = manifest_of(output)
        assert facts["rows_read"] == 7
        assert facts["rows_rejected"] in ((2, 3) if rule == "oversample" else (1,))
        weights = {
            each.features.feature["sample_weight"].float_list.value[0]
            for each in examples_of(output)
            if rule == "weights"
        }
        found_weights = sorted(weights)
        assert found_weights == pytest.approx([0.7, 1.75] if weights else [])
        assert bool(weights) == (rule == "weights")


def test_what_is_told(tmp_path: Path) -> None:
    for rule, told in (
        ("undersample", "keeps 50 rows of each class; rows: "),
        ("oversample", "repeats rows in train up to 50 rows of each class; rows: "),
        ("weights", "weighted by sample_weight; rows: "),
    ):
        job: list[Argument] = [IRIS, tmp_path / rule, "--balance", f"species={rule}"]
        planned = recordmill("convert", "csv", *job, "--plan")
        told = f"balance: 3 classes of species, {told}setosa 50"
        assert told in planned.out
        assert told in convert("csv", *job).err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--balance", "species"], "expected a column and undersample, oversample"),
        (["--balance", "kind=weights"], "--balance kind: no such column"),
        (["--balance", "species=weights", "--append"], "nothing can be appended"),
        (["--balance", "species=weights", "--limit", 5], "not balanced; leave out one"),
        (["--balance", "petal_width_cm=weights"], "expected text, whole numbers"),
        (
            ["--balance", "species=oversample", "--split", "a=0.5", "--split", "b=0.5"],
            "the splits are a, b. Name one of them train, or undersample",
        ),
    ],
)
def test_what_is_refused(options: list[Argument], told: str, tmp_path: Path) -> None:
    convert_again = [
        "convert",
        "parquet" if "petal_width_cm" in str(options) else "csv",
    ]
    given = IRIS
    if convert_again[1] == "parquet":
        write_table(
            tmp_path / "in", "parquet", {"petal_width_cm": [1.5], "species": ["a"]}
        )
        given = next(tmp_path.glob("in*"))
    ran = recordmill(*convert_again, given, tmp_path / "out", *options)
    assert ran.status != 0
    assert told in ran.err


def test_a_column_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sample_weight,kind\n1,a\n2,b\n")
    job: list[Argument] = [tmp_path / "a.csv", tmp_path / "out"]
    ran = recordmill("convert", "csv", *job, "--balance", "kind=weights")
    assert ran.status != 0
    assert "the input already has a column sample_weight" in ran.err
    convert("csv", *job)  # the way out
