"""Implements the functions of the native extension in NumPy, with the same results.

Arrays of positions and sizes are int64. The extension raises ValueError if a position is
outside its buffer, before anything is read or written there. NumPy has no fast path for
`jpeg`, `files`, `cells`, `objects`, `numbers` and `mark_long_numbers`: here they return the
values with which the extension reports that an input is not plain.

Examples are written column by column. For each column the lengths of its payloads are
computed first, which determine the position of every header and value in the target.
Parts of one length are copied at once. Two rows of a int64 and b bytes, the entries of
each row's feature map:

    row 0    0a 0a 0a 01 61 12 05 1a 03 0a 01 | 07      0a .. 0a 01 62 .. | "x"
    row 1    0a 0a 0a 01 61 12 05 1a 03 0a 01 | 08      0a .. 0a 01 62 .. | "yz"
    copied   one header, twice | bytes 07, 08             two headers | "x", then "yz"
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import crc32c as _crc32c
import numpy as np
import numpy.typing as npt

Buffer = Any  # bytes, a contiguous array of NumPy, a buffer of Arrow
Column = tuple[bytes, int, Buffer, Buffer | None, Buffer | None, Buffer | None]
"""One key of the feature map, and its values in every row.

    key      UTF-8
    kind     the tag of its list: 0x0a bytes, 0x12 floats, 0x1a integers; or LEFT_OUT
    values   int64, float32, or the concatenated bytes of all values; for bytes that are
             left out, an array of int64 into which `write` writes the position of each
             value
    offsets  int32, for bytes: value i is values[offsets[i]:offsets[i + 1]]
    lists    int64: the values of row i are lists[i] to lists[i + 1]; None: one per row
    valid    one byte per row, 0 if the feature is missing; None: it is never missing
"""
IN_EXTENSION = (
    *("CRC32C", "LEFT_OUT", "CELL_SLACK", "NO_QUOTE", "ANY_TIME"),
    *("seal", "seal_around", "read_jpeg_size", "first_damaged_frame", "find_frames"),
    *("gather", "read_files", "read_status", "copy", "interleave"),
    *("count_row_ends", "split_cells", "split_objects"),
    *("parse_numbers", "mark_long_numbers"),
    *("measure", "write"),
)  # names that the extension also defines

# A CRC is a polynomial over GF(2). Bytes that follow shift it: it is multiplied by x to
# the power of the number of their bits, modulo the CRC's own polynomial. Then the CRC of
# these bytes is added, which is XOR:
#
#     crc("abc")             364b3fb7
#     two bytes follow       364b3fb7 * x^16 = af1062e1
#     crc("de")              6b40b476
#     crc("abcde")           af1062e1 ^ 6b40b476 = c450d697
#
# For many CRCs at once the product is looked up. The number of bytes is split into digits
# of four bits, such as 75,000 = 0x124f8: a CRC is multiplied by x^(8 * 0x8), the product
# by x^(8 * 0xf0), the next product by x^(8 * 0x400) and so on. Each product is the sum of
# the products of the CRC's four bytes, so for each digit there is a table for each byte.

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, with reversed bits
_ONE = 1 << 31  # the polynomial 1, with reversed bits
_DIGIT_BITS = 4


def combine_crcs(first: int, second: int, second_bytes: int) -> int:
    """Returns the CRC-32C of two concatenated byte strings from their CRC-32Cs."""
    return (
        int(shift_crcs(np.array([first], np.uint32), np.array([second_bytes]))[0])
        ^ second
    )


def combine_all_crcs(crcs: U32, lengths: I64) -> int:
    """Returns the CRC-32C of concatenated parts from their CRC-32Cs and lengths.

    Parts of 3, 2 and 4 bytes are followed by 6, 4 and 0 bytes.
    """
    behind = int(lengths.sum()) - np.cumsum(lengths)
    return int(np.bitwise_xor.reduce(shift_crcs(crcs, behind)))


def shift_crcs(crcs: U32, num_bytes: I64) -> U32:
    """Returns each CRC multiplied by x**(8 * num_bytes)."""
    remaining_bytes = num_bytes
    for tables in _digit_tables():
        if not remaining_bytes.any():
            break
        digits = remaining_bytes & ((1 << _DIGIT_BITS) - 1)
        crcs = (
            tables[digits, 0, crcs & 0xFF]
            ^ tables[digits, 1, crcs >> 8 & 0xFF]
            ^ tables[digits, 2, crcs >> 16 & 0xFF]
            ^ tables[digits, 3, crcs >> 24]
        )
        remaining_bytes = remaining_bytes >> _DIGIT_BITS
    return crcs


@cache
def _digit_tables() -> U32:
    """Returns the tables, shape (16 digits of a length, 16 values, 4 bytes, 256)."""
    digits = 64 // _DIGIT_BITS
    powers: U32 = np.full((digits, 16), _ONE, np.uint32)
    unit = _ONE >> 8  # x^8: one byte
    for digit in range(digits):
        for value in range(1, 16):
            powers[digit, value] = _product(unit, int(powers[digit, value - 1]))
        unit = _product(unit, int(powers[digit, 15]))
    tables = np.zeros((digits, 16, 4, 256), np.uint32)
    # The highest bit of a CRC represents 1, the next one x.
    for bit in reversed(range(32)):
        byte, size = bit // 8, 1 << bit % 8
        # A byte with this highest bit: the product of the bit; lower bits are added
        # below.
        tables[:, :, byte, size : 2 * size] = powers[:, :, None]
        carried = (powers & 1) * np.uint32(_POLYNOMIAL)
        powers = ((powers >> 1) ^ carried).astype(np.uint32)
    for bit in range(8):
        size = 1 << bit
        tables[:, :, :, size : 2 * size] ^= tables[:, :, :, :size]
    return tables


def _product(a: int, b: int) -> int:
    """Returns the product of two polynomials modulo the CRC's; the highest bit is x^0."""
    total, bit = 0, _ONE
    while bit:
        if a & bit:
            total ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return total


