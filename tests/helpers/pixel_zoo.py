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


def _make_images() -> dict[str, bytes]:
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
        "rgb.jpg": jpeg,
        "gray.jpg": encode("L", "JPEG"),
        "progressive.jpg": encode("RGB", "JPEG", progressive=True),
        # Adobe transform 0: stored as RGB, not YCbCr
        "untransformed.jpg": encode("RGB", "JPEG", keep_rgb=True),
        # the decoder turns four inks into RGB, however they are stored
        "cmyk.jpg": cmyk,
        "ycck.jpg": cmyk[:transform_at] + b"\2" + cmyk[transform_at + 1 :],
        "cmyk-no-adobe.jpg": cmyk[: transform_at - 15] + cmyk[transform_at + 1 :],
        # a viewer shows 7 rows of 5 pixels, the decoder does not turn it
        "exif-rotated.jpg": encode("RGB", "JPEG", exif=rotated),
        # a smaller JPEG inside EXIF, and a full segment of what looks like frame headers
        "thumbnail.jpg": jpeg[:2]
        + jpeg_segment(0xE1, b"Exif\0\0" + thumbnail)
        + jpeg_segment(0xE2, b"\xff\xc0\0\x11" * 16383)
        + jpeg[2:],
        "fill-bytes.jpg": jpeg[:tables_at] + b"\xff" * 9 + jpeg[tables_at:],
        "bare-markers.jpg": jpeg[:2] + b"\xff\x01\xff\xd0" + jpeg[2:],
        # libjpeg warns and searches for the next marker
        "bytes-between-segments.jpg": jpeg[:tables_at]
        + b"abc\xff\0"
        + jpeg[tables_at:],
        "bytes-after-the-end.jpg": jpeg + b"\xff\xc0 more",
        # PNG: all colour types
        "gray-1-bit.png": png(0, 1),
        "gray-2-bit.png": png(0, 2),
        "gray-4-bit.png": png(0, 4),
        "gray.png": png(0, 8),
        "gray-16-bit.png": png(0, 16),
        "rgb.png": png(2, 8),
        "rgb-16-bit.png": png(2, 16),
        "gray-alpha.png": png(4, 8),
        "gray-alpha-16-bit.png": png(4, 16),
        "rgba.png": png(6, 8),
        "rgba-16-bit.png": png(6, 16),
        "palette.png": png(3, 8, chunks=palette),
        "palette-1-bit.png": png(3, 1, chunks=palette),
        "interlaced.png": png(2, 8, interlaced=True),
        "interlaced-palette.png": png(3, 4, chunks=palette, interlaced=True),
        "exif-rotated.png": encode("RGB", "PNG", exif=rotated),
        # tRNS makes a fourth channel of a palette only ...
        "palette-trns.png": png(3, 8, chunks=palette + clear),
        "palette-text-trns.png": png(3, 8, chunks=palette + text + clear),
        "gray-trns.png": png(0, 8, chunks=png_chunk(b"tRNS", bytes(2))),
        "gray-16-bit-trns.png": png(0, 16, chunks=png_chunk(b"tRNS", bytes(2))),
        "rgb-trns.png": png(2, 8, chunks=png_chunk(b"tRNS", bytes(6))),
        # ... and only where libpng takes it seriously
        "trns-before-palette.png": png(3, 8, chunks=clear + palette),
        "trns-empty.png": png(3, 8, chunks=palette + png_chunk(b"tRNS", b"")),
        "trns-too-long.png": png(3, 8, chunks=palette + png_chunk(b"tRNS", bytes(3))),
        "trns-beyond-1-bit.png": png(
            3, 1, chunks=png_chunk(b"PLTE", bytes(12)) + png_chunk(b"tRNS", bytes(3))
        ),
        "trns-bad-crc.png": png(3, 8, chunks=palette + clear[:-1] + b"\0"),
        "trns-inside-text.png": png(3, 8, chunks=palette + text),
        "trns-after-pixels.png": png(3, 8, chunks=palette)[:-12]
        + clear
        + png_chunk(b"IEND", b""),
        # GIF: the largest frame gives the size, the screen does not
        "still.gif": encode("P", "GIF"),
        "87a.gif": gif(frame, version=b"GIF87a"),
        "animated.gif": gif(frame, frame),
        "extensions.gif": gif(frame)[:19]
        + b"!\xfe\3abc\0!\xf9\4\0\0\0\0\0"
        + gif(frame)[19:],
        "local-colours.gif": gif(frame)[:28] + b"\x80" + bytes(6) + gif(frame)[29:],
        "small-frame.gif": gif(small),
        "small-second-frame.gif": gif(frame, small),
        "small-first-frame.gif": gif(small, frame),
        "two-small-frames.gif": gif(small, (0, 1, 2, 4)),
        "large-frame.gif": gif(large),
        "large-second-frame.gif": gif(frame, large),
        "shifted-frame.gif": gif((5, 4, 7, 5)),
        "empty-screen.gif": gif(frame, screen=(0, 0)),
        "no-trailer.gif": gif(frame)[:-1],
        "cut-second-frame.gif": gif(frame, large)[:-30],
        "bytes-after-first-frame.gif": gif(frame)[:-1] + b"junk" + gif(large)[19:],
        "frame-after-the-end.gif": gif(frame) + gif(large)[19:],
        # BMP: bits / 8, nothing is expanded or dropped
        "gray.bmp": encode("L", "BMP"),
        "palette.bmp": encode("P", "BMP"),
        "colour-palette.bmp": bmp(8, palette=bytes(i % 251 for i in range(1024))),
        "rgb.bmp": encode("RGB", "BMP"),
        "rgba.bmp": encode("RGBA", "BMP"),
        "32-bit-no-alpha.bmp": bmp(32),
        "top-down.bmp": bmp(24, height=-5),
        "top-down-palette.bmp": bmp(8, height=-5, palette=bytes(1024)),
        "v4-info.bmp": bmp(32, info_bytes=108),
        "v5-info.bmp": bmp(24, info_bytes=124),
        "1-bit.bmp": bmp(1, palette=bytes(8)),
        "4-bit.bmp": bmp(4, palette=bytes(64)),
        "16-bit.bmp": bmp(16),
        "os2-info.bmp": bmp(24, info_bytes=12),
        # WebP: VP8L says itself whether it has alpha, VP8 by ALPH or the flag of VP8X
        "lossy.webp": lossy,
        "lossless.webp": lossless,
        "lossy-alpha.webp": lossy_alpha,
        "lossless-alpha.webp": lossless_alpha,
        "exif-rotated.webp": encode("RGB", "WEBP", exif=rotated),
        "flag-without-alpha.webp": webp(0x10, VP8_=vp8),
        "alpha-without-flag.webp": webp(0, ALPH=alpha, VP8_=vp8),
        "lossless-wrong-flag.webp": webp(0x10, VP8L=vp8l),
        "lossless-alpha-no-flag.webp": webp(0, VP8L=vp8l_alpha),
        "unknown-chunk.webp": webp(0, UNKN=b"abc", VP8_=vp8),
        "animated-alpha.webp": encode(
            "RGBA", "WEBP", save_all=True, append_images=[Image.new("RGBA", (7, 5))]
        ),
        "animated.webp": encode(
            "RGB", "WEBP", save_all=True, append_images=[Image.new("RGB", (7, 5), 9)]
        ),
        # TIFF: samples per pixel, a palette counting as RGB
        "gray.tif": encode("L", "TIFF"),
        "gray-16-bit.tif": encode("I;16", "TIFF"),
        "gray-alpha.tif": encode("LA", "TIFF"),
        "gray-1-bit.tif": encode("1", "TIFF"),
        "float.tif": encode("F", "TIFF"),
        "rgb.tif": encode("RGB", "TIFF"),
        "rgb-lzw.tif": encode("RGB", "TIFF", compression="tiff_lzw"),
        "rgb-two-pages.tif": encode(
            "RGB", "TIFF", save_all=True, append_images=[Image.new("L", (3, 2))]
        ),
        "rgb-big-endian.tif": big_endian_tiff(),
        "rgb-bigtiff.tif": encode("RGB", "TIFF", big_tiff=True),
        "rgba.tif": encode("RGBA", "TIFF"),
        "cmyk.tif": encode("CMYK", "TIFF"),
        "ycbcr.tif": encode("YCbCr", "TIFF"),
        "palette.tif": encode("P", "TIFF"),
    }


