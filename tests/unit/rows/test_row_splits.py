"""Splits of a pipeline's rows by a name or a time in them, whatever the rows are."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from rows_tools import example

from recordmill.schemas.declared import parse_declared
from recordmill.schemas.job import JobSpec, RejectLimit, SplitSpec
from recordmill.schemas.source_options import PIPELINE_ROWS
from recordmill.transforms.decode.examples import ObservedFeatures
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.encode.waiting_rows import payloads_of
from recordmill.transforms.rows.encode_rows import RowsEncoder
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

PARTS = ["train", "test", None, "train", "other", "test", "train"]
DAYS = [
    *("2026-01-05", "2026-02-01", "2026-03-01T00:00", "2025-12-31", "soon"),
    *(None, "2026-02-28"),
]
HOURS = [1, 2, 3, 0, None, None, 2]
ROWS = [
    {"n": n, "part": part, "day": day, "hour": hour}
    for n, (part, day, hour) in enumerate(zip(PARTS, DAYS, HOURS, strict=True))
]
RULES: dict[str, tuple[dict[str, Any], list[list[int]], str]] = {
    "part": (
        {"split_column": "part"},
        [[0, 3, 6], [1, 5], []],
        "part: 'other' is not one of the splits train, test, spare",
    ),
    "day": (
        {"split_by_time": "day=train,2026-02-01,test,2026-03-01,spare"},
        [[0, 3], [1, 6], [2]],
        "day: 'soon'; expected a time like 2026-01-01",
    ),
    "hour": (
        {"split_by_time": "hour=train,2,test,2.5,spare"},
        [[0, 3], [1, 6], [2]],
        "hour: no value; expected a number",
    ),
}


def elements_of(kind: str) -> list[Any]:
    if kind == "dict":
        return ROWS
    if kind == "batch":
        return [pa.RecordBatch.from_pylist(ROWS[:3]), pa.Table.from_pylist(ROWS[3:])]
    found = []
    for row in ROWS:
        given = {name: value for name, value in row.items() if value is not None}
        values = {
            name: [value.encode() if isinstance(value, str) else value]
            for name, value in given.items()
        }
        found.append(example(**values))
    return found if kind == "example" else [each.SerializeToString() for each in found]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["dict", "batch", "example", "bytes", "inferred"])
def test_rows_fall_into_their_splits(kind: str, rule: str) -> None:
    options, expected, reason = RULES[rule]
    # Examples with features that are not declared are rejects.
    others = {"part": "string?", "day": "string?", "hour": "int64?"}
    features = {"n": "int64", **(others if kind in ("example", "bytes") else {})}
    declared = parse_declared({"features": features}, "schema")
    shares = ("train", "test", "spare")
    job = JobSpec(
        source=PIPELINE_ROWS,
        name="x",
        declared=None if kind == "inferred" else declared,
        splits=tuple(SplitSpec(name=name, fraction="1/3") for name in shares),
        max_rejects=RejectLimit(text="100%"),
        **options,
    )
    encoder = RowsEncoder(job, 14)
    blocks = [
        pair for element in elements_of(kind) for pair in encoder.add(element)
    ] + list(encoder.flush())
    found: list[list[int]] = [[], [], []]
    for block, _ in blocks:
        bare = [r[HEAD_BYTES:-TAIL_BYTES] for r in payloads_of(block.rows).to_pylist()]
        rows = decode_payload(
            pa.array(bare, pa.binary()), declared.to_schema(), "example"
        )
        for split, n in zip(block.splits, rows.batch["n"].to_pylist(), strict=True):
            found[int(split)].append(n)
    assert [sorted(rows) for rows in found] == expected
    rejects = encoder.take_rejects()
    assert len(rejects) == 2
    assert reason in [json.loads(line)["reason"] for _, line in rejects]
    # What is observed of examples is of those that became records.
    if kind == "inferred":
        observed = ObservedFeatures()
        for _, summary in blocks:
            observed.add(summary.observed)
        assert not observed.to_schema(5)["n"].optional


@pytest.mark.parametrize("option", ["split_column", "split_by_time"])
def test_a_feature_of_several_values(option: str) -> None:
    """Told as what it is; without any there is no value."""
    job = JobSpec(
        source=PIPELINE_ROWS,
        name="x",
        splits=tuple(SplitSpec(name=name, fraction="1/2") for name in "ab"),
        max_rejects=RejectLimit(text="100%"),
        **{option: "part" if option == "split_column" else "part=a,3,b"},  # type: ignore[arg-type]
    )
    encoder = RowsEncoder(job, 14)
    for element in (example(part=[1, 2]), example(part=[]), example(n=[1])):
        assert not [*encoder.add(element)]
    reasons = [json.loads(line)["reason"] for _, line in encoder.take_rejects()]
    assert reasons[0] == "part: 2 values; each row needs one that names its split"
    assert all("no value" in reason for reason in reasons[1:])


def test_times_of_python() -> None:
    job = JobSpec(
        source=PIPELINE_ROWS,
        name="x",
        declared=parse_declared({"features": {"n": "int64"}}, "schema"),
        splits=tuple(SplitSpec(name=name, fraction="1/2") for name in "ab"),
        split_by_time="at=a,2026-01-01T12:00Z,b",
    )
    zone = dt.timezone(dt.timedelta(hours=2))
    times: list[Any] = [
        dt.datetime(2026, 1, 1, 11),
        dt.datetime(2026, 1, 1, 12),
        dt.datetime(2026, 1, 1, 13, tzinfo=zone),
        dt.datetime(2026, 1, 1, 14, tzinfo=zone),
        dt.date(2026, 1, 1),
        dt.date(2026, 1, 2),
    ]
    for number, time in enumerate(times):
        encoder = RowsEncoder(job, 14)
        blocks = [*encoder.add({"n": number, "at": time}), *encoder.flush()]
        assert [block.splits.tolist() for block, _ in blocks] == [[number % 2]]
