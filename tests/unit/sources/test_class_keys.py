"""Keys of classes: the same for text as for whatever type its column comes out with."""

from __future__ import annotations

import pyarrow as pa
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.cast.text_values import swap_points
from recordmill.transforms.sources.label_split import (
    class_hashes,
    keys_of,
    sorted_names,
)
from recordmill.transforms.sources.text_types import classify, convert_columns

CELLS = st.one_of(
    st.sampled_from(["", " ", "NA", "null", "true", "False", "007", "-0", "x", " x "]),
    st.sampled_from(["1,5", "1.5", "1.50", "1,50", "1,234", "1.234,5", ",5", "1,"]),
    st.sampled_from(["1_000", "\N{ARABIC-INDIC DIGIT SEVEN}", "1000"]),
    st.sampled_from(["1.", ".5", "1e3", "inf", "-Infinity", "nan", "1e39", "+7", " 7"]),
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.floats().map(str),
    st.floats(width=32).map(str),
    st.text(max_size=3),
)


@given(st.lists(CELLS | st.none(), min_size=1, max_size=5), st.booleans())
@examples(500)
def test_keys_do_not_depend_on_the_type(cells: list[str | None], comma: bool) -> None:
    texts = pa.array(cells, pa.string())
    points = swap_points(texts) if comma else texts
    (typed,), _ = convert_columns([points], (int(classify(points)),))
    typed = texts if pa.types.is_string(typed.type) else typed  # text stays as it was
    of_typed = class_hashes(typed, decimal_comma=comma)
    assert of_typed.tolist() == class_hashes(texts, decimal_comma=comma).tolist()


def test_numbers_are_those_that_cells_are_read_as() -> None:
    """A comma is a decimal mark only where the table has it; 1_000 is never a number."""
    cells = ["1,5", "1.50", "1_000", "\N{ARABIC-INDIC DIGIT SEVEN}", "7"]
    texts = pa.array(cells)
    assert keys_of(texts)[0] == ["1,5", "1.5", *cells[2:]]
    assert keys_of(texts, decimal_comma=True)[0] == ["1.5", "1.50", *cells[2:]]
    assert keys_of(pa.array([1.5]), decimal_comma=True)[0] == ["1.5"]


def test_names_are_sorted_by_value_if_all_are_numbers() -> None:
    assert sorted_names(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert sorted_names(["10", "9", "b"]) == ["10", "9", "b"]
    assert sorted_names(["nan", "1", "0"]) == ["0", "1", "nan"]
