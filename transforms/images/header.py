"""Reads the header of an image, and finds truncated images, without decoding.

The format is recognized by content, never by file name. Size and depth are the same as
from `tf.io.decode_image(data, channels=0)` in TensorFlow 2.21, including surprising ones
(checked by experiment: see tests/helpers/pixel_zoo.py).

TensorFlow cannot decode TIFF, a JPEG of 12 bits, nor a BMP of 1, 4 or 16 bits or with the
12-byte info header of OS/2. The depth of these is the number of samples per pixel; a
palette counts as RGB.

Pillow is not used: it reports 3 channels for a 32-bit BMP and the screen size of a GIF,
and it copies all tags of a TIFF, each of which may span the whole file.

A header has the size of an image, but does not show if its pixels are complete. The
structure checks detect interrupted copies and bad disks, in at most one pass over the
bytes:

    JPEG  an end-of-image marker (FF D9) follows the first scan (FF DA). Inside a scan FF
          is followed by 00 or a restart marker, so pixels cannot contain this marker.
    PNG   every chunk is complete; IHDR, PLTE, IDAT and IEND have the stored CRC; an IDAT
          exists; IEND is the last chunk.
    GIF   only the header is checked, which needs one complete frame.
    BMP   uncompressed rows: the file has offset + height x row bytes (a multiple of 4).
    WebP  the size in RIFF and every chunk fit in the file.
    TIFF  every strip or tile fits in the file.

For JPEG, PNG and BMP, TensorFlow's decoders require the same: tf.io.decode_image (2.21)
rejects a JPEG without the marker, accepts a truncated JPEG that ends with the marker, and
accepts bytes after the end (see tests/interop/test_image_structure.py).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeVar

CheckLevel = Literal["header", "structure", "decode"]
_Item = TypeVar("_Item")

MAX_PIXELS = 1 << 29  # 512 Mi: 23,170 x 23,170; three times Pillow's own limit
SIGNATURE_BYTES = 16
# Real images have far fewer segments before their pixels; more would only cost time.
_MAX_SEGMENTS = 10_000

_SIGNATURE = re.compile(
    rb"(?P<jpeg>\xff\xd8\xff)|(?P<png>\x89PNG\r\n\x1a\n)|(?P<gif>GIF8[79]a)|(?P<bmp>BM)"
    rb"|(?P<tiff>II[*+]\0|MM\0[*+])|(?P<webp>RIFF....WEBP)",
    re.DOTALL,
)
_UNSUPPORTED_FORMATS = {
    "AVIF": rb"....ftypavi[fs]",
    "HEIC": rb"....ftyp(hei[cx]|hevc|m[is]f1)",
    "JPEG 2000": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    "JPEG XL": rb"\xff\x0a|\0\0\0\x0cJXL ",
    "PSD": rb"8BPS",
}


class ImageHeaderError(ValueError):
    """The error of bytes that are not a known image, or whose header is damaged."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The format and size of an image."""

    format: str  # a key of _FORMATS
    height: int  # rows
    width: int  # pixels in a row
    depth: int  # channels
    # the reason why TensorFlow does not decode the image, although it decodes other
    # images of the format, such as "bmp with 4 bits per pixel"; else ""
    variant: str = ""

    @property
    def kind(self) -> str:
        """Returns the variant, or else the format."""
        return self.variant or self.format


def read_header(data: bytes) -> ImageHeader:
    """Returns the header of an image, given the whole file.

    Raises:
      ImageHeaderError: the bytes are not an image, or its header is damaged.
    """
    kind = image_format(data)
    if not kind:
        actual = f"starts with {data[:9]!r}" if data else "has no bytes"
        raise ImageHeaderError(
            f"not an image: {actual} (expected JPEG, PNG, GIF, BMP, WebP or TIFF)"
        )
    header = _FORMATS[kind][0](data)
    if header.height < 1 or header.width < 1 or header.depth < 1:
        raise ImageHeaderError(
            f"{header.format} of height {header.height}, width {header.width} and "
            f"depth {header.depth} (expected 1 or more of each)"
        )
    return header


def check_structure(data: bytes, header: ImageHeader) -> None:
    """Raises ImageHeaderError if an image is incomplete; decodes nothing."""
    _FORMATS[header.format][1](data, header)


