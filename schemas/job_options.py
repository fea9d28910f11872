"""Checks the options from a front end, and creates a job from them.

One pydantic model of all options is created from their declarations (options.py). It
validates job files and the options of `convert`, and defines their JSON Schema:

    source: images                        # or cifar, csv, or another package's format
    images: {feature_names: imagenet}     # that format's own options
    splits: {train: 0.9, test: 0.1}

All problems are collected, each with its key path: ("splits", "train") is the key train
of splits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    ValidationError,
    create_model,
)
from pydantic_core import ErrorDetails

from recordmill.schemas.declared import (
    FrozenModel,
    describe_mismatch,
    describe_unknown_field,
)
from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import (
    ABOUT,
    AUTO_VERSION,
    FIRST_VERSION,
    DatasetName,
    Description,
    JobSpec,
    RejectLimit,
    RunOptions,
    Sharding,
    Splits,
    check_version,
    load_map,
    parse_balance,
    parse_share,
    parse_split_times,
    split_function_reference,
    to_dataset_name,
)
from recordmill.schemas.options import JOB_FILE, WEIGHT, Option, Style, options_of
from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.storage_options import (
    StorageOptions,
    StorageOptionsPair,
    addresses_with_secrets,
    require_beam_options_without_secrets,
)
from recordmill.schemas.text import parse_memory, parse_size

Formats = Mapping[str, type[SourceOptions]]
Problems = dict[tuple[str | int, ...], str]

# Kinds of options whose values stay text, even if YAML would parse them otherwise.
TEXT_KINDS = (
    *("text", "file", "folder", "name", "version", "limit", "splits", "split_times"),
    *("inputs", "globs", "size", "memory", "beam", "function", "share", "prose", "url"),
    *("license", "balance"),
)
PATH_KINDS = ("file", "folder", "inputs")


def _one_or_more(texts: Any) -> Any:
    return [texts] if isinstance(texts, str) else texts


def _from_mapping(shares: Any) -> Any:
    """Converts {train: 0.9, test: 0.1} to splits; text keeps the fractions exact."""
    if not isinstance(shares, dict):
        raise ValueError(
            f"expected a mapping like {{train: 0.9, test: 0.1}}, found {shares!r}"
        )
    return [{"name": name, "fraction": share} for name, share in shares.items()]


def _auto_or_version(version: str) -> str:
    if version == AUTO_VERSION:
        return version
    try:
        return check_version(version)
    except ValueError as error:
        raise ValueError(f"{error}; or auto") from error


def _parsed_type(parse: Callable[[str], Any], expected: str, value_type: Any) -> Any:
    """Returns an annotated type whose values a function parses from text."""

    def validate(text: Any) -> Any:
        if not isinstance(text, str):
            raise ValueError(f"expected {expected}, found {text!r}")
        return parse(text)

    return Annotated[
        value_type, BeforeValidator(validate, json_schema_input_type=str | int)
    ]


def _check_validator(check: Callable[[Any], object]) -> AfterValidator:
    """Returns a validator that accepts the values that a function accepts."""

    def validate(value: Any) -> Any:
        try:
            check(value)
        except UsageError as error:
            raise ValueError(str(error).removeprefix("`map`: ")) from error
        return value

    return AfterValidator(validate)


Text = Annotated[str, Field(min_length=1)]
TextOrTexts = BeforeValidator(_one_or_more, json_schema_input_type=Text | list[Text])
Fraction = Annotated[float, Field(gt=0, le=1)] | str
FileOptions = Annotated[
    dict[str, JsonValue], _check_validator(StorageOptions.from_values)
]


def _validate_prose(text: str) -> str:
    if not text.strip():
        raise ValueError("expected text, found blanks")
    return text.strip()


def _validate_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", text, re.ASCII):
        raise ValueError(f"expected a URL like https://example.org/a, found {text!r}")
    return text


_LICENSE = re.compile(
    r"https?://[^\s/]+\S*|[(]*[\w.+-]+[)]*(?: (AND|OR|WITH) [(]*[\w.+-]+[)]*)*",
    re.ASCII,
)


def _validate_license(text: str) -> str:
    depths = [
        *accumulate((character == "(") - (character == ")") for character in text)
    ]
    is_even = "://" in text or (min(depths), depths[-1]) == (0, 0)
    if not is_even or not _LICENSE.fullmatch(text):
        raise ValueError(
            "expected an SPDX identifier like CC-BY-4.0, LicenseRef-NAME for one of your "
            f"own, or a URL, found {text!r}"
        )
    return text


class StorageSides(FrozenModel):
    """Options of the file systems of input and output, as fsspec spells them."""

    input: FileOptions = Field(default={})
    output: FileOptions = Field(default={})


# The types of option values by kind, except for choices and integers.
_TYPES_BY_KIND: dict[str, Any] = {
    "text": Text,
    "prose": Annotated[Text, AfterValidator(_validate_prose)],
    "url": Annotated[Text, AfterValidator(_validate_url)],
    "license": Annotated[Text, AfterValidator(_validate_license)],
    "file": Text,
    "folder": Text,
    "flag": bool,
    "source": Text,
    "name": DatasetName,
    "version": Annotated[str, AfterValidator(_auto_or_version)],
    "limit": _parsed_type(
        lambda text: {"text": text}, "a count like 10 or a share like 0.5%", RejectLimit
    ),
    "size": _parsed_type(parse_size, "a size like 128MiB or 100MB", int),
    "share": Annotated[
        str,
        BeforeValidator(
            lambda share: str(parse_share(str(share))), json_schema_input_type=Fraction
        ),
    ],
    "memory": Annotated[str, _check_validator(parse_memory)],
    "split_times": Annotated[Text, _check_validator(parse_split_times)],
    "balance": Annotated[Text, _check_validator(parse_balance)],
    "splits": Annotated[
        Splits,
        BeforeValidator(_from_mapping, json_schema_input_type=dict[str, Fraction]),
    ],
    "inputs": Annotated[tuple[Text, ...], Field(min_length=1), TextOrTexts],
    "globs": Annotated[tuple[Text, ...], TextOrTexts],
    "schema": str | dict[str, Any],
    "function": Annotated[Text, _check_validator(split_function_reference)],
    "storage": StorageSides,
    "beam": Annotated[
        tuple[str, ...],
        _check_validator(require_beam_options_without_secrets),
        TextOrTexts,
    ],
    "params": dict[str, bool | int | float | str | None],
}
_REQUIRED = ("source", "inputs", "output")
_EMPTY_DEFAULTS: dict[str, Any] = {"storage": {}, "globs": (), "beam": (), "params": {}}
_OPTION_NAMES = tuple(option.name for option in options_of(JOB_FILE))


def _field_name(option: str) -> str:
    return "schema_" if option == "schema" else option  # models have a method schema


def _create_field(option: Option) -> tuple[Any, Any]:
    """Returns the type and the field of an option, for `create_model`."""
    if option.value_kind == "choice":
        kind: Any = Literal[option.choices]
    elif option.value_kind == "integer":
        lowest, highest = option.bounds
        kind = Annotated[int, Field(ge=lowest, le=highest)]
    else:
        kind = _TYPES_BY_KIND[option.value_kind]
    default: Any = _EMPTY_DEFAULTS.get(option.value_kind, option.default)
    if option.name in _REQUIRED:
        default = ...
    elif default is None:
        kind = kind | None
    alias = option.name if _field_name(option.name) != option.name else None
    return kind, Field(
        default, validate_default=True, description=option.help_text, alias=alias
    )


@lru_cache(maxsize=64)  # creating a model takes 15 ms
def job_file_model(*formats: tuple[str, type[SourceOptions]]) -> type[BaseModel]:
    """Creates the model of all declared options, with a section for each format."""
    fields: dict[str, Any] = {
        _field_name(option.name): _create_field(option)
        for option in options_of(JOB_FILE)
    }
    for name, options in formats:
        description = f"options of source: {name}"
        fields[name] = (options, Field(options(), description=description))
    doc = "A recordmill job: the input, the dataset and the options of the run."
    model: type[BaseModel] = create_model(
        "JobFile", __base__=FrozenModel, __doc__=doc, **fields
    )
    return model


def _find_file_contradictions(
    given_options: Mapping[str, Any],
) -> Iterator[tuple[str, str]]:
    """Yields contradictions between options of shard files: (option, problem)."""
    container, compression, index = map(
        given_options.get, ("container", "compression", "index")
    )
    if container == "array_record":
        if compression == "gzip":
            yield (
                "compression",
                "`container=array_record` requires `compression=none`, because its "
                "readers seek to single records; leave out one of them",
            )
        if index is True:
            yield (
                "index",
                "`container=array_record` already has an index in each shard; leave out `index`",
            )
    elif index is True and compression == "gzip":
        yield (
            "index",
            "`index` requires `compression=none`, because readers cannot seek in a "
            "compressed shard; leave out one of them",
        )


def _find_split_contradictions(
    given_options: Mapping[str, Any],
) -> Iterator[tuple[str, str]]:
    """Yields contradictions between options of labels and splits: (option, problem)."""
    if "label" in given_options and "schema" in given_options:
        yield (
            "label",
            "a schema file declares the class labels itself (`classes`); leave out "
            "`label` or `schema`",
        )
    column = given_options.get("label")
    if column is not None and column == given_options.get("split_column"):
        problem = (
            f"{column} is also the column of `split_column`, which does not become a "
            "feature"
        )
        yield "label", problem + _LEAVE_OUT_ONE
    other_options = ("splits", "split_by", "split_exact", "stratify_by")
    for option, more in (("split_column", "split_by_time"), ("split_by_time", "")):
        if option in given_options and (
            other := _first_set(given_options, more, *other_options)
        ):
            problem = (
                f"sets the split of each row, so it cannot be combined with `{other}`"
            )
            yield option, problem + _LEAVE_OUT_ONE
    if exact := _first_set(given_options, "stratify_by", "split_exact"):
        if not given_options.get("splits"):
            yield exact, "requires `splits`, such as train=0.8 and test=0.2"
        elif given_options.get("split_by"):
            problem = "counts single rows, but `split_by` keeps groups of rows together"
            yield exact, problem + _LEAVE_OUT_ONE


def _first_set(given_options: Mapping[str, Any], *options: str) -> str:
    """Returns the first of these options that is set, or ""."""
    return next((name for name in options if given_options.get(name)), "")


_LEAVE_OUT_ONE = "; leave out one of them"
_MAP_LABEL_HINT = (
    ". To make a column from the function a label, declare its classes in a file "
    "(`schema`)"
)
_COLUMN_OPTIONS = (
    "label",
    "split_column",
    "split_by_time",
)  # options that name a column


class LoadedJob(NamedTuple):
    """A job from a front end, with the options of its run."""

    job: JobSpec
    options: RunOptions


def check_options(
    given_options: Mapping[str, Any], formats: Formats, problems: Problems
) -> dict[str, Any]:
    """Validates the given options, and adds the defaults of the others.

    Addresses with secrets are checked first, in every option, because a message about an
    option shows its value.

    Args:
      given_options: Values by option name, without nulls. The options of the format are a
        mapping under the name of the format.
      formats: Models of the options of formats, by format name.
      problems: Receives at most one problem for each key path.

    Returns:
      All options by name, with the options of the format under "source_options"; {} if
        there are problems.
    """
    if secrets := dict(addresses_with_secrets(given_options)):
        problems |= secrets
        return {}
    for key, problem in (
        *_find_contradictions(given_options),
        *_find_source_problems(given_options, formats),
    ):
        problems.setdefault((key,), problem)
    source = str(given_options.get("source"))
    chosen = {source: formats[source]} if source in formats else {}
    try:
        file = job_file_model(*chosen.items()).model_validate(given_options)
    except ValidationError as error:
        for detail in error.errors():
            place = _find_key_path(detail["loc"], given_options)
            # A problem inside a value that already has a problem is skipped: it may
            # follow from that problem, for example from a placeholder without a value.
            if not any(place[:depth] in problems for depth in range(1, len(place) + 1)):
                problems[place] = _describe_error(detail, chosen)
        return {}
    if problems:
        return {}
    validated_options = {
        name: getattr(file, _field_name(name)) for name in _OPTION_NAMES
    }
    return validated_options | {"source_options": getattr(file, source)}


def create_job(
    validated_options: Mapping[str, Any], style: Style, read: Callable[[str], bytes]
) -> LoadedJob:
    """Creates a job from validated options.

    Args:
      validated_options: The options that `check_options` returned; the schema may be
        parsed already.
      style: Spelling of options in messages.
      read: Function that reads the files that `schema` and `map` name.
    """
    declared, function = validated_options["schema"], validated_options["map"]
    if isinstance(declared, str):
        from recordmill.schemas.schema_file import load_schema  # imports yaml

        declared = load_schema(read(declared), declared)
    format_options = validated_options["source_options"]
    if declared and not function and getattr(format_options, "decimal", "") == "comma":
        declared = declared.with_decimal_commas()
        format_options = format_options.model_copy(
            update={"decimal": "point"}
        )  # declared per feature now
    is_auto = validated_options["version"] == AUTO_VERSION
    last_part = validated_options["output"].rstrip("/").rpartition("/")[2]
    if "://" not in validated_options["output"]:
        last_part = Path(validated_options["output"]).absolute().name
    sharding = Sharding(shard_bytes=validated_options["shard_size"])
    if validated_options["shards"] or validated_options["readers"]:
        sharding = Sharding(
            num_shards=validated_options["shards"],
            num_readers=validated_options["readers"],
        )
    job = {
        "name": validated_options["name"] or to_dataset_name(last_part),
        "version": FIRST_VERSION if is_auto else validated_options["version"],
        "sharding": sharding,
        "declared": declared,
        "source_options": format_options,
        "map": load_map(function, read) if function else None,
    }
    storage = validated_options["storage"]
    options = {
        "auto_version": is_auto,
        "storage": StorageOptionsPair(
            StorageOptions.from_values(storage.input),
            StorageOptions.from_values(storage.output),
        ),
        "beam_args": validated_options["beam"],
        "description": Description(
            {
                name: validated_options[name]
                for name in ABOUT
                if validated_options[name]
            },
            validated_options["card"],
        ),
        "style": style,
    }
    given_options = {
        name: option_value
        for name, option_value in validated_options.items()
        if option_value is not None
    }
    return LoadedJob(
        JobSpec.model_validate(_select(JobSpec.model_fields, given_options) | job),
        RunOptions(**_select(RunOptions.__dataclass_fields__, given_options) | options),
    )


def _select(names: Iterable[str], options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _find_contradictions(given_options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields contradictions between options: (option, problem)."""
    rules = [key for key in ("shards", "shard_size", "readers") if key in given_options]
    if len(rules) > 1:
        yield rules[-1], "`shards`, `shard_size` and `readers` cannot be combined"
    yield from _find_file_contradictions(given_options)
    yield from _find_split_contradictions(given_options)
    if "gzip_level" in given_options and given_options.get("compression") != "gzip":
        yield "gzip_level", "requires `compression=gzip`"
    for option in _COLUMN_OPTIONS:
        if option in given_options and "map" in given_options:
            problem = f"names a column of the input, but `map` creates the columns{_LEAVE_OUT_ONE}"
            yield option, problem + (_MAP_LABEL_HINT if option == "label" else "")
    is_auto = given_options.get("version") == AUTO_VERSION
    appends, overwrites = (
        given_options.get(name) is True for name in ("append", "overwrite")
    )
    if "keep" in given_options and not is_auto:
        yield "keep", "requires `version=auto`"
    if overwrites and is_auto:
        yield "overwrite", f"`version=auto` never overwrites{_LEAVE_OUT_ONE}"
    if appends and is_auto:
        problem = "adds to a dataset, but `version=auto` publishes a new one"
        yield "append", problem + _LEAVE_OUT_ONE
    if appends and overwrites:
        yield (
            "append",
            f"adds to the dataset that `overwrite` would replace{_LEAVE_OUT_ONE}",
        )
    if appends and (sampled := _first_set(given_options, "limit", "sample", "balance")):
        problem = (
            "selects from the rows of the whole dataset, so nothing can be appended"
        )
        yield sampled, problem + _LEAVE_OUT_ONE
    if "balance" in given_options and "limit" in given_options:
        yield "balance", f"the first rows of `limit` are not balanced{_LEAVE_OUT_ONE}"
    if (
        str(given_options.get("balance")).endswith("=weights")
        and "schema" in given_options
    ):
        problem = (
            f"{WEIGHT} is added to the features of the input and cannot be in `schema`"
        )
        yield "balance", problem + _LEAVE_OUT_ONE


