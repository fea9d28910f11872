"""Writes protobuf's wire format for whole Arrow arrays.

A column becomes an Arrow binary array of *cells*: the bytes it adds to each row.
Three operations make every cell without a Python loop over rows: varints of an
integer array, a length-delimited header looked up by length, and `scatter`, which
lays rows of differing length end to end.

    varint            7 bits a byte, least significant first, high bit = more follow
    length-delimited  tag | varint length | bytes

An int64 feature "a" with the values 7 and 300 becomes these cells, the entries of the
example's feature map (300 = 0b10_0101100: ac = 1|0101100, 02 = 0|0000010):

    0a 0a | 0a 01 61 | 12 05 | 1a 03 | 0a 01 | 07       entry of 10 bytes: key "a",
    0a 0b | 0a 01 61 | 12 06 | 1a 04 | 0a 02 | ac 02    Feature, Int64List, packed value

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import (
    I64,
    U8,
    U64,
    binary_array,
    distinct_lengths,
    offsets_of,
    scatter,
    unaligned_rows,
    value_lengths,
    value_offsets,
    view_rows,
)

MAX_VARINT_BYTES = 10


def varint(value: int) -> bytes:
    r"""Returns the varint of one non-negative integer.

    >>> varint(300)
    b'\xac\x02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_header(tag: bytes, length: int) -> bytes:
    """Returns what stands before a length-delimited field's bytes."""
    return tag + varint(length)


def varint_lengths(values: U64) -> I64:
    """Returns the bytes that the varint of each value takes, 1 to 10."""
    lengths = np.ones(len(values), np.int64)
    largest = int(values.max()) if len(values) else 0
    for num_bytes in range(1, MAX_VARINT_BYTES):
        smallest = 1 << (7 * num_bytes)
        if smallest > largest:
            break
        lengths += values >= np.uint64(smallest)
    return lengths


def varint_rows(values: U64, lengths: npt.NDArray[np.integer]) -> U8:
    """Makes varints, left-aligned in a matrix of shape (values, longest varint).

    The values 3, 300, 7 give the rows 03 00, ac 02, 07 00; the zeros are not used.
    """
    width = int(lengths.max()) if len(lengths) else 1
    rows = np.empty((len(values), width), np.uint8)
    if width == 1:
        rows[:, 0] = values
        return rows
    for index in range(width):
        low = (values >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F)
        rows[:, index] = low | ((lengths > index + 1).astype(np.uint8) << np.uint8(7))
    return rows


def varint_stream(values: U64) -> tuple[I64, U8]:
    """Lays the varints of all values end to end.

    The values 3, 300, 7 give the offsets 0, 1, 3, 4 and the bytes 03 ac 02 07.

    Returns:
      Where each value's varint starts (values + 1), and the bytes.
    """
    longest = varint_bytes(int(values.max())) if len(values) else 1
    if longest == 1:
        return np.arange(len(values) + 1), values.astype(np.uint8)
    offsets = np.zeros(len(values) + 1, np.int64)
    out = np.empty(len(values) * longest + MAX_VARINT_BYTES, np.uint8)
    for start in range(0, len(values), _BLOCK_VALUES):
        block = values[start : start + _BLOCK_VALUES]
        if longest <= 4:
            rows, lengths = _varint_words(block.astype(np.uint32), longest)
        else:
            lengths = varint_lengths(block)
            rows = view_rows(varint_rows(block, lengths))
        ends = offsets[start + 1 : start + 1 + len(block)]
        np.cumsum(lengths, out=ends)
        ends += offsets[start]
        # Each is copied at full width and the next overwrites the excess: `scatter`.
        unaligned_rows(out, rows.dtype)[offsets[start : start + len(block)]] = rows
    return offsets, out[: offsets[-1]]


_BLOCK_VALUES = 1 << 15  # the arrays of so many fit in the processor's cache


