"""Computes the shard plan from a histogram of the order keys; reads no files.

The histogram has the planned bytes for each split and bucket (the high bits of the
order key), summed over all ranges. Shard i of N ends at the bucket edge nearest to i/N
of the split's bytes. A split with 5 buckets and 2 shards:

    bytes     10  0 30 20 40    100 in all, so the first shard should end at 50
    filled    [0, 2, 3, 4]      buckets with records
    edges     [10, 40, 60, 100] bytes up to the end of each; 40 is nearest to 50 (a tie)
    cuts      [0, 2]            the second shard begins at filled[2], bucket 3
    bounds    [0, 3/5 of KEY_SPACE, KEY_SPACE], shard bytes [40, 60]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.schemas.job import Sharding
from recordmill.schemas.ranges import KEY_SPACE, ShardPlan, SplitPlan
from recordmill.transforms.arrow import I64, U64

BUCKETS_PER_SHARD = 1024  # so that shards differ by a thousandth of their size
MIN_BUCKET_BITS = 14
MAX_BUCKET_BITS = 20  # two vectors of 8 MB for each split fit any worker


def bucket_bits(sharding: Sharding, most_bytes: int) -> int:
    """Returns the number of high bits of the order key that number a bucket.

    `most_bytes` is an upper bound on the size of the dataset.
    """
    shards = sharding.count_shards(most_bytes, num_records=max(1, most_bytes))
    bits = (shards * BUCKETS_PER_SHARD - 1).bit_length()
    return max(MIN_BUCKET_BITS, min(MAX_BUCKET_BITS, bits))


PackedHistogram = bytes


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of planned bytes and records for each split and bucket."""

    bytes: npt.NDArray[np.int64]  # int64, shape (splits, buckets)
    records: npt.NDArray[np.int64]  # int64, same shape

    @classmethod
    def empty(cls, num_splits: int, bits: int) -> Histogram:
        shape = (num_splits, 1 << bits)
        return cls(np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    @classmethod
    def sum_of(
        cls, parts: Iterable[PackedHistogram], num_splits: int, bits: int
    ) -> Histogram:
        """Returns the sum of packed histograms of the same shape."""
        total = cls.empty(num_splits, bits)
        for part in parts:
            total.add(part)
        return total

    def merge(self, other: Histogram) -> None:
        """Adds a histogram of the same shape."""
        np.add(self.bytes, other.bytes, out=self.bytes)
        np.add(self.records, other.records, out=self.records)

    def __reduce__(self) -> tuple[Callable[..., Histogram], tuple[Any, ...]]:
        """Returns the pickled form: the filled buckets, in few bytes."""
        return _unpickle_histogram, (
            self.records.shape,
            *map(_narrow_integers, self._filled()),
        )

    def to_bytes(self) -> PackedHistogram:
        """Returns the filled buckets as bytes; small if few buckets are filled.

        Little-endian u64: shape (2), number of filled buckets, their indices in the
        flattened array, their bytes, their records.
        """
        return _pack(self.records.shape, *self._filled())

    def add(self, packed: PackedHistogram) -> None:
        """Adds a histogram of the same shape that was packed by `to_bytes`.

        Raises:
          ValueError: the packed histogram has another shape, or is damaged.
        """
        words = np.frombuffer(packed, "<u8").astype(np.int64)
        *shape, count = words[:3].tolist()
        if tuple(shape) != self.records.shape or len(words) != 3 + 3 * count:
            raise ValueError(
                f"a packed histogram of {len(words)} words and shape {shape}, expected "
                f"{3 + 3 * count} words and shape {list(self.records.shape)}"
            )
        self._add_filled(*words[3:].reshape(3, count))

    def _filled(self) -> tuple[I64, I64, I64]:
        """Returns the filled buckets: their indices, bytes and records."""
        filled = np.flatnonzero(self.records)
        return filled, self.bytes.ravel()[filled], self.records.ravel()[filled]

    def _add_filled(self, filled: I64, num_bytes: I64, num_records: I64) -> None:
        # The indices are distinct, so a plain indexed addition counts each once.
        self.bytes.reshape(-1)[filled] += num_bytes
        self.records.reshape(-1)[filled] += num_records


def _narrow_integers(numbers: I64) -> npt.NDArray[np.integer]:
    """Returns counts in the smallest integer type that can hold them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _unpickle_histogram(
    shape: tuple[int, int], *columns: npt.NDArray[np.integer]
) -> Histogram:
    histogram = Histogram.empty(shape[0], shape[1].bit_length() - 1)
    histogram._add_filled(*(column.astype(np.int64) for column in columns))
    return histogram


def packed_histogram(
    keys: U64,
    splits: npt.NDArray[np.uint8],
    planned_bytes: I64,
    num_splits: int,
    bits: int,
) -> PackedHistogram:
    """Returns the packed histogram of some rows: only the buckets that they fill.

    It is faster for keys of a sorted run.
    """
    buckets = (keys >> np.uint64(64 - bits)).astype(np.int64)
    buckets += splits.astype(np.int64) << bits
    if bool((buckets[1:] < buckets[:-1]).any()):
        order = np.argsort(buckets)
        buckets, planned_bytes = buckets[order], planned_bytes[order]
    firsts = np.flatnonzero(np.diff(buckets, prepend=-1))
    num_bytes = np.add.reduceat(planned_bytes, firsts)
    num_records = np.diff(firsts, append=len(buckets))
    return _pack((num_splits, 1 << bits), buckets[firsts], num_bytes, num_records)


def _pack(shape: tuple[int, ...], *columns: npt.NDArray[np.integer]) -> PackedHistogram:
    head = np.array([*shape, len(columns[0])], "<u8")
    return b"".join([head.tobytes(), *(c.astype("<u8").tobytes() for c in columns)])


def shard_numbers(
    plan: ShardPlan, keys: U64, splits: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    """Returns the number of each row's shard, numbered as in `ShardPlan.task`."""
    numbers = np.zeros(len(keys), np.int64)
    first = 0
    for index, split in enumerate(plan.splits):
        rows = np.flatnonzero(splits == index)
        inner = np.array(split.bounds[1:-1], np.uint64)
        numbers[rows] = first + np.searchsorted(inner, keys[rows], side="right")
        first += split.num_shards
    return numbers


def plan_shards(
    histogram: Histogram, sharding: Sharding, split_names: Sequence[str]
) -> ShardPlan:
    """Returns the plan that cuts splits into nonempty shards of nearly equal size."""
    return ShardPlan(
        tuple(
            plan_split(name, histogram.bytes[i], histogram.records[i], sharding)
            for i, name in enumerate(split_names)
        )
    )


def plan_split(
    name: str, bucket_bytes: I64, bucket_records: I64, sharding: Sharding
) -> SplitPlan:
    """Returns the plan of one split from its row of the histogram."""
    filled = np.flatnonzero(bucket_records)
    num_bytes, num_records = int(bucket_bytes.sum()), int(bucket_records.sum())
    num_shards = min(sharding.count_shards(num_bytes, num_records), len(filled))
    if num_shards == 0:
        return SplitPlan(name, (), (), ())
    edges = np.cumsum(bucket_bytes[filled])  # bytes up to the end of each bucket
    cuts = [0]  # index into `filled` where each shard starts
    for shard in range(1, num_shards):
        target = num_bytes * shard // num_shards
        nearest = _nearest_edge(edges, target) + 1
        # Every shard keeps a filled bucket, before this cut and after it.
        cuts.append(min(max(nearest, cuts[-1] + 1), len(filled) - num_shards + shard))
    bucket_size = KEY_SPACE // len(bucket_bytes)
    bounds = [0, *(int(filled[cut]) * bucket_size for cut in cuts[1:]), KEY_SPACE]
    shard_bytes = np.add.reduceat(bucket_bytes[filled], cuts)
    shard_records = np.add.reduceat(bucket_records[filled], cuts)
    return SplitPlan(
        name, tuple(bounds), tuple(shard_bytes.tolist()), tuple(shard_records.tolist())
    )


def _nearest_edge(edges: I64, target: int) -> int:
    edge_index = int(
        np.searchsorted(edges, target)
    )  # the last edge is at least the target
    if edge_index and target - edges[edge_index - 1] <= edges[edge_index] - target:
        return edge_index - 1
    return edge_index
