"""Damaged metadata of the package `datasets`: values stay, whatever it says of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from mutations import damaged, try_all, with_odd_keys
from pixel_zoo import IMAGES
from sounds import sound
from source_cases import write_typed
from source_tools import read

from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.sources.listing import list_inputs, remove_documents
from recordmill.transforms.sources.tables import ColumnarSource, TableFormat

pytestmark = pytest.mark.fuzz

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
IMAGE, SOUND = IMAGES["rgb.png"][0], sound("16.flac", 100, 2)
TABLE = pa.table(
    {
        "id": [0, 1, 2],
        "image": pa.array([{"bytes": IMAGE, "path": f"{n}.png"} for n in "abc"], FILE),
        "audio": pa.array([{"bytes": SOUND, "path": None}] * 3, FILE),
        "label": [0, 1, -1],
        "tags": [[0, 1], [], [1]],
        "matrix": [[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]],
    }
)
FEATURES = {
    "id": {"dtype": "int64", "_type": "Value"},
    "image": {"_type": "Image"},
    "audio": {"sampling_rate": 8000, "_type": "Audio"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    "tags": {"_type": "List", "feature": {"names": ["a", "b"], "_type": "ClassLabel"}},
    "matrix": {"shape": [1, 2], "dtype": "float64", "_type": "Array2D"},
}
STATE = {
    "_data_files": [{"filename": f"data-0000{n}-of-00002.arrow"} for n in range(2)],
    "_fingerprint": "00ff",
    "_format_columns": None,
    "_format_type": None,
    "_split": "train",
}


def flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [each for part in value for each in flat(part)]
    return [value]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_damaged_metadata(tmp_path: Path, kind: TableFormat) -> None:
    path = tmp_path / f"a.{kind}"
    told = json.dumps({"info": {"features": FEATURES}}).encode()

    def attempt(number: int) -> bool:
        change = with_odd_keys if number % 3 else damaged
        metadata = {"huggingface": change(told, number)}
        write_typed(TABLE.replace_schema_metadata(metadata), kind, path, 2)
        reading = read(ColumnarSource(format_name=kind), path)
        part = reading.parts[0]
        schema = reading.source.schema(part.observed, part.nulls)
        assert len(reading.rows) + len(reading.rejects) == 3
        for row in reading.rows:
            own = TABLE.slice(row["id"], 1).to_pylist()[0]
            for name in ("label", "tags", "matrix"):
                assert flat(row[name]) == flat(own[name])
            for name in ("image", "audio"):
                found = row[name] if name in row else row[f"{name}/bytes"]
                assert found == own[name]["bytes"]
        for name in ("label", "tags"):
            classes = schema[name].class_names
            assert not classes or all(
                label < len(classes)
                for row in reading.rows
                for label in flat(row[name])
            )
        return len(reading.rows) > 0

    try_all(attempt)


def without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def test_damaged_state(tmp_path: Path) -> None:
    """Of save_to_disk: the tables that state.json lists, or all of them."""
    tables = [each["filename"] for each in STATE["_data_files"]]
    for name in (*tables, "cache-1.arrow"):
        write_typed(TABLE.select(["id"]), "arrow", tmp_path / name, 2)
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    counts = Counter[int]()

    def attempt(number: int) -> bool:
        random = Random(number)
        change = damaged if random.random() < 0.3 else with_odd_keys
        data = change(json.dumps(STATE).encode(), number)
        (tmp_path / "state.json").write_bytes(data)
        _, files = list_inputs([str(tmp_path)])
        kept, summary, _ = remove_documents(files, "arrow", NO_OPTIONS)
        names = {file.path for file in kept}
        try:
            state = json.loads(data, object_pairs_hook=without_repeated_keys)
            wanted = {str(each["filename"]) for each in state["_data_files"]}
        except Exception:
            wanted = {*tables, "cache-1.arrow"}
        is_any = wanted & {*tables, "cache-1.arrow"}
        assert names == (is_any or {file.path for file in files})
        counts[len(names)] += 1
        assert len(names) == 5 or summary.fields
        assert is_any or summary.warnings or names == {*tables, "cache-1.arrow"}
        return True

    try_all(attempt)
    assert counts[2] > 0
