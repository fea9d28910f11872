"""Numbers with more digits than float32 holds, counted by column."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.ranges import RowIssue
from recordmill.transforms.sources.csv.inspect import (
    count_long,
    exact_problem,
    long_warnings,
)

NUMBERS = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,9})?\.[0-9]{1,20}", fullmatch=True),
    st.from_regex(r"-?[1-9](\.[0-9]{0,9})?[eE][+-]?[0-9]{1,2}", fullmatch=True),
    st.integers(-(1 << 30), 1 << 30).map(str),
    st.floats(-3.4e38, 3.4e38).map(repr),
    st.sampled_from(["inf", "-Infinity", "nan", "0", "-0.0", "NA", " 1.5 "]),
)


def is_long(text: str) -> bool:
    digits = "".join(filter(str.isdigit, text.lower().partition("e")[0]))
    return len(digits.strip("0")) > 7


def counted(texts: list[str | None]) -> int:
    cells = pa.array(["1", *texts, "12345678.9"], pa.string()).slice(1, len(texts))
    floats = [None if not text or text == "NA" else float(text) for text in texts]
    found = count_long(
        pa.record_batch({"x": cells}),
        pa.record_batch({"x": pa.array(floats, pa.float64())}),
    )
    return sum(each.count for each in found)


@given(st.lists(st.none() | NUMBERS, max_size=8))
@example(["-0.1234567", ".12345678", "0.012345678", "1234567.0", "12345670"])
@example(["16777217", "16777216", "0.30000000000000004", "20000000", "1234567."])
def test_digits_are_counted_but_zeros_at_either_end(texts: list[str | None]) -> None:
    assert counted(texts) == sum(is_long(text) for text in texts if text)


def test_a_decimal_comma() -> None:
    batch = pa.record_batch({"x": [1.5, 12345.678901], "y": ["a", "b"]})
    table = pa.record_batch({"x": ["1,5", "12345,678901"], "y": ["123456789", "b"]})
    assert count_long(table, batch) == (RowIssue("digits", "x", 1, "12345,678901"),)


@pytest.mark.parametrize(("columns", "warnings"), [(0, 0), (5, 5), (20, 6), (200, 6)])
def test_warnings_of_many_columns(columns: int, warnings: int) -> None:
    names = [f"c{n}" for n in range(columns)]
    table = pa.record_batch({name: ["16777217", "1"] for name in names})
    batch = pa.record_batch({name: [16777217.0, 1.0] for name in names})
    found = count_long(table, batch)
    told = long_warnings(found, names)
    assert len(told) == warnings
    if columns > 5:
        more = min(columns, 101) - 5  # those behind the first hundred are one
        assert told[-1].startswith(f"{more} more columns of float32 with numbers of")
        assert f"  and {more} more columns\n" in exact_problem(found, names)
    assert bool(exact_problem(found, names)) == bool(columns)
