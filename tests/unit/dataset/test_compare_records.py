"""Records of two datasets, and of splits of one, compared as lists and dictionaries do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.manifest import ManifestShard
from recordmill.transforms.dataset import diff
from recordmill.transforms.dataset.diff import (
    MAX_EXAMPLES,
    RecordName,
    compare_records,
    find_overlap,
)

Shards = list[tuple[str, list[bytes]]]


@dataclass(frozen=True)
class Held:
    """Stands for a ReadableShard whose records are in memory."""

    split: str
    file: str
    held: list[bytes]
    schema = Schema((FeatureSpec("record", Kind.BYTES),))

    @property
    def entry(self) -> ManifestShard:
        return ManifestShard(
            file=self.file, records=len(self.held), bytes=9, crc32c="0" * 8
        )

    def records(self) -> Iterator[memoryview]:
        return map(memoryview, self.held)


def held(shards: Shards) -> Any:
    return [Held(split, f"s{n}", records) for n, (split, records) in enumerate(shards)]


@pytest.fixture(params=[40, 1000, 1 << 20], autouse=True, scope="module")
def bucket_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "_BUCKET_BYTES", request.param)
        patch.setattr(diff, "_RECORDS_PER_WRITE", 7)
        yield


SPLITS = ["train", "dev", "test"]
SHARDS = st.lists(
    st.tuples(
        st.sampled_from(SPLITS), st.lists(st.sampled_from([b"a", b"b", b"c", b""]))
    ),
    max_size=5,
)


@given(SHARDS, SHARDS)
@examples(50)
@example([], [])
@example([("train", [b"a", b"a", b"b"])], [("test", [b"a", b"c"])])
def test_two_datasets(one: Shards, other: Shards) -> None:
    found = compare_records((held(one), held(other)), 2, lambda _: None)
    rows = [[r for _, records in shards for r in records] for shards in (one, other)]
    by_split = [
        Counter((s, r) for s, records in shards for r in records)
        for shards in (one, other)
    ]
    both = Counter(rows[0]) & Counter(rows[1])
    assert found.num_common == both.total()
    assert found.num_moved == both.total() - (by_split[0] & by_split[1]).total()
    for side, shards in enumerate((one, other)):
        missing = Counter(rows[side]) - Counter(rows[1 - side])
        assert found.num_only_in[side] == missing.total()
        named = [shards[int(file[1:])][1][at] for file, at in found.examples[side]]
        assert len(named) == min(2, found.num_only_in[side])
        assert not Counter(named) - missing


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), min_size=3, max_size=3))
@examples(50)
def test_splits_of_a_dataset(splits: list[list[int]]) -> None:
    shards: Shards = []
    by_content: dict[int, list[RecordName]] = defaultdict(list)
    for name, values in zip(SPLITS, splits, strict=True):
        records = [b"%d" % value for value in values]
        shards += [(name, records[:11]), (name, records[11:])]
        for number, value in enumerate(values):
            by_content[value].append((name, number))
    found = find_overlap(held(shards))
    shared = [each for each in by_content.values() if len({n for n, _ in each}) > 1]
    assert found.num_records == sum(map(len, shared))
    assert len(found.examples) == min(MAX_EXAMPLES, len(shared))
    for each in found.examples:
        (content,) = [others for others in shared if each[0] in others]
        assert set(each) <= set(content)
        assert [name for name, _ in each] == list(dict(content))