def _varint_words(
    values: npt.NDArray[np.uint32], longest: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.integer]]:
    """Makes varints of up to four bytes, one item each, and returns their lengths too.

    All bytes at once in a 32-bit word: twice as fast as `varint_rows`. For 300:

        300                 00000001 00101100
        low 7 bits          00000000 00101100
        | next 7 bits << 1  00000010 00101100    each group of 7 bits in its own byte
        | high bits         00000010 10101100    0x02ac; little-endian: ac 02
    """
    more = np.zeros(len(values), np.uint8)
    words = values & np.uint32(0x7F)
    for index in range(1, longest):
        words |= (values & np.uint32(0x7F << 7 * index)) << np.uint32(index)
        more += (values >= np.uint32(1 << 7 * index)).view(np.uint8)
    words |= _CONTINUED.take(more)
    return words.astype("<u4", copy=False).view("V4"), more + np.uint8(1)


# High bits of all bytes but the last, by the number of bytes that follow the first.
_CONTINUED = np.array([0, 0x80, 0x8080, 0x808080], np.uint32)


def varint_bytes(value: int) -> int:
    """Returns the bytes that the varint of a value takes.

    >>> varint_bytes(300)
    2
    """
    return max(1, -(-value.bit_length() // 7))


def headers_by_length(
    make_header: Callable[[int], bytes], lengths: I64
) -> tuple[npt.NDArray[np.void], I64]:
    """Returns the header of each row when it depends on the row's length alone.

    Args:
      make_header: the header for one payload length.
      lengths: payload bytes of each row.

    Returns:
      Left-aligned headers, one item per row, and the bytes each really has.
    """
    distinct, which = distinct_lengths(lengths)
    # One call per distinct length, not per row.
    headers = [make_header(int(length)) for length in distinct]
    width = max(map(len, headers), default=1)
    padded = b"".join(header.ljust(width, b"\0") for header in headers)
    table = np.frombuffer(padded, np.dtype(f"V{width}"))
    header_lengths = np.fromiter(map(len, headers), np.int64, len(headers))
    return table[which], header_lengths[which]


def header_cells(
    make_header: Callable[[int], bytes], lengths: I64
) -> tuple[pa.BinaryArray, I64]:
    """Returns what `headers_by_length` does, the headers as an Arrow array."""
    rows, header_lengths = headers_by_length(make_header, lengths)
    offsets = offsets_of(header_lengths)
    return binary_array(offsets, scatter(rows, offsets)), header_lengths


# Up to here copies at full width beat the join, by 1.1 to 2.5 times; at 127 bytes they
# take up to twice as long.
_SHORT_BYTES = 32


def delimited_stream(values: pa.BinaryArray, tag: bytes) -> tuple[I64, U8]:
    """Lays all values end to end, each as a length-delimited field.

    The values "ab", "c" with tag 0a give the offsets 0, 4, 7 and the bytes
    0a 02 61 62 0a 01 63.

    Args:
      values: plain binary without nulls.
      tag: the field's, one byte.

    Returns:
      Where each value's field starts (values + 1), and the bytes.
    """
    starts, lengths = value_offsets(values), value_lengths(values)
    longest = int(lengths.max()) if len(lengths) else 0
    if not 0 < longest <= _SHORT_BYTES:
        headers, header_lengths = header_cells(partial(field_header, tag), lengths)
        joined = pc.binary_join_element_wise(headers, values, b"")
        data = np.frombuffer(joined.buffers()[2] or b"", np.uint8)
        offsets = offsets_of(lengths + header_lengths)
        return offsets, data[: offsets[-1]]
    # Short values: headers of two bytes, and every value copied at the longest one's
    # width. The excess is overwritten by the next value (copies are made in index
    # order, see scatter) or by the headers. "ab", "c" in rows of width 2:
    #   values at 2 and 6   .. .. 61 62 .. .. 63 00
    #   headers at 0 and 4  0a 02 61 62 0a 01 63 | 00
    first, end = int(starts[0]), int(starts[-1])
    source = np.zeros(end - first + longest, np.uint8)
    source[: end - first] = np.frombuffer(values.buffers()[2], np.uint8)[first:end]
    offsets = offsets_of(lengths + 2)
    out = np.empty(int(offsets[-1]) + longest, np.uint8)
    wide = unaligned_rows(source, f"V{longest}")[starts[:-1] - first]
    unaligned_rows(out, f"V{longest}")[offsets[:-1] + 2] = wide
    unaligned_rows(out, "<u2")[offsets[:-1]] = lengths << 8 | tag[0]
    return offsets, out[: offsets[-1]]
