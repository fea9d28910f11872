"""Compares a manifest with itself and with the files beside it; reads no records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from recordmill.schemas.dataset.labels_files import labels_file_name
from recordmill.schemas.dataset.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    ShardEntry,
    SplitEntry,
)
from recordmill.schemas.dataset.parts import is_shard_name, mark_of, part_of
from recordmill.schemas.dataset.shards import INDEX_SUFFIX, shard_file_name
from recordmill.schemas.text import count


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference between a dataset and its manifest.

    Attributes:
      file: name of the file that differs.
      message: what was found and what was expected.
      kind: "damage" if a run with overwrite mends it; "unfinished" for a file that the
        commit of this dataset has not put in place yet; "stray" for a file that does
        not belong to the dataset; "values" for records that were written as they are,
        but do not fit the schema; "duplicates" for content in several splits.
    """

    file: str
    message: str
    kind: Literal["damage", "unfinished", "stray", "values", "duplicates"] = "damage"


def manifest_problems(manifest: Manifest) -> Iterator[Problem]:
    """Yields contradictions inside the manifest."""
    rows = manifest.records + manifest.rows_rejected
    mapped = ""
    if manifest.map is not None:
        rows += manifest.rows_dropped - manifest.rows_added
        mapped = (
            f", {manifest.rows_dropped} dropped and {manifest.rows_added} added by map"
        )
    if rows != manifest.rows_read:
        yield Problem(
            MANIFEST_NAME,
            f"{manifest.rows_read} rows read, but {manifest.records} records and "
            f"{manifest.rows_rejected} rejects{mapped} make {rows}",
        )
    if manifest.rejects and manifest.rejects.rows != manifest.rows_rejected:
        yield Problem(
            MANIFEST_NAME,
            f"{count(manifest.rows_rejected, 'row')} rejected, but "
            f"{manifest.rejects.rows:,} kept",
        )
    for name, split in manifest.splits.items():
        for noun, stated, total in (
            ("records", split.records, sum(shard.records for shard in split.shards)),
            ("bytes", split.bytes, sum(shard.bytes for shard in split.shards)),
        ):
            if stated != total:
                yield Problem(
                    MANIFEST_NAME,
                    f"split {name} has {stated} {noun}, its shards have {total}",
                )
        expected_names = _expected_names(manifest, name, split)
        for index, (shard, expected) in enumerate(
            zip(split.shards, expected_names, strict=True)
        ):
            if shard.file != expected:
                yield Problem(
                    MANIFEST_NAME,
                    f"shard {index} of split {name} is {shard.file}, expected {expected}",
                )
            if part_of(shard.file) > manifest.appended:
                yield Problem(
                    MANIFEST_NAME,
                    f"{shard.file} is of append {part_of(shard.file)}, but the dataset "
                    f"was appended to {count(manifest.appended, 'time')}",
                )


def _expected_names(manifest: Manifest, name: str, split: SplitEntry) -> list[str]:
    """Returns the names of a split's shards: part after part, numbered in each part."""
    counts = Counter(part_of(shard.file) for shard in split.shards)
    marks = {part_of(shard.file): mark_of(shard.file) for shard in split.shards}
    return [
        shard_file_name(
            manifest.name,
            name,
            index,
            num_shards,
            manifest.compression,
            part,
            marks[part],
            manifest.container,
        )
        for part, num_shards in sorted(counts.items())
        for index in range(num_shards)
    ]


def file_problems(
    shards: list[ShardEntry], sizes: dict[str, int], spared: Collection[str] = ()
) -> Iterator[Problem]:
    """Yields shards that are missing or differ in size, and files without an entry.

    Args:
      shards: of the dataset.
      sizes: of the files beside the manifest.
      spared: shards of the replaced dataset, which stay for its readers.
    """
    for shard in shards:
        size = sizes.get(shard.file)
        if size is None:
            yield Problem(
                shard.file,
                f"missing: expected {shard.records} records in {shard.bytes} bytes",
            )
        elif size != shard.bytes:
            yield Problem(shard.file, f"{size} bytes, expected {shard.bytes}")
    named = Counter(shard.file for shard in shards)
    for file, times in named.items():
        if times > 1:
            yield Problem(file, f"named {times} times by the manifest, expected once")
    for file in sizes:
        indexed = file.removesuffix(INDEX_SUFFIX)
        if is_shard_name(file) and indexed not in named and indexed not in spared:
            yield Problem(
                file,
                "not in the manifest: another run left it. Readers that take names by a "
                "pattern, like *.tfrecord*, read it too; delete it",
                "stray",
            )


def checksum_problems(
    files: Mapping[str, ShardEntry | FileEntry], stored: Mapping[str, int]
) -> Iterator[Problem]:
    """Yields files whose checksum in the store differs; reads no data."""
    for file, expected in files.items():
        found = stored.get(file)
        if found is not None and f"{found:08x}" != expected.crc32c:
            yield Problem(
                file,
                f"the store has CRC-32C {found:08x}, expected {expected.crc32c}: this is "
                "not the file that was written",
            )


def label_problems(
    manifest: Manifest, names: dict[str, tuple[str, ...]]
) -> Iterator[Problem]:
    """Yields labels files that are missing or damaged, so labels cannot be checked."""
    for feature in manifest.features:
        if feature.num_classes is not None and feature.name not in names:
            yield Problem(
                labels_file_name(feature.name),
                f"missing or damaged: expected the {feature.num_classes} class names of "
                f"{feature.name!r}, with which its labels are checked",
            )
