"""Transforms images and masks by rules: decodes, turns, scales, crops, pads, encodes.

A JPEG that is scaled to a much smaller size is decoded at a half, a quarter or an eighth
of its size, which is faster. The decoded size is at least twice the requested size, so
that the filter has enough pixels (with `:scaled`, at least the requested size). The
filter is Pillow's bicubic filter, which uses all pixels that a pixel of the smaller image
covers.
"""

from __future__ import annotations

import heapq
import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.schemas.text import format_bytes, format_count
from recordmill.transforms.arrow import U64
from recordmill.transforms.images.decode import (
    GRAY_16,
    check_image,
    open_image,
    to_8_bits,
)
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    CheckLevel,
    ImageHeader,
    ImageHeaderError,
    may_have_exif,
    read_header,
)
from recordmill.transforms.images.objects import (
    FIRST_EXCHANGED,
    FLIPS_X,
    FLIPS_Y,
    TURNED_BACK,
    UPRIGHT,
    Placement,
    Sides,
)
from recordmill.transforms.images.pixel_rules import MAX_PIXEL_BYTES, Form, PixelRules

if TYPE_CHECKING:
    from PIL import Image


# Each version of a zlib library may write other bytes, so PNGs are written here: their
# bytes depend on their pixels alone.
#
#     89 "PNG" 0D 0A 1A 0A | IHDR | PLTE and tRNS for a palette | IDAT | IEND
#     chunk: u32 length | type | data | u32 crc
#
# Every choice is fixed: one IDAT, no interlacing, compression by `deflate`. Rows of a
# palette have filter 0, all other rows filter 4 (Paeth), which stores the difference to
# the neighbour (left, above or above left) nearest to left + above - above left.
#
# `deflate` writes blocks of equal size, each with its own Huffman code of single bytes,
# without matches. Any zlib can read it. Three bytes 7 7 9 become one block. 7 occurs
# twice, 9 and the end of the block once:
#
#     length of each code   7: 1 bit   9: 2 bits   end: 2 bits
#     codes                 7: 0       9: 10       end: 11
#     bits, from the left   0 0 10 11, after a header that has the lengths
#
# An empty stored block follows each block, so that it ends at a byte boundary.

BLOCK_BYTES = 1 << 18  # fixes the bytes of the stream
_MAX_CODE_BITS = 15

_NAMES = {"jpeg": "JPEG", "webp": "WebP"}
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by channels
_PALETTE_TYPE = 3
_NO_FILTER, _PAETH = 0, 4
_END = 256  # the symbol at the end of a block
_ZLIB_HEADER = b"\x78\x01"
_EMPTY_STORED = b"\0\0\xff\xff"
_LAST_BLOCK = b"\1\0\0\xff\xff"
_DISTANCE_LENGTHS = (1, 1)  # of two unused codes, which some readers require
_CODE_LENGTH_BITS = 4  # each length of a code, 0 to 15, is written with 4 bits

Bytes = npt.NDArray[np.uint8]


def encode_image(
    image: Image.Image, form: Form, quality: int, lossless: bool
) -> tuple[bytes, ImageHeader]:
    """Returns the bytes of an image and their header.

    EXIF data, comments and colour profiles are dropped. The image has 8 bits per channel;
    for png it may also have a palette or 16 bits of gray. For raw, the bytes are the
    samples, row by row.
    """
    header = ImageHeader(form, image.height, image.width, len(image.getbands()))
    if form == "raw":
        return image.tobytes(), header
    if form == "png":
        png = write_png(image)
        return png, read_header(png) if image.mode == "P" else header
    buffer = io.BytesIO()
    image.info = {}  # Pillow would write some of it: comments, resolution
    options = {"lossless": lossless} if form == "webp" else {}
    try:
        image.save(buffer, form.upper(), quality=quality, **options)
    except (OSError, ValueError) as error:
        raise ImageHeaderError(
            f"has {image.height:,} x {image.width:,} pixels, which cannot be encoded as "
            f"{_NAMES[form]}: {error}"
        ) from error
    return buffer.getvalue(), header


