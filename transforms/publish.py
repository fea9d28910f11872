"""Publishing: check that nothing is lost, stage the metadata, then switch.

Readers trust manifest.json alone. The switch moves finished files by rename: first the
old manifest goes (only with --overwrite), then the new files come, and the new manifest
last; killed at any moment, there is never a manifest over missing or wrong shards. The
staged manifest is the switch's journal: where it exists, all else is staged or already
in its place, and `switch` can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from schemas.errors import OutputError, RecordmillError, RejectLimitError
from schemas.manifest import (
    MANIFEST_NAME,
    FeatureEntry,
    Manifest,
    ShardEntry,
    SplitEntry,
)
from schemas.ranges import Bits, RangeResult, or_bits
from schemas.shards import ShardResult
from transforms.run_context import RunContext
from transforms.scratch import FOLDER_NAME, Scratch
from transforms.tfds import (
    DATASET_INFO_NAME,
    FEATURES_NAME,
    LABELS_ENDING,
    metadata_files,
)
from transforms.write import sync_folder, write_whole

RUN_FACTS_NAME = "run.json"
REJECTS_NAME = "rejects"


def check_reject_limit(context: RunContext, rows_read: int, rows_rejected: int) -> None:
    """Refuses to go on when more rows were rejected than the job allows.

    Raises:
      RejectLimitError: says how many, how many may be, and where they are.
    """
    limit = context.job.max_rejects
    if rows_rejected > limit.allowed(rows_read):
        raise RejectLimitError(
            f"{rows_rejected} of {rows_read} rows were rejected, allowed are "
            f"{limit.text}. They are in {context.scratch.rejects}, with the reasons. "
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
    schema = context.source.schema(observed, nulls)
    rows_read = sum(result.rows_read for result in ranges)
    rejected = sum(result.rows_rejected for result in ranges)
    rejected += sum(shard.rows_rejected for shard in shards)
    check_reject_limit(context, rows_read, rejected)
    records = sum(shard.records for shard in shards)
    if rows_read != records + rejected:
        raise RecordmillError(
            f"{rows_read} rows were read, but {records} records written and "
            f"{rejected} rows rejected: nothing is published"
        )
    if records == 0:
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
        features=tuple(
            FeatureEntry.model_validate(feature.to_json())
            for feature in schema.features
        ),
        rows_read=rows_read,
        rows_rejected=rejected,
        splits=splits,
    )


def column_facts(ranges: Sequence[RangeResult]) -> tuple[Bits, tuple[int, ...]]:
    """What all ranges together saw in each column, and its missing values."""
    nothing: Bits = ()
    observed = reduce(or_bits, (result.observed for result in ranges), nothing)
    nulls = [result.nulls for result in ranges if result.nulls]
    return observed, tuple(map(sum, zip(*nulls, strict=True)))


def stage(
    context: RunContext,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
    run_facts: bytes,
) -> Manifest:
    """Puts everything but the shards into staging, the manifest last."""
    manifest = build_manifest(context, ranges, shards)
    staging = context.scratch.staging
    schema = context.source.schema(*column_facts(ranges))
    files = metadata_files(context.job.name, context.job.version, schema, shards)
    for name, data in files.items():
        # TFDS reads no compressed shards; class names serve every reader.
        if context.job.compression == "none" or name.endswith(LABELS_ENDING):
            write_whole(staging / name, data, durable=True)
    rejects = sorted(context.scratch.rejects.glob("*.jsonl"))
    if rejects:
        (staging / REJECTS_NAME).mkdir(exist_ok=True)
        for file in rejects:
            shutil.copyfile(file, staging / REJECTS_NAME / file.name)
    write_whole(staging / RUN_FACTS_NAME, run_facts, durable=True)
    write_whole(staging / MANIFEST_NAME, manifest.to_bytes(), durable=True)
    sync_folder(staging)
    return manifest


def is_staged(scratch: Scratch) -> bool:
    """Whether an earlier try got as far as the switch."""
    return (scratch.staging / MANIFEST_NAME).is_file()


def switch(output: str, scratch: Scratch) -> Manifest:
    """Makes the staged dataset the one in the output folder. Safe to repeat."""
    folder, staging = Path(output), scratch.staging
    staged = staging / MANIFEST_NAME
    manifest = Manifest.from_bytes(staged.read_bytes(), str(staged))
    _remove_old(folder)
    for file in sorted(staging.rglob("*")):
        if file.is_dir() or file == staged or file.name.startswith("."):
            continue
        target = folder / file.relative_to(staging)
        target.parent.mkdir(exist_ok=True)
        file.replace(target)
    sync_folder(folder)
    for split in manifest.splits.values():
        for shard in split.shards:
            size = (folder / shard.file).stat().st_size
            if size != shard.bytes:
                raise OutputError(
                    f"{folder / shard.file}: {size} bytes, expected {shard.bytes}"
                )
    staged.replace(folder / MANIFEST_NAME)
    sync_folder(folder)
    return manifest


def _remove_old(folder: Path) -> None:
    """Takes the old dataset away: its manifest first, then the files it names."""
    current = folder / MANIFEST_NAME
    if not current.is_file():
        return
    old = Manifest.from_bytes(current.read_bytes(), str(current))
    current.unlink()
    sync_folder(folder)
    for name in dataset_files(folder, old):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / REJECTS_NAME, ignore_errors=True)


def dataset_files(folder: Path, manifest: Manifest) -> list[str]:
    """The files in a dataset's folder that belong to it, but for the manifest."""
    shards = [s.file for split in manifest.splits.values() for s in split.shards]
    labels = [file.name for file in folder.glob(f"*{LABELS_ENDING}")]
    return [*shards, DATASET_INFO_NAME, FEATURES_NAME, *labels, RUN_FACTS_NAME]


def look_at_output(output: str, fingerprint: str, overwrite: bool) -> Manifest | None:
    """What stands in the output folder already.

    Returns:
      The manifest if this very dataset is there; None if the run may go on.

    Raises:
      OutputError: a different dataset (and not overwrite), or files that are none.
    """
    folder = Path(output)
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise OutputError(f"{output}: is a file; expected a folder for the dataset")
    current = folder / MANIFEST_NAME
    if current.is_file():
        manifest = Manifest.from_bytes(current.read_bytes(), str(current))
        if manifest.fingerprint == fingerprint:
            return manifest
        if not overwrite:
            raise OutputError(
                f"{output}: holds another dataset ({manifest.name} "
                f"{manifest.version}, made from other input or with other options); "
                "replace it with --overwrite, or choose another folder"
            )
        return None
    ours = _files_of_unfinished_switch(folder)
    foreign = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.name != FOLDER_NAME and entry.name not in ours
    ]
    if foreign:
        raise OutputError(
            f"{output}: is not empty ({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}) and holds no dataset; choose "
            "another folder. Nothing was touched"
        )
    return None


def _files_of_unfinished_switch(folder: Path) -> set[str]:
    """Files that a run killed in its switch had moved already."""
    names: set[str] = set()
    for staged in folder.glob(f"{FOLDER_NAME}/*/staging/{MANIFEST_NAME}"):
        manifest = Manifest.from_bytes(staged.read_bytes(), str(staged))
        names.update(dataset_files(folder, manifest), [REJECTS_NAME])
    return names
