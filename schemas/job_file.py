"""Reads a job file: fills in placeholders, validates options, makes paths absolute.

All problems are reported at once, each with its line. Text fields keep the text as
written, even if YAML would parse it as another type: `name: on`, `version: 1.0` and a
folder called 2026 are text. So is 0.10, because the share of a split must be exact.

A placeholder is {{ date }} or {{ name }}. It is filled in after parsing. A value becomes
a part of a text, or a scalar if the placeholder is the whole text. So no value can change
the structure of the file. Values come from the command (set KEY=VALUE), otherwise from
`params` in the file; {{ date }} is today.

Editors validate job files with job_file.schema.json, which is the output of `recordmill
run --job-schema` if no other package adds formats.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from recordmill.schemas.declared import format_problems, parse_declared
from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.job import is_file_reference, split_function_reference
from recordmill.schemas.job_options import (
    PATH_KINDS,
    TEXT_KINDS,
    Formats,
    LoadedJob,
    Problems,
    check_options,
    create_job,
    find_owner,
    job_file_model,
)
from recordmill.schemas.options import JOB_FILE, options_of, parse_pairs, spell_options
from recordmill.schemas.schema_file import (
    JSON_SCHEMA_DRAFT,
    remove_titles,
    restore_texts,
)
from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.storage_options import addresses_with_secrets
from recordmill.schemas.text import format_json
from recordmill.schemas.yaml_lines import KeyPath, YamlDocument

_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PARAMETER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Text that YAML can only parse as a scalar: no indicator, no space, no quote.
_PLAIN_SCALAR = re.compile(r"[-+]?\.?\w[\w.+-]*", re.ASCII)
_KINDS = {option.name: option.value_kind for option in options_of(JOB_FILE)}


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Parses parameters from texts like KEY=VALUE."""
    return parse_pairs("set", "KEY=VALUE", settings, _PARAMETER.pattern)


class _Placeholders:
    """The parameters of a job file, with a text for each, or None without a default."""

    def __init__(
        self, parameters: Mapping[str, str | None], problems: Problems
    ) -> None:
        self.values = parameters
        self.used_names: set[str] = set()
        self._problems = problems

    def fill(self, value: Any, place: KeyPath, *, as_text: bool) -> Any:
        """Fills in the placeholders of a value.

        With `as_text`, a value that is only a placeholder becomes text. Otherwise it gets
        the type that its text has in YAML.
        """
        if isinstance(value, dict):
            for key in value:
                if "{{" in key:
                    problem = "placeholders can only be in values, not in keys"
                    self._problems.setdefault((*place, key), problem)
            pairs = value.items()
            return {k: self.fill(v, (*place, k), as_text=as_text) for k, v in pairs}
        if isinstance(value, list):
            indexed_values = enumerate(value)
            return [
                self.fill(v, (*place, i), as_text=as_text) for i, v in indexed_values
            ]
        if not isinstance(value, str) or "{{" not in value:
            return value
        try:
            alone = _PLACEHOLDER.fullmatch(value.strip())
            if alone and "{{" not in alone[1]:
                text = self._parameter_text(alone[1].strip())
                # Otherwise the text is parsed as YAML: 8 and true are no text.
                is_text = as_text or not _PLAIN_SCALAR.fullmatch(text)
                return text if is_text else YamlDocument(text.encode(), "set").value
            filled = _PLACEHOLDER.sub(
                lambda match: self._parameter_text(match[1].strip()), value
            )
            if "{{" in _PLACEHOLDER.sub("", value):
                raise UsageError("a {{ without its }}")
        except (UsageError, SchemaError) as error:
            self._problems.setdefault(tuple(place), str(error))
            return value
        return filled

    def _parameter_text(self, name: str) -> str:
        if name.split(".")[0] == "env":
            raise UsageError(
                f"{{{{ {name} }}}}: job files do not read environment variables. Keep "
                "secrets in the environment of the process, where storage reads them, "
                "never in a job; pass other values with `set`"
            )
        if not _PARAMETER.fullmatch(name):
            raise UsageError(
                f"{{{{ {name} }}}}: expected one parameter's name between the braces, "
                "like {{ date }}"
            )
        self.used_names.add(name)
        text = self.values.get(name)
        if text is None:
            similar_names = get_close_matches(name, self.values.keys() - {name}, 1)
            hint = f"; did you mean {similar_names[0]}?" if similar_names else ""
            raise UsageError(
                f"{{{{ {name} }}}} has no value: pass one with `set` {name}=VALUE, or "
                f"a default in params{hint}"
            )
        return text


