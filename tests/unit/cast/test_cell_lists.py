"""Lists in text cells, in JSON and in Arrow columns, against plain Python."""

from __future__ import annotations

import json
import math
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from cast_tools import REFUSED, Refusal, check, outcome, rounded
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.transforms.cast import cell_lists

WHITE = " \t\n\v\f\r"
Shape = tuple[int | None, ...]


class WrongError(Exception):
    """What the naive reading refuses."""


def nested_value(value: Any, shape: Shape, leaf: Any) -> Any:
    """A value of nested lists in a shape, checked and converted one by one."""
    if not shape:
        return leaf(value)
    if not isinstance(value, list) or (shape[0] is not None and len(value) != shape[0]):
        raise WrongError
    return [nested_value(item, shape[1:], leaf) for item in value]


def in_shape(value: Any, shape: Shape, leaf: Any, sequence: bool = False) -> Any:
    """As the feature's column has it: flat, if at most one dimension is unknown."""
    if value is None:
        return None
    if sequence:
        if not isinstance(value, list):
            raise WrongError
        if None in value:
            raise WrongError
        return [in_shape(step, shape, leaf) for step in value]
    value = nested_value(value, shape, leaf)
    if not shape or shape.count(None) > 1:
        return value
    array = [value]
    for _ in shape[1:]:
        # One array has one size in each dimension.
        array = [item for part in array for item in part]
        if len({len(item) for item in array}) > 1:
            raise WrongError
    return [item for part in array for item in part]


def json_leaf(dtype: str, classes: list[str] | None = None) -> Any:
    def leaf(value: Any) -> Any:
        if classes:
            if isinstance(value, str) and value in classes:
                return classes.index(value)
            if type(value) is int and 0 <= value < len(classes):
                return value
        elif dtype == "bool" and isinstance(value, bool):
            return value
        elif dtype == "string" and isinstance(value, str):
            if any(0xD800 <= ord(char) < 0xE000 for char in value):
                raise WrongError
            return value
        elif dtype == "bytes" and isinstance(value, str):
            return leaf_of_string(value)
        elif dtype.startswith(("int", "uint")) and type(value) is int:
            limits = np.iinfo(dtype)
            if limits.min <= value <= limits.max:
                return value
        elif dtype.startswith("float") and isinstance(value, float):
            narrow = rounded(value, dtype)
            if narrow is not REFUSED:
                return narrow
        raise WrongError

    leaf_of_string = (
        (lambda value: json_leaf("string")(value).encode())
        if dtype == "bytes"
        else None
    )
    return leaf


def finite(digits: str) -> float:
    if math.isinf(float(digits)):
        raise WrongError
    return float(digits)


def naive_json(
    text: str | None,
    shape: Shape,
    dtype: str,
    classes: list[str] | None = None,
    sequence: bool = False,
) -> Any:
    text = None if text is None else text.strip(WHITE)
    if not text:
        return None
    floats = dtype.startswith("float")
    try:
        value = json.loads(
            text, parse_float=finite, parse_int=finite if floats else int
        )
        return in_shape(value, shape, json_leaf(dtype, classes), sequence)
    except (ValueError, RecursionError, WrongError):
        return REFUSED


LEAVES = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30]),
    st.floats(),
    st.floats(width=16),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.sampled_from(["cat", "dog", "\ud800", "\0", 'a"}\n{"v":"b']),
    st.just({"v": 1}),
)
ODD_JSON = [
    *('1} {"v":2', '1}\n{"v":[2]', '1,"v":2', '1,"w":2', '"a"}\n{"v":"b"', "1}"),
    *("[1,]", "[,1]", "[1 2]", "[1", "1]", "[[1]", "[[1],2]", "nul", "NULL", "tru"),
    *("[007]", "[+7]", "[.5]", "[1.]", "[1e5]", "[-0]", "[1e400]", "[1.0]", "-", "'a'"),
    *("[NaN]", "[-Infinity]", "[Infinity, 1]", "[nan]", "[inf]", "/* */ [1]", "[1]//"),
    *("", " ", "null", " null ", "[null]", "\ufeff[1]", "[1]\0", "[1]\u00a0", "[\v1]"),
    *('"\\ud83d\\ude00"', '"\\ud800"', '"\\u0000"', '"a\nb"', '"a\tb"', '"\\x"', '"'),
    *('{"v":1}', "{}", "[{}]", "[" * 5000, "[" * 50 + "]" * 50, "9" * 5000, "\\", "{"),
]


