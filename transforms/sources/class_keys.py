"""Gives each value the key of its class, whatever type its column came out with.

A first reading of a table has text, and the one that converts has the types of all cells:
007 is then 7, 1.50 is 1.5, and NA among numbers is missing. Both must find the same class,
so keys are of the values: rows that differ only in how a number is written, or in how a
missing value is, are one class. Where numbers have a decimal comma, 1,5 is 1.5, and 1.5 is
text; elsewhere it is the other way round, as for all cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.job import JobSpec
from recordmill.transforms.arrow import U64
from recordmill.transforms.cast.text_values import MISSING_WORDS
from recordmill.transforms.exchange.keys import text_hashes
from recordmill.transforms.sources.base import Source

_EXACT_WHOLE = 1 << 53  # below, float64 holds each whole number
_MISSING = {word.strip().lower() for word in MISSING_WORDS}
_SWAPPED = str.maketrans(",.", ".,")
MISSING_KEY = ""


def texts_of(values: pa.Array) -> tuple[list[str | None], np.ndarray]:
    """Returns the distinct values as text, and the index among them of each row."""
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not pt.is_string(values.type):
        if pt.is_binary(values.type) or pt.is_large_binary(values.type):
            texts = [None if v is None else v.hex() for v in values.to_pylist()]
            values = pa.array(texts, pa.string())
        else:
            values = values.cast(pa.string())
    encoded = values.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), indices


def keys_of(
    values: pa.Array, *, decimal_comma: bool = False
) -> tuple[list[str], np.ndarray]:
    """Returns keys of classes, and the index among them of each row's.

    Args:
      values: of a column, as text or as whatever type it came out with.
      decimal_comma: whether numbers in text have a comma before their places.

    >>> keys_of(pa.array(["007", " 7.0", "1.50", "1,5", "NA"]))[0]
    ['7', '7', '1.5', '1,5', '']
    """
    texts, indices = texts_of(values)
    comma = decimal_comma and pt.is_string(values.type)  # numbers have no spelling
    return [_key(text or "", decimal_comma=comma) for text in texts], indices


def _key(text: str, *, decimal_comma: bool) -> str:
    text = text.strip()
    if text.lower() in _MISSING:
        return MISSING_KEY
    if text.lower() in ("true", "false"):
        return text.lower()
    written = text.translate(_SWAPPED) if decimal_comma else text
    if "_" in text or not text.isascii():
        return text  # which Python may take for a number, but no cell is read so
    try:
        number = float(written)
    except ValueError:
        return text
    if not abs(number) < _EXACT_WHOLE or number != int(number):  # NaN is no number
        return repr(number)
    return str(int(number))


def has_decimal_commas(job: JobSpec, source: Source, column: str) -> bool:
    """Tells whether numbers in a column's text have a comma before their places.

    A declared feature says so itself; else it is as in all of the input.
    """
    if job.declared is not None:
        marks = [
            feature.decimal == "comma"
            for name, feature in job.declared.features.items()
            if job.declared.column_of(name) == column
        ]
        if marks:
            return all(marks)
    return source.decimal_comma


def class_hashes(values: pa.Array, *, decimal_comma: bool = False) -> U64:
    """Returns the hash of each row's class key; for the arguments see `keys_of`."""
    keys, indices = keys_of(values, decimal_comma=decimal_comma)
    hashes: U64 = text_hashes(keys)[indices]
    return hashes


def sorted_names(texts: Sequence[str]) -> list[str]:
    """Sorts class names: by their value if all are numbers, else by their text.

    >>> sorted_names(["10", "9"]), sorted_names(["10", "b"])
    (['9', '10'], ['10', 'b'])
    """
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return sorted(texts)
    if any(map(math.isnan, numbers.values())):
        return sorted(texts)
    return sorted(texts, key=lambda text: (numbers[text], text))
