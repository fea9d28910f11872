"""Reads the header of a TIFF.

    "II" or "MM" | u16 42 | u32 offset of the tags: u16 count, then for each tag
    u16 tag | u16 type | u32 count | value

"II" means little-endian, "MM" big-endian. BigTIFF has 43 and u64. Depth is the number
of samples per pixel; a palette counts as RGB.
"""

from __future__ import annotations

import struct

from recordmill.transforms.pictures.image_header import (
    MAX_SEGMENTS,
    ImageHeader,
    cut_error,
    too_many_error,
)

_WIDTH, _HEIGHT, _PHOTOMETRIC, _SAMPLES = 256, 257, 262, 277
_PALETTE = 3
_INTEGERS = {1: "B", 3: "H", 4: "I"}
_BIG_INTEGERS = _INTEGERS | {16: "Q"}
_VALUE_BYTES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_TAG_LISTS = frozenset({34665, 34853, 40965})  # EXIF, GPS, interoperability


def read_tiff(data: bytes) -> ImageHeader:
    """Reads the tags of the first picture."""
    order, integers = "<" if data.startswith(b"I") else ">", _INTEGERS
    start, pointer, count, entry = 4, "I", "H", "HHI4s"
    if 43 in data[2:4]:
        start, pointer, count, entry = 8, "Q", "Q", "HHQ8s"
        integers = _BIG_INTEGERS
    try:
        (offset,) = struct.unpack_from(order + pointer, data, start)
        (num_entries,) = struct.unpack_from(order + count, data, offset)
    except (struct.error, OverflowError):
        raise cut_error("TIFF", data) from None
    offset += struct.calcsize(count)
    end = offset + num_entries * struct.calcsize(order + entry)
    if end > len(data):
        raise cut_error("TIFF", data)
    if num_entries > MAX_SEGMENTS:
        raise too_many_error("TIFF", "tags")
    tags = {_HEIGHT: 0, _WIDTH: 0, _PHOTOMETRIC: 0, _SAMPLES: 1}
    for tag, kind, _, value in struct.iter_unpack(order + entry, data[offset:end]):
        if tag in tags and kind in integers:
            (tags[tag],) = struct.unpack_from(order + integers[kind], value)
    depth = tags[_SAMPLES]
    if tags[_PHOTOMETRIC] == _PALETTE:
        depth += 2  # one sample becomes red, green and blue
    return ImageHeader("tiff", tags[_HEIGHT], tags[_WIDTH], depth)


def tag_bytes(data: bytes) -> int:
    """Returns the bytes of all values that stand outside of the tags themselves.

    Those of the first picture and of the lists of tags that belong to it (EXIF, GPS).
    What lies after the end of the file does not count.

    Raises:
      struct.error: a list of tags is not in the file.
    """
    order = "<" if data.startswith(b"I") else ">"
    is_big = 43 in data[2:4]
    start, pointer, count, entry, place = (
        (8, "Q", "Q", "HHQ8s", 8) if is_big else (4, "I", "H", "HHI4s", 4)
    )
    offsets = list(struct.unpack_from(order + pointer, data, start))
    found = 0
    for number in range(1 + len(_TAG_LISTS)):
        if number == len(offsets):
            break
        (num_entries,) = struct.unpack_from(order + count, data, offsets[number])
        first = offsets[number] + struct.calcsize(count)
        end = first + num_entries * struct.calcsize(order + entry)
        if end > len(data):
            raise struct.error("a list of tags ends after the file")
        for tag, kind, values, value in struct.iter_unpack(
            order + entry, data[first:end]
        ):
            size = values * _VALUE_BYTES.get(kind, 1)
            if size > place:
                (offset,) = struct.unpack(order + pointer, value)
                found += max(0, min(size, len(data) - offset))
            elif tag in _TAG_LISTS and len(offsets) <= len(_TAG_LISTS):
                offsets += struct.unpack(order + pointer, value)
    return found
