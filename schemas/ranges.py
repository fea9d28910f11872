"""Defines what a run is cut into: input ranges, planned shards, and what became of them."""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate, chain, islice, pairwise
from typing import Any, Literal

from recordmill.schemas.input_files import (
    NO_CHECKSUMS,
    InputFile,
    Seen,
    TaskChecksums,
    as_call,
)
from recordmill.schemas.text import count

Bytes = bytes  # the type; in the class below it is the name of an attribute

_DIGEST_SPACE = 1 << 64


def pack(value: Any) -> bytes:
    """Returns a value as a runner passes it on: lists of much the same take little."""
    return zlib.compress(pickle.dumps(value), 1)


def unpack(packed: bytes | memoryview) -> Any:
    """Returns what `pack` got."""
    return pickle.loads(zlib.decompress(packed))


def pack_long(values: Iterable[Any]) -> bytes:
    """Packs a long list in parts: of 600,000 runs, all at once would take 0.4 GB."""
    left = iter(values)
    return pack([pack(part) for part in iter(lambda: list(islice(left, 1 << 14)), [])])


def unpack_long(packed: bytes) -> Iterator[Any]:
    """Yields what `pack_long` got."""
    return chain.from_iterable(map(unpack, unpack(packed)))


@dataclass(frozen=True, slots=True)
class RejectTotals:
    """The number of some rejects and a digest of them.

    Which files they are in, and in which order, depends on the exchange. So the digest
    is a sum over all lines; the totals of two tasks or parts add up to those of both.
    """

    rows: int = 0  # number of rejects, each of which is a line
    bytes: int = 0  # of all lines, with their ends
    digest: int = 0  # sum of a 64-bit hash of each line, modulo 2**64
    __reduce__ = as_call

    def __add__(self, other: RejectTotals) -> RejectTotals:
        return RejectTotals(
            self.rows + other.rows,
            self.bytes + other.bytes,
            (self.digest + other.digest) % _DIGEST_SPACE,
        )

    @classmethod
    def of(cls, data: Bytes) -> RejectTotals:
        """Returns the totals of a file of rejects."""
        digest = 0
        lines = data.split(b"\n")
        for line in lines[:-1]:  # few: a reject costs much more elsewhere
            hashed = blake2b(line, digest_size=8).digest()
            digest += int.from_bytes(hashed, "little")
        return cls(len(lines) - 1, len(data), digest % _DIGEST_SPACE)


NO_REJECTS = RejectTotals()


TypeFlags = tuple[int, ...]
"""What the cells of each column were observed to hold (text_columns.TypeFlag), or ()."""


def merge_type_flags(one: TypeFlags, other: TypeFlags) -> TypeFlags:
    """Merges the type flags of two parts of the input; () has seen nothing."""
    if not one or not other:
        return one or other
    return tuple(a | b for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, slots=True)
class InputRange:
    """A part of the input that can be read on its own, cut by constants."""

    # position among all ranges of the run, from 0; fixes ties and input order
    index: int
    path: str  # origin of its rows, relative to the input root
    uri: str  # file to read
    start: int  # first byte (or inventory row) of the range
    stop: int  # end, exclusive
    first_position: int  # position of `start` in the whole input, in the same unit
    total_positions: int  # size of the whole input, in the same unit
    split: str = ""  # the split its file belongs to by the format's own rule, or ""
    # states of the quotes at `start` and `stop` (csv, see quote_states); 0 at a file's
    # start and end
    quoted: tuple[int, int] = (0, 0)
    # byte offset of a quote whose field is never closed (csv), or -1
    unclosed: int = -1
    # size and version of its file; None for a range of several files
    seen: Seen | None = field(default=None, compare=False)
    # the whole files that it holds, one after the other, if they are several and not in
    # an inventory of the source's own; `path` and `uri` are the first's
    files: tuple[InputFile, ...] = ()
    __reduce__ = as_call

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(
                f"{self.path}: a range needs 0 <= start <= stop, "
                f"got {self.start} and {self.stop}"
            )
        if self.first_position + (self.stop - self.start) > self.total_positions:
            raise ValueError(
                f"{self.path}: range ends at position "
                f"{self.first_position + self.stop - self.start}, "
                f"beyond the input's {self.total_positions}"
            )

    @property
    def num_positions(self) -> int:
        return self.stop - self.start

    @property
    def where(self) -> str:
        """Returns where the range is, for messages."""
        if self.files:
            others = count(len(self.files) - 1, "file")
            return f"{self.uri} (or one of the {others} after it)"
        return f"{self.uri}: bytes {self.start} to {self.stop}"

    def by_file(self) -> list[InputRange]:
        """Returns a range for each of its files; of one file, the range itself."""
        if not self.files:
            return [self]
        ends = accumulate(file.size for file in self.files)
        return [
            replace(
                self,
                path=file.path,
                uri=file.uri,
                start=0,
                stop=file.size,
                first_position=self.first_position + end - file.size,
                seen=file.seen,
                files=(),
            )
            for file, end in zip(self.files, ends, strict=True)
        ]


