"""Images of every kind that a header reader can get wrong, 5 rows of 7 pixels each.

The expected headers are what `tf.io.decode_image(data, channels=0)` of TensorFlow
2.21.0 made of these very files (Pillow 12.3 wrote those that it can write). Of the
files in TENSORFLOW_CANNOT_DECODE they are this project's own rule.
"""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

from PIL import Image

Header = tuple[str, int, int, int]  # format, height, width, depth

TENSORFLOW_CANNOT_DECODE = frozenset(
    {
        # "Number of channels inherent in the image must be 1, 3 or 4, was 0" (or 2)
        "1-bit.bmp",
        "4-bit.bmp",
        "16-bit.bmp",
        "os2-info.bmp",
        # "Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required"
        "gray.tif",
        "gray-16-bit.tif",
        "gray-alpha.tif",
        "gray-1-bit.tif",
        "float.tif",
        "rgb.tif",
        "rgb-lzw.tif",
        "rgb-two-pages.tif",
        "rgb-big-endian.tif",
        "rgb-bigtiff.tif",
        "rgba.tif",
        "cmyk.tif",
        "ycbcr.tif",
        "palette.tif",
    }
)
# An animation without alpha: 4 channels are written into memory for 3. decode_image and
# decode_webp answer (2, 5, 7, 3), then the process dies, at once or some calls later.
TENSORFLOW_MAY_ABORT = frozenset({"animated.webp"})


def make_zoo(folder: Path) -> dict[str, Header]:
    """Writes all images into folder; returns the expected header of each file."""
    for name, (data, _) in IMAGES.items():
        (folder / name).write_bytes(data)
    return {name: header for name, (_, header) in IMAGES.items()}


def encode(
    mode: str, file_format: str, size: tuple[int, int] = (7, 5), /, **options: Any
) -> bytes:
    """An image written by Pillow; half transparent where the mode has alpha."""
    image = Image.new(mode, size, (10, 20, 30, 128) if mode == "RGBA" else 0)
    if mode == "P":
        image.putpalette(bytes(range(6)))
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def jpeg_segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(payload)) + payload


def png_chunk(kind: bytes, payload: bytes) -> bytes:
    crc = zlib.crc32(kind + payload)
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", crc)


