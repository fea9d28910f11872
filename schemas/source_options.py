"""Holds the base class of the options that one input format has for itself.

A format's own options are a subclass, each field with its description; the command
line, job files and their JSON Schema take them from there. Its module imports pydantic and recordmill.schemas only, because the command line
imports it to show its help. Options are part of the job: the same options and inputs
give the same bytes. Where a dataset keeps its job, options with their default value are
left out, so a format may get new options later, but never a new default for an old one.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from recordmill.schemas.declared import FrozenModel
from recordmill.schemas.options import BY_NAME, CONVERT, JOB_FILE, TEMPLATE, Option

PIPELINE_ROWS: Final = "rows"  # the source of rows that a pipeline brings, not files
LEAVE_OUT: Final = "use `extra_columns=ignore` to leave out what is new"
SOURCE_PATTERN: Final = r"^[a-z][a-z0-9_]*$"  # of a format's name


def _as_text(value: Any) -> Any:
    """Takes a list of texts, as YAML has them, for one; and a mapping for such a list."""
    if isinstance(value, dict):
        value = [f"{name}={path}" for name, path in value.items()]
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value


# What the command takes with commas, and a job file as a list, too.
AS_TEXT: Final = BeforeValidator(_as_text, json_schema_input_type=str | list[str])


class SourceOptions(FrozenModel):
    """Options of one input format; this class itself has none."""

    def undo_splits(self) -> str:
        """Returns how an input is read that is not divided into splits by itself."""
        if "split_from" in type(self).model_fields:
            return "use `split_from=none`"
        return "leave out the files of that split"


def declared_options(source: str, model: type[SourceOptions]) -> tuple[Option, ...]:
    """Declares a format's own options as those of all jobs are declared."""
    return tuple(
        _declare(source, name, field) for name, field in model.model_fields.items()
    )


def _declare(source: str, name: str, field: FieldInfo) -> Option:
    kind, choices = "text", ()
    if get_origin(field.annotation) is Literal:
        kind, choices = "choice", get_args(field.annotation)
    elif field.annotation in (bool, int):
        kind = "flag" if field.annotation is bool else "integer"
    return Option(
        name,
        kind,
        CONVERT + JOB_FILE + TEMPLATE,
        field.description or "",
        default=field.default if isinstance(field.default, str | int) else None,
        choices=choices,
        # An option that all jobs have keeps its flag; the format's gets a longer one.
        flag=f"{source}-{name}".replace("_", "-") if name in BY_NAME else "",
        group="Formats",
    )
