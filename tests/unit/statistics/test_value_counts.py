"""The commonest values in bounded memory, beside a Counter."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.statistics.column_summary import MAX_BYTES, ValueCounts

TEXTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=60), max_size=6)


def counts(batches: list[list[str]], kept: int) -> ValueCounts:
    made = ValueCounts(2, kept)
    for number, batch in enumerate(batches):
        made.add(pa.array(batch, pa.string()), number % 2)
    return made


@examples(200)
@given(TEXTS)
def test_with_room_for_all_every_count_is_exact(batches: list[list[str]]) -> None:
    oracle = Counter(value for batch in batches for value in batch)
    found = counts(batches, kept=8).commonest(limit=8)
    assert dict(found.values) == oracle
    assert list(found.values) == sorted(found.values, key=lambda v: (-v[1], v[0]))
    assert found.complete
    assert (found.total, found.distinct) == (oracle.total(), len(oracle))
    for (value, _), by_split in zip(found.values, found.by_split, strict=True):
        assert by_split == tuple(
            sum(batch.count(value) for batch in batches[split::2]) for split in (0, 1)
        )


@examples(300)
@given(TEXTS, st.integers(1, 6))
def test_without_it_a_count_is_too_low_by_a_known_number(
    batches: list[list[str]], kept: int
) -> None:
    oracle = Counter(value for batch in batches for value in batch)
    found = counts(batches, kept).commonest(limit=8)
    assert found.too_low <= oracle.total() / (kept + 1)
    known = dict(found.values)
    for value, number in oracle.items():
        assert number - found.too_low <= known.get(value, 0) <= number
    assert found.complete == (found.too_low == 0)
    assert not found.complete or known == oracle


def test_the_bytes_of_values_are_bounded() -> None:
    made = ValueCounts(kept_bytes=1000)
    for number in range(100):
        texts = [f"{number}-{n}".rjust(200) for n in range(10)]
        made.add(pa.array([*texts, "often"]))
        assert sum(table.nbytes for table in made._pending) < 10_000
    found = made.commonest(limit=1)
    ((value, number),) = found.values
    assert value == "often"
    assert number <= 100 <= number + found.too_low


def test_many_values_are_not_counted_by_split() -> None:
    made = ValueCounts(2)
    made.add(pa.array([f"{n}" for n in range(40)]), 0)
    assert len(made.commonest(limit=3).by_split) == 3
    made.add(pa.array([f"{n}" for n in range(30, 70)]), 1)
    assert made.commonest(limit=3).by_split == ()


def test_long_values_are_counted_together() -> None:
    made = ValueCounts()
    made.add(pa.array(["a", "b" * MAX_BYTES, "c" * (MAX_BYTES + 1)]))
    found = made.commonest(limit=5)
    assert [value for value, _ in found.values] == ["a", "b" * MAX_BYTES]
    assert (found.total, found.long, found.complete) == (3, 1, False)


def test_bytes_and_truth_values() -> None:
    made = ValueCounts()
    made.add(pa.array([b"\xff", b"\x00", b"\xff"], pa.binary()))
    assert made.commonest(limit=1).values == ((b"\xff", 2),)
    made = ValueCounts()
    made.add(pa.array([True, False, True]))
    assert made.commonest(limit=5).values == ((True, 2), (False, 1))


def test_no_value() -> None:
    assert ValueCounts().commonest(limit=3).total == 0
