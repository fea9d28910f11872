"""Estimates for 1 TB, 10 TB and 1 PB: `python tests/bench/scale.py` prints the tables.

docs/scale.md holds what this prints; a test compares the two. Sizes come from the
code's own constants and functions, rates from its measurements; what is assumed stands
in one block below, and nothing else is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recordmill.schemas.job.job_spec import DEFAULT_SHARD_BYTES, Sharding
from recordmill.transforms.exchange.merge import WINDOW_BYTES
from recordmill.transforms.exchange.messages import PIECE_BYTES, PIECE_HEAD_BYTES
from recordmill.transforms.exchange.plan import bucket_bits
from recordmill.transforms.exchange.sorted_run_index import READ_WHOLE_BYTES, _Layout
from recordmill.transforms.sources.base import RANGE_BYTES
from recordmill.transforms.sources.cifar.source import CifarSource
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images import cut_pictures
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.tasks.estimate import WRITE_RATE
from recordmill.transforms.tasks.send_range import BLOCK_BYTES

SOURCES = {"csv": CsvSource, "cifar": CifarSource, "images": ImagesSource}
TB = 10**12
GIB = 1 << 30

# Assumed.
RECORD_BYTES = 10_000  # a small picture, a wide row; in the input and in the shard
FILE_BYTES = 256_000_000  # of an input of tables; pictures are a file each
SPLITS = 1
EFFICIENCY = 0.5  # of a vCPU in a cluster, by one that does nothing else here
ELEMENT_SECONDS = 10e-6  # to hand one element to a shuffle and take it out again
DOLLARS_PER_VCPU_HOUR = 0.07  # with 4 GB of memory
DOLLARS_PER_SHUFFLED_GB = 0.011
DOLLARS_PER_MILLION_READS = 0.40  # of an object store
VCPUS = 200

# Measured on two cores and a local disk. Of objects by test_scale.py; of a worker by
# worker_memory.py on a CSV with 40 columns: with ranges of 16, 64 and 256 MiB scratch
# peaks at 359, 588 and 1,090 MiB, engine at 372, 448 and 643 MiB. Seconds to find and to
# read slices are processor time of gather, with 60 to 600 runs of 168 to 41,943 records.
BASE_BYTES = 168_000_000  # of the imports
WORK_BYTES = {"scratch": 130e6, "reference": 130e6, "engine": 200e6}  # of a range ...
WORK_PER_RANGE_BYTE = {"scratch": 3.1, "reference": 0.0, "engine": 1.2}  # ... and more
INPUT_FILE_BYTES = 320  # in the launcher's memory
INPUT_RANGE_BYTES = 410
INPUT_RANGE_GRAPH_BYTES = 285  # in the job's graph, where ranges stand twice
RANGE_RESULT_BYTES = 1_600  # in the memory of all that have the list of results
SHARD_RECORD_BYTES = 100  # in a writer's memory, of each record of its shard ...
SHARD_PIECE_BYTES = 700  # ... and of each piece, while they are gathered
WINDOWS_HELD = 3  # by a writer: the one written, the next one as read and as ordered
FIND_SECONDS = 25e-6  # to find a shard in a run's index in the page cache ...
FIND_BLOCK_SECONDS = 0.13e-6  # ... and more for each block of the index
SLICE_SECONDS = 30e-6  # to read a slice in the page cache, and to put it in its place


@dataclass(frozen=True)
class Case:
    """One dataset.

    Attributes:
      name: of the column.
      input_bytes: of the dataset.
      shard_bytes: asked for.
      range_bytes: of input ranges.
      datasets: how many of the kind make up the whole.
      record_bytes: of a record, in the input and in the shard.
    """

    name: str
    input_bytes: int
    shard_bytes: int = DEFAULT_SHARD_BYTES
    range_bytes: int = RANGE_BYTES
    datasets: int = 1
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
        return self.sharding.shards_for(self.input_bytes, self.records)

    @property
    def shard_size(self) -> float:
        """What a shard really has: there are never more than 99,999."""
        return self.input_bytes / self.shards

    @property
    def buckets(self) -> int:
        """Of the histogram."""
        return 1 << bucket_bits(self.sharding, self.input_bytes)

    @property
    def range_records(self) -> float:
        return self.records / self.ranges

    @property
    def shard_records(self) -> float:
        return self.records / self.shards

    @property
    def dense_bytes(self) -> int:
        """Of one histogram with all its buckets: bytes and records, u64 each."""
        return 2 * 8 * self.buckets * SPLITS

    @property
    def results_bytes(self) -> int:
        """The facts of all ranges, wherever they are a list."""
        return self.ranges * RANGE_RESULT_BYTES


def occupied(throws: float, boxes: float) -> float:
    """How many of the boxes have something in them after so many throws, on average.

    >>> round(occupied(1, 10), 9), round(occupied(1e9, 10))
    (1.0, 10)
    """
    return boxes * -math.expm1(throws * math.log1p(-1 / boxes)) if boxes > 1 else 1.0


def of_files(case: Case) -> Case:
    """The same with ranges of files, as pictures have them, a file for each record."""
    return replace(
        case,
        range_bytes=min(
            cut_pictures.FILES_PER_RANGE * case.record_bytes, cut_pictures.RANGE_BYTES
        ),
    )


@dataclass(frozen=True)
class Sums:
    """What an exchange moves, holds and costs for one dataset.

    Attributes:
      reads: ranged reads and file reads beyond those of the input itself.
      read_bytes: what they read.
      elements: pieces in the runner's shuffle.
      shuffled_bytes: what goes through it.
      launcher_bytes: memory.
      planner_bytes: memory of the one worker that plans.
      worker_bytes: memory of one worker at its most.
      cpu_seconds: of all workers.
    """

    reads: float
    read_bytes: float
    elements: float
    shuffled_bytes: float
    launcher_bytes: float
    planner_bytes: float
    worker_bytes: float
    cpu_seconds: float

    @property
    def vcpu_hours(self) -> float:
        return self.cpu_seconds / EFFICIENCY / 3600

    @property
    def dollars(self) -> float:
        return (
            self.vcpu_hours * DOLLARS_PER_VCPU_HOUR
            + self.shuffled_bytes / 1e9 * DOLLARS_PER_SHUFFLED_GB
            + self.reads / 1e6 * DOLLARS_PER_MILLION_READS
        )


def launcher_bytes(case: Case, files: float) -> float:
    return BASE_BYTES + files * INPUT_FILE_BYTES + case.ranges * INPUT_RANGE_BYTES


def write_seconds(case: Case) -> float:
    return case.input_bytes / WRITE_RATE


@dataclass(frozen=True)
class Lookups:
    """How all shards find their records in the indexes of all runs.

    Attributes:
      finds: of a shard in a run.
      reads: one or two for each.
      read_bytes: of all reads.
      blocks: of one index.
    """

    finds: float
    reads: float
    read_bytes: float
    blocks: int

    @property
    def seconds(self) -> float:
        return self.finds * (FIND_SECONDS + FIND_BLOCK_SECONDS * self.blocks)


def lookups(case: Case) -> Lookups:
    """What find_records does, where order keys are evenly spread."""
    layout = _Layout.of((max(1, round(case.range_records)),))
    starts = np.array(layout.starts)
    # The places of first keys stand for them, and places of bounds for bounds.
    first_keys, records = layout.edges[:-1], layout.edges[-1]
    bounds = np.arange(case.shards + 1) * (records / case.shards)
    inner = np.maximum(0, np.searchsorted(first_keys, bounds[:-1]) - 1)
    outer = np.searchsorted(first_keys, bounds[1:])
    at_once = max(layout.head_bytes, min(READ_WHOLE_BYTES, layout.starts[-1]))
    again = starts[outer] > at_once
    more = float((starts[outer] - starts[inner])[again].sum())
    return Lookups(
        finds=case.shards * case.ranges,
        reads=(case.shards + int(again.sum())) * case.ranges,
        read_bytes=(case.shards * at_once + more) * case.ranges,
        blocks=len(first_keys),
    )


def slice_reads(case: Case) -> float:
    """Each window of a shard reads one slice of every run that has records in it."""
    windows = math.ceil(case.shard_size / WINDOW_BYTES)
    return case.shards * windows * occupied(case.shard_records / windows, case.ranges)


def gather_bytes(case: Case, pieces: float) -> float:
    """Memory of a shard's writer beside bodies that it holds whole."""
    return (
        case.shard_records * SHARD_RECORD_BYTES
        + pieces * SHARD_PIECE_BYTES
        + WINDOWS_HELD * WINDOW_BYTES
    )


