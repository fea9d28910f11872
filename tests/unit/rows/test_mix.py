"""mix: rows of several datasets in proportion to weights, by a seed."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from job_tools import IRIS, Argument, convert

from recordmill import Dataset, mix, open_dataset
from recordmill.schemas.errors import UsageError

Maker = Callable[..., Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Returns a function that makes a dataset of some numbers; shards of 40 rows."""

    def table(start: int, stop: int, *options: Argument, column: str = "id") -> Path:
        folder = tmp_path_factory.mktemp("table")
        lines = [column, *map(str, range(start, stop))]
        (folder / "rows.csv").write_text("\n".join(lines) + "\n")
        job = [folder / "rows.csv", folder / "out", "--shards", 2, *options]
        convert("csv", *job)
        return folder / "out"

    return table


@pytest.fixture(scope="module")
def pair(make: Maker) -> tuple[Dataset, Dataset]:
    return open_dataset(make(0, 300)), open_dataset(make(1000, 1060))


def ids(data: Dataset, **order: Any) -> list[int]:
    batches = data.batches(32, **order)
    return list(chain.from_iterable(b["id"].to_pylist() for b in batches))


def test_an_epoch_ends_with_the_first_dataset_that_ends(
    pair: tuple[Dataset, Dataset],
) -> None:
    """300 x 0.7 and 60 x 0.3: 60 rows are 30 %, so 140 of the others are 70 %."""
    large, small = pair
    both = mix({large: 0.7, small: 0.3}, seed=1)
    assert len(both) == 200
    epochs = [ids(both, epoch=epoch) for epoch in range(15)]
    for epoch in epochs:
        assert len(set(epoch)) == 200
        assert sorted(n for n in epoch if n >= 1000) == list(range(1000, 1060))
        # Mixed, not one after the other: each half has a third of its own.
        assert 15 < sum(n >= 1000 for n in epoch[:100]) < 45
    assert len({tuple(epoch) for epoch in epochs}) == 15
    assert ids(both, epoch=3) == epochs[3] != ids(mix(dict.fromkeys(pair, 1), seed=1))
    # Each row of the large one comes as often as any other: 15 x 140 = 7 x 300.
    seen = Counter(n for n in chain.from_iterable(epochs) if n < 1000)
    assert seen == dict.fromkeys(range(300), 7)


def test_an_epoch_ends_with_the_last_dataset_that_ends(
    pair: tuple[Dataset, Dataset],
) -> None:
    large, small = pair
    both = mix({large: 7, small: 3}, seed=1, stopping_strategy="all_exhausted")
    found = ids(both)
    assert len(both) == len(found) == 429  # 300 are 70 %, so 129 are 30 %
    counts = Counter(found)
    assert {counts[n] for n in range(300)} == {1}
    assert {counts[n] for n in range(1000, 1060)} == {2, 3}


