"""Stages a dataset's files, after checks that no row is lost.

The manifest is staged last. Then commit.py publishes the staged files.
"""

from __future__ import annotations

import json
import math
import os
import posixpath
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import (
    BusyError,
    ChangedInputError,
    InputError,
    OutputError,
    OutputRefusedError,
)
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileStat, InputFile, parse_member
from recordmill.schemas.input_summary import DUPLICATES, InputReport, InputWarning
from recordmill.schemas.job import Description, JobSpec
from recordmill.schemas.manifest import (
    CARD_NAME,
    MANIFEST_NAME,
    Manifest,
    ManifestShard,
    join_manifests,
    schema_of,
    with_published_names,
)
from recordmill.schemas.names import (
    REJECTS_NAME,
    format_commit_id,
    inputs_file_name,
    inventory_file_name,
    parse_commit_id,
    rejects_prefix,
    run_metadata_name,
    staged_file_name,
)
from recordmill.schemas.ranges import RangeResult, ShardResult
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count, format_json
from recordmill.schemas.tfmd import SCHEMA_PBTXT_NAME, dump_pbtxt
from recordmill.transforms.commit.build_manifest import (
    build_manifest,
    check_run_rejects,
    merge_column_info,
)
from recordmill.transforms.commit.check_output import check_output
from recordmill.transforms.commit.commit import (
    DAMAGED_ADVICE,
    REPLACED_DIGEST_NAME,
    STAGED_MANIFEST,
    TFDS_FILES,
    clean_up,
    commit,
    current_manifest_digest,
    is_staged,
    manifest_digest,
    require_stored,
    unnamed_files_of_part,
)
from recordmill.transforms.commit.inputs import (
    ConvertedFile,
    ConvertedFiles,
    PartInputs,
    converted_files_of,
    dump_part_inputs,
    is_of_run,
    read_contents,
)
from recordmill.transforms.dataset.files import (
    class_names,
    file_entry,
    open_file,
    read_fixed,
    read_manifest,
)
from recordmill.transforms.dataset.tfds import (
    DATASET_INFO_NAME,
    labels_files,
    metadata_files,
    replace_about,
)
from recordmill.transforms.dataset.verify import verify_store
from recordmill.transforms.file_content import bytes_of_content, compute_contents
from recordmill.transforms.inventory import FileTable, Inventory
from recordmill.transforms.join import join_rows
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease import Lease, acquire
from recordmill.transforms.storage.reading import file_status, is_local, local_path
from recordmill.transforms.storage.store import Data
from recordmill.transforms.storage.table_file import put_table, read_table
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.fingerprint import (
    FORMAT_VERSION,
    appended_fingerprint,
    fingerprint_of,
    fixed_fields,
)
from recordmill.transforms.tasks.launches import end_launch, is_launch, keep_alive
from recordmill.transforms.tasks.leftovers import find_leftovers, remove_leftovers
from recordmill.transforms.tasks.memory import release_memory
from recordmill.transforms.tasks.rejects import published_rejects
from recordmill.transforms.tasks.workspace import (
    CHECKPOINT_FOLDER,
    INPUTS_NAME,
    Workspace,
    discard_checkpoint,
    load_checksums,
    write_live_counts,
)
from recordmill.transforms.temporary import gather_batches

_READ_BYTES = 4 << 20  # bytes of a shard that are read together for its SHA-256


def _list_converted(
    context: RunContext, ranges: Collection[RangeResult], shards: Sequence[ShardResult]
) -> tuple[str, Data, Data, ConvertedFiles]:
    """Lists the inputs of a run, with checksums of the bytes that its tasks read.

    Returns:
      The dataset's fingerprint, the bytes of inputs.jsonl.gz and of inventory.jsonl.gz,
        and the files with their content texts, if known.
    """
    files = ConvertedFiles(read_table(*context.workspace.store_and_name(INPUTS_NAME)))
    file_contents = _file_contents(context, files, ranges, shards)
    by_content = file_contents is not None
    if by_content:
        files = files.with_column("content", file_contents)
    parts = (
        _select_files(files, by="content" if by_content else "version", sides=sides)
        for sides in (False, True)
    )
    base, reading = (
        context.publishing.base_fingerprint,
        context.publishing.inventory_description,
    )
    if not by_content:
        fingerprint = context.run_key
    elif base:
        fingerprint = appended_fingerprint(base, *parts, reading=reading)
    else:
        fingerprint = fingerprint_of(context.job, *parts, reading=reading)
    job = fixed_fields(context.job)
    as_listed = PartInputs(
        FORMAT_VERSION, fingerprint, job, files, run_key=context.run_key
    )
    inputs_by_content = replace(as_listed, run_key="", by_content=by_content)
    return (
        fingerprint,
        dump_part_inputs(inputs_by_content),
        dump_part_inputs(as_listed),
        files,
    )


