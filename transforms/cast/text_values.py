"""Parses text cells as numbers and booleans, as they are declared.

    integer   [+-] digits [. zeros]           leading zeros count for nothing: 007 is 7
    float     [+-] digits . digits [e+-digits]    also inf, infinity, nan
    boolean   true, false, 1, 0               letters in upper or lower case

White space (ASCII) around a value is not part of it, and a cell of nothing else is a
missing value, as is one of MISSING_WORDS. 1.5, 1e3, 0x10 and 1_000 are not integers. Arrow casts whole columns; only
where it cannot, or takes what is not in this list, are single cells looked at.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import array_parts
from recordmill.transforms.cast.cast_result import (
    ARROW_TYPES,
    CastResult,
    present,
    shown,
    without,
)
from recordmill.transforms.encode.row_errors import Mask, flag_invalid, mask_of, merge
from recordmill.transforms.encode.value_limits import (
    beyond_float,
    beyond_integer,
    narrow_floats,
)

MAX_INT64 = (1 << 63) - 1

# What pandas takes for a missing value, but NaN in letters of any case: that is a float.
MISSING_WORDS = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "None", "n/a", "null",
)  # fmt: skip
_MISSING_WORDS = pa.array(MISSING_WORDS)

_BOOLEAN = r"^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[01])$"  # (?i:s) is also ſ
_INTEGER = r"^[+-]?[0-9]+$"
_WHOLE_DECIMAL = r"^([+-]?[0-9]+)\.0*$"
_FLOAT = (
    r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    r"|^[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])$"
)
_INFINITY = r"^[+-]?[iI]"
_SURE_DIGITS = 18  # with so many characters or fewer an integer is within int64
_SHOWN_DIGITS = 40


def parse_booleans(cells: pa.StringArray) -> CastResult:
    """Parses text as booleans."""
    quick = _cast(cells, pa.bool_())
    if quick is not None:
        return CastResult(quick, {})
    cells = without_missing(cells)
    wrong = present(cells) & ~matches(cells, _BOOLEAN)
    errors = flag_invalid(
        wrong,
        lambda i: (
            f"{shown(cells[i].as_py())} is not a valid bool (true, false, 1 or 0)"
        ),
    )
    return CastResult(without(cells, wrong).cast(pa.bool_()), errors)


def parse_integers(cells: pa.StringArray, dtype: str) -> CastResult:
    """Parses text as integers of a NumPy dtype."""
    quick = _quick_integers(cells, dtype)
    if quick is None:
        cells = without_missing(cells)
        quick = _quick_integers(cells, dtype)
    texts = cells
    if quick is None and _has_byte(cells, b"."):
        cells = without_places(cells)
        quick = _quick_integers(cells, dtype)
    if quick is not None:
        return CastResult(quick, {})
    written = matches(cells, _INTEGER)
    errors = flag_invalid(
        present(cells) & ~written,
        lambda i: f"{shown(texts[i].as_py())} is not a valid {dtype}",
    )
    limits = np.iinfo(dtype)
    values = np.zeros(len(cells), dtype)
    fits = np.zeros(len(cells), np.bool_)
    long = written & (_lengths(cells) > _SURE_DIGITS)
    where = np.flatnonzero(written & ~long)
    texts = pc.utf8_ltrim(cells.take(pa.array(where)), characters="+")
    short = texts.cast(pa.int64()).to_numpy()
    inside = (short >= limits.min) & (short <= min(limits.max, MAX_INT64))
    values[where[inside]] = short[inside]
    fits[where[inside]] = True
    # Row by row only here: integers of 19 digits or more in a column that Arrow
    # cannot cast, because some other cell is wrong.
    for row in np.flatnonzero(long).tolist():
        text = cells[row].as_py()
        sign = -1 if text.startswith("-") else 1
        digits = text.lstrip("+-").lstrip("0") or "0"
        # Python does not convert thousands of digits.
        value = sign * int(digits) if len(digits) <= 20 else None
        if value is not None and limits.min <= value <= limits.max:
            values[row] = value
            fits[row] = True
    beyond = flag_invalid(
        written & ~fits,
        lambda i: beyond_integer(_short(cells[i].as_py()), dtype),
    )
    return CastResult(pa.array(values, mask=~fits), merge(errors, beyond))


def parse_floats(cells: pa.StringArray, dtype: str) -> CastResult:
    """Parses text as floats of a NumPy dtype, rounded to the nearest."""
    wide = _quick_floats(cells)
    if wide is None:
        cells = without_missing(cells)
        wide = _quick_floats(cells)
    if wide is not None:
        return cast_floats(wide, dtype)
    written = matches(cells, _FLOAT)
    errors = flag_invalid(
        present(cells) & ~written,
        lambda i: f"{shown(cells[i].as_py())} is not a valid {dtype}",
    )
    wide = without(cells, ~written).cast(pa.float64())
    infinite = np.isinf(wide.to_numpy(zero_copy_only=False))
    beyond = infinite & ~matches(cells, _INFINITY)
    errors = merge(
        errors,
        flag_invalid(
            beyond,
            lambda i: beyond_float(_short(cells[i].as_py()), "float64"),
        ),
    )
    narrow = cast_floats(without(wide, beyond), dtype)
    return CastResult(narrow.array, merge(errors, narrow.errors))


def cast_floats(array: pa.Array, dtype: str) -> CastResult:
    """Casts floats to another float dtype; rounding is no loss, infinity is."""
    if array.type == ARROW_TYPES[dtype]:
        return CastResult(array, {})
    values, errors = narrow_floats(array.to_numpy(zero_copy_only=False), dtype)
    missing = ~present(array) | mask_of(errors, len(array))
    return CastResult(pa.array(values, mask=missing), errors)


def trim(cells: pa.StringArray) -> pa.StringArray:
    """Trims white space around the cells; what is then empty is missing."""
    cells = pc.ascii_trim_whitespace(cells)
    return without(cells, _lengths(cells) == 0)


def without_missing(cells: pa.StringArray) -> pa.StringArray:
    """Trims white space around the cells; nothing and MISSING_WORDS are missing."""
    cells = trim(cells)
    words = np.asarray(pc.is_in(cells, _MISSING_WORDS).to_numpy(zero_copy_only=False))
    return without(cells, words) if words.any() else cells


def without_places(cells: pa.StringArray) -> pa.StringArray:
    """Cuts the point and the zeros off whole numbers that are written as decimals.

    ["2", "3.0", "-4.", "2.5"] gives ["2", "3", "-4", "2.5"].
    """
    return pc.replace_substring_regex(cells, _WHOLE_DECIMAL, r"\1")


def matches(cells: pa.StringArray, pattern: str) -> Mask:
    """Returns which cells match a regular expression (RE2); nulls do not."""
    found = pc.match_substring_regex(cells, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _quick_integers(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Casts the cells by Arrow; returns None if it cannot or might read 0x10."""
    return None if _has_byte(cells, b"xX") else _cast(cells, ARROW_TYPES[dtype])


def _quick_floats(cells: pa.StringArray) -> pa.Array | None:
    """Casts the cells by Arrow, unless it might read nan(1) or make 1e400 infinite."""
    if _has_byte(cells, b"("):
        return None
    wide = _cast(cells, pa.float64())
    if wide is None or np.isinf(wide.to_numpy(zero_copy_only=False)).any():
        return None
    return wide


def _cast(cells: pa.StringArray, wanted: pa.DataType) -> pa.Array | None:
    try:
        return cells.cast(wanted)
    except pa.ArrowInvalid:
        return None


def _has_byte(cells: pa.StringArray, characters: bytes) -> bool:
    offsets, data = array_parts(cells)
    text = data[offsets[0] : offsets[-1]]
    return any(bool((text == char).any()) for char in characters)


def _lengths(cells: pa.StringArray) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Returns the bytes of each cell, -1 for a null."""
    lengths = pc.binary_length(cells).fill_null(-1)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int32)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_DIGITS else f"{text[:_SHOWN_DIGITS]}..."