def range_bytes(case: Case, exchange: str) -> float:
    """Memory of a worker with a range at work."""
    return WORK_BYTES[exchange] + WORK_PER_RANGE_BYTE[exchange] * case.range_bytes


def planner_bytes(case: Case) -> float:
    """Memory of the one worker that adds up histograms and plans."""
    return BASE_BYTES + 2 * case.dense_bytes + case.results_bytes


def runs_bytes(case: Case, exchange: str) -> float:
    """Memory of a worker that has the list of all runs."""
    found = occupied(case.shard_records, case.ranges)
    at_work = max(range_bytes(case, exchange), gather_bytes(case, found))
    return BASE_BYTES + case.results_bytes + at_work


def scratch(case: Case, source: str = "csv") -> Sums:
    """Sorted runs, read by slices."""
    found, slices = lookups(case), slice_reads(case)
    return Sums(
        reads=found.reads + slices,
        read_bytes=found.read_bytes + case.input_bytes,
        elements=0,
        shuffled_bytes=0,
        launcher_bytes=launcher_bytes(case, case.input_bytes / FILE_BYTES),
        planner_bytes=planner_bytes(case),
        worker_bytes=runs_bytes(case, "scratch"),
        cpu_seconds=case.input_bytes / SOURCES[source].read_rate
        + found.seconds
        + slices * SLICE_SECONDS
        + write_seconds(case),
    )