def _file_contents(
    context: RunContext,
    files: ConvertedFiles,
    ranges: Collection[RangeResult],
    shards: Sequence[ShardResult],
) -> pa.ChunkedArray | None:
    """Returns the content text of each file, null if it was not read; None if unknown."""
    if not context.source.input_source.reports_checksums:
        return None
    checksum_lists = chain(
        (range_result.checksums for range_result in ranges),
        (shard.checksums for shard in shards),
    )
    checksums = load_checksums(context.workspace, checksum_lists)
    if checksums is None:
        return None
    try:
        paths_and_sizes = files.table.select(["path", "size"])
        return join_rows(paths_and_sizes, checksums, compute_contents, pa.string())
    except ChangedInputError:
        discard_read_checkpoints(context)
        raise


def discard_read_checkpoints(context: RunContext) -> None:
    """Discards the checkpoints of all ranges and shards, so that they are read again."""
    for name in context.workspace.list_names(CHECKPOINT_FOLDER):
        if name.startswith(("range-", "shard-")) and name.endswith(".json"):
            discard_checkpoint(context.workspace, name.removesuffix(".json"))


def _select_files(files: ConvertedFiles, *, by: str, sides: bool) -> FileTable:
    """Returns the inputs, or the sidecar files, by version or by content."""
    file_table = files.filter(pc.equal(files.table["is_sidecar"], sides)).table
    return FileTable(
        file_table.select(["path", "size", by]).rename_columns(_STAT_SCHEMA.names)
    )


def _check_duplicates(
    context: RunContext,
    part_manifest: Manifest,
    base: Manifest | None,
    run_metadata: bytes,
) -> bytes:
    """Compares the records of different splits, including those of the base dataset.

    Returns the run's metadata with the number of duplicates, and a warning if any exist.
    """
    if context.publishing.duplicates == "ignore":
        return run_metadata
    # A local import: these modules import all code that reads records.
    from recordmill.transforms.dataset.diff import find_overlap
    from recordmill.transforms.dataset.reader import shards_to_read

    workspace = context.workspace
    staged = workspace.store.subfolder_store(workspace.store_name("staging"))
    shards = shards_to_read(staged, part_manifest)
    if context.part and base is not None:
        shards = shards_to_read(workspace.store, base) + shards
    with write_live_counts(workspace, "publish-duplicates") as live:
        overlap = find_overlap(shards, live.add_written)
    overlap_lines = overlap.message_lines()
    if overlap_lines and context.publishing.duplicates == "fail":
        raise InputError(
            f"{overlap_lines[0]}. Remove the copies from the inputs, or use `duplicates=report`"
        )
    warnings = tuple(InputWarning("duplicates", line) for line in overlap_lines)
    overlap_report = InputReport(((DUPLICATES, overlap.summary()),), warnings)
    metadata = json.loads(run_metadata)
    input_report = InputReport.from_dict(metadata.get("understood", {}))
    metadata["understood"] = input_report.merged_with(overlap_report).to_dict()
    return format_json(metadata)


# If a file is replaced while it is read, rows of both files are read: 234,101 of the old
# and 65,899 of the new one in a measured run. When all inputs have been read, size and
# version (modification time, or the store's etag) of each are compared with the
# inventory; if one differs, nothing is published.
#
# A local file can be replaced by one of the same size and time: by a copy that keeps
# times, or from an archive whose files all have the same time. The file system stores the
# time of the last change of a file's metadata. So a file that was touched in any way
# since the run began is read again, and its content is compared with the bytes read
# before.

