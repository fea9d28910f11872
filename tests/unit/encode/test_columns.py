"""What a column may hold for its feature, and the errors that say what it may not."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import RecordmillError, RowsError, SchemaError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms import arrow
from recordmill.transforms.encode.columns import check_types, is_list
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.row_errors import is_utf8

INT64, FLOAT, BYTES = Kind.INT64, Kind.FLOAT, Kind.BYTES


def encode_column(array: pa.Array, kind: Kind, **facts: Any) -> pa.BinaryArray:
    if is_list(array.type):
        facts.setdefault("shape", (None,))
    schema = Schema((FeatureSpec("f", kind, column="c", **facts),))
    return encode(pa.RecordBatch.from_arrays([array], ["c"]), schema)


WRONG_TYPES = [
    (INT64, [1.0], pa.float64(), "1.0 in row 0", "1.0 is not a valid int64"),
    (INT64, [None, None, 2.5], pa.float32(), "2.5 in row 2", "first value not null"),
    (INT64, ["1"], pa.string(), "'1' in row 0", "text is no number"),
    (FLOAT, [7], pa.int64(), "7 in row 0", "no silent loss above 2**24"),
    (FLOAT, [True], pa.bool_(), "True in row 0", "a boolean is an int64"),
    (BYTES, [7], pa.int32(), "7 in row 0", "a number is no text"),
    (INT64, [[], None, [1.5]], pa.list_(pa.float64()), "1.5 in row 2", "in a list"),
    (INT64, [], pa.float64(), "", "an empty batch"),
    (INT64, [None, None], pa.float64(), "", "nothing but nulls"),
]


WAY_OUT = {
    INT64: "declare a dtype that fits, int64_list can hold the column",
    FLOAT: "declare a dtype that fits, float_list can hold the column",
    BYTES: "declare a dtype that fits, bytes_list can hold the column",
}


def way_out(arrow_type: pa.DataType) -> str:
    if pa.types.is_floating(arrow_type):
        return WAY_OUT[FLOAT]
    return WAY_OUT[BYTES if pa.types.is_string(arrow_type) else INT64]


@pytest.mark.parametrize(
    ("kind", "values", "arrow_type", "found", "reason"), WRONG_TYPES
)
def test_wrong_type(
    kind: Kind, values: list[Any], arrow_type: pa.DataType, found: str, reason: str
) -> None:
    value_type = getattr(arrow_type, "value_type", arrow_type)
    example = f", for example {found}" if found else ""
    with pytest.raises(SchemaError) as caught:
        encode_column(pa.array(values, arrow_type), kind)
    assert str(caught.value) == (
        f"feature 'f': {kind} cannot hold column 'c' of type {value_type}{example}: "
        f"{way_out(value_type)}"
    ), reason


DECIMAL = "declare its dtype, a float, an integer or string"
PARTS = "leave it out, or split its parts into separate columns"
NO_ANSWER = [
    (pa.decimal128(9, 2), DECIMAL),
    (pa.decimal256(50, 2), DECIMAL),
    (pa.list_(pa.decimal128(9, 2)), DECIMAL),
    (pa.struct([("x", pa.int64())]), PARTS),
    (pa.map_(pa.string(), pa.int64()), PARTS),
    (pa.list_(pa.struct([("x", pa.int64())])), PARTS),
    (pa.month_day_nano_interval(), PARTS),
    (pa.dense_union([pa.field("a", pa.int64())]), PARTS),
]


@pytest.mark.parametrize(("arrow_type", "way_out"), NO_ANSWER, ids=str)
def test_types_without_an_answer(arrow_type: pa.DataType, way_out: str) -> None:
    for kind in Kind:
        schema = Schema((FeatureSpec("f", kind, shape=(None,)),))
        with pytest.raises(SchemaError) as caught:
            check_types(pa.schema([("f", arrow_type)]), schema)
        assert str(caught.value).endswith(f": {way_out}")


WRONG_DEPTHS = [
    (pa.int64(), (3,), "0, but shape [3] requires 1", "a scalar for a list"),
    (pa.list_(pa.int64()), (), "1, but shape [] requires 0", "a list for a scalar"),
    (
        *(pa.list_(pa.list_(pa.int64())), (None,)),
        *("2, but shape [null] requires 1", "deep"),
    ),
    (
        *(pa.list_(pa.int64()), (None, None)),
        *("1, but shape [null, null] requires 2", "flat"),
    ),
    (
        *(pa.list_(pa.int64()), (None, None, 2)),
        *("1, but shape [null, null, 2] requires 2 to 3", "the last may lie flat"),
    ),
    (pa.list_(pa.null()), (), "1, but shape [] requires 0", "of no type"),
]


@pytest.mark.parametrize(("arrow_type", "shape", "said", "reason"), WRONG_DEPTHS)
def test_lists_and_shape_differ(
    arrow_type: pa.DataType, shape: tuple[int | None, ...], said: str, reason: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        encode_column(pa.array([], arrow_type), INT64, shape=shape)
    assert str(caught.value) == (
        f"feature 'f': column 'c' of type {arrow_type} has list depth {said}: "
        "declare the shape that the column has"
    ), reason


def test_all_columns_are_checked_before_the_run() -> None:
    arrow_schema = pa.schema(
        [("a", pa.int8()), ("b", pa.string()), ("c", pa.decimal128(3, 1))]
    )
    schema = Schema(tuple(FeatureSpec(name, INT64) for name in "abcd"))
    with pytest.raises(SchemaError) as caught:
        check_types(arrow_schema, schema)
    assert str(caught.value).splitlines() == [
        f"feature 'b': int64_list cannot hold column 'b' of type string: {WAY_OUT[BYTES]}",
        "  feature 'c': int64_list cannot hold column 'c' of type decimal128(3, 1): "
        + DECIMAL,
        "  feature 'd': no column 'd' among a, b, c",
    ]


def test_long_example_is_cut_short() -> None:
    with pytest.raises(SchemaError) as caught:
        encode_column(pa.array([b"x" * 10_000_000]), INT64)
    assert len(str(caught.value)) < 200


BEYOND = 9_223_372_036_854_775_808  # 2**63
BEYOND_REASON = (
    "feature 'f': 9223372036854775808 is beyond int64 "
    "(-9223372036854775808 to 9223372036854775807)"
)
LOST_REASON = "feature 'f': 1e+39 is beyond float32 (at most 3.4e38)"
NULL_REASON = "feature 'f': a list contains an empty or null value"

BAD_ROWS = [
    (
        *(INT64, pa.array([1, BEYOND, None, BEYOND], pa.uint64())),
        *([1, 3], [BEYOND_REASON] * 2),
        "scalars",
    ),
    (
        *(
            INT64,
            pa.array([[1], None, [], [2, BEYOND, BEYOND + 1]], pa.list_(pa.uint64())),
        ),
        *([3], [BEYOND_REASON]),
        "of two bad values in a row the first is named",
    ),
    (
        *(FLOAT, pa.array([1e39, 0.0, None, -1e39], pa.float64())),
        *([0, 3], [LOST_REASON, LOST_REASON.replace("1e", "-1e")]),
        "beyond float32",
    ),
    (
        *(FLOAT, pa.array([[], [1.0], [0.0, 1e39]], pa.large_list(pa.float64()))),
        *([2], [LOST_REASON]),
        "beyond float32 in a list",
    ),
    (
        *(INT64, pa.array([[1], [None], None, [2, None]], pa.list_(pa.int64()))),
        *([1, 3], [NULL_REASON] * 2),
        "null in a list",
    ),
    (
        *(BYTES, pa.array([["a", None], None, ["b", "c"]], pa.list_(pa.string(), 2))),
        *([0], [NULL_REASON]),
        "null in a list of fixed size",
    ),
    (
        *(BYTES, pa.array([[], [None]], pa.list_(pa.null()))),
        *([1], [NULL_REASON]),
        "null in a list of nothing else",
    ),
    (
        *(INT64, pa.array([[0], [1], [BEYOND]], pa.list_(pa.uint64())).slice(1)),
        *([1], [BEYOND_REASON]),
        "rows count from the slice's start",
    ),
]


@pytest.mark.parametrize(("kind", "array", "rows", "reasons", "why"), BAD_ROWS)
def test_bad_rows(
    kind: Kind, array: pa.Array, rows: list[int], reasons: list[str], why: str
) -> None:
    with pytest.raises(RowsError) as caught:
        encode_column(array, kind)
    assert caught.value.errors == dict(zip(rows, reasons, strict=True)), why
    more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
    assert str(caught.value) == f"row {rows[0]}: {reasons[0]}{more}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.errors, str(again)) == (caught.value.errors, str(caught.value))


def test_rows_that_remain_can_be_encoded() -> None:
    array = pa.array([1, BEYOND, 3], pa.uint64())
    kept = encode_column(array.filter(pa.array([True, False, True])), INT64)
    assert kept.equals(encode_column(pa.array([1, 3]), INT64))


FITS = [
    (FLOAT, pa.array([3.4028235e38]), "float32's largest"),
    (FLOAT, pa.array([3.40282352e38]), "rounds down to float32's largest"),
    (FLOAT, pa.array([1e-50]), "underflow is rounding, as in the tutorials"),
    (FLOAT, pa.array([float("inf"), float("-inf"), float("nan")]), "not lost"),
    (INT64, pa.array([BEYOND - 1], pa.uint64()), "int64's largest as uint64"),
    (FLOAT, pa.array([np.float16(0.5), None], pa.float16()), "half"),
]


@pytest.mark.parametrize(("kind", "array", "reason"), FITS)
def test_values_that_just_fit(kind: Kind, array: pa.Array, reason: str) -> None:
    assert len(encode_column(array, kind)) == len(array), reason


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("shape", [(), (2,), (None,), (None, None)])
def test_column_of_no_type_holds_nothing(
    kind: Kind, shape: tuple[int | None, ...]
) -> None:
    encoded = encode_column(pa.nulls(3), kind, shape=shape)
    assert encoded.to_pylist() == [b"\n\x00"] * 3


PAIRS = [[1, 2], [3, 4]]
ALIKE = [
    (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int64(), (2,)),
            pa.array(PAIRS, pa.list_(pa.int64(), 2)),
        ),
        *(pa.array(PAIRS), {"shape": (2,)}, "an extension is its storage"),
    ),
    (
        pc.run_end_encode(pa.array([7, 7, None, 8])).slice(1),
        *(pa.array([7, None, 8]), {}, "runs are decoded"),
    ),
    (
        pa.array([[], None], pa.list_(pa.null())),
        *(pa.array([[], None], pa.list_(pa.int64())), {}, "empty lists of no type"),
    ),
    (
        pa.array([[], None], pa.list_(pa.null())),
        pa.array([[], None], pa.list_(pa.list_(pa.int64()))),
        *({"shape": (None, None)}, "nested empty lists of no type"),
    ),
    (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([5, None])),
        *(pa.array([5, None, 5]), {}, "a null in a dictionary"),
    ),
    (
        pa.ListViewArray.from_arrays(
            pa.array([2, 0, 1], pa.int32()),
            pa.array([1, 2, 0], pa.int32()),
            pa.array([1, 2, 3]),
        ),
        *(pa.array([[3], [1, 2], []]), {}, "views out of order"),
    ),
    (
        pa.ListArray.from_arrays(
            pa.array([0, 2, 3], pa.int32()),
            pa.array([1, 2, 3]),
            mask=pa.array([True, False]),
        ),
        *(pa.array([None, [3]]), {}, "a null with items"),
    ),
    (
        pa.array([0, -1, None, 1 << 40], pa.timestamp("us", "Europe/Berlin")),
        *(pa.array([0, -1, None, 1 << 40]), {}, "times are Arrow's own integers"),
    ),
    (
        pa.array([19_000, None], pa.date32()),
        *(pa.array([19_000, None]), {}, "so are dates"),
    ),
]


@pytest.mark.parametrize(("array", "plain", "facts", "reason"), ALIKE)
def test_columns_that_are_encoded_alike(
    array: pa.Array, plain: pa.Array, facts: dict[str, Any], reason: str
) -> None:
    expected = encode_column(plain, INT64, **facts)
    assert encode_column(array, INT64, **facts).equals(expected), reason


def utf8_by_value(values: list[bytes]) -> bool:
    try:
        for value in values:
            value.decode()
    except UnicodeDecodeError:
        return False
    return True


# Starts and ends of characters, so that broken ones join to whole ones.
PIECES = st.lists(
    st.sampled_from([b"", b"a", "ß".encode(), b"\xc3", b"\x9f", b"\xff"]), max_size=3
).map(b"".join)


@examples(300)
@given(st.lists(PIECES, max_size=4), st.integers(0, 2))
def test_utf8_is_judged_by_value(values: list[bytes], start: int) -> None:
    array = pa.array(values, pa.binary()).slice(start)
    assert is_utf8(array) == utf8_by_value(values[start:])


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary(), pa.string()])
def test_text_that_is_no_utf8(arrow_type: pa.DataType) -> None:
    values = [b"ok", "ß".encode(), None, b"caf\xe9", b"\xc3", b"\x9f"]
    array = pa.array(values, pa.binary())
    if arrow_type == pa.string():
        array = array.view(arrow_type)  # as a file may hold it: Arrow checks nothing
    else:
        array = array.cast(arrow_type)
    with pytest.raises(RowsError) as caught:
        encode_column(array, BYTES, dtype="string")
    assert list(caught.value.errors) == [3, 4, 5]
    reason = "feature 'f': not UTF-8: b'\\xe9' at byte 3 of the value"
    assert caught.value.errors[3] == reason
    assert len(encode_column(array, BYTES, dtype="bytes")) == len(values)


def test_integers_declared_for_a_float_list() -> None:
    exact = [0, 1 << 24, -(1 << 63), (1 << 62) + (1 << 39), 16_777_218]
    rounded = [(1 << 24) + 1, -(1 << 24) - 1, (1 << 62) + (1 << 38), (1 << 63) - 1]
    array = pa.array([*exact, *rounded, None])
    with pytest.raises(RowsError) as caught:
        encode_column(array, FLOAT, dtype="int64")
    assert list(caught.value.errors) == [5, 6, 7, 8]
    reason = "16777217 would be rounded in float32: declare an integer dtype"
    assert caught.value.errors[5] == f"feature 'f': {reason}"
    floats = pa.array([float(value) for value in exact], pa.float32())
    assert encode_column(array[:5], FLOAT, dtype="int64").equals(
        encode_column(floats, FLOAT)
    )


def test_reasons_of_all_features_at_once() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([BEYOND, 1, 1, BEYOND], pa.uint64()),
            "b": pa.array([1e39, 1e39, 0, 0]),
        }
    )
    schema = Schema((FeatureSpec("a", INT64), FeatureSpec("b", FLOAT)))
    with pytest.raises(RowsError) as caught:
        encode(batch, schema)
    found = {row: reason[:11] for row, reason in caught.value.errors.items()}
    assert found == {0: "feature 'a'", 1: "feature 'b'", 3: "feature 'a'"}


SHAPES = [
    (
        *((3,), [[1, 2, 3], [1, 2], None, [], [1, 2, 3, 4]]),
        *(dict.fromkeys((1, 3, 4), "dimension 0, expected 3"), "all dimensions known"),
    ),
    (
        *((2, None, 3), [[0] * 6, [0] * 12, [], [0] * 9, None]),
        *({3: "9 values, expected a multiple of 6"}, "a multiple of the known part"),
    ),
    (*((None,), [[], [1], [1, 2]]), *({}, "any length")),
    (
        *((0, None), [[], [1]]),
        *({1: "1 value, expected a multiple of 0"}, "nothing inside 0"),
    ),
    (
        *((2, None), [[[1], [2]], [[1]], [[], []], None]),
        *({1: "length 1 in dimension 0, expected 2"}, "outer lists"),
    ),
    (
        *((2, None), [[[1], [2]], [[1], [2, 3]], [[], []], None]),
        *(
            {1: "length 2 in dimension 1, expected 1"},
            "inner lists of one row are of one length",
        ),
    ),
    (
        *((None, 2), [[[1, 2], [3, 4]], [[1, 2], [3]], []]),
        *({1: "length 1 in dimension 1, expected 2"}, "each inner list"),
    ),
    (
        *((None, None, 2), [[[1, 2, 3, 4], []], [[1]], []]),
        *({1: "1 value, expected a multiple of 2"}, "ragged, the last dimension flat"),
    ),
    (
        *((None, 2, None), [[[[1], []]], [[[1]]], [[[], [], []]]]),
        *(
            dict.fromkeys((1, 2), "dimension 1, expected 2"),
            "ragged, a known dimension between",
        ),
    ),
]


@pytest.mark.parametrize(("shape", "rows", "wrong", "why"), SHAPES)
def test_lists_that_do_not_fit_the_shape(
    shape: tuple[int | None, ...], rows: list[Any], wrong: dict[int, str], why: str
) -> None:
    array = pa.array(rows)
    if not wrong:
        assert len(encode_column(array, INT64, shape=shape)) == len(rows), why
        return
    with pytest.raises(RowsError) as caught:
        encode_column(array, INT64, shape=shape)
    assert list(caught.value.errors) == list(wrong), why
    for reason, expected in zip(
        caught.value.errors.values(), wrong.values(), strict=True
    ):
        assert reason.startswith("feature 'f': "), why
        assert reason.endswith(f"{expected} (shape {json.dumps(list(shape))})"), why


def test_missing_column() -> None:
    with pytest.raises(SchemaError, match=r"^feature 'f': no column 'c' among a, b$"):
        encode(
            pa.RecordBatch.from_pydict({"a": [1], "b": [2]}),
            Schema((FeatureSpec("f", INT64, column="c"),)),
        )


def test_column_there_twice() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["c", "c"])
    with pytest.raises(SchemaError, match=r"^feature 'c': two columns 'c'$"):
        encode(batch, Schema((FeatureSpec("c", INT64),)))


def test_examples_beyond_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MAX_CELL_BYTES", 100)
    small, large = pa.array([b"x" * 60]), pa.array([b"x" * 60, b"y" * 40])
    assert len(encode_column(small, BYTES)) == 1
    with pytest.raises(
        RecordmillError, match=r"^a batch has 126 bytes; Arrow supports at most 100$"
    ):
        encode_column(large, BYTES)


def test_values_beyond_arrow() -> None:
    size = 3 << 30
    offsets = np.array([0, 1 << 30, 2 << 30, size])
    zeros = np.zeros(size, np.uint8)  # never read, so it takes no memory
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(zeros)]
    array = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 3, buffers)
    with pytest.raises(RecordmillError, match=rf"^a batch has {size} bytes; "):
        encode_column(array, BYTES)
