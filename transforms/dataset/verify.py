"""Verifies a dataset: sizes, counts and every checksum against its manifest.

With `deep`, also that its records fit its schema (see deep_check.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import BinaryIO, cast

from recordmill.schemas.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    ShardEntry,
    schema_of,
)
from recordmill.schemas.errors import CorruptRecordError, OutputError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.dataset.files import (
    ChecksummedFile,
    class_names,
    find_manifest,
    open_file,
    read_manifest,
    replaced_name,
)
from recordmill.transforms.dataset.index_checks import index_problems
from recordmill.transforms.dataset.manifest_checks import (
    Problem,
    checksum_problems,
    file_problems,
    label_problems,
    manifest_problems,
)
from recordmill.transforms.dataset.metadata_checks import (
    content_problems,
    metadata_problems,
    reject_problems,
    without_unfinished,
)
from recordmill.transforms.dataset.read_shards import shard_to_read
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.tfrecord import open_stream, read_records

_PROGRESS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of a verification.

    Attributes:
      output: the dataset's folder.
      name: the dataset's name.
      full: whether the records were read; otherwise only the files were listed.
      shards: number of shard files found.
      records: number of whole records found; if not `full`, that of the manifest.
      bytes: size of the shard files found.
      problems: of the manifest, of its shards in order, of other files; empty if the
        dataset is whole.
      deep: whether the records were decoded as well.
      checksums: number of shards whose CRC-32C in the store was compared.
      files: number of metadata files that were compared; 0 if the manifest is of an
        earlier version, which named none.
      duplicates: what was found of equal contents between splits; "" if nothing was
        looked for.
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
    files: int = 0
    duplicates: str = ""

    @property
    def ok(self) -> bool:
        return not self.problems


def verify_dataset(
    output: str,
    *,
    full: bool = True,
    deep: bool = False,
    duplicates: bool = False,
    storage: StorageOptions = NO_OPTIONS,
    on_progress: Callable[[int], None] | None = None,
    workers: int = 2,
) -> VerifyResult:
    """Compares a dataset with its manifest and collects all differences.

    Args:
      output: the dataset's folder.
      full: read every byte; otherwise only file names, sizes and the checksums that
        the store keeps.
      deep: decode every record as well and check that it fits the schema.
      duplicates: read a whole dataset once more, and compare contents between splits.
      storage: options of the dataset's storage.
      on_progress: called from time to time with the number of stored bytes that were
        read since its last call; from other threads, but never from two at once.
      workers: shards read at the same time. Each takes about 16 MB of memory (100 MB if
        deep), and a few times the size of its largest record.

    Raises:
      OutputError: there is no dataset in the folder.
    """
    store = open_store(output, storage)
    manifest = read_manifest(store)
    result = verify_store(
        store, manifest, full=full, deep=deep, on_progress=on_progress, workers=workers
    )
    if duplicates and result.ok:
        # Only here: it imports all that reads records, which runs do not need.
        from recordmill.transforms.dataset.split_overlap import find_overlap

        shards = [
            (name, shard_to_read(store, manifest, shard))
            for name, split in manifest.splits.items()
            for shard in split.shards
        ]
        found = find_overlap(manifest, shards, on_progress or (lambda _: None))
        problems = [Problem(MANIFEST_NAME, t, "duplicates") for t in found.lines()]
        result = replace(result, problems=tuple(problems), duplicates=found.summary())
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
    """Verifies a dataset against a given manifest, which need not be stored yet."""
    level = store.list_level()
    sizes = level.files
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    present = [shard for shard in shards if shard.file in sizes]
    spared = _replaced_shards(store, manifest)
    problems = [*manifest_problems(manifest), *file_problems(shards, sizes, spared)]
    problems += metadata_problems(manifest.files, sizes)
    problems += index_problems(store, manifest, sizes, full=full or deep)
    problems += reject_problems(store, manifest, full=full or deep)
    expected = {**manifest.files, **manifest.index_files}
    named = {file: entry for file, entry in expected.items() if file in sizes}
    named_shards = {shard.file: shard for shard in present}
    problems += checksum_problems({**named, **named_shards}, level.checksums)
    records = sum(shard.records for shard in present)
    if full or deep:
        problems += content_problems(store, manifest.files, sizes)
        names = class_names(store, manifest)
        known = {problem.file for problem in problems}
        problems += (p for p in label_problems(manifest, names) if p.file not in known)
        schema = schema_of(manifest, names) if deep else None
        progress = _Progress(on_progress)
        check = partial(_check_shard, store, manifest, schema, progress)
        pool = ThreadPoolExecutor(max(1, workers), "verify")
        try:
            checked = list(pool.map(check, present))
        finally:
            pool.shutdown(cancel_futures=True)
        records = sum(found for found, _ in checked)
        problems += [problem for _, found in checked for problem in found]
    order = {shard.file: index for index, shard in enumerate(shards)}
    order[MANIFEST_NAME] = -1
    problems = without_unfinished(store, manifest, problems)
    problems.sort(key=lambda problem: order.get(problem.file, len(shards)))
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
        files=len(manifest.files),
    )


def _replaced_shards(store: Store, manifest: Manifest) -> set[str]:
    """Returns the shards of the replaced dataset that stay for its readers."""
    if not manifest.generation:
        return set()
    replaced = find_manifest(store, replaced_name(manifest.mark))
    return set(replaced.shard_files) if replaced else set()


def _check_shard(
    store: Store,
    manifest: Manifest,
    schema: Schema | None,
    progress: _Progress,
    shard: ShardEntry,
) -> tuple[int, list[Problem]]:
    """Reads one shard; returns (number of whole records, problems)."""
    records = 0
    damage: str | None = None
    is_framed = manifest.container == "tfrecord"
    deep = None
    if schema is not None:
        # Only here: it imports all that decodes records, which runs do not need.
        from recordmill.transforms.dataset.deep_check import DeepCheck

        deep = DeepCheck(schema, manifest.payload, is_framed)
    try:
        with open_file(store, shard.file) as file:
            metered = _MeteredFile(file, progress)
            stream = open_stream(cast("BinaryIO", metered), manifest.compression)
            try:
                for record in read_records(stream, shard.file) if is_framed else ():
                    records += 1
                    if deep is not None:
                        deep.add(record)
            except CorruptRecordError as error:
                damage = (
                    f"record {error.record_index} at byte {error.offset}: {error.what}"
                )
            metered.drain()
            metered.flush_progress()
        same = f"{metered.crc:08x}" == shard.crc32c
        if not is_framed and same:
            # The bytes are those that were written, and their records were counted then.
            records = shard.records
            if deep is not None:
                for record in shard_to_read(store, manifest, shard).records():
                    deep.add(record)
    except (OSError, OutputError) as error:
        return records, [Problem(shard.file, f"cannot be read: {error}")]
    if is_framed and damage is None and records != shard.records:
        damage = f"{records} records, expected {shard.records}"
    if damage is None and not same and metered.bytes == shard.bytes:
        whole = "no record is damaged, but " if is_framed else ""
        damage = (
            f"CRC-32C of the whole file is {metered.crc:08x}, expected {shard.crc32c}; "
            f"{whole}this is not the file that was written"
        )
    messages = [] if deep is None else deep.problems()
    problems = [Problem(shard.file, message, "values") for message in messages]
    if damage is not None:
        problems.append(Problem(shard.file, damage))
    return records, problems


class _Progress:
    """A progress callback that several threads share, called by one at a time."""

    __slots__ = ("_lock", "_on_progress")

    def __init__(self, on_progress: Callable[[int], None] | None) -> None:
        self._on_progress = on_progress
        self._lock = Lock()

    def add(self, num_bytes: int) -> None:
        if self._on_progress is not None and num_bytes:
            with self._lock:
                self._on_progress(num_bytes)


class _MeteredFile(ChecksummedFile):
    """A file that reports from time to time how many bytes were read from it."""

    def __init__(self, file: BinaryIO, progress: _Progress) -> None:
        super().__init__(file)
        self._progress = progress
        self._unreported = 0

    def read(self, size: int = -1, /) -> bytes:
        data = super().read(size)
        self._unreported += len(data)
        if self._unreported >= _PROGRESS_BYTES:
            self.flush_progress()
        return data

    def flush_progress(self) -> None:
        """Reports the bytes that were read since the last report."""
        self._progress.add(self._unreported)
        self._unreported = 0
