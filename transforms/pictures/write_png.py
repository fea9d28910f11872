"""Writes PNGs whose bytes depend on their pixels alone.

    89 "PNG" 0D 0A 1A 0A | IHDR | PLTE and tRNS for a palette | IDAT | IEND
    chunk: u32 length | type | data | u32 crc

Every choice is fixed: one IDAT, no interlacing, compression by `deflate`. Before a row of
a palette stands filter 0, before all others 4: what is stored is the difference to the
one of three neighbours that is nearest to left + above - above left.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recordmill.transforms.pictures.deflate import BLOCK_BYTES, Bytes, deflate

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by channels
_PALETTE_TYPE = 3
_NO_FILTER, _PAETH = 0, 4

Pixels = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
ReadRows = Callable[[int, int], Pixels]


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a picture whose pixels are numbers of colours.

    Attributes:
      colours: red, green and blue of each.
      alpha: opacity of the first ones; those that follow are opaque.
    """

    colours: bytes
    alpha: bytes = b""


def write_png(
    height: int,
    width: int,
    channels: int,
    rows: ReadRows,
    *,
    sample_bytes: int = 1,
    palette: Palette | None = None,
) -> bytes:
    """Returns a picture as PNG.

    Args:
      height: rows.
      width: pixels in a row.
      channels: 1 gray, 2 gray and alpha, 3 colours, 4 colours and alpha.
      rows: returns the rows from a first one to before another one, each of `width` x
        `channels` samples; asked for a few at a time, so that memory stays small.
      sample_bytes: 1 or 2.
      palette: the colours that the samples of one channel stand for.
    """
    colour_type = _COLOUR_TYPES[channels] if palette is None else _PALETTE_TYPE
    header = struct.pack(
        ">IIBBBBB", width, height, 8 * sample_bytes, colour_type, 0, 0, 0
    )
    parts = [_SIGNATURE, *_chunk(b"IHDR", [header])]
    if palette is not None:
        parts += _chunk(b"PLTE", [palette.colours])
        if palette.alpha:
            parts += _chunk(b"tRNS", [palette.alpha])
    row_bytes = width * channels * sample_bytes
    pixel_bytes = 0 if palette else channels * sample_bytes
    filtered = _filter(height, row_bytes, pixel_bytes, rows)
    return b"".join([*parts, *_chunk(b"IDAT", deflate(filtered)), *_chunk(b"IEND", [])])


def _filter(
    height: int, row_bytes: int, pixel_bytes: int, rows: ReadRows
) -> Iterator[Bytes]:
    """Yields rows with their filter byte, some at a time; filter 0 for pixel_bytes 0."""
    step = max(1, BLOCK_BYTES // (row_bytes + 1))
    above = np.zeros((1, row_bytes), np.uint8)
    for start in range(0, height, step):
        band = _bytes_of(rows(start, min(start + step, height)), row_bytes)
        filtered = np.empty((len(band), row_bytes + 1), np.uint8)
        if pixel_bytes:
            filtered[:, 0] = _PAETH
            predicted = _paeth(np.concatenate([above, band]), pixel_bytes)
            np.subtract(band, predicted, out=filtered[:, 1:])
        else:
            filtered[:, 0] = _NO_FILTER
            filtered[:, 1:] = band
        above = band[-1:]
        yield filtered.reshape(-1)


def _bytes_of(pixels: Pixels, row_bytes: int) -> Bytes:
    """Returns the bytes of each row; numbers of two bytes begin with the higher one."""
    if pixels.dtype.itemsize == 2:
        pixels = pixels.astype(">u2")
    return np.ascontiguousarray(pixels).view(np.uint8).reshape(-1, row_bytes)


def _paeth(rows: Bytes, pixel_bytes: int) -> Bytes:
    """Returns what is predicted for each byte of all rows but the first.

    >>> _paeth(np.array([[10, 20], [30, 45]], np.uint8), 1).tolist()
    [[10, 30]]

    Left of 30 is nothing, so 0; above it 10; above left 0. 0 + 10 - 0 is nearest to 10.
    Around 45: left 30, above 20, above left 10; 30 + 20 - 10 = 40 is nearest to 30.
    """
    left = np.zeros((len(rows) - 1, rows.shape[1]), np.uint8)
    corner = left.copy()
    left[:, pixel_bytes:] = rows[1:, :-pixel_bytes]
    corner[:, pixel_bytes:] = rows[:-1, :-pixel_bytes]
    above = rows[:-1]
    across = above.astype(np.int16) - corner  # distance of the estimate to `left`
    down = left.astype(np.int16) - corner  # ... to `above`
    to_left, to_above, to_corner = np.abs(across), np.abs(down), np.abs(across + down)
    is_left = (to_left <= to_above) & (to_left <= to_corner)
    return np.where(is_left, left, np.where(to_above <= to_corner, above, corner))


def _chunk(kind: bytes, data: list[bytes]) -> list[bytes]:
    crc = zlib.crc32(kind)
    for part in data:
        crc = zlib.crc32(part, crc)
    size = sum(map(len, data))
    return [struct.pack(">I", size), kind, *data, struct.pack(">I", crc)]
