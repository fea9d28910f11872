"""Compares the records of two datasets, or of the splits of one dataset.

A record is compared by a hash of 128 bits. All hashes are computed once and sorted bucket
by bucket, so memory stays constant:

    record -> hash, group, number -> bucket by the hash's first bits, in a temporary file
    bucket -> sorted by hash -> equal neighbours of different groups

A group is a split, or a split of one of two datasets. An image in both train and test
makes the test less meaningful, even if its two files have different names. So if records
have images, splits are compared by the images alone; datasets are always compared by
whole records.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from recordmill.schemas.feature_spec import Content, compare_schemas
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.dataset.files import class_names
from recordmill.transforms.dataset.reader import ReadableShard, shards_to_read
from recordmill.transforms.storage import Store

MAX_EXAMPLES = 10  # examples of content in several splits
_BUCKET_BYTES = 32 << 20  # bytes that are sorted together
_MAX_BUCKETS = 256  # files that are open at the same time
_RECORDS_PER_WRITE = 1 << 16  # records that are hashed before they are written
_HASHED_RECORD = np.dtype([("hash", "<u8", (2,)), ("record", "<u8"), ("group", "<u2")])

HashedRecords = npt.NDArray[np.void]
GroupedShard = tuple[int, int, ReadableShard]
"""The number of a group, the number of the shard's first record in it, and the shard."""
RecordName = tuple[str, int]
"""A split, and the index of a record in it, as in the options of `recordmill inspect`."""


