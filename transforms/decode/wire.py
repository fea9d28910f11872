"""Reads protobuf's wire format from many records together.

The inverse of native/numpy_loops.py. A cursor is an array with one position for each
record, and every operation moves all of them. A parser loops over records and bytes; this
module takes a few steps over whole arrays.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import (
    I64,
    U8,
    U64,
    array_parts,
    extract_binary,
    offsets_of,
)
from recordmill.transforms.native.numpy_loops import MAX_VARINT_BYTES, unaligned_rows

Mask = npt.NDArray[np.bool_]

WORD_BYTES = 8
_CONTINUES = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_ONES = np.uint64(0x0101010101010101)
# Steps that join groups of 7 bits: (mask of the low half, of the high half, shift).
_SQUEEZE = (
    (0x007F007F007F007F, 0x7F007F007F007F00, 1),
    (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
    (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
)


@dataclass(frozen=True, slots=True)
class Spans:
    """The byte range of one field in every record."""

    starts: I64  # byte offsets in the data, in the records' order
    lengths: I64  # in bytes; 0 if the field is absent
    present: Mask  # mask of the records that have the field


def padded_parts(examples: pa.BinaryArray, padding: int) -> tuple[U8, I64, I64]:
    """Copies the records' bytes and adds padding, so that reads may pass the end.

    Returns the padded data, and the starts and ends of the records in it.
    """
    offsets, data = array_parts(examples)
    first = int(offsets[0]) if len(offsets) else 0
    used = int(offsets[-1]) - first if len(offsets) else 0
    copy = np.zeros(used + padding, np.uint8)
    copy[:used] = data[first : first + used]
    offsets = offsets - first
    return copy, offsets[:-1], offsets[1:]


def gather(data: U8, positions: I64, width: int) -> U8:
    """Returns the `width` bytes at each position, shape (positions, width).

    They must not reach beyond the end of the data.
    """
    spans = unaligned_rows(data, f"V{width}")[positions]
    return spans.view(np.uint8).reshape(len(positions), width)


def gather_words(data: U8, positions: I64, num_words: int = 1) -> U64:
    """Returns little-endian words at each position, shape (positions, num_words)."""
    word_bytes = gather(data, positions, num_words * WORD_BYTES)
    return word_bytes.view("<u8")


def read_varints(words: U64) -> tuple[U64, I64]:
    """Reads the varint at the start of each word; returns (values, lengths in bytes).

    A length of 9 means that none of the 8 bytes ends the varint; the value is then the 56
    bits read so far. Example: 300 is ac 02, here followed by the byte 41, so the word is
    0x4102ac.

        ends     bit 7 of each byte that ends a varint        0x8080808080808000
        lowest   the lowest of them                           0x00008000
        below    all bits below it                            0x00007fff
        length   1 byte with bit 7 in it, + 1                 2
        squeeze  0x4102ac & below = 0x02ac: 0x02 << 7 | 0x2c  300
    """
    ends = ~words & _CONTINUES
    lowest = ends & (~ends + _ONE)
    below = lowest - _ONE  # all ones if there is no end
    return _squeeze(words & below), _high_bytes(below) + 1


def _high_bytes(words: U64) -> I64:
    """Counts the bytes of each word that have bit 7.

    The product adds the bits in the highest byte. This is as fast as numpy.bitwise_count,
    which NumPy 1 lacks; readers may need NumPy 1 for another package.
    """
    counts = words >> np.uint64(7)
    counts &= _ONES
    counts *= _ONES
    counts >>= np.uint64(56)
    return counts.view(np.int64)


def _squeeze(words: U64) -> U64:
    """Joins the low 7 bits of the bytes of each word."""
    for low, high, shift in _SQUEEZE:
        words = (words & np.uint64(low)) | (
            (words & np.uint64(high)) >> np.uint64(shift)
        )
    return words


def read_int64(data: U8, starts: I64) -> tuple[I64, I64]:
    """Reads the varint at each start as int64; returns (values, lengths in bytes).

    A length of -1 means that the varint does not end. Bits after the 64th are dropped.
    """
    values, lengths = read_varints(gather_words(data, starts).ravel())
    long = np.flatnonzero(lengths > WORD_BYTES)
    if len(long):
        tail = gather(data, starts[long] + WORD_BYTES, 2).astype(np.uint64)
        ninth, tenth = tail[:, 0], tail[:, 1]
        more = ninth >= 0x80
        values[long] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        values[long] |= np.where(more, tenth << np.uint64(63), np.uint64(0))
        lengths[long] += more
        lengths[long[more & (tenth >= 0x80)]] = -1
    return values.view(np.int64), lengths


def unpack_varints(data: U8, offsets: I64) -> tuple[I64, I64, Mask]:
    """Reads the packed varints of many records, followed by 10 bytes of padding.

    Returns all values; the start of each record's values, and the end; and a mask of the
    records with a varint that does not end or is too long, whose values are undefined.

    Two records with the values 1, 300 and 5:

        data      01 ac 02 | 05        offsets [0, 3, 4]
        ends      1  0  1    1         bytes below 0x80
        last      [0, 2, 3]            last byte of each varint
        starts    [0, 1, 3]            one after the last byte of the previous varint
        lists     [0, 2, 3]            varints that end before each offset
        values    [1, 300, 5]
    """
    packed = data[: int(offsets[-1])]
    ends = packed < 0x80
    num_rows = len(offsets) - 1
    bad = np.zeros(num_rows, np.bool_)
    if ends.all():
        return packed.astype(np.int64), offsets, bad
    filled = np.flatnonzero(np.diff(offsets))
    final = offsets[filled + 1] - 1
    bad[filled] = ~ends[final]
    ends[final] = True  # a varint that does not end must not run into the next record
    last = np.flatnonzero(ends)
    starts = np.empty(len(last), np.int64)
    starts[:1] = 0
    starts[1:] = last[:-1] + 1
    too_long = np.flatnonzero(last - starts >= MAX_VARINT_BYTES)
    bad[np.searchsorted(offsets, starts[too_long], side="right") - 1] = True
    lists = np.searchsorted(last, offsets)
    values, _ = read_int64(data, starts)
    return values, lists, bad


def extract(data: U8, starts: I64, lengths: I64) -> tuple[U8, I64]:
    """Returns the concatenated bytes of spans with 16 bytes of padding, and offsets.

    The spans must ascend and must not overlap.
    """
    offsets = offsets_of(lengths)
    total = int(offsets[-1])
    out = np.zeros(total + 2 * WORD_BYTES, np.uint8)
    width = int(lengths[0]) if len(lengths) else 0
    if width and (lengths == width).all():
        out[:total] = gather(data, starts, width).ravel()
    elif total:
        joined = extract_binary(data, starts, lengths)
        out[:total] = np.frombuffer(joined.buffers()[2], np.uint8)[:total]
    return out, offsets
