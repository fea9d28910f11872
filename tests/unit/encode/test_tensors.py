"""Serialized tensors and arrays in bytes lists, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from job_tools import GOLDEN

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.encode.examples import encode, load_feature

Shape = tuple[int | None, ...]


def stored(array: pa.Array, dtype: str, shape: Shape, content: Content) -> list[Any]:
    """The bytes of every row, None for a null."""
    feature = FeatureSpec("f", Kind.BYTES, dtype=dtype, shape=shape, content=content)
    (column,) = load_feature(array, feature)
    assert column.lists is None
    rows = column.values.to_pylist()
    if column.valid is None:
        return rows
    return [
        row if valid else None for row, valid in zip(rows, column.valid, strict=True)
    ]


def tensors(array: pa.Array, dtype: str, shape: Shape) -> list[Any]:
    return stored(array, dtype, shape, Content.TENSOR)


def arrays(array: pa.Array, dtype: str, shape: Shape) -> list[Any]:
    return stored(array, dtype, shape, Content.ARRAY)


def golden() -> list[Any]:
    entries: list[Any] = json.loads((GOLDEN / "tensors.json").read_text())
    return entries


def nested(values: list[Any], shape: list[int]) -> Any:
    """Lists as deep as the shape."""
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    return [
        nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])
    ]


def typed(rows: list[Any], dtype: str, depth: int) -> pa.Array:
    arrow_type = pa.string() if dtype == "string" else pa.from_numpy_dtype(dtype)
    for _ in range(depth):
        arrow_type = pa.list_(arrow_type)
    return pa.array(rows, arrow_type)


@pytest.mark.parametrize(
    "entry", golden(), ids=lambda entry: f"{entry['dtype']}{entry['shape']}"
)
def test_golden(entry: dict[str, Any]) -> None:
    """Known and unknown dimensions, flat and nested lists: TensorFlow's bytes for all."""
    dtype, shape = entry["dtype"], entry["shape"]
    values = entry["values"]
    if dtype == "bool":
        values = [bool(value) for value in values]
    elif dtype.startswith(("int", "uint")):
        values = [int(value) for value in values]
    wanted = bytes.fromhex(entry["serialized_hex"])
    if not shape:
        assert tensors(typed([*values, None], dtype, 0), dtype, ()) == [wanted, None]
        return
    flat = typed([values, None, values], dtype, 1)
    deep = typed([nested(values, shape)] * 2, dtype, len(shape))
    assert tensors(flat, dtype, tuple(shape)) == [wanted, None, wanted]
    assert tensors(deep, dtype, tuple(shape)) == [wanted] * 2
    for place in range(len(shape)):
        one_open: Shape = tuple(None if i == place else n for i, n in enumerate(shape))
        if place == 0 or values:  # without a value an inner size stays unknown: 0
            assert tensors(deep, dtype, one_open) == [wanted] * 2
            assert tensors(flat, dtype, one_open) == [wanted, None, wanted]
    if values:
        assert tensors(deep, dtype, (None,) * len(shape)) == [wanted] * 2


def test_golden_are_all_there() -> None:
    assert len(golden()) == 49
    assert len({entry["dtype"] for entry in golden()}) == 13


def test_each_row_has_its_own_shape() -> None:
    rows = [[[1, 2, 3]], [], None, [[1, 2, 3], [4, 5, 6]], [[]], [[1]]]
    found = tensors(typed(rows, "uint8", 2), "uint8", (None, None))
    # 08 type | 12 len (12 len dim)* | 22 len content, by hand
    assert found == [
        bytes.fromhex("080412081202080112020803" + "2203010203"),
        bytes.fromhex("0804120412001200"),
        None,
        bytes.fromhex("080412081202080212020803" + "2206010203040506"),
        bytes.fromhex("08041206120208011200"),
        bytes.fromhex("080412081202080112020801" + "220101"),
    ]


def test_tensor_of_large_dimension() -> None:
    (found,) = tensors(typed([[7] * 300], "int8", 1), "int8", (None,))
    assert (
        found == bytes.fromhex("0806" + "12051203" + "08ac02" + "22ac02") + b"\7" * 300
    )


