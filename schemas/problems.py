"""What is wrong with a declared schema, in words: which feature, found, expected."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.declared import DeclaredFeature, DeclaredSchema, PictureRule
from schemas.errors import SchemaError

Loc = tuple[str | int, ...]

_MAX_PROBLEMS = 20
_FOUND_CHARACTERS = 60
_NOT_IN_THE_FILE = ("int", "float", "[key]")  # pydantic's marks of a union or a key


def declare(
    given: Any, uri: str, line_of: Callable[[Loc], int] | None = None
) -> DeclaredSchema:
    """The schema that plain values declare.

    Args:
      given: what a schema file holds: {"features": {name: fields or short form}}.
      uri: the file's.
      line_of: the line of a part of it, where that is known.

    Raises:
      SchemaError: one line for each problem.
    """
    try:
        return DeclaredSchema.model_validate(given)
    except ValidationError as error:
        problems: dict[tuple[Loc, Loc], str] = {}
        for detail in error.errors():
            place, rest = _place(detail["loc"], given)
            if (place, rest) not in problems:
                where = f"line {line_of(place)}: " if line_of else ""
                problems[place, rest] = f"{where}{_sentence(place, rest, detail)}"
    lines = list(problems.values())
    if len(lines) == 1:
        raise SchemaError(f"{uri}: {lines[0]}")
    more = len(lines) - _MAX_PROBLEMS
    if more > 0:
        lines[_MAX_PROBLEMS:] = [f"... and {more} more"]
    raise SchemaError("\n  ".join([f"{uri}: {len(problems)} problems:", *lines]))


def _place(loc: Loc, given: Any) -> tuple[Loc, Loc]:
    """The part of `loc` that is in the file, and the names beyond."""
    for depth, step in enumerate(loc):
        try:
            given = given[step]
        except (KeyError, IndexError, TypeError):
            rest = tuple(step for step in loc[depth:] if step not in _NOT_IN_THE_FILE)
            return loc[:depth], rest
    return loc, ()


def _sentence(place: Loc, rest: Loc, detail: ErrorDetails) -> str:
    steps = [*place, *rest]
    unknown = steps.pop() if detail["type"] == "extra_forbidden" else None
    words = []
    if steps[:1] == ["features"]:
        if len(steps) == 1:
            words.append("features")
        else:
            words.append(f"feature {steps[1]!r}")
        words += [
            f"item {step + 1}" if isinstance(step, int) else step for step in steps[2:]
        ]
    else:
        words += [str(step) for step in steps]
    words.append(_what(steps, unknown, detail))
    return ": ".join(words)


def _what(steps: Loc | list[str | int], unknown: Any, detail: ErrorDetails) -> str:
    found = f", found {_shown(detail['input'])}"
    if unknown is not None:
        models: dict[int, type[BaseModel]] = {0: DeclaredSchema, 2: DeclaredFeature}
        names = list(models.get(len(steps), PictureRule).model_fields)
        near = get_close_matches(str(unknown), names, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
        return f"unknown field {unknown!r}; {hint}"
    match detail["type"]:
        case "missing":
            return "not given"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "literal_error":
            return f"expected {detail['ctx']['expected']}{found}"
        case "tuple_type":
            return f"expected a list{found}"
        case "string_type":
            return f"expected text{found}"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"expected a whole number{found}"
        case "float_type" | "float_parsing":
            return f"expected a number{found}"
        case "model_type" | "dict_type" if len(steps) == 2:
            return f"expected a short form like int64[2]? or its fields{found}"
        case "model_type" | "dict_type":
            return f"expected a mapping{found}"
        case "too_short":
            return "expected at least one feature, found none"
        case "string_too_short":
            return "a feature needs a name, found an empty one"
    message = detail["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"expected {message[0].lower()}{message[1:]}{found}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return (
        text
        if len(text) <= _FOUND_CHARACTERS
        else f"{text[: _FOUND_CHARACTERS - 3]}..."
    )