def check_pixels(header: ImageHeader, max_pixels: int = MAX_PIXELS) -> None:
    """Raises ImageHeaderError if an image has too many pixels."""
    if header.height * header.width > max_pixels:
        raise ImageHeaderError(
            f"{header.format} of {header.height:,} x {header.width:,} pixels (expected "
            f"{max_pixels:,} pixels or fewer: max_pixels)"
        )


def image_format(head: bytes) -> str:
    """Returns the format of an image by at least its first SIGNATURE_BYTES, or ""."""
    match = _SIGNATURE.match(head)
    return (match and match.lastgroup) or ""


def is_certain_image(head: bytes) -> bool:
    """Checks whether a file is an image for certain, without its name.

    Text may begin with "BM", so a BMP must also have zeros in bytes 6 to 9.
    """
    kind = image_format(head)
    return bool(kind) and (kind != "bmp" or head[6:10] == bytes(4))


def other_image_format(head: bytes) -> str:
    """Returns the name of an unsupported image format, or ""."""
    starts = _UNSUPPORTED_FORMATS.items()
    return next((name for name, at in starts if re.match(at, head, re.DOTALL)), "")


def may_have_exif(data: bytes, kind: str) -> bool:
    """Checks whether an image may have an orientation, in EXIF data or XMP."""
    if kind == "jpeg":  # in APP1
        head = takewhile(lambda segment: segment[0] != 0xDA, _jpeg_segments(data))
        return any(marker == 0xE1 for marker, _ in head)
    if kind == "png":
        return any(chunk in _EXIF_CHUNKS for chunk, *_ in _png_chunks(data, 8))
    return kind not in ("gif", "bmp")


def _limit_elements(name: str, noun: str, elements: Iterable[_Item]) -> Iterator[_Item]:
    """Yields the elements before the pixels; raises if there are implausibly many.

    `name` is the format and `noun` the plural of the elements, for the message.
    """
    for number, element in enumerate(elements):
        if number >= _MAX_SEGMENTS:
            raise ImageHeaderError(
                f"{name} has more than {_MAX_SEGMENTS:,} {noun} before its pixels "
                "(expected a few dozen)"
            )
        yield element


def _truncation_error(name: str, data: bytes) -> ImageHeaderError:
    return ImageHeaderError(f"{name} ends inside its header after {len(data)} bytes")


# JPEG. FF D8, then segments: FF | marker | u16 length, itself included | ...
# frame header, markers C0..CF: length | u8 bits | u16 height | u16 width
# | u8 components | 3 bytes for each
#
# All numbers are big-endian. CMYK and YCCK are decoded to RGB, so depth is 3; EXIF
# orientation is ignored. A grey image of 2 x 3 pixels (height x width):
#
#     FF D8 | FF E0 00 04 4A 46 | FF C0 00 0B 08 00 02 00 03 01 01 11 00
#             another segment     frame header: 11 bytes, 8 bits, 2, 3, 1 component

_MARKER = re.compile(rb"\xff[^\x00\xff]")
_MARKERS = range(0x01, 0xFF)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # without DHT, JPG, DAC
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # TEM, RST0..7: markers without a length
_FRAME = struct.Struct(">HBHHB")