# ruff: noqa: ARG001 (the arguments match the extension)


CRC32C = "package"  # source of checksums; in the extension "instruction" or "table"
LEFT_OUT = 0x0B  # kind of a column of bytes that are measured but not written
CELL_SLACK = 0  # bytes that the target of `cells` needs after each column
NO_QUOTE = ord("\n")  # the byte that means that there is no quote character
ANY_TIME = -(1 << 63)  # means that the modification time of a file is not checked

HEAD_BYTES, TAIL_BYTES = 12, 4  # of a frame: length with its checksum; data checksum
MAX_VARINT_BYTES = 10
_MASK_DELTA = 0xA282EAD8
_BYTES, _FLOATS = 0x0A, 0x12  # kinds of columns; other kinds are integers
HEAD = np.dtype([("length", "<u8"), ("crc", "<u4")])

crc32c = _crc32c.crc32c


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
    """Returns the header of a length-delimited field: its tag and its length."""
    return tag + varint(length)


def varint_lengths(values: npt.NDArray[Any]) -> I64:
    """Returns the size of the varint of each value in bytes, 1 to 10."""
    unsigned = values.view(np.uint64)
    lengths = np.ones(len(values), np.int64)
    largest = int(unsigned.max(initial=0))
    for num_bytes in range(1, MAX_VARINT_BYTES):
        smallest = 1 << (7 * num_bytes)
        if smallest > largest:
            break
        lengths += unsigned >= np.uint64(smallest)
    return lengths


# The same few lengths occur in every batch.
@lru_cache(maxsize=1 << 16)
def entry_header(
    key: bytes, kind: int, payload_length: int, *, delimited: bool
) -> bytes:
    """Returns the header of a feature's map entry: all bytes before its payload.

    `delimited` payloads are one length-delimited field of the list (packed numbers, one
    bytes value), not a series of such fields.
    """
    # Protobuf omits an empty packed field, but not an empty bytes value.
    inner = b""
    if delimited and (payload_length or kind == _BYTES):
        inner = field_header(b"\x0a", payload_length)
    list_header = field_header(bytes([kind]), len(inner) + payload_length) + inner
    entry = field_header(b"\x0a", len(key)) + key
    entry += field_header(b"\x12", len(list_header) + payload_length) + list_header
    return field_header(b"\x0a", len(entry) + payload_length) + entry


