"""Finds images that are cut short or damaged, without decoding them.

A header tells how large an image is, not whether its pixels are complete. Checked is
what an interrupted copy or a bad disk breaks, in at most one pass over the bytes:

    JPEG  an end-of-image marker (FF D9) follows the first scan (FF DA). Inside a scan FF
          is followed by 00 or a restart marker, so pixels cannot contain this marker.
    PNG   every chunk is complete; IHDR, PLTE, IDAT and IEND have the stored CRC; there is
          an IDAT; IEND is the last chunk.
    GIF   only the header is checked, which needs one complete frame.
    BMP   uncompressed rows: the file has offset + height x row bytes (a multiple of 4).
    WebP  the size in RIFF and every chunk fit in the file.
    TIFF  every strip or tile fits in the file.

For JPEG, PNG and BMP, TensorFlow's decoders require the same: tf.io.decode_image (2.21)
refuses a JPEG without the marker, accepts one that was cut and then closed by the
marker, and accepts bytes after the end (see tests/interop/test_image_structure.py).
"""

from __future__ import annotations

import struct
import zlib
from typing import Literal

from recordmill.transforms.images.header import (
    TIFF_INTEGERS,
    ImageHeader,
    ImageHeaderError,
    TiffForm,
    next_marker,
)

CheckLevel = Literal["header", "structure", "decode"]

MAX_PIXELS = 1 << 29  # 512 Mi: 23,170 x 23,170; Pillow refuses above a third of it

_PNG_START = 8  # the signature's bytes
_PNG_CHUNK = struct.Struct(">I4s")
_TIFF_OFFSETS_TO_COUNTS = {273: 279, 324: 325}  # strips, tiles
_MAX_TIFF_SEGMENTS = 1 << 22  # strips or tiles of one image; more are taken as damage


def check_structure(data: bytes, header: ImageHeader) -> None:
    """Refuses an image that is not complete, as far as that shows without decoding."""
    check = _CHECKS.get(header.format)
    if check is not None:
        check(data, header)


def check_pixels(header: ImageHeader, max_pixels: int = MAX_PIXELS) -> None:
    """Refuses an image with more pixels than are allowed."""
    if header.height * header.width > max_pixels:
        raise ImageHeaderError(
            f"{header.format} of {header.height:,} x {header.width:,} pixels (expected "
            f"{max_pixels:,} pixels or fewer: max_pixels)"
        )


def _check_jpeg(data: bytes, _: ImageHeader) -> None:
    scan = _first_scan(data)
    if scan is None:
        raise ImageHeaderError(f"JPEG has no pixels in its {len(data):,} bytes")
    # From the end, where it almost always is: 0.1 us, a search from the front 62 us.
    if data.rfind(b"\xff\xd9", scan) < 0:
        raise ImageHeaderError(
            f"JPEG is cut short: no end-of-image marker (FF D9) in the {len(data):,} bytes"
        )


def _first_scan(data: bytes) -> int | None:
    """Returns where the first scan starts; skips thumbnails, which lie in segments."""
    offset = 2
    while offset := next_marker(data, offset):
        marker = data[offset - 1]
        if marker == 0xDA:
            return offset
        if marker >= 0xC0 and not 0xD0 <= marker <= 0xD8:  # others have no length
            offset += int.from_bytes(data[offset : offset + 2], "big")
    return None


def _check_png(data: bytes, _: ImageHeader) -> None:
    view = memoryview(data)
    offset, pixels = _PNG_START, False
    while offset + 12 <= len(data):
        size, kind = _PNG_CHUNK.unpack_from(data, offset)
        end = offset + 12 + size
        if end > len(data):
            break
        is_critical = not kind[0] & 0x20  # a capital letter; decoders skip other chunks
        if is_critical:
            crc = int.from_bytes(data[end - 4 : end], "big")
            if zlib.crc32(view[offset + 4 : end - 4]) != crc:
                raise ImageHeaderError(
                    f"PNG is damaged: the {kind.decode('latin-1')} chunk at byte "
                    f"{offset:,} does not have the stored CRC"
                )
        pixels |= kind == b"IDAT"
        if kind == b"IEND":
            if not pixels:
                raise ImageHeaderError("PNG has no pixels: no IDAT chunk before IEND")
            return
        offset = end
    raise ImageHeaderError(
        f"PNG is cut short: no IEND chunk in the {len(data):,} bytes"
    )


