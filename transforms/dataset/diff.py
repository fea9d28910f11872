"""Compares two datasets: schema, classes, counts, and the records themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.dataset.files import class_names
from recordmill.transforms.dataset.reader import ShardToRead, shard_to_read
from recordmill.transforms.storage import Store

# A record is compared by the BLAKE2b hash of its bytes, 128 bits. A million records of each
# dataset are compared at a time: those whose hash has a certain rest. Larger datasets
# are read several times.

RECORDS_PER_PASS = 1_000_000  # of each dataset; 270 MB of memory (tracemalloc)


@dataclass(frozen=True, slots=True)
class Side:
    """The shards of one dataset.

    Attributes:
      shards: each with the number of its split, the same for both datasets.
    """

    shards: Sequence[tuple[int, ShardToRead]]

    @property
    def records(self) -> int:
        return sum(shard.entry.records for _, shard in self.shards)

    def place(self, number: int) -> tuple[ShardToRead, int]:
        """Returns the shard and the index in it of a record of the dataset."""
        for _, shard in self.shards:
            if number < shard.entry.records:
                return shard, number
            number -= shard.entry.records
        raise IndexError(number)


@dataclass(frozen=True, slots=True)
class RecordsCompared:
    """What two datasets have in common.

    Attributes:
      both: records that both have, in whatever split.
      moved: those of them that are in another split.
      only: how many records only the first has, and only the second.
      examples: the numbers of some of these, ascending.
    """

    both: int
    moved: int
    only: tuple[int, int]
    examples: tuple[tuple[int, ...], tuple[int, ...]]


def compare_records(
    one: Side,
    other: Side,
    num_examples: int,
    on_bytes: Callable[[int], None],
    records_per_pass: int = RECORDS_PER_PASS,
) -> RecordsCompared:
    """Compares the records of two datasets, whatever their order.

    A record that comes twice in one and once in the other is once only in one. About
    `records_per_pass` of each dataset have their hashes in memory at once.
    """
    sides = (one, other)
    passes = num_passes(one, other, records_per_pass)
    both = apart = 0
    only = [0, 0]
    examples: list[list[int]] = [[], []]
    for rest in range(passes):
        read = [_hashes(side, passes, rest, on_bytes) for side in sides]
        surplus, common = _surplus([(h, None) for h, _, _ in read])
        _, common_by_split = _surplus([(h, splits) for h, splits, _ in read])
        both += common
        apart += common - common_by_split
        for side, (rows, (_, _, numbers)) in enumerate(zip(surplus, read, strict=True)):
            only[side] += len(rows)
            found = np.sort(numbers[rows])[:num_examples].tolist()
            examples[side] = sorted(examples[side] + found)[:num_examples]
    named = (tuple(examples[0]), tuple(examples[1]))
    return RecordsCompared(both, apart, (only[0], only[1]), named)


def num_passes(one: Side, other: Side, records_per_pass: int = RECORDS_PER_PASS) -> int:
    """Returns how often each dataset is read."""
    return max(1, -(-max(one.records, other.records) // records_per_pass))


def _hashes(
    side: Side, passes: int, rest: int, on_bytes: Callable[[int], None]
) -> tuple[U64, I64, I64]:
    """Returns hashes of shape (records, 2), splits and numbers of one pass's records."""
    hashes, splits, numbers = [np.zeros((0, 2), np.uint64)], [], []
    first = 0
    for split, shard in side.shards:
        # A Python call for each record, 0.9 us: no library hashes a batch.
        digests = b"".join(_digests(shard))
        found = np.frombuffer(digests, np.uint64).reshape(-1, 2)
        rows = np.flatnonzero(found[:, 0] % np.uint64(passes) == np.uint64(rest))
        hashes.append(found[rows])
        splits.append(np.full(len(rows), split, np.int64))
        numbers.append(first + rows)
        first += shard.entry.records
        on_bytes(shard.entry.bytes)
    none = np.zeros(0, np.int64)
    return (
        np.concatenate(hashes),
        np.concatenate([none, *splits]),
        np.concatenate([none, *numbers]),
    )


def _digests(shard: ShardToRead) -> Iterator[bytes]:
    return (blake2b(record, digest_size=16).digest() for record in shard.records())


def _surplus(
    sides: Sequence[tuple[U64, I64 | None]],
) -> tuple[tuple[I64, I64], int]:
    """Compares two lists of hashes, each with a split that must be the same, or none.

    Returns:
      The rows of each that the other has not, and how many both have. Of rows with the
      same hash the last ones are those that are too many: hashes a a b and a c give rows
      1 and 2 of the first, row 1 of the second, and 1 in both.
    """
    counts = [len(hashes) for hashes, _ in sides]
    both = np.concatenate([hashes for hashes, _ in sides])
    splits = [np.zeros(len(h), np.int64) if s is None else s for h, s in sides]
    which = np.repeat([0, 1], counts)
    keys = (which, np.concatenate(splits), both[:, 1], both[:, 0])
    order = np.lexsort(keys)
    same = np.ones(max(0, len(order) - 1), np.bool_)
    for key in keys[1:]:
        same &= np.diff(key[order]) == 0
    starts = np.flatnonzero(np.concatenate([[True], ~same]))[: len(order)]
    if not len(order):
        return (np.zeros(0, np.int64), np.zeros(0, np.int64)), 0
    from_other = which[order]
    of_other = np.add.reduceat(from_other, starts)
    sizes = np.diff(np.append(starts, len(order)))
    of_one = sizes - of_other
    common = np.minimum(of_one, of_other)
    # In a group the rows of the first dataset come first, in their order.
    within = np.arange(len(order)) - np.repeat(starts, sizes)
    within -= np.where(from_other == 1, np.repeat(of_one, sizes), 0)
    extra: npt.NDArray[np.bool_] = within >= np.repeat(common, sizes)
    rows = (
        order[extra & (from_other == 0)],
        order[extra & (from_other == 1)] - counts[0],
    )
    return rows, int(common.sum())


