"""Keys of classes: the same for text as for whatever type its column comes out with."""

from __future__ import annotations

import pyarrow as pa
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.sources.class_keys import class_hashes, sorted_names
from recordmill.transforms.sources.text_types import classify
from recordmill.transforms.sources.wide_columns import convert_columns

CELLS = st.one_of(
    st.sampled_from(["", " ", "NA", "null", "true", "False", "007", "-0", "x", " x "]),
    st.sampled_from(["1.", ".5", "1e3", "inf", "-Infinity", "nan", "1e39", "+7", " 7"]),
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.floats().map(str),
    st.floats(width=32).map(str),
    st.text(max_size=3),
)


@given(st.lists(CELLS | st.none(), min_size=1, max_size=5))
@examples(500)
def test_keys_do_not_depend_on_the_type(cells: list[str | None]) -> None:
    texts = pa.array(cells, pa.string())
    (typed,), _ = convert_columns([texts], (int(classify(texts)),), 1 << 10)
    assert class_hashes(typed).tolist() == class_hashes(texts).tolist()


def test_names_are_sorted_by_value_if_all_are_numbers() -> None:
    assert sorted_names(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert sorted_names(["10", "9", "b"]) == ["10", "9", "b"]
    assert sorted_names(["nan", "1", "0"]) == ["0", "1", "nan"]