def measure(columns: Sequence[Column], sizes: Buffer) -> None:
    """Writes the size of each row's Features message into `sizes`."""
    sizes[:] = 0
    for column in columns:
        rows, _, lengths, counts = _values_of(column, 0, len(sizes))
        payloads = np.diff(offsets_of(lengths)[offsets_of(counts)])
        headers, header_index = _headers_of(column, payloads)
        sizes[rows] += np.fromiter(map(len, headers), np.int64)[header_index] + payloads


def write(
    columns: Sequence[Column],
    first: int,
    sizes: Buffer,
    starts: Buffer,
    head_room: int,
    tail_room: int,
    target: Buffer,
) -> None:
    """Writes each row's Example between `head_room` and `tail_room` zero bytes.

    The rows begin at `first` in the columns; their number is the number of sizes. The
    i-th row is written to target[starts[i]:starts[i + 1]]. `sizes` come from `measure`,
    which includes the bytes that are left out.
    """
    out = np.frombuffer(target, np.uint8)
    _copy(out, starts[:-1], bytes(head_room))
    _copy(out, starts[1:] - tail_room, bytes(tail_room))
    distinct, header_index = distinct_lengths(sizes)
    headers = [field_header(b"\x0a", size) for size in distinct.tolist()]
    at = starts[:-1] + head_room
    at += _put(out, at, headers, header_index)
    for column in columns:
        rows, values, lengths, counts = _values_of(column, first, len(sizes))
        offsets = offsets_of(lengths)
        ends = offsets[offsets_of(counts)]
        payloads = np.diff(ends)
        begins = at[rows]
        begins += _put(out, begins, *_headers_of(column, payloads))
        if column[1] == LEFT_OUT:
            np.asarray(column[2])[first : first + len(sizes)] = at = begins
            continue
        at[rows] = begins + payloads
        places = np.repeat(begins - ends[:-1], counts) + offsets[:-1]
        _put_values(out, places, column, values, lengths)


def _values_of(column: Column, first: int, num_rows: int) -> tuple[I64, I64, I64, I64]:
    """Returns the locations and sizes of the values of some rows of a column.

    The result is a tuple: the rows that have values, counted from `first`; the index of
    each value; the size of each value in the payload, in bytes; and the number of values
    of each row. All floats of a row, which are contiguous, count as one value.
    """
    _, kind, values, offsets, lists, valid = column
    rows = np.arange(num_rows)
    if valid is not None:
        rows = np.flatnonzero(np.frombuffer(valid, np.bool_)[first : first + num_rows])
    begins, counts = rows + first, np.ones(len(rows), np.int64)
    if lists is not None:
        edges = np.frombuffer(lists, np.int64)
        begins, counts = edges[begins], edges[begins + 1] - edges[begins]
    if kind == _FLOATS:
        return rows, begins, 4 * counts, np.ones(len(rows), np.int64)
    ends = offsets_of(counts)
    index = np.arange(ends[-1]) + np.repeat(begins - ends[:-1], counts)
    if kind in (_BYTES, LEFT_OUT):
        assert offsets is not None
        edges = np.frombuffer(offsets, np.int32).astype(np.int64)
        lengths = edges[index + 1] - edges[index]
        if lists is not None:
            lengths += 1 + varint_lengths(lengths)
    else:
        lengths = varint_lengths(np.frombuffer(values, np.int64)[index])
    return rows, index, lengths, counts


def _headers_of(column: Column, payloads: I64) -> tuple[list[bytes], I64]:
    """Returns the distinct headers, and the index of each row's header."""
    key, kind, lists = bytes(column[0]), column[1], column[4]
    kind = _BYTES if kind == LEFT_OUT else kind
    delimited = lists is None or kind != _BYTES
    distinct, header_index = distinct_lengths(payloads)
    headers = [
        entry_header(key, kind, length, delimited=delimited)
        for length in distinct.tolist()
    ]
    return headers, header_index


