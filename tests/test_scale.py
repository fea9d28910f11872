"""docs/scale.md holds what tests/bench/scale.py prints, and that holds of the code."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench import scale, simulate

import transforms.exchange.gather as gathering
from schemas.job import Sharding
from schemas.ranges import InputFile, InputRange, RangeResult, RunRef
from schemas.shards import KEY_SPACE, ShardPlan, ShardTask
from transforms.exchange.runs import write_run
from transforms.plan import MAX_BUCKET_BITS, Histogram, plan_shards

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
MANY = 2000


def some_range(index: int) -> InputRange:
    path = f"raw/users/part-{index // 64:05d}.csv"
    step = scale.RANGE_BYTES
    return InputRange(
        index=index,
        path=path,
        uri=f"s3://example-bucket/{path}",
        start=index * step,
        stop=(index + 1) * step,
        first_position=index * step,
        total_positions=10**13,
    )


def some_file(index: int) -> InputFile:
    path = f"raw/users/part-{index:05d}.csv"
    uri = f"s3://example-bucket/{path}"
    return InputFile(path, uri, 256_000_000, f'"{index:032x}"')


def some_result(index: int) -> RangeResult:
    """Of a table with 40 columns."""
    run = RunRef(f"range-scratch-{index:06d}-000", (1677,), 1 << 24, 1 << 30, 1 << 31)
    return RangeResult(
        some_range(index), 1677, 0, (run,), (3,) * 40, (3,) * 40, (0,) * 40
    )


def test_the_page_has_the_tables_as_they_are_printed() -> None:
    page = PAGE.read_text()
    for table in scale.tables().strip().split("\n\n"):
        assert f"\n{table}\n" in page, (
            f"python tests/bench/scale.py; it prints:\n{table}"
        )


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (some_file, scale.INPUT_FILE_BYTES),
        (some_range, scale.INPUT_RANGE_BYTES),
        (some_result, scale.RANGE_RESULT_BYTES),
    ],
)
def test_objects_take_the_memory_that_is_told(
    make: Callable[[int], object], told: int
) -> None:
    """Results come pickled, each with strings of its own; the others are made here."""
    pickled = [pickle.dumps(some_result(index)) for index in range(MANY)]
    tracemalloc.start()
    try:
        made: list[object] = [
            pickle.loads(pickled[index]) if make is some_result else make(index)
            for index in range(MANY)
        ]
        found = tracemalloc.get_traced_memory()[0] / len(made)
    finally:
        tracemalloc.stop()
    assert found == pytest.approx(told, rel=0.25)


def test_ranges_take_the_room_in_the_graph_that_is_told() -> None:
    """Each as an element of its own, and all of them as one argument."""
    ranges = [some_range(index) for index in range(MANY)]
    alone = sum(len(pickle.dumps(one)) for one in ranges)
    together = len(pickle.dumps(ranges))
    found = (alone + together) / MANY
    assert found == pytest.approx(scale.INPUT_RANGE_GRAPH_BYTES, rel=0.25)


def test_every_shard_reads_every_index_and_the_slices_that_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real gathering, counted: what is wrong with scratch at that size."""
    num_runs, num_shards, records, size = 12, 5, 400, 1000
    rng = np.random.default_rng(0)
    runs = [
        write_run(
            tmp_path / f"run-{number}",
            pa.array([bytes(size)] * records, pa.binary()),
            rng.integers(0, KEY_SPACE, records, np.uint64, endpoint=False),
            np.zeros(records, np.uint8),
            np.full(records, size, np.int64),
            num_splits=1,
        )
        for number in range(num_runs)
    ]
    case = scale.Case(
        "tiny",
        input_bytes=num_runs * records * scale.RECORD_BYTES,
        shard_bytes=num_runs * records * scale.RECORD_BYTES // num_shards,
        range_bytes=records * scale.RECORD_BYTES,
    )
    assert (case.ranges, case.shards) == (num_runs, num_shards)
    counts = {"read_index": 0, "read_into": 0, "bytes": 0}

    def counted(name: str) -> None:
        real = getattr(gathering, name)

        def call(*arguments: object, **more: object) -> object:
            counts[name] += 1
            result = real(*arguments, **more)
            if name == "read_index":
                counts["bytes"] += 8 * (len(result.keys) * 3 + 1)
            return result

        monkeypatch.setattr(gathering, name, call)

    counted("read_index")
    counted("read_into")
    edges = [KEY_SPACE * shard // num_shards for shard in range(num_shards + 1)]
    # Windows in proportion, as these records are smaller than those of the sums.
    window_bytes = scale.WINDOW_BYTES * size // scale.RECORD_BYTES
    for shard in range(num_shards):
        task = ShardTask("t", 0, shard, num_shards, edges[shard], edges[shard + 1])
        list(gathering.gather(tmp_path, runs, task, window_bytes))
    assert counts["read_index"] == scale.index_reads(case)
    assert counts["bytes"] == pytest.approx(scale.index_read_bytes(case), rel=0.01)
    assert counts["read_into"] == pytest.approx(scale.slice_reads(case), rel=0.25)


@pytest.mark.parametrize(("throws", "boxes"), [(10, 100), (1677, 7451), (5000, 40)])
def test_occupied_boxes(throws: int, boxes: int) -> None:
    rng = np.random.default_rng(1)
    found = np.mean([len(np.unique(rng.integers(0, boxes, throws))) for _ in range(50)])
    assert scale.occupied(throws, boxes) == pytest.approx(found, rel=0.05)


def test_a_petabyte_is_more_than_one_dataset() -> None:
    petabyte = scale.CASES[3]
    assert petabyte.shards == 99_999
    assert petabyte.shard_size > 70 * petabyte.shard_bytes
    whole = scale.CASES[4]
    assert whole.datasets * whole.input_bytes == petabyte.input_bytes
    assert whole.shards < 99_999


def test_the_planner_keeps_its_promise() -> None:
    found = simulate.simulate(records=300_000, shards=40)
    assert found.keeps_promise
    assert found.shards == 40
    assert found.records == 300_000
    assert found.largest_record > 20 * simulate.MEAN_BYTES
    assert 1 < found.skew < 1.1


def test_a_plan_that_breaks_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shards with as many records each, whatever they weigh."""

    def by_count(
        histogram: Histogram, sharding: Sharding, names: list[str]
    ) -> ShardPlan:
        (plan,) = plan_shards(
            Histogram(histogram.records, histogram.records), sharding, names
        ).splits
        starts = [bound >> (64 - MAX_BUCKET_BITS) for bound in plan.bounds[:-1]]
        weights = np.add.reduceat(histogram.bytes[0], starts)
        return ShardPlan((replace(plan, shard_bytes=tuple(weights.tolist())),))

    monkeypatch.setattr(simulate, "plan_shards", by_count)
    given = ["--records", "3000000", "--shards", "1000"]
    assert simulate.main(given) == 1
    assert "a shard is off its fair share by" in capsys.readouterr().err
