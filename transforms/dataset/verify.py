"""Is a dataset whole? Sizes, counts and every checksum against its manifest.

And do its records hold what its schema says (see recordmill.transforms.dataset.deep_check)?
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import BinaryIO, cast

from recordmill.schemas.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    ShardEntry,
    SplitEntry,
    schema_of,
)
from recordmill.schemas.dataset.parts import part_of
from recordmill.schemas.dataset.shards import shard_file_name
from recordmill.schemas.errors import CorruptRecordError, OutputError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.dataset.deep_check import DeepCheck
from recordmill.transforms.dataset.files import (
    class_names,
    open_file,
    read_manifest,
)
from recordmill.transforms.dataset.tfds_files import labels_file_name
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.tfrecord import crc32c, open_stream, read_records

_DRAIN_BYTES = 1 << 20
_PROGRESS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as the manifest says: in which file, and what."""

    file: str
    message: str


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a verification found.

    Attributes:
      output: the dataset's folder.
      name: the dataset's name.
      full: whether the records were read, or only the sizes of files looked at.
      shards: shard files found.
      records: whole records found; those the manifest states if not `full`.
      bytes: size of the shard files found.
      problems: those of the manifest, of its shards in order, of other files; empty
        if the dataset is whole.
      deep: whether the records were decoded, too.
      checksums: shards of which the store keeps a CRC-32C, which was compared.
    """

    output: str
    name: str
    full: bool
    shards: int
    records: int
    bytes: int
    problems: tuple[Problem, ...]
    deep: bool = False
    checksums: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_dataset(
    output: str,
    *,
    full: bool = True,
    deep: bool = False,
    storage: StorageOptions = NO_OPTIONS,
    on_progress: Callable[[int], None] | None = None,
    workers: int = 2,
) -> VerifyResult:
    """Compares a dataset with its manifest and collects all that differs.

    Args:
      output: the dataset's folder.
      full: read every byte; otherwise only the files' names and sizes, and the
        checksums that the store keeps.
      deep: decode every record as well, and look whether it fits the schema.
      storage: options of the dataset's storage.
      on_progress: told now and then how many more bytes (as stored) were read; from
        other threads, but never from two at once.
      workers: shards read at the same time. Each takes some 16 MB of memory (some
        100 MB if deep), and a few times the size of its largest record.

    Raises:
      OutputError: there is no dataset in the folder.
    """
    store = open_store(output, storage)
    manifest = read_manifest(store)
    result = verify_store(
        store, manifest, full=full, deep=deep, on_progress=on_progress, workers=workers
    )
    return replace(result, output=output)


def verify_store(
    store: Store,
    manifest: Manifest,
    *,
    full: bool,
    deep: bool = False,
    on_progress: Callable[[int], None] | None = None,
    workers: int = 2,
) -> VerifyResult:
    """As `verify_dataset`, of a dataset whose manifest may be yet to come."""
    level = store.list_level()
    sizes = level.files
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    present = [shard for shard in shards if shard.file in sizes]
    problems = [*_manifest_problems(manifest), *_file_problems(shards, sizes)]
    problems += _stored_problems(present, level.checksums)
    records = sum(shard.records for shard in present)
    if full or deep:
        schema = None
        if deep:
            names = class_names(store, manifest)
            problems += _label_problems(manifest, names)
            schema = schema_of(manifest, names)
        progress = _Progress(on_progress)
        check = partial(_check_shard, store, manifest, schema, progress)
        pool = ThreadPoolExecutor(max(1, workers), "verify")
        try:
            checked = list(pool.map(check, present))
        finally:
            pool.shutdown(cancel_futures=True)
        records = sum(found for found, _ in checked)
        problems += [problem for _, found in checked for problem in found]
    place = {shard.file: index for index, shard in enumerate(shards)}
    place[MANIFEST_NAME] = -1
    problems.sort(key=lambda problem: place.get(problem.file, len(shards)))
    return VerifyResult(
        output=store.uri,
        name=manifest.name,
        full=full or deep,
        shards=len(present),
        records=records,
        bytes=sum(sizes[shard.file] for shard in present),
        problems=tuple(problems),
        deep=deep,
        checksums=sum(shard.file in level.checksums for shard in present),
    )


def _manifest_problems(manifest: Manifest) -> Iterator[Problem]:
    """Where the manifest contradicts itself."""
    rows = manifest.records + manifest.rows_rejected
    if rows != manifest.rows_read:
        yield Problem(
            MANIFEST_NAME,
            f"{manifest.rows_read} rows read, but {manifest.records} records and "
            f"{manifest.rows_rejected} rejects make {rows}",
        )
    for name, split in manifest.splits.items():
        for what, stated, total in (
            ("records", split.records, sum(shard.records for shard in split.shards)),
            ("bytes", split.bytes, sum(shard.bytes for shard in split.shards)),
        ):
            if stated != total:
                yield Problem(
                    MANIFEST_NAME,
                    f"split {name} has {stated} {what}, its shards have {total}",
                )
        wanted_names = _expected_names(manifest, name, split)
        for index, (shard, wanted) in enumerate(
            zip(split.shards, wanted_names, strict=True)
        ):
            if shard.file != wanted:
                yield Problem(
                    MANIFEST_NAME,
                    f"shard {index} of split {name} is {shard.file}, expected {wanted}",
                )
            if part_of(shard.file) > manifest.appended:
                yield Problem(
                    MANIFEST_NAME,
                    f"{shard.file} is of append {part_of(shard.file)}, but the dataset "
                    f"was appended to {manifest.appended} times",
                )


def _expected_names(manifest: Manifest, name: str, split: SplitEntry) -> list[str]:
    """The names of a split's shards: part after part, numbered within each."""
    counts = Counter(part_of(shard.file) for shard in split.shards)
    return [
        shard_file_name(manifest.name, name, index, count, manifest.compression, part)
        for part, count in sorted(counts.items())
        for index in range(count)
    ]


