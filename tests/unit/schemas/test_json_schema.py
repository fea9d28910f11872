"""The JSON Schema that is shipped: up to date, and true to what the loader takes."""

from __future__ import annotations

import fnmatch
import tomllib
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from declared_zoo import declared_schemas
from example_counts import examples
from hypothesis import given
from jsonschema import Draft202012Validator
from schema_file_json import json_schema

from recordmill.schemas.declared import DeclaredSchema
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.schema_file import dump_yaml, load_schema
from recordmill.schemas.text import format_json
from recordmill.schemas.yaml_lines import YamlDocument

FILE = "schema_file.schema.json"
SCHEMA = json_schema()


def fits(value: Any) -> bool:
    return bool(Draft202012Validator(SCHEMA).is_valid(value))


def test_the_file_is_up_to_date() -> None:
    """If not: python tests/helpers/schema_file_json.py"""
    stored = files("recordmill.schemas").joinpath(FILE).read_bytes()
    assert stored == format_json(json_schema())


def test_the_file_is_shipped() -> None:
    text = Path(__file__).parents[3].joinpath("pyproject.toml").read_text()
    patterns = tomllib.loads(text)["tool"]["setuptools"]["package-data"]["*"]
    assert any(fnmatch.fnmatch(FILE, pattern) for pattern in patterns)


def test_every_field_is_explained_or_a_model() -> None:
    _, fields = SCHEMA["$defs"]["DeclaredFeature"]["anyOf"]
    for name, field in fields["properties"].items():
        models = [each for each in field.get("anyOf", ()) if "$ref" in each]
        assert "description" in field or models or name == "dtype", name


def values_of(text: str) -> Any:
    return YamlDocument(f"features: {{x: {text}}}".encode(), "s.yaml").value


GOOD = [
    *("int8", "'string?'", "'bytes[]'", "'float32[3]'", "'int64[?,4]?'", "' bool '"),
    *("{}", "{dtype: float16}", "{shape: [2, null], dtype: int8}", "{min: -1.5, dtype: int8}"),
    *("{classes: [cat, dog]}", "{classes: [yes, no, 1, 1.5, true]}", "{column: 3}"),
    *("{picture: {}}", "{picture: {height: 8, format: png}}", "{bytes_from: path}"),
    *("{default: [1, x], dtype: string, optional: false}", "{unit: ms, dtype: int64}"),
    *("{separator: ';', dtype: int8, shape: [null]}", "{cell: json, dtype: int8}"),
    *("{stored: tensor, dtype: int8}", "{sequence: true, dtype: int8}"),
]  # fmt: skip
BAD = [
    *("int9", "'int8[x]'", "'int8[1 2]'", "'int8??'", "5", "[int8]", "null"),
    *("{dtpye: int8}", "{dtype: int9}", "{shape: 3}", "{shape: [-1]}", "{shape: [1.5]}"),
    *("{shape: [2147483648]}", "{classes: cat}", "{classes: [[cat]]}", "{min: low}"),
    *("{picture: true}", "{picture: {channels: 5}}", "{picture: {hight: 5}}"),
    *("{optional: maybe}", "{unit: m}", "{cell: xml}", "{stored: list}", "{bytes_from: url}"),
]  # fmt: skip


@pytest.mark.parametrize("text", [*GOOD, *BAD])
def test_takes_what_the_loader_takes(text: str) -> None:
    assert fits(values_of(text)) == (text in GOOD)
    with nullcontext() if text in GOOD else pytest.raises(SchemaError):
        load_schema(f"features: {{x: {text}}}".encode(), "s.yaml")


@pytest.mark.parametrize("value", [{}, [], {"features": {}}, {"features": {"": "int8"}}, {"features": {"a": "int8"}, "x": 1}])  # fmt: skip
def test_refuses_as_a_whole(value: Any) -> None:
    assert not fits(value)


@examples(200)
@given(declared_schemas())
def test_accepts_what_is_written(schema: DeclaredSchema) -> None:
    assert fits(YamlDocument(dump_yaml(schema).encode(), "s.yaml").value)
