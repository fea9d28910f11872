"""Reads text that other programs wrote, and converts every failure to an InputError.

Parsers, and code that reads parsed values, raise many classes of exceptions for damaged
or hostile text: KeyError, RecursionError, OverflowError, UnicodeEncodeError and more. A
list of these classes is never complete. So each kind of foreign file has one function
that reads it within `as_input_error`, and its callers handle only InputError.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from recordmill.schemas.errors import InputError, RecordmillError

_DETAIL_CHARACTERS = 200  # maximum length of another package's message
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def as_input_error(location: str, expected: str) -> Iterator[None]:
    """Raises an InputError in place of any failure to read foreign text.

    Errors of this package and MemoryError pass unchanged. The code within the block
    should only parse the text, because its own bugs would be reported as invalid text.
    """
    try:
        yield
    except (RecordmillError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{location}: {describe_failure(error)}; expected {expected}"
        ) from error


def describe_failure(error: Exception) -> str:
    """Returns one line that describes why foreign text could not be read.

    >>> describe_failure(KeyError("features")), describe_failure(RecursionError())
    ("has no 'features'", 'lists or objects are nested too deep')
    """
    if isinstance(error, RecursionError):
        return "lists or objects are nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start:,} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "has an unpaired surrogate (\\ud800 to \\udfff)"
    if isinstance(error, KeyError) and error.args:
        return f"has no {reprlib.repr(error.args[0])}"
    if isinstance(error, TypeError | AttributeError | LookupError):
        return f"has a value of another type ({_one_line(error)})"
    return _one_line(error)


def parse_json(
    text: bytes | str,
    location: str,
    *,
    expected: str = "JSON",
    parse_float: Callable[[str], Any] | None = None,
) -> Any:
    """Parses JSON text.

    Raises:
      InputError: the text is not JSON, repeats a key in an object, is nested too deep, or
        has half of a surrogate pair or an integer with more digits than Python parses.
    """
    with as_input_error(location, expected):
        parsed = json.loads(
            text, parse_float=parse_float, object_pairs_hook=_object_of_pairs
        )
        if _HALF_CHARACTER.search(text if isinstance(text, bytes) else text.encode()):
            json.dumps(parsed, ensure_ascii=False).encode()  # a pair of halves is whole
        return parsed


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"an object has the key {reprlib.repr(repeated)} twice")
    return parsed


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())[:_DETAIL_CHARACTERS]
    return text or type(error).__name__
