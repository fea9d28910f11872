"""The real planner with 100 million records and 10,000 shards: time, memory, balance.

    python tests/bench/simulate.py [--records 100000000] [--shards 10000]

Records come in ranges as a run has them: each range's keys are seeded hashes of origins
(recordmill.transforms.exchange.keys), its sizes are skewed (lognormal, and a few records of megabytes; ranges
differ from each other, too), its histogram is added to the sum as the pipeline does, and
plan_shards cuts the sum. Then every record is put into its shard by its own key, and what
the shards really hold is compared with the plan, and with the promise: no shard is off
its fair share by more than a bucket of the histogram holds. Exit status 1 if one is.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from recordmill.schemas.job import Sharding
from recordmill.schemas.ranges import SplitPlan
from recordmill.transforms.exchange.keys import shuffle_keys
from recordmill.transforms.exchange.plan import (
    Histogram,
    bucket_bits,
    packed_histogram,
    plan_shards,
)

RANGE_RECORDS = 1 << 20  # of one range here; a plan does not see how rows were cut
MEAN_BYTES = 10_000
LARGE_SHARE = 1e-5
LARGE_BYTES = 4_000_000
FRAME_BYTES = 16


@dataclass(frozen=True)
class Simulated:
    """What came of it; sizes in bytes."""

    records: int
    bytes: int
    shards: int
    buckets: int
    histogram_seconds: float
    plan_seconds: float
    peak_bytes: int  # memory of the process
    smallest: int  # of the shards
    largest: int
    off: int  # by which a shard is off its fair share, at most
    grain: int  # of the fullest bucket: what it may be off
    largest_record: int

    @property
    def skew(self) -> float:
        return self.largest / self.smallest

    @property
    def keeps_promise(self) -> bool:
        return self.off <= self.grain


def record_sizes(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Sizes of a range's records: skewed, some of them huge, and ranges differ."""
    mean = MEAN_BYTES * rng.uniform(0.2, 1.8)
    sigma = 1.0
    sizes = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    large = rng.random(count) < LARGE_SHARE
    sizes[large] = LARGE_BYTES * rng.uniform(0.5, 1.0, int(large.sum()))
    return sizes.astype(np.int64) + FRAME_BYTES


def ranges(
    records: int, seed: int
) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
    """Order keys and sizes of each range; the same each time for the same seed."""
    for start in range(0, records, RANGE_RECORDS):
        count = min(RANGE_RECORDS, records - start)
        rng = np.random.default_rng([seed, start])
        origins = np.arange(start, start + count, dtype=np.uint64)
        yield shuffle_keys(origins, seed), record_sizes(rng, count)


def simulate(records: int, shards: int, seed: int = 0) -> Simulated:
    """Plans, and weighs what the plan makes of the records."""
    sharding = Sharding(num_shards=shards)
    bits = bucket_bits(sharding, records * MEAN_BYTES)
    total = Histogram.empty(1, bits)
    histogram_seconds = 0.0
    largest_record = 0
    for keys, sizes in ranges(records, seed):
        start = time.perf_counter()
        splits = np.zeros(len(keys), np.uint8)
        total.add(packed_histogram(keys, splits, sizes, 1, bits))
        histogram_seconds += time.perf_counter() - start
        largest_record = max(largest_record, int(sizes.max()))
    start = time.perf_counter()
    (plan,) = plan_shards(total, sharding, ["train"]).splits
    plan_seconds = time.perf_counter() - start
    weighed, counted = weigh(plan, records, seed)
    if weighed.tolist() != list(plan.shard_bytes):
        raise AssertionError("shards do not hold the bytes that were planned")
    if counted.tolist() != list(plan.shard_records):
        raise AssertionError("shards do not hold the records that were planned")
    fair = weighed.sum() / plan.num_shards
    return Simulated(
        records=records,
        bytes=int(weighed.sum()),
        shards=plan.num_shards,
        buckets=1 << bits,
        histogram_seconds=round(histogram_seconds, 2),
        plan_seconds=round(plan_seconds, 4),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        smallest=int(weighed.min()),
        largest=int(weighed.max()),
        off=int(np.abs(weighed - fair).max()),
        grain=int(total.bytes.max()),
        largest_record=largest_record,
    )


def weigh(
    plan: SplitPlan, records: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Bytes and records of each shard, each record put there by its own key."""
    starts = np.array(plan.bounds[:-1], np.uint64)
    planned_bytes = np.zeros(plan.num_shards, np.int64)
    counts = np.zeros(plan.num_shards, np.int64)
    for keys, sizes in ranges(records, seed):
        shard = np.searchsorted(starts, keys, side="right") - 1
        np.add.at(planned_bytes, shard, sizes)
        counts += np.bincount(shard, minlength=plan.num_shards)
    return planned_bytes, counts


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--shards", type=int, default=10_000)
    given = parser.parse_args(argv)
    found = simulate(given.records, given.shards)
    facts = {**asdict(found), "skew": round(found.skew, 4)}
    for name, value in facts.items():
        print(f"{name:20} {value:>20,}")
    if found.keeps_promise:
        return 0
    print(
        f"a shard is off its fair share by {found.off:,} bytes, a bucket has "
        f"{found.grain:,} at most",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
