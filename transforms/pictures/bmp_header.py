"""Reads the header of a BMP.

    "BM" | 12 bytes | u32 info size | i32 width | i32 height | u16 planes | u16 bits

All numbers are little-endian; a negative height means that rows run downwards. Depth is
bits / 8: a palette of 8 bits is not expanded, and 32 bits are 4 channels with or
without alpha.

TensorFlow decodes 8, 24 and 32 bits that are stored as they are, and takes the numbers of
a palette for shades of gray: with any other palette it returns another picture.
Source: tensorflow/core/kernels/image/decode_image_op.cc, DecodeBMP.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from recordmill.transforms.pictures.image_header import (
    ImageHeader,
    ImageHeaderError,
    cut_error,
)

_INFO_BYTES = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_PLAIN_BITS = (8, 24, 32)
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
    variant = _variant(data, info_bytes, bits)
    return ImageHeader("bmp", abs(height), width, depth, variant)


def with_trailing_bytes(data: bytes, header: ImageHeader) -> ImageHeader:
    """Returns the header of a whole BMP; its variant tells of bytes after the pixels.

    TensorFlow decodes a BMP only if the file ends with its last pixel.
    """
    (pixels_at,) = struct.unpack_from("<I", data, 10)
    bits = int.from_bytes(data[28:30], "little")
    row_bytes = (header.width * bits + 31) // 32 * 4
    if header.variant or pixels_at + row_bytes * header.height == len(data):
        return header
    return replace(header, variant="bmp with more bytes than its pixels")


def _variant(data: bytes, info_bytes: int, bits: int) -> str:
    """Returns what TensorFlow does not decode, or ""; see ImageHeader."""
    if info_bytes == 12:
        return "bmp of OS/2"
    if bits not in _PLAIN_BITS:
        return f"bmp with {bits} bits per pixel"
    compression = int.from_bytes(data[30:34], "little")
    if compression not in (0, 3):  # 3: as they are, with masks of the colours
        return f"bmp with compression {compression}"
    if bits == 8 and not _is_gray_palette(data[14 + info_bytes :], data[46:50]):
        return "bmp with a palette"
    return ""


def _is_gray_palette(palette: bytes, number: bytes) -> bool:
    """Tells whether each number stands for its own shade: 7 for (7, 7, 7)."""
    num_colours = int.from_bytes(number, "little") or 256
    colours = palette[: 4 * min(num_colours, 256)]
    shades = bytes(range(len(colours) // 4))
    return all(colours[channel::4] == shades for channel in range(3))
