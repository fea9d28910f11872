"""Reads the header of a TIFF.

    "II" or "MM" | u16 42 | u32 offset of the tags: u16 count, then for each tag
    u16 tag | u16 type | u32 count | value

"II" means little-endian, "MM" big-endian. BigTIFF has 43 and u64. Depth is the number
of samples per pixel; a palette counts as RGB.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

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


def tag_bytes(data: bytes, max_pages: int = 1) -> list[int]:
    """Returns the bytes of all values that stand outside of the tags themselves, by page.

    Those of a page and of the lists of tags that belong to it (EXIF, GPS). What lies
    after the end of the file does not count.

    Args:
      data: the whole file.
      max_pages: that are looked at.

    Raises:
      struct.error: a list of tags is not in the file.
    """
    order = "<" if data.startswith(b"I") else ">"
    form = _Form(order, "Q", "Q", "HHQ8s", 8)
    if 43 not in data[2:4]:
        form = _Form(order, "I", "H", "HHI4s", 4)
    (page,) = struct.unpack_from(order + form.pointer, data, form.place)
    found: dict[int, int] = {}
    while page and page not in found and len(found) < max_pages:
        found[page], page = _tag_bytes_of(data, page, form)
    return list(found.values())


class _Form(NamedTuple):
    """How a TIFF is written: byte order, formats for `struct`, and bytes of a value.

    The first pointer stands behind as many bytes as a value has. `entries` is the format
    of their number.
    """

    order: str
    pointer: str
    entries: str
    entry: str
    place: int


def _tag_bytes_of(data: bytes, page: int, form: _Form) -> tuple[int, int]:
    """Returns the bytes of a page's values outside of its tags, and the next page."""
    order = form.order
    offsets, found, next_page = [page], 0, 0
    for number in range(1 + len(_TAG_LISTS)):
        if number == len(offsets):
            break
        (num_entries,) = struct.unpack_from(order + form.entries, data, offsets[number])
        first = offsets[number] + struct.calcsize(form.entries)
        end = first + num_entries * struct.calcsize(order + form.entry)
        if end > len(data):
            raise struct.error("a list of tags ends after the file")
        if not number and end + form.place <= len(data):
            (next_page,) = struct.unpack_from(order + form.pointer, data, end)
        for tag, kind, values, value in struct.iter_unpack(
            order + form.entry, data[first:end]
        ):
            size = values * _VALUE_BYTES.get(kind, 1)
            if size > form.place:
                (offset,) = struct.unpack(order + form.pointer, value)
                found += max(0, min(size, len(data) - offset))
            elif tag in _TAG_LISTS and len(offsets) <= len(_TAG_LISTS):
                offsets += struct.unpack(order + form.pointer, value)
    return found, next_page
