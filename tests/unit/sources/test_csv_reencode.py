"""Columns whose type turns out late: every record is that of a look at all cells."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from decode_cases import decode_batch
from frames import records_of
from hypothesis import example, given
from hypothesis import strategies as st
from source_tools import FileWriter, file_writer, prepare

from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import TypeFlags, merge_type_flags
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.text_types import classify, column_dtype
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import convert_range, measure_range
from recordmill.transforms.tasks.workspace import Workspace

CELLS = st.sampled_from(["", "", "", "7", "1.5", "true", "x", "2001", "7.0", "1e39"])
VALUE_OF: dict[str, Callable[[str], object]] = {
    "bool": lambda cell: cell == "true",
    "int64": lambda cell: int(cell.removesuffix(".0")),
    "float32": float,
    "string": str,
}


@pytest.fixture(scope="module")
def write_csv(tmp_path_factory: pytest.TempPathFactory) -> FileWriter:
    return file_writer(tmp_path_factory)


def flags_of(rows: list[tuple[str, ...]], num_columns: int) -> TypeFlags:
    """What a look at every cell of these rows finds."""
    columns = [[row[place] or None for row in rows] for place in range(num_columns)]
    return tuple(int(classify(pa.array(cells, pa.string()))) for cells in columns)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=10),
    sampled=st.sets(st.integers(0, 9)),
    part_bytes=st.integers(1, 40),
    range_bytes=st.integers(2, 80),
)
# Nothing in the sample, text in one part, a number in a later part, or before it.
@example(
    rows=[("", "a"), ("x", "a"), ("7", "a")], sampled={0}, part_bytes=1, range_bytes=99
)
@example(
    rows=[("", "a"), ("7", "a"), ("x", "a")], sampled={0}, part_bytes=1, range_bytes=99
)
@example(rows=[("7.0", "1"), ("x", "1.5")], sampled={0}, part_bytes=9, range_bytes=9)
@example(rows=[("7", "a"), ("true", "a")], sampled=set(), part_bytes=1, range_bytes=99)
def test_records_are_those_of_a_look_at_all_cells(
    write_csv: FileWriter,
    rows: list[tuple[str, str]],
    sampled: set[int],
    part_bytes: int,
    range_bytes: int,
) -> None:
    """Whatever was guessed, and wherever parts and ranges begin."""
    # Two names, so that a row of empty cells is not a blank line.
    path = write_csv(b"a,b\n" + "".join(f"{a},{b}\n" for a, b in rows).encode())
    guess = flags_of([row for at, row in enumerate(rows) if at in sampled], 2)
    final = flags_of(list(rows), 2)
    work = path.parent / "work"
    shutil.rmtree(work, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_rows, "BATCH_BYTES", part_bytes)
        found = convert(path, work, range_bytes, guess)
    dtypes = [column_dtype(flags) for flags in final]
    assert found == [
        [
            VALUE_OF[dtype](cell) if cell else None
            for cell, dtype in zip(row, dtypes, strict=True)
        ]
        for row in rows
    ]


def convert(
    path: Path, work: Path, range_bytes: int, guess: TypeFlags
) -> list[list[object]]:
    """Converts a file as a run does; the values of all records, in order."""
    reading = prepare(CsvSource(range_bytes=range_bytes), [path])
    context = RunContext(
        job=JobSpec(source="csv", name="a", shuffle=False),
        source=reading.source,
        split_names=("train",),
        bucket_bits=4,
        exchange="scratch",
        run_key="0" * 32,
        workspace=Workspace.of(LocalStore(str(work)), "0" * 32),
    )
    context.workspace.create("scratch")
    results = [convert_range(context, each, guess) for each in reading.ranges]
    final: TypeFlags = reduce(
        merge_type_flags, [one.observed_types for one in results], ()
    )
    schema = context.schema(final)
    values = []
    for result in results:
        measured = measure_range(context, result.range, guess).result
        assert measured.encoded_types == result.encoded_types
        if context.source.needs_reencode(
            result.observed_types, result.encoded_types, final
        ):
            result = convert_range(context, result.range, final, redo=True)
        for run in result.runs:
            file = Path(context.workspace.scratch_root, "runs", f"{run.stem}.records")
            records = records_of(file.read_bytes())
            batch = decode_batch(pa.array(records, pa.binary()), schema)
            values += [list(row.values()) for row in batch.to_pylist()]
    return values
