"""Reads a job file: fills its placeholders in, checks it, makes its paths absolute.

All that is wrong is reported at once, each with its line. Fields that are text take
what is written, whatever YAML makes of it: `name: on`, `version: 1.0` and a folder
called 2026 are text; so is 0.10, which as a split's share has to be exact.

A placeholder is {{ date }} or {{ name }}. It is filled in after parsing: a value can only
become the text of a scalar, or the scalar itself where the placeholder stands alone, so
no value changes the structure of the file. Values come from the command (set KEY=VALUE),
else from the file's own `params`; {{ date }} is today.

job_file.schema.json, by which editors complete and check job files, has the formats that
are built in; the command adds those of other packages:

    recordmill run --job-schema > schemas/job_file.schema.json
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from recordmill.schemas.declared import DeclaredSchema, parse_declared, report
from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.job import is_file, load_map, split_name
from recordmill.schemas.job_options import (
    PATH_KINDS,
    TEXT_KINDS,
    Formats,
    LoadedJob,
    Problems,
    check_options,
    job_file_model,
    make_job,
)
from recordmill.schemas.options import JOB_FILE, offered_by
from recordmill.schemas.schema_file import (
    DRAFT,
    load_schema,
    texts_as_written,
    without_titles,
)
from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.text import json_bytes
from recordmill.schemas.yaml_lines import KeyPath, YamlDocument

_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
PARAMETER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Text that YAML can take for a scalar only: no indicator, no space, no quote.
_PLAIN = re.compile(r"[-+]?\.?\w[\w.+-]*", re.ASCII)


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Parses the parameters given as KEY=VALUE.

    Raises:
      UsageError: one that is not of that form, or a key given twice.
    """
    values: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not PARAMETER.fullmatch(key):
            raise UsageError(f"`set`: expected KEY=VALUE, found {setting!r}")
        if key in values:
            raise UsageError(f"`set`: {key} is given twice")
        values[key] = value
    return values


def built_in(today: date) -> dict[str, str]:
    """Returns the parameters that every job file can use."""
    return {"date": today.isoformat()}


@dataclass(slots=True)
class Template:
    """Fills placeholders in, and notes what was used and what is wrong.

    Attributes:
      values: the text of every parameter that has one.
      required: parameters that the file declares without a value.
      used: the parameters met so far.
    """

    values: Mapping[str, str]
    required: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)

    def fill(
        self,
        value: Any,
        place: KeyPath,
        note: Callable[[KeyPath, str], None],
        *,
        as_text: bool,
    ) -> Any:
        """Returns a value with every placeholder filled in.

        Args:
          value: plain values as YamlDocument has them.
          place: where it stands in the file.
          note: takes the place and what is wrong there.
          as_text: whether a placeholder alone gives text, whatever it looks like.
        """
        if isinstance(value, dict):
            for key in value:
                if "{{" in key:
                    note((*place, key), "keys are never filled in, only values")
            return {
                key: self.fill(item, (*place, key), note, as_text=as_text)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.fill(item, (*place, index), note, as_text=as_text)
                for index, item in enumerate(value)
            ]
        if not isinstance(value, str) or "{{" not in value:
            return value
        try:
            alone = _PLACEHOLDER.fullmatch(value.strip())
            if alone and "{{" not in alone[1]:
                text = self._value(alone[1])
                return text if as_text else scalar_of(text)
            filled = _PLACEHOLDER.sub(lambda match: self._value(match[1]), value)
            if "{{" in _PLACEHOLDER.sub("", value):
                raise UsageError("a {{ without its }}")
        except UsageError as error:
            note(place, str(error))
            return value
        return filled

    def _value(self, inside: str) -> str:
        name = inside.strip()
        if name.split(".")[0] == "env":
            raise UsageError(
                f"{{{{ {name} }}}}: job files do not read the environment: secrets "
                "belong in the environment of the process, where storage finds them "
                "by itself, never in a job; other values come with `set`"
            )
        if not PARAMETER.fullmatch(name):
            raise UsageError(
                f"{{{{ {name} }}}}: expected one parameter's name between the braces, "
                "like {{ date }}"
            )
        self.used.add(name)
        if name in self.values:
            return self.values[name]
        near = get_close_matches(name, {*self.values, *self.required} - {name}, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"{{{{ {name} }}}} has no value: give one with `set` {name}=VALUE, or a "
            f"default in params{hint}"
        )


def scalar_of(text: str) -> Any:
    """Returns what a parameter's text is where a value of any type may stand.

    >>> scalar_of("8"), scalar_of("true"), scalar_of("2026-11-20"), scalar_of("a: b")
    (8, True, '2026-11-20', 'a: b')
    """
    if not _PLAIN.fullmatch(text):
        return text
    return YamlDocument(text.encode(), "set").value


_KINDS = {option.name: option.kind for option in offered_by(JOB_FILE)}


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


SCHEMA_PATH = Path(__file__).with_name("job_file.schema.json")

_SCHEMA_FILE = "schema_file.schema.json"  # of schema files; lies beside it
_KEPT = ("description", "default")
_ANY_PLACEHOLDER = {"type": "string", "pattern": r"\{\{.*\}\}"}


def job_schema(formats: Mapping[str, type[SourceOptions]]) -> dict[str, Any]:
    """Returns what a job file may hold; a placeholder may stand for any value.

    Args:
      formats: the options of each format that `source` may name.
    """
    made = without_titles(job_file_model(formats).model_json_schema())
    made["properties"]["source"] |= {"enum": list(formats)}
    del made["properties"]["source"]["minLength"]
    sections = [made["properties"][name]["$ref"].rpartition("/")[2] for name in formats]
    for part in (made, *(made["$defs"][name] for name in sections)):
        part["properties"] = {
            name: _or_placeholder(field) for name, field in part["properties"].items()
        }
    declared = made["properties"]["schema"]
    declared["anyOf"] = [
        {"type": "string", "description": "a schema file"},
        {"$ref": _SCHEMA_FILE},
        {"type": "null"},
    ]
    return {"$schema": DRAFT, "title": "recordmill job file", **made}


def job_schema_bytes(formats: Mapping[str, type[SourceOptions]]) -> bytes:
    """Returns the same as the bytes of a file."""
    return json_bytes(job_schema(formats))


def _or_placeholder(field: dict[str, Any]) -> dict[str, Any]:
    """Lets a field's schema take a placeholder too, where it takes no text anyway."""
    if isinstance(field.get("default"), dict | list):
        field = {key: value for key, value in field.items() if key != "default"}
    kept = {key: field[key] for key in _KEPT if key in field}
    rest = {key: value for key, value in field.items() if key not in kept}
    branches = rest.get("anyOf", [rest])
    types = {branch.get("type") for branch in branches if "enum" not in branch}
    if types <= {"integer", "number", "boolean", "null"}:
        return {**kept, "anyOf": [*branches, _ANY_PLACEHOLDER]}
    return field
