"""Defines the units of work of a run, ranges and shards, and their results."""

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
    FileStat,
    InputFile,
    TaskChecksums,
    reduce_to_call,
)
from recordmill.schemas.text import format_count

BytesType = bytes  # the type, because classes below have an attribute `bytes`

_DIGEST_SPACE = 1 << 64


def pack_value(value: Any) -> bytes:
    """Packs a value for the runner; lists of similar values are compressed well."""
    return zlib.compress(pickle.dumps(value), 1)


def unpack_value(packed: bytes | memoryview) -> Any:
    """Unpacks a value that `pack` packed."""
    return pickle.loads(zlib.decompress(packed))


def pack_list(values: Iterable[Any]) -> bytes:
    """Packs a long list in parts; 600,000 runs at once would take 0.4 GB."""
    remaining_values = iter(values)
    return pack_value(
        [
            pack_value(part)
            for part in iter(lambda: list(islice(remaining_values, 1 << 14)), [])
        ]
    )


def unpack_list(packed: bytes) -> Iterator[Any]:
    """Yields the values of a list that `pack_list` packed."""
    return chain.from_iterable(map(unpack_value, unpack_value(packed)))


@dataclass(frozen=True, slots=True)
class RejectTotals:
    """The number, size and digest of a set of rejects.

    The files and the order of rejects depend on the exchange. So the digest is a sum over
    all lines, and the totals of two tasks or parts can be added.
    """

    rows: int = 0  # number of rejects, which is the number of lines
    bytes: int = 0  # size of all lines, including line ends
    digest: int = 0  # sum of a 64-bit hash of each line, modulo 2**64
    __reduce__ = reduce_to_call

    def __add__(self, other: RejectTotals) -> RejectTotals:
        return RejectTotals(
            self.rows + other.rows,
            self.bytes + other.bytes,
            (self.digest + other.digest) % _DIGEST_SPACE,
        )

    @classmethod
    def from_content(cls, content: BytesType) -> RejectTotals:
        """Computes the totals of a rejects file from its content."""
        digest = 0
        lines = content.split(b"\n")
        for line in lines[:-1]:  # other work per reject takes much longer
            hashed = blake2b(line, digest_size=8).digest()
            digest += int.from_bytes(hashed, "little")
        return cls(len(lines) - 1, len(content), digest % _DIGEST_SPACE)


NO_REJECTS = RejectTotals()


TypeFlags = tuple[int, ...]
"""The observed types of the cells of each column (text_columns.TypeFlag), or ()."""


def merge_type_flags(left: TypeFlags, right: TypeFlags) -> TypeFlags:
    """Merges the type flags of two parts of the input; () is no observation."""
    if not left or not right:
        return left or right
    return tuple(a | b for a, b in zip(left, right, strict=True))


@dataclass(frozen=True, slots=True)
class InputRange:
    """A range of the input that a task reads on its own, cut by constants."""

    # position among all ranges of the run, from 0; breaks ties and fixes the input order
    index: int
    path: str  # path in the origin of its rows, relative to the input root
    uri: str  # file to read
    start: int  # first byte (or inventory row) of the range
    stop: int  # end, exclusive
    first_position: int  # position of `start` in the whole input, in the same unit
    total_positions: int  # size of the whole input, in the same unit
    split: str = ""  # split of its file by the rule of the format, or ""
    # quote states at `start` and `stop` for CSV (QuoteState in sources/csv/quotes.py); 0
    # at the start and the end of a file
    quote_states: tuple[int, int] = (0, 0)
    # byte offset of a quote whose field is never closed (CSV), or -1
    unclosed_quote: int = -1
    # size and version of its file; None for a range of several files
    stat: FileStat | None = field(default=None, compare=False)
    # the whole files of the range, in order, if there are several and the source has no
    # inventory of its own; `path` and `uri` belong to the first file
    files: tuple[InputFile, ...] = ()
    __reduce__ = reduce_to_call

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
    def location(self) -> str:
        """Returns the location of the range for messages."""
        if self.files:
            other_files = format_count(len(self.files) - 1, "file")
            return f"{self.uri} (or one of the {other_files} after it)"
        return f"{self.uri}: bytes {self.start} to {self.stop}"

    def split_by_file(self) -> list[InputRange]:
        """Returns a range for each of its files, or itself if it has one file."""
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
                stat=file.stat,
                files=(),
            )
            for file, end in zip(self.files, ends, strict=True)
        ]


