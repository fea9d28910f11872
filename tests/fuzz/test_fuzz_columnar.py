"""Damaged Parquet and Arrow IPC files: rows as many as are told, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from mutations import damaged, try_all
from source_cases import write_typed
from source_tools import prepare

from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.base import RangeFindings, Source
from recordmill.transforms.sources.tables import ColumnarSource, TableFormat
from recordmill.transforms.tasks.frame_records import frame_rows

pytestmark = pytest.mark.fuzz


def a_table(random: Random) -> pa.Table:
    rows = random.randrange(1, 9)
    texts = random.choices(["a", "caf\xe9", "", None, "x" * 30], k=rows)
    boxes = [None if n == 3 else {"x": n / 4, "y": [n] * (n % 3)} for n in range(rows)]
    return pa.table(
        {
            "n": random.choices([1, None, 1 << 40], k=rows),
            "t": pa.array(texts, pa.string()),
            "d": pa.array(texts, pa.string()).dictionary_encode(),
            "l": [[1.5] * (n % 4) for n in range(rows)],
            "b": boxes,
        }
    )


@pytest.mark.parametrize(
    ("kind", "is_stream"), [("parquet", False), ("arrow", False), ("arrow", True)]
)
def test_damaged_files(kind: TableFormat, is_stream: bool, tmp_path: Path) -> None:
    path = tmp_path / f"in.{kind}"
    originals = []
    for number in range(20):
        write_typed(a_table(Random(number)), kind, path, 1 + number % 4)
        if is_stream:
            with pa.ipc.open_file(path) as file:
                table = file.read_all()
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table)
        originals.append(path.read_bytes())

    def attempt(number: int) -> bool:
        path.write_bytes(damaged(originals[number % 20], number))
        source = ColumnarSource(format_name=kind, range_bytes=1 + number % 2 * 1000)
        reading = prepare(source, [path])
        found = [encoded(reading.source, each) for each in reading.ranges]
        assert found == [each.num_positions for each in reading.ranges]
        return True

    try_all(attempt, str(path), "they are empty", share=0)


def encoded(source: Source, input_range: InputRange) -> int:
    """Returns how many rows of a range became a record or a reject."""
    count = 0
    job = JobSpec(source="parquet", name="a")
    for rows in source.read(input_range, (), RangeFindings()):
        for framed in frame_rows(rows.batch, source.schema(), job):
            count += framed.rows.num_rows
            for row, _ in framed.invalid_rows:
                json.loads(rows.raw_row(row)[1])
                count += 1
    return count
