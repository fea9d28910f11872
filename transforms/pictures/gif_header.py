"""Reads the size of a GIF.

    "GIF87a" or "GIF89a" | u16 screen width | u16 screen height | u8 flags | 2 bytes
    | colour table, then blocks
    frame: 2C | u16 left | u16 top | u16 width | u16 height | u8 flags | colour table
    | u8 code size | sub-blocks: u8 length | data, until length 0

All numbers are little-endian. The size is that of the largest frame, not of the screen;
frames after a cut do not count. Depth is 3.
"""

from __future__ import annotations

from recordmill.transforms.pictures.image_header import (
    ImageHeader,
    ImageHeaderError,
    cut_error,
)

_MAX_BLOCKS = 100_000
_BLOCK_BYTES = 16  # sub-blocks have up to 255 bytes; a smaller average is refused
_FREE_BLOCKS = 1_000_000  # after this number of them


def read_gif(data: bytes) -> ImageHeader:
    """Reads the size of the largest complete frame."""
    if len(data) < 13:
        raise cut_error("GIF", data)
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
        pass  # the file is cut: frames before the cut count
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
