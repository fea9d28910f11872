"""Defines the base class for the options of one input format.

Each format declares its options as a subclass, with a description for each field. The
command line, job files and their JSON Schema are created from it. The module of such a
subclass imports only pydantic and recordmill.schemas, because the command line imports it
to show its help. Options are part of the job: the same options and inputs produce the
same bytes. A dataset stores its job without options that have their default value. So a
format can get new options, but the default of an existing option must never change.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from recordmill.schemas.declared import FrozenModel
from recordmill.schemas.options import BY_NAME, CONVERT, JOB_FILE, TEMPLATE, Option

PIPELINE_ROWS: Final = "rows"  # the source of rows that a pipeline brings, not files
IGNORE_COLUMNS_HINT: Final = "use `extra_columns=ignore` to ignore new columns"
SOURCE_PATTERN: Final = r"^[a-z][a-z0-9_]*$"  # pattern of a format's name


def _join_texts(texts: Any) -> Any:
    """Joins a list of texts, or the pairs of a mapping, from YAML with commas."""
    if isinstance(texts, dict):
        texts = [f"{name}={path}" for name, path in texts.items()]
    if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
        return ",".join(texts)
    return texts


# A text with commas on the command line, which can also be a list in a job file.
JOIN_TEXTS: Final = BeforeValidator(_join_texts, json_schema_input_type=str | list[str])


class SourceOptions(FrozenModel):
    """Options of one input format; the base class has no options."""

    def undo_splits_hint(self) -> str:
        """Returns the advice for input whose own splits are not wanted."""
        if "split_from" in type(self).model_fields:
            return "use `split_from=none`"
        return "leave out the files of that split"


def declare_options(source: str, model: type[SourceOptions]) -> tuple[Option, ...]:
    """Converts the fields of a format's options to declarations (options.py)."""
    return tuple(
        _declare_option(source, name, field)
        for name, field in model.model_fields.items()
    )


def _declare_option(source: str, name: str, field: FieldInfo) -> Option:
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
        # If all jobs have an option of this name, the format's option gets a longer flag.
        flag=f"{source}-{name}".replace("_", "-") if name in BY_NAME else "",
        group="Formats",
    )