def _find_source_problems(
    given_options: Mapping[str, Any], formats: Formats
) -> Iterator[tuple[str, str]]:
    """Yields problems with the source and with options of formats: (option, problem)."""
    source = given_options.get("source")
    if isinstance(source, str) and source not in formats:
        *other_formats, last = map(repr, formats)
        either = f"{', '.join(other_formats)} or {last}" if other_formats else last
        yield "source", f"expected {either}, found {source!r}"
    for key in given_options:
        if key in formats:
            if key != source:
                yield key, f"requires source: {key}"
        elif key not in _OPTION_NAMES and (owner := find_owner(key, formats)):
            yield key, f"is an option of {owner}: write {owner}: {{{key}: ...}}"


def find_owner(option: str, formats: Formats) -> str | None:
    """Returns the name of the format that has this option, or None."""
    for name in formats:
        with suppress(UsageError):  # a format of another package that cannot be loaded
            if option in formats[name].model_fields:
                return name
    return None


def _find_key_path(loc: tuple[str | int, ...], section: Any) -> tuple[str | int, ...]:
    """Returns the key path of an error in the options, without pydantic's elements."""
    if loc[:1] == ("splits",) and len(loc) > 1 and isinstance(loc[1], int):
        return ("splits", list(section["splits"])[loc[1]])
    place: list[str | int] = []
    for step in loc:
        try:
            section = section[step]
        except (KeyError, IndexError, TypeError):
            if place:
                continue
            section = None  # a missing field
        place.append(step)
    return tuple(place)


def _describe_error(detail: ErrorDetails, chosen: Formats) -> str:
    if detail["type"] == "extra_forbidden":
        known_names: Iterable[str] = _OPTION_NAMES
        if len(detail["loc"]) > 1:
            known_names = chosen.get(str(detail["loc"][0]), StorageSides).model_fields
        return describe_unknown_field(str(detail["loc"][-1]), known_names)
    if detail["type"] == "string_too_short":
        return "expected text, found none"
    return describe_mismatch(detail)
