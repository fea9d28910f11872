"""Arrow columns of every type as declared dtypes, against plain Python."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cast_tools import REFUSED, check, declare, rounded
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.errors import SchemaError
from recordmill.transforms.cast.cast_batch import check_columns

INT_DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOAT_DTYPES = ["float16", "float32", "float64"]


def in_range(value: int | None, dtype: str) -> Any:
    if value is None:
        return None
    limits = np.iinfo(dtype)
    return value if limits.min <= value <= limits.max else REFUSED


def integers(dtype: str) -> st.SearchStrategy[int | None]:
    limits = np.iinfo(dtype)
    edges = [e + s for e in (0, 127, 128, 255, 256, 2**11, 2**24) for s in (-1, 0, 1)]
    inside = [e for e in edges if limits.min <= e <= limits.max]
    return st.one_of(
        st.none(),
        st.integers(int(limits.min), int(limits.max)),
        st.sampled_from([*inside, int(limits.min), int(limits.max)]),
    )


@pytest.mark.parametrize("dtype", INT_DTYPES)
@pytest.mark.parametrize("source", INT_DTYPES)
@examples(25)
@given(data=st.data())
def test_integers_to_integers(source: str, dtype: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(integers(source), max_size=5))
    expected = [in_range(value, dtype) for value in values]
    check(pa.array(values, source), expected, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("source", ["int8", "int64", "uint64"])
@given(data=st.data())
def test_integers_to_floats_if_exact(
    source: str, dtype: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(integers(source), max_size=5))

    def exact(value: int | None) -> Any:
        if value is None:
            return None
        narrow = rounded(float(value), dtype)
        fits = narrow is not REFUSED and Fraction(narrow) == value
        return narrow if fits else REFUSED

    check(pa.array(values, source), list(map(exact, values)), dtype=dtype)


@given(st.lists(integers("int64"), max_size=6))
@example([0, 1, 2, -1, None])
def test_integers_to_booleans(values: list[int | None]) -> None:
    known = {0: False, 1: True, None: None}
    expected = [known.get(value, REFUSED) for value in values]
    check(pa.array(values, pa.int64()), expected, dtype="bool")


def test_booleans() -> None:
    values = pa.array([True, None, False])
    check(values, [True, None, False], dtype="bool")
    for dtype in INT_DTYPES:
        check(values, [1, None, 0], dtype=dtype)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("source", FLOAT_DTYPES)
@given(data=st.data())
def test_floats_to_floats(source: str, dtype: str, data: st.DataObject) -> None:
    width: Any = int(source.removeprefix("float"))
    floats = st.lists(st.none() | st.floats(width=width), max_size=5)
    values = data.draw(floats)
    column = pa.array(
        [None if v is None else np.dtype(source).type(v) for v in values],
        {"float16": pa.float16(), "float32": pa.float32()}.get(source, pa.float64()),
    )
    expected = [None if v is None else rounded(v, dtype) for v in values]
    check(column, expected, dtype=dtype)


DECIMAL_TYPES = [pa.decimal128(38, 4), pa.decimal256(60, 4), pa.decimal128(5, -2)]
DECIMALS = st.one_of(
    st.none(),
    st.decimals(-(10**30), 10**30, places=4),
    st.integers(-300, 300).map(Decimal),
    st.sampled_from([Decimal(2**63 - 1), Decimal(2**63), Decimal(-(2**63) - 1)]),
    st.sampled_from([Decimal(2**64 - 1), Decimal(2**64), Decimal("0.5")]),
)


@pytest.mark.parametrize("arrow_type", DECIMAL_TYPES[:2])
@given(values=st.lists(DECIMALS, max_size=5))
def test_decimals(arrow_type: pa.DataType, values: list[Decimal | None]) -> None:
    column = pa.array(values, arrow_type)
    for dtype in ("int8", "int64", "uint64"):
        limits = np.iinfo(dtype)
        whole = [
            None
            if v is None
            else int(v)
            if v == int(v) and limits.min <= v <= limits.max
            else REFUSED
            for v in values
        ]
        check(column, whole, dtype=dtype)
    for dtype in FLOAT_DTYPES:
        nearest = [None if v is None else rounded(float(v), dtype) for v in values]
        # Arrow has no decimal of -0.
        check(column, [v if v is None or v else 0.0 for v in nearest], dtype=dtype)
    text = [None if v is None else f"{v:.4f}" for v in column.to_pylist()]
    check(column, text, dtype="string")


def test_decimals_of_hundreds() -> None:
    column = pa.array([Decimal(12300), None], pa.decimal128(5, -2))
    check(column, [12300, None], dtype="int16")
    check(column, [12300.0, None], dtype="float32")


UNITS = {"d": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
COUNTS = st.one_of(
    st.none(),
    st.integers(-(10**4), 10**4),
    st.integers(-(10**12), 10**12),
    st.sampled_from([2**63 - 1, -(2**63), 86_400, 86_400_000, 1000, 10**9]),
    st.integers(-(2**63), 2**63 - 1),
)


def in_unit(count: int | None, unit: str, wanted: str) -> Any:
    if count is None:
        return None
    scaled, rest = divmod(count * UNITS[unit], UNITS[wanted])
    return scaled if not rest and -(2**63) <= scaled < 2**63 else REFUSED


@pytest.mark.parametrize("wanted", UNITS)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@examples(40)
@given(counts=st.lists(COUNTS, max_size=5))
def test_times_in_the_declared_unit(
    unit: str, wanted: str, counts: list[int | None]
) -> None:
    raw = pa.array(counts, pa.int64())
    expected = [in_unit(count, unit, wanted) for count in counts]
    for arrow_type in (
        pa.timestamp(unit),
        pa.timestamp(unit, "Europe/Paris"),
        pa.duration(unit),
    ):
        check(raw.view(arrow_type), expected, dtype="int64", unit=wanted)


def test_dates_and_times_of_day() -> None:
    days = pa.array([date(1970, 1, 2), None, date(9999, 12, 31)])
    check(days, [1, None, 2932896], dtype="int64", unit="d")
    check(days, [86_400, None, 2932896 * 86_400], dtype="int64", unit="s")
    check(days, [86_400 * 10**9, None, REFUSED], dtype="int64", unit="ns")
    check(days.cast(pa.date64()), [1, None, 2932896], dtype="int64", unit="d")
    clock = pa.array([time(0, 1), time(0, 0, 0, 5000), None])
    check(clock, [60_000, 5, None], dtype="int64", unit="ms")
    check(clock, [60, REFUSED, None], dtype="int64", unit="s")
    check(clock.slice(0, 1).cast(pa.time32("s")), [60], dtype="int64", unit="s")
    moments = pa.array([datetime(1970, 1, 1, 1), None])
    check(moments, [3600, None], dtype="int64", unit="s")
    check(pa.array([timedelta(hours=1)]), [3600], dtype="int64", unit="s")


class UuidLike(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.binary(2), "test.uuid")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_what_is_behind_other_types() -> None:
    ids = pa.ExtensionArray.from_storage(
        UuidLike(), pa.array([b"ab", None], pa.binary(2))
    )
    check(ids, [b"ab", None], dtype="bytes")
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], [7, 300])
    check(runs, [7, 7, REFUSED], dtype="int8")
    check(pa.array([5, None, 5]).dictionary_encode(), [5, None, 5], dtype="int8")
    check(pa.nulls(2), [None, None], dtype="float32", shape=[None, None])
    coded = pa.array(["1", "x"]).dictionary_encode()
    lists = pa.ListArray.from_arrays([0, 1, 2], coded)
    check(lists, [[1], REFUSED], dtype="int8", shape=[None])
    check(pa.array([[], None, []]), [[], None, []], dtype="int8", shape=[None, None])
    check(pa.array([[None]]), [REFUSED], dtype="int8", shape=[None, None])
    tensor = pa.fixed_shape_tensor(pa.int8(), (2,))
    pairs = pa.ExtensionArray.from_storage(
        tensor, pa.array([[1, 2]], pa.list_(pa.int8(), 2))
    )
    check(pairs, [[1, 2]], dtype="int64", shape=[2])


def test_text_and_binary_of_every_type() -> None:
    for arrow_type in (pa.string(), pa.large_string(), pa.string_view()):
        check(pa.array(["é", None], arrow_type), ["é".encode(), None], dtype="bytes")
    for arrow_type in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)):
        check(pa.array([b"ab", None], arrow_type), ["ab", None], dtype="string")


INF = float("inf")
BOUNDS: list[tuple[dict[str, Any], list[Any], list[Any], str]] = [
    ({"dtype": "int8", "min": 1, "max": 3}, [0, 1, 3, 4], [0, 1, 1, 0], "inclusive"),
    ({"dtype": "int8", "min": 0.5, "max": 2.5}, [0, 1, 2, 3], [0, 1, 1, 0], "between"),
    ({"dtype": "uint8", "min": -5, "max": 1000}, [0, 255], [1, 1], "beyond the dtype"),
    ({"dtype": "uint8", "max": -1}, [0, 255], [0, 0], "none is left"),
    ({"dtype": "int64", "max": 2**53}, [2**53, 2**53 + 1], [1, 0], "no float between"),
    ({"dtype": "float32", "max": 0.1}, [0.1, 0.2], [1, 0], "0.1 as a float32 is"),
    ({"dtype": "float32", "max": 1e300}, [INF, 1.0], [0, 1], "a bound float32 lacks"),
    ({"dtype": "float64", "min": 0}, [float("nan"), 0.0, -0.0], [0, 1, 1], "NaN"),
    ({"dtype": "bool", "min": 1}, [True, False], [1, 0], "true is 1"),
]


@pytest.mark.parametrize(("fields", "values", "inside", "reason"), BOUNDS)
def test_bounds(
    fields: dict[str, Any], values: list[Any], inside: list[int], reason: str
) -> None:
    expected = [
        rounded(v, fields["dtype"]) if isinstance(v, float) else v for v in values
    ]
    wanted = [v if i else REFUSED for v, i in zip(expected, inside, strict=True)]
    check(pa.array([*values, None]), [*wanted, None], **fields)


@given(st.lists(st.integers(-3, 5) | st.none(), max_size=6))
def test_class_indices(values: list[int | None]) -> None:
    expected = [v if v is None or v in (0, 1, 2) else REFUSED for v in values]
    for arrow_type in (pa.int8(), pa.int64()):
        check(pa.array(values, arrow_type), expected, classes=["a", "b", "c"])


UNFIT: list[tuple[pa.DataType, dict[str, Any], str]] = [
    (
        *(pa.float64(), {"dtype": "int64"}),
        "double cannot become int64: 1.0 is not an integer; declare a float dtype",
    ),
    (pa.bool_(), {"dtype": "float32"}, "bool cannot become float32"),
    (pa.int64(), {"dtype": "string"}, "int64 cannot become string"),
    (pa.float32(), {"dtype": "bytes"}, "float cannot become bytes"),
    (
        *(pa.binary(), {"dtype": "int8"}),
        "binary cannot become int8: binary values contain a list; declare a shape",
    ),
    (
        *(pa.date32(), {"dtype": "int32"}),
        "date32[day] cannot become int32: declare dtype int64 and a unit",
    ),
    (
        *(pa.timestamp("s"), {"dtype": "int64"}),
        "timestamp[s] becomes int64 only with a declared unit: set unit to d, s, ms, "
        "us or ns",
    ),
    (
        *(pa.time32("s"), {"dtype": "int64", "unit": "d"}),
        "time32[s] is a time of day, which cannot be stored in days; use unit: s",
    ),
    (
        *(pa.struct([("x", pa.int8())]), {"dtype": "int8"}),
        "struct<x: int8> cannot become int8: leave the column out, or split its parts "
        "into separate columns",
    ),
    (
        *(pa.list_(pa.int8()), {"dtype": "int8"}),
        "list<item: int8> contains lists, but the schema declares a single value: set "
        "a shape",
    ),
    (
        *(pa.list_(pa.int8()), {"dtype": "int8", "shape": [None, None]}),
        "list<item: int8> nests 1 lists, but shape [null, null] requires 2",
    ),
    (
        *(pa.list_(pa.list_(pa.int8())), {"dtype": "int8", "shape": [2, 2, 2]}),
        "list<item: list<item: int8>> nests 2 lists, but shape [2, 2, 2] requires 1 or "
        "3",
    ),
    (
        *(pa.list_(pa.list_(pa.int8())), {"dtype": "int8", "sequence": True}),
        "list<item: list<item: int8>> nests lists, but a step is a single value",
    ),
    (
        *(pa.list_(pa.int8()), {"dtype": "int8", "sequence": True, "shape": [None]}),
        "cannot split flat lists into steps of shape [null]; use nested lists, "
        "or JSON cells",
    ),
    (
        *(pa.int8(), {"dtype": "int8", "shape": [1]}),
        "int8 contains single values, but the schema declares a list",
    ),
    (
        *(pa.string(), {"dtype": "int8", "shape": [1]}),
        "a text cell is one value, but the schema declares a list: set separator or "
        "cell: json",
    ),
    (
        *(pa.int8(), {"dtype": "bytes", "bytes_from": "path"}),
        "int8 does not contain paths: bytes_from needs a text column",
    ),
    (
        *(pa.string(), {"dtype": "bytes", "bytes_from": "path", "sequence": True}),
        "a column of paths has one file per row: remove sequence",
    ),
    (
        *(pa.string(), {"dtype": "int8", "classes": [str(i) for i in range(200)]}),
        "200 classes are too many for int8: declare int64",
    ),
]


@pytest.mark.parametrize(("arrow_type", "fields", "reason"), UNFIT)
def test_types_that_do_not_fit(
    arrow_type: pa.DataType, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        check_columns(pa.schema([("c", arrow_type)]), declare(**fields))
    assert str(caught.value) == f"feature 'f': column 'c': {reason}"
