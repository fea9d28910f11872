"""Parses text from a dataset's folder; any failure becomes one error with a location.

A dataset may come from anybody, so the text of its files is validated before use: a model
defines the fields and the strings that may become file names. The exceptions depend on
the parser and the text (a number of 5,000 digits, 100,000 levels of lists, half a
surrogate pair), so no caller has to list them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from recordmill.schemas.declared import describe_mismatch
from recordmill.schemas.errors import OutputRefusedError, SchemaError
from recordmill.schemas.text import escape_unprintable

_MAX_FIELD_CHARACTERS = 100  # maximum length of a field's name in a message
# maximum length of the expected and actual values in a message
_MAX_EXPECTED_CHARACTERS = 400
_Model = TypeVar("_Model")


class ForeignModel(BaseModel):
    """A JSON object in a file of a dataset; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True, slots=True)
class ForeignText:
    """A text of a dataset's folder, with its description for error messages."""

    location: str  # URI of the file, and the line if it has several
    noun: str  # like "recordmill manifest"
    advice: str  # how to fix it, as a sentence without its full stop

    def to_error(self, problem: str) -> OutputRefusedError:
        """Returns the error, with the location, the problem and the advice."""
        return OutputRefusedError(
            f"{self.location}: not a {self.noun}: {problem}. {self.advice}"
        )

    @contextmanager
    def parsing(
        self, describe: Callable[[Exception], str] | None = None
    ) -> Iterator[None]:
        """Converts any failure of the parser in the block to the error of `refused`.

        `describe` returns the problem; by default, the field and the expected value.
        """
        try:
            yield
        except (OutputRefusedError, MemoryError):  # not failures of the parser
            raise
        except Exception as error:
            raise self.to_error((describe or _describe_problem)(error)) from error

    def parse(self, model: type[_Model], content: bytes) -> _Model:
        """Parses JSON into an instance of a model.

        Raises:
          OutputRefusedError: the text is not JSON, or does not match the model.
        """
        with self.parsing():
            instance: _Model = _type_adapter(model).validate_json(content)
        return instance


def is_parsable(parse: Callable[[], object]) -> bool:
    """Returns whether a parser accepts its text; used to find the part that fails."""
    try:
        parse()
    except Exception:
        return False
    return True


# Cached, because building an adapter takes milliseconds.
_type_adapter: Callable[[type], TypeAdapter[Any]] = cache(TypeAdapter)


def _describe_problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        field = escape_unprintable(".".join(map(str, first["loc"])))
        shown_field = (
            field
            if len(field) <= _MAX_FIELD_CHARACTERS
            else f"{field[:_MAX_FIELD_CHARACTERS]}..."
        )
        expected = describe_mismatch(first)
        if len(expected) > _MAX_EXPECTED_CHARACTERS:
            expected = f"{expected[:_MAX_EXPECTED_CHARACTERS]}..."
        return f"{shown_field}: {expected}" if shown_field else expected
    if isinstance(error, SchemaError):
        return f"features: {error}"
    return "not valid JSON in UTF-8"