_STAT_SCHEMA = pa.schema(
    {"path": pa.string(), "size": pa.int64(), "version": pa.string()}
)  # the columns that are compared, and hashed into the fingerprint
_SHOWN = 3  # files in the error message
_CLOCK_SECONDS = 0.001  # a file touched this shortly before the start is read as well


def require_same_inputs(
    files: ConvertedFiles,
    root: str,
    inputs: Sequence[str],
    storage: StorageOptions,
    since: float | None = None,
) -> None:
    """Checks that no input changed since the inventory was taken.

    Sidecar files are skipped: most of them may never be read. `since` is the time at
    which the run began.
    """
    left_out = pc.or_(files.table["is_sidecar"], files.table["is_unreadable"])
    listed = files.filter(pc.invert(left_out))
    if is_local(root):
        began = math.inf if since is None else since
        found_changes = _changed_locally(listed, str(local_path(root)), began)
    else:
        found_changes = _changed_in_store(listed, root, inputs, storage)
    changed = list(dict.fromkeys(found_changes))  # an archive has many members
    if changed:
        more = len(changed) - _SHOWN
        raise ChangedInputError(
            f"{format_count(len(changed), 'input file')} changed while the run read them:\n"
            + "\n".join(f"  {change}" for change in changed[:_SHOWN])
            + (f"\n  and {format_count(more, 'other file')}" if more > 0 else "")
            + "\nRun the same command again when nothing writes to the inputs"
        )


def _changed_locally(files: ConvertedFiles, folder: str, since: float) -> Iterator[str]:
    """Yields the differences of local files; reads files touched since a time."""
    above = f"{folder.rstrip('/')}/"
    status = lru_cache(maxsize=16)(os.stat)
    for batch in files.batches():
        # One call for all files. Members of archives are not found by their names: the
        # status of their archive is read once for all of them.
        names = [above + path for path in batch["path"].to_pylist()]
        sizes, times, changed = file_status(names)
        is_same = pc.and_(
            pc.equal(batch["size"], pa.array(sizes)),
            pc.equal(batch["version"], pa.array(times).cast(pa.string())),
        )
        is_old = pa.array(changed / 1e9 <= since - _CLOCK_SECONDS)
        is_seen = pc.fill_null(pc.and_(is_same, is_old), False)
        unconfirmed_rows = batch.filter(pc.invert(is_seen))
        for path, file in ConvertedFiles(pa.Table.from_batches([unconfirmed_rows])):
            name, stat = _stat_of(above + path, file)
            try:
                current_status = status(name)
            except OSError as error:
                yield f"{name}: {error.strerror}"
                continue
            difference = _stat_difference(
                name, stat, current_status.st_size, str(current_status.st_mtime_ns)
            )
            if difference:
                yield difference
            elif current_status.st_ctime > since and not _is_as_read(
                InputFile(path, above + path, file.size, file.version or ""),
                file.content or "",
            ):
                yield f"{name}: was replaced by another file of the same size and time"


def _is_as_read(file: InputFile, content: str) -> bool:
    """Checks whether a local file still has the content that was read, if any was."""
    size = bytes_of_content(content, file.size)
    if not size:
        return True
    try:
        return list(read_contents([(file, size)], NO_OPTIONS)) == [content]
    except InputError:
        return False  # the archive of the member was replaced


def _stat_of(name: str, file: ConvertedFile) -> tuple[str, FileStat]:
    """Returns the name and the recorded stat of a file, or of the archive around it."""
    member = parse_member(file.version or "")
    if member is None:
        return name, FileStat(file.size, file.version or "")
    return member.archive_uri(name), member.archive_stat


