"""Two lists of records are compared as multisets, whatever fits into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.dataset.diff import Side, compare_records

Shards = list[tuple[int, list[bytes]]]


@dataclass(frozen=True)
class Held:
    """Stands for a ShardToRead whose records are in memory."""

    held: list[bytes]

    @property
    def entry(self) -> ShardEntry:
        return ShardEntry(file="s", records=len(self.held), bytes=9, crc32c="0" * 8)

    def records(self) -> Iterator[memoryview]:
        return map(memoryview, self.held)


def side_of(shards: Shards) -> Side:
    held: Any = [(split, Held(records)) for split, records in shards]
    return Side(held)


SHARDS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.sampled_from([b"a", b"b", b"c", b""]))),
    max_size=5,
)


@pytest.mark.parametrize("at_once", [1, 3, 1000])
@given(SHARDS, SHARDS)
@example([], [])
@example([(0, [b"a", b"a", b"b"])], [(1, [b"a", b"c"])])
def test_as_a_naive_comparison(at_once: int, one: Shards, other: Shards) -> None:
    found = compare_records(side_of(one), side_of(other), 2, lambda _: None, at_once)
    rows = [[r for _, records in shards for r in records] for shards in (one, other)]
    by_split = [
        Counter((s, r) for s, records in shards for r in records)
        for shards in (one, other)
    ]
    both = Counter(rows[0]) & Counter(rows[1])
    assert found.both == both.total()
    assert found.moved == both.total() - (by_split[0] & by_split[1]).total()
    for side in (0, 1):
        own, others = rows[side], rows[1 - side]
        assert found.only[side] == (Counter(own) - Counter(others)).total()
        missing = Counter(own) - Counter(others)
        examples = found.examples[side]
        assert len(examples) == min(2, found.only[side])
        assert not Counter(own[number] for number in examples) - missing


def test_a_number_leads_to_its_record() -> None:
    side = side_of([(0, [b"a", b"b"]), (0, []), (1, [b"c"])])
    places = [side.place(number) for number in range(3)]
    assert [bytes(list(s.records())[i]) for s, i in places] == [b"a", b"b", b"c"]
    with pytest.raises(IndexError):
        side.place(3)
