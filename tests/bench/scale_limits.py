"""What a dataset of some size is cut into, and what each exchange makes of it.

Sizes come from the code's own constants and functions. What was measured of objects, and
what is assumed, stands in one block below; tests/docs/test_scale_limits.py compares it
with the objects, and counts real reads. scale_page.py puts the table into docs/scale.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.schemas.job import DEFAULT_SHARD_BYTES, Sharding
from recordmill.schemas.ranges import MAX_UNPACKED_RESULTS
from recordmill.transforms.exchange.pieces import (
    HELD_BYTES,
    PIECE_BYTES,
    PIECE_HEAD_BYTES,
)
from recordmill.transforms.exchange.plan import bucket_bits
from recordmill.transforms.exchange.sorted_runs import (
    _BLOCK_DTYPE,
    _MAGIC,
    _ROW_DTYPE,
    READ_WHOLE_BYTES,
    WINDOW_BYTES,
    _block_rows,
)
from recordmill.transforms.sources.base import RANGE_BYTES
from recordmill.transforms.tasks.convert_range import BLOCK_BYTES

TB = 10**12
GIB = 1 << 30

# Assumed.
RECORD_BYTES = 10_000  # a small image, a wide row; in the input and in the shard
FILE_BYTES = 256_000_000  # of an input of tables
SPLITS = 1
DOLLARS_PER_SHUFFLED_GB = 0.011  # a managed shuffle; on Flink it is local disks
DOLLARS_PER_MILLION_READS = 0.40  # of an object store

# Measured, in bytes.
BASE_BYTES = 168_000_000  # of the imports
INPUT_FILE_BYTES = 5  # of a list that is mapped, at the peak of planning
INPUT_RANGE_BYTES = 410
GRAPH_BYTES = 100_000  # of the job's graph, as it is handed to a runner ...
GRAPH_RANGE_BYTES = 10  # ... and for each range, packed
RANGE_RESULT_BYTES = 1_900  # in the memory of the worker that plans ...
PACKED_RESULT_BYTES = 320  # ... beside the packed one ...
TOGETHER_RESULT_BYTES = 50  # ... or, of many, only that, with nine others
RUN_BYTES = 320  # of a sorted run in the table that all writers have
SHARD_RECORD_BYTES = 70  # in a writer's memory, of each record of its shard ...
SHARD_PIECE_BYTES = 1_150  # ... and of each piece, while they are gathered
SAVED_PIECE_BYTES = 330  # ... and of a piece whose rows are in a file meanwhile
STREAM_BYTES = 325  # of a piece, beside its head, keys and rows
WINDOWS_HELD = 3  # by a writer: the one written, the next one as read and as ordered


@dataclass(frozen=True)
class Case:
    """One dataset.

    Attributes:
      name: of the column.
      input_bytes: of the dataset.
      shard_bytes: of a shard, as asked for.
      range_bytes: of an input range.
      record_bytes: of a record.
    """

    name: str
    input_bytes: int
    shard_bytes: int = DEFAULT_SHARD_BYTES
    range_bytes: int = RANGE_BYTES
    record_bytes: int = RECORD_BYTES

    @property
    def sharding(self) -> Sharding:
        return Sharding(shard_bytes=self.shard_bytes)

    @property
    def records(self) -> int:
        return self.input_bytes // self.record_bytes

    @property
    def ranges(self) -> int:
        return -(-self.input_bytes // self.range_bytes)

    @property
    def shards(self) -> int:
        return self.sharding.count_shards(self.input_bytes, self.records)

    @property
    def shard_size(self) -> float:
        """Returns what a shard really has: there are never more than 99,999."""
        return self.input_bytes / self.shards

    @property
    def buckets(self) -> int:
        """Counts those of the histogram."""
        return 1 << bucket_bits(self.sharding, self.input_bytes)

    @property
    def range_records(self) -> float:
        return self.records / self.ranges

    @property
    def shard_records(self) -> float:
        return self.records / self.shards

    @property
    def graph_bytes(self) -> int:
        return GRAPH_BYTES + self.ranges * GRAPH_RANGE_BYTES

    @property
    def results_bytes(self) -> int:
        """Returns the memory of the results of all ranges, packed; and not, if not many."""
        if self.ranges > MAX_UNPACKED_RESULTS:
            return self.ranges * TOGETHER_RESULT_BYTES
        return self.ranges * (RANGE_RESULT_BYTES + PACKED_RESULT_BYTES)

    @property
    def histogram_bytes(self) -> int:
        """Returns those of one with all its buckets: bytes and records, u64 each."""
        return 2 * 8 * self.buckets * SPLITS

    @property
    def planner_bytes(self) -> int:
        """Returns the memory of the one worker that adds up histograms and plans."""
        return BASE_BYTES + 2 * self.histogram_bytes + self.results_bytes

    def launcher_bytes(self, files: float) -> float:
        return BASE_BYTES + files * INPUT_FILE_BYTES + self.ranges * INPUT_RANGE_BYTES


def occupied(throws: float, boxes: float) -> float:
    """Counts the boxes with something in them after so many throws, on average.

    >>> round(occupied(1, 10), 9), round(occupied(1e9, 10))
    (1.0, 10)
    """
    return boxes * -math.expm1(throws * math.log1p(-1 / boxes)) if boxes > 1 else 1.0


@dataclass(frozen=True)
class Lookups:
    """What all shards read to find their records in the indexes of all runs.

    Attributes:
      finds: of a shard in a run.
      reads: one or two for each.
      read_bytes: of all reads.
    """

    finds: float
    reads: float
    read_bytes: float


def lookups(case: Case) -> Lookups:
    """Counts what read_index does, where order keys are evenly spread."""
    records = max(1, round(case.range_records))
    # The places of first keys stand for them, and places of bounds for bounds.
    first_keys = np.arange(0, records, _block_rows(records))
    head = len(_MAGIC) + len(first_keys) * _BLOCK_DTYPE.itemsize
    starts = head + np.array([*first_keys, records]) * _ROW_DTYPE.itemsize
    bounds = np.arange(case.shards + 1) * (records / case.shards)
    inner = np.maximum(0, np.searchsorted(first_keys, bounds[:-1]) - 1)
    outer = np.searchsorted(first_keys, bounds[1:])
    at_once = max(head, min(READ_WHOLE_BYTES, int(starts[-1])))
    again = starts[outer] > at_once
    more = float((starts[outer] - starts[inner])[again].sum())
    return Lookups(
        finds=case.shards * case.ranges,
        reads=(case.shards + int(again.sum())) * case.ranges,
        read_bytes=(case.shards * at_once + more) * case.ranges,
    )


def slice_reads(case: Case) -> float:
    """Counts slices: a window of a shard reads one of every run with records in it."""
    windows = math.ceil(case.shard_size / WINDOW_BYTES)
    return case.shards * windows * occupied(case.shard_records / windows, case.ranges)


def pieces_of(case: Case) -> float:
    """Counts pieces: each block of a range is cut at shards, and where it is too large."""
    blocks = math.ceil(case.range_bytes / BLOCK_BYTES)
    records = case.range_records / blocks
    filled = occupied(records, case.shards)
    in_piece = max(1, (PIECE_BYTES - STREAM_BYTES) // (case.record_bytes + 12))
    cuts = math.ceil(records / filled / in_piece)
    return case.ranges * blocks * filled * cuts


def shuffled_bytes(case: Case) -> float:
    """Adds up pieces: each has a header, and a key and an offset for each record."""
    pieces = pieces_of(case) * (PIECE_HEAD_BYTES + STREAM_BYTES)
    return case.input_bytes + pieces + case.records * 12


def gather_bytes(case: Case, pieces: float) -> float:
    """Returns the memory of a shard's writer beside bodies that it holds whole."""
    return (
        case.shard_records * SHARD_RECORD_BYTES
        + pieces * SHARD_PIECE_BYTES
        + WINDOWS_HELD * WINDOW_BYTES
    )


