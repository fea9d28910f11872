"""Protobuf's wire format read from many records at once: gathers, varints, spans.

The inverse of recordmill.transforms.encode.wire. A cursor is an array with one position per record, and
every operation moves all of them: what a parser does byte by byte in a loop over
records is done here step by step over whole arrays.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import I64, U8, U64, array_parts, offsets_of
from recordmill.transforms.encode.wire import MAX_VARINT_BYTES

Mask = npt.NDArray[np.bool_]

WORD_BYTES = 8
_CONTINUES = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
# Steps that move groups of 7 bits together: (low half, high half, shift).
_SQUEEZE = (
    (0x007F007F007F007F, 0x7F007F007F007F00, 1),
    (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
    (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
)


@dataclass(frozen=True, slots=True)
class Spans:
    """Where something lies in every record, in the records' order.

    Attributes:
      starts: byte offsets in the data.
      lengths: bytes; 0 where it is absent.
      present: which records have it.
    """

    starts: I64
    lengths: I64
    present: Mask


def padded_parts(examples: pa.BinaryArray, room: int) -> tuple[U8, I64, I64]:
    """The records' bytes with room behind them to read on, and where each lies.

    Returns:
      The data, and the starts and ends of the records in it.
    """
    offsets, data = array_parts(examples)
    first = int(offsets[0]) if len(offsets) else 0
    used = int(offsets[-1]) - first if len(offsets) else 0
    copy = np.zeros(used + room, np.uint8)
    copy[:used] = data[first : first + used]
    offsets = offsets - first
    return copy, offsets[:-1], offsets[1:]


def gather(data: U8, places: I64, width: int) -> U8:
    """The `width` bytes at each place, as a matrix; all must lie in the data."""
    # One item of `width` bytes at every byte: one gather, whatever the width.
    items = np.ndarray((len(data) - width + 1,), f"V{width}", data.data, 0, (1,))
    return items[places].view(np.uint8).reshape(len(places), width)


def gather_words(data: U8, places: I64, num_words: int = 1) -> U64:
    """The 64-bit little-endian words at each place, shape (places, num_words)."""
    found = gather(data, places, num_words * WORD_BYTES)
    return found.view("<u8")


def read_varints(words: U64) -> tuple[U64, I64]:
    """The varint at the start of each word, and its length in bytes.

    A length of 9 says that none of the 8 bytes ends the varint; its value is then
    that of the 56 bits there are.
    """
    ends = ~words & _CONTINUES
    lowest = ends & (~ends + _ONE)
    below = lowest - _ONE  # all ones if there is no end
    lengths = (np.bitwise_count(below) >> np.uint8(3)).astype(np.int64) + 1
    return _squeeze(words & below), lengths


def _squeeze(words: U64) -> U64:
    """Joins the low 7 bits of each byte."""
    for low, high, shift in _SQUEEZE:
        words = (words & np.uint64(low)) | (
            (words & np.uint64(high)) >> np.uint64(shift)
        )
    return words


def read_int64(data: U8, starts: I64) -> tuple[I64, I64]:
    """The varint at each start as int64, and its length; -1 if it never ends.

    Bits beyond the 64th are dropped, as protobuf does.
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
    """Packed varints of many records.

    Args:
      data: the packed fields end to end, with 10 bytes of room behind them.
      offsets: where each record's field starts; one more.

    Returns:
      All values; where those of each record start, one more; and which records have
      a varint that does not end or is too long: their values mean nothing.
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
    """The spans' bytes laid end to end, 16 bytes of room behind them; their offsets.

    Args:
      data: what they lie in.
      starts: ascending; no two spans overlap.
      lengths: bytes of each.
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


def extract_binary(data: U8, starts: I64, lengths: I64) -> pa.BinaryArray:
    """The spans as an Arrow array; arguments as `extract` has them."""
    # The spans and the gaps between them are one array: C++ copies every second row.
    edges = np.empty(2 * len(starts), np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + lengths
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    rows = max(len(edges) - 1, 0)
    array = pa.BinaryArray.from_buffers(pa.binary(), rows, buffers)
    return array.take(pa.array(np.arange(0, rows, 2, dtype=np.int32)))


def validity(present: Mask) -> pa.Buffer | None:
    """The bitmap of an Arrow array whose rows are null where not present."""
    return None if present.all() else pa.array(present).buffers()[1]