# Codes of rejects. Programs read them, like the codes of warnings.
RejectCode = Literal[
    "row",  # the bytes are no row, record or image
    "value",  # a value is missing or does not fit its feature
    "label",  # the label or the split is unknown or invalid
    "map",  # the function of the job rejected the row
]


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that could not be converted."""

    path: str  # path of its file, relative to the input root
    position: int  # byte offset of the row in its file
    reason: str  # the actual and the expected value
    raw: bytes  # bytes of the row in the input
    code: RejectCode = "row"


@dataclass(frozen=True, slots=True)
class RowIssue:
    """An observation about converted rows, which is reported at the end of a run."""

    code: str  # kind of the issue
    column: str  # column with the issue, if any; for images, their format or variant
    count: int  # number of rows, cells, files or lines
    example: str  # the first one of them
    changes: tuple[str, ...] = ()  # changes that were made to images

    @staticmethod
    def merge_issues(parts: Iterable[tuple[RowIssue, ...]]) -> tuple[RowIssue, ...]:
        """Adds up the counts of equal issues; the order of the parts does not matter."""
        issues_by_kind: dict[tuple[str, str, tuple[str, ...]], RowIssue] = {}
        for issue in chain.from_iterable(parts):
            kind = issue.code, issue.column, issue.changes
            if other := issues_by_kind.get(kind):
                examples = filter(None, (issue.example, other.example))
                example = min(examples, default="")
                issue = replace(issue, count=issue.count + other.count, example=example)
            issues_by_kind[kind] = issue
        return tuple(issues_by_kind[kind] for kind in sorted(issues_by_kind))


@dataclass(frozen=True, slots=True)
class SortedRunRef:
    """A reference to a sorted run in scratch or in memory."""

    stem: str  # scratch path without the .records and .index endings
    counts: tuple[int, ...]  # records of each split, in the job's split order
    payload_bytes: int  # size of the .records file
    index_crc32c: int  # checksum of the .index file
    payload_crc32c: int  # checksum of the .records file
    # whether the process that created it holds it in memory, without files
    in_memory: bool = False
    # path and link of the file in memory from which other processes read it
    memory_file: tuple[str, str] | None = None
    __reduce__ = reduce_to_call


# Rejects checkpoints of versions with other keys, instead of dropping the keys.
_NO_OTHER_KEYS = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The result of converting a range, small enough to pass through the runner."""

    __pydantic_config__ = _NO_OTHER_KEYS

    range: InputRange  # the converted range
    rows_read: int  # number of rows, including rejects
    rows_rejected: int  # number of rows in the rejects file
    sorted_runs: tuple[SortedRunRef, ...]  # sorted runs written, in row order
    observed_types: TypeFlags = ()  # observed types of each column
    # types of each column with which the rows were encoded
    encoded_types: TypeFlags = ()
    null_counts: tuple[int, ...] = ()  # number of missing values of each column
    rejects: RejectTotals = NO_REJECTS  # totals of the rejects file
    issues: tuple[RowIssue, ...] = ()  # issues to report at the end of the run
    checksums: TaskChecksums = NO_CHECKSUMS  # checksums of the bytes read
    rows_dropped: int = 0  # number of rows that a function (`map`) dropped
    rows_added: int = 0  # number of extra rows that it created
    rows_sampled_out: int = 0  # number of rows that sampling dropped
    rows_copied: int = 0  # number of copies that balancing added
    __reduce__ = reduce_to_call

    @staticmethod
    def pack(range_results: Sequence[RangeResult]) -> BytesType:
        """Packs the results of consecutive ranges into one value for the runner.

        The value begins with the index of the first range, so that packed results can be
        sorted, and with the number of results.
        """
        head = _RESULT_HEADER.pack(range_results[0].range.index, len(range_results))
        return head + pack_value(range_results)

    @staticmethod
    def unpack(packed: Iterable[BytesType]) -> Collection[RangeResult]:
        """Returns results in the order of their ranges.

        More than MAX_UNPACKED_RESULTS results stay packed, and are unpacked at each iteration.
        """
        range_results = _PackedResults(sorted(packed))
        return (
            range_results
            if len(range_results) > MAX_UNPACKED_RESULTS
            else list(range_results)
        )


