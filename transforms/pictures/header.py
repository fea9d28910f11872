"""Height, width and depth of a picture, from its first bytes, without decoding it.

The format is told by content, never by file name. The numbers are those of
`tf.io.decode_image(data, channels=0)` in TensorFlow 2.21 (checked by experiment: see
tests/pixel_zoo.py), and where TensorFlow is surprising, so are they:

    JPEG  FF D8, then segments: FF | marker | u16 length, itself included | ...
          frame header, markers C0..CF: length | u8 bits | u16 height | u16 width
          | u8 components | 3 bytes each. CMYK and YCCK become RGB: depth 3.
          EXIF orientation is ignored.
    PNG   89 "PNG" 0D 0A 1A 0A, then chunks: u32 length | type | data | u32 crc
          IHDR: u32 width | u32 height | u8 bits | u8 colour type | 3 bytes.
          A palette has depth 3, with a valid tRNS chunk 4; tRNS adds nothing elsewhere.
    GIF   "GIF87a" or "GIF89a" | u16 screen width | u16 screen height | u8 flags | 2
          bytes | colour table, then blocks. The size is that of the largest frame,
          not of the screen; frames after a cut do not count. Depth 3.
    BMP   "BM" | 12 bytes | u32 info size | i32 width | i32 height (negative: rows run
          downwards) | u16 planes | u16 bits. Depth is bits / 8: a palette of 8 bits
          is not expanded, and 32 bits are 4 channels with or without alpha.
    WebP  "RIFF" | u32 size | "WEBP", then chunks: type | u32 length | data | padding
          VP8 (lossy), VP8L (lossless), VP8X (extended: flags and canvas).
    TIFF  "II" or "MM" | u16 42 | u32 offset of the tags: u16 count, then per tag
          u16 tag | u16 type | u32 count | value. BigTIFF: 43 and u64.

TensorFlow decodes neither TIFF nor a BMP of 1, 4 or 16 bits or with the 12-byte info of
OS/2. Their depth is the number of samples per pixel, a palette counting as RGB.

All of it is read here, not by Pillow: it sees 3 bands in a 32-bit BMP and the screen of
a GIF, and opening a TIFF copies all its tags, each of which may span the whole file.
PNG numbers and JPEG numbers are big-endian, those of the others little-endian (TIFF
says which).
"""

import re
import struct
import zlib
from dataclasses import dataclass

# What real pictures never have before their pixels; more would only cost time.
MAX_SEGMENTS = 10_000
_GIF_MAX_BLOCKS = 100_000
_GIF_BLOCK_BYTES = 16  # sub-blocks of a GIF have 255 bytes; fewer than this on average
_GIF_FREE_BLOCKS = 1_000_000  # is refused beyond so many

_JPEG_MARKER = re.compile(rb"\xff[^\x00\xff]")
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # not DHT, JPG, DAC
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # TEM, RST0..7: nothing follows
_JPEG_FRAME = struct.Struct(">HBHHB")

_PNG_IHDR = struct.Struct(">I4sIIBB3sI")
_PNG_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_DEPTH = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PNG_PALETTE = 3

_BMP_INFO_BYTES = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_BMP_DEPTH = {1: 3, 4: 3, 8: 1, 16: 3, 24: 3, 32: 4}

_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_PHOTOMETRIC, _TIFF_SAMPLES = 256, 257, 262, 277
_TIFF_PALETTE = 3
_TIFF_INTEGERS = {1: "B", 3: "H", 4: "I"}
_BIG_TIFF_INTEGERS = _TIFF_INTEGERS | {16: "Q"}


class ImageHeaderError(ValueError):
    """The bytes are no picture of a known format, or its header is cut or damaged."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What a decoder will make of a picture.

    Attributes:
        format: jpeg, png, gif, bmp, webp or tiff.
        height: rows.
        width: pixels in a row.
        depth: channels.
    """

    format: str
    height: int
    width: int
    depth: int


