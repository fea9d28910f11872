"""What cells hold and how they are converted, against a cell-by-cell oracle."""

from __future__ import annotations

import functools
import operator
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from csv_cases import (
    CELLS,
    COLUMNS,
    NUMBERS,
    ODD_TEXTS,
    classify,
    holds_of,
    holds_of_all,
)
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import Kind, usual_kind
from recordmill.schemas.ranges import RowIssue
from recordmill.transforms import native
from recordmill.transforms.cast import text_values
from recordmill.transforms.cast.text_values import MISSING_WORDS
from recordmill.transforms.sources import text_columns
from recordmill.transforms.sources.text_columns import (
    ARROW_TYPES,
    TypeFlag,
    classify_columns,
    column_dtype,
    convert_columns,
    count_issues,
    exact_problem,
    find_invalid_cells,
    is_text,
    long_warnings,
)


def convert(cells: pa.StringArray, expected: int) -> tuple[pa.Array, TypeFlag]:
    (array,), (seen,) = convert_columns([cells], [expected])
    return array, TypeFlag(seen)


def column(texts: list[str | None]) -> pa.StringArray:
    return pa.array(texts, pa.string())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", TypeFlag.INTEGER),
        ("-12", TypeFlag.INTEGER),
        ("0", TypeFlag.INTEGER),
        ("9223372036854775807", TypeFlag.INTEGER),  # the last int64
        ("9223372036854775808", TypeFlag.TEXT),  # one more
        ("-9223372036854775808", TypeFlag.INTEGER),
        ("-9223372036854775809", TypeFlag.TEXT),
        ("007", TypeFlag.TEXT),  # leading zeros would be lost
        ("+5", TypeFlag.TEXT),  # so would a plus
        ("-0", TypeFlag.DECIMAL),  # int64 has no -0
        ("1.0", TypeFlag.INTEGER),  # pandas' integers with gaps
        ("16777217.00", TypeFlag.INTEGER),
        ("0.0", TypeFlag.INTEGER),
        ("-0.0", TypeFlag.DECIMAL),
        ("9223372036854775807.0", TypeFlag.INTEGER),
        ("9223372036854775808.0", TypeFlag.DECIMAL),  # float32 holds this one
        ("1.00000000000000000001", TypeFlag.DECIMAL),  # 1 as float64
        ("1e5", TypeFlag.DECIMAL),  # an exponent is how floats are written
        ("-.5", TypeFlag.DECIMAL),
        ("00.5", TypeFlag.TEXT),
        ("1e39", TypeFlag.TEXT),  # beyond float32
        ("-3.4028235677973366e38", TypeFlag.TEXT),  # the first that rounds to infinity
        ("3.4028235677973362e38", TypeFlag.DECIMAL),
        ("1e400", TypeFlag.TEXT),  # beyond float64: would become infinity
        ("-1e400", TypeFlag.TEXT),
        ("1e-400", TypeFlag.DECIMAL),  # rounds to 0 as any decimal rounds
        ("inf", TypeFlag.DECIMAL),
        ("-Infinity", TypeFlag.DECIMAL),
        ("nan", TypeFlag.DECIMAL),
        ("-nan", TypeFlag.TEXT),  # NaN has no sign to keep
        ("TRUE", TypeFlag.BOOLEAN),
        ("falſe", TypeFlag.TEXT),  # a long s is no s
        ("yes", TypeFlag.TEXT),
        (" 1", TypeFlag.INTEGER),  # blanks around a number are not part of it
        ("1\n", TypeFlag.INTEGER),
        ("1 000", TypeFlag.TEXT),
        ("NA", TypeFlag.MISSING),
        (" null ", TypeFlag.MISSING),
        (" ", TypeFlag.MISSING),
        ("Na", TypeFlag.TEXT),
        ("٣", TypeFlag.TEXT),  # a digit, but not 0-9
        ("", TypeFlag.MISSING),  # as nothing but blanks is
        (None, TypeFlag.NOTHING),
    ],
)
def test_classify_a_cell(text: str | None, expected: TypeFlag) -> None:
    assert holds_of(text) is expected, "the oracle itself"
    assert classify(column([text])) is expected


@given(ODD_TEXTS | NUMBERS | st.text(max_size=6))
def test_classify_any_cell(text: str) -> None:
    assert classify(column([text])) is holds_of(text)


