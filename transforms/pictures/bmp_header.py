"""Reads the header of a BMP.

    "BM" | 12 bytes | u32 info size | i32 width | i32 height | u16 planes | u16 bits

All numbers are little-endian; a negative height means that rows run downwards. Depth is
bits / 8: a palette of 8 bits is not expanded, and 32 bits are 4 channels with or
without alpha.
"""

from __future__ import annotations

import struct

from recordmill.transforms.pictures.image_header import (
    ImageHeader,
    ImageHeaderError,
    cut_error,
)

_INFO_BYTES = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_DEPTH = {1: 3, 4: 3, 8: 1, 16: 3, 24: 3, 32: 4}


def read_bmp(data: bytes) -> ImageHeader:
    """Reads the info header."""
    if len(data) < 30:
        raise cut_error("BMP", data)
    info_bytes = int.from_bytes(data[14:18], "little")
    if info_bytes not in _INFO_BYTES:
        raise ImageHeaderError(
            f"BMP has an info header of {info_bytes} bytes "
            f"(expected one of {sorted(_INFO_BYTES)})"
        )
    layout = "<HHHH" if info_bytes == 12 else "<iiHH"
    width, height, _, bits = struct.unpack_from(layout, data, 18)
    if bits not in _DEPTH:
        raise ImageHeaderError(
            f"BMP has {bits} bits per pixel (expected one of {list(_DEPTH)})"
        )
    depth = 3 if info_bytes == 12 else _DEPTH[bits]
    return ImageHeader("bmp", abs(height), width, depth)
