"""The content of files: the same wherever they are cut, and the CRC of the whole."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from content_tools import contents_of
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileChecksum
from recordmill.transforms.file_content import bytes_of_content
from recordmill.transforms.native.numpy_loops import (
    combine_all_crcs,
    combine_crcs,
    shift_crcs,
)
from recordmill.transforms.tfrecord import crc32c


def part(data: bytes, start: int, stop: int, path: str = "a") -> FileChecksum:
    return FileChecksum(path, start, stop, crc32c(data[start:stop]))


@given(st.binary(), st.binary(), st.integers(0, 100_000))
def test_the_checksum_of_bytes_and_others_behind_them(
    first: bytes, second: bytes, zeros: int
) -> None:
    second += bytes(zeros)
    found = combine_crcs(crc32c(first), crc32c(second), len(second))
    assert found == crc32c(first + second)


@given(st.lists(st.tuples(st.binary(), st.integers(0, 100_000))))
def test_the_checksums_of_many_parts(parts: list[tuple[bytes, int]]) -> None:
    datas = [data + bytes(zeros) for data, zeros in parts]
    crcs = np.array(list(map(crc32c, datas)), np.uint32)
    lengths = np.array(list(map(len, datas)), np.int64)
    assert combine_all_crcs(crcs, lengths) == crc32c(b"".join(datas))
    pairs = [crc32c(b"before" + data) for data in datas]
    before = np.full(len(datas), crc32c(b"before"), np.uint32)
    assert (shift_crcs(before, lengths) ^ crcs).tolist() == pairs


def test_the_checksums_of_huge_parts() -> None:
    """Zeros behind zeros behind a checksum, or all of them at once."""
    for first, second in [(1 << 32, 77_777), ((1 << 40) + 77_777, 1 << 62)]:
        crc = combine_crcs(combine_crcs(0x364B3FB7, 0, first), 0, second)
        assert crc == combine_crcs(0x364B3FB7, 0, first + second)


def test_parts_longer_than_four_gigabytes() -> None:
    """6 GB of zeros, made by doubling, stand before or behind three others."""
    length, zeros, three = 1_500_000, crc32c(bytes(1_500_000)), crc32c(bytes(3))
    for _ in range(12):
        zeros, length = combine_crcs(zeros, zeros, length), 2 * length
    assert length > 1 << 32
    assert combine_crcs(zeros, three, 3) == combine_crcs(three, zeros, length)


@given(st.binary(min_size=1), st.sets(st.integers(1, 100)), st.randoms())
def test_wherever_a_file_is_cut(
    data: bytes, cuts: set[int], order: random.Random
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    parts = [part(data, *edge) for edge in pairwise(edges)]
    parts += [*parts[:2], part(data, 0, min(3, len(data)))]
    order.shuffle(parts)
    sizes = {"a": len(data), "unread": 5}
    assert contents_of(parts, sizes) == {"a": f"crc32c:{crc32c(data):08x}"}


def test_what_was_read_of_a_file() -> None:
    data = bytes(range(100))
    parts = [
        part(data, 0, 40, "head"),
        part(data, 0, 40, "gap"),
        part(data, 50, 100, "gap"),
        part(data, 50, 100, "tail"),
        part(data, 0, 100, "not listed"),
    ]
    head = f"crc32c:{crc32c(data[:40]):08x}/40"
    assert contents_of(parts, dict.fromkeys(("head", "gap", "tail", "none"), 100)) == {
        "head": head,
        "gap": head,
        "tail": "",
    }
    assert bytes_of_content(head, 100) == 40


@pytest.mark.parametrize(
    "text",
    ["crc32c:", "crc32c:1", "crc32c:0123456g", "crc32c:00000000/", "crc32c:00000000/0",
     "crc32c:00000000/-1", "crc32c:00000000/9", "crc32c:00000000/4/4", "1700000000"],
)  # fmt: skip
def test_what_is_no_content(text: str) -> None:
    assert bytes_of_content(text, 9) is None


def test_a_part_that_was_read_twice_with_other_bytes() -> None:
    data = bytes(100)
    parts = [part(data, 0, 50), part(data, 50, 100), part(b"!" * 100, 50, 100)]
    with pytest.raises(
        ChangedInputError, match="a: bytes 50 to 100 differed between two reads"
    ):
        contents_of(parts, {"a": 100})