@dataclass(frozen=True, slots=True)
class Compared:
    """What differs between two datasets.

    Attributes:
      schema: a sentence for each difference of their features, payload and classes.
      splits: records of each split in the first and the second dataset; None where it
        has no such split.
      records: of both.
      sides: their shards, by which examples are found.
      same_files: whether both name the same shards, so that no record was read.
    """

    schema: tuple[str, ...]
    splits: Mapping[str, tuple[int | None, int | None]]
    records: RecordsCompared
    sides: tuple[Side, Side]
    same_files: bool

    @property
    def same(self) -> bool:
        """Returns whether both hold the same rows, in the same splits, in any order."""
        records = self.records
        return not (self.schema or any(records.only) or records.moved)


def compare_datasets(
    stores: tuple[Store, Store],
    manifests: tuple[Manifest, Manifest],
    num_examples: int,
    on_progress: Callable[[float, float | None], None],
) -> Compared:
    """Compares two datasets.

    Args:
      stores: theirs.
      manifests: theirs.
      num_examples: how many records that only one has are named, for each.
      on_progress: told (bytes read, bytes in all).

    Raises:
      CorruptRecordError: a record is damaged.
      OutputError: a shard is not the one that its manifest describes.
    """
    names = list(dict.fromkeys(name for one in manifests for name in one.splits))
    one, other = (
        Side(
            [
                (names.index(name), shard_to_read(store, manifest, shard))
                for name, split in manifest.splits.items()
                for shard in split.shards
            ]
        )
        for store, manifest in zip(stores, manifests, strict=True)
    )
    same_files = _files(manifests[0]) == _files(manifests[1])
    if same_files:
        records = RecordsCompared(manifests[0].records, 0, (0, 0), ((), ()))
    else:
        done, total = 0, sum(manifest.num_bytes for manifest in manifests)
        total *= num_passes(one, other)

        def add(num_bytes: int) -> None:
            nonlocal done
            done += num_bytes
            on_progress(done, total)

        records = compare_records(one, other, num_examples, add)
    splits = {
        name: (_records_of(manifests[0], name), _records_of(manifests[1], name))
        for name in names
    }
    schema = (*_schema_differences(*manifests), *_class_differences(stores, manifests))
    return Compared(schema, splits, records, (one, other), same_files)


def _records_of(manifest: Manifest, split: str) -> int | None:
    entry = manifest.splits.get(split)
    return None if entry is None else entry.records


def _files(manifest: Manifest) -> object:
    """Returns what tells the content of all shards: records, bytes and checksums."""
    return (
        manifest.container,
        manifest.compression,
        {
            name: [(shard.records, shard.bytes, shard.crc32c) for shard in split.shards]
            for name, split in manifest.splits.items()
        },
    )


def _schema_differences(one: Manifest, other: Manifest) -> list[str]:
    found = []
    if one.payload != other.payload:
        found.append(f"payload: {one.payload} | {other.payload}")
    features = [{f.name: f for f in manifest.features} for manifest in (one, other)]
    for name in dict.fromkeys([*features[0], *features[1]]):
        first, second = (by_name.get(name) for by_name in features)
        if first is None or second is None:
            where = "first" if second is None else "second"
            present = first or second
            assert present is not None
            found.append(
                f"feature {name!r}: only in the {where} ({_described(present)})"
            )
        elif _described(first) != _described(second):
            found.append(
                f"feature {name!r}: {_described(first)} | {_described(second)}"
            )
    return found


def _described(feature: FeatureSpec) -> str:
    facts = [str(getattr(feature, name)) for name in ("kind", "dtype")]
    if feature.shape:
        facts.append(f"shape {list(feature.shape)}".replace("None", "?"))
    facts += [feature.content] if feature.content != "values" else []
    facts += [word for word in ("optional", "sequence") if getattr(feature, word)]
    return " ".join(facts)


def _class_differences(
    stores: tuple[Store, Store], manifests: tuple[Manifest, Manifest]
) -> list[str]:
    """Compares the names of classes, of features that both have."""
    one, other = map(class_names, stores, manifests)
    found = []
    for name in one.keys() & other.keys():
        if one[name] == other[name]:
            continue
        gone, new = (
            [label for label in a if label not in set(b)]
            for a, b in ((one[name], other[name]), (other[name], one[name]))
        )
        facts = [
            f"only in the {where} {', '.join(map(repr, labels[:3]))}"
            + (f" and {len(labels) - 3:,} more" if len(labels) > 3 else "")
            for where, labels in (("first", gone), ("second", new))
            if labels
        ]
        found.append(
            f"classes of {name!r}: {count(len(one[name]), 'class')} | "
            f"{count(len(other[name]), 'class')}, {'; '.join(facts) or 'in another order'}"
        )
    return sorted(found)