def _put_values(
    out: U8, places: I64, column: Column, values: I64, lengths: I64
) -> None:
    """Writes the values of a column to their positions."""
    _, kind, source, offsets, lists, _ = column
    if kind == _FLOATS:
        _copy(out, places, source, 4 * values, lengths)
    elif kind == _BYTES:
        assert offsets is not None
        begins = np.frombuffer(offsets, np.int32)[values].astype(np.int64)
        if lists is not None:
            lengths = np.frombuffer(offsets, np.int32)[values + 1] - begins
            distinct, header_index = distinct_lengths(lengths)
            headers = [field_header(b"\x0a", size) for size in distinct.tolist()]
            places = places + _put(out, places, headers, header_index)
        _copy(out, places, source, begins, lengths)
    else:
        rows = _varint_rows(np.frombuffer(source, np.uint64)[values], lengths)
        starts = np.arange(len(rows)) * rows.shape[1]
        _copy(out, places, rows.reshape(-1), starts, lengths)


def _varint_rows(values: U64, lengths: I64) -> U8:
    """Returns varints, left-aligned in a matrix of shape (values, longest varint).

    The values 3, 300, 7 become the rows 03 00, ac 02, 07 00; the zeros are not used.
    """
    rows = np.empty((len(values), int(lengths.max(initial=1))), np.uint8)
    for index in range(rows.shape[1]):
        low = (values >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F)
        rows[:, index] = low | ((lengths > index + 1).astype(np.uint8) << np.uint8(7))
    return rows


def _put(out: U8, places: I64, parts: Sequence[bytes], part_index: I64) -> I64:
    """Writes one of several parts to each position; returns the written lengths."""
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    starts = offsets_of(lengths)[part_index]
    _copy(out, places, b"".join(parts), starts, lengths[part_index])
    return lengths[part_index]


def _copy(
    out: U8,
    places: I64,
    source: Buffer,
    starts: I64 | None = None,
    lengths: I64 | None = None,
) -> None:
    """Copies parts of a source to their positions, or the whole source to each."""
    data = np.frombuffer(source, np.uint8)
    if starts is None or lengths is None:
        starts = np.zeros(len(places), np.int64)
        lengths = starts + len(data)
    distinct, length_index = distinct_lengths(lengths)
    order: npt.NDArray[Any] | slice = slice(None)
    if len(distinct) > 1:
        # NumPy sorts narrow integers by counting.
        narrow = length_index.astype(np.min_scalar_type(len(distinct)))
        order = np.argsort(narrow, kind="stable")
    places, starts = places[order], starts[order]
    edges = offsets_of(np.bincount(length_index, minlength=len(distinct)))
    for length, (first, end) in zip(
        distinct.tolist(), pairwise(edges.tolist()), strict=True
    ):
        if length:
            dtype = f"V{length}"
            parts = unaligned_rows(data, dtype)[starts[first:end]]
            unaligned_rows(out, dtype)[places[first:end]] = parts


def distinct_lengths(lengths: I64) -> tuple[I64, I64]:
    """Returns the distinct lengths, ascending, and the index into them for each row.

    For lengths [7, 3, 7] it is ([3, 7], [1, 0, 1]).
    """
    longest = int(lengths.max(initial=0))
    if longest >= 1 << 16:  # below this a table is faster than sorting
        return np.unique(lengths, return_inverse=True)
    distinct = np.flatnonzero(np.bincount(lengths, minlength=1))
    if len(distinct) == 1:
        return distinct, np.zeros(len(lengths), np.int64)
    index_of = np.zeros(longest + 1, np.int64)
    index_of[distinct] = np.arange(len(distinct))
    return distinct, index_of[lengths]


