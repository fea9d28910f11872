"""Reads the header of a PNG.

    89 "PNG" 0D 0A 1A 0A, then chunks: u32 length | type | data | u32 crc
    IHDR: u32 width | u32 height | u8 bits | u8 colour type | 3 bytes

All numbers are big-endian. A palette has depth 3, with a valid tRNS chunk 4; for other
colour types tRNS adds nothing. The first chunk of 2 x 3 grey pixels (height x width):

    00 00 00 0D "IHDR" | 00 00 00 03 | 00 00 00 02 | 08 00 | 00 00 00 | crc
"""

from __future__ import annotations

import struct
import zlib

from recordmill.transforms.pictures.image_header import (
    MAX_SEGMENTS,
    ImageHeader,
    ImageHeaderError,
    cut_error,
    too_many_error,
)

_IHDR = struct.Struct(">I4sIIBB3sI")
_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_DEPTH = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PALETTE = 3


def read_png(data: bytes) -> ImageHeader:
    """Reads the IHDR chunk and, for a palette, whether it has transparency."""
    if len(data) < 33:
        raise cut_error("PNG", data)
    size, kind, width, height, bits, colour, _, crc = _IHDR.unpack_from(data, 8)
    if size != 13 or kind != b"IHDR":
        raise ImageHeaderError(
            f"PNG starts with a chunk {kind!r} of {size} bytes (expected IHDR of 13)"
        )
    if (actual_crc := zlib.crc32(data[12:29])) != crc:
        raise ImageHeaderError(
            f"PNG has CRC {actual_crc:08x} over IHDR (expected {crc:08x}, as it says)"
        )
    if bits not in _BITS.get(colour, ()):
        raise ImageHeaderError(
            f"PNG has colour type {colour} with {bits} bits (expected one of {_BITS})"
        )
    depth = _DEPTH[colour]
    if colour == _PALETTE:
        depth += _has_transparent_colours(data, 1 << bits)
    return ImageHeader("png", height, width, depth)


def _has_transparent_colours(data: bytes, max_colours: int) -> bool:
    """Tells whether a palette PNG has a tRNS chunk that libpng does not ignore."""
    offset, num_colours, transparent = 33, 0, False
    num_chunks = 0
    while offset + 8 <= len(data):
        if (num_chunks := num_chunks + 1) > MAX_SEGMENTS:
            raise too_many_error("PNG", "chunks")
        size, kind = struct.unpack_from(">I4s", data, offset)
        if kind == b"IDAT":
            break
        end = offset + 12 + size
        if kind == b"PLTE":
            if end > len(data):
                raise cut_error("PNG", data)
            num_colours = min(size // 3, max_colours)
        elif kind == b"tRNS" and 1 <= size <= num_colours and end <= len(data):
            crc = int.from_bytes(data[end - 4 : end], "big")
            transparent |= zlib.crc32(data[offset + 4 : end - 4]) == crc
        offset = end
    else:
        raise cut_error("PNG", data)
    if not num_colours:
        raise ImageHeaderError(
            "PNG has no palette before its pixels (expected PLTE, by its colour type)"
        )
    return transparent