def _check_bmp(data: bytes, header: ImageHeader) -> None:
    pixels_at, info_bytes = struct.unpack_from("<II", data, 10)
    bits_at = 24 if info_bytes == 12 else 28
    bits = int.from_bytes(data[bits_at : bits_at + 2], "little")
    compression = int.from_bytes(data[30:34], "little") if info_bytes >= 40 else 0
    if compression not in (0, 3):  # run lengths, JPEG or PNG inside have any size
        return
    row_bytes = (header.width * bits + 31) // 32 * 4
    expected = pixels_at + row_bytes * header.height
    if expected > len(data):
        raise ImageHeaderError(
            f"BMP is cut short: {len(data):,} bytes (expected {expected:,}: "
            f"{header.height:,} rows of {row_bytes:,} bytes from byte {pixels_at:,} on)"
        )


def _check_webp(data: bytes, _: ImageHeader) -> None:
    (size,) = struct.unpack_from("<I", data, 4)
    end = 8 + size
    if end > len(data):
        raise ImageHeaderError(
            f"WebP is cut short: {len(data):,} bytes (expected {end:,}, as RIFF says)"
        )
    offset = 12
    while offset + 8 <= end:
        kind, size = struct.unpack_from("<4sI", data, offset)
        if offset + 8 + size > end:
            raise ImageHeaderError(
                f"WebP is damaged: the {kind.decode('latin-1')!r} chunk at byte "
                f"{offset:,} has {size:,} bytes, which end after the file"
            )
        offset += 8 + size + size % 2


def _check_tiff(data: bytes, _: ImageHeader) -> None:
    form = TiffForm.of(data)
    tags = {entry[0]: entry[1:] for entry in form.tags(data, form.first(data))[1]}
    for offsets_tag, counts_tag in _TIFF_OFFSETS_TO_COUNTS.items():
        if offsets_tag not in tags:
            continue
        if counts_tag not in tags:
            raise ImageHeaderError(
                f"TIFF is damaged: tag {offsets_tag} without tag {counts_tag}"
            )
        starts = _tiff_numbers(data, form, *tags[offsets_tag])
        sizes = _tiff_numbers(data, form, *tags[counts_tag])
        ends = [start + size for start, size in zip(starts, sizes, strict=False)]
        if len(starts) != len(sizes) or max(ends, default=0) > len(data):
            raise ImageHeaderError(
                f"TIFF is cut short: {len(data):,} bytes, but its pixels end at byte "
                f"{max(ends, default=0):,}"
            )


def _tiff_numbers(
    data: bytes, form: TiffForm, kind: int, number: int, value: bytes
) -> tuple[int, ...]:
    """Returns a tag's numbers, which are stored in the tag if they fit in it."""
    if kind not in TIFF_INTEGERS or number > _MAX_TIFF_SEGMENTS:
        raise ImageHeaderError(
            f"TIFF is damaged: {number:,} strips or tiles of type {kind} (expected at "
            f"most {_MAX_TIFF_SEGMENTS:,} integers)"
        )
    numbers = f"{form.order}{number}{TIFF_INTEGERS[kind]}"
    try:
        if struct.calcsize(numbers) <= len(value):
            return struct.unpack_from(numbers, value)
        return struct.unpack_from(numbers, data, form.offset(value))
    except (struct.error, OverflowError):
        raise ImageHeaderError(
            f"TIFF is cut short: a list of {number:,} numbers lies after its "
            f"{len(data):,} bytes"
        ) from None


_CHECKS = {
    "jpeg": _check_jpeg,
    "png": _check_png,
    "bmp": _check_bmp,
    "webp": _check_webp,
    "tiff": _check_tiff,
}
