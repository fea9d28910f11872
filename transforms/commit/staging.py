"""Staging: make sure that nothing is lost, and put a dataset's files aside.

The manifest comes last. What is staged becomes the dataset by the switch (see switch).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from recordmill.schemas.dataset.manifest import (
    Manifest,
    ShardEntry,
    SplitEntry,
    joined,
)
from recordmill.schemas.dataset.parts import (
    REJECTS_NAME,
    inputs_name,
    rejects_prefix,
    run_metadata_name,
)
from recordmill.schemas.dataset.shards import ShardResult
from recordmill.schemas.errors import (
    OutputError,
    RecordmillError,
    RejectLimitError,
)
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec, RejectLimit
from recordmill.schemas.parsing.pbtxt import SCHEMA_PBTXT_NAME, dump_pbtxt
from recordmill.schemas.ranges import (
    InputFile,
    RangeResult,
    TypeFlags,
    merge_type_flags,
)
from recordmill.transforms.commit.commit import is_staged
from recordmill.transforms.commit.input_check import require_same_inputs
from recordmill.transforms.commit.input_log import dump_inputs, parse_inputs
from recordmill.transforms.commit.recovery import STAGED_MANIFEST
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.dataset.tfds_files import labels_files, metadata_files
from recordmill.transforms.dataset.verify import verify_store
from recordmill.transforms.tasks.context import RunContext


def check_reject_limit(
    limit: RejectLimit, rows_read: int, rows_rejected: int, kept: str | Path
) -> None:
    """Refuses to go on when more rows were rejected than the job allows.

    Args:
      limit: what the job allows.
      rows_read: rows found, rejects included.
      rows_rejected: rows left out.
      kept: folder with the rejects.

    Raises:
      RejectLimitError: says how many, how many may be, and where they are.
    """
    if rows_rejected > limit.allowed(rows_read):
        raise RejectLimitError(
            f"{rows_rejected} of {rows_read} rows were rejected, allowed are "
            f"{limit.text}. They are in {kept}, with the reasons. "
            "Mend them, or allow more with --max-rejects"
        )


def build_manifest(
    context: RunContext, ranges: Sequence[RangeResult], shards: Sequence[ShardResult]
) -> Manifest:
    """Adds up all facts, and makes sure that they agree.

    Raises:
      RecordmillError: rows are missing or double.
    """
    observed, nulls = column_facts(ranges)
    schema = context.schema(observed, nulls)
    rows_read = sum(result.rows_read for result in ranges)
    rejected = sum(result.rows_rejected for result in ranges)
    rejected += sum(shard.rows_rejected for shard in shards)
    limit = context.job.max_rejects
    check_reject_limit(
        limit, rows_read, rejected, context.workspace.display_path(REJECTS_NAME)
    )
    records = sum(shard.records for shard in shards)
    if rows_read != records + rejected:
        raise RecordmillError(
            f"{rows_read} rows were read, but {records} records written and "
            f"{rejected} rows rejected: nothing is published"
        )
    if records == 0 and context.part == 0:
        raise RecordmillError(
            f"no record to write: {rows_read} rows read, {rejected} rejected"
        )
    splits = {}
    for name in context.split_names:
        own = sorted(
            (shard for shard in shards if shard.split == name),
            key=lambda shard: shard.shard_index,
        )
        splits[name] = SplitEntry(
            records=sum(shard.records for shard in own),
            bytes=sum(shard.bytes for shard in own),
            shards=tuple(
                ShardEntry(
                    file=shard.file,
                    records=shard.records,
                    bytes=shard.bytes,
                    crc32c=f"{shard.crc32c:08x}",
                )
                for shard in own
            ),
        )
    return Manifest(
        name=context.job.name,
        version=context.job.version,
        fingerprint=context.fingerprint,
        seed=context.job.seed,
        shuffle=context.job.shuffle,
        compression=context.job.compression,
        payload=context.job.payload,
        features=schema.features,
        rows_read=rows_read,
        rows_rejected=rejected,
        splits=splits,
    )


def column_facts(ranges: Sequence[RangeResult]) -> tuple[TypeFlags, tuple[int, ...]]:
    """What all ranges together saw in each column, and its missing values."""
    nothing: TypeFlags = ()
    observed = reduce(
        merge_type_flags, (result.observed_types for result in ranges), nothing
    )
    nulls = [result.nulls for result in ranges if result.nulls]
    return observed, tuple(map(sum, zip(*nulls, strict=True)))


def stage(
    context: RunContext,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
    run_metadata: bytes,
) -> Manifest:
    """Puts everything but the shards into staging, the manifest last."""
    own = manifest = build_manifest(context, ranges, shards)
    workspace = context.workspace
    store = workspace.store
    files = {run_metadata_name(context.part): run_metadata}
    if context.part:
        manifest = _with_base(context, own)
    else:  # what it says of the records stays true of those that are appended
        schema = context.schema(*column_facts(ranges))
        files |= description_files(context.job, schema, shards)
    for name, data in files.items():
        store.put_bytes(data, workspace.store_name(f"staging/{name}"))
    prefix = f"staging/{REJECTS_NAME}/{rejects_prefix(context.part)}"
    moved = []
    for name in workspace.names(REJECTS_NAME):
        target = workspace.store_name(f"{prefix}{name}")
        if workspace.shared:
            moved.append((workspace.store_name(f"{REJECTS_NAME}/{name}"), target))
        else:
            store.put_file(workspace.local_path(f"{REJECTS_NAME}/{name}"), target)
    store.move_all(moved)
    if not is_staged(workspace) and find_manifest(store) != manifest:
        # Else done by an earlier try, and moved.
        _require_same_inputs(context)
        _verify_staged(context, own.model_copy(update={"appended": context.part}))
    store.put_bytes(manifest.to_bytes(), workspace.store_name(STAGED_MANIFEST))
    return manifest


def _require_same_inputs(context: RunContext) -> None:
    """Checks that no input changed since the run began; see `require_same_inputs`."""
    if not context.inputs:
        return
    workspace = context.workspace
    name = workspace.store_name(f"staging/{inputs_name(context.part)}")
    kept = parse_inputs(workspace.store.read(name), workspace.store.uri_of(name))
    require_same_inputs(
        kept.files, context.input_root, context.inputs, context.source.storage
    )


def stage_inputs(
    context: RunContext, files: Sequence[InputFile], side_files: Sequence[InputFile]
) -> None:
    """Puts the inventory into staging, for those who append to the dataset later."""
    name = context.workspace.store_name(f"staging/{inputs_name(context.part)}")
    data = dump_inputs(context.fingerprint, context.job, files, side_files)
    context.workspace.store.put_bytes(data, name)


def _with_base(context: RunContext, more: Manifest) -> Manifest:
    """The manifest of the dataset that is there, and of what is appended to it.

    Raises:
      OutputError: it is another dataset than when the run began.
      RejectLimitError: both together have more rejects than the job allows.
    """
    store = context.workspace.store
    base = read_manifest(store)
    if base.fingerprint == context.fingerprint:
        return base  # a repeated task: it is published already
    if base.fingerprint != context.base:
        raise OutputError(
            f"{store.uri}: is another dataset than when this run began to append to it "
            f"(fingerprint {base.fingerprint}, was {context.base}); run it again"
        )
    whole = joined(base, more)
    check_reject_limit(
        context.job.max_rejects,
        whole.rows_read,
        whole.rows_rejected,
        f"{store.uri_of(REJECTS_NAME)} and {context.workspace.display_path(REJECTS_NAME)}",
    )
    return whole


def _verify_staged(context: RunContext, manifest: Manifest) -> None:
    """Makes sure that the staged shards are what the manifest will say of them.

    Raises:
      OutputError: the first that is not; those damaged are removed, to be made again.
    """
    workspace = context.workspace
    staged = workspace.store.below(workspace.store_name("staging"))
    full = context.verify == "full"
    found = verify_store(staged, manifest, full=full, workers=os.cpu_count() or 1)
    if found.ok:
        return
    shards = {s.file for split in manifest.splits.values() for s in split.shards}
    staged.delete({each.file for each in found.problems} & shards)
    first = found.problems[0]
    raise OutputError(
        f"{staged.uri_of(first.file)}: {first.message} ({len(found.problems)} problems "
        "in all). What is damaged was removed; run it again"
    )


def description_files(
    job: JobSpec, schema: Schema, shards: Sequence[ShardResult]
) -> dict[str, bytes]:
    """The files, by name, that tell readers of every kind what the records hold."""
    files = labels_files(schema) | {SCHEMA_PBTXT_NAME: dump_pbtxt(schema)}
    # TFDS reads neither compressed shards nor other records than examples.
    if job.compression == "none" and job.payload == "example":
        files |= metadata_files(job.name, job.version, schema, shards)
    return files
