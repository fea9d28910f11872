"""Reading a job file: fill its placeholders in, validate it, make its paths absolute.

All that is wrong is reported at once, each with its line. Fields that are text take
what is written, whatever YAML makes of it: `name: on`, `version: 1.0` and a folder
called 2026 are text; so is 0.10, which as a split's share has to be exact.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.job.job_file import JobFile, StorageSides, job_file_model
from recordmill.schemas.job.job_spec import AUTO_VERSION, JobSpec, RunOptions
from recordmill.schemas.job.source_options import SourceOptions
from recordmill.schemas.job.template import PARAMETER, Template, built_in
from recordmill.schemas.parsing.problems import (
    expectation,
    parse_declared,
    report,
    unknown_field,
)
from recordmill.schemas.parsing.schema_file import load_schema, texts_as_written
from recordmill.schemas.parsing.yaml_text import KeyPath, YamlDocument

_TEXT_KEYS = frozenset(
    {"name", "version", "inputs", "output", "expect_schema", "splits", "split_by"}
    | {"shard_size", "max_rejects", "scratch", "beam", "metrics_file"}
)
_PATH_KEYS = ("output", "expect_schema", "scratch", "metrics_file")
_FIELDS = frozenset(field.alias or name for name, field in JobFile.model_fields.items())
_SHARD_RULES = ("shards", "shard_size", "readers")

_Problems = dict[tuple[str | int, ...], str]


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job file that was read.

    Attributes:
      file: what it says, with paths as they are to be used.
      job: what is converted and how.
      options: how it is run.
    """

    file: JobFile
    job: JobSpec
    options: RunOptions


def load_job(
    data: bytes,
    uri: str,
    settings: Mapping[str, str],
    today: date,
    read: Callable[[str], bytes],
    formats: Mapping[str, type[SourceOptions]],
) -> LoadedJob:
    """Returns the job in a file.

    Args:
      data: the file's bytes.
      uri: where it lies; relative paths begin there.
      settings: parameters given with --set.
      today: the date for {{ date }} (UTC).
      read: reads the schema file that the job names.
      formats: the options of each format that `source` may name; only those of the
        format that is named are looked up, unless the file is wrong.

    Raises:
      UsageError: all that is wrong with it, a line for each.
      SchemaError: the schema that it declares is wrong.
    """
    try:
        document = YamlDocument(data, uri)
    except SchemaError as error:
        raise UsageError(f"{error}{_quote_hint(str(error), data)}") from error
    if not isinstance(document.value, dict):
        raise UsageError(
            f"{uri}: expected a mapping like\n"
            "  source: csv\n  inputs: data/*.csv\n  output: out/data"
        )
    problems: _Problems = {}
    given = _filled(document, settings, today, problems)
    file = _validated(given, formats, problems)
    if problems or file is None:
        raise UsageError(_report(uri, document, problems))
    file = _with_paths(file, posixpath.dirname(uri))
    declared = _declared(file, uri, document, read)
    return LoadedJob(file, file.to_job(declared), file.to_options())


def _filled(
    document: YamlDocument,
    settings: Mapping[str, str],
    today: date,
    problems: _Problems,
) -> dict[str, Any]:
    """The fields that are given, without null ones, with all placeholders filled in."""

    def note(place: KeyPath, what: str) -> None:
        problems.setdefault(tuple(place), what)

    texts = document.as_written(())
    defaults = texts.get("params") or {}
    if not isinstance(defaults, dict):
        note(("params",), f"expected a mapping of parameters, found {defaults!r}")
        defaults = {}
    for name, text in defaults.items():
        if not PARAMETER.fullmatch(name):
            note(("params", name), f"a parameter is named like date, found {name!r}")
        if isinstance(text, dict | list):
            note(("params", name), "a parameter is one value, no list and no mapping")
        elif text is not None and "{{" in text:
            note(("params", name), "defaults hold no placeholders")
    plain = {name: text for name, text in defaults.items() if isinstance(text, str)}
    template = Template(
        {**built_in(today), **plain, **settings}, frozenset(defaults.keys())
    )
    given = {}
    for key, value in document.value.items():
        if value is None or key == "params":
            continue
        as_text = key in _TEXT_KEYS or (key == "schema" and not isinstance(value, dict))
        if as_text:
            value = texts[key]
        elif key == "schema":
            value = texts_as_written(value, texts[key])
        given[key] = template.fill(value, (key,), note, as_text=as_text)
    for name in settings.keys() - template.used:
        near = get_close_matches(name, sorted(template.used), 1)
        hint = f"did you mean {near[0]}?" if near else "is it {{ " + name + " }}?"
        note(("--set", name), f"nothing in the file uses it; {hint}")
    return given