def test_numbers_keep_all_their_bits() -> None:
    whole = [(1 << 64) - 1, 1 << 63]
    (found,) = tensors(typed([whole], "uint64", 1), "uint64", (2,))
    assert found.endswith(np.array(whole, "<u8").tobytes())
    fine = [1e300, 0.1, -0.0]
    (found,) = tensors(typed([fine], "float64", 1), "float64", (3,))
    assert found.endswith(np.array(fine, "<f8").tobytes())


def test_text_in_a_tensor_is_checked() -> None:
    array = pa.array([[b"ok"], [b"a", b"\xff"]], pa.list_(pa.binary()))
    with pytest.raises(RowsError, match=r"^row 1: feature 'f': not UTF-8: "):
        tensors(array, "string", (None,))
    assert len(tensors(array, "bytes", (None,))) == 2


def test_number_beyond_the_dtype() -> None:
    array = pa.array([[1, 2], [3, 400], [-1, 0]])
    with pytest.raises(RowsError) as caught:
        tensors(array, "uint8", (2,))
    assert caught.value.errors == {
        1: "feature 'f': 400 is beyond uint8 (0 to 255)",
        2: "feature 'f': -1 is beyond uint8 (0 to 255)",
    }
    with pytest.raises(RowsError, match=r"70000\.0 is beyond float16 \(at most 65504"):
        tensors(pa.array([7e4]), "float16", ())


@pytest.mark.parametrize(
    ("array", "dtype", "reason"),
    [
        (pa.array([1.0]), "int64", "a float is no integer"),
        (pa.array([1]), "float32", "nor the other way"),
        (pa.array([1]), "bool", "a number is no bool"),
        (pa.array(["1"]), "int64", "text is no number"),
        (pa.array([1]), "string", "a number is no text"),
    ],
)
def test_type_that_is_not_the_dtype(array: pa.Array, dtype: str, reason: str) -> None:
    with pytest.raises(
        SchemaError, match=f"^feature 'f': tensor of {dtype} cannot hold"
    ):
        tensors(array, dtype, ())


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float64"])
def test_array_is_numpys_bytes(dtype: str) -> None:
    values = np.arange(12).astype(dtype)
    rows = [values[:6].tolist(), None, values[6:].tolist()]
    wanted = [values[:6].tobytes(), None, values[6:].tobytes()]
    assert arrays(typed(rows, dtype, 1), dtype, (2, 3)) == wanted
    assert arrays(typed(rows, dtype, 1), dtype, (None, 3)) == wanted
    cube = [values.reshape(2, 3, 2).tolist()]
    assert arrays(typed(cube, dtype, 3), dtype, (2, 3, 2)) == [values.tobytes()]
    scalars = [values[1].item(), None]
    assert arrays(typed(scalars, dtype, 0), dtype, ()) == [values[1].tobytes(), None]


def test_array_of_binary_stays_as_it_is() -> None:
    rows = [b"\1\0\2\0", b"", None]
    with pytest.raises(RowsError) as caught:
        arrays(pa.array(rows), "int16", (2,))
    assert caught.value.errors == {
        1: "feature 'f': 0 bytes are not an array of int16 of shape [2]"
    }
    assert arrays(pa.array(rows), "int16", (None,)) == rows
    fixed = pa.array([b"\1\0\2\0"], pa.binary(4))
    assert arrays(fixed, "int16", (1, None)) == [b"\1\0\2\0"]
    with pytest.raises(RowsError, match="3 bytes are not an array of int16 of shape"):
        arrays(pa.array([b"abc"]), "int16", (None,))
    assert arrays(pa.array(rows), "bytes", ()) == rows  # no dtype to check


def test_tensor_lies_in_a_bytes_list() -> None:
    feature = FeatureSpec("t", Kind.BYTES, dtype="int8", content=Content.TENSOR)
    batch = pa.RecordBatch.from_pydict({"t": pa.array([5, None], pa.int8())})
    first, second = encode(batch, Schema((feature,))).to_pylist()
    values = Example.FromString(first).features.feature["t"].bytes_list.value
    assert list(values) == [bytes.fromhex("08061200220105")]
    assert second == b"\n\x00"