def read_header(data: bytes) -> ImageHeader:
    """Returns the header of a picture, given the whole file.

    Raises:
        ImageHeaderError: with what was found and what was expected.
    """
    if data.startswith(b"\xff\xd8\xff"):
        header = _read_jpeg(data)
    elif data.startswith(b"\x89PNG\r\n\x1a\n"):
        header = _read_png(data)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        header = _read_gif(data)
    elif data.startswith(b"BM"):
        header = _read_bmp(data)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        header = _read_webp(data)
    elif data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        header = _read_tiff(data)
    else:
        found = f"starts with {data[:9]!r}" if data else "has no bytes"
        raise ImageHeaderError(
            f"not a picture: {found} (expected JPEG, PNG, GIF, BMP, WebP or TIFF)"
        )
    if header.height < 1 or header.width < 1 or header.depth < 1:
        raise ImageHeaderError(
            f"{header.format} of height {header.height}, width {header.width} and "
            f"depth {header.depth} (expected 1 or more of each)"
        )
    return header


def _read_jpeg(data: bytes) -> ImageHeader:
    offset = 2
    # The search passes over fill bytes and, as libjpeg does, over bytes between
    # segments. What is inside a segment (a thumbnail is a JPEG too) is jumped over.
    for _ in range(MAX_SEGMENTS):
        found = _JPEG_MARKER.search(data, offset)
        if found is None:
            break
        marker, offset = data[found.end() - 1], found.end()
        if marker in _JPEG_BARE:
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
        if marker in _JPEG_FRAMES:
            return _read_jpeg_frame(data[offset : offset + segment_bytes])
        offset += segment_bytes
    else:
        raise _too_many("JPEG", "segments")
    raise _cut("JPEG", data)


def _read_jpeg_frame(segment: bytes) -> ImageHeader:
    if len(segment) < 8 or len(segment) != 8 + 3 * segment[7]:
        raise ImageHeaderError(
            f"JPEG has a frame header of {len(segment)} bytes "
            "(expected 8, and 3 for each component)"
        )
    _, _, height, width, components = _JPEG_FRAME.unpack_from(segment)
    if components not in (1, 3, 4):
        raise ImageHeaderError(f"JPEG has {components} components (expected 1, 3 or 4)")
    if not height:
        raise ImageHeaderError(
            "JPEG has height 0 in its frame header: the height comes after the pixels, "
            "in a DNL segment, which decoders do not read (expected 1 or more)"
        )
    return ImageHeader("jpeg", height, width, min(components, 3))


def _read_png(data: bytes) -> ImageHeader:
    if len(data) < 33:
        raise _cut("PNG", data)
    size, kind, width, height, bits, colour, _, crc = _PNG_IHDR.unpack_from(data, 8)
    if size != 13 or kind != b"IHDR":
        raise ImageHeaderError(
            f"PNG starts with a chunk {kind!r} of {size} bytes (expected IHDR of 13)"
        )
    if (actual_crc := zlib.crc32(data[12:29])) != crc:
        raise ImageHeaderError(
            f"PNG has CRC {actual_crc:08x} over IHDR (expected {crc:08x}, as it says)"
        )
    if bits not in _PNG_BITS.get(colour, ()):
        raise ImageHeaderError(
            f"PNG has colour type {colour} with {bits} bits "
            f"(expected one of {_PNG_BITS})"
        )
    depth = _PNG_DEPTH[colour]
    if colour == _PNG_PALETTE:
        depth += _has_transparent_colours(data, 1 << bits)
    return ImageHeader("png", height, width, depth)


