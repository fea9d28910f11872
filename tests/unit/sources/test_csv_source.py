"""CSV files read in ranges of any size, against Python's csv module."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest
from source_tools import (
    GOLDEN,
    FileWriter,
    file_writer,
    prepare,
    read,
    read_one,
)

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Kind
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.base import RowSink
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    QUOTED,
    UNQUOTED,
    end_states,
    pack_map,
)
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.text_types import TypeFlag
from recordmill.transforms.storage.reading import read_range


@pytest.fixture(scope="module")
def write_csv(tmp_path_factory: pytest.TempPathFactory) -> FileWriter:
    return file_writer(tmp_path_factory)


def test_columns_may_come_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(b"a,b\n1,x\n")
    (tmp_path / "2.csv").write_bytes(b"b,a\ny,2\n")
    assert read(CsvSource(), tmp_path).rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"a\n", "2.csv: its columns differ from those of the first file: it lacks b"),
        (
            b"a,b,c\n",
            "2.csv: its columns differ from those of the first file: it also has c",
        ),
        (b"a,c\n", "it lacks b and also has c; all files of one dataset need the same"),
        (b"a,b,b\n", "2.csv: the header has column 'b' 2 times"),
        (b"\n", "2.csv: no header"),
    ],
)
def test_other_columns_are_an_error(
    tmp_path: Path, header: bytes, message: str
) -> None:
    (tmp_path / "1.csv").write_bytes(b"a,b\n1,x\n")
    (tmp_path / "2.csv").write_bytes(header)
    with pytest.raises(InputError, match=message):
        prepare(CsvSource(), [tmp_path])


def test_header_that_changed_after_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"a,b\n1,x\n")
    reading = prepare(CsvSource(), [path])
    time = path.stat().st_mtime_ns
    path.write_bytes(b"a,c\n1,x\n")
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="was written again after the run began"):
        list(reading.source.read(reading.ranges[0], (), RowSink()))
    os.utime(path, ns=(time, time))
    with pytest.raises(InputError, match="it lacks b and also has c"):
        read_one(reading.source, reading.ranges[0])


@pytest.mark.parametrize("body", [b"a,b\n", b"a,b", BOM + b"a,b\r\n\r\n"])
@pytest.mark.parametrize("range_bytes", [1, 1 << 20])
def test_header_only(write_csv: FileWriter, body: bytes, range_bytes: int) -> None:
    reading = read(CsvSource(range_bytes=range_bytes), write_csv(body))
    assert (reading.rows, reading.rejects) == ([], [])


def test_empty_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "0.csv").touch()
    (tmp_path / "1.csv").write_bytes(b"a\n1\n")
    (tmp_path / "2.csv").touch()
    assert read(CsvSource(), tmp_path).rows == [{"a": 1}]


def test_nothing_but_empty_files(tmp_path: Path) -> None:
    (tmp_path / "0.csv").touch()
    with pytest.raises(
        InputError, match="every input file is empty; expected a header"
    ):
        prepare(CsvSource(), [tmp_path])


def test_column_without_a_name(write_csv: FileWriter) -> None:
    rows = read(CsvSource(), write_csv(b",b,\n0,1,2\n")).rows
    assert rows == [{"column_0": 0, "b": 1, "column_2": 2}]


BODY = b"id,ratio,flag,name,none\n" + b"".join(
    b'%d,%d.5,%s,"n, %d",\n' % (n, n, b"true" if n % 2 else b"", n) for n in range(50)
)


@pytest.mark.parametrize("range_bytes", [1, 10, 33, 100, 1 << 20])
@pytest.mark.parametrize("expected", [None, (), (8, 8, 8, 8, 8)])
def test_types_and_missing_values(
    write_csv: FileWriter, range_bytes: int, expected: tuple[int, ...] | None
) -> None:
    reading = read(
        CsvSource(range_bytes=range_bytes), write_csv(BODY), expected=expected
    )
    observed = [0] * 5
    nulls = [0] * 5
    for part in reading.parts:
        for place, holds in enumerate(part.observed):
            observed[place] |= holds
            nulls[place] += part.nulls[place]
    assert nulls == [0, 0, 25, 0, 50]
    schema = reading.source.schema(tuple(observed), tuple(nulls))
    kinds = {f.name: (f.kind, f.dtype, f.optional) for f in schema.features}
    if expected:
        assert {kind for kind, _, _ in kinds.values()} == {Kind.BYTES}
        return
    assert kinds == {
        "id": (Kind.INT64, "int64", False),
        "ratio": (Kind.FLOAT, "float32", False),
        "flag": (Kind.INT64, "bool", True),
        "name": (Kind.BYTES, "string", False),
        "none": (Kind.BYTES, "string", True),
    }
    assert [row["name"] for row in reading.rows] == [f"n, {n}" for n in range(50)]


@pytest.mark.parametrize("range_bytes", [1, 3, 1 << 20])
def test_a_sample_never_sees_half_a_cell(
    write_csv: FileWriter, range_bytes: int
) -> None:
    """A minus sign cut from its number would make the column text for good."""
    path = write_csv(b"n\n-1.5\n-2.5\n-3.5\n")
    reading = prepare(CsvSource(range_bytes=range_bytes), [path])
    for input_range in reading.ranges:
        assert reading.source.sample(input_range) in (
            (TypeFlag.DECIMAL,),
            (TypeFlag.NOTHING,),
        )


def test_a_sample_of_a_long_range_is_short_and_of_whole_rows(
    write_csv: FileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(b"n\n" + b"-10.25\n" * 50_000 + b"text\n")
    reading = prepare(CsvSource(), [path])
    read_bytes = []

    def noting(uri: str, start: int, stop: int, **options: Any) -> bytes:
        read_bytes.append(stop - start)
        return read_range(uri, start, stop, **options)

    monkeypatch.setattr("recordmill.transforms.sources.csv.rows.read_range", noting)
    assert reading.source.sample(reading.ranges[0]) == (TypeFlag.DECIMAL,)
    assert sum(read_bytes) < 200_000


def test_a_sample_of_a_row_longer_than_the_sample_tells_nothing(
    write_csv: FileWriter,
) -> None:
    path = write_csv(b"n\n" + b"1" * 200_000 + b"\n2\n")
    reading = prepare(CsvSource(), [path])
    assert reading.source.sample(reading.ranges[0]) == (TypeFlag.NOTHING,)


def test_touched_only_where_a_value_was_stored_otherwise() -> None:
    source = CsvSource(names=("a", "b"))
    integer, decimal, none = (
        int(TypeFlag.INTEGER),
        int(TypeFlag.DECIMAL),
        int(TypeFlag.NOTHING),
    )
    both = integer | decimal
    for observed, used, final, expected in [
        ((integer, none), (integer, none), (integer, none), False),
        ((integer, none), (integer, none), (both, none), True),  # 1 is 1.0 now
        ((none, none), (none, none), (both, none), False),  # nothing to widen
        ((decimal, none), (decimal, none), (both, none), False),  # the same type
    ]:
        assert source.needs_reencode(observed, used, final) is expected


def test_batches_of_a_range_join_to_the_range(
    write_csv: FileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(BODY + b"bad\n" + BODY[24:])
    whole = read(CsvSource(), path)
    monkeypatch.setattr(range_rows, "BATCH_BYTES", 300)
    reading = prepare(CsvSource(), [path])
    batches = list(reading.source.read(reading.ranges[0], (), RowSink()))
    assert len(batches) > 5
    parts = read(CsvSource(), path)
    assert parts.rows == whole.rows
    assert parts.origins == whole.origins
    assert parts.parts[0].raws == whole.parts[0].raws
    assert parts.parts[0].nulls == whole.parts[0].nulls
    assert parts.rejects == whole.rejects
    assert len(parts.rejects) == 1


def test_ranges_without_a_row_start_give_nothing(write_csv: FileWriter) -> None:
    path = write_csv(b"a,b\n" + b"x" * 1000 + b",1\n2,3\n")
    reading = read(CsvSource(range_bytes=100), path)
    assert [len(part.rows) for part in reading.parts] == [1, *[0] * 9, 1]


def test_ranges_know_the_states_of_the_quotes_at_their_cuts() -> None:
    input_ranges = [
        InputRange(0, "a", "a", 0, 4, 0, 14),
        InputRange(1, "a", "a", 4, 8, 4, 14),
        InputRange(2, "a", "a", 8, 12, 8, 14),
        InputRange(3, "b", "b", 0, 2, 12, 14),
    ]
    blocks = [b'a,"b', b'b"c"', b'c",d', b"ab"]
    surveys = [pack_map(end_states(block)) for block in blocks]
    resolved = CsvSource().resolve_ranges(input_ranges, surveys)
    assert [input_range.quoted for input_range in resolved] == [
        (0, QUOTED),
        (QUOTED, UNQUOTED),  # the two quotes behind the first are stray
        (UNQUOTED, 0),
        (0, 0),  # another file begins anew
    ]


def test_golden_tutorial() -> None:
    path = GOLDEN / "tutorial.csv"
    reading = read(CsvSource(range_bytes=1000), path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(reading.rows) == len(rows) == 1000
    for found, row in zip(reading.rows, rows, strict=True):
        assert found == {
            "feature0": row["feature0"].lower() == "true"
            if row["feature0"].isalpha()
            else int(row["feature0"]),
            "feature1": int(row["feature1"]),
            "feature2": row["feature2"],
            "feature3": float(row["feature3"]),
        }


def test_estimate_grows_with_names_and_is_bounded() -> None:
    files = [InputFile("a", "a", 1000)]
    short = CsvSource(names=("a",)).estimated_bytes(files)
    long = CsvSource(names=("a" * 9,)).estimated_bytes(files)
    endless = CsvSource(names=("a" * 9000,)).estimated_bytes(files)
    assert 1000 < short < long < endless == 16_000
