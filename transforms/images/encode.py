"""Encodes pixels as JPEG, PNG or WebP, or gives them as they are.

A zlib library may give other bytes in each version, so PNGs are written here: their bytes
depend on their pixels alone.

    89 "PNG" 0D 0A 1A 0A | IHDR | PLTE and tRNS for a palette | IDAT | IEND
    chunk: u32 length | type | data | u32 crc

Every choice is fixed: one IDAT, no interlacing, compression by `deflate`. Before a row of
a palette stands filter 0, before all others 4: what is stored is the difference to the
one of three neighbours that is nearest to left + above - above left.

`deflate` makes blocks of the same size, each with its own Huffman code of single bytes,
no matches. Any zlib reads it. Three bytes 7 7 9 become one block. 7 stands twice, 9 and
the end of the block once:

    length of each code   7: 1 bit   9: 2 bits   end: 2 bits
    codes                 7: 0       9: 10       end: 11
    bits, from the left   0 0 10 11, after a header that has the lengths

An empty stored block follows each, so that it ends with a whole byte.
"""

from __future__ import annotations

import heapq
import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import U64
from recordmill.transforms.images.decode import GRAY_16
from recordmill.transforms.images.header import (
    ImageHeader,
    ImageHeaderError,
    read_header,
)
from recordmill.transforms.images.pixel_rules import Form

if TYPE_CHECKING:
    from PIL import Image

BLOCK_BYTES = 1 << 18  # fixes the bytes of the stream
MAX_CODE_BITS = 15

_NAMES = {"jpeg": "JPEG", "webp": "WebP"}
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by channels
_PALETTE_TYPE = 3
_NO_FILTER, _PAETH = 0, 4
_END = 256  # the symbol at the end of a block
_ZLIB_HEADER = b"\x78\x01"
_EMPTY_STORED = b"\0\0\xff\xff"
_LAST_BLOCK = b"\1\0\0\xff\xff"
_DISTANCE_LENGTHS = (1, 1)  # of two codes that no block uses; some readers want them
_CODE_LENGTH_BITS = 4  # the length of a code is written with 4 bits, for 0 to 15 alike

Bytes = npt.NDArray[np.uint8]


def encode_image(
    image: Image.Image, form: Form, quality: int, lossless: bool
) -> tuple[bytes, ImageHeader]:
    """Returns the bytes of an image and their header.

    EXIF data, comments and colour profiles do not come with it. PNGs are written by
    `write_png`, the others by the libraries that Pillow has.

    Args:
      image: of 8 bits a channel; for png a palette or 16 bits of gray, too.
      form: jpeg, png or webp; raw: the samples, row by row.
      quality: of JPEG or WebP, 1 to 100.
      lossless: whether WebP keeps each pixel.

    Raises:
      ImageHeaderError: the format cannot hold it.
    """
    header = ImageHeader(form, image.height, image.width, len(image.getbands()))
    if form == "raw":
        return image.tobytes(), header
    if form == "png":
        png = write_png(image)
        return png, read_header(png) if image.mode == "P" else header
    buffer = io.BytesIO()
    image.info = {}  # Pillow writes some of it: comments, resolution
    options = {"lossless": lossless} if form == "webp" else {}
    try:
        image.save(buffer, form.upper(), quality=quality, **options)
    except (OSError, ValueError) as error:
        raise ImageHeaderError(
            f"has {image.height:,} x {image.width:,} pixels, which cannot be encoded as "
            f"{_NAMES[form]}: {error}"
        ) from error
    return buffer.getvalue(), header


def write_png(image: Image.Image) -> bytes:
    """Returns an image of 8 bits a channel, a palette or 16 bits of gray as PNG."""
    channels, is_palette = len(image.getbands()), image.mode == "P"
    sample_bytes = 2 if image.mode in GRAY_16 else 1
    colour_type = _PALETTE_TYPE if is_palette else _COLOUR_TYPES[channels]
    sides_and_bits = image.width, image.height, 8 * sample_bytes
    header = struct.pack(">IIBBBBB", *sides_and_bits, colour_type, 0, 0, 0)
    parts = [_SIGNATURE, *_chunk(b"IHDR", [header])]
    if is_palette:
        # Up to the highest number that a pixel has; colours after the alphas are opaque.
        num_colours = 1 + int(image.getextrema()[1])  # type: ignore[arg-type]
        colours = bytes(image.getpalette("RGB") or ())[: 3 * num_colours]
        parts += _chunk(b"PLTE", [colours.ljust(3 * num_colours, b"\0")])
        alpha = image.info.get("transparency", b"")
        if isinstance(alpha, int):
            alpha = b"\xff" * alpha + b"\0"
        if alpha:
            parts += _chunk(b"tRNS", [alpha[:num_colours]])
    filtered = _filter(image, 0 if is_palette else channels * sample_bytes)
    return b"".join([*parts, *_chunk(b"IDAT", deflate(filtered)), *_chunk(b"IEND", [])])