def engine_writer_bytes(case: Case) -> float:
    """Returns the memory of a worker that holds all pieces of a shard, or as many as it may."""
    pieces = pieces_of(case) / case.shards
    held = min(1.0, HELD_BYTES / case.shard_size)
    saved = pieces * (1 - held) * SAVED_PIECE_BYTES
    body = held * case.shard_size
    return BASE_BYTES + body + saved + gather_bytes(case, held * pieces)


def scratch_writer_bytes(case: Case) -> float:
    """Returns the memory of a worker that reads a shard out of all runs."""
    found = occupied(case.shard_records, case.ranges)
    return BASE_BYTES + case.ranges * RUN_BYTES + gather_bytes(case, found)


CASES = (
    Case("100 GB", TB // 10),
    Case("1 TB", TB),
    Case("10 TB", 10 * TB),
    Case("10 TB, 1 GiB", 10 * TB, GIB),
)


def human(number: float, unit: str = "") -> str:
    """Returns three digits and a decimal prefix.

    >>> human(59_605), human(1.8e13, "B"), human(7451), human(0.22)
    ('59.6 k', '18.0 TB', '7.45 k', '0.22')
    """
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if number < 999.5 or prefix == "E":
            break
        number /= 1000
    if number < 1:
        digits = f"{number:.2f}"
    elif number == int(number) and not prefix:
        digits = f"{number:.0f}"
    else:
        digits = f"{number:#.3g}".rstrip(".")
    return f"{digits} {prefix}{unit}".strip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(row)} |" for row in lines]


def map_cases(function: Callable[[Case], float]) -> list[float]:
    return [function(case) for case in CASES]


def limits_table() -> list[str]:
    """Returns what there is, and what it takes, for each case."""

    def row(name: str, unit: str, numbers: Sequence[float]) -> list[str]:
        return [name, *(human(number, unit) for number in numbers)]

    found = [lookups(case) for case in CASES]
    reads = [
        one.reads + slice_reads(case) for one, case in zip(found, CASES, strict=True)
    ]
    pieces = [pieces_of(case) for case in CASES]
    moved = [shuffled_bytes(case) for case in CASES]
    files = [case.launcher_bytes(case.input_bytes / FILE_BYTES) for case in CASES]
    images = [case.launcher_bytes(case.records) for case in CASES]
    return table(
        ["", *(case.name for case in CASES)],
        [
            row("records", "", [case.records for case in CASES]),
            row("ranges", "", [case.ranges for case in CASES]),
            row("shards", "", [case.shards for case in CASES]),
            row("buckets of a shard", "", [c.buckets / c.shards for c in CASES]),
            row("the job's graph", "B", [case.graph_bytes for case in CASES]),
            row("memory: launcher, tables", "B", files),
            row("memory: launcher, a file for each record", "B", images),
            row("memory: the worker that plans", "B", [c.planner_bytes for c in CASES]),
            row("engine: pieces", "", pieces),
            row("engine: memory of a writer", "B", map_cases(engine_writer_bytes)),
            row(
                "engine: $ of a managed shuffle",
                "",
                [each / 1e9 * DOLLARS_PER_SHUFFLED_GB for each in moved],
            ),
            row("scratch: reads", "", reads),
            row("scratch: read of indexes", "B", [one.read_bytes for one in found]),
            row("scratch: memory of a writer", "B", map_cases(scratch_writer_bytes)),
            row(
                "scratch: $ of reads in an object store",
                "",
                [each / 1e6 * DOLLARS_PER_MILLION_READS for each in reads],
            ),
        ],
    )
