"""The compiled loop reads numbers as Arrow does, or leaves them to it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from example_counts import fuzzed
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.transforms import native
from recordmill.transforms.cast.text_values import read_column, read_plain
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.native.interface import _load

pytestmark = pytest.mark.fuzz

_loops = _load()
PLAIN = st.from_regex(r"-?(0|[1-9][0-9]{0,16})(\.[0-9]{1,8})?", fullmatch=True)
ODD = st.from_regex(
    r"[-+]?[0-9]{0,20}\.?[0-9]{0,20}(e-?[0-9]{1,2}|[ x])?", fullmatch=True
)
FLOATS = st.floats(-1e9, 1e9).map("{:f}".format) | st.floats(-1e9, 1e9).map(repr)
CELLS = st.lists(st.none() | PLAIN | FLOATS, max_size=12)
ODD_CELLS = st.lists(st.none() | PLAIN | ODD, max_size=4)
NOT_PLAIN = [
    "",
    "-",
    "+1",
    " 1",
    "1 ",
    "01",
    "-01.5",
    "1.",
    ".5",
    "-.5",
    "1..2",
    "1.2.3",
]
NOT_PLAIN += ["1,5", "1e5", "nan", "0x10", "\u0661", "1.5-", "1-"]


@fuzzed()
@given(texts=CELLS | ODD_CELLS, dtype=st.sampled_from(["int64", "float64"]))
@example(texts=["999999999999999999", "-999999999999999999", None, "0"], dtype="int64")
@example(texts=["1000000000000000000"], dtype="int64")
@example(texts=["-9223372036854775808"], dtype="int64")
@example(texts=["-0"], dtype="int64")
@example(
    texts=["-0", "-0.0", "9007199254740991", "0.9007199254740991"], dtype="float64"
)
@example(texts=["9007199254740993"], dtype="float64")
@example(texts=["9999999999999999999", "1.000000000000000000"], dtype="float64")
def test_numbers_are_those_of_arrow(texts: list[str | None], dtype: str) -> None:
    cells = pa.array(texts, pa.string())
    plain = read_plain(cells, dtype)
    if plain is None or plain.null_count == len(plain):
        return
    plain.validate(full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", numpy_loops)
        wanted = read_column(cells, dtype, strict=True)
    assert wanted is not None
    assert plain.type == wanted.type
    assert repr(plain.to_pylist()) == repr(wanted.to_pylist())  # tells -0.0 from 0.0


@given(
    texts=st.lists(st.none() | st.integers(1 - 10**18, 10**18 - 1).map(str), min_size=1)
)
def test_integers_are_read(texts: list[str | None]) -> None:
    read = read_plain(pa.array(texts, pa.string()), "int64")
    assert read is not None
    assert read.to_pylist() == [text if text is None else int(text) for text in texts]


@given(texts=st.lists(st.floats(-1e6, 1e6).map("{:.6f}".format), min_size=1))
def test_decimals_are_read(texts: list[str]) -> None:
    read = read_plain(pa.array(texts), "float64")
    assert read is not None
    assert repr(read.to_pylist()) == repr(list(map(float, texts)))


@pytest.mark.parametrize("text", NOT_PLAIN)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_what_is_not_plain_is_left_to_arrow(text: str, dtype: str) -> None:
    assert read_plain(pa.array(["1", text, "2"]), dtype) is None


def test_types_and_slices_that_are_left_to_arrow() -> None:
    cells = pa.array(["1", None])
    assert read_plain(cells, "bool") is None
    assert read_plain(cells.slice(1), "int64") is None
    assert read_plain(cells.slice(0, 0), "int64") is None


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("offsets", np.array([0, 1], np.int32)),
        ("offsets", np.array([0, 2, 1], np.int32)),
        ("offsets", np.array([-1, 1, 2], np.int32)),
        ("offsets", np.array([0, 1, 3], np.int32)),
        ("valid", b""),
        ("target", np.zeros(3, np.int64)),
    ],
)
def test_cells_outside_are_refused(change: str, to: object) -> None:
    given_ = {
        "offsets": np.array([0, 1, 2], np.int32),
        "data": b"12",
        "valid": b"\3",
        "is_float": False,
        "target": np.zeros(2, np.int64),
    }
    assert _loops.parse_numbers(*given_.values()) is True
    with pytest.raises(ValueError, match="outside the data"):
        _loops.parse_numbers(*(given_ | {change: to}).values())
    with pytest.raises(TypeError):
        _loops.parse_numbers(*(given_ | {"valid": "no buffer"}).values())
    assert _loops.mark_long_numbers(given_["offsets"], b"12", bytearray(2)) is True
    for offsets, marks in (((0, 1, 3), 2), ((0, 2, 1), 2), ((-1, 1, 2), 2), ((0,), 1)):
        with pytest.raises(ValueError, match="outside the data"):
            _loops.mark_long_numbers(
                np.array(offsets, np.int32), b"12", bytearray(marks)
            )
