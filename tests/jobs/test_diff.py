"""`recordmill diff`: what one dataset has and another has not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_tools import IRIS, Argument, convert, recordmill

HALVES: list[Argument] = ["--split", "train=0.5", "--split", "test=0.5"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("model") / "iris"
    convert("csv", IRIS, output, *HALVES)
    return output


def test_shards_order_and_compression_do_not_matter(
    tmp_path: Path, model: Path
) -> None:
    how = ["--shards", 3, "--no-shuffle", "--compression", "gzip", *HALVES]
    convert("csv", IRIS, tmp_path / "iris", *how)
    ran = recordmill("diff", model, tmp_path / "iris")
    assert ran.status == 0
    assert "schema: the same" in ran.out
    assert "rows: 150 in both\n" in ran.out
    assert ran.out.endswith("the same rows\n")


def test_a_copy_is_the_same_by_its_checksums(tmp_path: Path, model: Path) -> None:
    convert("csv", IRIS, tmp_path / "iris", *HALVES, "--seed", 0)
    ran = recordmill("diff", model, tmp_path / "iris")
    assert "rows: 150 in both (by the checksums of their shards)" in ran.out


def test_rows_of_one_alone_are_named(tmp_path: Path, model: Path) -> None:
    lines = IRIS.read_text().splitlines()
    table = tmp_path / IRIS.name
    table.write_text("\n".join([*lines[:-2], "9,9,9,9,setosa"]))
    convert("csv", table, tmp_path / "iris", *HALVES)
    ran = recordmill("diff", model, tmp_path / "iris", "--json")
    assert ran.status == 1
    facts = json.loads(ran.out)
    assert not facts["same"]
    assert facts["both"] + facts["only"][0]["rows"] == 150
    assert [only["rows"] for only in facts["only"]] == [2, 1]
    (found,) = facts["only"][1]["first"]
    split = found["file"].split(".")[0].removeprefix("iris-")
    index = found["record"]
    shown = recordmill(
        *("inspect", tmp_path / "iris", "--split", split, "--index", index, "--json")
    )
    (row,) = json.loads(shown.out)["examples"]
    assert row["features"]["sepal_length_cm"] == 9
    told = recordmill("diff", model, tmp_path / "iris", "--rows", 1)
    assert f"only in {tmp_path / 'iris'}: record {index} of {found['file']}" in told.out
    assert told.out.count("  only in ") == 2
    assert told.out.endswith("they differ\n")


def test_rows_in_another_split(tmp_path: Path, model: Path) -> None:
    convert("csv", IRIS, tmp_path / "iris")
    ran = recordmill("diff", model, tmp_path / "iris")
    assert ran.status == 1
    assert "150 in both, " in ran.out
    assert "of them in another split" in ran.out
    assert "split test: " in ran.out
    assert "| no such split" in ran.out


def test_schemas_and_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,label\n1,x,cat\n2,y,dog\n")
    schemas = {
        "one": "features:\n  a: int64\n  label: {classes: [cat, dog]}\n",
        "two": "features:\n  a: string\n  b: string\n  label: {classes: [dog, cat, owl]}\n",
    }
    for name, text in schemas.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        schema: list[Argument] = ["--schema", tmp_path / f"{name}.yaml"]
        convert("csv", tmp_path / "t.csv", tmp_path / name, "--name", "t", *schema)
    ran = recordmill("diff", tmp_path / "one", tmp_path / "two")
    assert ran.status == 1
    assert "schema: differs" in ran.out
    for line in (
        "feature 'a': stored as changed: was int64_list, is bytes_list",
        "feature 'a': dtype changed: was int64, is string",
        "feature 'b' is new: ",
        "feature 'label': unknown classes: 'owl'",
        "0 in both, 2 only in",
    ):
        assert line in ran.out
    (tmp_path / "two.yaml").write_text("features:\n  a: int64?\n")
    table: list[Argument] = [tmp_path / "t.csv", tmp_path / "few", "--name", "t"]
    convert("csv", *table, "--schema", tmp_path / "two.yaml")
    (tmp_path / "two.yaml").write_text("features:\n  a: int64\n")
    convert(
        "csv", table[0], tmp_path / "all", *table[2:], "--schema", tmp_path / "two.yaml"
    )
    ran = recordmill("diff", tmp_path / "few", tmp_path / "all")
    assert "from the second to the first, feature 'a': is optional now" in ran.out


def test_what_is_no_dataset(tmp_path: Path, model: Path) -> None:
    ran = recordmill("diff", model, tmp_path)
    assert ran.status == 2
    assert f"{tmp_path}: no manifest.json" in ran.err