def _file_problems(
    shards: list[ShardEntry], sizes: dict[str, int]
) -> Iterator[Problem]:
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
        if ".tfrecord" in file and file not in named:
            yield Problem(
                file,
                "not in the manifest: left over from another run, and read by all who "
                "read *.tfrecord*; delete it",
            )


def _stored_problems(
    shards: list[ShardEntry], stored: dict[str, int]
) -> Iterator[Problem]:
    """Where the store's own checksum is another; nothing is read for it."""
    for shard in shards:
        found = stored.get(shard.file)
        if found is not None and f"{found:08x}" != shard.crc32c:
            yield Problem(
                shard.file,
                f"the store has CRC-32C {found:08x}, expected {shard.crc32c}: it is "
                "not the file that was written",
            )


def _label_problems(
    manifest: Manifest, names: dict[str, tuple[str, ...]]
) -> Iterator[Problem]:
    """Class names without which the labels' range cannot be checked."""
    for feature in manifest.features:
        if feature.num_classes is not None and feature.name not in names:
            yield Problem(
                labels_file_name(feature.name),
                f"does not hold the {feature.num_classes} class names of "
                f"{feature.name!r}, which its labels are checked against",
            )


def _check_shard(
    store: Store,
    manifest: Manifest,
    schema: Schema | None,
    progress: _Progress,
    shard: ShardEntry,
) -> tuple[int, list[Problem]]:
    """Reads one shard; the whole records found, and what is wrong with them."""
    records = 0
    damage: str | None = None
    deep = None if schema is None else DeepCheck(schema, manifest.payload)
    try:
        with open_file(store, shard.file) as file:
            metered = _Metered(file, progress)
            stream = open_stream(cast("BinaryIO", metered), manifest.compression)
            try:
                for record in read_records(stream, shard.file):
                    records += 1
                    if deep is not None:
                        deep.add(record)
            except CorruptRecordError as error:
                damage = (
                    f"record {error.record_index} at byte {error.offset}: {error.what}"
                )
            while metered.read(_DRAIN_BYTES):
                pass
            metered.flush_progress()
    except (OSError, OutputError) as error:
        return records, [Problem(shard.file, f"cannot be read: {error}")]
    if damage is None and records != shard.records:
        damage = f"{records} records, expected {shard.records}"
    found = f"{metered.crc:08x}"
    if damage is None and found != shard.crc32c and metered.bytes == shard.bytes:
        damage = (
            f"CRC-32C of the whole file is {found}, expected {shard.crc32c}; all its "
            "records are whole, but it is not the file that was written"
        )
    messages = [] if deep is None else deep.problems()
    if damage is not None:
        messages.append(damage)
    return records, [Problem(shard.file, message) for message in messages]


class _Progress:
    """Passes on what several threads have read, one call at a time."""

    __slots__ = ("_lock", "_on_progress")

    def __init__(self, on_progress: Callable[[int], None] | None) -> None:
        self._on_progress = on_progress
        self._lock = Lock()

    def add(self, num_bytes: int) -> None:
        if self._on_progress is not None and num_bytes:
            with self._lock:
                self._on_progress(num_bytes)


class _Metered(io.RawIOBase):
    """A file that counts and checksums the bytes read from it."""

    def __init__(self, file: BinaryIO, progress: _Progress) -> None:
        super().__init__()
        self._file = file
        self._progress = progress
        self._untold = 0
        self.bytes = 0
        self.crc = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self.crc = crc32c(data, self.crc)
        self.bytes += len(data)
        self._untold += len(data)
        if self._untold >= _PROGRESS_BYTES:
            self.flush_progress()
        return data

    def flush_progress(self) -> None:
        self._progress.add(self._untold)
        self._untold = 0
