"""Decodes hex and base64 cells, and arrays that lie in bytes columns.

    hex      two digits 0-9 a-f A-F a byte
    base64   A-Z a-z 0-9 + / (RFC 4648, section 4), four digits for three bytes; the
             padding = at the end may be left out, but not half of it
    array    row-major little-endian values

A whole column is decoded in one call; cells are looked at one by one, by a regular
expression, only where that call fails.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import I64, U8, array_parts, binary_array, offsets_of
from recordmill.transforms.cast.cast_result import (
    ARROW_TYPES,
    CastResult,
    present,
    shown,
)
from recordmill.transforms.cast.cast_result import without as without_wrong
from recordmill.transforms.cast.text_values import matches
from recordmill.transforms.encode.row_errors import RowErrors, flag_invalid

_HEX = r"^(?:[0-9a-fA-F]{2})*$"
_DIGIT = "[A-Za-z0-9+/]"
_BASE64 = rf"^(?:{_DIGIT}{{4}})*(?:{_DIGIT}{{2}}(?:==)?|{_DIGIT}{{3}}=?)?$"
_PADS = ["", "", "==", "="]  # by the digits behind the last four
_EQUALS = ord("=")


def decode_hex(cells: pa.StringArray) -> CastResult:
    """Decodes hex cells."""
    return _decode(
        cells, _unhex, _HEX, "hex (two digits a byte, 0-9 and a-f)", lambda text: text
    )


def decode_base64(cells: pa.StringArray) -> CastResult:
    """Decodes base64 cells."""
    return _decode(
        cells,
        _unbase64,
        _BASE64,
        "base64 (four digits A-Z a-z 0-9 + / for three bytes, = at the end)",
        _pad,
    )


_Decoder = Callable[[I64, U8], pa.BinaryArray]


def _decode(
    cells: pa.StringArray,
    decode: _Decoder,
    pattern: str,
    expected: str,
    complete: Callable[[pa.StringArray], pa.StringArray],
) -> CastResult:
    valid = present(cells)
    errors: RowErrors = {}
    texts = cells.fill_null("")
    try:
        decoded = decode(*_text_parts(complete(texts)))
    except ValueError:  # binascii.Error is one
        texts = pc.ascii_trim_whitespace(texts)
        wrong = ~matches(texts, pattern)
        errors = flag_invalid(
            wrong, lambda i: f"{shown(texts[i].as_py())} is not valid {expected}"
        )
        texts = without_wrong(texts, wrong).fill_null("")
        decoded = decode(*_text_parts(complete(texts)))
        valid &= ~wrong
    return CastResult(without_wrong(decoded, ~valid), errors)


def _text_parts(cells: pa.StringArray) -> tuple[I64, U8]:
    """Returns offsets from 0 and the bytes they count."""
    offsets, data = array_parts(cells)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _unhex(offsets: I64, data: U8) -> pa.BinaryArray:
    if (offsets % 2).any():
        raise ValueError("an odd number of digits")
    return binary_array(
        offsets // 2, np.frombuffer(binascii.unhexlify(data.data), np.uint8)
    )


def _pad(cells: pa.StringArray) -> pa.StringArray:
    """Adds the padding that was left out."""
    offsets, data = _text_parts(cells)
    rest = np.diff(offsets) % 4
    ends = offsets[1:][rest > 0] - 1
    rest[rest > 0] *= (
        data[ends] != _EQUALS
    )  # half of the padding is wrong, not left out
    if not rest.any():
        return cells
    return pc.binary_join_element_wise(cells, pa.array(_PADS).take(pa.array(rest)), "")


def _unbase64(offsets: I64, data: U8) -> pa.BinaryArray:
    if (offsets % 4).any():
        raise ValueError("not a multiple of four digits")
    ends = offsets[1:][np.diff(offsets) > 0]
    one = data[ends - 1] == _EQUALS
    two = one & (data[ends - 2] == _EQUALS)
    padded = np.flatnonzero(data == _EQUALS)
    if len(padded) != np.count_nonzero(one) + np.count_nonzero(two):
        raise ValueError("padding inside a cell")
    if len(padded):
        data = data.copy()
        data[padded] = ord("A")  # six zero bits; the bytes they make are cut out below
    raw = np.frombuffer(binascii.a2b_base64(data.data, strict_mode=True), np.uint8)
    lengths = np.diff(offsets) // 4 * 3
    if len(padded):
        last = ends // 4 * 3 - 1
        raw = np.delete(raw, np.concatenate([last[one], last[two] - 1]))
        lengths[np.diff(offsets) > 0] -= one.astype(np.int64) + two
    return binary_array(offsets_of(lengths), raw)


def array_lists(column: pa.BinaryArray, dtype: str) -> CastResult:
    """Converts bytes of arrays to lists of their values; booleans are bytes 0 and 1."""
    read_as = np.dtype("uint8" if dtype == "bool" else dtype).newbyteorder("<")
    valid = present(column)
    column = column.fill_null(b"")
    size = read_as.itemsize
    lengths = np.diff(array_parts(column)[0])
    wrong = lengths % size != 0
    errors = flag_invalid(
        wrong,
        lambda i: (
            f"{lengths[i]} bytes are not a whole number of {dtype} values ({size} bytes each)"
        ),
    )
    column = without_wrong(column, wrong).fill_null(b"")
    offsets, data = _text_parts(column)
    # A slice may begin anywhere; Arrow wants values at multiples of their size.
    values = np.require(data.view(read_as), requirements="A")
    lists = pa.ListArray.from_arrays(
        pa.array(offsets // size, pa.int32()),
        pa.array(values, ARROW_TYPES[read_as.name]),
        mask=pa.array(~valid),
    )
    return CastResult(lists, errors)
