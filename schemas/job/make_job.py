"""Checks the options that a front end was given, and makes a job of them.

Options are plain values by their names, as a job file holds them. All that is wrong is
collected, each problem with its place: ("splits", "train") is the key train of splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.job.job_file import (
    JobFile,
    StorageSides,
    field_name,
    job_file_model,
)
from recordmill.schemas.job.job_spec import (
    AUTO_VERSION,
    FIRST_VERSION,
    JobSpec,
    Sharding,
    file_contradictions,
    identifier_from,
)
from recordmill.schemas.job.map_function import MapFunction
from recordmill.schemas.job.options import offered_by
from recordmill.schemas.job.run_options import ReportOptions, RunOptions
from recordmill.schemas.job.source_options import SourceOptions
from recordmill.schemas.job.spell_options import Style
from recordmill.schemas.job.split_rules import split_contradictions
from recordmill.schemas.job.storage_options import BothSides, StorageOptions
from recordmill.schemas.parsing.problems import expectation, unknown_field

Formats = Mapping[str, type[SourceOptions]]
Problems = dict[tuple[str | int, ...], str]

_NAMES = tuple(option.name for option in offered_by("job_file"))
_WITH_MAP = (
    ". A column that the function makes becomes a label by a file (`schema`) that "
    "declares its classes"
)
_ROLES = ("label", "split_column", "split_by_time")  # of columns of a table
_SHARD_RULES = ("shards", "shard_size", "readers")


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job as a front end was given it.

    Attributes:
      job: what is converted and how.
      options: how it is run.
      report: where it reports to.
    """

    job: JobSpec
    options: RunOptions
    report: ReportOptions


def check_options(
    given: Mapping[str, Any], formats: Formats, problems: Problems
) -> dict[str, Any]:
    """Validates the options that were given, and adds the defaults of the others.

    Args:
      given: values by option name, and a mapping of its own options by the name of the
        format; null ones are left out.
      formats: the options of each format that `source` may name.
      problems: gets what is wrong; a place is reported once.

    Returns:
      All options by name, and the format's own as "source_options"; nothing if there
      are problems.
    """
    for key, what in (*_contradictions(given), *_wrong_sources(given, formats)):
        problems.setdefault((key,), what)
    source = str(given.get("source"))
    chosen = {source: formats[source]} if source in formats else {}
    try:
        file = job_file_model(chosen).model_validate(given)
    except ValidationError as error:
        for detail in error.errors():
            place = _place_of(detail["loc"], given)
            # Of one problem all others may follow, as of a placeholder without a value.
            if not any(place[:depth] in problems for depth in range(1, len(place) + 1)):
                problems[place] = _sentence(detail, chosen)
        return {}
    if problems:
        return {}
    values = {name: getattr(file, field_name(name)) for name in _NAMES}
    return values | {"source_options": getattr(file, source)}


def make_job(
    values: Mapping[str, Any],
    declared: DeclaredSchema | None,
    style: Style,
    function: MapFunction | None = None,
) -> LoadedJob:
    """Makes a job of options that `check_options` returned.

    Args:
      values: all options by name.
      declared: the schema that `schema` names or holds.
      style: how messages spell options.
      function: the one that `map` names.
    """
    is_auto = values["version"] == AUTO_VERSION
    last_part = values["output"].rstrip("/").rpartition("/")[2]
    if "://" not in values["output"]:
        last_part = Path(values["output"]).absolute().name
    job = {
        "name": values["name"] or identifier_from(last_part),
        "version": FIRST_VERSION if is_auto else values["version"],
        "sharding": _sharding(values),
        "declared": declared,
        "map": function,
    }
    storage = values["storage"]
    options = {
        "auto_version": is_auto,
        "storage": BothSides(
            StorageOptions.of(storage.input), StorageOptions.of(storage.output)
        ),
        "beam_args": values["beam"],
    }
    return LoadedJob(
        JobSpec.model_validate(_of(JobSpec.model_fields, values) | job),
        RunOptions(**_of(_field_names(RunOptions), values) | options),
        ReportOptions(**_of(_field_names(ReportOptions), values), style=style),
    )


