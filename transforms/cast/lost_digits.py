"""Finds decimals of which float32 cannot hold all digits that are written.

A value is whole if float32's value, rounded to the last place that is written, is what
is written: it is less than half a unit of that place away.

    written        last place   float32's value            away     half a unit
    0.1            0.1          0.100000001490116...       1.5e-9   0.05    whole
    123456789.12   0.01         123456792                  2.88     0.005   lost
    16777217       1            16777216                   1        0.5     lost

So two numbers with as many places that become equal are never both taken for whole. Up
to six digits are always held. What is written counts as float64 reads it, except for
whole numbers beyond 2**53, which float64 rounds too.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import I64, U8, value_offsets
from recordmill.transforms.encode.row_errors import Mask

_SURE_BYTES = 7  # of a cell: six digits and a point
_SURE_NUMBER = 1 << 23  # below, float32 is less than half a unit away
_CLEAR_BYTES = 15  # of a cell from 0.1 on: 12 digits or more, with an exponent 5 more
_EXACT_WHOLE = 1 << 53  # up to here float64 holds each whole number
_MINUS, _POINT, _ZERO, _NINE, _E = (ord(char) for char in "-.09e")
_MOST_PLACES = 400  # beyond the smallest float64
# Half a unit of the last place, less what float64 may be wrong by; by places + 400.
_HALF_UNITS = np.array(
    [float(f"{0.5 - 5e-7}e{-p}") for p in range(-_MOST_PLACES, _MOST_PLACES + 1)]
)
_NONE = np.zeros(0, np.int64)

Offsets = npt.NDArray[np.int32]


def lost_digits(cells: pa.StringArray, floats: pa.DoubleArray) -> I64:
    """Returns the indices of the cells that lose digits as float32.

    Args:
      cells: decimals and integers as text.
      floats: the same as float64.
    """
    if cells.null_count:
        present = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
        return present[lost_digits(cells.drop_null(), floats.drop_null())]
    offsets, text = _parts(cells)
    if not len(text):
        return _NONE
    lengths = np.diff(offsets)
    has_letters = bool(text.max() > _NINE)
    if not has_letters and lengths.max() <= _SURE_BYTES:
        return _NONE
    wide = floats.to_numpy()
    places = None if has_letters else _same_places(text, offsets, lengths)
    if places is not None:
        largest = max(float(wide.max()), -float(wide.min()))
        if largest * 10.0**places < _SURE_NUMBER:
            return _NONE
        lost: Mask = _away(wide) >= _HALF_UNITS[places + _MOST_PLACES]
    else:
        first = text.take(offsets[:-1])
        no_digit = (first == _MINUS) | (first == _ZERO)
        long = lengths - no_digit.view(np.int8) > _SURE_BYTES
        if not has_letters and 2 * np.count_nonzero(long) < len(long):
            # Most cells have six digits at most: -1.23456, 0.123456, 123.456.
            rows = np.flatnonzero(long)
            at = pa.array(rows)
            return rows[lost_digits(cells.take(at), floats.take(at))]
        lost = _lost_by_places(cells, wide, lengths, has_letters=has_letters)
    if has_letters or lengths.max() > _CLEAR_BYTES:
        unsure = np.abs(wide) >= _EXACT_WHOLE
        unsure |= wide == 0
        lost |= _lost_before(cells, unsure & ~lost & (lengths > 1))
    return np.flatnonzero(lost)


def _parts(cells: pa.StringArray) -> tuple[Offsets, U8]:
    """Returns where each cell starts in the text of all cells, and that text."""
    offsets = value_offsets(cells)
    data = np.frombuffer(cells.buffers()[2] or b"", np.uint8)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _away(wide: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns how far float32 is from each value; NaN where it is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wide.astype(np.float32).astype(np.float64)
        narrow -= wide
    return np.abs(narrow, out=narrow)


def _same_places(text: U8, offsets: Offsets, lengths: Offsets) -> int | None:
    """Returns the decimal places of all cells if they have equally many, else None."""
    places = int(offsets[1]) - 1 - text[: offsets[1]].tobytes().find(b".")
    if places >= lengths.min() or places == offsets[1]:
        return None
    is_point = text.take(offsets[1:] - (1 + places)) == _POINT
    return places if is_point.all() else None


def _lost_by_places(
    cells: pa.StringArray,
    wide: npt.NDArray[np.float64],
    lengths: Offsets,
    *,
    has_letters: bool,
) -> Mask:
    """Returns which cells are too far away, where their places differ."""
    away = _away(wide)
    lost: Mask = away > 0
    if not has_letters:
        lost &= lengths > _SURE_BYTES
    # So many digits, and not equal: lost, unless it is very near.
    clear = away >= np.abs(wide) * 1e-11
    if has_letters:
        offsets, text = _parts(cells)
        first = text.take(offsets[:-1])
        digit = np.where(
            first == _MINUS, text.take(offsets[:-1] + 1, mode="clip"), first
        )
        clear &= (lengths >= _CLEAR_BYTES + 5) & (digit != _ZERO)
    else:
        clear &= (lengths >= _CLEAR_BYTES) & (np.abs(wide) >= 0.1)
    doubtful = np.flatnonzero(lost & ~clear)
    if len(doubtful):
        offsets, text = _parts(cells.take(pa.array(doubtful)))
        places = _places(text, offsets, has_letters=has_letters)
        np.clip(places, -_MOST_PLACES, _MOST_PLACES, out=places)
        lost[doubtful] = away[doubtful] >= _HALF_UNITS.take(places + _MOST_PLACES)
    return lost


def shown_float32(value: float) -> str:
    """Returns what float32 makes of a number, in as few digits as tell it.

    >>> shown_float32(123456789.12), shown_float32(0.12345678901)
    ('123456792', '0.12345679')
    """
    with np.errstate(over="ignore"):
        stored = np.float32(value)
    if np.isfinite(stored) and stored == np.rint(stored) and abs(stored) < 1e16:
        return str(int(stored))
    return str(stored)


def _places(text: U8, offsets: Offsets, *, has_letters: bool) -> I64:
    """Returns the decimal places of each cell: 2 for 1.25, 0 for 7, -3 for 1e3.

    For ["1.25", "7"], text b"1.257" and offsets [0, 4, 5]: the point at 1 belongs to
    the first cell, which ends at 4, so it has 4 - 1 - 1 = 2 places.
    """
    ends = offsets[1:].astype(np.int64)
    exponents: I64 | int = 0
    if has_letters:
        marked, marks = _find(text | np.uint8(0x20), _E, offsets)
        exponents = np.zeros(len(ends), np.int64)
        exponents[marked] = _exponents(text, marks, ends[marked])
        ends[marked] = marks
    pointed, points = _find(text, _POINT, offsets)
    places = np.zeros(len(ends), np.int64)
    places[pointed] = ends[pointed] - points - 1
    return places - exponents


def _find(text: U8, byte: int, offsets: Offsets) -> tuple[Mask | slice, I64]:
    """Returns which cells hold a byte, once at most each, and where it is in the text."""
    found = text == byte
    where = np.flatnonzero(found)
    if len(where) == len(offsets) - 1:
        return slice(None), where
    before = np.zeros(len(text) + 1, np.int32)
    np.cumsum(found, out=before[1:])
    before = before[offsets]
    return before[1:] != before[:-1], where


def _exponents(text: U8, marks: I64, ends: I64) -> I64:
    """Returns the numbers that stand behind the e at each mark."""
    exponents = np.zeros(len(marks), np.int64)
    longest = int((ends - marks).max()) if len(marks) else 0
    for step in range(1, longest):
        digits = text.take(marks + step, mode="clip").astype(np.int64) - _ZERO
        is_digit = (marks + step < ends) & (digits >= 0) & (digits <= 9)
        more = np.minimum(exponents * 10 + digits, 9999)
        exponents = np.where(is_digit, more, exponents)
    return np.where(text.take(marks + 1, mode="clip") == _MINUS, -exponents, exponents)


def _lost_before(cells: pa.StringArray, unsure: Mask) -> Mask:
    """Returns which of some cells float64 does not hold, though float32 is equal to it.

    A loop over the distinct texts: few numbers are so large and yet equal.
    """
    if not unsure.any():
        return unsure
    lost = np.zeros(len(cells), np.bool_)
    texts = cells.filter(pa.array(unsure)).dictionary_encode()
    wrong = np.array(
        [_is_lost(text) for text in texts.dictionary.to_pylist()], np.bool_
    )
    lost[unsure] = wrong[texts.indices.to_numpy()] if len(wrong) else False
    return lost


def _is_lost(text: str) -> bool:
    written = Decimal(text)
    stored = float(np.float32(float(text)))
    if not stored or not written.is_finite():
        return bool(written) and written.is_finite()
    last_place = Decimal((0, (1,), int(written.as_tuple().exponent)))
    return 2 * abs(Decimal(stored) - written) >= last_place
