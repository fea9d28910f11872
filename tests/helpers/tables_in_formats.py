"""One table as files of each format that has columns, in several input ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from recordmill.transforms.sources.csv.source import CsvSource

FORMATS = ("csv", "parquet", "arrow", "jsonl")


def cut_small(monkeypatch: pytest.MonkeyPatch, range_bytes: int = 64) -> None:
    """Makes ranges of CSV files small, so that few rows are several ranges."""
    cut = CsvSource.cut_ranges
    monkeypatch.setattr(
        CsvSource,
        "cut_ranges",
        lambda self, files: cut(replace(self, range_bytes=range_bytes), files),
    )


def write_table(path: Path, source: str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Writes columns to a file of a format; returns the path with its ending."""
    path = path.with_suffix(f".{source}")
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(dict(columns))
    if source == "csv":
        pyarrow.csv.write_csv(table, path)
    elif source == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif source == "arrow":
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    return path
