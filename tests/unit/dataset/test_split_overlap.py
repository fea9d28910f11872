"""Equal contents of different splits, against a dictionary of all contents."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.dataset.split_overlap import (
    MAX_EXAMPLES,
    RecordName,
    _entries,
    _joined,
    _overlap,
)

NAMES = ["train", "dev", "test"]


@given(
    st.lists(st.lists(st.integers(0, 40), max_size=30), min_size=3, max_size=3),
    st.integers(1, 3),
)
@examples(100)
def test_as_a_dictionary_finds_them(splits: list[list[int]], buckets: int) -> None:
    entries = np.concatenate(
        [
            _entries([[b"%d" % value, b"-"] for value in values], number, 0)
            for number, values in enumerate(splits)
        ]
    )
    bucket = entries["hash"][:, 0] % np.uint64(buckets)
    found = _joined(
        [_overlap(entries[bucket == index], NAMES) for index in range(buckets)]
    )
    by_content: dict[int, list[RecordName]] = defaultdict(list)
    for name, values in zip(NAMES, splits, strict=True):
        for number, value in enumerate(values):
            by_content[value].append((name, number))
    shared = [each for each in by_content.values() if len({n for n, _ in each}) > 1]
    assert found.records == sum(map(len, shared))
    assert len(found.examples) == min(MAX_EXAMPLES, len(shared))
    for example in found.examples:
        (content,) = [each for each in shared if example[0] in each]
        assert set(example) <= set(content)
        assert [name for name, _ in example] == list(dict(content))
