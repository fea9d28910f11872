"""WriteDataset: rejects, and what cannot be written at all."""

from __future__ import annotations

import base64
import json
import random
import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from job_tools import assert_unpublished, assert_whole, contents, manifest_of
from rows_tools import error_of, example, write

from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset
from recordmill.schemas.errors import RejectLimitError, SchemaError, UsageError
from recordmill.schemas.proto.example_pb2 import SequenceExample
from recordmill.schemas.ranges import Reject
from recordmill.transforms.commit.cleanup import clean
from recordmill.transforms.rows import encode_rows as encode
from recordmill.transforms.rows.encode_rows import reject_limit_error
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.workspace import reject_line

BAD_ROWS: list[Any] = [
    {"label": "lion"},
    {"label": 7},
    {"label": 1.5},
    {"label": None},
    {"label": "cat", "size": object()},
    {"label": "cat", "size": 2**70},
    {"label": b"\xff"},
    {},
]


def test_rejects_are_kept_the_same_in_every_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"label": {"classes": ["cat", "dog"]}, "size": "int64?"}
    good = [{"label": "cat", "size": n} for n in range(40)]
    rows = [*good, *BAD_ROWS, example(label=[5]), b"nothing"]
    monkeypatch.setattr(encode, "_BATCH_ROWS", 5)
    found = []
    for exchange, runner in (("scratch", "one"), ("engine", "two")):
        output = tmp_path / exchange
        job = {"max_rejects": "20%", "exchange": exchange, "name": "x"}
        shuffled = random.Random(exchange).sample(rows, len(rows))
        write(shuffled, output, schema, runner=runner, **job)
        assert_whole(output)
        assert manifest_of(output)["rows_rejected"] == 10
        found.append(contents(output))
    assert found[0] == found[1]
    lines = [
        json.loads(line)
        for file in (tmp_path / "engine" / "rejects").iterdir()
        for line in file.read_text().splitlines()
    ]
    reasons = {base64.b64decode(line["raw"]): line["reason"] for line in lines}
    assert len(lines) == len(reasons) == 10
    assert "'lion'" in reasons[b'{"label": "lion"}']
    assert "double cannot become int64" in reasons[b'{"label": 1.5}']
    assert "of type object" in reasons[b'{"label": "cat", "size": "<object>"}']
    assert (
        "does not fit into 64 bits"
        in reasons[b'{"label": "cat", "size": 1180591620717411303424}']
    )
    assert "missing" in reasons[b"{}"]
    assert "5" in reasons[example(label=[5]).SerializeToString()]


def test_too_many_rejects_show_one(tmp_path: Path) -> None:
    schema = {"a": "int64"}
    rows = [{"a": 1}, {"a": "x"}, {"a": 2}]
    error = error_of(lambda: write(rows, tmp_path / "out", schema))
    assert "rows or more rejected (limit 0)" in error
    assert """column 'a'""" in error or "feature 'a'" in error
    assert '{"a": "x"}' in error
    assert "raise max_rejects" in error
    error = error_of(lambda: write(rows, tmp_path / "out", schema, max_rejects="10%"))
    assert "1 of 3 rows rejected (limit 10%)" in error
    assert_unpublished(tmp_path / "out")
    clean(LocalStore(str(tmp_path / "out")))  # what the two left
    write(rows, tmp_path / "out", schema, max_rejects=1)
    assert_whole(tmp_path / "out")


SEQUENCE = SequenceExample()


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


INTEGER, INTEGERS = {"a": "int64"}, {"a": "int64[]"}


