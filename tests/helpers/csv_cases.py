"""Cells of CSV files of every kind, and what they hold by a cell-by-cell oracle."""

from __future__ import annotations

import functools
import math
import operator
import re
import struct

import pyarrow as pa
from hypothesis import strategies as st

from recordmill.transforms.cast.text_values import MISSING_WORDS
from recordmill.transforms.sources.text_columns import TypeFlag, classify_columns

MAX_INT64 = (1 << 63) - 1


def holds_of(text: str | None) -> TypeFlag:
    """The rules of the types, for one cell."""
    if text is None:
        return TypeFlag.NOTHING
    text = text.strip(" \t\n\v\f\r")
    if not text or text in MISSING_WORDS:
        return TypeFlag.MISSING
    if not text.isascii() or "_" in text or text != text.strip():
        return TypeFlag.TEXT
    if text.lower() in ("true", "false"):
        return TypeFlag.BOOLEAN
    try:
        value = float(text)
    except ValueError:
        return TypeFlag.TEXT
    digits = text.removeprefix("-")
    plain = re.fullmatch(r"0|-?[1-9][0-9]*", text)
    whole = plain or re.fullmatch(r"(0|-?[1-9][0-9]*)\.0*", text)
    number = text.partition(".")[0]
    if whole and len(number) <= 20 and -MAX_INT64 - 1 <= int(number) <= MAX_INT64:
        return TypeFlag.INTEGER
    leading_zero = digits[:1] == "0" and digits[1:2].isdigit()
    if plain or text.startswith("+") or text.lower() == "-nan" or leading_zero:
        return TypeFlag.TEXT
    if math.isinf(value) and digits.lower() not in ("inf", "infinity"):
        return TypeFlag.TEXT
    try:
        struct.pack("<f", value)
    except OverflowError:
        return TypeFlag.TEXT
    return TypeFlag.DECIMAL


def holds_of_all(texts: list[str | None]) -> TypeFlag:
    return functools.reduce(operator.or_, map(holds_of, texts), TypeFlag.NOTHING)


NUMBERS = st.one_of(
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.integers(-999, 999).map(str),
    st.integers(-(1 << 65), 1 << 65).map("{}.0".format),
    st.integers(-999, 999).map("{}.0".format),
    st.floats(allow_nan=False).map(repr),
    st.floats(width=32, allow_nan=False).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.from_regex(r"-?[0-9]{0,3}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
ODD_TEXTS = st.sampled_from(
    [
        *("007", "00", "-0", "-00", "-01", "0x10", "-0x10", "0b1", "1_000", "+5"),
        "+.5",
        *("0.", ".0", "-.5", ".", "-", "--1", "1.e5", "1e", "1e+", "e5", "00.5"),
        "-00.5",
        *("7.0", "-7.00", "0.0", "-0.0", "0.", "16777217.0", "1.0.0", "7.0 ", "7.0e0"),
        *("9223372036854775807.0", "9223372036854775808.0", "-9223372036854775808."),
        *("9007199254740992.0", "9007199254740993.0", "999999999999999.0"),
        *("9999999999999999", "9999999999999999.0", "1.00000000000000000001"),
        *("5." + "0" * 30, "1" * 19 + ".0", "1" * 30 + ".0", "0.00000000000000000001"),
        *("3.4028235677973366e38", "3.4028235677973365e38", "-1e39", "1" * 39 + ".5"),
        *("inf", "-inf", "INF", "Infinity", "-infinity", "+inf", "infinit", "inf "),
        *("nan", "NaN", "-nan", "nan(1)", "1d5", "0x1p3", "1,5", "1f"),
        *("NA", "null", " N/A ", "None", "Null", "NAN", "-", "?"),
        *("true", "TRUE", "False", "tRuE", "t", "no", "truefalse", "true\n", "falſe"),
        *("1e308", "1e309", "-1e400", "1e-400", "1e99999999999999999999", "9" * 400),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
        *("-9223372036854775809", "1" * 18, "1" * 19, "-" + "1" * 18, "1" * 30),
        *(" 1", "1 ", "\t1", "1\n", "  ", " 2.5 ", " true", "1 2", "\x1f1", "٣", "１"),
        *("", "é", "1\0"),
    ]
)
CELLS = st.lists(
    st.one_of(st.none(), NUMBERS, ODD_TEXTS, st.text(max_size=4)), max_size=12
)
NUMBERS_ONLY = st.lists(st.one_of(st.none(), NUMBERS), max_size=12)
COLUMNS = st.one_of(CELLS, NUMBERS_ONLY, st.lists(ODD_TEXTS, min_size=1, max_size=1))


def quoted(cell: str) -> bytes:
    """Returns the cell as CSV, in quotes."""
    return b'"' + cell.replace('"', '""').encode() + b'"'


def classify(cells: pa.StringArray) -> TypeFlag:
    """Returns the type flags of all cells of a column."""
    return classify_columns([cells])[0]
