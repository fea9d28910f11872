"""Damaged metadata of Delta and Iceberg tables: files of a known version, or an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from mutations import damaged, try_all, with_odd_keys
from pyiceberg.catalog.sql import SqlCatalog

from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.sources.lakehouse import select_current_files
from recordmill.transforms.sources.listing import list_inputs

pytestmark = pytest.mark.fuzz

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"]})


def delta(folder: Path) -> Path:
    write_deltalake(folder, ROWS, partition_by=["day"])
    DeltaTable(folder).delete("id = 2")
    return folder


def iceberg(folder: Path) -> Path:
    catalog = SqlCatalog("any", uri="sqlite:///:memory:", warehouse=f"file://{folder}")
    catalog.create_namespace("of")
    table = catalog.create_table("of.rows", schema=ROWS.schema)
    table.append(ROWS)
    table.delete("id = 2")
    return Path(table.location().removeprefix("file://"))


@pytest.mark.parametrize("make", [delta, iceberg], ids=["delta", "iceberg"])
def test_damaged_metadata(make: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = make(tmp_path / "table")
    pattern = "_delta_log/*.json" if make is delta else "metadata/*"
    originals = {path: path.read_bytes() for path in folder.glob(pattern)}
    every = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}

    def attempt(number: int) -> bool:
        random = Random(number)
        path = random.choice(sorted(originals))
        data = originals[path]
        if number % 2 == 0 or path.suffix != ".json":
            data = damaged(data, number)
        elif make is delta:  # a JSON document in each line
            lines = data.splitlines()
            line = random.randrange(len(lines))
            lines[line] = with_odd_keys(lines[line], number)
            data = b"\n".join(lines)
        else:
            data = with_odd_keys(json.dumps(json.loads(data)).encode(), number)
        path.write_bytes(data)
        try:
            _, files = list_inputs([str(folder)])
            found, summary, _ = select_current_files(files, NO_OPTIONS)
        finally:
            path.write_bytes(originals[path])
        names = {file.path for file in found if file.path.endswith(".parquet")}
        assert names
        assert names <= every
        assert "version" in str(summary.fields)
        return True

    try_all(attempt, str(folder), share=0.05)
