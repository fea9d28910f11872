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
    scatter,
    view_rows,
)
from recordmill.transforms.encode import wire
from recordmill.transforms.encode.wire import (
    delimited_stream,
    header_cells,
    headers_by_length,
    varint,
    varint_bytes,
    varint_lengths,
    varint_rows,
    varint_stream,
)

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
    rows = varint_rows(numbers, lengths)
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


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=30), st.integers(0, 3))
def test_scatter_lays_rows_end_to_end(texts: list[bytes], spare: int) -> None:
    """Excess of a row never stands in the next, nor behind the last one."""
    width = max(map(len, texts), default=1) + spare
    filler = b"\xee"
    matrix = np.frombuffer(
        b"".join(text.ljust(width, filler) for text in texts), np.uint8
    ).reshape(-1, width)
    offsets = offsets_of(np.array([len(text) for text in texts], np.int64))
    assert scatter(view_rows(matrix), offsets).tobytes() == b"".join(texts)


LENGTHS = [
    ([], "no rows"),
    ([0], "empty payload"),
    ([5, 5, 5], "one distinct length"),
    ([127, 128, 0, 16_383, 16_384, 127], "headers of three sizes"),
    ([65_535], "last that a table by length serves"),
    ([65_536, 1, 65_536, 70_000], "sorted instead of a table"),
]


@pytest.mark.parametrize(("lengths", "reason"), LENGTHS)
def test_headers_by_length(lengths: list[int], reason: str) -> None:
    asked: list[int] = []

    def make_header(length: int) -> bytes:
        asked.append(length)
        return b"\x0a" + varint(length)

    expected = [b"\x0a" + varint(length) for length in lengths]
    rows, sizes = headers_by_length(make_header, np.array(lengths, np.int64))
    found = [bytes(row)[:size] for row, size in zip(rows, sizes, strict=True)]
    assert found == expected, reason
    assert sorted(asked) == sorted(set(lengths)), "one call per distinct length"
    cells, cell_sizes = header_cells(make_header, np.array(lengths, np.int64))
    assert cells.to_pylist() == expected, reason
    assert cell_sizes.tolist() == [len(header) for header in expected]


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


LIMITS = st.sampled_from([1 << 7, 1 << 14, 1 << 21, 1 << 28, 1 << 35, U64_MAX])


@given(st.lists(st.one_of(st.integers(0, 200), st.sampled_from(BORDERS))), LIMITS)
def test_varint_stream_equals_protobuf(drawn: list[int], limit: int) -> None:
    values = [value for value in drawn if value < limit]
    offsets, data = varint_stream(np.array(values, np.uint64))
    wanted = [protobuf_varint(value) for value in values]
    assert data.tobytes() == b"".join(wanted)
    assert np.diff(offsets).tolist() == [len(varint) for varint in wanted]


@pytest.mark.parametrize(
    "largest", [300, (1 << 28) - 1, 1 << 28, (1 << 32) + 5, 1 << 40, U64_MAX]
)
def test_varint_stream_of_several_blocks(
    monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(wire, "_BLOCK_VALUES", 3)
    values = [1, 127, 128, largest, 0, 0, 200, largest]
    offsets, data = varint_stream(np.array(values, np.uint64))
    wanted = [protobuf_varint(value) for value in values]
    assert data.tobytes() == b"".join(wanted)
    assert offsets.tolist() == offsets_of(np.array([*map(len, wanted)])).tolist()


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
    offsets, data = delimited_stream(array, b"\x42")
    wanted = [b"\x42" + protobuf_varint(len(value)) + value for value in kept]
    assert data.tobytes() == b"".join(wanted)
    assert np.diff(offsets).tolist() == [len(field) for field in wanted]


def test_varint_bytes() -> None:
    values = [0, 127, 128, 16_383, 16_384, U64_MAX]
    assert [varint_bytes(value) for value in values] == [1, 1, 2, 2, 3, 10]
