"""Verifies a dataset: compares sizes, counts and every checksum with its manifest.

With `deep`, checks that its records fit its schema as well (see deep_check.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Final, Literal

from recordmill.schemas.errors import CorruptRecordError, OutputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    ManifestShard,
    ManifestSplit,
    count_row_changes,
    schema_of,
)
from recordmill.schemas.names import (
    INDEX_SUFFIX,
    REJECTS_NAME,
    index_file_name,
    is_shard_name,
    parse_commit_id,
    parse_part,
    shard_file_name,
)
from recordmill.schemas.ranges import NO_REJECTS, RejectTotals
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms.dataset.files import (
    class_names,
    find_manifest,
    fixed_copy_name,
    matches_entry,
    open_file,
    read_manifest,
    rejects_files,
    replaced_name,
    require_written,
)
from recordmill.transforms.dataset.record_index import parse_index
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.tfrecord import crc32c


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference between a dataset and its manifest."""

    file: str  # name of the file that differs
    message: str  # the actual and the expected state
    # "damage" if a run with overwrite repairs it; "unfinished" for a file that a commit
    # has not put in place; "stray" for a foreign file, "leftover" if it is from a commit
    # that published nothing; "values" for undamaged records that do not fit the schema;
    # "duplicates" for records in several splits
    kind: Literal[
        "damage", "unfinished", "stray", "leftover", "values", "duplicates"
    ] = "damage"


# Problems that a run at work causes, until it ends.
PASSING: Final = ("unfinished", "stray", "leftover")


def _manifest_problems(manifest: Manifest) -> Iterator[str]:
    """Yields descriptions of contradictions inside the manifest."""
    num_other_rows, other_rows_text = count_row_changes(manifest.map, manifest.sampling)
    rows = manifest.records + manifest.rows_rejected - num_other_rows
    if rows != manifest.rows_read:
        yield (
            f"{manifest.rows_read} rows read, but {manifest.records} records and "
            f"{manifest.rows_rejected} rejects{other_rows_text} make {rows}"
        )
    if manifest.rejects and manifest.rejects.rows != manifest.rows_rejected:
        yield (
            f"{format_count(manifest.rows_rejected, 'row')} rejected, but "
            f"{manifest.rejects.rows:,} kept"
        )
    for name, split in manifest.splits.items():
        for noun in ("records", "bytes"):
            stated = getattr(split, noun)
            total = sum(getattr(shard, noun) for shard in split.shards)
            if stated != total:
                yield f"split {name} has {stated} {noun}, its shards have {total}"
        names = zip(split.shards, _expected_names(manifest, name, split), strict=True)
        for index, (shard, expected) in enumerate(names):
            part = parse_part(shard.file)
            if shard.file != expected:
                yield (
                    f"shard {index} of split {name} is {shard.file}, expected {expected}"
                )
            if part > manifest.appended:
                yield (
                    f"{shard.file} is of append {part}, but the dataset was appended to "
                    f"{format_count(manifest.appended, 'time')}"
                )


def _expected_names(manifest: Manifest, name: str, split: ManifestSplit) -> list[str]:
    """Returns the expected names of a split's shards, numbered within each part."""
    counts = Counter(parse_part(shard.file) for shard in split.shards)
    marks = {
        parse_part(shard.file): parse_commit_id(shard.file) for shard in split.shards
    }
    return [
        shard_file_name(
            *(manifest.name, name, index, num_shards, manifest.compression),
            *(part, marks[part], manifest.container),
        )
        for part, num_shards in sorted(counts.items())
        for index in range(num_shards)
    ]