def next_marker(data: bytes, offset: int) -> int:
    """Returns the end of the next marker of a JPEG at or after an offset; 0 for none.

    Fill bytes are skipped and, as in libjpeg, bytes between segments.
    """
    # The marker is nearly always at the offset: 0.1 us instead of 0.5 us for the search.
    if offset + 1 < len(data) and data[offset] == 0xFF and data[offset + 1] in _MARKERS:
        return offset + 2
    match = _MARKER.search(data, offset)
    return match.end() if match else 0


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields each marker and its end; the content of its segment is skipped.

    The content can contain a thumbnail's markers.
    """
    offset = 2
    while offset := next_marker(data, offset):
        marker = data[offset - 1]
        yield marker, offset
        if (
            marker >= 0xC0 and not 0xD0 <= marker <= 0xD8
        ):  # other markers have no length
            offset += int.from_bytes(data[offset : offset + 2], "big")


def _read_jpeg(data: bytes) -> ImageHeader:
    for marker, offset in _limit_elements("JPEG", "segments", _jpeg_segments(data)):
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
    raise _truncation_error("JPEG", data)


def _read_frame(segment: bytes) -> ImageHeader:
    if len(segment) < 8 or len(segment) != 8 + 3 * segment[7]:
        raise ImageHeaderError(
            f"JPEG has a frame header of {len(segment)} bytes "
            "(expected 8, and 3 for each component)"
        )
    _, bits, height, width, components = _FRAME.unpack_from(segment)
    if components not in (1, 3, 4):
        raise ImageHeaderError(f"JPEG has {components} components (expected 1, 3 or 4)")
    if not height:
        raise ImageHeaderError(
            "JPEG has height 0 in its frame header: the height comes after the pixels, "
            "in a DNL segment, which decoders do not read (expected 1 or more)"
        )
    variant = "" if bits == 8 else f"jpeg with {bits} bits per sample"
    return ImageHeader("jpeg", height, width, min(components, 3), variant)


def _check_jpeg(data: bytes, _: ImageHeader) -> None:
    scan = next((end for marker, end in _jpeg_segments(data) if marker == 0xDA), None)
    if scan is None:
        raise ImageHeaderError(f"JPEG has no pixels in its {len(data):,} bytes")
    # The marker is usually at the end: 0.1 us, compared with 62 us from the front.
    if data.rfind(b"\xff\xd9", scan) < 0:
        raise ImageHeaderError(
            f"JPEG is cut short: no end-of-image marker (FF D9) in the {len(data):,} bytes"
        )


# PNG. 89 "PNG" 0D 0A 1A 0A, then chunks: u32 length | type | data | u32 crc
# IHDR: u32 width | u32 height | u8 bits | u8 colour type | 3 bytes
#
# All numbers are big-endian. A palette has depth 3, or 4 with a valid tRNS chunk; for
# other colour types tRNS is ignored. The first chunk of 2 x 3 grey pixels (height x
# width):
#
#     00 00 00 0D "IHDR" | 00 00 00 03 | 00 00 00 02 | 08 00 | 00 00 00 | crc

_IHDR = struct.Struct(">I4sIIBB3sI")
_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_DEPTH = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PALETTE = 3  # in PNG and in TIFF
_EXIF_CHUNKS = frozenset({b"eXIf", b"tEXt", b"zTXt", b"iTXt"})


def _read_png(data: bytes) -> ImageHeader:
    if len(data) < 33:
        raise _truncation_error("PNG", data)
    size, kind, width, height, bits, colour, _, crc = _IHDR.unpack_from(data, 8)
    if size != 13 or kind != b"IHDR":
        raise ImageHeaderError(
            f"PNG starts with a chunk {kind!r} of {size} bytes (expected IHDR of 13)"
        )
    if (actual_crc := zlib.crc32(data[12:29])) != crc:
        raise ImageHeaderError(
            f"PNG has CRC {actual_crc:08x} over IHDR (expected {crc:08x}, as stored)"
        )
    if bits not in _BITS.get(colour, ()):
        raise ImageHeaderError(
            f"PNG has colour type {colour} with {bits} bits (expected one of {_BITS})"
        )
    depth = _PNG_DEPTH[colour]
    if colour == _PALETTE:
        depth += _has_transparent_colours(data, 1 << bits)
    return ImageHeader("png", height, width, depth)


def _png_chunks(data: bytes, offset: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields the type of each chunk, and the start and end of its data."""
    while offset + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, offset)
        yield kind, offset + 8, offset + 8 + size
        offset += 12 + size


def _has_stored_crc(data: bytes, start: int, end: int) -> bool:
    crc = int.from_bytes(data[end : end + 4], "big")
    return zlib.crc32(memoryview(data)[start - 4 : end]) == crc


