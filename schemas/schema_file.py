"""Reads and writes schema files in YAML, and reads tensorflow-metadata's text proto.

    # comments as `recordmill schema infer` writes them
    features:
      label: {dtype: int64, classes: [cat, dog]}
      note: string?
      boxes:
        dtype: float32
        shape: [null, 4]
        ...

schemas/declared.py defines the fields. Editors validate schema files with
schema_file.schema.json, which this script creates from DeclaredSchema:

    python tests/helpers/schema_file_json.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from recordmill.schemas.declared import DeclaredFeature, DeclaredSchema, parse_declared
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.text import escape_unprintable
from recordmill.schemas.yaml_lines import YamlDocument, write_yaml

# Fields whose values stay text, even if they look like numbers or booleans.
TEXT_FIELDS = ("column", "separator", "classes", "null_values")

_YAML_ENDINGS = (".yaml", ".yml")
_PBTXT_ENDINGS = (".pbtxt", ".textproto")
# The fields of tensorflow.metadata.v0.Schema, each followed by a message or a value.
_PBTXT_START = re.compile(
    rb"(?:\s|#.*)*(?:(?:feature|sparse_feature|weighted_feature|string_domain"
    rb"|float_domain|int_domain|annotation|dataset_constraints"
    rb"|tensor_representation_group)\s*:?\s*[{<]"
    rb"|(?:default_environment|represent_variable_length_as_ragged)\s*:)"
)
_LINE_CHARACTERS = 88


def load_schema(content: bytes, uri: str) -> DeclaredSchema:
    """Reads a schema file; its ending determines the format, otherwise its content."""
    ending = PurePosixPath(uri).suffix.lower()
    if ending in _PBTXT_ENDINGS or (
        ending not in _YAML_ENDINGS and _PBTXT_START.match(content)
    ):
        from recordmill.schemas.tfmd import load_pbtxt

        return load_pbtxt(content, uri)
    document = YamlDocument(content, uri)
    declaration = restore_texts(document.value, document.written_value())
    return parse_declared(declaration, uri, document.line_of)


def dump_yaml(
    schema: DeclaredSchema,
    comments: Mapping[str, Sequence[str]] | None = None,
    head: Sequence[str] = (),
) -> str:
    """Formats a schema as YAML, with the short form of a feature if possible.

    `load_schema` reads an equal schema from it.

    Args:
      schema: The schema.
      comments: Comment lines above each feature, by its name.
      head: Comment lines at the start of the file.
    """
    lines = [_format_comment(line) for line in head]
    lines.append("features:")
    for name, feature in schema.features.items():
        lines += [
            f"  {_format_comment(line)}" for line in (comments or {}).get(name, ())
        ]
        lines.append(_format_feature(name, feature))
    return "\n".join(lines) + "\n"


def restore_texts(schema: Any, written: Any) -> Any:
    """Returns the plain values of a schema, with text as written in the file.

    `classes: [yes, no]`, `[1, 2]` and `default: 007` are text, although YAML parses them
    as booleans and numbers.
    """
    features = schema.get("features") if isinstance(schema, dict) else None
    if not isinstance(features, dict):
        return schema
    features_as_written = {}
    for name, fields in features.items():
        if isinstance(fields, dict):
            keys = [key for key in TEXT_FIELDS if key in fields]
            default = fields.get("default")
            is_text = fields.get("dtype") in ("string", "bytes")
            if default is not None and is_text and not isinstance(default, bytes):
                keys.append("default")
            written_fields = written["features"][name]
            fields = fields | {key: written_fields[key] for key in keys}
        features_as_written[name] = fields
    return schema | {"features": features_as_written}


def _format_feature(name: str, feature: DeclaredFeature) -> str:
    """Formats a feature for the file, on one line if it fits."""
    fields = feature.model_dump(exclude_defaults=True)
    if fields.keys() <= {"dtype", "shape", "optional"}:
        declaration: Any = _format_short_form(feature)
    elif feature.picture or feature.bytes_from:
        declaration = fields
    else:
        declaration = {"dtype": feature.dtype, **fields}
    try:
        if not isinstance(declaration, str):
            if line := _format_flow(name, declaration, 2):
                return line
            head = _format_block(name, None, 2).removesuffix(" null")
            if head.endswith(":"):  # not the YAML syntax for long keys (? KEY)
                lines = (
                    _format_flow(f, v, 4) or _format_block(f, v, 4)
                    for f, v in declaration.items()
                )
                return "\n".join([head, *lines])
        return _format_block(name, declaration, 2)
    except yaml.YAMLError as error:
        raise SchemaError(f"feature {name!r}: cannot be written: {error}") from error


def _format_flow(key: str, value: Any, indent: int) -> str:
    """Formats `key: value` on one line; returns "" if that is too long."""
    line = " " * indent + write_yaml({key: value}, flow=True)[1:-2]
    # A line that starts with "? " has only a key.
    fits = len(line) <= _LINE_CHARACTERS and line[indent] != "?"
    return line if fits else ""


def _format_block(key: str, value: Any, indent: int) -> str:
    lines = write_yaml({key: value}, flow=False).splitlines()
    return "\n".join(" " * indent + line for line in lines)


def _format_short_form(feature: DeclaredFeature) -> str:
    shape = ""
    if feature.shape == (None,):
        shape = "[]"
    elif feature.shape:
        sides = ("?" if side is None else str(side) for side in feature.shape)
        shape = f"[{','.join(sides)}]"
    return f"{feature.dtype}{shape}{'?' if feature.optional else ''}"


def _format_comment(line: str) -> str:
    return f"# {escape_unprintable(line)}" if line else "#"


# the one that pydantic writes
JSON_SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def remove_titles(json_schema: Any) -> Any:
    """Removes the titles that pydantic creates from names."""
    if isinstance(json_schema, list):
        return [remove_titles(inner_schema) for inner_schema in json_schema]
    if not isinstance(json_schema, dict):
        return json_schema
    return {
        key: remove_titles(inner_schema)
        for key, inner_schema in json_schema.items()
        if key != "title" or not isinstance(inner_schema, str)
    }
