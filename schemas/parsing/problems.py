"""Describes what is wrong with a declared schema: which feature, found, expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.declared import (
    DeclaredFeature,
    DeclaredSchema,
    PictureRule,
)
from recordmill.schemas.text import escaped

Loc = tuple[str | int, ...]

_MAX_PROBLEMS = 20
_SHOULD = re.compile(r"^\w+ should (be )?")
_FOUND_CHARACTERS = 60
_NOT_IN_THE_FILE = ("int", "float", "[key]")  # pydantic's marks of a union or a key


def parse_declared(
    value: Any, uri: str, line_of: Callable[[Loc], int] | None = None
) -> DeclaredSchema:
    """Returns the schema that plain values declare.

    Args:
      value: what a schema file holds: {"features": {name: fields or short form}}.
      uri: the file's.
      line_of: the line of a part of it, where that is known.

    Raises:
      SchemaError: one line for each problem.
    """
    try:
        return DeclaredSchema.model_validate(value)
    except ValidationError as error:
        problems: dict[tuple[Loc, Loc], str] = {}
        for detail in error.errors():
            location, rest = _split_location(detail["loc"], value)
            if (location, rest) not in problems:
                line = f"line {line_of(location)}: " if line_of else ""
                problems[location, rest] = f"{line}{_sentence(location, rest, detail)}"
    raise SchemaError(report(uri, list(problems.values())))


def report(uri: str, problems: Sequence[str]) -> str:
    """Describes all that is wrong with a file, a line for each problem."""
    if len(problems) == 1:
        return f"{uri}: {problems[0]}"
    lines = [f"{uri}: {len(problems)} problems:", *problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"... and {len(problems) - _MAX_PROBLEMS} more")
    return "\n  ".join(lines)


def unknown_field(name: str, known: Iterable[str]) -> str:
    """Explains that there is no such field, and which one may be meant."""
    names = list(known)
    near = get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
    return f"unknown field {name!r}; {hint}"


def expectation(detail: ErrorDetails) -> str:
    """Describes what was expected and what was found."""
    found = f", found {_shown(detail['input'])}"
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
        case "string_unicode":
            shown = escaped(str(detail["input"]))
            return f"expected UTF-8, found {shown}; rename it, or choose another one"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"expected a whole number{found}"
        case "float_type" | "float_parsing":
            return f"expected a number{found}"
        case "bool_type" | "bool_parsing":
            return f"expected true or false{found}"
        case "model_type" | "dict_type" | "dataclass_type":
            return f"expected a mapping{found}"
        case "greater_than_equal":
            return f"expected {detail['ctx']['ge']} or more{found}"
        case "less_than_equal":
            return f"expected {detail['ctx']['le']} or less{found}"
        case "recursion_depth_exceeded" | "recursion_loop":
            return "expected fewer levels inside one another"
        case "string_too_short" | "too_short":
            return f"expected {detail['ctx']['min_length']} or more{found}"
        case "string_too_long" | "too_long":
            return f"expected at most {detail['ctx']['max_length']}{found}"
        case "int_parsing_size":
            return f"expected a whole number of fewer digits{found}"
        case "string_pattern_mismatch":
            return f"expected text of the form {detail['ctx']['pattern']}{found}"
        case "extra_forbidden":
            return "unknown field"
        case "json_invalid":
            return f"not valid JSON: {detail['ctx']['error']}"
    # What is left: "Input should be a finite number", "Tuple should have at least 1 item".
    message = _SHOULD.sub("", detail["msg"]).removeprefix("a valid ")
    return f"expected {message[:1].lower()}{message[1:]}{found}"


def _split_location(loc: Loc, value: Any) -> tuple[Loc, Loc]:
    """Splits `loc` into the part that is in the file and the names beyond."""
    for depth, step in enumerate(loc):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            rest = tuple(step for step in loc[depth:] if step not in _NOT_IN_THE_FILE)
            return loc[:depth], rest
    return loc, ()


def _sentence(location: Loc, rest: Loc, detail: ErrorDetails) -> str:
    steps = [*location, *rest]
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
    words.append(_problem(steps, unknown, detail))
    return ": ".join(words)


def _problem(steps: Loc | list[str | int], unknown: Any, detail: ErrorDetails) -> str:
    if unknown is not None:
        models: dict[int, type[BaseModel]] = {0: DeclaredSchema, 2: DeclaredFeature}
        return unknown_field(
            str(unknown), models.get(len(steps), PictureRule).model_fields
        )
    match detail["type"]:
        case "model_type" | "dict_type" if len(steps) == 2:
            found = _shown(detail["input"])
            return f"expected a short form like int64[2]? or its fields, found {found}"
        case "too_short":
            return "expected at least one feature, found none"
        case "string_too_short":
            return "a feature needs a name, found an empty one"
    return expectation(detail)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return (
        text
        if len(text) <= _FOUND_CHARACTERS
        else f"{text[: _FOUND_CHARACTERS - 3]}..."
    )