def unaligned_rows(data: U8, dtype_like: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns a view of a buffer as overlapping elements, one starting at every byte."""
    dtype = np.dtype(dtype_like)
    num_items = max(0, len(data) - dtype.itemsize + 1)
    return np.ndarray((num_items,), dtype, buffer=data.data, strides=(1,))


def offsets_of(lengths: npt.NDArray[np.integer]) -> I64:
    """Returns the offsets of concatenated rows: [0, 2, 2, 5] for lengths [2, 0, 3]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def mask_crc(crc: int) -> int:
    """Returns a CRC-32C masked as in TFRecord files."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _mask_crcs(crcs: U32) -> U32:
    rotated = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return rotated + np.uint32(_MASK_DELTA)  # wraps at 2**32, as intended


def length_crcs(lengths: I64) -> U32:
    """Returns the masked CRC-32C of every length, stored as u64."""
    # A CRC starts with all bits set; the next four bytes are added to it, and shift it.
    four = np.full(len(lengths), 4)
    crcs = shift_crcs(~lengths.astype(np.uint32), four)
    return _mask_crcs(~shift_crcs(crcs ^ (lengths >> 32).astype(np.uint32), four))


def _crcs_of(
    data: U8, starts: I64, stops: I64, previous_crcs: U32 | None = None
) -> U32:
    """Returns the CRC-32C of parts of a buffer, each continuing a previous CRC."""
    initial_crcs = (
        np.zeros(len(starts), np.uint32) if previous_crcs is None else previous_crcs
    )
    # One call per part, 0.25 us: no library accepts a batch.
    parts = map(data.data.__getitem__, map(slice, starts.tolist(), stops.tolist()))
    return np.fromiter(
        map(crc32c, parts, initial_crcs.tolist()), np.uint32, len(starts)
    )


def seal(data: Buffer, starts: Buffer) -> None:
    """Writes lengths and checksums of the frames data[starts[i]:starts[i + 1]]."""
    buffer = np.frombuffer(data, np.uint8)
    begins, ends = starts[:-1] + HEAD_BYTES, starts[1:] - TAIL_BYTES
    _write_frames(buffer, starts, ends - begins, _crcs_of(buffer, begins, ends))


def _write_frames(buffer: U8, starts: I64, lengths: I64, crcs: U32) -> None:
    heads = np.empty(len(lengths), HEAD)
    heads["length"] = lengths
    heads["crc"] = length_crcs(lengths)
    unaligned_rows(buffer, HEAD)[starts[:-1]] = heads
    unaligned_rows(buffer, "<u4")[starts[1:] - TAIL_BYTES] = _mask_crcs(crcs)


def seal_around(
    data: Buffer, starts: Buffer, cuts: Buffer, sizes: Buffer, crcs: Buffer
) -> int:
    """Writes lengths and checksums of frames that each lack a cell.

    The cell's sizes[i] bytes belong before data[cuts[i]], and crcs[i] is their CRC-32C.
    Returns the CRC-32C of all frames with their cells.
    """
    buffer = np.frombuffer(data, np.uint8)
    begins, ends = starts[:-1] + HEAD_BYTES, starts[1:] - TAIL_BYTES
    joined = shift_crcs(_crcs_of(buffer, begins, cuts), sizes) ^ crcs
    data_crcs = _crcs_of(buffer, cuts, ends, joined)
    _write_frames(buffer, starts, ends - begins + sizes, data_crcs)
    edges = np.concatenate((starts[:1], cuts, starts[-1:]))
    parts = np.empty(2 * len(cuts) + 1, np.uint32)
    lengths = np.empty(len(parts), np.int64)
    parts[::2], lengths[::2] = _crcs_of(buffer, edges[:-1], edges[1:]), np.diff(edges)
    parts[1::2], lengths[1::2] = crcs, sizes
    return combine_all_crcs(parts, lengths)


def first_damaged_frame(data: Buffer, starts: Buffer, lengths: Buffer) -> int:
    """Returns the first frame whose length or checksums are wrong, or -1."""
    if not len(starts):
        return -1
    buffer = np.frombuffer(data, np.uint8)
    ends, sizes = starts + lengths - TAIL_BYTES, lengths - HEAD_BYTES - TAIL_BYTES
    heads = unaligned_rows(buffer, HEAD)[starts]
    whole = heads["length"] == sizes.astype(np.uint64)
    whole &= heads["crc"] == length_crcs(sizes)
    stored_crcs = unaligned_rows(buffer, "<u4")[ends]
    whole &= stored_crcs == _mask_crcs(_crcs_of(buffer, starts + HEAD_BYTES, ends))
    return -1 if whole.all() else int(np.argmin(whole))


def find_frames(data: Buffer, at: int, starts: Buffer) -> int:
    """Finds consecutive frames from data[at] on by their heads.

    Writes the start of each frame, and then the end of the last one, into `starts`, whose
    size limits their number. Returns the number of frames.
    """
    view = memoryview(data).cast("B")
    starts[0], count = at, 0
    # One step per record: its length determines the start of the next one.
    while count < len(starts) - 1 and len(view) - at >= HEAD_BYTES + TAIL_BYTES:
        length = int.from_bytes(view[at : at + 8], "little")
        stored_crc = int.from_bytes(view[at + 8 : at + HEAD_BYTES], "little")
        if length > len(view) - at - HEAD_BYTES - TAIL_BYTES:
            break
        if stored_crc != mask_crc(crc32c(view[at : at + 8])):
            break
        at += length + HEAD_BYTES + TAIL_BYTES
        count += 1
        starts[count] = at
    return count


def gather(
    descriptor: int, offsets: Buffer, starts: Buffer, lengths: Buffer, target: Buffer
) -> int:
    """Reads lengths[i] bytes at offsets[i] of a file to target[starts[i]:].

    Returns the first part that cannot be read to its end, or -1.
    """
    view = memoryview(target).cast("B")
    parts = zip(offsets.tolist(), lengths.tolist(), starts.tolist(), strict=True)
    for number, (offset, length, start) in enumerate(parts):
        part = view[start : start + length]
        if length and os.preadv(descriptor, [part], offset) != length:
            return number
    return -1


def read_status(paths: bytes, sizes: Buffer, modified: Buffer, changed: Buffer) -> None:
    """Writes sizes and times of files, in nanoseconds since 1970.

    Each path ends with a zero byte. The size remains -1 if the path is no regular file,
    its status cannot be read, or 64 bits cannot represent its times.
    """
    max_int64 = np.iinfo(np.int64).max
    for index, path in enumerate(paths.split(b"\0")[:-1]):
        try:
            status_result = os.stat(path)  # noqa: PTH116 (the hot call of a large listing)
        except OSError:
            continue
        times = status_result.st_mtime_ns, status_result.st_ctime_ns
        if stat.S_ISREG(status_result.st_mode) and max(map(abs, times)) <= max_int64:
            sizes[index], modified[index], changed[index] = (
                status_result.st_size,
                *times,
            )


def copy(pieces: list[memoryview], skip: int, target: Buffer) -> int:
    """Copies the bytes of concatenated pieces to the target.

    Skips the first `skip` bytes, and stops at the end of the target. Returns the number
    of bytes that were copied.
    """
    view = memoryview(target).cast("B")
    done = 0
    for piece in pieces:
        part = piece[skip : skip + len(view) - done]
        skip = max(0, skip - len(piece))
        view[done : done + len(part)] = part
        done += len(part)
    return done


def interleave(rows: Buffer, skipped_bytes: int, count: int, images: Buffer) -> None:
    """Converts the planes of `count` images to pixels: rrr ggg bbb to rgb rgb rgb.

    The planes of an image are consecutive in its row, after `skipped_bytes` bytes. All
    rows have one length, and all images have one size.
    """
    if not count:
        return
    planes = np.frombuffer(rows, np.uint8).reshape(count, -1)[:, skipped_bytes:]
    pixels = planes.shape[1] // 3
    laid = np.frombuffer(images, np.uint8).reshape(count, pixels, 3)
    for channel in range(3):  # three strided copies beat one transpose
        laid[:, :, channel] = planes[:, channel * pixels : (channel + 1) * pixels]


def count_row_ends(text: Buffer) -> int:
    r"""Returns the number of bytes \r and \n in a text."""
    return bytes(text).count(b"\r") + bytes(text).count(b"\n")


def read_jpeg_size(data: Buffer) -> tuple[int, int, int] | None:
    """Returns height, width and depth of a JPEG; None if it may be incomplete."""
    return None  # the caller parses it in Python


def read_files(
    paths: tuple[bytes, ...], sizes: Buffer, modified: Buffer
) -> list[bytes]:
    """Reads whole files.

    Stops before a file that cannot be read, has another size, or has another modification
    time (nanoseconds since 1970, or ANY_TIME).
    """
    return []  # the caller reads each file separately


def split_cells(
    text: Buffer,
    delimiter: int,
    quote: int,
    max_rows: int,
    offsets: Buffer,
    valid: Buffer,
    facts: Buffer,
    target: Buffer,
) -> int:
    """Splits the rows of a CSV text into columns of cells, without their quotes.

    Args:
      text: whole rows; only the last row may lack its line end.
      delimiter, quote: bytes; the quote may be NO_QUOTE.
      max_rows: most rows for which the other buffers have space.
      offsets: output, int32: `max_rows` + 1 offsets for each column, from 0.
      valid: output for columns with empty cells: a bit for each row, 0 if the cell is
        empty; whole bytes for `max_rows` rows of each column.
      facts: output, int64: for each column the start of its cells in the target, and then
        for each column the number of empty cells.
      target: output, the text of the cells. As long as the text, plus CELL_SLACK for each
        column.

    Returns:
      The number of rows; or -1 if there are more than `max_rows`, if a row has another
        number of cells than there are columns, if text follows a closing quote, or if a
        quote is never closed.
    """
    return -1  # Arrow splits the rows


def split_objects(
    text: Buffer,
    names: bytes,
    ends: Buffer,
    paths: Buffer,
    holds: bytes,
    path_lines: Buffer,
    spans: Buffer,
    places: Buffer,
    offsets: Buffer,
    valid: Buffer,
    facts: Buffer,
    target: Buffer,
) -> tuple[int, int]:
    """Splits lines that are JSON objects into columns of cells.

    A path is a column, or another value that rows may have, or an object that contains
    columns. A line is odd if it is not certainly such an object.

    Args:
      text: whole lines with their ends, at most as many as `places` has space for.
      names: the concatenated names of paths, in all their JSON spellings.
      ends: int32: the end of each name in `names`.
      paths: int32: the path of each name; the paths of columns come first.
      holds: for each path `s` for text, `i` integers, `d` decimals, `b` booleans, `n`
        nulls only, `o` objects only, `*` anything: the cell is then the value's JSON.
      path_lines: workspace, int64, 0 for each path.
      spans: workspace, two int32 for each row and column.
      places: output, int64: the starts of rows; from the end backwards, of odd lines.
      offsets, facts, target: as in `cells`; `facts` has the numbers of missing cells.
      valid: as in `cells`, initially 0; filled for all columns.

    Returns:
      The numbers of rows and of odd lines; or -1, -1 if nothing was split.
    """
    return -1, -1  # json reads each line


def parse_numbers(
    offsets: Buffer, data: Buffer, valid: Buffer | None, is_float: bool, target: Buffer
) -> bool:
    """Parses cells with plain numbers, such as 0, -12 and (as floats) 3.50.

    Returns whether all cells are plain; if not, the content of the target is undefined.
    Cell i is data[offsets[i]:offsets[i + 1]]. `valid` has a bit for each cell, 0 if it is
    missing. The target is int64 or float64, and 0 for missing cells.
    """
    return False  # Arrow casts the cells


def mark_long_numbers(offsets: Buffer, data: Buffer, marks: Buffer) -> bool:
    """Marks cells with a number of more than 7 digits, without zeros at either end.

    A point or a comma may be between two digits. Returns whether the cells were searched.
    Cell i is data[offsets[i]:offsets[i + 1]]; a mark is a byte, 1 or 0.
    """
    return False  # Arrow searches the cells
