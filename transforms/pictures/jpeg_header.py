"""Reads the header of a JPEG.

    FF D8, then segments: FF | marker | u16 length, itself included | ...
    frame header, markers C0..CF: length | u8 bits | u16 height | u16 width
    | u8 components | 3 bytes for each

All numbers are big-endian. CMYK and YCCK become RGB, so depth is 3; EXIF orientation is
ignored. A grey picture of 2 x 3 pixels (height x width):

    FF D8 | FF E0 00 04 4A 46 | FF C0 00 0B 08 00 02 00 03 01 01 11 00
            another segment     frame header: 11 bytes, 8 bits, 2, 3, 1 component
"""

from __future__ import annotations

import re
import struct

from recordmill.transforms.pictures.image_header import (
    MAX_SEGMENTS,
    ImageHeader,
    ImageHeaderError,
    cut_error,
    too_many_error,
)

_MARKER = re.compile(rb"\xff[^\x00\xff]")
_MARKERS = range(0x01, 0xFF)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # without DHT, JPG, DAC
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # TEM, RST0..7: markers without a length
_FRAME = struct.Struct(">HBHHB")


def next_marker(data: bytes, offset: int) -> int:
    """Returns where the next marker ends, from an offset on; 0 if there is none.

    Fill bytes are skipped and, as libjpeg does, bytes between segments.
    """
    # Nearly always it is just there: 0.1 us, the search takes 0.5, a picture has a dozen.
    if offset + 1 < len(data) and data[offset] == 0xFF and data[offset + 1] in _MARKERS:
        return offset + 2
    found = _MARKER.search(data, offset)
    return found.end() if found else 0


def read_jpeg(data: bytes) -> ImageHeader:
    """Reads the first frame header."""
    offset = 2
    # The content of a segment is skipped: it can contain a thumbnail's markers.
    for _ in range(MAX_SEGMENTS):
        offset = next_marker(data, offset)
        if not offset:
            break
        marker = data[offset - 1]
        if marker in _BARE:
            continue
        if marker < 0xC0 or marker in (0xD8, 0xD9, 0xDA):
            raise ImageHeaderError(
                f"JPEG has marker FF{marker:02X} at byte {offset - 2} "
                "(expected a frame header before it)"
            )
        segment_bytes = int.from_bytes(data[offset : offset + 2], "big")
        if offset + max(segment_bytes, 2) > len(data):
            break
        if segment_bytes < 2:
            raise ImageHeaderError(
                f"JPEG has a segment of {segment_bytes} bytes at byte {offset - 2} "
                "(expected 2 or more)"
            )
        if marker in _FRAMES:
            return _read_frame(data[offset : offset + segment_bytes])
        offset += segment_bytes
    else:
        raise too_many_error("JPEG", "segments")
    raise cut_error("JPEG", data)


def _read_frame(segment: bytes) -> ImageHeader:
    if len(segment) < 8 or len(segment) != 8 + 3 * segment[7]:
        raise ImageHeaderError(
            f"JPEG has a frame header of {len(segment)} bytes "
            "(expected 8, and 3 for each component)"
        )
    _, _, height, width, components = _FRAME.unpack_from(segment)
    if components not in (1, 3, 4):
        raise ImageHeaderError(f"JPEG has {components} components (expected 1, 3 or 4)")
    if not height:
        raise ImageHeaderError(
            "JPEG has height 0 in its frame header: the height comes after the pixels, "
            "in a DNL segment, which decoders do not read (expected 1 or more)"
        )
    return ImageHeader("jpeg", height, width, min(components, 3))