# What is wrong with a row that is rejected; programs read it, as that of a warning.
RejectCode = Literal[
    "row",  # its bytes are no row, record or image
    "value",  # a value is missing, or does not fit its feature
    "label",  # its label or split is not known, or not one
    "map",  # the function of the job refused it
]


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that could not be converted."""

    path: str  # origin, relative to the input root
    position: int  # byte offset of the row in its file
    reason: str  # what was found and what was expected
    raw: bytes  # the row's bytes as they stand in the input
    code: RejectCode = "row"


@dataclass(frozen=True, slots=True)
class RowIssue:
    """What the end of a run tells of rows that were converted."""

    code: str  # what was found
    column: str  # where it was found, if in columns; of images, their format or variant
    count: int  # of rows, cells, files or lines
    example: str  # the first of them
    changes: tuple[str, ...] = ()  # what was changed in them, if they are images

    @staticmethod
    def merged(parts: Iterable[tuple[RowIssue, ...]]) -> tuple[RowIssue, ...]:
        """Adds up equal issues; the same in whatever order the parts come."""
        found: dict[tuple[str, str, tuple[str, ...]], RowIssue] = {}
        for issue in chain.from_iterable(parts):
            kind = issue.code, issue.column, issue.changes
            if other := found.get(kind):
                examples = filter(None, (issue.example, other.example))
                example = min(examples, default="")
                issue = replace(issue, count=issue.count + other.count, example=example)
            found[kind] = issue
        return tuple(found[kind] for kind in sorted(found))


@dataclass(frozen=True, slots=True)
class SortedRunRef:
    """One sorted run, in scratch or in memory."""

    stem: str  # scratch path without the .records and .index endings
    counts: tuple[int, ...]  # records of each split, in the job's split order
    payload_bytes: int  # size of the .records file
    index_crc32c: int  # checksum of the .index file
    payload_crc32c: int  # checksum of the .records file
    # whether the process that made it holds it, and there are no files
    in_memory: bool = False
    # path and link of the file in memory that other processes read it from
    memory_file: tuple[str, str] | None = None
    __reduce__ = as_call


# A checkpoint of a version with other keys is not taken for one without issues.
_NO_OTHER_KEYS = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class RangeResult:
    """A summary of one converted range; small, so that it may pass through the runner."""

    __pydantic_config__ = _NO_OTHER_KEYS

    range: InputRange  # the range converted
    rows_read: int  # rows found, rejects included
    rows_rejected: int  # rows that went to the rejects file
    runs: tuple[SortedRunRef, ...]  # sorted runs written, in row order
    observed_types: TypeFlags = ()  # what each column was observed to hold
    # what each column was taken for when the rows were encoded
    encoded_types: TypeFlags = ()
    nulls: tuple[int, ...] = ()  # missing values of each column
    rejects: RejectTotals = NO_REJECTS  # those in the rejects file
    issues: tuple[RowIssue, ...] = ()  # what the end of the run tells of the rows
    checksums: TaskChecksums = NO_CHECKSUMS  # of what was read
    rows_dropped: int = 0  # rows that a function (`map`) left out
    rows_added: int = 0  # rows that it made beside the first of each
    rows_left_out: int = 0  # rows that sampling left out
    rows_copied: int = 0  # copies that balancing made
    __reduce__ = as_call

    @staticmethod
    def pack(results: Sequence[RangeResult]) -> Bytes:
        """Returns results of ranges side by side as a value that a runner passes on.

        The index of the first range comes first, so packed results are in order once they
        are sorted, and then their number.
        """
        head = _HEAD.pack(results[0].range.index, len(results))
        return head + pack(results)

    @staticmethod
    def unpack(packed: Iterable[Bytes]) -> Collection[RangeResult]:
        """Returns results in the order of their ranges.

        Of very many each is unpacked whenever it comes, and not kept.
        """
        found = _Packed(sorted(packed))
        return found if len(found) > MOST_UNPACKED else list(found)


_HEAD = struct.Struct(">QI")
# A result of a table of 40 columns takes 2 to 4 kB, and packed 320 bytes alone, 50 among
# ten. To unpack these takes 10 microseconds each, and whoever publishes goes through all of
# them 26 times.
MOST_UNPACKED = 100_000


class _Packed(Collection[RangeResult]):
    """Results that stay packed."""

    def __init__(self, packed: list[bytes]) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return sum(_HEAD.unpack_from(packed)[1] for packed in self._packed)

    def __contains__(self, value: object) -> bool:
        return any(each == value for each in self)

    def __iter__(self) -> Iterator[RangeResult]:
        for packed in self._packed:
            yield from unpack(memoryview(packed)[_HEAD.size :])


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
        needed = self.num_shards + 1 if self.num_shards else 0
        if len(self.bounds) != needed:
            raise ValueError(
                f"split {self.split}: {self.num_shards} shards need {needed} bounds, "
                f"got {len(self.bounds)}"
            )
        if not needed:
            return
        rising = all(a < b for a, b in pairwise(self.bounds))
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
        sizes = [size for split in self.splits for size in split.shard_bytes]
        numbers = sorted(range(len(sizes)), key=lambda number: -sizes[number])
        return [self.task(number) for number in numbers]


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

    __pydantic_config__ = _NO_OTHER_KEYS

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
    sha256: str = ""  # of the file, if the dataset gets a card
