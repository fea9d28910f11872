"""Compares two datasets: schema, classes, counts, and the records themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.features.feature import FeatureSpec
from recordmill.schemas.text import count
from recordmill.transforms.dataset.compare_records import (
    RecordsCompared,
    Side,
    compare_records,
    num_passes,
)
from recordmill.transforms.dataset.files import class_names
from recordmill.transforms.dataset.read_shards import shard_to_read
from recordmill.transforms.storage import Store


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