def _filter(image: Image.Image, pixel_bytes: int) -> Iterator[Bytes]:
    """Yields rows with their filter byte, some at a time; filter 0 for pixel_bytes 0."""
    row_bytes = image.width * max(pixel_bytes, 1)
    step = max(1, BLOCK_BYTES // (row_bytes + 1))
    above = np.zeros((1, row_bytes), np.uint8)
    for start in range(0, image.height, step):
        stop = min(start + step, image.height)
        pixels: npt.NDArray[np.uint8 | np.uint16]
        pixels = np.asarray(image.crop((0, start, image.width, stop)))
        if pixels.dtype.itemsize == 2:  # the higher byte comes first
            pixels = pixels.astype(">u2")
        band = np.ascontiguousarray(pixels).view(np.uint8).reshape(-1, row_bytes)
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


def deflate(pieces: Iterable[Bytes]) -> list[bytes]:
    """Returns the parts of a zlib stream of some pieces, with its checksum at the end.

    Each piece begins a block, so how the bytes are divided changes the stream.
    """
    parts = [_ZLIB_HEADER]
    checksum = 1
    for piece in pieces:
        checksum = zlib.adler32(piece.data, checksum)
        starts = range(0, len(piece), BLOCK_BYTES)
        parts += [_block(piece[start : start + BLOCK_BYTES]) for start in starts]
    return [*parts, _LAST_BLOCK, checksum.to_bytes(4, "big")]


def _block(data: Bytes) -> bytes:
    counts = np.bincount(data, minlength=_END + 1)
    counts[_END] = 1
    lengths = code_lengths(counts.tolist())
    codes = _codes(lengths)
    head = _block_header(lengths)
    sizes = np.array(lengths, np.uint8)
    values = np.concatenate(
        [head[0], codes[data], codes[[_END]], np.zeros(1, np.uint64)]
    )
    num_bits = np.concatenate(
        [head[1], sizes[data], sizes[[_END]], np.array([3], np.uint8)]
    )
    return pack_bits(values, num_bits) + _EMPTY_STORED


def code_lengths(counts: list[int]) -> list[int]:
    """Returns the bits of each symbol's Huffman code; 0 for one that does not occur."""
    while True:
        lengths = _unlimited_lengths(counts)
        if max(lengths) <= MAX_CODE_BITS:
            return lengths
        # Nearer to each other, they get codes of more equal lengths.
        counts = [(count + 1) // 2 for count in counts]


def _unlimited_lengths(counts: list[int]) -> list[int]:
    # Trees in an order without ties: by count, then by when they were made.
    heap = [(count, symbol) for symbol, count in enumerate(counts) if count]
    heapq.heapify(heap)
    parents: dict[int, int] = {}
    node = len(counts)
    while len(heap) > 1:
        one = heapq.heappop(heap)
        other = heap[0]
        parents[one[1]] = parents[other[1]] = node
        heapq.heapreplace(heap, (one[0] + other[0], node))
        node += 1
    depths = {node - 1: 0}
    for child in range(node - 2, -1, -1):
        if child in parents:
            depths[child] = depths[parents[child]] + 1
    return [depths.get(symbol, 0) for symbol in range(len(counts))]


def _codes(lengths: list[int]) -> U64:
    """Returns the code of each symbol, its first bit lowest."""
    codes = np.zeros(len(lengths), np.uint64)
    code, before = 0, 0
    used = [(length, symbol) for symbol, length in enumerate(lengths) if length]
    for length, symbol in sorted(used):
        code <<= length - before
        codes[symbol] = _reversed(code, length)
        code, before = code + 1, length
    return codes


def _reversed(code: int, num_bits: int) -> int:
    return int(f"{code:0{num_bits}b}"[::-1], 2)


def _block_header(lengths: list[int]) -> tuple[U64, Bytes]:
    """Returns the values before a block's data, and the number of bits of each.

    Not the last block (0), dynamic codes (2); 257 and 2 codes; 19 lengths of the codes
    of lengths: none for repeats (16 to 18), 4 bits for 0 to 15.
    """
    head = (0, 2, 0, len(_DISTANCE_LENGTHS) - 1, 15, 0, 0, 0)
    values = [*head, *[_CODE_LENGTH_BITS] * 16]
    bits = [1, 2, 5, 5, 4, *[3] * 19]
    values += [
        _reversed(length, _CODE_LENGTH_BITS)
        for length in (*lengths, *_DISTANCE_LENGTHS)
    ]
    bits += [_CODE_LENGTH_BITS] * (len(values) - len(bits))
    return np.array(values, np.uint64), np.array(bits, np.uint8)


def pack_bits(values: U64, num_bits: Bytes) -> bytes:
    """Returns numbers of 0 to 15 bits one after the other, the first bit lowest.

    Four neighbours become one of 60 bits or less. Less than 64, so in every word of 64
    bits one of them begins, and only the last of a word reaches into the next.
    """
    bits = num_bits.astype(np.uint64)
    for _ in range(2):
        if len(values) % 2:
            values = np.append(values, np.uint64(0))
            bits = np.append(bits, np.uint64(0))
        values = values[::2] | values[1::2] << bits[::2]
        bits = bits[::2] + bits[1::2]
    ends = np.cumsum(bits)
    starts = ends - bits
    shifts = starts & np.uint64(63)
    words = starts >> np.uint64(6)
    firsts = np.flatnonzero(np.diff(words, prepend=np.uint64(1 << 63)))
    lasts = np.append(firsts[1:], len(words)) - 1
    packed = np.zeros(len(firsts) + 1, "<u8")
    packed[:-1] = np.bitwise_or.reduceat(values << shifts, firsts)
    # In two steps, as a shift by 64 is not defined.
    packed[1:] |= values[lasts] >> np.uint64(1) >> (np.uint64(63) - shifts[lasts])
    return packed.tobytes()[: (int(ends[-1]) + 7) // 8]