def reference(case: Case, source: str = "images") -> Sums:
    """Runs of references; the shard's writer reads each record's own file."""
    found, slices = lookups(case), slice_reads(case)
    return Sums(
        reads=found.reads + slices + case.records,
        read_bytes=found.read_bytes + case.input_bytes,
        elements=0,
        shuffled_bytes=0,
        launcher_bytes=launcher_bytes(case, case.records),
        planner_bytes=planner_bytes(case),
        worker_bytes=runs_bytes(case, "reference"),
        cpu_seconds=case.input_bytes / SOURCES[source].reference_rate
        + case.input_bytes / SOURCES[source].read_rate
        + found.seconds
        + slices * SLICE_SECONDS
        + write_seconds(case),
    )


def pieces_of(case: Case) -> float:
    """Each block of a range is cut at shards, and a shard's part where it is too large."""
    blocks = math.ceil(case.range_bytes / BLOCK_BYTES)
    records = case.range_records / blocks
    filled = occupied(records, case.shards)
    in_piece = max(1, PIECE_BYTES // (case.record_bytes + 16))
    cuts = math.ceil(records / filled / in_piece)
    return case.ranges * blocks * filled * cuts


def packed_bytes(case: Case) -> float:
    """Of one range's histogram (Histogram.to_bytes): its filled buckets alone."""
    filled = occupied(case.range_records, case.buckets * SPLITS)
    return 8 * (3 + 3 * filled)


def measure_rate(source: str) -> float:
    """Returns the bytes a second of the first reading; a CSV is converted for it."""
    found = SOURCES[source]
    return found.read_rate if source == "csv" else found.reference_rate


def engine(case: Case, source: str = "csv") -> Sums:
    """Two passes over the input; pieces inline through the runner's shuffle.

    The first one measures: CSV by converting it, fixed-length rows and pictures by what
    is known unread. The second one knows the plan, converts, and sends pieces: each has
    a header, and an order key and a length (u64) for each record.
    """
    pieces = pieces_of(case)
    gathered = case.shard_size + gather_bytes(case, pieces / case.shards)
    return Sums(
        reads=case.input_bytes / case.range_bytes,  # each range a second time
        read_bytes=case.input_bytes,
        elements=pieces,
        shuffled_bytes=case.input_bytes
        + pieces * PIECE_HEAD_BYTES
        + case.records * 2 * 8,
        launcher_bytes=launcher_bytes(case, case.input_bytes / FILE_BYTES),
        planner_bytes=planner_bytes(case),
        worker_bytes=BASE_BYTES + max(range_bytes(case, "engine"), gathered),
        cpu_seconds=case.input_bytes / measure_rate(source)
        + case.input_bytes / SOURCES[source].read_rate
        + pieces * ELEMENT_SECONDS
        + write_seconds(case),
    )


EXCHANGES = {"scratch": scratch, "reference": reference, "engine": engine}
CASES = (
    Case("1 TB", TB),
    Case("10 TB", 10 * TB),
    Case("10 TB, 1 GiB", 10 * TB, GIB, 16 * RANGE_BYTES),
    Case("1 PB", 1000 * TB),
    Case("100 TB, 1 GiB", 100 * TB, GIB, 16 * RANGE_BYTES, datasets=10),
)


def human(number: float, unit: str = "") -> str:
    """Three digits and a decimal prefix.

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


def cut_table() -> list[str]:
    """What ranges, shards and buckets there are."""
    head = ["", *(case.name for case in CASES)]
    rows: list[list[str]] = [
        ["records", *(human(case.records) for case in CASES)],
        ["range", *(human(case.range_bytes, "B") for case in CASES)],
        ["ranges, and runs", *(human(case.ranges) for case in CASES)],
        ["shards", *(human(case.shards) for case in CASES)],
        ["bytes of a shard", *(human(case.shard_size, "B") for case in CASES)],
        ["buckets of a shard", *(human(case.buckets / case.shards) for case in CASES)],
        [
            "ranges in the graph",
            *(human(case.ranges * INPUT_RANGE_GRAPH_BYTES, "B") for case in CASES),
        ],
        ["results of ranges", *(human(case.results_bytes, "B") for case in CASES)],
        ["one histogram", *(human(case.dense_bytes, "B") for case in CASES)],
    ]
    return table(head, rows)


def exchange_table(name: str) -> list[str]:
    """What one exchange moves, holds and costs."""
    cases = [of_files(case) for case in CASES] if name == "reference" else CASES
    sums = [EXCHANGES[name](case) for case in cases]
    rows: list[list[str]] = []
    if name == "engine":
        rows += [
            ["pieces", *(human(one.elements) for one in sums)],
            [
                "bytes of a piece",
                *(human(one.shuffled_bytes / one.elements, "B") for one in sums),
            ],
            ["through the shuffle", *(human(one.shuffled_bytes, "B") for one in sums)],
            [
                "packed histograms",
                *(human(case.ranges * packed_bytes(case), "B") for case in cases),
            ],
        ]
    else:
        found = [lookups(case) for case in cases]
        rows += [
            ["runs x shards", *(human(one.finds) for one in found)],
            ["reads of indexes", *(human(one.reads) for one in found)],
            ["bytes of indexes", *(human(one.read_bytes, "B") for one in found)],
            ["slices read", *(human(slice_reads(case)) for case in cases)],
            [
                "bytes of a slice",
                *(human(case.input_bytes / slice_reads(case), "B") for case in cases),
            ],
        ]
    fixed_length: list[list[str]] = []
    if name == "engine":
        hours = [engine(case, "cifar").vcpu_hours for case in cases]
        fixed_length.append(["of fixed-length rows", *map(human, hours)])
    if name == "reference":
        del rows[-1]  # of references, which are short
        rows.append(["files read", *(human(case.records) for case in cases)])
    rows += [
        ["memory, launcher", *(human(one.launcher_bytes, "B") for one in sums)],
        ["memory, planner", *(human(one.planner_bytes, "B") for one in sums)],
        ["memory, worker", *(human(one.worker_bytes, "B") for one in sums)],
        ["vCPU hours", *(human(one.vcpu_hours) for one in sums)],
        *fixed_length,
        [f"hours on {VCPUS}", *(human(one.vcpu_hours / VCPUS) for one in sums)],
        ["$", *(human(one.dollars) for one in sums)],
    ]
    return table([f"**{name}**", *(case.name for case in CASES)], rows)


def reach(case: Case, beyond: Callable[[Case], bool]) -> float:
    """From how many bytes of input on something holds of such a case, nearly."""
    low, high = 1e8, 1e17
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        if beyond(replace(case, input_bytes=int(middle))):
            high = middle
        else:
            low = middle
    return high


def indexes_outweigh(case: Case) -> bool:
    """Whether shards read more of indexes than of records."""
    return lookups(case).read_bytes > case.input_bytes


def finding_outlasts(case: Case) -> bool:
    """Whether a scratch run of CSV looks into indexes longer than it does all else."""
    seconds = lookups(case).seconds
    return seconds > scratch(case).cpu_seconds - seconds


def reach_table() -> list[str]:
    """Returns the size of dataset from which a scratch run mostly reads indexes."""
    head = [
        "records of",
        "more index than record bytes from",
        "the same, 1 GiB",
        "finding takes half the time from",
    ]
    rows = []
    for record in (400, 3_000, 10_000, 100_000):
        usual = Case("", TB, record_bytes=record)
        large = replace(usual, shard_bytes=GIB, range_bytes=16 * RANGE_BYTES)
        sizes = [
            reach(usual, indexes_outweigh),
            reach(large, indexes_outweigh),
            reach(usual, finding_outlasts),
        ]
        rows.append([human(record, "B"), *(human(size, "B") for size in sizes)])
    return table(head, rows)


def tables() -> str:
    """All tables, as they stand in docs/scale.md."""
    blocks = [cut_table(), *map(exchange_table, EXCHANGES), reach_table()]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


if __name__ == "__main__":
    print(tables(), end="")