def json_texts(levels: int) -> st.SearchStrategy[str | None]:
    values: st.SearchStrategy[Any] = st.one_of(
        st.integers(-3, 100), st.floats(width=16), st.booleans(), st.text("cadotg")
    )
    for _ in range(levels):
        values = st.lists(values, max_size=2) | st.lists(values, min_size=2, max_size=2)
    wild = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
    return st.one_of(
        st.none(),
        values.map(json.dumps),
        values.map(lambda value: json.dumps(value, indent=1)),
        wild.map(json.dumps),
        wild.map(lambda value: json.dumps(value, ensure_ascii=True)),
        st.sampled_from(ODD_JSON),
    )


def uniform_texts(levels: int) -> st.SearchStrategy[list[str]]:
    """Columns that Arrow's reader takes as a whole, now and then."""
    values: Any = st.integers(0, 1)
    for _ in range(levels):
        values = st.lists(values, min_size=2, max_size=2)
    return st.lists(values.map(json.dumps), max_size=6)


SHAPES: list[Shape] = [(), (2,), (None,), (2, 2), (None, 2), (2, None), (None, None)]
SHAPES += [(None, 2, None), (1, None, None)]
DTYPES = ["bool", "int8", "int64", "uint64", "float32", "float64", "string", "bytes"]


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_json_equals_python(shape: Shape, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    some = st.lists(json_texts(len(shape)), max_size=7)
    texts = data.draw(some | uniform_texts(len(shape)))
    expected = [naive_json(text, shape, dtype) for text in texts]
    block_rows = data.draw(st.integers(1, 5))
    with mock.patch.object(cell_lists, "_BLOCK_ROWS", block_rows):
        check(texts, expected, dtype=dtype, shape=shape, cell="json")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (None,), (None, 2)])
def test_odd_json(shape: Shape, dtype: str) -> None:
    expected = [naive_json(text, shape, dtype) for text in ODD_JSON]
    check(ODD_JSON, expected, dtype=dtype, shape=shape, cell="json")


@pytest.mark.parametrize("shape", [(), (2,), (None, 2), (None, None)])
@given(data=st.data())
def test_json_sequences_equal_python(shape: Shape, data: st.DataObject) -> None:
    texts = data.draw(st.lists(json_texts(len(shape) + 1), max_size=5))
    expected = [naive_json(text, shape, "float32", sequence=True) for text in texts]
    check(*(texts, expected), dtype="float32", shape=shape, cell="json", sequence=True)


CLASSES = ["cat", "dog"]


@given(
    st.lists(
        st.one_of(
            st.lists(st.sampled_from(["cat", "dog"])).map(json.dumps),
            st.lists(st.integers(0, 1)).map(json.dumps),
            json_texts(1),
        ),
        max_size=6,
    )
)
@example(["[0, 1]", "[1]", "[2]", "[-1]"])
@example(['["cat"]', "[1]", '["cat", 1, "bird"]'])
def test_json_labels_equal_python(texts: list[str]) -> None:
    expected = [naive_json(text, (None,), "int64", CLASSES) for text in texts]
    check(texts, expected, classes=CLASSES, shape=[None], cell="json")


def test_json_with_few_wrong_cells_among_many() -> None:
    """Only the blocks that hold them are read row by row."""
    texts = [f"[{i}, {i + 1}]" for i in range(5000)]
    wrong = {7: "[1", 8: "[1, 2.5]", 2500: "x", 4999: '1} {"v":[2]'}
    for row, text in wrong.items():
        texts[row] = text
    with mock.patch.object(
        cell_lists, "_read_cell", wraps=cell_lists._read_cell
    ) as read:
        found = outcome(texts, dtype="int64", shape=[2], cell="json")
    assert [i for i, one in enumerate(found) if isinstance(one, Refusal)] == [*wrong]
    assert all(found[i] == [i, i + 1] for i in range(5000) if i not in wrong)
    assert read.call_count <= 3 * cell_lists._BLOCK_ROWS


