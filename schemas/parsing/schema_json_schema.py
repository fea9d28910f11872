"""Makes the JSON Schema of a schema file's YAML form, for completion in editors.

It is made from DeclaredSchema and shipped as schema_file.schema.json, beside this file:

    python -m recordmill.schemas.parsing.schema_json_schema > schemas/schema_file.schema.json
"""

from __future__ import annotations

import sys
from typing import Any, get_args

from recordmill.schemas.features.declared import SHAPE_FORM, DeclaredSchema, Dtype
from recordmill.schemas.parsing.schema_file import TEXT_FIELDS
from recordmill.schemas.text import json_bytes

DRAFT = "https://json-schema.org/draft/2020-12/schema"  # the one that pydantic writes
_SCALARS = ["string", "number", "boolean"]  # what YAML may take a text for


def json_schema() -> dict[str, Any]:
    """Returns pydantic's JSON Schema, and what the loader accepts beyond the model."""
    made = without_titles(DeclaredSchema.model_json_schema())
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
    return {"$schema": DRAFT, "title": "recordmill schema file", **made}


def json_schema_bytes() -> bytes:
    """Returns the bytes of the file that is shipped."""
    return json_bytes(json_schema())


def without_titles(value: Any) -> Any:
    """Removes the titles that pydantic makes from each name."""
    if isinstance(value, list):
        return [without_titles(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_titles(item)
        for key, item in value.items()
        if key != "title" or not isinstance(item, str)
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(json_schema_bytes())