FORMATS = {"jpg": "jpeg", "tif": "tiff"}  # other names end as their format is called
# Of all other images three channels, and 5 rows of 7 pixels.
DEPTHS = {
    1: """
    gray.jpg gray-1-bit.png gray-2-bit.png gray-4-bit.png gray.png
    gray-16-bit.png gray-trns.png gray-16-bit-trns.png gray.bmp palette.bmp
    colour-palette.bmp top-down-palette.bmp gray.tif gray-16-bit.tif
    gray-1-bit.tif float.tif
    """,
    2: "gray-alpha.png gray-alpha-16-bit.png gray-alpha.tif",
    4: """
    rgba.png rgba-16-bit.png palette-trns.png palette-text-trns.png rgba.bmp
    32-bit-no-alpha.bmp v4-info.bmp lossy-alpha.webp lossless-alpha.webp
    flag-without-alpha.webp alpha-without-flag.webp
    lossless-alpha-no-flag.webp animated-alpha.webp rgba.tif cmyk.tif
    """,
}
SIZES = {
    "small-frame.gif": (2, 3),
    "two-small-frames.gif": (4, 3),
    "large-frame.gif": (8, 9),
    "large-second-frame.gif": (8, 9),
}


def _header_of(name: str) -> Header:
    ending = name.rpartition(".")[2]
    depth = next((depth for depth, names in DEPTHS.items() if name in names.split()), 3)
    return FORMATS.get(ending, ending), *SIZES.get(name, (5, 7)), depth


IMAGES = {name: (data, _header_of(name)) for name, data in _make_images().items()}
# "Number of channels inherent in the image must be 1, 3 or 4, was 0" (or 2) of BMP, and
# "Unknown image file format" of TIFF.
TENSORFLOW_CANNOT_DECODE = frozenset(
    {"1-bit.bmp", "4-bit.bmp", "16-bit.bmp", "os2-info.bmp"}
    | {name for name in IMAGES if name.endswith(".tif")}
)
