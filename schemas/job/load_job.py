"""Reads a job file: fills its placeholders in, checks it, makes its paths absolute.

All that is wrong is reported at once, each with its line. Fields that are text take
what is written, whatever YAML makes of it: `name: on`, `version: 1.0` and a folder
called 2026 are text; so is 0.10, which as a split's share has to be exact.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.job.job_file import PATH_KINDS, TEXT_KINDS
from recordmill.schemas.job.make_job import (
    Formats,
    LoadedJob,
    Problems,
    check_options,
    make_job,
)
from recordmill.schemas.job.map_function import is_file, load_map, split_name
from recordmill.schemas.job.options import offered_by
from recordmill.schemas.job.template import PARAMETER, Template, built_in
from recordmill.schemas.parsing.problems import parse_declared, report
from recordmill.schemas.parsing.schema_file import load_schema, texts_as_written
from recordmill.schemas.parsing.yaml_text import KeyPath, YamlDocument

_KINDS = {option.name: option.kind for option in offered_by("job_file")}


def load_job(
    data: bytes,
    uri: str,
    settings: Mapping[str, str],
    today: date,
    read: Callable[[str], bytes],
    formats: Formats,
) -> LoadedJob:
    """Returns the job in a file.

    Args:
      data: the file's bytes.
      uri: where it lies; relative paths begin there.
      settings: parameters that the command was given.
      today: the date for {{ date }} (UTC).
      read: reads the files that the job names: of the schema, of `map`.
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
    problems: Problems = {}
    given = _filled(document, settings, today, problems)
    values = check_options(given, formats, problems)
    if problems:
        raise UsageError(_report(uri, document, problems))
    values = _with_paths(values, posixpath.dirname(uri))
    declared = _declared(values["schema"], uri, document, read)
    function = load_map(values["map"], read) if values["map"] else None
    return make_job(values, declared, "job_file", function)


def _filled(
    document: YamlDocument,
    settings: Mapping[str, str],
    today: date,
    problems: Problems,
) -> dict[str, Any]:
    """Returns the fields that are not null, with all placeholders filled in."""

    def note(place: KeyPath, what: str) -> None:
        problems.setdefault(tuple(place), what)

    texts = document.as_written(())
    defaults = texts.get("params") or {}
    if not isinstance(defaults, dict):
        note(("params",), f"expected a mapping of parameters, found {defaults!r}")
        defaults = {}
    for name, text in defaults.items():
        if not PARAMETER.fullmatch(name):
            note(("params", name), f"expected a name like date, found {name!r}")
        if isinstance(text, dict | list):
            note(("params", name), "expected one value, found a list or a mapping")
        elif text is not None and "{{" in text:
            note(("params", name), "defaults cannot hold placeholders")
    plain = {name: text for name, text in defaults.items() if isinstance(text, str)}
    template = Template(
        {**built_in(today), **plain, **settings}, frozenset(defaults.keys())
    )
    given = {}
    for key, value in document.value.items():
        if value is None or key == "params":
            continue
        kind = _KINDS.get(key)
        as_text = kind in TEXT_KINDS or (
            kind == "schema" and not isinstance(value, dict)
        )
        if as_text:
            value = texts[key]
        elif key == "schema":
            value = texts_as_written(value, texts[key])
        given[key] = template.fill(value, (key,), note, as_text=as_text)
    for name in settings.keys() - template.used:
        near = get_close_matches(name, sorted(template.used), 1)
        hint = f"did you mean {near[0]}?" if near else "is it {{ " + name + " }}?"
        note(("set", name), f"nothing in the file uses it; {hint}")
    return given


def _report(uri: str, document: YamlDocument, problems: Problems) -> str:
    def where(place: KeyPath) -> tuple[int, str]:
        if place[:1] == ("set",) and place[0] not in document.value:
            return 0, f"`set` {place[1]}"
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


def _with_paths(values: dict[str, Any], base: str) -> dict[str, Any]:
    """Makes paths absolute, so that they hold wherever the command is run."""

    def based(name: str, value: Any) -> Any:
        kind = _KINDS.get(name)
        if isinstance(value, str) and (kind in PATH_KINDS or kind == "schema"):
            return absolute(value, base)
        if kind == "inputs":
            return tuple(absolute(path, base) for path in value)
        if kind == "function" and value and is_file(split_name(value)[0]):
            return absolute(value, base)
        return value

    return {name: based(name, value) for name, value in values.items()}


def absolute(path: str, base: str) -> str:
    """Returns a path of a job file as seen from the folder that the file lies in.

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
    schema: Any, uri: str, document: YamlDocument, read: Callable[[str], bytes]
) -> DeclaredSchema | None:
    if schema is None:
        return None
    if isinstance(schema, str):
        return load_schema(read(schema), schema)
    return parse_declared(
        schema, f"{uri}: schema", lambda loc: document.line(("schema", *loc))
    )
