"""Inputs for inference, and how it is called."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from recordmill.schemas.feature_spec import Schema
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.statistics.input_statistics import (
    InferredSchema,
    infer_schema,
)


def inferred(source: Source, *inputs: Path, workers: int = 2) -> InferredSchema:
    _, files = list_inputs([str(path) for path in inputs])
    return infer_schema(source, files, workers)


def features_of(schema: Schema) -> list[dict[str, Any]]:
    """The features as the JSON of a manifest states them."""
    text = json.dumps([feature.manifest_fields() for feature in schema.features])
    stated: list[dict[str, Any]] = json.loads(text)
    return stated


def renamed(schema: Schema) -> Schema:
    """The schema as a declared one has it: columns are named as their features."""
    return Schema(tuple(replace(feature, column="") for feature in schema.features))


# Columns of CSV that are easily taken for something else.
TRICKY: dict[str, list[str]] = {
    "late decimal": [*["1"] * 30, "2.5"],
    "late text": [*["1"] * 30, "x"],
    "late boolean": [*["1"] * 30, "true"],
    "late missing": [*["1"] * 30, ""],
    "zip code": ["01234", "98765"] * 16,
    "beyond int64": [*["1"] * 30, "9223372036854775808"],
    "the last int64": ["9223372036854775807"] * 31,
    "beyond float64": [*["1.5"] * 30, "1e400"],
    "plus": ["+1"] * 31,
    "minus zero": ["-0"] * 31,
    "boolean": ["true", "FALSE"] * 16,
    "infinity": ["inf", "-Infinity", "nan", "1"] * 8,
    "empty": [""] * 31,
    "mostly empty": [*[""] * 30, "7"],
    "quoted": ["line\nbreak", 'a "quote"', "a,comma"] * 11,
    "naïve, ☃": ["1"] * 31,
    "null": ["no", "1.0", "yes"] * 11,
}


def write_tricky(path: Path, *, repeat: int = 1) -> None:
    """The tricky columns; with `repeat`, their first 30 rows so many times."""
    rows = [[cells[row] for cells in TRICKY.values()] for row in range(31)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(TRICKY)
        for _ in range(repeat):
            writer.writerows(rows[:30])
        writer.writerow(rows[30])