def _changed_in_store(
    files: ConvertedFiles, root: str, inputs: Sequence[str], storage: StorageOptions
) -> Iterator[str]:
    listed = list_inputs(inputs, storage, keep_unreadable=True, open_archives=False)[1]
    top = posixpath.join(root, "")

    def below(part: Inventory) -> pa.RecordBatch:
        files_below = part.filter(pc.starts_with(part.uris, top))
        path = pc.utf8_slice_codeunits(files_below.uris, len(top))
        columns = (path, files_below.table["size"], files_below.table["version"])
        arrays = [column.combine_chunks() for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=_STAT_SCHEMA)

    def same(recorded_rows: pa.Table, listed_rows: pa.Table) -> pa.Array:
        matched_rows = listed_rows.take(
            pc.index_in(recorded_rows["path"], value_set=listed_rows["path"])
        )
        is_same = (
            pc.equal(recorded_rows[name], matched_rows[name])
            for name in ("size", "version")
        )
        return pc.and_(*is_same).combine_chunks()

    listed_table = gather_batches(map(below, listed.parts()), _STAT_SCHEMA)
    is_same = join_rows(files.table, listed_table, same, pa.bool_())
    unconfirmed_files = files.filter(pc.invert(pc.fill_null(is_same, False)))
    files_by_uri = {file.uri: file for file in listed} if len(unconfirmed_files) else {}
    for path, file in unconfirmed_files:
        uri, stat = _stat_of(posixpath.join(root, path), file)
        if uri not in files_by_uri:
            yield f"{uri}: is missing"
        elif difference := _stat_difference(
            uri, stat, files_by_uri[uri].size, files_by_uri[uri].version
        ):
            yield difference


def _stat_difference(name: str, file: FileStat, size: int, version: str) -> str:
    """Returns the difference between a file and its stat in the inventory, or ""."""
    if size != file.size:
        return f"{name}: {size:,} bytes, was {file.size:,} when the run began"
    if version != file.version:
        return f"{name}: was written again (with {size:,} bytes as before)"
    return ""


_LISTED_AT = "listed-at"  # a file in the workspace


def stage(
    context: RunContext,
    ranges: Collection[RangeResult],
    shards: Sequence[ShardResult],
    run_metadata: bytes,
) -> Manifest:
    """Stages all files except the shards; the manifest is last.

    Raises:
      BusyError: another run published since this one was allowed to begin.
      OutputError: a staged file is damaged.
      RecordmillError: rows are missing, an input changed, or there are warnings in
        strict mode.
    """
    workspace = context.workspace
    store = workspace.store
    published_bytes = store.read_if_exists(MANIFEST_NAME)
    if published := _published_by_this(context, published_bytes):
        return published  # a repeated task
    current_manifest = None
    if published_bytes is not None:
        current_manifest = Manifest.from_bytes(
            published_bytes, store.uri_of(MANIFEST_NAME)
        )
    if is_staged(workspace):
        return read_manifest(store, workspace.store_name(STAGED_MANIFEST))
    part_manifest = build_manifest(context, ranges, shards)
    run_metadata = _check_duplicates(
        context, part_manifest, current_manifest, run_metadata
    )
    if context.publishing.strict:
        report_fields = json.loads(run_metadata)["understood"]
        InputReport.from_dict(report_fields).require_no_warnings()
    described = dict[str, Data]()
    unnamed = described.copy()
    unnamed[run_metadata_name(context.part)] = run_metadata  # contains the run's time
    release_memory()  # the memory of ranges and shards
    read: ConvertedFiles | None = None
    if context.publishing.inputs:
        fingerprint, by_content, as_listed, read = _list_converted(
            context, ranges, shards
        )
        part_manifest = part_manifest.model_copy(update={"fingerprint": fingerprint})
        described[inputs_file_name(context.part)] = by_content
        unnamed[inventory_file_name(context.part)] = as_listed
    generation = current_manifest.generation + 1 if current_manifest else 0
    if not context.part:  # an append does not change these files
        schema = context.schema(*merge_column_info(ranges, shards))
        mark = format_commit_id(part_manifest.fingerprint, generation)
        described |= description_files(context.job, schema, shards, mark)
        if part_manifest.about and DATASET_INFO_NAME in described:
            dataset_info = bytes(described[DATASET_INFO_NAME])
            described[DATASET_INFO_NAME] = replace_about(
                dataset_info, part_manifest.about
            )
    entries = {name: file_entry(content) for name, content in sorted(described.items())}
    part_manifest = part_manifest.model_copy(update={"files": entries})
    manifest = with_published_names(part_manifest, generation)
    if context.part:
        manifest = _with_base(context, current_manifest, manifest)
    if context.publishing.description.has_card:
        if context.part:
            schema = schema_of(manifest, class_names(store, manifest))
        manifest, described[CARD_NAME] = with_card(workspace, manifest, schema)
    staged = described | unnamed
    store.put_all({workspace.store_name(f"staging/{n}"): staged[n] for n in staged})
    _stage_rejects(context)
    if read is not None:
        _require_same_inputs(context, read)
    _verify_staged(context, part_manifest.model_copy(update={"appended": context.part}))
    # Only after the checks: a manifest of an earlier launch may be staged already.
    store.put_bytes(
        manifest_digest(published_bytes).encode(),
        workspace.store_name(REPLACED_DIGEST_NAME),
    )
    store.put_bytes(manifest.to_bytes(), workspace.store_name(STAGED_MANIFEST))
    return manifest


