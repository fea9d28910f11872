"""Runs a source as a job does: prepare, cut, survey, settle, sample, read, fetch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import InputRange, Reject, RowIssue
from recordmill.transforms.exchange.keys import position_keys
from recordmill.transforms.sources.base import RangeFindings, RowSource, Source
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.sources.text_columns import TypeFlag

FileWriter = Callable[[bytes], Path]
GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Writes files below a folder, by their paths."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@dataclass
class RangeReader:
    """What one range gave; a list entry per row, batches end to end."""

    input_range: InputRange
    rows: list[dict[str, Any]] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    raws: list[tuple[int, bytes]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    checksums: list[FileChecksum] = field(default_factory=list)
    issues: list[RowIssue] = field(default_factory=list)
    observed: tuple[int, ...] = ()
    nulls: tuple[int, ...] = ()


@dataclass
class Reading:
    """What a source made of its input."""

    source: Source
    files: list[InputFile]
    ranges: list[InputRange]
    parts: list[RangeReader]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for part in self.parts for row in part.rows]

    @property
    def rejects(self) -> list[Reject]:
        return [reject for part in self.parts for reject in part.rejects]

    @property
    def origins(self) -> list[int]:
        return [origin for part in self.parts for origin in part.origins]


def prepare(source: Source, inputs: Sequence[Path | str]) -> Reading:
    """All steps before a range is read."""
    _, files = list_inputs([str(given) for given in inputs])
    source = source.prepare(files)
    ranges = source.with_boundaries(source.cut_ranges(files))
    return Reading(source, files, ranges, [])


def read(
    source: Source, *inputs: Path | str, expected: tuple[int, ...] | None = None
) -> Reading:
    """Reads all input; by default with the types that a sample of all ranges tells."""
    reading = prepare(source, inputs)
    reading.parts = read_ranges(reading.source, reading.ranges, expected)
    return reading


def read_ranges(
    source: RowSource,
    ranges: Sequence[InputRange],
    expected: tuple[int, ...] | None = None,
) -> list[RangeReader]:
    """Reads ranges; by default with the types that a sample of all of them tells."""
    if expected is None:
        samples = [bits for s in ranges if (bits := source.sample_type_flags(s))]
        expected = tuple(int(np.bitwise_or.reduce(bits)) for bits in zip(*samples))  # noqa: B905
    return [read_one(source, input_range, expected) for input_range in ranges]


def read_text(source: CsvSource, *inputs: Path | str) -> list[list[str]]:
    """All rows of CSV input as text, the way Python's csv module gives them."""
    known = prepare(source, inputs).source
    assert isinstance(known, CsvSource)
    reading = read(source, *inputs, expected=(int(TypeFlag.TEXT),) * len(known.names))
    return [[cell or "" for cell in row.values()] for row in reading.rows]


def read_one(
    source: RowSource, input_range: InputRange, expected: tuple[int, ...] = ()
) -> RangeReader:
    """Reads one range."""
    sink = RangeFindings()
    part = RangeReader(input_range)
    for rows in source.read(input_range, expected, sink):
        part.rows += rows.batch.to_pylist()
        part.origins += rows.origins.tolist()
        part.positions += rows.positions.tolist()
        part.keys += position_keys(input_range, rows.positions).tolist()
        part.raws += [rows.raw_row(row) for row in range(rows.batch.num_rows)]
    part.rejects, part.checksums = sink.rejects, list(sink.checksums)
    part.issues, part.observed, part.nulls = (
        [*sink.issues],
        sink.type_flags,
        sink.null_counts,
    )
    return part
