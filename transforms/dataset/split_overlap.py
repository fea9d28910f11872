"""Finds records of different splits that hold the same content.

An image in train and in test makes the test worth less, whatever the two files are called.
So of records with images only these are compared, else all of the record. Contents are
compared by their hashes of 128 bits, sorted bucket by bucket, so memory stays flat:

    record -> hash, split, number -> bucket by the hash's first bits, in a temporary file
    bucket -> sorted by hash -> equal neighbours of different splits
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from recordmill.schemas.feature_spec import Content, Schema
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.schemas.text import count
from recordmill.transforms.dataset.reader import ShardToRead

MAX_EXAMPLES = 10
_BUCKET_BYTES = 64 << 20
_MAX_BUCKETS = 256  # files that are open at once
_ENTRY = np.dtype([("hash", "<u8", (2,)), ("split", "<u1"), ("record", "<u8")])
Entries = npt.NDArray[np.void]
RecordName = tuple[str, int]
"""A split, and the number of a record in it, as `recordmill inspect` takes them."""


@dataclass(frozen=True, slots=True)
class SplitOverlap:
    """What is in more than one split.

    Attributes:
      records: how many records have the content of one in another split.
      examples: some such contents, each with one record of every split that has it.
      splits: how many were compared.
    """

    records: int = 0
    examples: tuple[tuple[RecordName, ...], ...] = ()
    splits: int = 0

    def summary(self) -> str:
        """Returns what was found, in a few words."""
        if self.splits < 2:
            return "nothing to compare, as there is no second split"
        found = count(self.records, "record") if self.records else "no records"
        return f"{found} with the content of one in another split"

    def lines(self) -> list[str]:
        """Returns what is told of it: how many there are, and some of them."""
        if not self.records:
            return []
        shown = "; ".join(
            " = ".join(f"{split} {number}" for split, number in each)
            for each in self.examples
        )
        return [
            f"{count(self.records, 'record')} hold the same content as one of another "
            f"split, such as (split and number of the record) {shown}"
        ]


def find_overlap(
    manifest: Manifest,
    shards: Sequence[tuple[str, ShardToRead]],
    on_progress: Callable[[int], None] = lambda _: None,
) -> SplitOverlap:
    """Reads all records of some shards, and compares those of different splits.

    Args:
      manifest: with their features and payload.
      shards: with the name of the split of each; those of a split in their order.
      on_progress: told the number of bytes after each shard.

    Raises:
      CorruptRecordError: a record is damaged.
      OutputError: a shard is not the one that was written.
    """
    names = list(dict.fromkeys(name for name, _ in shards))
    if len(names) < 2:
        return SplitOverlap(splits=len(names))
    records = sum(shard.entry.records for _, shard in shards)
    buckets = -(-records * _ENTRY.itemsize // _BUCKET_BYTES)
    buckets = max(1, min(_MAX_BUCKETS, buckets))
    images = _images(manifest)
    with TemporaryDirectory(prefix="recordmill-") as folder:
        paths = [Path(folder, f"{number:03d}") for number in range(buckets)]
        files = [path.open("wb") for path in paths]
        try:
            first = dict.fromkeys(names, 0)
            for name, shard in shards:
                for values in _contents(manifest, shard, images):
                    entries = _entries(values, names.index(name), first[name])
                    first[name] += len(entries)
                    number = entries["hash"][:, 0] % np.uint64(buckets)
                    for index in np.unique(number).tolist():
                        entries[number == index].tofile(files[index])
                on_progress(shard.entry.bytes)
        finally:
            for file in files:
                file.close()
        found = _joined([_overlap(np.fromfile(path, _ENTRY), names) for path in paths])
    return replace(found, splits=len(names))


def _images(manifest: Manifest) -> Schema | None:
    """Returns the images of the records, if they can be read by themselves."""
    images = tuple(
        feature
        for feature in schema_of(manifest).features
        if feature.content is Content.IMAGE
    )
    return Schema(images) if images and manifest.payload == "example" else None


def _contents(
    manifest: Manifest, shard: ShardToRead, images: Schema | None
) -> Iterator[list[Sequence[bytes | memoryview]]]:
    """Yields what is compared of each record, in parts."""
    if images is None:
        for window in shard.windows():
            yield [[each.as_buffer()] for each in window]
        return
    for batch in shard.batches(images, manifest.payload):
        columns = [batch.column(name).to_pylist() for name in batch.schema.names]
        yield [list(map(_as_bytes, parts)) for parts in zip(*columns, strict=True)]


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode()


def _entries(
    contents: Iterable[Sequence[bytes | memoryview]], split: int, first: int
) -> Entries:
    """Returns the entries of records; a Python loop, as nothing hashes whole arrays."""
    digests = []
    for parts in contents:
        digest = blake2b(digest_size=16)
        for part in parts:
            digest.update(part)
        digests.append(digest.digest())
    entries = np.zeros(len(digests), _ENTRY)
    entries["hash"] = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
    entries["split"] = split
    entries["record"] = np.arange(first, first + len(digests))
    return entries


def _overlap(entries: Entries, names: Sequence[str]) -> SplitOverlap:
    """Returns what the records of one bucket have in common."""
    if not len(entries):
        return SplitOverlap()
    hashes = entries["hash"]
    order = np.lexsort(
        (entries["record"], entries["split"], hashes[:, 1], hashes[:, 0])
    )
    entries, hashes = entries[order], hashes[order]
    is_new = (hashes[1:] != hashes[:-1]).any(axis=1)
    starts = np.flatnonzero(np.concatenate([[True], is_new]))
    ends = np.append(starts[1:], len(entries))
    split = entries["split"]
    shared = split[starts] != split[ends - 1]  # sorted by split within a content
    starts, ends = starts[shared], ends[shared]
    first = np.lexsort((entries["record"][starts], split[starts]))[:MAX_EXAMPLES]
    examples = []
    for start, end in zip(starts[first], ends[first], strict=True):
        of_split: dict[int, int] = {}
        for entry in entries[start:end]:
            of_split.setdefault(int(entry["split"]), int(entry["record"]))
        examples.append(tuple((names[s], n) for s, n in of_split.items()))
    return SplitOverlap(int((ends - starts).sum()), tuple(examples))


def _joined(parts: Sequence[SplitOverlap]) -> SplitOverlap:
    examples = heapq.nsmallest(
        MAX_EXAMPLES, (each for part in parts for each in part.examples)
    )
    return SplitOverlap(sum(part.records for part in parts), tuple(examples))
