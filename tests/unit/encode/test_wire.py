from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.internal import encoder
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms import arrow
from recordmill.transforms.arrow import (
    array_parts,
    binary_array,
    offsets_of,
    require_fit,
)
from recordmill.transforms.encode.tensors import delimited_stream, header_cells
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.native.numpy_loops import varint, varint_lengths

U64_MAX = (1 << 64) - 1

VARINTS = [
    (0, b"\x00", "zero still takes a byte"),
    (1, b"\x01", "smallest value"),
    (127, b"\x7f", "last of one byte"),
    (128, b"\x80\x01", "first of two bytes"),
    (300, b"\xac\x02", "the example of protobuf.dev"),
    (16_383, b"\xff\x7f", "last of two bytes"),
    (16_384, b"\x80\x80\x01", "first of three bytes"),
    (2_097_151, b"\xff\xff\x7f", "last of three bytes"),
    (1 << 63, b"\x80" * 9 + b"\x01", "int64's lowest value: ten bytes"),
    (U64_MAX, b"\xff" * 9 + b"\x01", "-1 as two's complement"),
]

# Every border between two sizes, and its neighbours.
BORDERS = [(1 << (7 * size)) + step for size in range(1, 10) for step in (-1, 0, 1)]


def protobuf_varint(value: int) -> bytes:
    parts: list[bytes] = []
    encoder._EncodeVarint(parts.append, value)
    return b"".join(parts)


def varints_by_row(values: list[int]) -> list[bytes]:
    numbers = np.array(values, np.uint64)
    lengths = varint_lengths(numbers)
    rows = numpy_loops._varint_rows(numbers, lengths)
    return [
        bytes(row[:length]) for row, length in zip(rows, lengths.tolist(), strict=True)
    ]


@pytest.mark.parametrize(("value", "expected", "reason"), VARINTS)
def test_varint_literal(value: int, expected: bytes, reason: str) -> None:
    assert varint(value) == expected, reason
    assert varints_by_row([value]) == [expected], reason


def test_varint_rows_at_every_border_in_one_array() -> None:
    values = [0, *BORDERS, U64_MAX]
    assert varints_by_row(values) == [protobuf_varint(value) for value in values]


@given(st.lists(st.one_of(st.integers(0, U64_MAX), st.sampled_from(BORDERS))))
def test_varint_rows_equal_protobuf(values: list[int]) -> None:
    wanted = [protobuf_varint(value) for value in values]
    assert varints_by_row(values) == wanted
    assert [varint(value) for value in values] == wanted


def test_offsets_start_at_zero() -> None:
    assert offsets_of(np.array([3, 0, 2])).tolist() == [0, 3, 3, 5]
    assert offsets_of(np.array([], np.int64)).tolist() == [0]


LENGTHS = [
    ([], "no rows"),
    ([0], "empty payload"),
    ([5, 5, 5], "one distinct length"),
    ([127, 128, 0, 16_383, 16_384, 127], "headers of three sizes"),
    ([65_535], "last that a table by length serves"),
    ([65_536, 1, 65_536, 70_000], "sorted instead of a table"),
]


@pytest.mark.parametrize(("lengths", "reason"), LENGTHS)
def test_header_cells(lengths: list[int], reason: str) -> None:
    asked: list[int] = []

    def make_header(length: int) -> bytes:
        asked.append(length)
        return b"\x0a" + varint(length)

    expected: list[bytes] = [b"\x0a" + varint(length) for length in lengths]
    cells = header_cells(make_header, np.array(lengths, np.int64))
    assert cells.to_pylist() == expected, reason
    assert sorted(asked) == sorted(set(lengths)), "one call per distinct length"
    valid = np.arange(len(lengths)) % 2 == 0
    expected[1::2] = [b""] * len(expected[1::2])
    cells = header_cells(make_header, np.array(lengths, np.int64), valid)
    assert cells.to_pylist() == expected, reason


def test_binary_array_rows() -> None:
    data = np.frombuffer(b"abcde", np.uint8)
    array = binary_array(np.array([0, 2, 2, 5]), data)
    assert array.to_pylist() == [b"ab", b"", b"cde"]
    array.validate(full=True)


def test_binary_array_beyond_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MAX_CELL_BYTES", 4)
    data = np.zeros(5, np.uint8)
    with pytest.raises(
        RecordmillError, match=r"^a batch has 5 bytes; Arrow can hold at most 4$"
    ):
        binary_array(np.array([0, 2, 5]), data)


def test_the_most_bytes_of_a_batch() -> None:
    """Offsets are int32."""
    require_fit(np.iinfo(np.int32).max)
    with pytest.raises(RecordmillError, match=r"at most 2147483647$"):
        require_fit(np.iinfo(np.int32).max + 1)


@pytest.mark.parametrize(("first", "stop"), [(0, 4), (1, 3), (3, 4), (3, 3), (2, 4)])
def test_parts_of_a_slice(first: int, stop: int) -> None:
    values = [b"ab", b"", b"cde", b"f"]
    array = pa.array(values, pa.binary()).slice(first, stop - first)
    offsets, data = array_parts(array)
    assert offsets.dtype == np.int64
    found = [bytes(data[a:b]) for a, b in pairwise(offsets.tolist())]
    assert found == values[first:stop]


VALUES = st.lists(
    st.one_of(
        st.binary(max_size=5),
        st.builds(
            lambda size: b"x" * size, st.sampled_from([31, 32, 33, 127, 128, 300])
        ),
    ),
    max_size=6,
)


@given(VALUES, st.integers(0, 2), st.integers(0, 2))
def test_delimited_stream_of_a_slice(
    values: list[bytes], before: int, behind: int
) -> None:
    kept = values[before : len(values) - behind]
    array = pa.array(values, pa.binary()).slice(before, len(kept))
    fields = delimited_stream(array, b"\x42")
    wanted = [b"\x42" + protobuf_varint(len(value)) + value for value in kept]
    assert fields.to_pylist() == wanted