def _shard_problems(
    shards: list[ManifestShard], sizes: dict[str, int], spared: Collection[str]
) -> Iterator[Problem]:
    """Yields shards that are missing or differ in size, and files without an entry.

    Shards of the replaced dataset (`spared`) are skipped: they stay for its readers.
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
    name_counts = Counter(shard.file for shard in shards)
    for file, times in name_counts.items():
        if times > 1:
            yield Problem(file, f"named {times} times by the manifest, expected once")
    for file in sizes:
        indexed = file.removesuffix(INDEX_SUFFIX)
        if is_shard_name(file) and indexed not in name_counts and indexed not in spared:
            yield Problem(
                file,
                "not in the manifest: left by another run. Readers that match names by "
                "a pattern, like *.tfrecord*, also read it; delete it",
                "stray",
            )


def metadata_problems(
    files: Mapping[str, ManifestFile],
    sizes: Mapping[str, int],
    store: Store | None = None,
) -> Iterator[Problem]:
    """Yields metadata files that are missing or changed; reads them if given a store."""
    for file, expected in files.items():
        if problem := _file_problem(expected, file, sizes.get(file), store):
            yield Problem(file, problem)


def _index_problems(
    store: Store, manifest: Manifest, sizes: Mapping[str, int], *, full: bool
) -> Iterator[Problem]:
    """Yields index files that are missing or do not match their shards.

    An index file that was written with its shard must exist and match its manifest entry.
    A file that was added later must match the records and bytes of its shard.
    """
    for shard in manifest.shards:
        name = index_file_name(shard.file)
        size = sizes.get(name)
        if shard.index is not None:
            problem = _file_problem(shard.index, name, size, store if full else None)
            if problem:
                yield Problem(name, f"{problem}. Run `recordmill index` to rewrite it")
        elif size is not None and full:
            try:
                parse_index(store.read(name), name, shard.records, shard.bytes)
            except OutputError as error:
                yield Problem(name, str(error).removeprefix(f"{name}: "), "stray")


def _file_problem(
    expected: ManifestFile, name: str, size: int | None, store: Store | None
) -> str:
    """Returns the difference between a file and its entry, or ""; may read the file."""
    if size is None:
        return f"missing: expected {format_count(expected.bytes, 'byte')}"
    if size != expected.bytes:
        return (
            f"{format_count(size, 'byte')}, expected {expected.bytes:,}: it was changed"
        )
    if store is None:
        return ""
    try:
        actual_crc = f"{crc32c(store.read(name)):08x}"
    except OutputError as error:
        return f"cannot be read: {error}"
    if actual_crc == expected.crc32c:
        return ""
    return f"CRC-32C is {actual_crc}, expected {expected.crc32c}: it was changed"


def _mark_unfinished(
    store: Store, manifest: Manifest, problems: Iterable[Problem]
) -> list[Problem]:
    """Returns the problems with kind "unfinished" for files that are not yet in place.

    Files with fixed names are replaced after the manifest. If the run was killed in
    between, the record of its commit has copies, and the next run puts them in place.
    """
    updated_problems = []
    for problem in problems:
        expected = manifest.files.get(problem.file)
        if expected is not None:
            copy = store.read_if_exists(
                fixed_copy_name(manifest.commit_id, problem.file)
            )
            if matches_entry(copy, expected):
                text = "not in place yet: the run was killed right after its commit"
                problem = Problem(problem.file, text, "unfinished")
        updated_problems.append(problem)
    return updated_problems


def _reject_problems(store: Store, manifest: Manifest, *, full: bool) -> Iterator[str]:
    """Compares the kept rejects with the manifest: their content, or only their size."""
    expected = manifest.rejects
    if expected is None:
        return
    files = rejects_files(store, manifest)
    size = sum(files.values())
    if not full:
        if size != expected.bytes:
            yield f"{format_count(size, 'byte')}, expected {expected.bytes:,}"
        return
    try:
        totals = sum(
            (RejectTotals.from_content(store.read(n)) for n in files), NO_REJECTS
        )
    except OutputError as error:
        yield f"cannot be read: {error}"
        return
    rows = format_count(totals.rows, "reject")
    if totals.rows != manifest.rows_rejected:
        yield f"{rows}, expected {manifest.rows_rejected:,}"
    elif totals != expected.totals:
        yield f"the {rows} differ from those that were written"


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of a verification."""

    output: str  # the dataset's folder
    name: str  # the dataset's name
    full: bool  # the records were read; otherwise only the files were listed
    deep: bool  # the records were decoded as well
    stored_checksums: int  # number of shards whose CRC-32C in the store was compared
    shards: int  # number of shard files found
    records: int  # number of whole records found; if not `full`, as in the manifest
    bytes: int  # size of the shard files found
    # summary of equal contents in different splits; "" if they were not compared
    duplicates: str
    metadata_files: int  # number of metadata files that were compared
    # problems of the manifest, of its shards in order, of other files; empty if the
    # dataset is undamaged
    problems: tuple[Problem, ...]

    @property
    def is_undamaged(self) -> bool:
        return not self.problems


