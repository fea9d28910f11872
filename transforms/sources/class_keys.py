"""Gives each value the key of its class, whatever type its column came out with.

A first reading of a table has text, and the one that converts has the types of all cells:
007 is then 7, 1.50 is 1.5 (and so is 1,5 with decimal commas), and NA among numbers is
missing. Both must find the same class, so keys are of the values: rows that differ only in
how a number is written, or in how a missing value is, are one class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.transforms.arrow import U64
from recordmill.transforms.cast.text_values import MISSING_WORDS
from recordmill.transforms.exchange.keys import text_hashes

_EXACT_WHOLE = 1 << 53  # below, float64 holds each whole number
_MISSING = {word.strip().lower() for word in MISSING_WORDS}
MISSING_KEY = ""


def class_key(value: str | None) -> str:
    """Returns the key of a value's class.

    >>> class_key("007"), class_key(" 7.0"), class_key("1.50"), class_key("NA")
    ('7', '7', '1.5', '')
    """
    text = (value or "").strip()
    if text.lower() in _MISSING:
        return MISSING_KEY
    if text.lower() in ("true", "false"):
        return text.lower()
    try:
        number = float(text if "." in text else text.replace(",", "."))
    except ValueError:
        return text
    if not abs(number) < _EXACT_WHOLE or number != int(number):  # NaN is no number
        return repr(number)
    return str(int(number))


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


def class_hashes(values: pa.Array) -> U64:
    """Returns the hash of each row's class key."""
    texts, indices = texts_of(values)
    hashes: U64 = text_hashes(map(class_key, texts))[indices]
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
