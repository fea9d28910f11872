"""Defines shard plans, their tasks, and the shards that were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recordmill.schemas.input_files import NO_CHECKSUMS, TaskChecksums
from recordmill.schemas.ranges import NO_REJECTS, RejectTotals, RowIssue, TypeFlags

KEY_SPACE = 1 << 64  # order keys are u64


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Where one split is cut into shards."""

    split: str  # name of the split
    # order keys, one more than there are shards; shard i holds the keys bounds[i] <=
    # key < bounds[i + 1]; the first is 0, the last 2**64
    bounds: tuple[int, ...]
    shard_bytes: tuple[int, ...]  # planned bytes of each shard
    shard_records: tuple[int, ...]  # planned records of each shard

    def __post_init__(self) -> None:
        if len(self.shard_records) != self.num_shards:
            raise ValueError(
                f"split {self.split}: {self.num_shards} shards with bytes, "
                f"{len(self.shard_records)} with records"
            )
        if self.num_shards == 0:
            if self.bounds:
                raise ValueError(f"split {self.split}: bounds without shards")
            return
        if len(self.bounds) != self.num_shards + 1:
            raise ValueError(
                f"split {self.split}: {self.num_shards} shards need "
                f"{self.num_shards + 1} bounds, got {len(self.bounds)}"
            )
        rising = all(a < b for a, b in zip(self.bounds, self.bounds[1:], strict=False))
        if not rising or self.bounds[0] != 0 or self.bounds[-1] != KEY_SPACE:
            raise ValueError(
                f"split {self.split}: bounds must rise from 0 to 2**64, "
                f"got {self.bounds}"
            )
        if min(self.shard_records) < 1:
            raise ValueError(f"split {self.split}: an empty shard was planned")

    @property
    def num_shards(self) -> int:
        return len(self.shard_bytes)


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The plans of all splits, in the job's split order."""

    splits: tuple[SplitPlan, ...]

    @property
    def num_shards(self) -> int:
        return sum(split.num_shards for split in self.splits)

    def task(self, number: int) -> ShardTask:
        """Returns the shard of a number, counted from 0, split after split."""
        for split_index, split in enumerate(self.splits):
            if number < split.num_shards:
                return ShardTask(
                    split=split.split,
                    split_index=split_index,
                    shard_index=number,
                    num_shards=split.num_shards,
                    low=split.bounds[number],
                    high=split.bounds[number + 1],
                )
            number -= split.num_shards
        raise IndexError(f"there are {self.num_shards} shards")

    def rows_of(self, number: int) -> int:
        """Returns the planned records of the shard of that number."""
        task = self.task(number)
        return self.splits[task.split_index].shard_records[task.shard_index]

    def tasks(self) -> list[ShardTask]:
        """Returns a task for each shard, largest first, so that a small one ends last."""
        size = {
            (split_index, shard): planned
            for split_index, split in enumerate(self.splits)
            for shard, planned in enumerate(split.shard_bytes)
        }
        tasks = [self.task(number) for number in range(self.num_shards)]
        return sorted(tasks, key=lambda t: -size[t.split_index, t.shard_index])


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard to write: the records of a split with low <= order key < high."""

    split: str
    split_index: int
    shard_index: int
    num_shards: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The index file of a shard, as it was written: its bytes and their CRC-32C."""

    bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard that was written."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # as of RangeResult

    split: str  # name of the split
    shard_index: int  # position of the shard in its split
    file: str  # file name
    records: int  # number of records
    bytes: int  # size of the file as stored
    example_bytes: int  # sum of the serialized examples, without frames
    crc32c: int  # CRC-32C of the file as stored
    # rows found unusable only now (exchange by reference)
    rejects: RejectTotals = NO_REJECTS
    observed_types: TypeFlags = ()  # type flags of rows that were read only now
    issues: tuple[RowIssue, ...] = ()  # what the end of the run tells of these rows
    checksums: TaskChecksums = NO_CHECKSUMS  # of what was read only now
    index: IndexResult | None = None  # its index file, if the job asks for one