def _has_transparent_colours(data: bytes, max_colours: int) -> bool:
    """Whether a palette PNG has a tRNS chunk that libpng does not ignore."""
    offset, num_colours, transparent = 33, 0, False
    num_chunks = 0
    while offset + 8 <= len(data):
        if (num_chunks := num_chunks + 1) > MAX_SEGMENTS:
            raise _too_many("PNG", "chunks")
        size, kind = struct.unpack_from(">I4s", data, offset)
        if kind == b"IDAT":
            break
        end = offset + 12 + size
        if kind == b"PLTE":
            if end > len(data):
                raise _cut("PNG", data)
            num_colours = min(size // 3, max_colours)
        elif kind == b"tRNS" and 1 <= size <= num_colours and end <= len(data):
            crc = int.from_bytes(data[end - 4 : end], "big")
            transparent |= zlib.crc32(data[offset + 4 : end - 4]) == crc
        offset = end
    else:
        raise _cut("PNG", data)
    if not num_colours:
        raise ImageHeaderError(
            "PNG has no palette before its pixels (expected PLTE, by its colour type)"
        )
    return transparent


def _read_gif(data: bytes) -> ImageHeader:
    if len(data) < 13:
        raise _cut("GIF", data)
    offset = 13 + _colour_table_bytes(data[10])
    height = width = num_blocks = 0
    try:
        while (kind := data[offset]) in b"!,":
            if (num_blocks := num_blocks + 1) > _GIF_MAX_BLOCKS:
                raise ImageHeaderError(
                    f"GIF has more than {_GIF_MAX_BLOCKS:,} frames and extensions "
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
        pass  # cut: the frames before the cut count
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
        if num_blocks > _GIF_FREE_BLOCKS + (offset - start) // _GIF_BLOCK_BYTES:
            raise ImageHeaderError(
                f"GIF has {num_blocks:,} blocks in {offset - start:,} bytes (expected "
                "blocks of 255 bytes)"
            )
    return offset + 1


def _read_bmp(data: bytes) -> ImageHeader:
    if len(data) < 30:
        raise _cut("BMP", data)
    info_bytes = int.from_bytes(data[14:18], "little")
    if info_bytes not in _BMP_INFO_BYTES:
        raise ImageHeaderError(
            f"BMP has an info header of {info_bytes} bytes "
            f"(expected one of {sorted(_BMP_INFO_BYTES)})"
        )
    layout = "<HHHH" if info_bytes == 12 else "<iiHH"
    width, height, _, bits = struct.unpack_from(layout, data, 18)
    if bits not in _BMP_DEPTH:
        raise ImageHeaderError(
            f"BMP has {bits} bits per pixel (expected one of {list(_BMP_DEPTH)})"
        )
    depth = 3 if info_bytes == 12 else _BMP_DEPTH[bits]
    return ImageHeader("bmp", abs(height), width, depth)


def _read_webp(data: bytes) -> ImageHeader:
    offset, alpha, num_chunks = 12, False, 0
    while offset + 8 <= len(data):
        if (num_chunks := num_chunks + 1) > MAX_SEGMENTS:
            raise _too_many("WebP", "chunks")
        kind, size = struct.unpack_from("<4sI", data, offset)
        chunk = data[offset + 8 : offset + 18]
        if kind in (b"VP8 ", b"VP8X") and len(chunk) < 10:
            break
        if kind == b"VP8X":
            height = int.from_bytes(chunk[7:10], "little") + 1
            width = int.from_bytes(chunk[4:7], "little") + 1
            alpha = bool(chunk[0] & 0x10)
            if chunk[0] & 0x02:  # animated: the frames follow, each with its own chunks
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
    raise _cut("WebP", data)


def _read_tiff(data: bytes) -> ImageHeader:
    order, integers = "<" if data.startswith(b"I") else ">", _TIFF_INTEGERS
    start, pointer, count, entry = 4, "I", "H", "HHI4s"
    if 43 in data[2:4]:
        start, pointer, count, entry = 8, "Q", "Q", "HHQ8s"
        integers = _BIG_TIFF_INTEGERS
    try:
        (offset,) = struct.unpack_from(order + pointer, data, start)
        (num_entries,) = struct.unpack_from(order + count, data, offset)
    except (struct.error, OverflowError):
        raise _cut("TIFF", data) from None
    offset += struct.calcsize(count)
    end = offset + num_entries * struct.calcsize(order + entry)
    if end > len(data):
        raise _cut("TIFF", data)
    if num_entries > MAX_SEGMENTS:
        raise _too_many("TIFF", "tags")
    tags = {_TIFF_HEIGHT: 0, _TIFF_WIDTH: 0, _TIFF_PHOTOMETRIC: 0, _TIFF_SAMPLES: 1}
    for tag, kind, _, value in struct.iter_unpack(order + entry, data[offset:end]):
        if tag in tags and kind in integers:
            (tags[tag],) = struct.unpack_from(order + integers[kind], value)
    depth = tags[_TIFF_SAMPLES]
    if tags[_TIFF_PHOTOMETRIC] == _TIFF_PALETTE:
        depth += 2  # one sample becomes red, green and blue
    return ImageHeader("tiff", tags[_TIFF_HEIGHT], tags[_TIFF_WIDTH], depth)


def _too_many(name: str, things: str) -> ImageHeaderError:
    return ImageHeaderError(
        f"{name} has more than {MAX_SEGMENTS:,} {things} before its pixels "
        "(expected a few dozen)"
    )


def _cut(name: str, data: bytes) -> ImageHeaderError:
    return ImageHeaderError(f"{name} ends inside its header after {len(data)} bytes")
