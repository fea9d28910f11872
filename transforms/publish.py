"""Publishing: check that nothing is lost, stage the metadata, then switch.

Readers trust manifest.json alone. The switch moves finished files by rename: first the
old manifest goes (only with --overwrite), then the files it names, then the new files
come, and the new manifest last; killed at any moment, there is never a manifest over
missing or wrong shards. Two journals let `switch` be repeated: where a staged manifest
exists, all else is staged or already in its place; where the old manifest lies in
staging's parent, some of its files may still be there and no new one has come yet.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from schemas.errors import OutputError, RecordmillError, RejectLimitError
from schemas.features import Schema
from schemas.job import JobSpec, RejectLimit
from schemas.manifest import (
    MANIFEST_NAME,
    FeatureEntry,
    Manifest,
    ShardEntry,
    SplitEntry,
)
from schemas.pbtxt import SCHEMA_PBTXT_NAME, dump_pbtxt
from schemas.ranges import Bits, RangeResult, or_bits
from schemas.shards import ShardResult
from transforms.run_context import RunContext
from transforms.scratch import FOLDER_NAME, Scratch
from transforms.tfds import (
    DATASET_INFO_NAME,
    FEATURES_NAME,
    labels_file_name,
    labels_files,
    metadata_files,
)
from transforms.write import sync_folder, write_whole

RUN_FACTS_NAME = "run.json"
REPLACED_NAME = "replaced.json"  # the old manifest, while its files are removed
REJECTS_NAME = "rejects"


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
    check_reject_limit(limit, rows_read, rejected, context.scratch.rejects)
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
        payload=context.job.payload,
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
    schema = context.schema(*column_facts(ranges))
    files = description_files(context.job, schema, shards)
    for name, data in files.items():
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


def description_files(
    job: JobSpec, schema: Schema, shards: Sequence[ShardResult]
) -> dict[str, bytes]:
    """The files, by name, that tell readers of every kind what the records hold."""
    files = labels_files(schema) | {SCHEMA_PBTXT_NAME: dump_pbtxt(schema)}
    # TFDS reads neither compressed shards nor other records than examples.
    if job.compression == "none" and job.payload == "example":
        files |= metadata_files(job.name, job.version, schema, shards)
    return files


def is_staged(scratch: Scratch) -> bool:
    """Whether an earlier try got as far as the switch."""
    return (scratch.staging / MANIFEST_NAME).is_file()


def switch(output: str, scratch: Scratch) -> Manifest:
    """Makes the staged dataset the one in the output folder. Safe to repeat."""
    folder, staging = Path(output), scratch.staging
    staged = staging / MANIFEST_NAME
    manifest = Manifest.from_bytes(staged.read_bytes(), str(staged))
    _remove_old(folder, scratch, manifest)
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
    for run in _other_runs(scratch):
        shutil.rmtree(run, ignore_errors=True)  # their dataset will never come
    return manifest


def _remove_old(folder: Path, scratch: Scratch, new: Manifest) -> None:
    """Takes away what stands in the output folder, before the first new file comes."""
    current = folder / MANIFEST_NAME
    if current.is_file():
        old = Manifest.from_bytes(current.read_bytes(), str(current))
        if old.fingerprint == new.fingerprint:
            return  # a repeated switch: these files are the new ones
        current.replace(Path(scratch.staging_root, REPLACED_NAME))
        sync_folder(folder)
    for journal in (
        Path(scratch.staging_root, REPLACED_NAME),
        *_journals_of_others(scratch),
    ):
        if not journal.is_file():
            continue
        old = Manifest.from_bytes(journal.read_bytes(), str(journal))
        for name in dataset_files(old):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / REJECTS_NAME, ignore_errors=True)
        sync_folder(folder)
        journal.unlink()


def dataset_files(manifest: Manifest) -> list[str]:
    """The files in a dataset's folder that belong to it, but for manifest, rejects."""
    shards = [s.file for split in manifest.splits.values() for s in split.shards]
    labels = [labels_file_name(f.name) for f in manifest.features if f.num_classes]
    described_in = [DATASET_INFO_NAME, FEATURES_NAME, SCHEMA_PBTXT_NAME, *labels]
    return [*shards, *described_in, RUN_FACTS_NAME]


def _other_runs(scratch: Scratch) -> list[Path]:
    """The folders of other jobs' runs that were to be published here."""
    own = Path(scratch.staging_root)
    return [run for run in sorted(own.parent.glob("*")) if run.name != own.name]


def _journals_of_others(scratch: Scratch) -> list[Path]:
    """What other jobs' runs, killed in their switch, left to say how far they got."""
    names = (REPLACED_NAME, f"staging/{MANIFEST_NAME}")
    runs = _other_runs(scratch)
    return [run / name for run in runs for name in names if (run / name).is_file()]


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
    scratch = Scratch.of(output, fingerprint)
    if is_staged(scratch):
        return None  # killed in its switch, which the launcher repeats
    if unfinished := _journals_of_others(scratch):
        if overwrite:
            return None
        raise OutputError(
            f"{output}: another job was killed while it published its dataset here "
            f"({unfinished[0]}); run it again to its end, replace what there is of it "
            "with --overwrite, or choose another folder"
        )
    foreign = [
        entry.name for entry in sorted(folder.iterdir()) if entry.name != FOLDER_NAME
    ]
    if foreign:
        raise OutputError(
            f"{output}: is not empty ({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}) and holds no dataset; choose "
            "another folder. Nothing was touched"
        )
    return None
