"""Parses text from a dataset's folder; any failure becomes one error with a location.

A dataset may come from anybody, so the text of its files is checked before it is used: a
model says which fields there are and which strings may become file names. What fails, and
how, depends on the parser (a number of 5,000 digits, 100,000 levels of lists, half a
surrogate pair), so no caller has a list of exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from recordmill.schemas.declared import expectation
from recordmill.schemas.errors import OutputRefusedError, SchemaError
from recordmill.schemas.text import printable

_SHOWN = 100  # characters of a field's name
_LONGEST = 400  # characters of what was expected and found
_Model = TypeVar("_Model")


class ForeignModel(BaseModel):
    """A JSON object of a dataset's file; keys of other versions are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True, slots=True)
class ForeignText:
    """A text of a dataset's folder, as error messages describe it."""

    location: str  # URI of the file, and the line if it has several
    noun: str  # like "recordmill manifest"
    advice: str  # what a person can do, as a sentence without its full stop

    def refused(self, problem: str) -> OutputRefusedError:
        """Returns the error: the location, what was found and expected, the advice."""
        return OutputRefusedError(
            f"{self.location}: not a {self.noun}: {problem}. {self.advice}"
        )

    @contextmanager
    def parsing(
        self, describe: Callable[[Exception], str] | None = None
    ) -> Iterator[None]:
        """Turns any failure of the parser in the block into the error of `refused`.

        `describe` returns the problem; by default it is the field and what was expected.
        """
        try:
            yield
        except (OutputRefusedError, MemoryError):  # of an inner text; of this machine
            raise
        except Exception as error:
            raise self.refused((describe or _problem)(error)) from error

    def parse(self, model: type[_Model], data: bytes) -> _Model:
        """Returns the value of a model that JSON holds.

        Raises:
          OutputRefusedError: it is not JSON, or not of this model.
        """
        with self.parsing():
            found: _Model = _adapter(model).validate_json(data)
        return found


def is_parsed(parse: Callable[[], object]) -> bool:
    """Returns whether a parser takes its text, to find the part that it does not take."""
    try:
        parse()
    except Exception:
        return False
    return True


# It takes milliseconds to build one.
_adapter: Callable[[type], TypeAdapter[Any]] = cache(TypeAdapter)


def _problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        field = printable(".".join(map(str, first["loc"])))
        shown = field if len(field) <= _SHOWN else f"{field[:_SHOWN]}..."
        expected = expectation(first)
        if len(expected) > _LONGEST:
            expected = f"{expected[:_LONGEST]}..."
        return f"{shown}: {expected}" if shown else expected
    if isinstance(error, SchemaError):
        return f"features: {error}"
    return "not valid JSON in UTF-8"