def write_png(image: Image.Image) -> bytes:
    """Returns the PNG of an image of 8 bits per channel, a palette or 16 bits of gray."""
    channels, is_palette = len(image.getbands()), image.mode == "P"
    sample_bytes = 2 if image.mode in GRAY_16 else 1
    colour_type = _PALETTE_TYPE if is_palette else _COLOUR_TYPES[channels]
    sides_and_bits = image.width, image.height, 8 * sample_bytes
    header = struct.pack(">IIBBBBB", *sides_and_bits, colour_type, 0, 0, 0)
    parts = [_SIGNATURE, *_chunk(b"IHDR", [header])]
    if is_palette:
        # Up to the highest index of a pixel; colours after the last alpha are opaque.
        num_colours = 1 + int(image.getextrema()[1])  # type: ignore[arg-type]
        colours = bytes(image.getpalette("RGB") or ())[: 3 * num_colours]
        parts += _chunk(b"PLTE", [colours.ljust(3 * num_colours, b"\0")])
        alpha = image.info.get("transparency", b"")
        if isinstance(alpha, int):
            alpha = b"\xff" * alpha + b"\0"
        if alpha:
            parts += _chunk(b"tRNS", [alpha[:num_colours]])
    filtered = _filter(image, 0 if is_palette else channels * sample_bytes)
    return b"".join([*parts, *_chunk(b"IDAT", deflate(filtered)), *_chunk(b"IEND", [])])


