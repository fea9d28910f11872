"""No row is lost: what the tasks counted adds up, or nothing is published."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from adversary_runs import schema
from plain_manifests import plain_context

from recordmill.schemas.errors import InputError, RecordmillError, RejectLimitError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.job import JobSpec, RejectLimit
from recordmill.schemas.ranges import (
    NO_REJECTS,
    InputRange,
    RangeResult,
    RejectTotals,
    ShardResult,
    TypeFlags,
)
from recordmill.transforms.commit.build_manifest import build_manifest, locator_of
from recordmill.transforms.sources.base import PipelineRowsSource
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.rejects import UNKNOWN_INPUT
from recordmill.transforms.tasks.workspace import Workspace

LINE = {"uri": None, "position": None, "reason": "too short", "raw": ""}
REJECT = json.dumps(LINE).encode() + b"\n"


def context(folder: Path, limit: str = "100%", part: int = 0) -> RunContext:
    workspace = Workspace(
        LocalStore(str(folder)), "f" * 16, folder, folder, is_in_store=True
    )
    job = JobSpec(source="csv", name="d", max_rejects=RejectLimit(text=limit))
    return plain_context(workspace, job=job, part=part)


def rows(read: int, rejected: int = 0, kept: int | None = None) -> RangeResult:
    lines = REJECT * (rejected if kept is None else kept)
    totals = RejectTotals.from_content(lines) if lines else NO_REJECTS
    return RangeResult(
        InputRange(0, "", "", 0, 0, 0, 0), read, rejected, (), rejects=totals
    )


def shard(split: str, index: int, records: int, rejected: int = 0) -> ShardResult:
    totals = RejectTotals.from_content(REJECT * rejected) if rejected else NO_REJECTS
    name = f"{split}-{index}"
    return ShardResult(
        *("".join([*split]), index, name, records, 10 * records, records, 0xABC),
        rejects=totals,
    )


def test_sums_and_shards_of_every_split(tmp_path: Path) -> None:
    shards = [shard("test", 0, 3), shard("train", 1, 4), shard("train", 0, 2)]
    made = build_manifest(context(tmp_path), [rows(6), rows(4, 1)], shards)
    assert (made.rows_read, made.rows_rejected) == (10, 1)
    train, test = made.splits["train"], made.splits["test"]
    assert [each.file for each in train.shards] == ["train-0", "train-1"]
    assert (train.records, train.bytes) == (6, 60)
    assert (test.records, test.bytes) == (3, 30)
    assert test.shards[0].crc32c == "00000abc"
    assert test.shards[0].index is None


@pytest.mark.parametrize(
    ("ranges", "shards", "told"),
    [
        ([rows(5)], [shard("train", 0, 4)], "5 rows read, but 4 records written and 0"),
        ([rows(5)], [shard("train", 0, 6)], "5 rows read, but 6 records written and 0"),
        ([rows(5, 1)], [shard("train", 0, 5)], "5 records written and 1 row rejected"),
        ([rows(5, 2, 1)], [shard("train", 0, 3)], "2 rows rejected, but 1 kept"),
        ([rows(5, 1, 2)], [shard("train", 0, 4)], "1 row rejected, but 2 kept"),
        ([rows(5)], [shard("train", 0, 5, rejected=1)], "1 row rejected"),
    ],
)
def test_sums_that_differ(
    tmp_path: Path, ranges: list[RangeResult], shards: list[ShardResult], told: str
) -> None:
    with pytest.raises(RecordmillError) as caught:
        build_manifest(context(tmp_path), ranges, shards)
    assert told in str(caught.value)
    assert "so nothing is published. Run again" in str(caught.value)


def test_rejects_of_shards_count_too(tmp_path: Path) -> None:
    made = build_manifest(
        context(tmp_path), [rows(5, 1)], [shard("train", 0, 2, rejected=2)]
    )
    assert (made.rows_rejected, made.splits["train"].records) == (3, 2)
    assert made.rejects is not None
    assert made.rejects.bytes == 3 * len(REJECT)
    with pytest.raises(RejectLimitError, match=r"3 of 5 rows rejected \(limit 2\)"):
        build_manifest(
            context(tmp_path, "2"), [rows(5, 1)], [shard("train", 0, 2, rejected=2)]
        )


def test_only_an_append_may_have_no_record(tmp_path: Path) -> None:
    mapped = replace(context(tmp_path), source=MappedRows(schema()))
    for run, told in (
        (context(tmp_path), ""),
        (mapped, ", 0 dropped and 0 added by map"),
    ):
        with pytest.raises(InputError) as caught:
            build_manifest(run, [rows(2, 2)], [])
        assert str(caught.value) == (
            f"no records to write: 2 rows read, 2 rejected{told}"
        )
    made = build_manifest(context(tmp_path, part=1), [rows(2, 2)], [])
    assert made.splits["train"].shards == ()


@dataclass(frozen=True)
class MappedRows(PipelineRowsSource):
    """Rows that a function made of others."""

    def input_schema(self, observed: TypeFlags) -> Schema:
        return schema()


@pytest.mark.parametrize("records", [7, 8, 9])
def test_rows_that_a_function_dropped_and_added(tmp_path: Path, records: int) -> None:
    mapped = replace(context(tmp_path), source=MappedRows(schema()))
    ranges = [
        replace(rows(6, 1), rows_dropped=3, rows_added=0),
        replace(rows(5), rows_dropped=2, rows_added=3),
    ]
    shards = [shard("train", 0, records)]
    if records != 11 - 1 - 5 + 3:
        with pytest.raises(RecordmillError) as caught:
            build_manifest(mapped, ranges, shards)
        assert "1 row rejected, 5 dropped and 3 added by map, so" in str(caught.value)
        return
    made = build_manifest(mapped, ranges, shards)
    assert made.map is not None
    assert (made.map.rows_dropped, made.map.rows_added) == (5, 3)


def test_lines_of_rejects_are_known_where_there_are_inputs(tmp_path: Path) -> None:
    without = context(tmp_path)
    assert locator_of(without) is UNKNOWN_INPUT
    assert locator_of(without.publishing_with(inputs=("a.csv",))) is not UNKNOWN_INPUT