# Separated


def naive_split(text: str | None, separator: str, shape: Shape, leaf: Any) -> Any:
    text = None if text is None else text.strip(WHITE)
    if not text:
        return None
    try:
        values = [leaf(part.strip(WHITE)) for part in text.split(separator)]
        return flat_in_shape(values, shape)
    except (ValueError, WrongError):
        return REFUSED


def flat_in_shape(values: list[Any], shape: Shape) -> list[Any]:
    size = math.prod(side for side in shape if side is not None)
    fits = len(values) % size == 0 if None in shape else len(values) == size
    if not fits:
        raise WrongError
    return values


def small_int(text: str) -> int:
    text = text.removesuffix(".0")
    if not -128 <= int(text) <= 127:
        raise WrongError
    return int(text)


PARTS = st.one_of(
    st.integers(-130, 130).map(str),
    st.integers(-9, 9).map(" {} ".format),
    st.sampled_from(["", "x", "1.0", "1.5", " "]),
)


@pytest.mark.parametrize("shape", [(2,), (None,), (None, 2), (2, 2)])
@pytest.mark.parametrize("separator", [";", "||"])
@given(data=st.data())
def test_separated_integers(shape: Shape, separator: str, data: st.DataObject) -> None:
    cells = st.lists(PARTS, max_size=4).map(separator.join)
    texts = data.draw(st.lists(st.none() | cells, max_size=6))
    expected = [naive_split(text, separator, shape, small_int) for text in texts]
    check(texts, expected, dtype="int8", shape=shape, separator=separator)


@given(st.lists(st.none() | st.text("ab; ;é", max_size=6), max_size=6))
def test_separated_text(texts: list[str | None]) -> None:
    expected = [naive_split(text, ";", (None,), str) for text in texts]
    check(texts, expected, dtype="string", shape=[None], separator=";")


SEPARATED: list[tuple[dict[str, Any], str, Any, str]] = [
    ({"classes": CLASSES}, "dog, cat", [1, 0], "labels"),
    ({"dtype": "bytes", "cell": "hex"}, "00ff,01", [b"\0\xff", b"\1"], "hex"),
    ({"dtype": "bytes", "cell": "base64"}, "YQ==,Yg", [b"a", b"b"], "base64"),
    ({"dtype": "bool"}, "true,0", [True, False], "booleans"),
    ({"dtype": "int64", "unit": "d"}, "1970-01-02, 1970-01-01", [1, 0], "dates"),
    ({"dtype": "float32", "min": 0}, "1,nan", REFUSED, "NaN is within no bounds"),
    ({"dtype": "bytes"}, "é, b", ["é".encode(), b"b"], "bytes"),
]


@pytest.mark.parametrize(("fields", "text", "expected", "reason"), SEPARATED)
def test_separated_values_of_every_sort(
    fields: dict[str, Any], text: str, expected: Any, reason: str
) -> None:
    check([text], [expected], shape=[None], separator=",", **fields)


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=5))
def test_separated_steps(rows: list[list[int]]) -> None:
    texts = [";".join(map(str, row)) for row in rows]
    expected = [
        [row[i : i + 2] for i in range(0, len(row), 2)] if row else None for row in rows
    ]
    wanted = [
        REFUSED if len(row) % 2 else steps
        for row, steps in zip(rows, expected, strict=True)
    ]
    check(texts, wanted, dtype="int8", shape=[2], separator=";", sequence=True)


def test_separated_steps_of_single_values() -> None:
    fields: dict[str, Any] = {"dtype": "int8", "separator": ";", "sequence": True}
    check(["1;2", None, "x"], [[1, 2], None, REFUSED], **fields)


# Arrow lists

LIST_TYPES = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