def verify_dataset(
    output: str,
    *,
    full: bool = True,
    deep: bool = False,
    duplicates: bool = False,
    storage: StorageOptions = NO_OPTIONS,
    on_progress: Callable[[int], None] = lambda _: None,
    workers: int = 2,
) -> VerifyResult:
    """Compares a dataset with its manifest and collects all differences.

    Args:
      output: the dataset's folder.
      full: read every byte, not only names, sizes and checksums that the store keeps.
      deep: decode every record as well and check that it fits the schema.
      duplicates: read an undamaged dataset again, and compare the contents of its splits.
      storage: options of the dataset's storage.
      on_progress: called from time to time with the number of stored bytes that were
        read since the last call; from other threads, but only from one at a time.
      workers: shards read at the same time. Each takes about 16 MB of memory (100 MB if
        deep), and a few times the size of its largest record.
    """
    store = open_store(output, storage)
    manifest = read_manifest(store)
    while True:
        verify_result = verify_store(
            store,
            manifest,
            full=full,
            deep=deep,
            on_progress=on_progress,
            workers=workers,
        )
        if verify_result.is_undamaged:
            break
        verify_result = _without_passing(verify_result, store, manifest)
        current = read_manifest(store)
        if current == manifest:
            break
        manifest = current  # a run has published during the verification
    if duplicates and verify_result.is_undamaged:
        # A local import: runs do not need the modules that read records.
        from recordmill.transforms.dataset.diff import find_overlap
        from recordmill.transforms.dataset.reader import shards_to_read

        shards = shards_to_read(store, manifest)
        overlap = find_overlap(shards, on_progress)
        problems = [
            Problem(MANIFEST_NAME, t, "duplicates") for t in overlap.message_lines()
        ]
        verify_result = replace(
            verify_result, problems=tuple(problems), duplicates=overlap.summary()
        )
    return replace(verify_result, output=output)


def _without_passing(
    result: VerifyResult, store: Store, manifest: Manifest
) -> VerifyResult:
    """Returns a verification without the files of a run that has ended since.

    Until it ends, the files of its commit are strays, or are not in place yet.
    """
    files = store.list_level().files

    def persists(problem: Problem) -> bool:
        if problem.kind == "unfinished":
            content = store.read_if_exists(problem.file)
            return not matches_entry(content, manifest.files[problem.file])
        return problem.kind not in PASSING or problem.file in files

    return replace(result, problems=tuple(filter(persists, result.problems)))