def _require_same_inputs(context: RunContext, read: ConvertedFiles) -> None:
    """Checks that no input changed since the first launch.

    If one did, the checkpoints of all reading tasks are discarded.
    """
    root, inputs = context.publishing.input_root, context.publishing.inputs
    storage, since = context.source.input_source.storage, _listed_at(context.workspace)
    try:
        require_same_inputs(read, root, inputs, storage, since)
    except ChangedInputError:
        discard_read_checkpoints(context)
        context.workspace.discard(_LISTED_AT)
        raise


def _listed_at(workspace: Workspace) -> float | None:
    """Returns the time of the listing of the inputs, in Unix seconds.

    If the stored time is damaged, 0 is returned, so that all files are compared.
    """
    time_text = workspace.read_file(_LISTED_AT)
    if time_text is None:
        return None
    with suppress(ValueError):
        seconds = float(time_text)
        return seconds if math.isfinite(seconds) else 0.0
    return 0.0


def _stage_rejects(context: RunContext) -> None:
    workspace = context.workspace
    prefix = f"staging/{REJECTS_NAME}/{rejects_prefix(context.part)}"
    pairs = [
        (f"{REJECTS_NAME}/{name}", workspace.store_name(f"{prefix}{name}"))
        for name in workspace.list_names(REJECTS_NAME)
    ]
    store, path = workspace.store, workspace.local_path
    if workspace.is_in_store:
        store.move_all(
            (workspace.store_name(source_name), target) for source_name, target in pairs
        )
    else:
        store.for_each(lambda pair: store.put_file(path(pair[0]), pair[1]), pairs)


def keep_inventory(
    context: RunContext, files: Inventory, sidecar_files: Inventory, listed_at: float
) -> None:
    """Writes the inventory of inputs to the workspace, for the end of the run.

    `listed_at` is the time before the listing, in Unix seconds. The time of the first
    launch is kept, because later launches reuse its results.
    """
    if (
        is_local(context.publishing.input_root)
        and context.workspace.read_file(_LISTED_AT) is None
    ):
        # On disk before any result of a task, because a later launch reuses results.
        context.workspace.write_file(_LISTED_AT, repr(listed_at).encode(), durable=True)
    listed_files = converted_files_of(files, sidecar_files)
    put_table(*context.workspace.store_and_name(INPUTS_NAME), listed_files.table)


def _with_base(context: RunContext, base: Manifest | None, more: Manifest) -> Manifest:
    """Returns the manifest of the existing dataset with the appended part."""
    store = context.workspace.store
    if base is None or base.fingerprint != context.publishing.base_fingerprint:
        raise BusyError(
            f"{store.uri}: the dataset changed since this run began to append to it "
            f"(fingerprint {base.fingerprint if base else 'none'}, was "
            f"{context.publishing.base_fingerprint}); run again"
        )
    whole = join_manifests(base, more, stale_files=TFDS_FILES)
    rejected = whole.rows_rejected
    check_run_rejects(context, whole.rows_read, rejected, published_rejects(store))
    return whole


def _verify_staged(context: RunContext, manifest: Manifest) -> None:
    """Verifies the staged shards; removes damaged ones, so that they are rewritten."""
    workspace = context.workspace
    staged = workspace.store.subfolder_store(workspace.store_name("staging"))
    full = context.publishing.verify == "full"
    with write_live_counts(workspace, "publish-verify") as live:
        verify_result = verify_store(
            staged,
            manifest,
            full=full,
            on_progress=live.add_written,
            workers=usable_cores(),
        )
    if verify_result.is_undamaged:
        return
    shards = set(manifest.shard_files)
    damaged = {problem.file for problem in verify_result.problems}
    rejects = staged.list(REJECTS_NAME) if REJECTS_NAME in damaged else ()
    staged_names = {*shards, *manifest.index_files, *manifest.files}
    staged.delete({*(damaged & staged_names), *rejects})
    first = verify_result.problems[0]
    raise OutputError(
        f"{staged.uri_of(first.file)}: {first.message} "
        f"({format_count(len(verify_result.problems), 'problem')} in all). The damaged files were "
        "removed; run again to rewrite them"
    )