def png(
    colour_type: int, bits: int, *, chunks: bytes = b"", interlaced: bool = False
) -> bytes:
    """A PNG of zeros, with chunks of your own between IHDR and IDAT."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    adam7 = (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    )
    pixels = b""
    for x, y, step_x, step_y in adam7 if interlaced else ((0, 0, 1, 1),):
        width, height = len(range(x, 7, step_x)), len(range(y, 5, step_y))
        if width:
            pixels += bytes(1 + (width * samples * bits + 7) // 8) * height
    header = struct.pack(">IIBBBBB", 7, 5, bits, colour_type, 0, 0, interlaced)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + chunks
        + png_chunk(b"IDAT", zlib.compress(pixels))
        + png_chunk(b"IEND", b"")
    )


def gif(
    *frames: tuple[int, int, int, int],
    screen: tuple[int, int] = (7, 5),
    version: bytes = b"GIF89a",
) -> bytes:
    """A GIF with frames of (left, top, width, height)."""
    parts = [version, struct.pack("<HHBBB", *screen, 0x80, 0, 0), bytes(6)]
    for left, top, width, height in frames:
        codes: list[int] = []
        for _ in range(0, width * height, 2):
            codes += [4, 0, 0]  # clear the table every two pixels: codes stay 3 bits
        codes = [*codes, 5]
        bits = sum(code << 3 * index for index, code in enumerate(codes))
        packed = bits.to_bytes((3 * len(codes) + 7) // 8, "little")
        parts += [b",", struct.pack("<HHHHB", left, top, width, height, 0), b"\x02"]
        parts += [bytes([len(packed)]), packed, b"\0"]
    return b"".join([*parts, b";"])


def bmp(
    bits: int, *, height: int = 5, info_bytes: int = 40, palette: bytes = b""
) -> bytes:
    """A BMP of zeros."""
    pixels = bytes((7 * bits + 31) // 32 * 4 * abs(height))
    if info_bytes == 12:
        info = struct.pack("<IHHHH", 12, 7, height, 1, bits)
    else:
        info = struct.pack("<IiiHH", info_bytes, 7, height, 1, bits)
        info = info.ljust(32, b"\0") + struct.pack("<I", len(palette) // 4)
        info = info.ljust(info_bytes, b"\0")
    start = 14 + len(info) + len(palette)
    head = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start)
    return head + info + palette + pixels


def webp_chunks(data: bytes) -> dict[bytes, bytes]:
    chunks, offset = {}, 12
    while offset < len(data):
        kind, size = struct.unpack_from("<4sI", data, offset)
        chunks[kind] = data[offset + 8 : offset + 8 + size]
        offset += 8 + size + size % 2
    return chunks


def webp(flags: int, **chunks: bytes) -> bytes:
    """A WebP of VP8X with these flags, then chunks; `_` in a name is a space."""
    canvas = (6).to_bytes(3, "little") + (4).to_bytes(3, "little")
    body = b"WEBP"
    for name, payload in {"VP8X": bytes([flags, 0, 0, 0]) + canvas, **chunks}.items():
        kind = name.replace("_", " ").encode()
        body += kind + struct.pack("<I", len(payload)) + payload
        body += bytes(len(payload) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def big_endian_tiff() -> bytes:
    """Pillow writes little-endian ones."""
    entries = [
        (256, 7),
        (257, 5),
        (258, 8),
        (259, 1),
        (262, 2),
        (273, 0),
        (277, 3),
        (278, 5),
        (279, 105),
    ]
    head = b"MM\0*" + struct.pack(">IH", 8, len(entries))
    pixels_at = len(head) + 12 * len(entries) + 4
    tags = b"".join(
        struct.pack(">HHIHH", tag, 3, 1, pixels_at if tag == 273 else value, 0)
        for tag, value in entries
    )
    return head + tags + bytes(4) + bytes(105)


def _make_images() -> dict[str, tuple[bytes, Header]]:
    jpeg = encode("RGB", "JPEG")
    tables_at = jpeg.index(b"\xff\xdb")
    thumbnail = encode("RGB", "JPEG", (3, 2))
    rotated = Image.Exif()
    rotated[0x112] = 6
    cmyk = encode("CMYK", "JPEG")
    transform_at = cmyk.index(b"Adobe") + 11
    palette = png_chunk(b"PLTE", bytes(6))
    clear = png_chunk(b"tRNS", b"\0")
    text = png_chunk(b"tEXt", b"tRNS\0" + clear)
    lossy, lossless = encode("RGB", "WEBP"), encode("RGB", "WEBP", lossless=True)
    lossy_alpha = encode("RGBA", "WEBP")
    lossless_alpha = encode("RGBA", "WEBP", lossless=True)
    vp8, vp8l = webp_chunks(lossy)[b"VP8 "], webp_chunks(lossless)[b"VP8L"]
    alpha = webp_chunks(lossy_alpha)[b"ALPH"]
    vp8l_alpha = webp_chunks(lossless_alpha)[b"VP8L"]
    frame, small, large = (0, 0, 7, 5), (2, 1, 3, 2), (0, 0, 9, 8)

    return {
        "rgb.jpg": (jpeg, ("jpeg", 5, 7, 3)),
        "gray.jpg": (encode("L", "JPEG"), ("jpeg", 5, 7, 1)),
        "progressive.jpg": (encode("RGB", "JPEG", progressive=True), ("jpeg", 5, 7, 3)),
        # Adobe transform 0: stored as RGB, not YCbCr
        "untransformed.jpg": (encode("RGB", "JPEG", keep_rgb=True), ("jpeg", 5, 7, 3)),
        # the decoder turns four inks into RGB, however they are stored
        "cmyk.jpg": (cmyk, ("jpeg", 5, 7, 3)),
        "ycck.jpg": (
            cmyk[:transform_at] + b"\2" + cmyk[transform_at + 1 :],
            ("jpeg", 5, 7, 3),
        ),
        "cmyk-no-adobe.jpg": (
            cmyk[: transform_at - 15] + cmyk[transform_at + 1 :],
            ("jpeg", 5, 7, 3),
        ),
        # a viewer shows 7 rows of 5 pixels, the decoder does not turn it
        "exif-rotated.jpg": (encode("RGB", "JPEG", exif=rotated), ("jpeg", 5, 7, 3)),
        # a smaller JPEG inside EXIF, and a full segment of what looks like frame headers
        "thumbnail.jpg": (
            jpeg[:2]
            + jpeg_segment(0xE1, b"Exif\0\0" + thumbnail)
            + jpeg_segment(0xE2, b"\xff\xc0\0\x11" * 16383)
            + jpeg[2:],
            ("jpeg", 5, 7, 3),
        ),
        "fill-bytes.jpg": (
            jpeg[:tables_at] + b"\xff" * 9 + jpeg[tables_at:],
            ("jpeg", 5, 7, 3),
        ),
        "bare-markers.jpg": (
            jpeg[:2] + b"\xff\x01\xff\xd0" + jpeg[2:],
            ("jpeg", 5, 7, 3),
        ),
        # libjpeg warns and searches for the next marker
        "bytes-between-segments.jpg": (
            jpeg[:tables_at] + b"abc\xff\0" + jpeg[tables_at:],
            ("jpeg", 5, 7, 3),
        ),
        "bytes-after-the-end.jpg": (jpeg + b"\xff\xc0 more", ("jpeg", 5, 7, 3)),
        # PNG: all colour types
        "gray-1-bit.png": (png(0, 1), ("png", 5, 7, 1)),
        "gray-2-bit.png": (png(0, 2), ("png", 5, 7, 1)),
        "gray-4-bit.png": (png(0, 4), ("png", 5, 7, 1)),
        "gray.png": (png(0, 8), ("png", 5, 7, 1)),
        "gray-16-bit.png": (png(0, 16), ("png", 5, 7, 1)),
        "rgb.png": (png(2, 8), ("png", 5, 7, 3)),
        "rgb-16-bit.png": (png(2, 16), ("png", 5, 7, 3)),
        "gray-alpha.png": (png(4, 8), ("png", 5, 7, 2)),
        "gray-alpha-16-bit.png": (png(4, 16), ("png", 5, 7, 2)),
        "rgba.png": (png(6, 8), ("png", 5, 7, 4)),
        "rgba-16-bit.png": (png(6, 16), ("png", 5, 7, 4)),
        "palette.png": (png(3, 8, chunks=palette), ("png", 5, 7, 3)),
        "palette-1-bit.png": (png(3, 1, chunks=palette), ("png", 5, 7, 3)),
        "interlaced.png": (png(2, 8, interlaced=True), ("png", 5, 7, 3)),
        "interlaced-palette.png": (
            png(3, 4, chunks=palette, interlaced=True),
            ("png", 5, 7, 3),
        ),
        "exif-rotated.png": (encode("RGB", "PNG", exif=rotated), ("png", 5, 7, 3)),
        # tRNS makes a fourth channel of a palette only ...
        "palette-trns.png": (png(3, 8, chunks=palette + clear), ("png", 5, 7, 4)),
        "palette-text-trns.png": (
            png(3, 8, chunks=palette + text + clear),
            ("png", 5, 7, 4),
        ),
        "gray-trns.png": (
            png(0, 8, chunks=png_chunk(b"tRNS", bytes(2))),
            ("png", 5, 7, 1),
        ),
        "gray-16-bit-trns.png": (
            png(0, 16, chunks=png_chunk(b"tRNS", bytes(2))),
            ("png", 5, 7, 1),
        ),
        "rgb-trns.png": (
            png(2, 8, chunks=png_chunk(b"tRNS", bytes(6))),
            ("png", 5, 7, 3),
        ),
        # ... and only where libpng takes it seriously
        "trns-before-palette.png": (
            png(3, 8, chunks=clear + palette),
            ("png", 5, 7, 3),
        ),
        "trns-empty.png": (
            png(3, 8, chunks=palette + png_chunk(b"tRNS", b"")),
            ("png", 5, 7, 3),
        ),
        "trns-too-long.png": (
            png(3, 8, chunks=palette + png_chunk(b"tRNS", bytes(3))),
            ("png", 5, 7, 3),
        ),
        "trns-beyond-1-bit.png": (
            png(
                3,
                1,
                chunks=png_chunk(b"PLTE", bytes(12)) + png_chunk(b"tRNS", bytes(3)),
            ),
            ("png", 5, 7, 3),
        ),
        "trns-bad-crc.png": (
            png(3, 8, chunks=palette + clear[:-1] + b"\0"),
            ("png", 5, 7, 3),
        ),
        "trns-inside-text.png": (png(3, 8, chunks=palette + text), ("png", 5, 7, 3)),
        "trns-after-pixels.png": (
            png(3, 8, chunks=palette)[:-12] + clear + png_chunk(b"IEND", b""),
            ("png", 5, 7, 3),
        ),
        # GIF: the largest frame gives the size, the screen does not
        "still.gif": (encode("P", "GIF"), ("gif", 5, 7, 3)),
        "87a.gif": (gif(frame, version=b"GIF87a"), ("gif", 5, 7, 3)),
        "animated.gif": (gif(frame, frame), ("gif", 5, 7, 3)),
        "extensions.gif": (
            gif(frame)[:19] + b"!\xfe\3abc\0!\xf9\4\0\0\0\0\0" + gif(frame)[19:],
            ("gif", 5, 7, 3),
        ),
        "local-colours.gif": (
            gif(frame)[:28] + b"\x80" + bytes(6) + gif(frame)[29:],
            ("gif", 5, 7, 3),
        ),
        "small-frame.gif": (gif(small), ("gif", 2, 3, 3)),
        "small-second-frame.gif": (gif(frame, small), ("gif", 5, 7, 3)),
        "small-first-frame.gif": (gif(small, frame), ("gif", 5, 7, 3)),
        "two-small-frames.gif": (gif(small, (0, 1, 2, 4)), ("gif", 4, 3, 3)),
        "large-frame.gif": (gif(large), ("gif", 8, 9, 3)),
        "large-second-frame.gif": (gif(frame, large), ("gif", 8, 9, 3)),
        "shifted-frame.gif": (gif((5, 4, 7, 5)), ("gif", 5, 7, 3)),
        "empty-screen.gif": (gif(frame, screen=(0, 0)), ("gif", 5, 7, 3)),
        "no-trailer.gif": (gif(frame)[:-1], ("gif", 5, 7, 3)),
        "cut-second-frame.gif": (gif(frame, large)[:-30], ("gif", 5, 7, 3)),
        "bytes-after-first-frame.gif": (
            gif(frame)[:-1] + b"junk" + gif(large)[19:],
            ("gif", 5, 7, 3),
        ),
        "frame-after-the-end.gif": (gif(frame) + gif(large)[19:], ("gif", 5, 7, 3)),
        # BMP: bits / 8, nothing is expanded or dropped
        "gray.bmp": (encode("L", "BMP"), ("bmp", 5, 7, 1)),
        "palette.bmp": (encode("P", "BMP"), ("bmp", 5, 7, 1)),
        "colour-palette.bmp": (
            bmp(8, palette=bytes(i % 251 for i in range(1024))),
            ("bmp", 5, 7, 1),
        ),
        "rgb.bmp": (encode("RGB", "BMP"), ("bmp", 5, 7, 3)),
        "rgba.bmp": (encode("RGBA", "BMP"), ("bmp", 5, 7, 4)),
        "32-bit-no-alpha.bmp": (bmp(32), ("bmp", 5, 7, 4)),
        "top-down.bmp": (bmp(24, height=-5), ("bmp", 5, 7, 3)),
        "top-down-palette.bmp": (
            bmp(8, height=-5, palette=bytes(1024)),
            ("bmp", 5, 7, 1),
        ),
        "v4-info.bmp": (bmp(32, info_bytes=108), ("bmp", 5, 7, 4)),
        "v5-info.bmp": (bmp(24, info_bytes=124), ("bmp", 5, 7, 3)),
        "1-bit.bmp": (bmp(1, palette=bytes(8)), ("bmp", 5, 7, 3)),
        "4-bit.bmp": (bmp(4, palette=bytes(64)), ("bmp", 5, 7, 3)),
        "16-bit.bmp": (bmp(16), ("bmp", 5, 7, 3)),
        "os2-info.bmp": (bmp(24, info_bytes=12), ("bmp", 5, 7, 3)),
        # WebP: VP8L says itself whether it has alpha, VP8 by ALPH or the flag of VP8X
        "lossy.webp": (lossy, ("webp", 5, 7, 3)),
        "lossless.webp": (lossless, ("webp", 5, 7, 3)),
        "lossy-alpha.webp": (lossy_alpha, ("webp", 5, 7, 4)),
        "lossless-alpha.webp": (lossless_alpha, ("webp", 5, 7, 4)),
        "exif-rotated.webp": (encode("RGB", "WEBP", exif=rotated), ("webp", 5, 7, 3)),
        "flag-without-alpha.webp": (webp(0x10, VP8_=vp8), ("webp", 5, 7, 4)),
        "alpha-without-flag.webp": (webp(0, ALPH=alpha, VP8_=vp8), ("webp", 5, 7, 4)),
        "lossless-wrong-flag.webp": (webp(0x10, VP8L=vp8l), ("webp", 5, 7, 3)),
        "lossless-alpha-no-flag.webp": (webp(0, VP8L=vp8l_alpha), ("webp", 5, 7, 4)),
        "unknown-chunk.webp": (webp(0, UNKN=b"abc", VP8_=vp8), ("webp", 5, 7, 3)),
        "animated-alpha.webp": (
            encode(
                "RGBA", "WEBP", save_all=True, append_images=[Image.new("RGBA", (7, 5))]
            ),
            ("webp", 5, 7, 4),
        ),
        "animated.webp": (
            encode(
                "RGB",
                "WEBP",
                save_all=True,
                append_images=[Image.new("RGB", (7, 5), 9)],
            ),
            ("webp", 5, 7, 3),
        ),
        # TIFF: samples per pixel, a palette counting as RGB
        "gray.tif": (encode("L", "TIFF"), ("tiff", 5, 7, 1)),
        "gray-16-bit.tif": (encode("I;16", "TIFF"), ("tiff", 5, 7, 1)),
        "gray-alpha.tif": (encode("LA", "TIFF"), ("tiff", 5, 7, 2)),
        "gray-1-bit.tif": (encode("1", "TIFF"), ("tiff", 5, 7, 1)),
        "float.tif": (encode("F", "TIFF"), ("tiff", 5, 7, 1)),
        "rgb.tif": (encode("RGB", "TIFF"), ("tiff", 5, 7, 3)),
        "rgb-lzw.tif": (
            encode("RGB", "TIFF", compression="tiff_lzw"),
            ("tiff", 5, 7, 3),
        ),
        "rgb-two-pages.tif": (
            encode(
                "RGB", "TIFF", save_all=True, append_images=[Image.new("L", (3, 2))]
            ),
            ("tiff", 5, 7, 3),
        ),
        "rgb-big-endian.tif": (big_endian_tiff(), ("tiff", 5, 7, 3)),
        "rgb-bigtiff.tif": (encode("RGB", "TIFF", big_tiff=True), ("tiff", 5, 7, 3)),
        "rgba.tif": (encode("RGBA", "TIFF"), ("tiff", 5, 7, 4)),
        "cmyk.tif": (encode("CMYK", "TIFF"), ("tiff", 5, 7, 4)),
        "ycbcr.tif": (encode("YCbCr", "TIFF"), ("tiff", 5, 7, 3)),
        "palette.tif": (encode("P", "TIFF"), ("tiff", 5, 7, 3)),
    }


IMAGES = _make_images()
