"""Makes schemas/schema_file.schema.json, by which editors know schema files.

python tests/helpers/schema_file_json.py    updates the file
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from recordmill.schemas.declared import SHAPE_FORM, DeclaredSchema, Dtype
from recordmill.schemas.schema_file import JSON_SCHEMA_DRAFT, TEXT_FIELDS, remove_titles
from recordmill.schemas.text import format_json

FILE = Path(__file__).parents[2] / "schemas" / "schema_file.schema.json"
_SCALARS = ["string", "number", "boolean"]  # what YAML may take a text for


def json_schema() -> dict[str, Any]:
    """Returns pydantic's JSON Schema, and what the loader accepts beyond the model."""
    made = remove_titles(DeclaredSchema.model_json_schema())
    feature = made["$defs"]["DeclaredFeature"]
    for name in TEXT_FIELDS:
        field = feature["properties"][name]
        (field["items"] if field["type"] == "array" else field)["type"] = _SCALARS
    made["$defs"]["DeclaredFeature"] = {
        "anyOf": [
            {
                "description": "short form: dtype, then the shape, then ? if optional",
                "type": "string",
                "pattern": rf"^\s*({'|'.join(get_args(Dtype))})({SHAPE_FORM})?\??\s*$",
                "examples": ["int64", "float32[3]", "string[]", "float32[?,4]?"],
            },
            feature,
        ]
    }
    return {"$schema": JSON_SCHEMA_DRAFT, "title": "recordmill schema file", **made}


if __name__ == "__main__":
    FILE.write_bytes(format_json(json_schema()))