def _buckets(
    shards: Sequence[GroupedShard],
    on_bytes: Callable[[int], None],
    images: Sequence[str] = (),
) -> Iterator[HashedRecords]:
    """Yields sorted entries of all records in parts; equal hashes are in the same part.

    With `images`, only these features are hashed. `on_bytes` is called with the size of
    each shard after it was read.
    """
    records = sum(shard.entry.records for _, _, shard in shards)
    buckets = max(
        1, min(_MAX_BUCKETS, -(-records * _HASHED_RECORD.itemsize // _BUCKET_BYTES))
    )
    with TemporaryDirectory(prefix="recordmill-") as folder:
        paths = [Path(folder, f"{number:03d}") for number in range(buckets)]
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for group, first, shard in shards:
                digests = _digests(shard, images)
                while digest_bytes := b"".join(islice(digests, _RECORDS_PER_WRITE)):
                    hashes = np.frombuffer(digest_bytes, "<u8").reshape(-1, 2)
                    entries = np.zeros(len(hashes), _HASHED_RECORD)
                    entries["hash"], entries["group"] = hashes, group
                    entries["record"] = np.arange(first, first + len(hashes))
                    first += len(hashes)
                    bucket = hashes[:, 0] % np.uint64(buckets)
                    for number in np.unique(bucket).tolist():
                        entries[bucket == number].tofile(files[number])
                on_bytes(shard.entry.bytes)
        for path in paths:
            entries = np.fromfile(path, _HASHED_RECORD)
            keys = (entries["record"], entries["group"], *entries["hash"].T)
            if len(entries):
                yield entries[np.lexsort(keys)]


def _digests(shard: ReadableShard, images: Sequence[str]) -> Iterator[bytes]:
    """Yields the hash of each record; one Python call per record takes 0.9 us."""
    if not images:
        for record in shard.records():
            yield blake2b(record, digest_size=16).digest()
        return
    for batch in shard.batches(images):
        for values in zip(*(column.to_pylist() for column in batch), strict=True):
            image_bytes = b"".join(
                value if isinstance(value, bytes) else repr(value).encode()
                for value in values
            )
            yield blake2b(image_bytes, digest_size=16).digest()


def _content_ids(entries: HashedRecords) -> I64:
    """Returns an id for each of the sorted entries, from 0 on; equal for equal hashes."""
    hashes = entries["hash"]
    ids: I64 = np.cumsum((hashes[1:] != hashes[:-1]).any(axis=1))
    return np.concatenate([[0], ids])


@dataclass(frozen=True, slots=True)
class SplitOverlap:
    """The content that several splits have in common."""

    num_records: int = 0  # records with the same content as a record of another split
    # examples of such content, each with one record of every split that has it
    examples: tuple[tuple[RecordName, ...], ...] = ()
    num_splits: int = 0  # number of compared splits

    def summary(self) -> str:
        """Returns the number of these records as a short text."""
        if self.num_splits < 2:
            return "nothing to compare, because there is only one split"
        records_text = (
            format_count(self.num_records, "record")
            if self.num_records
            else "no records"
        )
        return f"{records_text} with the same content as a record in another split"

    def message_lines(self) -> list[str]:
        """Returns a line with the number of these records and examples; [] if none."""
        examples_text = (
            " = ".join(f"{s} {n}" for s, n in example) for example in self.examples
        )
        line = (
            f"{format_count(self.num_records, 'record')} have the same content as a record of "
            f"another split, such as (split and record number) {'; '.join(examples_text)}"
        )
        return [line] if self.num_records else []


def find_overlap(
    shards: Sequence[ReadableShard], on_bytes: Callable[[int], None] = lambda _: None
) -> SplitOverlap:
    """Reads all records of some shards, and compares the records of different splits.

    `on_bytes` is called with the size of each shard after it was read.
    """
    names = list(dict.fromkeys(shard.split for shard in shards))
    if len(names) < 2:
        return SplitOverlap(num_splits=len(names))
    images = [
        feature.name
        for feature in shards[0].schema.features
        if feature.content is Content.IMAGE and shards[0].payload == "example"
    ]
    grouped: list[GroupedShard] = []
    counts = dict.fromkeys(names, 0)
    for shard in shards:
        grouped.append((names.index(shard.split), counts[shard.split], shard))
        counts[shard.split] += shard.entry.records
    records, examples = 0, list[tuple[RecordName, ...]]()
    for entries in _buckets(grouped, on_bytes, images):
        num_records, bucket_examples = _bucket_overlap(entries, names)
        records += num_records
        examples = heapq.nsmallest(MAX_EXAMPLES, examples + bucket_examples)
    return SplitOverlap(records, tuple(examples), len(names))


def _bucket_overlap(
    entries: HashedRecords, names: Sequence[str]
) -> tuple[int, list[tuple[RecordName, ...]]]:
    """Returns the number of records in several splits, and the first examples."""
    split = entries["group"]
    starts = np.flatnonzero(np.diff(_content_ids(entries), prepend=-1))
    ends = np.append(starts[1:], len(entries))
    shared = split[starts] != split[ends - 1]  # sorted by split within a content
    starts, ends = starts[shared], ends[shared]
    first = np.lexsort((entries["record"][starts], split[starts]))[:MAX_EXAMPLES]
    examples = []
    for start, end in zip(starts[first], ends[first], strict=True):
        of_split: dict[int, int] = {}
        for hashed_record in entries[start:end]:
            of_split.setdefault(
                int(hashed_record["group"]), int(hashed_record["record"])
            )
        examples.append(tuple((names[s], n) for s, n in of_split.items()))
    return int((ends - starts).sum()), examples


@dataclass(frozen=True, slots=True)
class RecordComparison:
    """The result of a comparison of the records of two datasets."""

    num_common: int  # records that both have, in any split
    num_moved: int  # records that both have, but in different splits
    num_only_in: tuple[
        int, int
    ]  # records that only the first or only the second dataset has
    # shard file and index of some of the latter, in order
    examples: tuple[tuple[RecordName, ...], tuple[RecordName, ...]] = ((), ())


def compare_records(
    sides: tuple[Sequence[ReadableShard], Sequence[ReadableShard]],
    num_examples: int,
    on_bytes: Callable[[int], None],
) -> RecordComparison:
    """Compares the records of two datasets, independent of their order.

    If one dataset has a record twice and the other once, one copy counts as "only".
    """
    names = list(dict.fromkeys(shard.split for shards in sides for shard in shards))
    firsts = [[0, *accumulate(s.entry.records for s in shards)] for shards in sides]
    grouped = [
        (number * len(names) + names.index(shard.split), first, shard)
        for number, shards in enumerate(sides)
        for first, shard in zip(firsts[number], shards, strict=False)
    ]
    both = moved = 0
    only, examples = [0, 0], list[list[int]]([[], []])
    for entries in _buckets(grouped, on_bytes):
        side, split = np.divmod(entries["group"].astype(np.int64), len(names))
        content = _content_ids(entries)
        counts = _counts_of(content, side)
        common = counts.min(axis=1)
        _, in_split = np.unique(content * len(names) + split, return_inverse=True)
        both += int(common.sum())
        moved += int(common.sum() - _counts_of(in_split, side).min(axis=1).sum())
        # The entries of one content and side are consecutive; the last ones are surplus.
        starts = offsets_of(counts.ravel())[2 * content + side]
        surplus = np.arange(len(entries)) - starts >= common[content]
        for number in (0, 1):
            numbers = entries["record"][surplus & (side == number)].tolist()
            only[number] += len(numbers)
            examples[number] = heapq.nsmallest(num_examples, examples[number] + numbers)
    named_examples = [
        tuple(_name(shards, number) for number in numbers)
        for shards, numbers in zip(sides, examples, strict=True)
    ]
    return RecordComparison(
        both, moved, (only[0], only[1]), (named_examples[0], named_examples[1])
    )


def _counts_of(ids: I64, side: I64) -> I64:
    """Returns the count of each id on each of two sides; shape (ids, 2)."""
    num_ids = int(ids.max()) + 1
    return np.bincount(2 * ids + side, minlength=2 * num_ids).reshape(-1, 2)


def _name(shards: Sequence[ReadableShard], number: int) -> RecordName:
    """Returns the shard file of a record, and the record's index in it."""
    for shard in shards:
        if number < shard.entry.records:
            return shard.entry.file, number
        number -= shard.entry.records
    raise IndexError(number)


@dataclass(frozen=True, slots=True)
class DatasetComparison:
    """The result of a comparison of two datasets."""

    # a line for each difference of their payload, features and classes
    schema: tuple[str, ...]
    # records of each split in the first and the second dataset; None if a dataset has no
    # such split
    splits: Mapping[str, tuple[int | None, int | None]]
    records: RecordComparison
    has_same_files: bool  # both have the same shards, so that no record was read

    @property
    def is_same(self) -> bool:
        """Returns True if both have the same rows in the same splits, in any order."""
        records = self.records
        return not (self.schema or any(records.num_only_in) or records.num_moved)


def compare_datasets(
    stores: tuple[Store, Store],
    manifests: tuple[Manifest, Manifest],
    num_examples: int,
    on_progress: Callable[[float, float | None], None],
) -> DatasetComparison:
    """Compares two datasets, with examples of records that only one has.

    `on_progress` is called with (bytes read, total bytes).

    Raises:
      CorruptRecordError, OutputError: a dataset is damaged.
    """
    same_files = _shard_checksums(manifests[0]) == _shard_checksums(manifests[1])
    if same_files:
        records = RecordComparison(manifests[0].records, 0, (0, 0))
    else:
        done, total = 0, sum(manifest.num_bytes for manifest in manifests)

        def add(num_bytes: int) -> None:
            nonlocal done
            done += num_bytes
            on_progress(done, total)

        left_shards, right_shards = map(shards_to_read, stores, manifests)
        records = compare_records((left_shards, right_shards), num_examples, add)
    first, second = (
        {name: split.records for name, split in manifest.splits.items()}
        for manifest in manifests
    )
    splits = {name: (first.get(name), second.get(name)) for name in first | second}
    schema = tuple(_schema_differences(stores, manifests))
    return DatasetComparison(schema, splits, records, same_files)


def _shard_checksums(manifest: Manifest) -> object:
    """Returns the records, bytes and checksums of all shards, for a comparison."""
    return (
        manifest.container,
        manifest.compression,
        {
            name: [(shard.records, shard.bytes, shard.crc32c) for shard in split.shards]
            for name, split in manifest.splits.items()
        },
    )


def _schema_differences(
    stores: tuple[Store, Store], manifests: tuple[Manifest, Manifest]
) -> list[str]:
    """Returns a line for each change from the first dataset to the second."""
    payloads = [manifest.payload for manifest in manifests]
    changes = []
    if payloads[0] != payloads[1]:
        changes.append(f"payload changed: was {payloads[0]}, is {payloads[1]}")
    left_schema, right_schema = (
        schema_of(manifest, class_names(store, manifest))
        for store, manifest in zip(stores, manifests, strict=True)
    )
    # A difference may be a change in one direction only, such as an optional feature.
    reverse_changes = [
        f"from the second to the first, {line}"
        for line in compare_schemas(right_schema, left_schema)
    ]
    return changes + (compare_schemas(left_schema, right_schema) or reverse_changes)