def description_files(
    job: JobSpec, schema: Schema, shards: Sequence[ShardResult], mark: str = ""
) -> dict[str, bytes]:
    """Returns the files that describe the records to readers, by name."""
    files = labels_files(schema) | {SCHEMA_PBTXT_NAME: dump_pbtxt(schema)}
    # TFDS can read only uncompressed shards of examples.
    if job.compression == "none" and job.payload == "example":
        files |= metadata_files(
            *(job.name, job.version, schema, shards, mark, job.container),
            label=job.label or "",
        )
    return files


def with_card(
    workspace: Workspace, manifest: Manifest, schema: Schema
) -> tuple[Manifest, bytes]:
    """Returns a manifest with SHA-256 of its shards and a card, and the card's bytes.

    Shards without a SHA-256 are read: shards of a dataset without a card, or of a resumed
    run.
    """
    from recordmill.transforms.dataset.croissant import (
        croissant_card,
    )  # few runs need it

    store = workspace.store

    def summed(shard: ManifestShard) -> ManifestShard:
        if shard.sha256:
            return shard
        name, digest = shard.file, sha256()
        if parse_commit_id(name) == manifest.commit_id:
            name = workspace.store_name(f"staging/{staged_file_name(name)}")
        with open_file(store, name) as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
            crc = f"{file.checksum_of_part():08x}"
        if crc != shard.crc32c:
            raise OutputRefusedError(
                f"{file.uri}: CRC-32C {crc}, the manifest records {shard.crc32c}. {DAMAGED_ADVICE}"
            )
        return shard.model_copy(update={"sha256": digest.hexdigest()})

    splits = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, split in manifest.splits.items():
            shards = tuple(pool.map(summed, split.shards))
            splits[name] = split.model_copy(update={"shards": shards})
    manifest = manifest.model_copy(update={"splits": splits})
    card = croissant_card(manifest, schema)
    files = {**manifest.files, CARD_NAME: file_entry(card)}
    files = {name: files[name] for name in sorted(files)}
    return manifest.model_copy(update={"files": files}), card


def describe(workspace: Workspace, description: Description, lease: str) -> Manifest:
    """Publishes a dataset again with another description; the caller holds the lease.

    The new manifest names the same shards. `lease` is the nonce of the lease.
    """
    store = workspace.store
    manifest_bytes = store.read(MANIFEST_NAME)
    old = Manifest.from_bytes(manifest_bytes, store.uri_of(MANIFEST_NAME))
    described = {n: read_fixed(store, old, n) for n in unnamed_files_of_part(old)}
    files = {
        name: manifest_entry
        for name, manifest_entry in old.files.items()
        if name != CARD_NAME
    }
    if DATASET_INFO_NAME in files:
        dataset_info = replace_about(
            read_fixed(store, old, DATASET_INFO_NAME), description.texts
        )
        described[DATASET_INFO_NAME], files[DATASET_INFO_NAME] = (
            dataset_info,
            file_entry(dataset_info),
        )
    update = {"generation": old.generation + 1, "about": dict(description.texts)}
    manifest = old.model_copy(update={**update, "files": files})
    if description.has_card:
        schema = schema_of(old, class_names(store, old))
        manifest, described[CARD_NAME] = with_card(workspace, manifest, schema)
    staged_files = {
        workspace.store_name(f"staging/{n}"): described[n] for n in described
    }
    store.put_all(staged_files)
    store.put_bytes(
        manifest_digest(manifest_bytes).encode(),
        workspace.store_name(REPLACED_DIGEST_NAME),
    )
    store.put_bytes(manifest.to_bytes(), workspace.store_name(STAGED_MANIFEST))
    return commit(workspace, manifest, lease)


# While it converts, a detached job holds no lease; its heartbeat protects its workspace
# (transforms/tasks/launches.py). The manifest that it may replace is fixed at its launch.
# If the output has another manifest when the job publishes, another run came first.