@pytest.mark.parametrize("start", [0, 5, 64, 200])
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_a_mix_and_continue_it(
    pair: tuple[Dataset, Dataset], start: int, workers: int
) -> None:
    both = mix({pair[0]: 0.7, pair[1]: 0.3}, seed=1)
    copy = pickle.loads(pickle.dumps(both))
    how = {"epoch": 2, "start": start, "num_workers": workers}
    shares = [
        [b["id"].tolist() for b in copy.numpy_batches(32, **how, worker=worker)]
        for worker in range(workers)
    ]
    batches = [shares[n % workers][n // workers] for n in range(sum(map(len, shares)))]
    assert list(chain.from_iterable(batches)) == ids(both, epoch=2)[start:]


def test_by_number_it_has_epoch_0(pair: tuple[Dataset, Dataset]) -> None:
    both = mix({pair[0]: 0.7, pair[1]: 0.3}, seed=1)
    first = ids(both)
    assert [row["id"] for row in both] == first
    assert [both[5]["id"], both[-1]["id"]] == [first[5], first[199]]
    assert [row["id"] for row in both[10:20]] == first[10:20]
    with pytest.raises(IndexError, match="row 200 of 200"):
        both[200]


def test_datasets_that_make_no_mix(pair: tuple[Dataset, Dataset], make: Maker) -> None:
    large, _ = pair
    zipped = make(0, 9, "--compression", "gzip")
    other, empty = make(0, 9, column="number"), open_dataset(make(0, 9))
    filled = open_dataset(make(0, 9), fill={"id": 1})
    empty = Dataset([], empty.schema, "example", {})
    for data, weight, told in (
        (large, 0, "has the weight 0; expected a positive number"),
        (large, float("nan"), "has the weight nan"),
        (empty, 1, "has no rows; leave it out"),
        (mix({large: 1}, seed=1), 1, "is a mix; pass the datasets in it, each with a"),
        (open_dataset(zipped), 1, "convert it with `compression=none`"),
        (
            open_dataset(other),
            1,
            "feature 'id' is missing: was int64.*; feature 'number'",
        ),
        (filled, 1, "differs from the first one in fill; .* the same `decode` and"),
    ):
        with pytest.raises(UsageError, match=told):
            mix({open_dataset(make(0, 9)): 1, data: weight}, seed=1)
    with pytest.raises(UsageError, match="expected one dataset or more"):
        mix({}, seed=1)
    with pytest.raises(
        UsageError, match="'never': expected one of first_exhausted, all"
    ):
        mix({large: 1}, seed=1, stopping_strategy="never")  # type: ignore[arg-type]


def test_what_the_messages_advise(tmp_path: Path, make: Maker) -> None:
    """One schema for both, and the same options, make a mix."""
    (tmp_path / "schema.yaml").write_text("features:\n  species: string\n")
    convert("csv", IRIS, tmp_path / "a", "--schema", tmp_path / "schema.yaml")
    convert("csv", IRIS, tmp_path / "b", "--schema", tmp_path / "schema.yaml")
    both = [open_dataset(tmp_path / n, fill={"species": ""}) for n in "ab"]
    assert len(mix(dict.fromkeys(both, 1.0), seed=1)) == 300


def test_arguments_that_are_wrong(pair: tuple[Dataset, Dataset]) -> None:
    large, small = pair
    both: Any = mix({large: 1, small: 1}, seed=1)
    assert repr(both) == "Mix(120 rows: id)"
    make: Any = mix
    for call, told in (
        (lambda: make({"out/a": 1}, seed=1), "is 'out/a'; expected what open_dataset"),
        (lambda: make([large, small], seed=1), r"dataset or more, like \{data: 0.7"),
        (lambda: make({large: "0.5"}, seed=1), "has the weight '0.5'"),
        (lambda: make({large: None}, seed=1), "has the weight None"),
        (lambda: make({large: 1}, seed=None), "seed=None: expected a whole number"),
        (lambda: make({large: 1}, seed=1.5), "seed=1.5: expected a whole number"),
        (lambda: make({large: 1e-9, small: 1}, seed=1), "draw 6e-08 rows of a dataset"),
        (lambda: next(both.stream(epoch=-1)), "epoch=-1: expected a whole number"),
        (lambda: next(large.stream(read=-1)), "read=-1: expected a whole number"),
        (lambda: next(large.stream(buffer="9")), "buffer='9': expected a whole"),
        (
            lambda: next(large.batches(7, start="3")),
            "start='3': expected from 0 to the",
        ),
        (lambda: next(large.batches(7, start=1.5)), "start=1.5: expected from 0 to"),
        (lambda: next(large.batches("7")), "size='7': expected a whole number"),
        (lambda: next(large.batches(7, worker="0")), "worker='0': expected a whole"),
        (lambda: next(large.batches(7, seed=1, epoch=0.5)), "epoch=0.5: expected"),
    ):
        with pytest.raises(UsageError, match=told):
            call()  # type: ignore[no-untyped-call]
    for weight in (1e-9, 1e-320):
        with pytest.raises(UsageError, match="that differ less"):
            make({large: 1, small: weight}, seed=1, stopping_strategy="all_exhausted")
    assert len(make({large: 0.99, small: 0.01}, seed=1)) == 303  # as advised


def test_a_window_has_its_bytes_by_the_rows_that_are_drawn(make: Maker) -> None:
    """Few wide rows among many narrow ones, of which an epoch draws as many."""
    narrow, wide = open_dataset(make(0, 5000)), open_dataset(make(10**17, 10**17 + 50))
    both = mix({narrow: 1, wide: 1}, seed=1)
    sizes = [sum(s.entry.bytes for s in d._shards) / len(d) for d in (narrow, wide)]
    assert both._window_rows * sum(sizes) / 2 == pytest.approx(4 << 20, rel=0.01)
