"""Defines JobFile, what a job file can hold; it is made from the declared options.

    source: images                        # or cifar, csv, or another package's format
    images: {feature_names: imagenet}     # that format's own options
    inputs: raw/{{ date }}                # one, or a list
    output: sets/pets
    version: auto                         # or 1.0.0
    keep: 3
    splits: {train: 0.9, test: 0.1}
    split_by: label
    shard_size: 128MiB                    # or shards: 8, or readers: 4
    max_rejects: 0.5%
    beam: [--runner=FlinkRunner, --flink_master=cluster:8081]

The command `convert` makes the same of its options, so both are checked by one model.
Paths are relative to the file. load_job.py reads it; job_file.schema.json, shipped
beside this module, is for editors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    create_model,
)

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job.job_spec import (
    AUTO_VERSION,
    DatasetName,
    RejectLimit,
    Splits,
    check_version,
)
from recordmill.schemas.job.map_function import split_name
from recordmill.schemas.job.option import Kind, Option
from recordmill.schemas.job.options import offered_by
from recordmill.schemas.job.source_options import SourceOptions
from recordmill.schemas.job.split_times import parse_split_times
from recordmill.schemas.job.storage_options import (
    StorageOptions,
    require_secretless_arguments,
)
from recordmill.schemas.sizes import parse_memory, parse_size

REQUIRED = ("source", "inputs", "output")
# Kinds of options whose values are text, whatever YAML makes of them.
TEXT_KINDS: tuple[Kind, ...] = (
    *("text", "file", "folder", "name", "version", "limit"),
    *("splits", "split_times", "inputs", "globs", "size", "memory", "beam", "function"),
)
PATH_KINDS: tuple[Kind, ...] = ("file", "folder", "inputs")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _one_or_more(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _from_mapping(given: Any) -> Any:
    """Turns {train: 0.9, test: 0.1} into splits; text keeps the fractions exact."""
    if not isinstance(given, dict):
        raise ValueError(
            f"expected a mapping like {{train: 0.9, test: 0.1}}, found {given!r}"
        )
    return [{"name": name, "fraction": share} for name, share in given.items()]


def _limit(given: Any) -> Any:
    if not isinstance(given, str):
        raise ValueError(
            f"expected a count like 10 or a share like 0.5%, found {given!r}"
        )
    return {"text": given}


def _split_times(given: str) -> str:
    parse_split_times(given)
    return given


def _size(given: Any) -> Any:
    if not isinstance(given, str):
        raise ValueError(f"expected a size like 128MiB or 100MB, found {given!r}")
    return parse_size(given)


def _memory(text: str) -> str:
    parse_memory(text)
    return text


def _auto_or_version(version: str) -> str:
    if version == AUTO_VERSION:
        return version
    try:
        return check_version(version)
    except ValueError as error:
        raise ValueError(f"{error}; or auto") from error


def _no_secrets(options: dict[str, Any]) -> dict[str, Any]:
    try:
        return StorageOptions.of(options).to_dict()
    except UsageError as error:
        raise ValueError(str(error)) from error


def _no_secret_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    try:
        require_secretless_arguments(arguments)
    except UsageError as error:
        raise ValueError(str(error)) from error
    return arguments


def _function(given: str) -> str:
    try:
        split_name(given)
    except UsageError as error:
        raise ValueError(str(error).removeprefix("`map`: ")) from error
    return given


Text = Annotated[str, Field(min_length=1)]
TextOrTexts = BeforeValidator(_one_or_more, json_schema_input_type=Text | list[Text])
Fraction = Annotated[float, Field(gt=0, le=1)] | str
FileOptions = Annotated[dict[str, JsonValue], AfterValidator(_no_secrets)]


class StorageSides(_Frozen):
    """Options of the file systems of input and output, as fsspec spells them."""

    input: FileOptions = {}
    output: FileOptions = {}


_TYPES: dict[Kind, Any] = {
    "text": Text,
    "file": Text,
    "folder": Text,
    "flag": bool,
    "source": Text,
    "name": DatasetName,
    "version": Annotated[str, AfterValidator(_auto_or_version)],
    "limit": Annotated[
        RejectLimit, BeforeValidator(_limit, json_schema_input_type=str | int)
    ],
    "size": Annotated[int, BeforeValidator(_size, json_schema_input_type=str | int)],
    "memory": Annotated[str, AfterValidator(_memory)],
    "split_times": Annotated[Text, AfterValidator(_split_times)],
    "splits": Annotated[
        Splits,
        BeforeValidator(_from_mapping, json_schema_input_type=dict[str, Fraction]),
    ],
    "inputs": Annotated[tuple[Text, ...], Field(min_length=1), TextOrTexts],
    "globs": Annotated[tuple[Text, ...], TextOrTexts],
    "schema": str | dict[str, Any],
    "function": Annotated[Text, AfterValidator(_function)],
    "storage": StorageSides,
    "beam": Annotated[
        tuple[str, ...], AfterValidator(_no_secret_arguments), TextOrTexts
    ],
    "params": dict[str, bool | int | float | str | None],
}
_EMPTY: dict[Kind, Any] = {"storage": {}, "globs": (), "beam": (), "params": {}}


def field_name(option: str) -> str:
    """Returns an option's name in the model: `schema` is a method of all models."""
    return "schema_" if option == "schema" else option


def _type_of(option: Option) -> Any:
    if option.kind == "choice":
        return Literal[option.choices]
    if option.kind == "integer":
        return Annotated[int, Field(ge=option.minimum, le=option.maximum)]
    return _TYPES[option.kind]


def _field_of(option: Option) -> tuple[Any, Any]:
    """Returns the type and the field of an option, for `create_model`."""
    kind = _type_of(option)
    default: Any = option.default
    if option.name in REQUIRED:
        default = ...
    elif option.kind in _EMPTY:
        default = _EMPTY[option.kind]
    elif default is None:
        kind = kind | None
    field = Field(
        default,
        validate_default=True,
        description=option.help,
        alias=option.name if field_name(option.name) != option.name else None,
    )
    return kind, field


_FIELDS: dict[str, Any] = {
    field_name(option.name): _field_of(option) for option in offered_by("job_file")
}
JobFile: type[BaseModel] = create_model(
    "JobFile",
    __base__=_Frozen,
    __doc__="A job: what is converted, where to, and how it is run.",
    **_FIELDS,
)


def job_file_model(formats: Mapping[str, type[SourceOptions]]) -> type[BaseModel]:
    """Returns JobFile with a section for the own options of each of these formats.

    Args:
      formats: each format's options, by its name, which is the section's.
    """
    sections: dict[str, Any] = {
        name: (options, Field(options(), description=f"options of source: {name}"))
        for name, options in formats.items()
    }
    model: type[BaseModel] = create_model(
        "JobFile", __base__=JobFile, __doc__=JobFile.__doc__, **sections
    )
    return model