def verify_store(
    store: Store,
    manifest: Manifest,
    *,
    full: bool,
    deep: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
    workers: int = 2,
) -> VerifyResult:
    """Verifies a dataset against a given manifest, which need not be stored yet."""
    level = store.list_level()
    sizes, full = level.files, full or deep
    shards = manifest.shards
    present = [shard for shard in shards if shard.file in sizes]
    replaced = None  # a dataset whose shards stay for its readers
    if manifest.generation:
        replaced = find_manifest(store, replaced_name(manifest.commit_id))
    problems = [
        *(
            Problem(MANIFEST_NAME, problem_text)
            for problem_text in _manifest_problems(manifest)
        ),
        *_shard_problems(shards, sizes, replaced.shard_files if replaced else ()),
        *metadata_problems(manifest.files, sizes, store if full else None),
        *_index_problems(store, manifest, sizes, full=full),
        *(
            Problem(REJECTS_NAME, problem_text)
            for problem_text in _reject_problems(store, manifest, full=full)
        ),
    ]
    entries: dict[str, ManifestFile | ManifestShard] = {
        shard.file: shard for shard in shards
    }
    for file, expected in (manifest.files | manifest.index_files | entries).items():
        stored = level.checksums.get(file)
        if file in sizes and stored is not None and f"{stored:08x}" != expected.crc32c:
            problems.append(
                Problem(
                    file,
                    f"the store has CRC-32C {stored:08x}, expected {expected.crc32c}: "
                    "this is not the file that was written",
                )
            )
    records = sum(shard.records for shard in present)
    if full:
        names = class_names(store, manifest)
        damaged_files = {problem.file for problem in problems}
        for feature in manifest.features:
            file, classes = feature.labels_file, feature.num_classes
            if classes is not None and not {feature.name, file} & {
                *names,
                *damaged_files,
            }:
                text = (
                    f"missing or damaged: expected the {classes} class names of "
                    f"{feature.name!r}, which are needed to check its labels"
                )
                problems.append(Problem(file, text))
        schema = schema_of(manifest, names) if deep else None
        check = partial(_check_shard, store, manifest, schema, _with_lock(on_progress))
        checked = list(map_ahead(present, check, max(1, workers)))
        records = sum(num_records for num_records, _ in checked)
        problems += [
            problem for _, shard_problems in checked for problem in shard_problems
        ]
    order = {shard.file: index for index, shard in enumerate(shards)}
    order[MANIFEST_NAME] = -1
    problems = _mark_unfinished(store, manifest, problems)
    problems.sort(key=lambda problem: order.get(problem.file, len(shards)))
    return VerifyResult(
        output=store.uri,
        name=manifest.name,
        full=full,
        deep=deep,
        stored_checksums=sum(shard.file in level.checksums for shard in present),
        shards=len(present),
        records=records,
        bytes=sum(sizes[shard.file] for shard in present),
        duplicates="",
        metadata_files=len(manifest.files),
        problems=tuple(problems),
    )


def _check_shard(
    store: Store,
    manifest: Manifest,
    schema: Schema | None,
    on_bytes: Callable[[int], None],
    shard: ManifestShard,
) -> tuple[int, list[Problem]]:
    """Reads one shard; returns (number of whole records, problems)."""
    # A local import: runs do not need the modules that read records.
    from recordmill.transforms.dataset.reader import ReadableShard

    is_framed = manifest.container == "tfrecord"
    how = manifest.compression, manifest.container, schema or schema_of(manifest)
    to_read = ReadableShard(store, "", shard, *how, manifest.payload)
    deep, records, damage = None, 0, ""
    if schema is not None:  # a local import of the modules that decode records
        from recordmill.transforms.dataset.deep_check import DeepCheck

        deep = DeepCheck(schema, manifest.payload, is_framed=is_framed)
    try:
        if not is_framed:
            with open_file(store, shard.file, on_bytes=on_bytes) as file:
                require_written(file, shard)
            if deep is None:  # the records are as counted when the file was written
                return shard.records, []
        if deep is None:
            for lengths in to_read.lengths(on_bytes, any_size=True):
                records += len(lengths)
        else:
            for window in to_read.windows(on_bytes, any_size=True):
                records += len(window)
                deep.add(window)
    except CorruptRecordError as error:
        damage = f"record {error.record_index} at byte {error.offset}: {error.problem}"
    except OutputError as error:
        damage = str(error).removeprefix(f"{to_read.uri}: ")
    except OSError as error:
        damage = f"cannot be read: {error}"
    texts = deep.problems() if deep else ()
    problems = [Problem(shard.file, text, "values") for text in texts]
    return records, [*problems, *([Problem(shard.file, damage)] if damage else [])]


def _with_lock(on_progress: Callable[[int], None]) -> Callable[[int], None]:
    """Returns a thread-safe callback, which calls this one from one thread at a time."""
    lock = Lock()

    def add(num_bytes: int) -> None:
        with lock:
            on_progress(num_bytes)

    return add
