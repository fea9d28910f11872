"""What a column may hold for its feature, and the errors that say what it may not."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.errors import RecordmillError, RowsError, SchemaError
from schemas.features import FeatureSpec, Kind, Schema
from transforms import wire
from transforms.encode import encode

INT64, FLOAT, BYTES = Kind.INT64, Kind.FLOAT, Kind.BYTES


def encode_column(array: pa.Array, kind: Kind) -> pa.BinaryArray:
    schema = Schema((FeatureSpec("f", kind, column="c"),))
    return encode(pa.RecordBatch.from_arrays([array], ["c"]), schema)


WRONG_TYPES = [
    (INT64, [1.0], pa.float64(), "1.0 in row 0", "1.0 is no int64"),
    (INT64, [None, None, 2.5], pa.float32(), "2.5 in row 2", "first value not null"),
    (INT64, ["1"], pa.string(), "'1' in row 0", "text is no number"),
    (FLOAT, [7], pa.int64(), "7 in row 0", "no silent loss above 2**24"),
    (FLOAT, [True], pa.bool_(), "True in row 0", "a boolean is an int64"),
    (BYTES, [7], pa.int32(), "7 in row 0", "a number is no text"),
    (INT64, [[], None, [1.5]], pa.list_(pa.float64()), "1.5 in row 2", "in a list"),
]


@pytest.mark.parametrize(
    ("kind", "values", "arrow_type", "found", "reason"), WRONG_TYPES
)
def test_wrong_type(
    kind: Kind, values: list[Any], arrow_type: pa.DataType, found: str, reason: str
) -> None:
    value_type = getattr(arrow_type, "value_type", arrow_type)
    with pytest.raises(SchemaError) as caught:
        encode_column(pa.array(values, arrow_type), kind)
    assert str(caught.value) == (
        f"feature 'f': {kind} cannot hold column 'c' of type {value_type}, "
        f"for example {found}"
    ), reason


@pytest.mark.parametrize(
    ("values", "reason"), [([], "an empty batch"), ([None, None], "nothing but nulls")]
)
def test_wrong_type_without_an_example(values: list[Any], reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        encode_column(pa.array(values, pa.float64()), INT64)
    assert str(caught.value) == (
        "feature 'f': int64_list cannot hold column 'c' of type double"
    ), reason


def test_long_example_is_cut_short() -> None:
    with pytest.raises(SchemaError) as caught:
        encode_column(pa.array([b"x" * 10_000_000]), INT64)
    assert len(str(caught.value)) < 200


def test_list_of_lists_is_refused() -> None:
    with pytest.raises(
        SchemaError, match=r"of type list<item: int64>, for example \[1\] in row 0$"
    ):
        encode_column(pa.array([[[1]]]), INT64)


BEYOND = 9_223_372_036_854_775_808  # 2**63
BEYOND_REASON = (
    "feature 'f': 9223372036854775808 is beyond int64 (at most 9223372036854775807)"
)
LOST_REASON = "feature 'f': 1e+39 does not fit in float32 (at most 3.4e38)"
NULL_REASON = "feature 'f': a list holds a null value"

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
    assert caught.value.rows == rows, why
    assert caught.value.reasons == reasons, why
    more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
    assert str(caught.value) == f"row {rows[0]}: {reasons[0]}{more}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.rows, str(again)) == (rows, str(caught.value))


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


def test_extension_type_is_its_storage() -> None:
    tensor = pa.fixed_shape_tensor(pa.int64(), (2,))
    storage = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
    wrapped = pa.ExtensionArray.from_storage(tensor, storage)
    assert encode_column(wrapped, INT64).equals(encode_column(storage, INT64))


def test_missing_column() -> None:
    with pytest.raises(SchemaError, match=r"^feature 'f': no column 'c' in a, b$"):
        encode(
            pa.RecordBatch.from_pydict({"a": [1], "b": [2]}),
            Schema((FeatureSpec("f", INT64, column="c"),)),
        )


def test_column_there_twice() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["c", "c"])
    with pytest.raises(SchemaError, match=r"^feature 'c': two columns 'c' in c, c$"):
        encode(batch, Schema((FeatureSpec("c", INT64),)))


def test_examples_beyond_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_CELL_BYTES", 100)
    small, large = pa.array([b"x" * 60]), pa.array([b"x" * 60, b"y" * 40])
    assert len(encode_column(small, BYTES)) == 1
    with pytest.raises(RecordmillError, match=r"^a batch of 126 bytes is over 100, "):
        encode_column(large, BYTES)