def load_job(
    content: bytes,
    uri: str,
    settings: Mapping[str, str],
    today: date,
    read: Callable[[str], bytes],
    formats: Formats,
    options: Mapping[str, Any] = MappingProxyType({}),
    format_options: Mapping[str, Any] = MappingProxyType({}),
) -> LoadedJob:
    """Parses a job file.

    Args:
      content: Content of the file.
      uri: URI of the file.
      settings: Values of parameters.
      today: Value of {{ date }}.
      read: Function that reads the files that the job names.
      formats: Models of the options of formats. Only the format of the job is looked up,
        unless the file has problems.
      options: Options that replace the options in the file; paths stay as typed.
      format_options: Options of the format that replace the ones in the file; paths stay
        as typed.

    Raises:
      UsageError, SchemaError: the file is invalid, with a line for each problem.
    """
    try:
        document = YamlDocument(content, uri)
        is_mapping = isinstance(document.value, dict)
    except SchemaError as error:
        raise UsageError(f"{error}{_quote_hint(str(error), content)}") from error
    if not is_mapping:
        raise UsageError(
            f"{uri}: expected a mapping like\n"
            "  source: csv\n  inputs: data/*.csv\n  output: out/data"
        )
    if secrets := dict(addresses_with_secrets(document.value)):
        raise UsageError(_format_problems(uri, document, secrets, {}, {}))
    problems: Problems = {}
    given_options = {
        **_fill_placeholders(document, settings, today, problems),
        **options,
    }
    if format_options and (source := str(given_options.get("source"))) in formats:
        section = given_options.setdefault(source, {})
        for name in format_options.keys() - formats[source].model_fields.keys():
            problem = f"is an option of {find_owner(name, formats)}, not of {source}"
            problems[source, name] = problem
        if isinstance(section, dict):
            given_options[source] = {**section, **format_options}
    validated_options = check_options(given_options, formats, problems)
    if problems:
        raise UsageError(
            _format_problems(uri, document, problems, options, format_options)
        )
    typed = {name: validated_options[name] for name in options}
    validated_options = (
        _resolve_paths(validated_options, posixpath.dirname(uri)) | typed
    )
    if isinstance(validated_options["schema"], dict):
        validated_options["schema"] = parse_declared(
            *(validated_options["schema"], f"{uri}: schema"),
            lambda loc: document.line_of(("schema", *loc)),
        )
    return create_job(validated_options, "job_file", read)


def _fill_placeholders(
    document: YamlDocument, settings: Mapping[str, str], today: date, problems: Problems
) -> dict[str, Any]:
    """Returns the fields that are not null, with all placeholders filled in."""
    texts = document.written_value()
    defaults = texts.get("params") or {}
    if not isinstance(defaults, dict):
        problem = f"expected a mapping of parameters, found {defaults!r}"
        problems["params",] = problem
        defaults = {}
    for name, text in defaults.items():
        if not _PARAMETER.fullmatch(name):
            problems["params", name] = f"expected a name like date, found {name!r}"
        elif isinstance(text, dict | list):
            problem = "expected one value, found a list or a mapping"
            problems["params", name] = problem
        elif text is not None and "{{" in text:
            problems["params", name] = "defaults cannot contain placeholders"
    plain = {k: v for k, v in defaults.items() if isinstance(v, str | None)}
    date_of_run = {"date": today.isoformat()}
    placeholders = _Placeholders({**date_of_run, **plain, **settings}, problems)
    filled_fields = {}
    for key, value in document.value.items():
        if value is None or key == "params":
            continue
        kind, is_schema = _KINDS.get(key), isinstance(value, dict) and key == "schema"
        as_text = kind in TEXT_KINDS or (key == "schema" and not is_schema)
        if as_text:
            value = texts[key]
        elif is_schema:
            value = restore_texts(value, texts[key])
        filled_fields[key] = placeholders.fill(value, (key,), as_text=as_text)
    for name in settings.keys() - placeholders.used_names:
        similar_names = get_close_matches(name, sorted(placeholders.used_names), 1)
        hint = (
            f"did you mean {similar_names[0]}?"
            if similar_names
            else "is it {{ " + name + " }}?"
        )
        problem = f"is not used in the file; {hint}"
        problems.setdefault(("set", name), problem)
    return filled_fields


