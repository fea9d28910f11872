"""The JSON Schema of job files, by which editors complete and check them.

It is made from JobFile and shipped as job_file.schema.json, beside this file:

    python -m recordmill.schemas.job.job_json_schema > schemas/job_file.schema.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from recordmill.schemas.job.job_file import JobFile
from recordmill.schemas.parsing.schema_json_schema import DRAFT, without_titles
from recordmill.schemas.text import json_bytes

SCHEMA_PATH = Path(__file__).with_name("job_file.schema.json")

_SCHEMA_FILE = "schema_file.schema.json"  # of schema files; lies beside it
_TOLD = ("description", "default")
_PLACEHOLDER = {"type": "string", "pattern": r"\{\{.*\}\}"}


def job_schema() -> dict[str, Any]:
    """What a job file may hold; a placeholder may stand for any value."""
    made = without_titles(JobFile.model_json_schema())
    made["properties"] = {
        name: _or_placeholder(field) for name, field in made["properties"].items()
    }
    declared = made["properties"]["schema"]
    declared["anyOf"] = [
        {"type": "string", "description": "a schema file"},
        {"$ref": _SCHEMA_FILE},
        {"type": "null"},
    ]
    return {"$schema": DRAFT, "title": "recordmill job file", **made}


def job_schema_bytes() -> bytes:
    """The file that is shipped."""
    return json_bytes(job_schema())


def _or_placeholder(field: dict[str, Any]) -> dict[str, Any]:
    """A field's schema that also takes a placeholder, where it takes no text anyway."""
    if isinstance(field.get("default"), dict | list):
        field = {key: value for key, value in field.items() if key != "default"}
    told = {key: field[key] for key in _TOLD if key in field}
    rest = {key: value for key, value in field.items() if key not in told}
    branches = rest.get("anyOf", [rest])
    types = {branch.get("type") for branch in branches if "enum" not in branch}
    if types <= {"integer", "number", "boolean", "null"}:
        return {**told, "anyOf": [*branches, _PLACEHOLDER]}
    return field


if __name__ == "__main__":
    sys.stdout.buffer.write(job_schema_bytes())