LEASE_TRIES = 6
LEASE_PAUSE_SECONDS = 20.0  # the lease of a dead worker expires before the last try


def publish_detached(
    context: RunContext,
    ranges: Collection[RangeResult],
    shards: Sequence[ShardResult],
    run_metadata: bytes,
) -> Manifest:
    """Publishes like the launcher at the end of an attended run; safe to repeat.

    Concurrent launches of one job are harmless: they write the same bytes.

    Raises:
      OutputError: another run is publishing, or published a dataset since the launch.
    """
    workspace, store = context.workspace, context.workspace.store
    with acquire_for_commit(store) as lease:
        manifest = publish(
            context, lambda allowed: stage(allowed, ranges, shards, run_metadata)
        )
        if lease.is_held():  # otherwise another run may be writing to the output
            workspace.remove()
            remove_leftovers(store, find_leftovers(store, spare=workspace.name))
    return manifest


def publish(
    context: RunContext, put_into_staging: Callable[[RunContext], Manifest]
) -> Manifest:
    """Publishes unless an earlier try of this step did; the caller holds the lease.

    `put_into_staging` stages the files, like `stage`, for the context that it receives.

    Raises:
      BusyError: the run is a detached job that was ended, or another run published.
      OutputError: the output holds another dataset that must not be replaced.
    """
    keep_alive(context.workspace, at_once=True)
    store, replaces = (
        context.workspace.store,
        context.publishing.replaced_manifest_digest,
    )
    try:
        return _publish(context, put_into_staging)
    except OutputError as error:
        if replaces not in (None, current_manifest_digest(store)):
            # Another try would fail as well.
            end_launch(context.workspace, str(error))
        raise


def _publish(
    context: RunContext, put_into_staging: Callable[[RunContext], Manifest]
) -> Manifest:
    store = context.workspace.store
    manifest_bytes = store.read_if_exists(MANIFEST_NAME)
    _published_by_this(context, manifest_bytes)
    replaces = context.publishing.replaced_manifest_digest
    if replaces is None:
        replaces = manifest_digest(manifest_bytes)
    manifest = check_output(
        store,
        context.run_key,
        overwrite=context.publishing.overwrite,
        base=context.publishing.base_fingerprint,
        is_same=lambda published_manifest: is_of_run(
            store, published_manifest, context.run_key
        ),
    )
    if manifest is not None:
        require_stored(store, manifest)
        clean_up(store)
        return manifest
    clean_up(store, end_grace=False)
    staged = None
    if not is_staged(context.workspace):
        staged = put_into_staging(
            context.publishing_with(replaced_manifest_digest=replaces)
        )
    manifest = commit(context.workspace, staged)
    if context.publishing.grace == "0":
        clean_up(store)
    return manifest


def _published_by_this(
    context: RunContext, manifest_bytes: bytes | None
) -> Manifest | None:
    """Returns the manifest that an earlier try of a run, or of its job, published.

    `manifest_bytes` is the manifest in the output. Returns None if it is still the one
    that the run may replace.

    Raises:
      BusyError: another job published since the run began.
    """
    store, replaces = (
        context.workspace.store,
        context.publishing.replaced_manifest_digest,
    )
    if replaces in (None, manifest_digest(manifest_bytes)):
        return None
    if manifest_bytes is not None:
        published_manifest = Manifest.from_bytes(
            manifest_bytes, store.uri_of(MANIFEST_NAME)
        )
        if is_of_run(store, published_manifest, context.run_key):
            return published_manifest
    append = "append to it"
    way = (
        append
        if context.publishing.base_fingerprint
        else "replace it with `overwrite=true`"
    )
    began, again = "this run began", "Run again"
    if is_launch(context.workspace.name):
        began, again = "this job was launched", "Submit the job again"
    raise BusyError(
        f"{store.uri}: the dataset changed since {began}, because another run "
        f"published here. It was not changed, and this run published nothing. {again} "
        f"to {way}, or choose another folder"
    )


def acquire_for_commit(store: Store) -> Lease:
    """Acquires the output's lease; waits until the lease of a dead worker expires."""
    for _ in range(LEASE_TRIES - 1):
        try:
            return acquire(store)
        except BusyError:
            time.sleep(LEASE_PAUSE_SECONDS)
    return acquire(store)
