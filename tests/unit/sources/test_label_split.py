"""Keys of classes, whatever the type of a column; splits by time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from csv_cases import classify
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.job import SplitTimes, parse_split_times
from recordmill.transforms.cast.text_values import swap_points
from recordmill.transforms.sources.label_split import (
    class_hashes,
    find_class_keys,
    sorted_names,
    split_by_time,
)
from recordmill.transforms.sources.text_columns import convert_columns

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
    assert find_class_keys(texts)[0] == ["1,5", "1.5", *cells[2:]]
    assert find_class_keys(texts, decimal_comma=True)[0] == ["1.5", "1.50", *cells[2:]]
    assert find_class_keys(pa.array([1.5]), decimal_comma=True)[0] == ["1.5"]


def test_names_are_sorted_by_value_if_all_are_numbers() -> None:
    assert sorted_names(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert sorted_names(["10", "9", "b"]) == ["10", "9", "b"]
    assert sorted_names(["nan", "1", "0"]) == ["0", "1", "nan"]


MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2090, 1, 1))


@given(st.lists(MOMENTS, max_size=9), st.lists(MOMENTS, min_size=1, max_size=3))
@examples(100)
def test_times_of_every_type(values: list[datetime], bounds: list[datetime]) -> None:
    starts = sorted({bound.replace(tzinfo=UTC) for bound in bounds})
    names = tuple("abcd"[: len(starts) + 1])
    times = SplitTimes("t", names, tuple(starts))
    expected = [
        sum(value.replace(tzinfo=UTC) >= start for start in starts) for value in values
    ]
    zoned = [f"{value + timedelta(hours=2)} +02:00" for value in values]
    fine = [f"{value.isoformat(timespec='microseconds')}123Z" for value in values]
    for column in (
        pa.array(values, pa.timestamp("us")),
        pa.array(values, pa.timestamp("us", tz="Europe/Paris")),
        pa.array([value.isoformat() for value in values], pa.string()),
        pa.array([str(value) for value in values], pa.string()),
        pa.array(zoned, pa.string()),
        pa.array(fine, pa.string()),
    ):
        assert split_by_time(column, times).to_pylist() == expected


def test_dates_and_numbers() -> None:
    times = parse_split_times("day=a,2026-01-01,b,2026-01-01T12:00,c")
    days = pa.array([date(2025, 12, 31), date(2026, 1, 1), date(2026, 1, 2), None])
    assert split_by_time(days, times).to_pylist() == [0, 1, 2, None]
    assert split_by_time(pa.array([1, 2]), times).to_pylist() == [None, None]
    numbers = parse_split_times("n=a,3,b,4.5,c")
    assert split_by_time(pa.array([2, 3, 4, 5]), numbers).to_pylist() == [0, 1, 1, 2]
    floats = pa.array([2.9, 3.0, 4.5, np.nan, None])
    assert split_by_time(floats, numbers).to_pylist() == [0, 1, 2, None, None]
    texts = pa.array(["2.9", " 3", "x", "", "nan"])
    assert split_by_time(texts, numbers).to_pylist() == [0, 1, None, None, None]
    commas = pa.array(["2,9", "3,0", "4.5"])
    assert split_by_time(commas, numbers).to_pylist() == [None] * 2 + [2]
    found = split_by_time(commas, numbers, decimal_comma=True)
    assert found.to_pylist() == [0, 1, None]
    large = parse_split_times(f"n=a,{2**53 + 1},b")
    integers = pa.array([2**53, 2**53 + 1])
    assert split_by_time(integers, large).to_pylist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("date", "expected a column, and splits"),
        ("=a,1,b", "expected a column, and splits"),
        ("d=a,1", "expected a column, and splits"),
        ("d=a,1,a b", "found 'a b'"),
        ("d=a,1,a", "different splits, found a, a"),
        ("d=a,yesterday,b", "found 'yesterday'"),
        ("d=a,1,b,2026-01-01,c", "all times or all numbers"),
        ("d=a,2,b,1,c", "expected ascending times, found 2 before 1"),
        ("d=a,20%,b", "expected a number, or a time like 2026-01-01"),
    ],
)
def test_what_is_written_wrongly_is_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_split_times(text)