def _filter(image: Image.Image, pixel_bytes: int) -> Iterator[Bytes]:
    """Yields groups of rows with their filter bytes; filter 0 for pixel_bytes 0."""
    row_bytes = image.width * max(pixel_bytes, 1)
    step = max(1, BLOCK_BYTES // (row_bytes + 1))
    above = np.zeros((1, row_bytes), np.uint8)
    for start in range(0, image.height, step):
        stop = min(start + step, image.height)
        pixels: npt.NDArray[np.uint8 | np.uint16]
        pixels = np.asarray(image.crop((0, start, image.width, stop)))
        if pixels.dtype.itemsize == 2:  # the higher byte comes first
            pixels = pixels.astype(">u2")
        band = np.ascontiguousarray(pixels).view(np.uint8).reshape(-1, row_bytes)
        filtered = np.empty((len(band), row_bytes + 1), np.uint8)
        if pixel_bytes:
            filtered[:, 0] = _PAETH
            predicted = _paeth(np.concatenate([above, band]), pixel_bytes)
            np.subtract(band, predicted, out=filtered[:, 1:])
        else:
            filtered[:, 0] = _NO_FILTER
            filtered[:, 1:] = band
        above = band[-1:]
        yield filtered.reshape(-1)


def _paeth(rows: Bytes, pixel_bytes: int) -> Bytes:
    """Returns the predicted value of each byte of all rows except the first.

    >>> _paeth(np.array([[10, 20], [30, 45]], np.uint8), 1).tolist()
    [[10, 30]]

    For 30: left is 0 (the edge), above 10, above left 0; 0 + 10 - 0 is nearest to 10.
    For 45: left is 30, above 20, above left 10; 30 + 20 - 10 = 40 is nearest to 30.
    """
    left = np.zeros((len(rows) - 1, rows.shape[1]), np.uint8)
    corner = left.copy()
    left[:, pixel_bytes:] = rows[1:, :-pixel_bytes]
    corner[:, pixel_bytes:] = rows[:-1, :-pixel_bytes]
    above = rows[:-1]
    across = above.astype(np.int16) - corner  # distance of the estimate to `left`
    down = left.astype(np.int16) - corner  # ... to `above`
    to_left, to_above, to_corner = np.abs(across), np.abs(down), np.abs(across + down)
    is_left = (to_left <= to_above) & (to_left <= to_corner)
    return np.where(is_left, left, np.where(to_above <= to_corner, above, corner))


def _chunk(kind: bytes, parts: list[bytes]) -> list[bytes]:
    crc = zlib.crc32(kind)
    for part in parts:
        crc = zlib.crc32(part, crc)
    size = sum(map(len, parts))
    return [struct.pack(">I", size), kind, *parts, struct.pack(">I", crc)]


def deflate(pieces: Iterable[Bytes]) -> list[bytes]:
    """Returns the parts of a zlib stream of some pieces, with its checksum at the end.

    Each piece begins a new block, so the division into pieces changes the stream.
    """
    parts = [_ZLIB_HEADER]
    checksum = 1
    for piece in pieces:
        checksum = zlib.adler32(piece.data, checksum)
        starts = range(0, len(piece), BLOCK_BYTES)
        parts += [_block(piece[start : start + BLOCK_BYTES]) for start in starts]
    return [*parts, _LAST_BLOCK, checksum.to_bytes(4, "big")]


def _block(data: Bytes) -> bytes:
    symbols = np.append(data, np.uint16(_END))
    lengths = _code_lengths(np.bincount(symbols).tolist())
    codes, sizes = _codes(lengths), np.array(lengths, np.uint8)
    head = _block_header(lengths)
    values = np.concatenate([head[0], codes[symbols], np.zeros(1, np.uint64)])
    num_bits = np.concatenate([head[1], sizes[symbols], np.array([3], np.uint8)])
    return _pack_bits(values, num_bits) + _EMPTY_STORED


def _code_lengths(counts: list[int]) -> list[int]:
    """Returns the bits of each symbol's Huffman code; 0 for one that does not occur."""
    while True:
        lengths = _unlimited_lengths(counts)
        if max(lengths) <= _MAX_CODE_BITS:
            return lengths
        # Counts with smaller ratios result in codes of more equal lengths.
        counts = [(count + 1) // 2 for count in counts]


def _unlimited_lengths(counts: list[int]) -> list[int]:
    # Trees in an order without ties: by count, then by order of creation.
    heap = [(count, symbol) for symbol, count in enumerate(counts) if count]
    heapq.heapify(heap)
    parents: dict[int, int] = {}
    node = len(counts)
    while len(heap) > 1:
        first_tree = heapq.heappop(heap)
        second_tree = heap[0]
        parents[first_tree[1]] = parents[second_tree[1]] = node
        heapq.heapreplace(heap, (first_tree[0] + second_tree[0], node))
        node += 1
    depths = {node - 1: 0}
    for child in range(node - 2, -1, -1):
        if child in parents:
            depths[child] = depths[parents[child]] + 1
    return [depths.get(symbol, 0) for symbol in range(len(counts))]


def _codes(lengths: list[int]) -> U64:
    """Returns the code of each symbol; its first bit is the lowest bit."""
    codes = np.zeros(len(lengths), np.uint64)
    code, previous_length = 0, 0
    used = [(length, symbol) for symbol, length in enumerate(lengths) if length]
    for length, symbol in sorted(used):
        code <<= length - previous_length
        codes[symbol] = _reverse_bits(code, length)
        code, previous_length = code + 1, length
    return codes


def _reverse_bits(code: int, num_bits: int) -> int:
    return int(f"{code:0{num_bits}b}"[::-1], 2)


def _block_header(lengths: list[int]) -> tuple[U64, Bytes]:
    """Returns the values before a block's data, and the number of bits of each value.

    The values: not the last block (0), dynamic codes (2); 257 and 2 codes; 19 lengths of
    the codes of lengths: 0 for repeats (16 to 18), 4 bits for 0 to 15.
    """
    head = (0, 2, 0, len(_DISTANCE_LENGTHS) - 1, 15, 0, 0, 0)
    every = (*lengths, *_DISTANCE_LENGTHS)
    coded = [_reverse_bits(length, _CODE_LENGTH_BITS) for length in every]
    values = [*head, *[_CODE_LENGTH_BITS] * 16, *coded]
    bits = [1, 2, 5, 5, 4, *[3] * 19, *[_CODE_LENGTH_BITS] * len(coded)]
    return np.array(values, np.uint64), np.array(bits, np.uint8)


def _pack_bits(values: U64, num_bits: Bytes) -> bytes:
    """Returns the packed bits of numbers of 0 to 15 bits, the lowest bit first.

    Four neighbours are joined to a number of at most 60 bits. As this is less than 64,
    one of these numbers begins in every word of 64 bits, and only the last number of a
    word continues in the next word.
    """
    bits = num_bits.astype(np.uint64)
    for _ in range(2):
        if len(values) % 2:
            values = np.append(values, np.uint64(0))
            bits = np.append(bits, np.uint64(0))
        values = values[::2] | values[1::2] << bits[::2]
        bits = bits[::2] + bits[1::2]
    ends = np.cumsum(bits)
    starts = ends - bits
    shifts = starts & np.uint64(63)
    words = starts >> np.uint64(6)
    firsts = np.flatnonzero(np.diff(words, prepend=np.uint64(1 << 63)))
    lasts = np.append(firsts[1:], len(words)) - 1
    packed = np.zeros(len(firsts) + 1, "<u8")
    packed[:-1] = np.bitwise_or.reduceat(values << shifts, firsts)
    # In two steps, because a shift by 64 is undefined.
    packed[1:] |= values[lasts] >> np.uint64(1) >> (np.uint64(63) - shifts[lasts])
    return packed.tobytes()[: (int(ends[-1]) + 7) // 8]


# Parts of the file that the result lacks, and changes other than its size.
FIRST_FRAME = "only the first frame"
NARROWED = "16 bits per channel reduced to 8"
TURNED = "rotated according to EXIF"
BLENDED = "alpha blended with white"
INKS = "CMYK converted to RGB"

_Box = tuple[float, float, float, float]  # left, upper, right and lower edge
_Size = tuple[int, int]  # width and height

_DEEP_PNG_AT = 24  # offset of the bits a channel in a PNG
_TIFF_BITS = 258  # a tag
_ORIENTATION_TAG = 0x112
# Modes without a defined black and white, or with another meaning.
_REFUSED_MODES = frozenset({"I", "F", "LAB", "HSV"})


class TransformedImage(NamedTuple):
    """A transformed image, with the changes that were made."""

    data: bytes  # its encoded bytes; for raw, its samples
    header: ImageHeader
    changes: tuple[str, ...]
    placement: Placement  # the position of the original in the result


def transform_image(
    data: bytes, header: ImageHeader, rules: PixelRules, max_pixels: int
) -> TransformedImage | None:
    """Transforms an image by the rules; returns None if it stays unchanged.

    The first of several frames is used. `max_pixels` is the maximum of height x width,
    which is checked before decoding.

    Raises:
      ImageHeaderError: the image cannot be decoded or encoded.
    """
    if not (rules.transforms_all or rules.turns or rules.rejects_frames):
        return None
    with open_image(data, header, max_pixels) as image:
        # A second image in a JPEG is a preview.
        has_frames = header.format != "jpeg" and getattr(image, "is_animated", False)
        if has_frames and rules.rejects_frames:
            raise ImageHeaderError(
                f"{header.format} has several frames (expected one, because of "
                "`animated=reject`)"
            )
        orientation = _orientation(image, header)
        is_turned = rules.turns and orientation != UPRIGHT
        if not rules.transforms_all and not is_turned:
            return None
        changes = [FIRST_FRAME] if has_frames else []
        changes += [TURNED] if is_turned else []
        changes += [NARROWED] if _is_narrowed(image, data, header, rules) else []
        changes += [INKS] if image.mode == "CMYK" else []
        pixels, box, size = _decode(image, header, rules, orientation)
        form = rules.encoding_of(header.format)
        pixels, is_blended = _convert_channels(pixels, rules, form)
        changes += [BLENDED] if is_blended else []
        placement = place_image(*size, rules, orientation if is_turned else UPRIGHT)
        pixels = _place_pixels(pixels, box, placement, rules)
        encoded, encoded_header = encode_image(
            pixels, form, rules.quality, rules.is_lossless
        )
        return TransformedImage(encoded, encoded_header, tuple(changes), placement)


def place_objects(
    data: bytes,
    header: ImageHeader,
    stated: Sides | None,
    transformed_image: TransformedImage | None,
    max_pixels: int,
) -> Placement:
    """Returns the placement that moves the objects in an image to its result.

    Args:
      data: the image file.
      header: its header.
      stated: the height and width in its annotations. If they equal the file's, the
        coordinates of objects refer to the stored image, otherwise to the image turned by
        its EXIF orientation. Without a size they refer to the turned image as well,
        because OpenCV, which YOLO's tools use, turns images.
      transformed_image: the result of `transform_image`.
      max_pixels: maximum of height x width.

    Raises:
      ImageHeaderError: the sizes disagree, or the image cannot be decoded.
    """
    stored = header.height, header.width
    placement = (
        Placement.turned_only(stored)
        if transformed_image is None
        else transformed_image.placement
    )
    _require_filled(placement.turned_size, header)
    if stated == stored:
        return placement
    orientation = UPRIGHT
    if stated in (None, stored[::-1]) and may_have_exif(data, header.format):
        with open_image(data, header, max_pixels) as image:
            orientation = _orientation(image, header)
    if stated is not None and orientation < FIRST_EXCHANGED:
        raise ImageHeaderError(
            f"has {stored[0]:,} x {stored[1]:,} pixels, but its annotations are of "
            f"{stated[0]:,} x {stated[1]:,} (height x width). Put the size of the file, "
            "and boxes in its pixels, into the annotations, or the annotated image into the "
            "input"
        )
    return placement.for_turned_objects(orientation)


def _orientation(image: Image.Image, header: ImageHeader) -> int:
    if header.format == "png":
        image.load()  # `getexif` decodes it as well: damaged pixels raise an error here
    with suppress(Exception):  # damaged EXIF data
        orientation = image.getexif().get(_ORIENTATION_TAG)
        if isinstance(orientation, int) and 1 <= orientation <= 8:
            return orientation
    return UPRIGHT


def _is_narrowed(
    image: Image.Image, data: bytes, header: ImageHeader, rules: PixelRules
) -> bool:
    """Checks whether an image of 16 bits per channel is decoded to 8 bits."""
    if image.mode in GRAY_16:
        return not rules.keeps_samples
    if header.format == "png":
        return data[_DEEP_PNG_AT] == 16
    if header.format != "tiff" or image.mode in _REFUSED_MODES:
        return False
    bits = image.tag_v2.get(_TIFF_BITS, (1,))  # type: ignore[attr-defined]
    return bool(max(bits) == 16)


def _decode(
    image: Image.Image, header: ImageHeader, rules: PixelRules, orientation: int
) -> tuple[Image.Image, _Box, _Size]:
    """Decodes an image to 8 bits per channel, and turns it if the rules require it.

    Returns the pixels, the box of the whole image in them (a JPEG whose sides are not
    multiples of eight is decoded to slightly more), and the image's original size.
    """
    turned_size = image.size
    if is_exchanged := rules.turns and orientation >= FIRST_EXCHANGED:
        turned_size = image.height, image.width
    box: _Box | None = None
    if header.format == "jpeg" and rules.resize is not None:
        target_size = rules.resize.size_of(*turned_size)
        target_size = target_size[::-1] if is_exchanged else target_size
        times = rules.resize.min_decoded_factor
        drafted = image.draft(None, (times * target_size[0], times * target_size[1]))
        box = drafted[1] if drafted else None
    channels = len(image.getbands())
    channels *= 2 if rules.keeps_samples and image.mode in GRAY_16 else 1
    _check_bytes(image.size, channels, f"{header.kind} has")
    if image.mode in _REFUSED_MODES:
        raise ImageHeaderError(
            f"{header.kind} has pixels of mode {image.mode} (expected 8 or 16 bits per "
            "channel, gray or color)"
        )
    image.load()
    is_kept = rules.keeps_samples and (image.mode == "P" or image.mode in GRAY_16)
    pixels = image if is_kept else to_8_bits(image)
    if header.format == "tiff":  # already turned by Pillow
        if not rules.turns:
            pixels = _turn_image(pixels, TURNED_BACK[orientation])
        return pixels, (0, 0, *pixels.size), pixels.size
    box = box or (0, 0, *pixels.size)
    if not rules.turns:
        return pixels, box, turned_size
    turned_box = _turn_box(box, pixels.size, orientation)
    return _turn_image(pixels, orientation), turned_box, turned_size


def _turn_image(image: Image.Image, orientation: int) -> Image.Image:
    from PIL.Image import Transpose

    step = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if step is None else image.transpose(step)


def _turn_box(box: _Box, size: _Size, orientation: int) -> _Box:
    """Returns a box of an image after the image is turned.

    >>> _turn_box((0, 0, 3, 2), (4, 2), 2)
    (1, 0, 4, 2)
    """
    width, height = size
    left, upper, right, lower = box
    if orientation in FLIPS_X:
        left, right = width - right, width - left
    if orientation in FLIPS_Y:
        upper, lower = height - lower, height - upper
    if orientation >= FIRST_EXCHANGED:
        return upper, left, lower, right
    return left, upper, right, lower


def place_mask(mask: Image.Image, placement: Placement, around: int) -> Image.Image:
    """Returns a mask moved like its image, with the nearest-neighbour filter.

    Padding has samples of `around`.
    """
    from PIL import Image

    mask, bands = _turn_image(mask, placement.orientation), len(mask.getbands())
    height, width = placement.scaled_size
    _check_bytes((width, height), 2 * bands, "would have")
    if mask.size != (width, height):
        mask = mask.resize((width, height), Image.Resampling.NEAREST)
    if placement.scaled_size == placement.size:
        return mask
    padding = around if bands == 1 else (around,) * bands
    placed = Image.new(mask.mode, placement.size[::-1], padding)
    placed.paste(mask, placement.corner[::-1])
    return placed


def _require_filled(size: _Size, header: ImageHeader) -> None:
    """Raises ImageHeaderError if Pillow's size of a GIF is not the size in its header.

    TensorFlow uses the size in the header, so objects and masks would not match.
    """
    if sorted(size) != sorted((header.height, header.width)):
        raise ImageHeaderError(
            f"is a {header.format} whose frames are not of the size of its screen; store it "
            "as PNG"
        )


def _check_bytes(size: _Size, channels: int, verb: str) -> None:
    """Raises ImageHeaderError if an image of this size needs too much memory.

    `verb` begins the message: "has" or "would have".
    """
    width, height = size
    if width * height * channels > MAX_PIXEL_BYTES:
        raise ImageHeaderError(
            f"{verb} {height:,} x {width:,} pixels, "
            f"{format_bytes(width * height * channels)} of them (expected "
            f"{format_bytes(MAX_PIXEL_BYTES)} or less)"
        )


def _convert_channels(
    image: Image.Image, rules: PixelRules, form: str
) -> tuple[Image.Image, bool]:
    """Returns an image with the channels of the rules, and True if alpha was blended."""
    from PIL import Image

    channels = rules.channels
    has_alpha = image.mode in ("LA", "RGBA")
    keeps_alpha = channels == 4 or (channels is None and form != "jpeg")
    is_blended = False
    if has_alpha and not keeps_alpha:
        lowest = image.getchannel("A").getextrema()[0]
        is_blended = int(lowest) < 255  # type: ignore[arg-type]
        white = Image.new("RGB", image.size, "white")
        white.paste(image.convert("RGB"), mask=image.getchannel("A"))
        image = white.convert("L") if image.mode == "LA" else white
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels or 0, image.mode)
    if form == "webp":  # has no gray
        mode = {"L": "RGB", "LA": "RGBA"}.get(mode, mode)
    return (image if image.mode == mode else image.convert(mode)), is_blended


def place_image(
    width: int, height: int, rules: PixelRules, orientation: int
) -> Placement:
    """Returns the placement of an image, given its size after turning.

    Raises:
      ImageHeaderError: the image is smaller than `crop`, or larger than `pad`.
    """
    turned = height, width
    if rules.resize is not None:
        width, height = rules.resize.size_of(width, height)
    sides = kept_height, kept_width = rules.crop or rules.pad or (height, width)
    top, left = (kept_height - height) // 2, (kept_width - width) // 2
    if rules.crop is not None:
        if kept_height > height or kept_width > width:
            raise ImageHeaderError(
                f"has {height:,} x {width:,} pixels, too few to crop (expected "
                f"{kept_height:,} x {kept_width:,} or more, because of `crop`); use "
                f"`resize=shorter={max(sides)}`, or `pad` instead of `crop`"
            )
        top, left = -((height - kept_height) // 2), -((width - kept_width) // 2)
    elif kept_height < height or kept_width < width:
        raise ImageHeaderError(
            f"has {height:,} x {width:,} pixels, too many to pad (expected "
            f"{kept_height:,} x {kept_width:,} or fewer, because of `pad`); use "
            f"`resize=longer={min(sides)}`, or `crop` instead of `pad`"
        )
    return Placement(orientation, turned, (height, width), (top, left), sides)


def _place_pixels(
    pixels: Image.Image, box: _Box, placement: Placement, rules: PixelRules
) -> Image.Image:
    """Returns the box of an image scaled, cropped and padded.

    Only the part that remains after cropping is scaled.
    """
    from PIL import Image

    height, width = placement.scaled_size
    left, upper = max(0, -placement.corner[1]), max(0, -placement.corner[0])
    kept_size = (min(width, placement.size[1]), min(height, placement.size[0]))
    _check_bytes(kept_size, len(pixels.getbands()), "would have")
    right, lower = left + kept_size[0], upper + kept_size[1]
    if rules.resize is not None:
        across, down = (box[2] - box[0]) / width, (box[3] - box[1]) / height
        part = (
            max(0.0, box[0] + left * across),
            max(0.0, box[1] + upper * down),
            min(float(pixels.width), box[0] + right * across),
            min(float(pixels.height), box[1] + lower * down),
        )
        pixels = pixels.resize(kept_size, Image.Resampling.BICUBIC, box=part)
    elif rules.crop is not None:
        pixels = pixels.crop((left, upper, right, lower))
    if rules.pad is None:
        return pixels
    value = rules.pad_value
    around = Image.new("RGB", (1, 1), (value, value, value)).convert(pixels.mode)
    padded = around.resize(placement.size[::-1])
    padded.paste(pixels, placement.corner[::-1])
    return padded


# Samples of masks are classes or objects, not colours: no filter may mix them, and
# palette indices are the numbers. A mask is turned, scaled, cropped and padded like its
# image.

_COMPARED_PIXELS = 1 << 16
_CHANNELS = {"1": 1, "L": 1, "P": 1, "RGB": 3, "RGBA": 4, **dict.fromkeys(GRAY_16, 1)}
_PNG_BITS = {"uint8": (1, 2, 4, 8), "uint16": (16,)}
_PNG_PALETTE = 3


class Samples(NamedTuple):
    """The channels and dtype of the pixels of a mask."""

    channels: int
    dtype: str  # uint8, or uint16 for one channel

    def __str__(self) -> str:
        return f"{format_count(self.channels, 'channel')} of {self.dtype}"


def samples_of(data: bytes, max_pixels: int) -> Samples:
    """Returns the channels and dtype of a mask; decodes nothing."""
    header = check_image(data, level="header", max_pixels=max_pixels)
    with open_image(data, header, max_pixels) as image:
        return _samples(image, header)


def has_many_values(data: bytes, max_pixels: int) -> bool:
    """Checks whether an image has many colours or evenly spread grays, like a photo."""
    header = check_image(data, level="header", max_pixels=max_pixels)
    with open_image(data, header, max_pixels) as image:
        channels, dtype = _samples(image, header)
        pixels = np.asarray(image).reshape(-1, channels)
    sampled_pixels = pixels[:: -(-len(pixels) // _COMPARED_PIXELS)]
    numbers = np.sort(np.unique(sampled_pixels, axis=0, return_counts=True)[1])
    is_even = numbers[-64:].sum() < 0.75 * len(sampled_pixels)
    return dtype == "uint8" and bool(len(numbers) > 256 or is_even)


def _samples(image: Image.Image, header: ImageHeader) -> Samples:
    if image.mode not in _CHANNELS:
        raise ImageHeaderError(
            f"{header.kind} has pixels of mode {image.mode} (expected integers of 8 or "
            "16 bits in one channel, a palette, or 8 bits in three or four)"
        )
    dtype = "uint16" if image.mode in GRAY_16 else "uint8"
    return Samples(_CHANNELS[image.mode], dtype)


class MaskedImage(NamedTuple):
    """The image of a mask."""

    data: bytes  # the image file
    is_turned: bool  # the image was turned by its EXIF orientation


def transform_mask(
    data: bytes,
    samples: Samples,
    frame: MaskedImage,
    rules: PixelRules,
    level: CheckLevel,
    max_pixels: int,
) -> bytes:
    """Returns a mask as PNG, or raw, transformed like its image.

    Without a transformation, the file stays unchanged if every reader decodes the same
    numbers: a PNG of gray or of colours, or a JPEG.

    Raises:
      ImageHeaderError: the mask has another size than its image, or other samples, or
        cannot be decoded.
    """
    if rules.transforms_all and level == "decode":
        level = "structure"
    header = check_image(data, level=level, max_pixels=max_pixels)
    orientation = _mask_orientation((header.height, header.width), frame, rules)
    changes = rules.transforms_all or orientation > UPRIGHT
    if not changes and _is_plain(data, header, samples):
        return data
    with open_image(data, header, max_pixels) as image:
        mask_samples = _samples(image, header)
        if (
            mask_samples.channels > 1
            and header.format == "png"
            and data[_DEEP_PNG_AT] == 16
        ):
            raise ImageHeaderError("has 16 bits per color channel, expected 8")
        if mask_samples != samples and (mask_samples.channels, samples.dtype) != (
            1,
            "uint16",
        ):
            raise ImageHeaderError(
                f"has {mask_samples}, expected {samples} as other masks of the input have"
            )
        _require_filled(image.size, header)
        _check_bytes(image.size, samples.channels * 2, f"{header.kind} has")
        image.load()
        result_mask = _convert_samples(image, samples)
    size = (
        result_mask.size[::-1] if orientation >= FIRST_EXCHANGED else result_mask.size
    )
    result_mask = place_mask(
        result_mask, place_image(*size, rules, orientation), rules.mask_pad
    )
    if rules.encoding == "raw" and rules.transforms_all:
        return np.asarray(result_mask).tobytes()
    return write_png(result_mask)


def transform_array(
    array: npt.NDArray[Any], frame: MaskedImage, rules: PixelRules
) -> npt.NDArray[Any]:
    """Returns an array, whose first axes are height and width, moved like a mask.

    Raises:
      ImageHeaderError: the array does not have the size of its image.
    """
    from PIL import Image

    height, width = array.shape[:2]
    orientation = _mask_orientation((height, width), frame, rules)
    size = (height, width) if orientation >= FIRST_EXCHANGED else (width, height)
    placement = place_image(*size, rules, orientation)
    if not placement.has_moved:
        return array
    # The indices of pixels are moved, to support values of any type and length.
    values = array.reshape(height * width, *array.shape[2:])
    _check_bytes(placement.size[::-1], array.itemsize * values[:1].size, "would have")
    numbers = np.arange(len(values), dtype=np.int32).reshape(height, width)
    pixel_numbers = np.asarray(place_mask(Image.fromarray(numbers), placement, -1))
    moved_array: npt.NDArray[Any] = values[pixel_numbers]
    moved_array[pixel_numbers < 0] = rules.mask_pad
    return moved_array


def _mask_orientation(size: Sides, frame: MaskedImage, rules: PixelRules) -> int:
    """Returns the orientation by which a mask or array of this size must be turned."""
    header, orientation = read_header(frame.data), UPRIGHT
    other = header.height, header.width
    is_made = header.format == "gif" and rules.transforms_all  # by Pillow
    if frame.is_turned or size != other or is_made:
        with open_image(frame.data, header, MAX_PIXELS) as image:
            if is_made:
                _require_filled(image.size, header)
            orientation = _orientation(image, header)
    if size == other:
        return orientation
    if size != other[::-1] or orientation < FIRST_EXCHANGED:
        raise ImageHeaderError(
            "has {:,} x {:,} pixels, expected the size of its image, {:,} x "
            "{:,}".format(*size, *other)
        )
    # The mask was drawn on the turned image, as viewers show it.
    return UPRIGHT if frame.is_turned else TURNED_BACK[orientation]


def _is_plain(data: bytes, header: ImageHeader, samples: Samples) -> bool:
    """Checks whether readers decode the samples without a change."""
    if header.depth != samples.channels or header.variant:
        return False
    if header.format == "png":
        bits, colours = data[_DEEP_PNG_AT], data[_DEEP_PNG_AT + 1]
        return bits in _PNG_BITS[samples.dtype] and colours != _PNG_PALETTE
    return header.format == "jpeg" and samples.dtype == "uint8"


def _convert_samples(image: Image.Image, samples: Samples) -> Image.Image:
    """Returns an image in mode L, I;16, RGB or RGBA with the same numbers."""
    from PIL import Image

    if samples.channels > 1:
        return image
    numbers = np.asarray(image.convert("L") if image.mode == "1" else image)
    return Image.fromarray(numbers.astype(np.dtype(samples.dtype).newbyteorder("<")))