def _of(names: Iterable[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of these names; what is not given keeps its default."""
    return {name: values[name] for name in names if values.get(name) is not None}


def _field_names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


def _sharding(values: Mapping[str, Any]) -> Sharding:
    if values["shards"]:
        return Sharding(num_shards=values["shards"])
    if values["readers"]:
        return Sharding(num_readers=values["readers"])
    return Sharding(shard_bytes=values["shard_size"])


def _contradictions(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with options together, one by one valid or not."""
    rules = [key for key in _SHARD_RULES if key in given]
    if len(rules) > 1:
        marked = [f"`{rule}`" for rule in _SHARD_RULES]
        yield rules[-1], f"{', '.join(marked[:-1])} and {marked[-1]} exclude each other"
    yield from file_contradictions(
        *map(given.get, ("container", "compression", "index"))
    )
    yield from split_contradictions(given)
    if "gzip_level" in given and given.get("compression") != "gzip":
        yield "gzip_level", "requires `compression=gzip`"
    for option in _ROLES:
        if option in given and "map" in given:
            yield (
                option,
                "names a column of the input, but `map` makes the columns; leave out one "
                f"of them{_WITH_MAP if option == 'label' else ''}",
            )
    is_auto = given.get("version") == AUTO_VERSION
    if "keep" in given and not is_auto:
        yield "keep", "requires `version=auto`"
    if given.get("overwrite") is True and is_auto:
        yield "overwrite", "`version=auto` never overwrites; leave out one of them"
    if given.get("append") is True:
        if is_auto:
            yield (
                "append",
                "adds to one dataset, but `version=auto` publishes another one; leave "
                "out one of them",
            )
        if given.get("overwrite") is True:
            yield (
                "append",
                "adds to the dataset that `overwrite` would replace; leave out one of "
                "them",
            )


def _wrong_sources(
    given: Mapping[str, Any], formats: Formats
) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the source and with options that formats have."""
    source = given.get("source")
    if isinstance(source, str) and source not in formats:
        yield "source", f"expected {_either(formats)}, found {source!r}"
    for key in given:
        if key in formats:
            if key != source:
                yield key, f"requires source: {key}"
        elif key not in _NAMES and (owner := _owner(key, formats)):
            yield key, f"is an option of {owner}: write {owner}: {{{key}: ...}}"


def _owner(option: str, formats: Formats) -> str | None:
    """Returns the format that has this option."""
    for name in formats:
        with suppress(UsageError):  # a format of another package that cannot be loaded
            if option in formats[name].model_fields:
                return name
    return None


def _either(names: Iterable[str]) -> str:
    """Returns 'a', 'b' or 'c'."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def _place_of(loc: tuple[str | int, ...], given: Any) -> tuple[str | int, ...]:
    """Returns where in the options an error is, without pydantic's own marks."""
    if loc[:1] == ("splits",) and len(loc) > 1 and isinstance(loc[1], int):
        return ("splits", list(given["splits"])[loc[1]])
    place: list[str | int] = []
    for step in loc:
        try:
            given = given[step]
        except (KeyError, IndexError, TypeError):
            if place:
                continue
            given = None  # a field that is missing
        place.append(step)
    return tuple(place)


def _sentence(detail: ErrorDetails, chosen: Formats) -> str:
    if detail["type"] == "extra_forbidden":
        model: type[BaseModel] = JobFile
        if len(detail["loc"]) > 1:
            model = chosen.get(str(detail["loc"][0]), StorageSides)
        known = [field.alias or name for name, field in model.model_fields.items()]
        return unknown_field(str(detail["loc"][-1]), known)
    if detail["type"] == "string_too_short":
        return "expected text, found none"
    return expectation(detail)
