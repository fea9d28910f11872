"""Reads text that other programs wrote: whatever is wrong with it becomes one error.

Parsers and the code that takes values apart raise many classes of exceptions when the text is
damaged or hostile: KeyError, RecursionError, OverflowError, UnicodeEncodeError and more. A list of
these classes is never complete. So each kind of foreign file has one function that reads
it within `as_input_error`, and its callers handle InputError alone.
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

_DETAIL_CHARACTERS = 200  # of another package's message
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def as_input_error(location: str, expected: str) -> Iterator[None]:
    """Raises an InputError in place of any failure to read foreign text.

    Errors that this package raises itself, and a lack of memory, pass unchanged. The code
    within should only take the text apart, because its own faults look like wrong text.
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
    """Describes in one line why foreign text could not be read.

    >>> describe_failure(KeyError("features")), describe_failure(RecursionError())
    ("has no 'features'", 'lists or objects are nested too deep')
    """
    if isinstance(error, RecursionError):
        return "lists or objects are nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start:,} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "has half a character (\\ud800 to \\udfff)"
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
    """Returns the value of JSON text.

    Raises:
      InputError: the text is not JSON, has a key twice in one object, is nested too deep,
        or has half a character or an integer of more digits than Python parses.
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
