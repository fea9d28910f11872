"""Stages a dataset's files, after checks that no row is lost.

The manifest is staged last. The commit makes the staged files the dataset (commit.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import chain

from recordmill.schemas.dataset.join_manifests import join_manifests, publish_as
from recordmill.schemas.dataset.manifest import MANIFEST_NAME, FileEntry, Manifest
from recordmill.schemas.dataset.parts import (
    REJECTS_NAME,
    commit_mark,
    inputs_name,
    inventory_name,
    rejects_prefix,
    run_metadata_name,
)
from recordmill.schemas.dataset.shards import ShardResult
from recordmill.schemas.errors import (
    BusyError,
    ChangedInputError,
    OutputError,
)
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.parsing.pbtxt import SCHEMA_PBTXT_NAME, dump_pbtxt
from recordmill.schemas.ranges import (
    InputFile,
    RangeResult,
)
from recordmill.schemas.text import count
from recordmill.transforms.commit.build_manifest import (
    build_manifest,
    check_reject_limit,
    locator_of,
    merge_column_info,
)
from recordmill.transforms.commit.commit import is_staged, manifest_digest
from recordmill.transforms.commit.converted_inputs import (
    forget_what_was_read,
    list_converted,
)
from recordmill.transforms.commit.duplicates import check_duplicates
from recordmill.transforms.commit.finish import TFDS_FILES
from recordmill.transforms.commit.input_check import require_same_inputs
from recordmill.transforms.commit.input_log import KeptInputs, dump_inputs, parse_inputs
from recordmill.transforms.commit.kept_inputs import is_of_run
from recordmill.transforms.commit.recovery import SEEN_NAME, STAGED_MANIFEST
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.dataset.tfds_files import labels_files, metadata_files
from recordmill.transforms.dataset.verify import verify_store
from recordmill.transforms.storage.reading import is_local
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.live_counts import counting
from recordmill.transforms.tasks.read_rejects import (
    published_rejects,
    rejects_command,
    run_rejects,
)
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tfrecord import crc32c

_LISTED_AT = "listed-at"  # in the workspace


def stage(
    context: RunContext,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
    run_metadata: bytes,
) -> Manifest:
    """Stages everything except the shards, the manifest last.

    Raises:
      BusyError: another run published since this one was allowed to begin.
      OutputError: a staged file is damaged.
      RecordmillError: rows are missing, or an input changed.
    """
    workspace = context.workspace
    store = workspace.store
    seen = store.find(MANIFEST_NAME)
    found = None
    if seen is not None:
        found = Manifest.from_bytes(seen, store.uri_of(MANIFEST_NAME))
    if context.replaces != manifest_digest(seen):
        if found is not None and is_of_run(store, found, context.run_key):
            return found  # a repeated task: an earlier try has published it
        if context.replaces is not None:
            raise BusyError(
                f"{store.uri}: the dataset changed since this run began; it was left "
                "as it is. Run again"
            )
    if is_staged(workspace):
        return read_manifest(store, workspace.store_name(STAGED_MANIFEST))
    own = build_manifest(context, ranges, shards)
    run_metadata = check_duplicates(context, own, found, run_metadata)
    unnamed = {run_metadata_name(context.part): run_metadata}  # tells when the run was
    described = {}
    listed = _read_inventory(context) if context.inputs else None
    read: Mapping[str, str] | None = None
    if listed is not None:
        inputs = list_converted(context, listed, ranges, shards)
        own = own.model_copy(update={"fingerprint": inputs.fingerprint})
        read = inputs.contents
        described[inputs_name(context.part)] = inputs.by_content
        unnamed[inventory_name(context.part)] = inputs.as_listed
    generation = found.generation + 1 if found else 0
    if not context.part:  # an append does not change these files
        schema = context.schema(*merge_column_info(ranges, shards))
        mark = commit_mark(own.fingerprint, generation)
        described |= description_files(context.job, schema, shards, mark)
    own = own.model_copy(update={"files": _file_entries(described)})
    manifest = publish_as(own, generation)
    if context.part:
        manifest = _with_base(context, found, manifest)
    for name, data in (described | unnamed).items():
        store.put_bytes(data, workspace.store_name(f"staging/{name}"))
    _stage_rejects(context)
    if listed is not None:
        _require_same_inputs(context, listed, read)
    _verify_staged(context, own.model_copy(update={"appended": context.part}))
    seen_name = workspace.store_name(SEEN_NAME)
    if seen is None:
        store.delete([seen_name])
    else:
        store.put_bytes(seen, seen_name)
    store.put_bytes(manifest.to_bytes(), workspace.store_name(STAGED_MANIFEST))
    return manifest


def _require_same_inputs(
    context: RunContext, listed: KeptInputs, read: Mapping[str, str] | None
) -> None:
    """Checks that no input changed since the first launch of this run listed them.

    Args:
      context: the run.
      listed: its inventory.
      read: the content of what was read of each file; None if it is not known.

    Raises:
      ChangedInputError: one did; what was read is forgotten.
    """
    since = _listed_at(context.workspace)
    storage = context.source.storage
    try:
        require_same_inputs(
            listed.files, context.input_root, context.inputs, storage, read, since
        )
    except ChangedInputError:
        forget_what_was_read(context)
        context.workspace.discard(_LISTED_AT)
        raise


def _listed_at(workspace: Workspace) -> float | None:
    """Returns when the inputs were listed; 0, so that all are compared, if damaged."""
    noted = workspace.get(_LISTED_AT)
    if noted is None:
        return None
    try:
        seconds = float(noted)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _stage_rejects(context: RunContext) -> None:
    workspace = context.workspace
    prefix = f"staging/{REJECTS_NAME}/{rejects_prefix(context.part)}"
    moved = []
    for name in workspace.names(REJECTS_NAME):
        target = workspace.store_name(f"{prefix}{name}")
        source = f"{REJECTS_NAME}/{name}"
        if workspace.shared:
            moved.append((workspace.store_name(source), target))
        else:
            workspace.store.put_file(workspace.local_path(source), target)
    workspace.store.move_all(moved)


def _file_entries(files: Mapping[str, bytes]) -> dict[str, FileEntry]:
    """Returns the entries of metadata files, by name."""
    return {
        name: FileEntry(bytes=len(data), crc32c=f"{crc32c(data):08x}")
        for name, data in sorted(files.items())
    }


def _read_inventory(context: RunContext) -> KeptInputs:
    """Reads the inventory that the run began with."""
    store = context.workspace.store
    name = context.workspace.store_name(inventory_name(context.part))
    return parse_inputs(store.read(name), store.uri_of(name))


def keep_inventory(
    context: RunContext,
    files: Sequence[InputFile],
    side_files: Sequence[InputFile],
    listed_at: float,
) -> None:
    """Writes the inventory of inputs to the workspace, for the end of the run.

    Args:
      context: the run.
      files: its inputs.
      side_files: those that cells may name.
      listed_at: the time before they were listed, in Unix seconds. That of the first
        launch is kept: a later one takes up what it read.
    """
    if is_local(context.input_root) and context.workspace.get(_LISTED_AT) is None:
        # On disk before anything that is read: a later launch takes that up.
        context.workspace.put(_LISTED_AT, repr(listed_at).encode(), durable=True)
    name = context.workspace.store_name(inventory_name(context.part))
    key = context.run_key
    data = dump_inputs("", context.job, files, side_files, run_key=key)
    context.workspace.store.put_bytes(data, name)


def _with_base(context: RunContext, base: Manifest | None, more: Manifest) -> Manifest:
    """Returns the manifest of the existing dataset with the appended part.

    Raises:
      OutputError: the dataset changed since the run began.
      RejectLimitError: all parts together have more rejects than the job allows.
    """
    store = context.workspace.store
    if base is None or base.fingerprint != context.base:
        raise BusyError(
            f"{store.uri}: the dataset changed since this run began to append to it "
            f"(fingerprint {base.fingerprint if base else 'none'}, was "
            f"{context.base}); run again"
        )
    whole = join_manifests(base, more, stale_files=TFDS_FILES)
    check_reject_limit(
        context.job.max_rejects,
        whole.rows_read,
        whole.rows_rejected,
        rejects_command(context.workspace),
        chain(run_rejects(context.workspace), published_rejects(store)),
        locator_of(context),
    )
    return whole


def _verify_staged(context: RunContext, manifest: Manifest) -> None:
    """Verifies the staged shards against their manifest.

    Raises:
      OutputError: one is damaged; all damaged ones are removed, to be written again.
    """
    workspace = context.workspace
    staged = workspace.store.below(workspace.store_name("staging"))
    full = context.verify == "full"
    with counting(workspace, "publish-verify") as live:
        found = verify_store(
            staged,
            manifest,
            full=full,
            on_progress=live.note_bytes,
            workers=os.cpu_count() or 1,
        )
    if found.ok:
        return
    shards = set(manifest.shard_files)
    damaged = {each.file for each in found.problems}
    rejects = staged.list(REJECTS_NAME) if REJECTS_NAME in damaged else ()
    own = {*shards, *manifest.index_files, *manifest.files}
    staged.delete({*(damaged & own), *rejects})
    first = found.problems[0]
    raise OutputError(
        f"{staged.uri_of(first.file)}: {first.message} "
        f"({count(len(found.problems), 'problem')} in all). The damaged files were "
        "removed; run again to write them anew"
    )


def description_files(
    job: JobSpec, schema: Schema, shards: Sequence[ShardResult], mark: str = ""
) -> dict[str, bytes]:
    """Returns the files, by name, that describe the records to readers."""
    files = labels_files(schema) | {SCHEMA_PBTXT_NAME: dump_pbtxt(schema)}
    # TFDS can read only uncompressed shards of examples.
    if job.compression == "none" and job.payload == "example":
        files |= metadata_files(
            *(job.name, job.version, schema, shards, mark, job.container),
            label=job.label or "",
        )
    return files
