"""Runs the job of WriteDataset without Beam, from the totals of all rows to the dataset.

The fingerprint is known only after the last row, so there are two workspaces:

    .recordmill/rows-ID/        the heartbeat, and sorted runs with the scratch exchange;
                                ID is random, created with the pipeline, and file names
                                in the folder are unique
    .recordmill/FINGERPRINT/    other files (see recordmill.transforms.tasks.workspace)

Files of a repeated bundle stay in the first workspace without being used, and are removed
with it.

The first step writes the heartbeat before all other steps. The pipeline holds no lease
before it publishes, and without the heartbeat other runs would remove both workspaces
(transforms/tasks/launches.py).
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Literal, cast
from uuid import uuid4

from recordmill.schemas.errors import InputError, OutputError, UsageError
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import REJECTS_NAME
from recordmill.schemas.options import spell_options
from recordmill.schemas.ranges import (
    NO_REJECTS,
    InputRange,
    RangeResult,
    RejectTotals,
    ShardPlan,
    ShardResult,
)
from recordmill.schemas.text import format_count, format_json
from recordmill.transforms.commit.check_output import check_output
from recordmill.transforms.commit.commit import current_manifest_digest, require_stored
from recordmill.transforms.commit.staging import acquire_for_commit, publish, stage
from recordmill.transforms.exchange.plan import plan_shards
from recordmill.transforms.rows.encode_rows import (
    RECORD_SCHEMA,
    RowsTotals,
    reject_limit_error,
    rows_bucket_bits,
    rows_fingerprint,
)
from recordmill.transforms.sources.base import PipelineRowsSource
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease import RunProcess
from recordmill.transforms.tasks.context import (
    PublicationSettings,
    RunContext,
    ShardsToWrite,
)
from recordmill.transforms.tasks.launches import (
    add_run_key,
    begin_launch,
    find_launch,
    keep_alive,
    with_heartbeat,
)
from recordmill.transforms.tasks.leftovers import find_leftovers, remove_leftovers
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tasks.write_shard import finished_shards

RowsExchange = Literal["scratch", "engine"]

_NO_FINGERPRINT = "0" * 32


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """The plan of a dataset, created after the last row."""

    # its shards; none if the output already contains exactly this dataset
    shards_to_write: ShardsToWrite
    result: RangeResult  # result of all rows, as if they were one input range


def context_of_rows(
    job: JobSpec, store: Store, options: RunOptions, *, remote: bool
) -> RunContext:
    """Returns the run context of a pipeline before its first row.

    Its run key is random, and its workspace gets the sorted runs. `plan_rows` computes
    the key of the dataset, and the features of records without a schema. `remote` is
    whether workers can be on other machines.
    """
    run_key = f"rows-{uuid4().hex[:11]}"
    return RunContext(
        job=job,
        source=PipelineRowsSource(RECORD_SCHEMA),
        split_names=tuple(split.name for split in job.splits),
        bucket_bits=rows_bucket_bits(job),
        exchange=cast("RowsExchange", options.exchange),
        run_key=run_key,
        workspace=Workspace.for_run(store, run_key, options.scratch, remote=remote),
        publishing=PublicationSettings(
            overwrite=options.overwrite, grace=options.grace
        ),
    )


def begin_rows(_: object, rows: RunContext, process: RunProcess | None) -> str:
    """Checks that the output can be used, and writes the pipeline's heartbeat.

    Returns the digest of the manifest in the output: the pipeline may replace only this
    manifest. `process` is the process with which the pipeline ends; None if its workers
    can be on other machines. Safe to repeat.
    """
    store = rows.workspace.store.with_short_retries()
    with _python_option_names():
        # The comparison with an existing dataset is only possible after the last row.
        check_output(store, _NO_FINGERPRINT, overwrite=True)
    store.preflight()
    replaces = current_manifest_digest(store)
    launch = find_launch(store, rows.workspace.name)
    if launch is not None and launch.is_live:  # the runner repeats this step
        keep_alive(rows.workspace, at_once=True)
    else:
        begin_launch(rows.workspace, "", process)
    return replaces


def plan_rows(totals: RowsTotals, rows: RunContext, replaces: str) -> RowsPlan:
    """Returns the plan of the dataset, and creates its workspace.

    `replaces` is the digest that `begin_rows` returned. Raises RejectLimitError if there
    are too many rejects.
    """
    with with_heartbeat(rows.workspace):
        return _plan_rows(
            totals, rows.publishing_with(replaced_manifest_digest=replaces)
        )


def _plan_rows(totals: RowsTotals, rows: RunContext) -> RowsPlan:
    job, store, rejected = rows.job, rows.workspace.store, totals.rows_rejected
    if rejected > job.max_rejects.max_rejects(totals.rows_read):
        raise reject_limit_error(
            f"{rejected:,} of {format_count(totals.rows_read, 'row')}",
            job.max_rejects.text,
            totals.reject,
        )
    records = totals.rows_read - rejected
    if not records:
        raise InputError(
            f"no records to write: {format_count(totals.rows_read, 'row')} read, {rejected:,} rejected"
        )
    schema = RECORD_SCHEMA
    if job.declared is not None:
        schema = job.declared.to_schema()
    elif job.payload == "example":
        schema = totals.observed.to_schema(records)
    key = rows_fingerprint(job, totals)
    workspace = rows.workspace.sibling(key)
    context = replace(
        rows, source=PipelineRowsSource(schema), run_key=key, workspace=workspace
    )
    add_run_key(rows.workspace, key)  # before the second workspace is created
    everything = InputRange(0, "", "", 0, 0, 0, 0)
    result = RangeResult(everything, totals.rows_read, rejected, sorted_runs=())
    with _python_option_names():
        manifest = check_output(
            store.with_short_retries(), key, overwrite=rows.publishing.overwrite
        )
        if manifest is not None:
            require_stored(store, manifest)
            nothing = ShardsToWrite(context, ShardPlan(()), frozenset())
            return RowsPlan(nothing, result)
    plan = plan_shards(totals.histogram, job.sharding, rows.split_names)
    workspace.create(rows.exchange)
    finished = finished_shards(context, plan)
    return RowsPlan(ShardsToWrite(context, plan, finished), result)


def write_rejects(grouped: tuple[int, Iterable[bytes]], plan: RowsPlan) -> RejectTotals:
    """Writes one file of rejects, (its number, its lines), sorted; returns the totals."""
    number, lines = grouped
    data = b"".join(line + b"\n" for line in sorted(lines))
    workspace = plan.shards_to_write.context.workspace
    with with_heartbeat(workspace):
        if plan.shards_to_write.plan.splits:
            file = f"{REJECTS_NAME}/rows-{number:02d}.jsonl"
            workspace.write_file(file, data, durable=True)
    return RejectTotals.from_content(data)


def publish_rows(
    _: object,
    rows: RunContext,
    plan: RowsPlan,
    shards: Sequence[ShardResult],
    rejects: Sequence[RejectTotals],
) -> Manifest:
    """Publishes the dataset once; safe to repeat. Returns the manifest."""
    context, result = plan.shards_to_write.context, plan.result
    workspace, store = context.workspace, context.workspace.store

    def stage_dataset(allowed: RunContext) -> Manifest:
        if not plan.shards_to_write.plan.splits:
            raise OutputError(
                f"{store.uri}: this dataset existed when the run began, but no longer "
                "exists. Run the pipeline again"
            )
        results = [replace(result, rejects=sum(rejects, NO_REJECTS))]
        metadata = {
            "recordmill": version("recordmill"),
            "beam": version("apache-beam"),
            "python": platform.python_version(),
            "exchange": context.exchange,
            "launch": rows.workspace.name,
            "published_unix": round(time.time(), 3),
        }
        return stage(allowed, results, shards, format_json(metadata))

    with (
        with_heartbeat(workspace),
        acquire_for_commit(store) as lease,
        _python_option_names(),
    ):
        manifest = publish(context, stage_dataset)
        if lease.is_held():  # otherwise another run may be active there
            rows.workspace.remove()
            workspace.remove()
            # Each failed pipeline left at least its heartbeat.
            remove_leftovers(store, find_leftovers(store, spare=workspace.name))
    return manifest


@contextmanager
def _python_option_names() -> Iterator[None]:
    """Rewrites option names in errors as arguments of WriteDataset."""
    try:
        yield
    except (OutputError, UsageError) as error:
        raise type(error)(spell_options(str(error), "python")) from error