_RESULT_HEADER = struct.Struct(">QI")
# A result for a table of 40 columns takes 2 to 4 kB; packed, it takes 320 bytes alone, or
# 50 in a group of ten. Unpacking takes 10 microseconds per result, and publishing reads
# all results 26 times.
MAX_UNPACKED_RESULTS = 100_000


class _PackedResults(Collection[RangeResult]):
    """A collection of range results that stay packed."""

    def __init__(self, packed: list[bytes]) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return sum(_RESULT_HEADER.unpack_from(packed)[1] for packed in self._packed)

    def __contains__(self, value: object) -> bool:
        return any(range_result == value for range_result in self)

    def __iter__(self) -> Iterator[RangeResult]:
        for packed in self._packed:
            yield from unpack_value(memoryview(packed)[_RESULT_HEADER.size :])


KEY_SPACE = 1 << 64  # order keys are u64


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A plan of the shards of one split."""

    split: str  # name of the split
    # order keys, one more than shards; shard i has the keys bounds[i] <= key <
    # bounds[i + 1]; the first bound is 0, the last is 2**64
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
    """A plan of the shards of all splits, in the split order of the job."""

    splits: tuple[SplitPlan, ...]

    @property
    def num_shards(self) -> int:
        return sum(split.num_shards for split in self.splits)

    def task(self, number: int) -> ShardTask:
        """Returns the task for a shard, by its number from 0 over all splits."""
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

    def num_rows_of(self, number: int) -> int:
        """Returns the planned number of records of the shard with this number."""
        task = self.task(number)
        return self.splits[task.split_index].shard_records[task.shard_index]

    def tasks(self) -> list[ShardTask]:
        """Returns a task for each shard, the largest first, so that the last is short."""
        sizes = [size for split in self.splits for size in split.shard_bytes]
        numbers = sorted(range(len(sizes)), key=lambda number: -sizes[number])
        return [self.task(number) for number in numbers]


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A shard to write: the records of a split with low <= order key < high."""

    split: str
    split_index: int
    shard_index: int
    num_shards: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The size in bytes and the CRC-32C of the index file of a shard."""

    bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of writing a shard."""

    __pydantic_config__ = _NO_OTHER_KEYS

    split: str  # name of the split
    shard_index: int  # position of the shard in its split
    file: str  # file name
    records: int  # number of records
    bytes: int  # size of the file as stored
    example_bytes: int  # sum of the serialized examples, without frames
    crc32c: int  # CRC-32C of the file as stored
    # With exchange by reference, rows are read when their shard is written; these fields
    # describe them.
    rejects: RejectTotals = NO_REJECTS  # totals of rows that were rejected then
    observed_types: TypeFlags = ()  # type flags of rows that were read then
    issues: tuple[RowIssue, ...] = ()  # issues of these rows
    # checksums of the bytes that were read then
    checksums: TaskChecksums = NO_CHECKSUMS
    index: IndexResult | None = None  # its index file, if the job requests one
    sha256: str = ""  # SHA-256 of the file, if the dataset has a card