def _format_problems(
    uri: str,
    document: YamlDocument,
    problems: Problems,
    options: Mapping[str, Any],
    format_options: Mapping[str, Any],
) -> str:
    def locate(place: KeyPath) -> tuple[int, str]:
        at = 0 if place[0] in options else 1  # 1: in a format's section
        if at == 0 or (
            place[0] not in _KINDS and place[1:2] and place[1] in format_options
        ):
            flag = spell_options(f"`{place[at]}`", "command")
            return 0, ": ".join([flag, *map(str, place[at + 1 :])])
        if place[:1] == ("set",) and place[0] not in document.value:
            return 0, f"`set` {place[1]}"
        steps = [f"item {s + 1}" if isinstance(s, int) else s for s in place]
        if place[0] not in document.value:
            return 0, ": ".join(steps)
        line = document.line_of(place)
        return line, ": ".join([f"line {line}", *steps])

    located_problems = sorted(
        (*locate(place), problem) for place, problem in problems.items()
    )
    return format_problems(
        uri, [f"{label}: {problem}" for _, label, problem in located_problems]
    )


def _quote_hint(problem: str, content: bytes) -> str:
    line = re.search(r": line (\d+)", problem)
    lines = content.decode(errors="replace").splitlines()
    if line is None or "{{" not in "".join(lines[int(line[1]) - 1 : int(line[1])]):
        return ""
    return '; a value that begins with {{ needs quotes: "{{ date }}"'


def _resolve_paths(options: dict[str, Any], base: str) -> dict[str, Any]:
    """Makes paths absolute, so that they do not depend on the working directory."""

    def based(name: str, value: Any) -> Any:
        kind = _KINDS.get(name)
        if isinstance(value, str) and (kind in PATH_KINDS or kind == "schema"):
            return resolve_path(value, base)
        if kind == "inputs":
            return tuple(resolve_path(path, base) for path in value)
        if (
            kind == "function"
            and value
            and is_file_reference(split_function_reference(value)[0])
        ):
            return resolve_path(value, base)
        return value

    return {name: based(name, value) for name, value in options.items()}


def resolve_path(path: str, base: str) -> str:
    """Resolves a path in a job file relative to the folder of the file.

    >>> resolve_path("../raw/*.csv", "s3://bucket/jobs"), resolve_path("/raw", "jobs")
    ('s3://bucket/raw/*.csv', '/raw')
    """
    if "://" in path:
        return path
    if "://" in base:
        protocol, _, folder = base.partition("://")
        return f"{protocol}://{posixpath.normpath(posixpath.join(folder, path))}"
    joined = Path(base, Path(path).expanduser()).absolute()
    return posixpath.normpath(joined.as_posix())


_SCHEMA_FILE = "schema_file.schema.json"  # JSON Schema of schema files, same folder
_KEPT_KEYS = ("description", "default")
_ANY_PLACEHOLDER = {"type": "string", "pattern": r"\{\{.*\}\}"}


def create_job_schema(formats: Mapping[str, type[SourceOptions]]) -> dict[str, Any]:
    """Returns the JSON Schema of job files, with placeholders allowed as values."""
    schema = remove_titles(job_file_model(*formats.items()).model_json_schema())
    schema["properties"]["source"] |= {"enum": list(formats)}
    del schema["properties"]["source"]["minLength"]
    sections = [
        schema["properties"][name]["$ref"].rpartition("/")[2] for name in formats
    ]
    for part in (schema, *(schema["$defs"][name] for name in sections)):
        part["properties"] = {
            name: _allow_placeholder(field)
            for name, field in part["properties"].items()
        }
    declared = schema["properties"]["schema"]
    declared["anyOf"] = [
        {"type": "string", "description": "a schema file"},
        {"$ref": _SCHEMA_FILE},
        {"type": "null"},
    ]
    return {"$schema": JSON_SCHEMA_DRAFT, "title": "recordmill job file", **schema}


def job_schema_bytes(formats: Mapping[str, type[SourceOptions]]) -> bytes:
    """Returns the JSON Schema of job files as the bytes of a file."""
    return format_json(create_job_schema(formats))


def _allow_placeholder(field: dict[str, Any]) -> dict[str, Any]:
    """Adds placeholders to the schema of a field that does not accept text."""
    if isinstance(field.get("default"), dict | list):
        field = {key: value for key, value in field.items() if key != "default"}
    kept_fields = {key: field[key] for key in _KEPT_KEYS if key in field}
    constraints = {key: value for key, value in field.items() if key not in kept_fields}
    branches = constraints.get("anyOf", [constraints])
    types = {branch.get("type") for branch in branches if "enum" not in branch}
    if types <= {"integer", "number", "boolean", "null"}:
        return {**kept_fields, "anyOf": [*branches, _ANY_PLACEHOLDER]}
    return field
