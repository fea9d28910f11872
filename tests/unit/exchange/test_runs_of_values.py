"""Runs of values that are written when they are read, against the same runs in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.ranges import KEY_SPACE, ShardTask
from recordmill.transforms.encode.waiting_rows import (
    defer_rows,
    has_values,
    lengths_of,
    payloads_of,
)
from recordmill.transforms.exchange.sorted_runs import (
    NO_BUDGET,
    Block,
    MemoryBudget,
    SortedRunFolder,
    merge_shard_rows,
)

ROOM = MemoryBudget(1 << 20)
LONG = "a name that is longer than what it holds"
SCHEMA = Schema(
    (
        FeatureSpec(LONG, Kind.INT64, dtype="int64"),
        FeatureSpec(LONG + "!", Kind.BYTES, dtype="string", optional=True),
    )
)


class Row(NamedTuple):
    key: int
    split: int
    number: int
    text: str | None


KEYS = st.sampled_from([0, 1, 1 << 63, KEY_SPACE - 1])  # few: ties are the rule
ROWS = st.lists(
    st.builds(
        Row,
        KEYS,
        st.integers(0, 2),
        st.integers(-1, 1 << 40),
        st.none() | st.text(max_size=4),
    ),
    min_size=1,
    max_size=9,
)
RUNS = st.lists(st.lists(ROWS, min_size=1, max_size=2), min_size=1, max_size=4)


def block_of(rows: list[Row]) -> Block:
    numbers = pa.array([row.number for row in rows], pa.int64())
    texts = pa.array([row.text for row in rows], pa.string())
    batch = pa.RecordBatch.from_arrays([numbers, texts], names=[LONG, LONG + "!"])
    waiting = defer_rows(batch, SCHEMA)
    assert has_values(waiting)
    return Block(
        waiting,
        np.array([row.key for row in rows], np.uint64),
        np.array([row.split for row in rows], np.uint8),
        lengths_of(waiting),
    )


@examples(60)
@given(RUNS, st.integers(0, 2), KEYS, KEYS, st.sampled_from([1, 300, 1 << 20]))
def test_they_equal_runs_in_files(
    batches: list[list[list[Row]]], split: int, one: int, other: int, window: int
) -> None:
    """Of every second run in memory, or of all."""
    task = ShardTask("s", split, 0, 1, *sorted([one, other + 1]))
    found = []
    for in_memory in (1, 2, len(batches) + 1):
        with TemporaryDirectory() as name:
            folder = SortedRunFolder(name, ROOM)
            runs = []
            for number, parts in enumerate(batches):
                held = number % in_memory == 0 and in_memory <= len(batches)
                to = folder if held else SortedRunFolder(name, NO_BUDGET)
                runs.append(to.save(f"r{number}", [*map(block_of, parts)], 3))
                kept = folder.run_in_memory(runs[-1])
                assert (kept is not None and has_values(kept.rows)) == held
            found.append(
                [
                    record
                    for records in merge_shard_rows(folder, runs, task, window)
                    for record in records.to_pylist()
                ]
            )
            folder.release()
    assert found[0] == found[1] == found[2]


def test_what_a_run_of_values_tells(tmp_path: Path) -> None:
    rows = [Row(7, 1, 1, "x"), Row(9, 0, 2, None), Row(3, 0, 3, "yz")]
    held, filed = (
        SortedRunFolder(str(tmp_path), budget).save(name, [block_of(rows)], 2)
        for name, budget in (("held", ROOM), ("filed", NO_BUDGET))
    )
    folder = SortedRunFolder(str(tmp_path))
    assert (held.counts, held.payload_bytes) == (filed.counts, filed.payload_bytes)
    assert folder.is_whole(held)
    mine, theirs = folder.keys_and_sizes(held), folder.keys_and_sizes(filed)
    for one, other in zip(mine, theirs, strict=True):
        assert one.tolist() == other.tolist()
    folder.release()
    assert not folder.is_present(held)


def test_the_budget_counts_values(tmp_path: Path) -> None:
    """Their records would not find room in it."""
    block = block_of([Row(number, 0, number, "x") for number in range(100)])
    folder = SortedRunFolder(str(tmp_path), MemoryBudget(4000))
    assert block.planned_bytes.sum() > 8000
    runs = [folder.save(name, [block], 1) for name in ("a", "b")]
    assert [run.in_memory for run in runs] == [True, False]
    task = ShardTask("s", 0, 0, 1, 0, KEY_SPACE)
    assert sum(map(len, merge_shard_rows(folder, runs, task))) == 200
    folder.release()


def test_runs_of_other_features_are_held_as_records(tmp_path: Path) -> None:
    """As of a column without a value in the first rows, which becomes text later."""
    other = Schema((FeatureSpec(LONG, Kind.INT64, dtype="int64"),))
    blocks = [block_of([Row(key, 0, key, "x")]) for key in (5, 3)]
    few = defer_rows(pa.RecordBatch.from_pydict({LONG: [1]}), other)
    blocks.append(replace(blocks[0], rows=few))
    folder = SortedRunFolder(str(tmp_path), ROOM)
    run = folder.save("a", blocks, 1)
    held = folder.run_in_memory(run)
    assert held is not None
    assert not has_values(held.rows)
    [found] = merge_shard_rows(folder, [run], ShardTask("s", 0, 0, 1, 0, KEY_SPACE))
    expected = [payloads_of(blocks[number].rows)[0] for number in (1, 0, 2)]
    assert found.to_pylist() == [record.as_py() for record in expected]
    folder.release()
