"""Damaged arrays and binary files: rows as many as are told, or an error."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from content_tools import contents_of
from mutations import damaged, try_all
from source_cases import idx_bytes
from source_tools import prepare

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.file_content import Checksums
from recordmill.transforms.sources.arrays.fixed_records import (
    find_records,
    parse_record,
)
from recordmill.transforms.sources.arrays.headers import find_idx, find_numpy
from recordmill.transforms.sources.arrays.source import ArraysSource
from recordmill.transforms.sources.base import RangeFindings, Source
from recordmill.transforms.sources.registry import (
    BinaryOptions,
    IdxOptions,
    NumpyOptions,
)
from recordmill.transforms.tasks.frame_records import frame_rows

pytestmark = pytest.mark.fuzz
RECORD = "label:u8,_:u8[2],x:f32[2],image:u8[3,2,2]:chw->hwc,n:u64,id:bytes[3]"
STRUCTURED = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("s", "S3"), ("t", "U2")])


def an_array(number: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(number)
    rows = 1 + number % 7
    match number % 6:
        case 0:
            return random.integers(0, 256, (rows, 4, 3), np.uint8)
        case 1:
            return np.asfortranarray(random.normal(size=(rows, 3)))
        case 2:
            return np.array(["caf\xe9", "", "x" * 5] * rows)
        case 3:
            return np.frombuffer(random.bytes(rows * STRUCTURED.itemsize), STRUCTURED)
        case 4:
            return random.integers(0, 2, rows).astype(bool)
        case _:
            return random.integers(0, 1 << 63, (rows, 2)).astype(">u8")


def numpy_file(number: int) -> bytes:
    buffer = io.BytesIO()
    # Half a character in a structured array is a reject.
    if number % 3 == 0:
        np.save(buffer, an_array(number // 3))
    elif number % 3 == 1:
        np.savez(buffer, x=an_array(number // 3), y_test=an_array(0)[:1])
    else:
        np.savez_compressed(buffer, a=np.arange(5), b=np.arange(10).reshape(5, 2))
    return buffer.getvalue()


def idx_file(number: int) -> bytes:
    data = idx_bytes(np.arange(24 * 5, dtype=np.uint8).reshape(5, 6, 4))
    return gzip.compress(data) if number % 2 else data


def records(number: int) -> bytes:
    return Random(number).randbytes(40 * (1 + number % 5))


KINDS: dict[str, tuple[ArraysSource, Callable[[int], bytes], str]] = {
    "binary": (
        ArraysSource(find_records, BinaryOptions(record=RECORD, header_bytes=2)),
        records,
        "in.bin",
    ),
    "idx": (ArraysSource(find_idx, IdxOptions()), idx_file, "labels-idx3-ubyte"),
    "numpy": (ArraysSource(find_numpy, NumpyOptions()), numpy_file, "in.npy"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    kind_of, make, name = KINDS[kind]
    path = tmp_path / name
    originals = [make(number) for number in range(18)]

    def attempt(number: int) -> bool:
        path.write_bytes(damaged(originals[number % 18], number))
        source = replace(kind_of, range_bytes=60 + number % 2 * 1000)
        reading = prepare(source, [path])
        checksums = Checksums(reading.source.checksums_of_prepare())
        found = [encoded(reading.source, each, checksums) for each in reading.ranges]
        parts = reading.source.array_input.array_groups
        assert sum(found) == sum(
            part.num_rows + (part.tail_bytes > 0) for part in parts
        )
        sizes = {file.path: file.size for file in reading.files}
        assert contents_of(checksums, sizes).keys() == sizes.keys()
        return True

    try_all(attempt, str(path), "none", "`record`", share=0)


def encoded(source: Source, input_range: InputRange, checksums: Checksums) -> int:
    """Returns how many rows of a range became a record or a reject."""
    count = 0
    job = JobSpec(source="numpy", name="a")
    sink = RangeFindings(checksums=checksums)
    for rows in source.read(input_range, (), sink):
        for framed in frame_rows(rows.batch, source.schema(), job):
            count += framed.rows.num_rows + len(framed.invalid_rows)
            for row, _ in framed.invalid_rows:
                assert rows.raw_row(row)[1]
    return count + len(sink.rejects)


def test_damaged_declarations() -> None:
    def attempt(number: int) -> bool:
        text = damaged(RECORD.encode(), number).decode("latin-1")
        fields, size = parse_record(text, "little")
        return all(0 <= f.offset <= f.offset + f.num_bytes <= size for f in fields)

    errors = try_all(attempt, share=0, refused=(UsageError,))
    assert all(error.startswith("`record`: ") for error in errors)
