from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.internal import encoder
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms import arrow
from recordmill.transforms.arrow import binary_array, require_fit
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


@given(st.lists(st.one_of(st.integers(0, U64_MAX), st.sampled_from(BORDERS))))
def test_varint_rows_equal_protobuf(values: list[int]) -> None:
    wanted = [protobuf_varint(value) for value in values]
    assert varints_by_row(values) == wanted
    assert [varint(value) for value in values] == wanted


def test_binary_array_beyond_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MAX_CELL_BYTES", 4)
    data = np.zeros(5, np.uint8)
    with pytest.raises(
        RecordmillError, match=r"^a batch has 5 bytes; Arrow supports at most 4$"
    ):
        binary_array(np.array([0, 2, 5]), data)


def test_the_most_bytes_of_a_batch() -> None:
    """Offsets are int32."""
    require_fit(np.iinfo(np.int32).max)
    with pytest.raises(RecordmillError, match=r"at most 2147483647$"):
        require_fit(np.iinfo(np.int32).max + 1)
