"""`recordmill inspect` shows the examples that are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_tools import Argument, convert, recordmill

ROWS = [
    {
        "id": number,
        "kind": "abc"[number % 3],
        "tags": f"t{number % 4};x",
        "size": number / 2,
    }
    for number in range(40)
]
SCHEMA = """\
features:
  id: int64
  kind: {classes: [a, b, c]}
  tags: {dtype: string, shape: [null], separator: ";"}
  size: {dtype: float16, optional: true}
"""


@pytest.fixture(scope="module", params=["example", "sequence_example", "json"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("selected")
    lines = ["id,kind,tags,size", *(",".join(map(str, row.values())) for row in ROWS)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.yaml").write_text(SCHEMA)
    options = ["--split", "train=0.6", "--split", "test=0.4", "--shards", 2]
    options += ["--schema", folder / "schema.yaml", "--payload", request.param]
    convert("csv", folder / "rows.csv", folder / "out", "--no-shuffle", *options)
    return folder / "out"


def shown(dataset: Path, *options: Argument) -> list[dict[str, Any]]:
    ran = recordmill("inspect", dataset, "--json", *options)
    assert ran.status == 0, ran.err
    examples: list[dict[str, Any]] = json.loads(ran.out)["examples"]
    return examples


def ids(dataset: Path, *options: Argument) -> list[int]:
    found = []
    for example in shown(dataset, *options):
        if "json" in example:
            value = example["json"]["features"]["feature"]["id"]["int64List"]["value"][
                0
            ]
        else:
            value = example["features"]["id"]
        found.append(int(value[0] if isinstance(value, list) else value))
    return found


def test_splits_and_places(dataset: Path) -> None:
    train = ids(dataset, "--split", "train", "--head", 100)
    test = ids(dataset, "--split", "test", "--examples", 100)
    assert sorted(train + test) == list(range(40))
    assert ids(dataset, "--examples", 100) == train + test
    assert ids(dataset, "--split", "test", "--index", 3) == test[3:4]
    for index in (0, len(train) - 1, len(train), 39):  # in every shard
        assert ids(dataset, "--index", index) == (train + test)[index : index + 1]


@pytest.mark.parametrize(
    ("conditions", "is_wanted"),
    [
        (["kind=b"], lambda row: row["kind"] == "b"),
        (["kind=1"], lambda row: row["kind"] == "b"),
        (["id=7"], lambda row: row["id"] == 7),
        (["size=2.5"], lambda row: row["size"] == 2.5),
        (["tags=t3"], lambda row: row["tags"].startswith("t3;")),
        (["tags=t3", "kind=a"], lambda row: row["id"] % 4 == 3 and row["kind"] == "a"),
        (["id=40"], lambda row: False),
    ],
)
def test_conditions(dataset: Path, conditions: list[str], is_wanted: Any) -> None:
    options = [word for text in conditions for word in ("--where", text)]
    found = ids(dataset, "--head", 100, *options)
    assert sorted(found) == [row["id"] for row in ROWS if is_wanted(row)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--split", "dev"], "no split 'dev'; there are 'train', 'test'"),
        (["--index", 40], "no example 40: there are 40 records, counted from 0"),
        (
            ["--where", "colour=red"],
            "--where: expected FEATURE=VALUE, got 'colour=red'",
        ),
        (["--where", "kind=d"], "'d' is no value of 'kind' (expected int64 or a class"),
        (["--where", "id=1", "--index", 1], "--index and --where exclude each other"),
    ],
)
def test_what_is_not_there(dataset: Path, options: list[Argument], told: str) -> None:
    ran = recordmill("inspect", dataset, *options)
    assert ran.status == 2
    assert told in ran.err
    assert ran.out == ""
