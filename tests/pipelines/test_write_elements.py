"""WriteDataset: dicts, batches, examples and bytes, and which split they go to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from job_tools import assert_unpublished, contents, manifest_of
from rows_tools import (
    EXCHANGES,
    JOB,
    ROWS,
    SCHEMA,
    error_of,
    example,
    in_chunks,
    make_rows,
    read,
    write,
)
from same_dataset import dataset_of

from recordmill.schemas.proto.example_pb2 import SequenceExample
from recordmill.schemas.schema_file import load_schema
from recordmill.transforms.dataset.verify import verify_dataset


def columns_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as Arrow has them; arrays are flat there."""
    flat = [
        {
            name: value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    names = sorted({name for row in rows for name in row})
    return pa.RecordBatch.from_pylist([{n: row.get(n) for n in names} for row in flat])


@pytest.mark.parametrize(
    "kind", ["batch", "table", "example", "bytes", "bytearray", "mixed"]
)
def test_same_bytes_from_every_kind_of_element(
    tmp_path: Path, rows_dataset: Path, kind: str
) -> None:
    batches = [columns_of(chunk) for chunk in in_chunks(ROWS, 50)]
    examples = read(rows_dataset, as_="example")
    elements = {
        "batch": batches,
        "table": [pa.Table.from_batches(batches[:1]), *batches[1:]],
        "example": examples,
        "bytes": [bytes(record) for record in read(rows_dataset)],
        "bytearray": [bytearray(record) for record in read(rows_dataset)],
    }
    rows = elements.get(kind, [])
    if kind == "mixed":
        last = tmp_path / "last"
        write(ROWS[100:], last, name="last")
        rows = [*ROWS[:50], batches[1], *read(last, as_="example")]
    write(rows, tmp_path / "out", **JOB)
    assert contents(tmp_path / "out") == contents(rows_dataset)


def test_every_way_to_give_a_schema(tmp_path: Path, rows_dataset: Path) -> None:
    text = json.dumps({"features": SCHEMA})  # JSON is YAML
    (tmp_path / "schema.yaml").write_text(text)
    declared = load_schema(text.encode(), "schema.yaml")
    schemas = [str(tmp_path / "schema.yaml"), tmp_path / "schema.yaml", declared]
    for number, schema in enumerate([*schemas, str(rows_dataset / "schema.pbtxt")]):
        rows = (
            ROWS if number < 3 else read(rows_dataset)
        )  # default and classes are resolved
        write(rows, tmp_path / f"{number}", schema, **JOB)
        found, model = (
            {f: d for f, d in dataset_of(folder).items() if "-of" in f}
            for folder in (tmp_path / f"{number}", rows_dataset)
        )
        assert found == model != {}


def test_examples_without_a_schema_tell_their_features(tmp_path: Path) -> None:
    examples = [
        example(a=[1], b=[b"x"], c=[0.5, 1.5], d=[1, 2, 3], e=[7], empty=[]),
        example(a=[2], b=[b"y"], c=[2.5, 3.5], d=[], empty=[]),
        example(a=[3], b=[b"z"], c=[4.5, 5.5], d=[1], empty=[]),
    ]
    for exchange in EXCHANGES:
        rows = [examples[0], examples[1].SerializeToString(), examples[2]]
        write(rows, tmp_path / exchange, None, exchange=exchange, name="x")
    assert contents(tmp_path / "scratch") == contents(tmp_path / "engine")
    output = tmp_path / "scratch"
    assert verify_dataset(str(output), deep=True).problems == ()
    found = {
        feature["name"]: (feature["dtype"], feature["shape"], feature["optional"])
        for feature in manifest_of(output)["features"]
    }
    assert found == {
        "a": ("int64", [], False),
        "b": ("bytes", [], False),
        "c": ("float32", [2], False),
        "d": ("int64", [None], False),
        "e": ("int64", [], True),
        "empty": ("int64", [None], False),
    }
    back = read(output, as_="example")
    assert sorted(map(str, back)) == sorted(map(str, examples))


def test_examples_that_contradict_each_other(tmp_path: Path) -> None:
    rows = [example(a=[1]), example(a=[b"x"], b=[1])]
    error = error_of(lambda: write(rows, tmp_path / "out", None))
    assert (
        "feature 'a' is bytes_list in some examples and int64_list in others" in error
    )
    assert_unpublished(tmp_path / "out")


def test_raw_records_are_written_unseen(tmp_path: Path) -> None:
    rows = [b"one", b"\0\xff", b"", b"one"]
    write(rows, tmp_path / "out", payload="raw", schema=None)
    assert sorted(read(tmp_path / "out")) == sorted(rows)
    assert sorted(
        row["record"] for row in read(tmp_path / "out", as_="dict")
    ) == sorted(rows)
    (feature,) = manifest_of(tmp_path / "out")["features"]
    assert (feature["name"], feature["dtype"]) == ("record", "bytes")
    assert verify_dataset(str(tmp_path / "out"), deep=True).problems == ()


@pytest.mark.parametrize("payload", ["sequence_example", "json", "raw"])
def test_other_payloads(tmp_path: Path, payload: str) -> None:
    schema = {"raw": {"text": "string"}}.get(
        payload, {"text": "string", "n": {"dtype": "int64", "shape": [None]}}
    )
    if payload == "sequence_example":
        schema["n"] = {"dtype": "int64", "sequence": True}
    rows = [{"text": f"row {n}", "n": [n, 2]} for n in range(20)]
    write(rows, tmp_path / "dicts", schema, payload=payload, name="x")
    assert verify_dataset(str(tmp_path / "dicts"), deep=True).problems == ()
    found = read(tmp_path / "dicts", as_="dict")
    assert sorted(row["text"] for row in found) == sorted(r["text"] for r in rows)
    # The same from finished records.
    as_ = "example" if payload == "sequence_example" else "bytes"
    records = read(tmp_path / "dicts", as_=as_)
    assert isinstance(records[0], SequenceExample if as_ == "example" else bytes)
    write(records, tmp_path / "again", schema, payload=payload, name="x")
    assert contents(tmp_path / "again") == contents(tmp_path / "dicts")


def test_a_row_keeps_its_split(tmp_path: Path, rows_dataset: Path) -> None:
    job = JOB | {"shards": 1}
    write([*ROWS[:60], *make_rows(40, seed=1)], tmp_path / "other", **job)
    for split in ("train", "test"):
        first, second = read(rows_dataset, split), read(tmp_path / "other", split)
        other = "test" if split == "train" else "train"
        assert len(set(first) & set(second)) > 5
        assert not set(first) & set(read(tmp_path / "other", other))


def test_another_seed_gives_another_order(tmp_path: Path, rows_dataset: Path) -> None:
    write(ROWS, tmp_path / "out", seed=1, **JOB)
    assert sorted(read(tmp_path / "out")) == sorted(read(rows_dataset))
    assert dataset_of(tmp_path / "out").keys() == dataset_of(rows_dataset).keys()
    assert sorted(read(tmp_path / "out", "test")) != sorted(read(rows_dataset, "test"))


@pytest.mark.parametrize("kind", ["dict", "batch", "example", "bytes"])
def test_rows_with_the_same_value_never_part(tmp_path: Path, kind: str) -> None:
    rows = [{"user": f"u{n % 20}", "n": n} for n in range(200)]
    schema: Any = {"user": "string", "n": "int64"}
    elements: list[Any] = list(rows)
    if kind == "batch":
        elements = [pa.RecordBatch.from_pylist(rows[start::3]) for start in range(3)]
    elif kind != "dict":
        elements = [example(user=[r["user"].encode()], n=[r["n"]]) for r in rows]
        schema = schema if kind == "bytes" else None
    if kind == "bytes":
        elements = [element.SerializeToString() for element in elements]
    splits = {"a": 0.5, "b": 0.5}
    write(elements, tmp_path / "out", schema, split_by="user", splits=splits)
    users = [
        {row["user"] for row in read(tmp_path / "out", split, as_="dict")}
        for split in splits
    ]
    assert all(users)
    assert not users[0] & users[1]
    assert len(users[0] | users[1]) == 20


def test_splits_of_a_column(tmp_path: Path) -> None:
    rows = [{"n": n, "part": ("train", "test")[n % 5 == 0]} for n in range(40)]
    job: dict[str, Any] = {"split_column": "part", "splits": ["train", "test"]}
    write(rows, tmp_path / "out", {"n": "int64"}, **job)
    found = sorted(row["n"] for row in read(tmp_path / "out", "test", as_="dict"))
    assert found == list(range(0, 40, 5))
