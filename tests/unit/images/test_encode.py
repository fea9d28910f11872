"""Our PNGs and zlib streams: Pillow and zlib are the oracle, and the bytes are pinned."""

from __future__ import annotations

import io
import zlib
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.transform import (
    BLOCK_BYTES,
    MAX_CODE_BITS,
    code_lengths,
    deflate,
    pack_bits,
    write_png,
)


def stream(*pieces: bytes) -> bytes:
    return b"".join(deflate(np.frombuffer(piece, np.uint8) for piece in pieces))


@given(st.lists(st.binary(max_size=300), max_size=4))
@example([])
@example([b"", b"a" * 1000, bytes(range(256)) * 3])
def test_zlib_reads_it(pieces: list[bytes]) -> None:
    assert zlib.decompress(stream(*pieces)) == b"".join(pieces)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_blocks(more: int) -> None:
    data = np.random.default_rng(1).integers(0, 9, BLOCK_BYTES + more, np.uint8)
    assert zlib.decompress(stream(data.tobytes())) == data.tobytes()


def test_the_bytes_are_pinned() -> None:
    """They are those of datasets that were written: a change needs a FORMAT_VERSION."""
    data = bytes(number * number % 251 for number in range(5000))
    assert zlib.crc32(stream(data, data[:70])) == 2187796147


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=257))
@example([1, 1])
@example([2**n for n in range(30)])
@example([0, 1, *(2**n for n in range(30)), 0])
def test_code_lengths(counts: list[int]) -> None:
    counts[0] += 1
    counts[1] += 1
    lengths = code_lengths(counts)
    used = [length for length in lengths if length]
    assert [bool(length) for length in lengths] == [bool(count) for count in counts]
    assert max(used) <= MAX_CODE_BITS
    assert sum(Fraction(1, 2**length) for length in used) == 1  # a whole code
    if sum(counts) < 1000:  # less than needs a code of 15 bits, so none was shortened
        ranked = sorted(zip(counts, lengths, strict=True))
        for (count, length), (other, other_length) in pairwise(ranked):
            assert count == other or not count or length >= other_length


@given(
    st.lists(
        st.integers(0, 15).flatmap(
            lambda n: st.tuples(st.just(n), st.integers(0, 2**n - 1))
        ),
        min_size=1,
    )
)
def test_pack_bits(numbers: list[tuple[int, int]]) -> None:
    expected, place = 0, 0
    for num_bits, value in numbers:
        expected |= value << place
        place += num_bits
    bits, values = zip(*numbers, strict=True)
    found = pack_bits(np.array(values, np.uint64), np.array(bits, np.uint8))
    assert found == expected.to_bytes((place + 7) // 8, "little")


SHAPES = arrays.array_shapes(min_dims=3, max_dims=3, max_side=40).map(
    lambda shape: (*shape[:2], 1 + shape[2] % 4)
)


def png_of(samples: Any) -> bytes:
    gray = samples.shape[2:] == (1,)
    return write_png(Image.fromarray(samples[:, :, 0] if gray else samples))


@given(st.data())
def test_any_pixels(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    kind = np.uint16 if shape[2] == 1 and data.draw(st.booleans()) else np.uint8
    samples = data.draw(arrays.arrays(kind, shape))
    written = png_of(samples)
    check_image(written)
    with Image.open(io.BytesIO(written)) as image:
        assert np.array_equal(np.asarray(image).reshape(shape), samples)


@pytest.mark.parametrize("height", [1, 37, 38, 39, 75, 1000])
def test_bands_of_37_rows(height: int) -> None:
    """Each row once, in order, and a band sees the last row of the one before."""
    samples = np.random.default_rng(3).integers(0, 255, (height, 2300, 3), np.uint8)
    with Image.open(io.BytesIO(png_of(samples))) as image:
        assert np.array_equal(np.asarray(image), samples)


def test_the_bytes_of_pngs_are_pinned() -> None:
    """They are those of datasets that were written: a change needs a FORMAT_VERSION."""
    samples = (np.arange(5000).reshape(25, 50, 4) ** 2 % 251).astype(np.uint8)
    assert zlib.crc32(png_of(samples)) == 3197721415
    indices = (np.arange(60).reshape(6, 10) % 7).astype(np.uint8)
    image = Image.fromarray(indices).convert("L")
    image.putpalette(bytes(range(30)))
    image.info["transparency"] = b"\0\7"
    assert zlib.crc32(write_png(image)) == 697479185