@given(COLUMNS)
def test_classify_a_column(texts: list[str | None]) -> None:
    assert classify(column(texts)) is holds_of_all(texts)


@given(CELLS, st.data())
def test_bits_of_parts_or_to_those_of_the_whole(
    texts: list[str | None], data: st.DataObject
) -> None:
    cells = column(texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    parts = [
        cells.slice(start, stop - start)
        for start, stop in zip([0, *cuts], [*cuts, len(texts)], strict=True)
    ]
    ored = functools.reduce(operator.or_, map(classify, parts))
    assert ored is classify(cells)


@pytest.mark.parametrize(
    ("holds", "kind", "dtype"),
    [
        (TypeFlag.NOTHING, Kind.BYTES, "string"),
        (TypeFlag.BOOLEAN, Kind.INT64, "bool"),
        (TypeFlag.INTEGER, Kind.INT64, "int64"),
        (TypeFlag.DECIMAL, Kind.FLOAT, "float32"),
        (TypeFlag.INTEGER | TypeFlag.DECIMAL, Kind.FLOAT, "float32"),
        (TypeFlag.BOOLEAN | TypeFlag.INTEGER, Kind.BYTES, "string"),
        (TypeFlag.BOOLEAN | TypeFlag.DECIMAL, Kind.BYTES, "string"),
        (TypeFlag.TEXT | TypeFlag.INTEGER, Kind.BYTES, "string"),
        (TypeFlag.MISSING, Kind.BYTES, "string"),
        (TypeFlag.MISSING | TypeFlag.TEXT, Kind.BYTES, "string"),
        (TypeFlag.MISSING | TypeFlag.INTEGER, Kind.INT64, "int64"),
        (TypeFlag.MISSING | TypeFlag.BOOLEAN, Kind.INT64, "bool"),
    ],
)
def test_type_of_a_column(holds: TypeFlag, kind: Kind, dtype: str) -> None:
    assert column_dtype(holds) == dtype
    assert usual_kind(dtype) is kind


def naive_value(text: str | None, dtype: str) -> object:
    if text is None or dtype == "string":
        return text
    text = text.strip()
    if not text or text in MISSING_WORDS:
        return None
    if dtype == "bool":
        return text.lower() == "true"
    if dtype == "int64":
        return int(text.partition(".")[0])
    return float(text)


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return repr(left) == repr(right)  # tells -0.0 from 0.0; NaN equals NaN
    return left == right and type(left) is type(right)


@pytest.mark.parametrize(
    "expected", [*map(TypeFlag, (*range(32), 32, 33, 34, 38, 40, 48))]
)
@given(texts=COLUMNS, pad=st.integers(0, 3))
@example(texts=["falſe"], pad=0)
@example(texts=["1e400", "1.5"], pad=1)
@example(texts=["-1e400", "inf"], pad=1)
@example(texts=["1", "0"], pad=0)
@example(texts=["12345678901234567890", "1.5"], pad=0)
@example(texts=["2", None, "3.0"], pad=1)
@example(texts=["2.0", "-0.0"], pad=0)
@example(texts=["9007199254740993.0", "1"], pad=0)
@example(texts=["9007199254740993", "1.0"], pad=0)
@example(texts=["1.00000000000000000001", "2"], pad=0)
@example(texts=["1e3", "2.0"], pad=0)
@example(texts=["007.0", "2.0"], pad=0)
@example(texts=["5." + "0" * 30, "1"], pad=0)
@example(texts=["1.5", "1e39"], pad=0)
def test_convert(expected: TypeFlag, texts: list[str | None], pad: int) -> None:
    """Whatever was expected, the outcome is that of a look at every cell."""
    before: list[str | None] = ["007", "1e400", None][:pad]
    cells = column([*before, *texts, *before]).slice(pad, len(texts))

    converted, seen = convert(cells, expected)

    true_bits = holds_of_all(texts)
    if not true_bits & ~TypeFlag.MISSING and not is_text(expected):
        assert column_dtype(seen) in ("string", column_dtype(expected))
        assert seen & TypeFlag.MISSING == true_bits
        assert converted.type == ARROW_TYPES[column_dtype(expected)]
        told = cells if converted.type == pa.string() else column([None] * len(texts))
        assert converted.cast(pa.string()).equals(told)
        return
    wanted = column_dtype(expected | true_bits)
    assert column_dtype(seen) == wanted
    assert wanted == "string" or not seen & ~(expected | true_bits)
    assert converted.type == ARROW_TYPES[wanted]
    naive = [naive_value(text, wanted) for text in texts]
    assert all(map(same, converted.to_pylist(), naive)), (converted, naive)


@given(st.lists(st.floats(-3.4e38, 3.4e38), min_size=1))
def test_floats_are_those_of_python(values: list[float]) -> None:
    texts: list[str | None] = [repr(value) for value in values]
    converted, _ = convert(column(texts), TypeFlag.DECIMAL | TypeFlag.INTEGER)
    assert converted.to_pylist() == values


@given(st.from_regex(r"[1-9][0-9]{0,40}\.[0-9]{1,40}(e-?[0-9]{1,2})?", fullmatch=True))
@example("1.00000005960464477539062500000000000000000001")  # between two float32
@example("9007199254740993.0")  # halfway between two float64
def test_float32_is_that_of_python(text: str) -> None:
    converted, _ = convert(column([text]), TypeFlag.DECIMAL)
    with np.errstate(over="ignore"):
        assert np.float32(converted[0].as_py()) == np.float32(float(text))


def test_nothing_in_a_column_takes_the_expected_type() -> None:
    converted, seen = convert(column([None, None]), TypeFlag.INTEGER)
    assert converted.equals(pa.array([None, None], pa.int64()))
    assert seen is TypeFlag.NOTHING


def test_no_rows() -> None:
    converted, seen = convert(column([]), TypeFlag.DECIMAL)
    assert (len(converted), seen) == (0, TypeFlag.NOTHING)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["true", "False"] * 100, TypeFlag.BOOLEAN),
        (["12", "-12", "0"] * 100, TypeFlag.INTEGER),
        (["12.0", "-12.0", "0.0", None, "7"] * 100, TypeFlag.INTEGER),
        (["12345678901234567.0", "-12345678901234567.0"] * 100, TypeFlag.INTEGER),
        (["0.12345678901234567", "-0.12345678901234567"] * 100, TypeFlag.DECIMAL),
        (
            ["-1.5e-7", "3", "0", ".5"] * 50 + ["0.25"],
            TypeFlag.INTEGER | TypeFlag.DECIMAL,
        ),
    ],
)
def test_usual_columns_take_the_fast_path(
    texts: list[str | None], expected: TypeFlag, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []
    read_each = text_values.match_values

    def noting(
        cells: pa.StringArray, dtype: str, *, strict: bool
    ) -> tuple[pa.Array, text_values.Mask]:
        looked_at.append(len(cells))
        return read_each(cells, dtype, strict=strict)

    monkeypatch.setattr(text_values, "match_values", noting)
    convert(column(texts), expected)
    assert sum(looked_at) <= len(texts) / 4, "the regular expressions are slow"


TABLES = st.lists(COLUMNS | CELLS, max_size=6)


def columns_of(table: list[list[str | None]]) -> list[pa.StringArray]:
    """Some of them as slices, as parts of a table are."""
    return [pa.array(["0", *cells], pa.string()).slice(1) for cells in table]


@given(TABLES)
@example([[None, None], [], ["1", None, "x"], ["1.5"]])
def test_classify_together(table: list[list[str | None]]) -> None:
    columns = columns_of(table)
    assert classify_columns(columns) == list(map(classify, columns))


@given(TABLES, st.data())
@example([["1", "2"], ["3", "007"], [None]], TypeFlag.INTEGER)
@example([["x"], ["007"]], TypeFlag.MISSING)
def test_convert_together(
    table: list[list[str | None]], data: st.DataObject | TypeFlag
) -> None:
    columns = columns_of(table)
    if isinstance(data, TypeFlag):
        flags = [int(data)] * len(columns)
    else:
        other = st.sampled_from([0, *map(int, TypeFlag)])
        own = [int(classify(cells)) for cells in columns]
        flags = [data.draw(st.just(flag) | other) for flag in own]
    each = [convert(cells, flag) for cells, flag in zip(columns, flags, strict=True)]
    converted, observed = convert_columns(columns, flags)
    assert observed == [int(seen) for _, seen in each]
    for ours, (theirs, _) in zip(converted, each, strict=True):
        assert ours.type == theirs.type
        assert repr(ours.to_pylist()) == repr(theirs.to_pylist())  # nan and -0.0, too


@given(TABLES, st.data())
def test_long_cells_and_full_groups_change_nothing(
    table: list[list[str | None]], data: st.DataObject
) -> None:
    columns = columns_of(table)
    flags = [data.draw(st.sampled_from([0, *map(int, TypeFlag)])) for _ in columns]
    arrays, observed = convert_columns(columns, flags)
    classes = classify_columns(columns)
    with (
        patch.object(text_values, "_LONG_CELL", 1),
        patch.object(text_values, "_PIECE_BYTES", 2),
        patch.object(text_columns, "_GROUP_BYTES", 16),
    ):
        assert classify_columns(columns) == classes
        long_arrays, long_observed = convert_columns(columns, flags)
    assert long_observed == observed
    for long_array, array in zip(long_arrays, arrays, strict=True):
        assert long_array.type == array.type
        assert repr(long_array.to_pylist()) == repr(array.to_pylist())


@pytest.mark.parametrize("text", ["", "a'b", "\xe4" * 70_000, "'\u8a9e\"" * 30_000])
def test_a_long_cell_is_shown_by_its_ends(text: str) -> None:
    cells = column(["before", text])
    assert text_values.shorten_cell(cells, 1) == text_values.shorten(text)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
@given(texts=COLUMNS)
def test_long_cells_are_as_invalid_as_short_ones(
    dtype: str, texts: list[str | None]
) -> None:
    invalid = find_invalid_cells(column(texts), dtype).tolist()
    with patch.object(text_values, "_LONG_CELL", 1):
        assert find_invalid_cells(column(texts), dtype).tolist() == invalid


def test_steps_do_not_grow_with_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand columns of integers take as many casts as one."""
    casts = []
    cast = text_columns.read_as_dtype

    def counted(cells: pa.StringArray, dtype: str) -> pa.Array | None:
        casts.append(len(cells))
        return cast(cells, dtype)

    monkeypatch.setattr(text_columns, "read_as_dtype", counted)
    convert_columns(columns_of([["1", "22"]] * 1000), [int(TypeFlag.INTEGER)] * 1000)
    assert casts == [2000]


LONG_NUMBERS = st.one_of(
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
    found = count_issues(
        pa.record_batch({"x": cells}),
        pa.record_batch({"x": pa.array(floats, pa.float64())}),
    )
    return sum(each.count for each in found)


@given(st.lists(st.none() | LONG_NUMBERS, max_size=8))
@example(["-0.1234567", ".12345678", "0.012345678", "1234567.0", "12345670"])
@example(["16777217", "16777216", "0.30000000000000004", "20000000", "1234567."])
def test_digits_are_counted_but_zeros_at_either_end(texts: list[str | None]) -> None:
    expected = sum(is_long(text) for text in texts if text)
    for loops in (native.loops, native.numpy_loops):
        with patch.object(text_columns.native, "loops", loops):
            assert counted(texts) == expected


def test_a_decimal_comma() -> None:
    batch = pa.record_batch({"x": [1.5, 12345.678901], "y": ["a", "b"]})
    table = pa.record_batch({"x": ["1,5", "12345,678901"], "y": ["123456789", "b"]})
    assert count_issues(table, batch) == (RowIssue("digits", "x", 1, "12345,678901"),)


@pytest.mark.parametrize(("columns", "warnings"), [(0, 0), (5, 5), (20, 6), (200, 6)])
def test_warnings_of_many_columns(columns: int, warnings: int) -> None:
    names = [f"c{n}" for n in range(columns)]
    table = pa.record_batch({name: ["16777217", "1"] for name in names})
    batch = pa.record_batch({name: [16777217.0, 1.0] for name in names})
    found = count_issues(table, batch)
    told = long_warnings(found, names)
    assert len(told) == warnings
    if columns > 5:
        more = min(columns, 101) - 5  # those behind the first hundred are one
        assert told[-1].message.startswith(
            f"{more} more columns of float32 with numbers of"
        )
        assert f"  and {more} more columns\n" in exact_problem(found, names)
    assert bool(exact_problem(found, names)) == bool(columns)