@pytest.mark.parametrize(
    ("row", "schema", "options", "expected"),
    [
        ({"a": 1}, None, {}, "a dict needs a schema to become a record"),
        ("text", None, {}, "expected dicts, pyarrow.RecordBatch, tf.train.Example or"),
        (
            *(SEQUENCE, None, {}),
            "SequenceExample is not a valid record of payload 'example'",
        ),
        (batch(b=[1]), INTEGER, {}, "no column 'a' among b"),
        (batch(a=[1.5]), INTEGER, {}, "double cannot become int64"),
        (b"\xff", None, {}, "are not a valid tf.train.Example; for other records use"),
        (b"x", INTEGER, {}, "are not a valid tf.train.Example"),
        (None, INTEGER, {}, "no records to write: 0 rows read"),
        ({"a": 1}, INTEGER, {"split_by": "b"}, "a row has no such key; it has"),
        (
            {"a": [1]},
            INTEGERS,
            {"split_by": "a"},
            "a row has a list; expected a single",
        ),
        (
            *({"a": 1, "b": "dev"}, INTEGER),
            {"split_column": "b", "splits": ["train", "test"]},
            "b: 'dev' is not one of the splits train, test",
        ),
        (
            *(batch(a=[[1]]), INTEGERS),
            {"split_column": "a", "splits": ["train"]},
            "split_column='a': values of type list",
        ),
        (
            *(batch(a=[1]), INTEGER, {"split_by": "b"}),
            "split_by='b': expected one such column",
        ),
        (batch(a=[[1]]), INTEGERS, {"split_by": "a"}, "values of type list"),
    ],
)
def test_what_cannot_be_written(
    tmp_path: Path, row: Any, schema: Any, options: dict[str, Any], expected: str
) -> None:
    rows = [] if row is None else [row]
    error = error_of(lambda: write(rows, tmp_path / "out", schema, **options))
    assert expected in error
    assert_unpublished(tmp_path / "out")


_NOTHING_LEFT = "sets the split of each row, so it cannot be combined with splits="
USAGE: list[tuple[dict[str, Any], str]] = [
    ({"exchange": "reference"}, "exchange='reference': expected 'auto'"),
    ({"index": True, "compression": "gzip"}, "index= requires compression='none'"),
    (
        {"container": "array_record", "index": True},
        "container='array_record' already has an index in each shard; leave out index=",
    ),
    ({"splits": {"a": 0.5}}, "splits: the fractions of the splits must add up"),
    ({"shards": 0}, "expected 1 or more, found 0"),
    ({"split_column": "part"}, "pass splits=['train', 'test']"),
    ({"splits": ["a", "b"]}, "splits without shares require split_c"),
    ({"split_column": "part", "splits": {"a": 1}}, _NOTHING_LEFT),
    ({"split_by_time": "day=a,90%,b"}, "expected a number, or a time like 2026-01-01"),
    ({"split_by_time": "day=a,1,b", "splits": ["a", "b"]}, _NOTHING_LEFT),
    ({"split_by_time": "day=a"}, "expected a column, and splits"),
    ({"name": "1x"}, "name: expected a name of letters, digits and '_'"),
    ({"max_rejects": "some"}, "expected a count like 10"),
    ({"payload": "json"}, "payload='json' needs a schema"),
    ({"storage": {"secret": "x"}}, "looks like a secret"),
    ({"scratch": "s3://b/x"}, "scratch='s3://b/x': expected a local folder"),
    ({"shard_size": "big"}, "expected a size like 128MiB"),
    ({"schema": 7}, "schema of type int; expected a path, a mapping"),
]
SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"schema": {"a": "int65"}}, "int65"),
    ({"schema": {"a": {"bytes_from": "path"}}}, "reads files next to a table"),
    ({"schema": {"a": "int64"}, "payload": "raw"}, "no feature has one bytes value"),
]


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [(UsageError, *case) for case in USAGE]
    + [(SchemaError, *case) for case in SCHEMAS],
)
def test_arguments_that_cannot_be(
    kind: type[Exception], arguments: dict[str, Any], expected: str
) -> None:
    with pytest.raises(kind, match=re.escape(expected)):
        WriteDataset("out", **arguments)


def test_an_unbounded_collection(tmp_path: Path) -> None:
    p = beam.Pipeline()
    rows = p | beam.Create([1])
    rows.is_bounded = False
    with pytest.raises(UsageError, match="the collection is unbounded"):
        rows | WriteDataset(tmp_path / "out", {"a": "int64"})


def test_a_schema_file_that_is_not_there(tmp_path: Path) -> None:
    error = error_of(lambda: write([{"a": 1}], tmp_path / "out", "no.yaml"))
    assert "no.yaml: cannot be read" in error


def test_constructing_touches_no_storage(tmp_path: Path) -> None:
    WriteDataset(tmp_path / "deep" / "out", tmp_path / "no schema yet.yaml")
    assert not list(tmp_path.iterdir())


def test_reject_limit_error_is_one() -> None:
    error = reject_limit_error(
        "1 rows", "0", reject_line(Reject("", 0, "no", b"x" * 400))
    )
    assert isinstance(error, RejectLimitError)
    assert str(error).count("x") < 350
