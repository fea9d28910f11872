"""Makes the JSON Schema of job files, by which editors complete and check them.

It is made from JobFile and the options of each format. What is shipped beside this file
has the formats that are built in; the command adds those of other packages:

    recordmill run --job-schema > schemas/job/job_file.schema.json
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recordmill.schemas.job.job_file import job_file_model
from recordmill.schemas.job.source_options import SourceOptions
from recordmill.schemas.parsing.schema_json_schema import DRAFT, without_titles
from recordmill.schemas.text import json_bytes

SCHEMA_PATH = Path(__file__).with_name("job_file.schema.json")

_SCHEMA_FILE = "schema_file.schema.json"  # of schema files; lies beside it
_KEPT = ("description", "default")
_PLACEHOLDER = {"type": "string", "pattern": r"\{\{.*\}\}"}


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
        return {**kept, "anyOf": [*branches, _PLACEHOLDER]}
    return field
