"""Reads the header of a WebP picture.

    "RIFF" | u32 size | "WEBP", then chunks: type | u32 length | data | padding
    VP8 (lossy): 3 bytes | 9D 01 2A | u16 width | u16 height, 14 bits of each
    VP8L (lossless): 2F | 14 bits width - 1 | 14 bits height - 1 | 1 bit alpha
    VP8X (extended): u8 flags | 3 bytes | u24 width - 1 | u24 height - 1

All numbers are little-endian. The VP8L chunk of 2 x 3 pixels (height x width), opaque:

    2F 02 40 00 00      fields 0x4002: 0x4002 & 0x3FFF = 2 = width - 1
                                       0x4002 >> 14    = 1 = height - 1, bit 28 is 0
"""

from __future__ import annotations

import struct

from recordmill.transforms.pictures.image_header import (
    MAX_SEGMENTS,
    ImageHeader,
    ImageHeaderError,
    cut_error,
    too_many_error,
)


def read_webp(data: bytes) -> ImageHeader:
    """Reads the first chunk that has the size."""
    offset, alpha, num_chunks = 12, False, 0
    while offset + 8 <= len(data):
        if (num_chunks := num_chunks + 1) > MAX_SEGMENTS:
            raise too_many_error("WebP", "chunks")
        kind, size = struct.unpack_from("<4sI", data, offset)
        chunk = data[offset + 8 : offset + 18]
        if kind in (b"VP8 ", b"VP8X") and len(chunk) < 10:
            break
        if kind == b"VP8X":
            height = int.from_bytes(chunk[7:10], "little") + 1
            width = int.from_bytes(chunk[4:7], "little") + 1
            alpha = bool(chunk[0] & 0x10)
            if chunk[0] & 0x02:  # animated: each frame has chunks of its own
                return ImageHeader("webp", height, width, 3 + alpha)
        elif kind == b"ALPH":
            alpha = True
        elif kind == b"VP8 ":
            if chunk[0] & 1 or chunk[3:6] != b"\x9d\x01\x2a":
                raise ImageHeaderError(
                    f"WebP has a VP8 chunk that starts with {chunk[:6]!r} "
                    "(expected a key frame: an even byte, 2 more, 9d 01 2a)"
                )
            width, height = struct.unpack_from("<HH", chunk, 6)
            return ImageHeader("webp", height & 0x3FFF, width & 0x3FFF, 3 + alpha)
        elif kind == b"VP8L":
            if len(chunk) < 5:
                break
            if chunk[0] != 0x2F:
                raise ImageHeaderError(
                    f"WebP has a VP8L chunk that starts with {chunk[:1]!r} "
                    f"(expected {b'/'!r})"
                )
            fields = int.from_bytes(chunk[1:5], "little")
            height, width = (fields >> 14 & 0x3FFF) + 1, (fields & 0x3FFF) + 1
            return ImageHeader("webp", height, width, 3 + (fields >> 28 & 1))
        offset += 8 + size + size % 2
    raise cut_error("WebP", data)
