"""Builds the manifest of a part from the results of all tasks and checks their sums."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from itertools import chain

from recordmill.schemas.errors import InputError, RecordmillError, RejectLimitError
from recordmill.schemas.job import RejectLimit
from recordmill.schemas.manifest import (
    Manifest,
    ManifestFile,
    ManifestRejects,
    ManifestShard,
    ManifestSplit,
    MapTotals,
    SamplingTotals,
    count_row_changes,
)
from recordmill.schemas.ranges import (
    NO_REJECTS,
    RangeResult,
    Reject,
    ShardResult,
    TypeFlags,
    merge_type_flags,
)
from recordmill.schemas.text import format_count
from recordmill.transforms.dataset.files import require_schema
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.rejects import (
    UNKNOWN_INPUT,
    RejectLocator,
    describe_kinds,
    rejects_command,
    run_rejects,
)


def check_reject_limit(
    limit: RejectLimit,
    rows_read: int,
    rows_rejected: int,
    command: str,
    rejects: Iterable[Reject],
    locator: RejectLocator,
) -> None:
    """Raises RejectLimitError if more rows were rejected than the job allows.

    Args:
      limit: the limit of the job.
      rows_read: rows that were read, including rejected ones.
      rows_rejected: rows that were rejected.
      command: a command that lists all rejects.
      rejects: the kept rejects; read only if the limit is exceeded.
      locator: finds the line of a reject in its input file.
    """
    if rows_rejected > limit.max_rejects(rows_read):
        raise RejectLimitError(
            f"{rows_rejected:,} of {format_count(rows_read, 'row')} rejected (limit "
            f"{limit.text}):{describe_kinds(rejects, locator)}\n"
            f"To list all of them: {command}. Fix the rows or raise `max_rejects`"
        )


def check_run_rejects(
    context: RunContext, rows_read: int, rows_rejected: int, more: Iterable[Reject] = ()
) -> None:
    """Checks the number of a run's rejects and `more` that were published before."""
    check_reject_limit(
        *(context.job.max_rejects, rows_read, rows_rejected),
        rejects_command(context.workspace),
        chain(run_rejects(context.workspace), more),
        locator_of(context),
    )


def locator_of(context: RunContext) -> RejectLocator:
    """Returns the locator of a run's rejects, which finds their lines in input files."""
    if not context.publishing.inputs:
        return UNKNOWN_INPUT
    return RejectLocator(
        context.publishing.input_root,
        context.job.source,
        context.source.input_source.storage,
        follows_links=True,  # like the listing of the inputs
    )


def build_manifest(
    context: RunContext, ranges: Collection[RangeResult], shards: Sequence[ShardResult]
) -> Manifest:
    """Builds the manifest from all task results and checks that they agree.

    Raises:
      RecordmillError: rows are missing or were written twice.
    """
    observed, nulls = merge_column_info(ranges, shards)
    schema = context.schema(observed, nulls)
    # For rows that are read by reference, the schema is known only now.
    require_schema(context.expected_schema, schema, context.job)
    rows_read = sum(range_result.rows_read for range_result in ranges)
    rejected = sum(range_result.rows_rejected for range_result in ranges)
    rejected += sum(shard.rejects.rows for shard in shards)
    check_run_rejects(context, rows_read, rejected)
    records = sum(shard.records for shard in shards)
    kept_rejects = sum((range_result.rejects for range_result in ranges), NO_REJECTS)
    kept_rejects = sum((shard.rejects for shard in shards), kept_rejects)
    if kept_rejects.rows != rejected:
        raise RecordmillError(
            f"{format_count(rejected, 'row')} rejected, but {kept_rejects.rows:,} kept, so nothing is "
            "published. Run again; if it happens again, report it as a bug"
        )
    map_entry = sampling_entry = None
    if (
        input_schema := context.source.input_schema(observed)
    ) is not None:  # with `map`
        map_entry = MapTotals(
            rows_dropped=sum(range_result.rows_dropped for range_result in ranges),
            rows_added=sum(range_result.rows_added for range_result in ranges),
            features=input_schema.features,
        )
    if context.job.is_sampled:
        sampling_entry = SamplingTotals(
            rows_left_out=sum(range_result.rows_sampled_out for range_result in ranges),
            rows_copied=sum(range_result.rows_copied for range_result in ranges),
        )
    num_other_rows, other_rows_text = count_row_changes(map_entry, sampling_entry)
    if rows_read + num_other_rows != records + rejected:
        raise RecordmillError(
            f"{format_count(rows_read, 'row')} read, but {format_count(records, 'record')} written and "
            f"{format_count(rejected, 'row')} rejected{other_rows_text}, so nothing is published. Run "
            "again; if it happens again, report it as a bug"
        )
    if records == 0 and context.part == 0:
        raise InputError(
            f"no records to write: {format_count(rows_read, 'row')} read, {rejected:,} "
            "rejected"
            + other_rows_text
            + (". Raise `sample`" if context.job.sample else "")
        )
    splits = {}
    for name in context.split_names:
        split_shards = sorted(
            (shard for shard in shards if shard.split == name),
            key=lambda shard: shard.shard_index,
        )
        splits[name] = ManifestSplit(
            records=sum(shard.records for shard in split_shards),
            bytes=sum(shard.bytes for shard in split_shards),
            shards=tuple(
                ManifestShard(
                    file=shard.file,
                    records=shard.records,
                    bytes=shard.bytes,
                    crc32c=f"{shard.crc32c:08x}",
                    sha256=shard.sha256
                    if context.publishing.description.has_card
                    else "",
                    index=_index_entry(shard),
                )
                for shard in split_shards
            ),
        )
    return Manifest(
        name=context.job.name,
        version=context.job.version,
        fingerprint=context.run_key,
        seed=context.job.seed,
        shuffle=context.job.shuffle,
        compression=context.job.compression,
        container=context.job.container,
        payload=context.job.payload,
        features=schema.features,
        rows_read=rows_read,
        rows_rejected=rejected,
        rejects=ManifestRejects.from_totals(kept_rejects),
        map=map_entry,
        sampling=sampling_entry,
        about=dict(context.publishing.description.texts),
        splits=splits,
    )


def _index_entry(shard: ShardResult) -> ManifestFile | None:
    """Returns the manifest's entry of a shard's index file, if it has one."""
    if shard.index is None:
        return None
    return ManifestFile(bytes=shard.index.bytes, crc32c=f"{shard.index.crc32c:08x}")


def merge_column_info(
    ranges: Collection[RangeResult], shards: Sequence[ShardResult] = ()
) -> tuple[TypeFlags, tuple[int, ...]]:
    """Merges the type flags and the counts of missing values of all ranges.

    The type flags of shards are merged as well: a shard may read rows by reference.
    """
    no_flags: TypeFlags = ()
    observed = reduce(
        merge_type_flags,
        chain(
            (range_result.observed_types for range_result in ranges),
            (shard.observed_types for shard in shards),
        ),
        no_flags,
    )
    no_counts: tuple[int, ...] = ()
    return observed, reduce(
        _add_counts, (range_result.null_counts for range_result in ranges), no_counts
    )


def _add_counts(
    left_counts: tuple[int, ...], right_counts: tuple[int, ...]
) -> tuple[int, ...]:
    """Adds the counts of each column; () means no counts."""
    if not left_counts or not right_counts:
        return left_counts or right_counts
    return tuple(a + b for a, b in zip(left_counts, right_counts, strict=True))