def _validated(
    given: dict[str, Any],
    formats: Mapping[str, type[SourceOptions]],
    problems: _Problems,
) -> JobFile | None:
    """Returns the validated fields; notes what is wrong, and returns None then."""
    for key, what in _contradictions(given):
        problems.setdefault((key,), what)
    for key, what in _wrong_sources(given, formats):
        problems.setdefault((key,), what)
    source = str(given.get("source"))
    chosen = {source: formats[source]} if source in formats else {}
    try:
        return job_file_model(chosen).model_validate(given)
    except ValidationError as error:
        for detail in error.errors():
            place = _place_of(detail["loc"], given)
            # A placeholder without a value is told already.
            if not any(place[:depth] in problems for depth in range(1, len(place) + 1)):
                problems[place] = _sentence(detail, chosen)
    return None


def _contradictions(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with fields together, one by one valid or not."""
    rules = [key for key in _SHARD_RULES if key in given]
    for key in rules[1:]:
        yield key, f"give one of {rules[0]} and {key}, not both"
    auto = given.get("version") == AUTO_VERSION
    if "keep" in given and not auto:
        yield "keep", "is for version: auto"
    if given.get("overwrite") is True and auto:
        yield "overwrite", "version: auto never overwrites; leave it out"
    if given.get("append") is True:
        if auto:
            yield "append", "adds to one dataset; version: auto publishes another one"
        if given.get("overwrite") is True:
            yield "append", "adds to the dataset that overwrite would replace"


def _wrong_sources(
    given: dict[str, Any], formats: Mapping[str, type[SourceOptions]]
) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the source and with options that formats have."""
    source = given.get("source")
    if isinstance(source, str) and source not in formats:
        yield "source", f"expected {_either(formats)}, found {source!r}"
    for key in given:
        if key in formats:
            if key != source:
                yield key, f"is for source: {key}"
        elif key not in _FIELDS and (owner := _owner(key, formats)):
            yield key, f"is an option of {owner}: write {owner}: {{{key}: ...}}"


def _owner(option: str, formats: Mapping[str, type[SourceOptions]]) -> str | None:
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
    """Where in the file an error stands; pydantic's own marks are left out."""
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


def _sentence(detail: ErrorDetails, chosen: Mapping[str, type[SourceOptions]]) -> str:
    if detail["type"] == "extra_forbidden":
        model: type[BaseModel] = JobFile
        if len(detail["loc"]) > 1:
            model = chosen.get(str(detail["loc"][0]), StorageSides)
        known = [field.alias or name for name, field in model.model_fields.items()]
        return unknown_field(str(detail["loc"][-1]), known)
    if detail["type"] == "string_too_short":
        return "expected text, found none"
    return expectation(detail)


def _report(uri: str, document: YamlDocument, problems: _Problems) -> str:
    def where(place: KeyPath) -> tuple[int, str]:
        if place[:1] == ("--set",):
            return 0, f"--set {place[1]}"
        steps = [f"item {s + 1}" if isinstance(s, int) else s for s in place]
        if place[0] not in document.value:
            return 0, ": ".join(steps)
        line = document.line(place)
        return line, ": ".join([f"line {line}", *steps])

    told = sorted((*where(place), what) for place, what in problems.items())
    return report(uri, [f"{label}: {what}" for _, label, what in told])


def _quote_hint(problem: str, data: bytes) -> str:
    line = re.search(r": line (\d+)", problem)
    lines = data.decode(errors="replace").splitlines()
    if line is None or "{{" not in "".join(lines[int(line[1]) - 1 : int(line[1])]):
        return ""
    return '; a value that begins with {{ needs quotes: "{{ date }}"'


def _with_paths(file: JobFile, base: str) -> JobFile:
    """The same with paths that hold wherever the command is run."""
    update: dict[str, Any] = {
        "inputs": tuple(absolute(path, base) for path in file.inputs)
    }
    for key in _PATH_KEYS:
        if path := getattr(file, key):
            update[key] = absolute(path, base)
    if isinstance(file.schema_, str):
        update["schema_"] = absolute(file.schema_, base)
    return file.model_copy(update=update)


def absolute(path: str, base: str) -> str:
    """A path of a job file as seen from the folder that the file lies in.

    >>> absolute("../raw/*.csv", "s3://bucket/jobs"), absolute("/raw", "jobs")
    ('s3://bucket/raw/*.csv', '/raw')
    """
    if "://" in path:
        return path
    if "://" in base:
        protocol, _, folder = base.partition("://")
        return f"{protocol}://{posixpath.normpath(posixpath.join(folder, path))}"
    joined = Path(base, Path(path).expanduser()).absolute()
    return posixpath.normpath(joined.as_posix())


def _declared(
    file: JobFile, uri: str, document: YamlDocument, read: Callable[[str], bytes]
) -> DeclaredSchema | None:
    if isinstance(file.schema_, str):
        return load_schema(read(file.schema_), file.schema_)
    if file.schema_ is None:
        return None
    return parse_declared(
        file.schema_, f"{uri}: schema", lambda loc: document.line(("schema", *loc))
    )
