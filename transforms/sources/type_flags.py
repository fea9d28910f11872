"""Defines the type flags of a column of text, and the dtype that they ask for."""

from __future__ import annotations

from enum import IntFlag

import pyarrow as pa


class TypeFlag(IntFlag):
    """What the cells of a column were observed to hold; NOTHING if all were empty.

    Checkpoints keep them, so none ever gets another meaning that is narrower.
    """

    NOTHING = 0
    BOOLEAN = 1
    INTEGER = 2  # whole and within int64: 7, 7.0
    DECIMAL = 4  # within float32
    TEXT = 8
    HUGE = 16  # decimals beyond float32, but within float64: they stay text
    MISSING = 32  # words like NA, and nothing but blanks


# What the cells become, by the feature's dtype. Decimals stay float64 until they are
# encoded.
ARROW_TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float32": pa.float64(),
    "string": pa.string(),
}

_DTYPE_OF: dict[int, str] = {
    TypeFlag.BOOLEAN: "bool",
    TypeFlag.INTEGER: "int64",
    TypeFlag.DECIMAL: "float32",
    TypeFlag.INTEGER | TypeFlag.DECIMAL: "float32",
}

LEAST_FLAG = {
    "bool": TypeFlag.BOOLEAN,
    "int64": TypeFlag.INTEGER,
    "float32": TypeFlag.DECIMAL,
}


def column_dtype(flags: int) -> str:
    """Returns the narrowest dtype that holds all cells with these flags.

    >>> column_dtype(TypeFlag.INTEGER | TypeFlag.DECIMAL)
    'float32'
    """
    return _DTYPE_OF.get(flags & ~TypeFlag.MISSING, "string")


def is_text(flags: int) -> bool:
    """Tells whether a column is text, whatever its other cells hold."""
    known = flags & ~TypeFlag.MISSING
    return bool(known) and column_dtype(known) == "string" and not is_huge(known)


def has_missing_words(flags: int) -> bool:
    """Tells whether cells of a column with these flags stand for missing values."""
    return bool(flags & TypeFlag.MISSING) and column_dtype(flags) != "string"


def is_huge(flags: int) -> bool:
    """Tells whether a column is text only because of decimals beyond float32."""
    flags &= ~TypeFlag.MISSING
    others = flags & ~TypeFlag.HUGE
    return others != flags and (not others or column_dtype(others) != "string")