@st.composite
def arrow_lists(draw: st.DrawFn, depth: int) -> pa.Array:
    kind: pa.DataType = draw(st.sampled_from([pa.int8(), pa.int64(), pa.uint16()]))
    values: Any = (
        st.none() | st.integers(0, 127)
        if draw(st.booleans())
        else (st.integers(0, 127))
    )
    for level in range(depth):
        if draw(st.booleans()) and draw(st.booleans()):
            kind = pa.list_(kind, 2)
            values = st.lists(values, min_size=2, max_size=2)
        else:
            kind = draw(st.sampled_from(LIST_TYPES))(kind)
            values = st.lists(values, max_size=3)
        if level == depth - 1 or draw(st.booleans()):
            values = st.none() | values
    rows = draw(st.lists(values, max_size=5))
    before = draw(st.integers(0, len(rows)))
    return pa.array(rows, kind).slice(before)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("shape", SHAPES[1:])
@given(data=st.data())
def test_arrow_lists_equal_python(
    shape: Shape, sequence: bool, data: st.DataObject
) -> None:
    column = data.draw(arrow_lists(len(shape) + sequence))

    def leaf(value: Any) -> Any:
        if value is None:
            raise WrongError
        return value

    expected = []
    for row in column.to_pylist():
        try:
            expected.append(in_shape(row, shape, leaf, sequence))
        except WrongError:
            expected.append(REFUSED)
    check(column, expected, dtype="int8", shape=shape, sequence=sequence)


@given(st.lists(st.none() | st.lists(st.integers(0, 9), max_size=7), max_size=6))
def test_flat_lists_fill_the_shape(rows: list[list[int] | None]) -> None:
    for shape in [(2, 2), (None, 3), (2, None), (0, None)]:
        expected = [
            None if row is None else row if fits(row, shape) else REFUSED
            for row in rows
        ]
        check(
            pa.array(rows, pa.list_(pa.int64())), expected, dtype="int64", shape=shape
        )


def test_shapes_beyond_all_lists() -> None:
    vast = [None, (1 << 31) - 1, (1 << 31) - 1, (1 << 31) - 1]
    column = pa.array([[], [1]], pa.list_(pa.int8()))
    wanted = Refusal(
        "1 value, expected a multiple of 4294967296 (shape [null, 2147483647, 2147483647, 2147483647])"
    )
    check(column, [[], wanted], dtype="int8", shape=vast)
    steps = Refusal(
        "1 value, expected a multiple of 4294967296 (steps of [2147483647, 2147483647, 2147483647])"
    )
    check(column, [[], steps], dtype="int8", shape=vast[1:], sequence=True)


def fits(row: list[int], shape: Shape) -> bool:
    try:
        np.zeros(len(row)).reshape([-1 if side is None else side for side in shape])
    except ValueError:
        # NumPy cannot tell an unknown dimension beside 0; no values do fit.
        return 0 in shape and not row
    return True


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32", "float64"])
@given(data=st.data())
def test_array_bytes_equal_numpy(dtype: str, data: st.DataObject) -> None:
    small = st.lists(st.integers(0, 1), max_size=4)
    arrays = data.draw(st.lists(st.none() | small, max_size=5))
    tail = data.draw(st.lists(st.binary(max_size=3), max_size=2))
    raw = [
        None if a is None else np.array(a, dtype).astype(f"<{np.dtype(dtype).str[1:]}")
        for a in arrays
    ]
    column: list[Any] = [None if a is None else a.tobytes() for a in raw]
    expected: list[Any] = [None if a is None else a.tolist() for a in raw]
    for extra in tail:
        if len(extra) % np.dtype(dtype).itemsize:
            column.append(extra)
            expected.append(REFUSED)
    odd_start = pa.array([b"x", *column], pa.binary()).slice(1)
    check(odd_start, expected, dtype=dtype, shape=[None])


def test_array_bytes_in_a_fixed_shape() -> None:
    pixels = pa.array([bytes(range(12)), bytes(11)], pa.binary())
    check(*(pixels, [list(range(12)), REFUSED]), dtype="uint8", shape=[2, 2, 3])
    check(pixels, [list(range(12)), REFUSED], dtype="uint8", shape=[2, 2, 3], max=11)