def _has_transparent_colours(data: bytes, max_colours: int) -> bool:
    """Checks whether a palette PNG has a tRNS chunk that libpng does not ignore."""
    num_colours, transparent = 0, False
    for kind, start, end in _limit_elements("PNG", "chunks", _png_chunks(data, 33)):
        if kind == b"IDAT":
            break
        is_whole = end + 4 <= len(data)
        if kind == b"PLTE":
            if not is_whole:
                raise _truncation_error("PNG", data)
            num_colours = min((end - start) // 3, max_colours)
        elif kind == b"tRNS" and 1 <= end - start <= num_colours and is_whole:
            transparent |= _has_stored_crc(data, start, end)
    else:
        raise _truncation_error("PNG", data)
    if not num_colours:
        raise ImageHeaderError(
            "PNG has no palette before its pixels (expected PLTE, by its colour type)"
        )
    return transparent


def _check_png(data: bytes, _: ImageHeader) -> None:
    pixels = False
    for kind, start, end in _png_chunks(data, 8):
        if end + 4 > len(data):
            break
        # Critical chunks begin with a capital letter; decoders skip other chunks.
        if not kind[0] & 0x20 and not _has_stored_crc(data, start, end):
            raise ImageHeaderError(
                f"PNG is damaged: the {kind.decode('latin-1')} chunk at byte "
                f"{start - 8:,} does not have the stored CRC"
            )
        pixels |= kind == b"IDAT"
        if kind == b"IEND":
            if not pixels:
                raise ImageHeaderError("PNG has no pixels: no IDAT chunk before IEND")
            return
    raise ImageHeaderError(
        f"PNG is cut short: no IEND chunk in the {len(data):,} bytes"
    )


# GIF. "GIF87a" or "GIF89a" | u16 screen width | u16 screen height | u8 flags | 2 bytes
# | colour table, then blocks
# frame: 2C | u16 left | u16 top | u16 width | u16 height | u8 flags | colour table
# | u8 code size | sub-blocks: u8 length | data, until length 0
#
# All numbers are little-endian. The size is the size of the largest complete frame, not
# of the screen. Depth is 3.

_MAX_BLOCKS = 100_000
_BLOCK_BYTES = 16  # sub-blocks have up to 255 bytes; a smaller average is rejected
_FREE_BLOCKS = 1_000_000  # if there are more sub-blocks than this


def _read_gif(data: bytes) -> ImageHeader:
    if len(data) < 13:
        raise _truncation_error("GIF", data)
    offset = 13 + _colour_table_bytes(data[10])
    height = width = num_blocks = 0
    try:
        while (kind := data[offset]) in b"!,":
            if (num_blocks := num_blocks + 1) > _MAX_BLOCKS:
                raise ImageHeaderError(
                    f"GIF has more than {_MAX_BLOCKS:,} frames and extensions "
                    "(expected some thousand)"
                )
            if kind == ord("!"):
                offset = _skip_sub_blocks(data, offset + 2)
                continue
            flags = data[offset + 9]
            frame_width = int.from_bytes(data[offset + 5 : offset + 7], "little")
            frame_height = int.from_bytes(data[offset + 7 : offset + 9], "little")
            offset = _skip_sub_blocks(data, offset + 11 + _colour_table_bytes(flags))
            height, width = max(height, frame_height), max(width, frame_width)
    except IndexError:
        pass  # the file is truncated: use the complete frames
    if not height:
        raise ImageHeaderError(
            f"GIF has no complete frame in its {len(data)} bytes (expected 1 or more)"
        )
    return ImageHeader("gif", height, width, 3)


def _colour_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _skip_sub_blocks(data: bytes, offset: int) -> int:
    start, num_blocks = offset, 0
    while size := data[offset]:
        offset += size + 1
        num_blocks += 1
        if num_blocks > _FREE_BLOCKS + (offset - start) // _BLOCK_BYTES:
            raise ImageHeaderError(
                f"GIF has {num_blocks:,} blocks in {offset - start:,} bytes (expected "
                "blocks of 255 bytes)"
            )
    return offset + 1


# BMP. "BM" | 12 bytes | u32 info size | i32 width | i32 height | u16 planes | u16 bits
#
# All numbers are little-endian; a negative height means that rows run downwards. Depth is
# bits / 8: a palette of 8 bits is not expanded, and 32 bits are 4 channels with or
# without alpha.
#
# TensorFlow decodes uncompressed 8, 24 and 32 bits, and interprets palette indices as
# shades of gray: with any other palette it returns a wrong image.
# Source: tensorflow/core/kernels/image/decode_image_op.cc, DecodeBMP.

_INFO_BYTES = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_BMP_DEPTH = {1: 3, 4: 3, 8: 1, 16: 3, 24: 3, 32: 4}


def _read_bmp(data: bytes) -> ImageHeader:
    if len(data) < 30:
        raise _truncation_error("BMP", data)
    info_bytes = int.from_bytes(data[14:18], "little")
    if info_bytes not in _INFO_BYTES:
        raise ImageHeaderError(
            f"BMP has an info header of {info_bytes} bytes "
            f"(expected one of {sorted(_INFO_BYTES)})"
        )
    layout = "<HHHH" if info_bytes == 12 else "<iiHH"
    width, height, _, bits = struct.unpack_from(layout, data, 18)
    if bits not in _BMP_DEPTH:
        raise ImageHeaderError(
            f"BMP has {bits} bits per pixel (expected one of {list(_BMP_DEPTH)})"
        )
    depth = 3 if info_bytes == 12 else _BMP_DEPTH[bits]
    height = abs(height)
    variant = _bmp_variant(data, info_bytes, bits)
    # TensorFlow decodes a BMP only if the file ends with its last pixel.
    if not variant and _bmp_end(data, height, width, bits)[0] != len(data):
        variant = "bmp with more bytes than its pixels"
    return ImageHeader("bmp", height, width, depth, variant)


def _bmp_end(data: bytes, height: int, width: int, bits: int) -> tuple[int, int, int]:
    """Returns the end and the start of the pixels of a BMP, and the bytes of a row."""
    (start,) = struct.unpack_from("<I", data, 10)
    row_bytes = (width * bits + 31) // 32 * 4
    return start + row_bytes * height, start, row_bytes


def _bmp_variant(data: bytes, info_bytes: int, bits: int) -> str:
    """Returns the variant of a BMP that TensorFlow does not decode, or ""."""
    if info_bytes == 12:
        return "bmp of OS/2"
    if bits not in (8, 24, 32):
        return f"bmp with {bits} bits per pixel"
    compression = int.from_bytes(data[30:34], "little")
    if compression not in (0, 3):  # 3: uncompressed, with masks of the colours
        return f"bmp with compression {compression}"
    if bits != 8:
        return ""
    # Each index of a gray palette is its own shade: 7 is (7, 7, 7).
    num_colours = min(int.from_bytes(data[46:50], "little") or 256, 256)
    start = 14 + info_bytes
    palette = data[start : start + 4 * num_colours]
    shades = bytes(range(len(palette) // 4))
    is_gray = all(palette[channel::4] == shades for channel in range(3))
    return "" if is_gray else "bmp with a palette"


def _check_bmp(data: bytes, header: ImageHeader) -> None:
    info_bytes = int.from_bytes(data[14:18], "little")
    bits_at = 24 if info_bytes == 12 else 28
    bits = int.from_bytes(data[bits_at : bits_at + 2], "little")
    compression = int.from_bytes(data[30:34], "little") if info_bytes >= 40 else 0
    if compression not in (0, 3):  # compressed pixels may have any size
        return
    expected, start, row_bytes = _bmp_end(data, header.height, header.width, bits)
    if expected > len(data):
        raise ImageHeaderError(
            f"BMP is cut short: {len(data):,} bytes (expected {expected:,}: "
            f"{header.height:,} rows of {row_bytes:,} bytes from byte {start:,} on)"
        )


# WebP. "RIFF" | u32 size | "WEBP", then chunks: type | u32 length | data | padding
# VP8 (lossy): 3 bytes | 9D 01 2A | u16 width | u16 height, 14 bits of each
# VP8L (lossless): 2F | 14 bits width - 1 | 14 bits height - 1 | 1 bit alpha
# VP8X (extended): u8 flags | 3 bytes | u24 width - 1 | u24 height - 1
#
# All numbers are little-endian. The VP8L chunk of 2 x 3 pixels (height x width), opaque:
#
#     2F 02 40 00 00      fields 0x4002: 0x4002 & 0x3FFF = 2 = width - 1
#                                        0x4002 >> 14    = 1 = height - 1, bit 28 is 0


def _webp_chunks(data: bytes, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields the type of each chunk, and the start and length of its data."""
    offset = 12
    while offset + 8 <= end:
        kind, size = struct.unpack_from("<4sI", data, offset)
        yield kind, offset + 8, size
        offset += 8 + size + size % 2


def _read_webp(data: bytes) -> ImageHeader:
    alpha = False
    chunks = _webp_chunks(data, len(data))
    for kind, start, _ in _limit_elements("WebP", "chunks", chunks):
        chunk = data[start : start + 10]
        if kind in (b"VP8 ", b"VP8X") and len(chunk) < 10:
            break
        if kind == b"VP8X":
            height = int.from_bytes(chunk[7:10], "little") + 1
            width = int.from_bytes(chunk[4:7], "little") + 1
            alpha = bool(chunk[0] & 0x10)
            if chunk[0] & 0x02:  # animated: each frame has separate chunks
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
    raise _truncation_error("WebP", data)


def _check_webp(data: bytes, _: ImageHeader) -> None:
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise ImageHeaderError(
            f"WebP is cut short: {len(data):,} bytes (expected {end:,}, as in its RIFF "
            "header)"
        )
    for kind, start, size in _webp_chunks(data, end):
        if start + size > end:
            raise ImageHeaderError(
                f"WebP is damaged: the {kind.decode('latin-1')!r} chunk at byte "
                f"{start - 8:,} has {size:,} bytes, which end after the file"
            )


# TIFF. "II" or "MM" | u16 42 | u32 offset of the tags: u16 count, then for each tag
# u16 tag | u16 type | u32 count | value
#
# "II" means little-endian, "MM" big-endian. BigTIFF has 43 and u64. Depth is the number
# of samples per pixel; a palette counts as RGB.

_TIFF_INTEGERS = {1: "B", 3: "H", 4: "I", 16: "Q"}  # byte, short, long, long8
_WIDTH, _HEIGHT, _PHOTOMETRIC, _SAMPLES = 256, 257, 262, 277
_VALUE_BYTES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_TAG_LISTS = frozenset({34665, 34853, 40965})  # EXIF, GPS, interoperability
_TIFF_OFFSETS_TO_COUNTS = {273: 279, 324: 325}  # strips, tiles
_MAX_TIFF_SEGMENTS = 1 << 22  # strips or tiles of one image; more are treated as damage
_SHARED_TAGS = 2  # maximum size of all tags in file sizes: tags may share bytes
_SMALL_TAG_BYTES = 1 << 20

_Tag = tuple[int, int, int, bytes]  # tag, type, number of values, bytes of the value


class _Tiff:
    """The tags of a TIFF, in its byte order; methods may raise struct.error."""

    def __init__(self, data: bytes) -> None:
        """Reads the offset of the tags of the first page."""
        self.data, self.order = data, "<" if data.startswith(b"I") else ">"
        is_big = 43 in data[2:4]
        self.offset_type, self.count_type = ("Q", "Q") if is_big else ("I", "H")
        self.value_bytes = struct.calcsize(self.offset_type)
        self.first_tags_offset = self.offset(
            data[self.value_bytes : 2 * self.value_bytes]
        )

    def offset(self, value: bytes) -> int:
        """Returns a tag's value as an offset."""
        return int(struct.unpack(self.order + self.offset_type, value)[0])

    def tags(self, offset: int) -> Iterator[_Tag]:
        """Returns the tags in the list at an offset."""
        (number,) = struct.unpack_from(self.order + self.count_type, self.data, offset)
        tag_struct = struct.Struct(
            f"{self.order}HH{self.offset_type}{self.value_bytes}s"
        )
        start = offset + struct.calcsize(self.count_type)
        end = start + number * tag_struct.size
        if end > len(self.data):
            raise struct.error("a list of tags ends after the file")
        return tag_struct.iter_unpack(self.data[start:end])

    def numbers(self, kind: int, number: int, value: bytes) -> tuple[int, ...]:
        """Returns a tag's numbers, from the tag itself if they fit in it."""
        if kind not in _TIFF_INTEGERS or number > _MAX_TIFF_SEGMENTS:
            raise ImageHeaderError(
                f"TIFF is damaged: {number:,} strips or tiles of type {kind} (expected "
                f"at most {_MAX_TIFF_SEGMENTS:,} integers)"
            )
        numbers = f"{self.order}{number}{_TIFF_INTEGERS[kind]}"
        try:
            if struct.calcsize(numbers) <= len(value):
                return struct.unpack_from(numbers, value)
            return struct.unpack_from(numbers, self.data, self.offset(value))
        except (struct.error, OverflowError):
            raise ImageHeaderError(
                f"TIFF is cut short: a list of {number:,} numbers is beyond its "
                f"{len(self.data):,} bytes"
            ) from None


def _read_tiff(data: bytes) -> ImageHeader:
    try:
        tiff = _Tiff(data)
        tags = tiff.tags(tiff.first_tags_offset)
    except (struct.error, OverflowError):
        raise _truncation_error("TIFF", data) from None
    values = {_HEIGHT: 0, _WIDTH: 0, _PHOTOMETRIC: 0, _SAMPLES: 1}
    for tag, kind, _, value in _limit_elements("TIFF", "tags", tags):
        number = _TIFF_INTEGERS.get(kind, "")
        if tag in values and number and struct.calcsize(number) <= len(value):
            (values[tag],) = struct.unpack_from(tiff.order + number, value)
    depth = values[_SAMPLES]
    if values[_PHOTOMETRIC] == _PALETTE:
        depth += 2  # one sample becomes red, green and blue
    return ImageHeader("tiff", values[_HEIGHT], values[_WIDTH], depth)


def _check_tiff(data: bytes, _: ImageHeader) -> None:
    tiff = _Tiff(data)
    tags = {tag[0]: tag[1:] for tag in tiff.tags(tiff.first_tags_offset)}
    for offsets_tag, counts_tag in _TIFF_OFFSETS_TO_COUNTS.items():
        if offsets_tag not in tags:
            continue
        if counts_tag not in tags:
            raise ImageHeaderError(
                f"TIFF is damaged: tag {offsets_tag} without tag {counts_tag}"
            )
        starts = tiff.numbers(*tags[offsets_tag])
        sizes = tiff.numbers(*tags[counts_tag])
        end = max((sum(pair) for pair in zip(starts, sizes, strict=False)), default=0)
        if len(starts) != len(sizes) or end > len(data):
            raise ImageHeaderError(
                f"TIFF is cut short: {len(data):,} bytes, but its pixels end at byte "
                f"{end:,}"
            )


def check_tags(data: bytes) -> None:
    """Raises ImageHeaderError if the tags of a TIFF take much more memory than the file.

    Pillow copies all tags. The limit applies to the values outside the tags, within the
    file, of the first page and of its lists of tags (EXIF, GPS).
    """
    num_tag_bytes = 0
    try:
        tiff = _Tiff(data)
        lists = [tiff.first_tags_offset]
        for offset in lists:  # the list grows during the loop
            for tag, kind, values, value in tiff.tags(offset):
                size = values * _VALUE_BYTES.get(kind, 1)
                if size > tiff.value_bytes:
                    num_tag_bytes += max(0, min(size, len(data) - tiff.offset(value)))
                elif tag in _TAG_LISTS and len(lists) <= len(_TAG_LISTS):
                    lists.append(tiff.offset(value))
    except (struct.error, OverflowError):
        raise ImageHeaderError("TIFF is damaged: its tags end after the file") from None
    limit = _SHARED_TAGS * len(data) + _SMALL_TAG_BYTES
    if num_tag_bytes > limit:
        raise ImageHeaderError(
            f"TIFF has tags of {num_tag_bytes:,} bytes in a file of {len(data):,} (expected "
            f"{limit:,} or fewer)"
        )


# For each format, the functions that read its header and check its structure.
_FORMATS = {
    "jpeg": (_read_jpeg, _check_jpeg),
    "png": (_read_png, _check_png),
    "gif": (_read_gif, lambda _data, _header: None),
    "bmp": (_read_bmp, _check_bmp),
    "webp": (_read_webp, _check_webp),
    "tiff": (_read_tiff, _check_tiff),
}
