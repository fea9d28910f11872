"""The sums for 1 TB, 10 TB and 1 PB: `python tests/bench/scale.py` prints their tables.

docs/scale.md holds what this prints; a test compares the two. Sizes come from the
code's own constants and functions, rates from its measurements; what is assumed stands
in one block below, and nothing else is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.job import DEFAULT_SHARD_BYTES, Sharding
from transforms.exchange.gather import WINDOW_BYTES
from transforms.plan import bucket_bits
from transforms.run.estimate import INDEX_BYTES, READ_RATES, REFER_RATES, WRITE_RATE
from transforms.sources.base import RANGE_BYTES
from transforms.sources.images import FILES_PER_RANGE

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

# Measured on two cores and a local disk. Of objects by test_scale.py; of a run as the peak
# of one that converts 522 MB of CIFAR into scratch: 335 MB with two workers and ranges of
# 16 MiB, 362 and 766 MB with one worker and ranges of 64 and 256 MiB.
BASE_BYTES = 156_000_000  # of the imports
WORK_BYTES = 55_000_000  # of a worker with a range at work ...
WORK_PER_RANGE_BYTE = 2.3  # ... and more for each byte of it
INPUT_FILE_BYTES = 320  # in the launcher's memory
INPUT_RANGE_BYTES = 410
INPUT_RANGE_GRAPH_BYTES = 285  # in the job's graph, where ranges stand twice
RANGE_RESULT_BYTES = 1_600  # in the memory of all that have the list of results
PIECE_BYTES = 40  # of each record of a shard, while its pieces are gathered
INDEX_FILE_SECONDS = 10e-6  # to open a run's index in the page cache ...
INDEX_RATE = 2e9  # ... and to read and check it, bytes a second


@dataclass(frozen=True)
class Case:
    """One dataset.

    Attributes:
      name: of the column.
      input_bytes: of the dataset.
      shard_bytes: asked for.
      range_bytes: of input ranges.
      datasets: how many of the kind make up the whole.
    """

    name: str
    input_bytes: int
    shard_bytes: int = DEFAULT_SHARD_BYTES
    range_bytes: int = RANGE_BYTES
    datasets: int = 1

    @property
    def sharding(self) -> Sharding:
        return Sharding(shard_bytes=self.shard_bytes)

    @property
    def records(self) -> int:
        return self.input_bytes // RECORD_BYTES

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
    def work_bytes(self) -> float:
        """Memory of a worker with a range at work."""
        return WORK_BYTES + WORK_PER_RANGE_BYTE * self.range_bytes

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
    return replace(case, range_bytes=FILES_PER_RANGE * RECORD_BYTES)


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


def index_reads(case: Case) -> float:
    """Each shard opens the index of every run, to find its slice of it."""
    return case.shards * case.ranges


def index_read_bytes(case: Case) -> float:
    return case.shards * case.records * INDEX_BYTES


def slice_reads(case: Case) -> float:
    """Each window of a shard reads one slice of every run that has records in it."""
    windows = math.ceil(case.shard_size / WINDOW_BYTES)
    return case.shards * windows * occupied(case.shard_records / windows, case.ranges)


def scratch(case: Case, source: str = "csv") -> Sums:
    """Sorted runs, read by slices."""
    indexes = index_reads(case)
    find = indexes * INDEX_FILE_SECONDS + index_read_bytes(case) / INDEX_RATE
    gather = case.shard_records * PIECE_BYTES + 2 * WINDOW_BYTES
    return Sums(
        reads=indexes + slice_reads(case),
        read_bytes=index_read_bytes(case) + case.input_bytes,
        elements=0,
        shuffled_bytes=0,
        launcher_bytes=launcher_bytes(case, case.input_bytes / FILE_BYTES),
        planner_bytes=BASE_BYTES + 2 * case.dense_bytes + case.results_bytes,
        worker_bytes=BASE_BYTES + case.results_bytes + max(case.work_bytes, gather),
        cpu_seconds=case.input_bytes / READ_RATES[source] + find + write_seconds(case),
    )


def reference(case: Case, source: str = "images") -> Sums:
    """Runs of references; the shard's writer reads each record's own file."""
    indexes = index_reads(case)
    find = indexes * INDEX_FILE_SECONDS + index_read_bytes(case) / INDEX_RATE
    gather = case.shard_records * PIECE_BYTES + 2 * WINDOW_BYTES
    return Sums(
        reads=indexes + slice_reads(case) + case.records,
        read_bytes=index_read_bytes(case) + case.input_bytes,
        elements=0,
        shuffled_bytes=0,
        launcher_bytes=launcher_bytes(case, case.records),
        planner_bytes=BASE_BYTES + 2 * case.dense_bytes + case.results_bytes,
        worker_bytes=BASE_BYTES + case.results_bytes + max(case.work_bytes, gather),
        cpu_seconds=case.input_bytes / REFER_RATES[source]
        + case.input_bytes / READ_RATES[source]
        + find
        + write_seconds(case),
    )


def engine(case: Case, source: str = "csv") -> Sums:
    """Two passes over the input; pieces inline through the runner's shuffle.

    The first one measures, and sends a histogram of each range without its empty
    buckets; the second one converts again, knows the plan, and sends pieces.
    """
    pieces = case.ranges * occupied(case.range_records, case.shards)
    return Sums(
        reads=case.input_bytes / case.range_bytes,  # each range a second time
        read_bytes=case.input_bytes,
        elements=pieces,
        shuffled_bytes=case.input_bytes,
        launcher_bytes=launcher_bytes(case, case.input_bytes / FILE_BYTES),
        planner_bytes=BASE_BYTES + 2 * case.dense_bytes + case.results_bytes,
        worker_bytes=BASE_BYTES
        + max(case.work_bytes, case.shard_size + case.shard_records * PIECE_BYTES),
        cpu_seconds=2 * case.input_bytes / READ_RATES[source]
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
        ["buckets for each", *(human(case.buckets / case.shards) for case in CASES)],
        [
            "ranges in the graph",
            *(human(case.ranges * INPUT_RANGE_GRAPH_BYTES, "B") for case in CASES),
        ],
        ["facts of ranges", *(human(case.results_bytes, "B") for case in CASES)],
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
        ]
    else:
        rows += [
            ["indexes opened", *(human(index_reads(case)) for case in cases)],
            [
                "bytes of indexes",
                *(human(index_read_bytes(case), "B") for case in cases),
            ],
            ["slices read", *(human(slice_reads(case)) for case in cases)],
            [
                "bytes of a slice",
                *(human(case.input_bytes / slice_reads(case), "B") for case in cases),
            ],
        ]
    if name == "reference":
        del rows[-1]  # of references, which are short
        rows.append(["files read", *(human(case.records) for case in cases)])
    rows += [
        ["memory, launcher", *(human(one.launcher_bytes, "B") for one in sums)],
        ["memory, planner", *(human(one.planner_bytes, "B") for one in sums)],
        ["memory, worker", *(human(one.worker_bytes, "B") for one in sums)],
        ["vCPU hours", *(human(one.vcpu_hours) for one in sums)],
        [f"hours on {VCPUS}", *(human(one.vcpu_hours / VCPUS) for one in sums)],
        ["$", *(human(one.dollars) for one in sums)],
    ]
    return table([f"**{name}**", *(case.name for case in CASES)], rows)


def reach_table() -> list[str]:
    """How large a dataset may grow before the scratch exchange reads more than it is."""
    head = ["records of", "indexes outweigh records from", "the same, 1 GiB shards"]
    rows = []
    for record in (400, 3_000, 10_000, 100_000):
        shards = record / INDEX_BYTES  # each shard reads all indexes
        sizes = (shards * DEFAULT_SHARD_BYTES, shards * GIB)
        rows.append([human(record, "B"), *(human(size, "B") for size in sizes)])
    return table(head, rows)


def tables() -> str:
    """All tables, as they stand in docs/scale.md."""
    blocks = [cut_table(), *map(exchange_table, EXCHANGES), reach_table()]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


if __name__ == "__main__":
    print(tables(), end="")
