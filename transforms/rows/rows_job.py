"""Runs the job of WriteDataset, from the summary of all rows to the dataset. No Beam.

The fingerprint is known only after the last row, so there are two workspaces:

    .recordmill/rows-ID/        sorted runs, with the scratch exchange; ID is random, made
                                with the pipeline, and file names in it are unique
    .recordmill/FINGERPRINT/    all else (see recordmill.transforms.tasks.workspace)

Files of a repeated bundle stay in the first without being used, and are removed with
it.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

from recordmill.schemas.errors import (
    InputError,
    OutputError,
    RecordmillError,
    UsageError,
)
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import REJECTS_NAME
from recordmill.schemas.options import Grace, spell
from recordmill.schemas.ranges import InputRange, RangeResult, RejectTotals
from recordmill.schemas.shards import ShardPlan, ShardResult
from recordmill.schemas.text import count, json_bytes
from recordmill.transforms.commit.check_output import check_output
from recordmill.transforms.commit.commit import require_stored
from recordmill.transforms.commit.detached import acquire_for_commit, publish_once
from recordmill.transforms.commit.staging import stage
from recordmill.transforms.exchange.plan import plan_shards
from recordmill.transforms.rows.encode_rows import RECORD_SCHEMA
from recordmill.transforms.rows.row_summary import (
    RowsTotals,
    reject_limit_error,
    rows_fingerprint,
)
from recordmill.transforms.sources.base import PipelineRowsSource
from recordmill.transforms.storage import Preflight, Store
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tasks.write_shard import finished_shards

RowsExchange = Literal["scratch", "engine"]

_NO_FINGERPRINT = "0" * 32


@dataclass(frozen=True, slots=True)
class RowsJob:
    """The job of a WriteDataset, for all workers; without open connections.

    Attributes:
      job: what the rows become; its source is PIPELINE_ROWS.
      store: of the output.
      bucket_bits: leading bits of the order key that number a histogram bucket.
      exchange: how records reach the writers of their shards.
      overwrite: whether another dataset may be replaced.
      run_id: 11 random hexadecimal digits of the pipeline.
      scratch: folder for temporary sorted files that all workers can reach, or "".
      remote: whether workers can be on other machines.
      grace: how long the files of a replaced dataset stay.
    """

    job: JobSpec
    store: Store
    bucket_bits: int
    exchange: RowsExchange
    overwrite: bool
    run_id: str
    scratch: str = ""
    remote: bool = False
    grace: Grace = "next-run"

    @property
    def split_names(self) -> tuple[str, ...]:
        return tuple(split.name for split in self.job.splits)

    @property
    def run_workspace(self) -> Workspace:
        """Returns the workspace of the sorted runs."""
        name = f"rows-{self.run_id}"
        return Workspace.of(self.store, name, self.scratch, remote=self.remote)

    def workspace(self, fingerprint: str) -> Workspace:
        """Returns the workspace of the shards."""
        return Workspace.of(self.store, fingerprint, self.scratch, remote=self.remote)


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """A planned dataset, made after the last row.

    Attributes:
      context: the run that writes it.
      shard_plan: of all splits; without shards if nothing is to be written.
      rows_read: number of rows, rejects included.
      rows_rejected: number of rejects.
      finished: numbers of the shards that an earlier try wrote.
      is_published: whether the output already holds exactly this dataset.
    """

    context: RunContext
    shard_plan: ShardPlan
    rows_read: int
    rows_rejected: int
    finished: frozenset[int] = frozenset()
    is_published: bool = False


def check_output_early(rows_job: RowsJob) -> Preflight:
    """Checks, while rows are still encoded, that the output can be used.

    Raises:
      OutputError: the output cannot hold a dataset, or cannot be written.
    """
    store = rows_job.store.with_short_retries()
    with _spelled_for_python():
        # Whether a dataset there is this one, or is replaced, is known later.
        check_output(store, _NO_FINGERPRINT, overwrite=True)
    return store.preflight()


def plan_rows(totals: RowsTotals, rows_job: RowsJob) -> RowsPlan:
    """Plans the dataset and creates its workspace.

    Raises:
      RejectLimitError: too many rows were rejected.
      SchemaError: examples without a schema have features of several kinds.
      OutputError: the output holds another dataset.
    """
    job, rejected = rows_job.job, totals.rows_rejected
    if rejected > job.max_rejects.allowed(totals.rows_read):
        raise reject_limit_error(
            f"{rejected:,} of {count(totals.rows_read, 'row')}",
            job.max_rejects.text,
            totals.reject,
        )
    records = totals.rows_read - rejected
    if not records:
        raise InputError(
            f"no record to write: {count(totals.rows_read, 'row')} read, {rejected:,} rejected"
        )
    context = _context(rows_job, totals, records)
    with _spelled_for_python():
        manifest = check_output(
            rows_job.store.with_short_retries(),
            context.run_key,
            overwrite=rows_job.overwrite,
        )
        if manifest is not None:
            require_stored(rows_job.store, manifest)
    if manifest is not None:
        shard_plan = ShardPlan(())
        return RowsPlan(
            context, shard_plan, totals.rows_read, rejected, is_published=True
        )
    shard_plan = plan_shards(totals.histogram, job.sharding, rows_job.split_names)
    context.workspace.create(rows_job.exchange)
    finished = finished_shards(context, shard_plan)
    return RowsPlan(context, shard_plan, totals.rows_read, rejected, finished)


def write_rejects(group: int, lines: Iterable[bytes], plan: RowsPlan) -> RejectTotals:
    """Writes one file of rejects, sorted; returns their totals."""
    data = b"".join(line + b"\n" for line in sorted(lines))
    if not plan.is_published:
        workspace = plan.context.workspace
        file = f"{REJECTS_NAME}/rows-{group:02d}.jsonl"
        workspace.put(file, data, durable=True)
    return RejectTotals.of(data)


def publish_rows(
    rows_job: RowsJob,
    preflight: Preflight,
    plan: RowsPlan,
    shards: Sequence[ShardResult],
    rejects_kept: RejectTotals,
) -> Manifest:
    """Publishes the dataset; once, and safe to repeat.

    Raises:
      OutputError: another run writes to the output, or published another dataset.
      RecordmillError: rows are missing or duplicated.
    """
    context = plan.context
    workspace, store = context.workspace, rows_job.store
    if rejects_kept.rows != plan.rows_rejected:
        raise RecordmillError(
            f"{count(plan.rows_rejected, 'row')} rejected, but {rejects_kept.rows:,} "
            "in the rejects files; nothing was published. Run the pipeline again"
        )

    def stage_dataset(allowed: RunContext) -> Manifest:
        if plan.is_published:
            raise OutputError(
                f"{store.uri}: this dataset was there when the run began, and is not "
                "there any more. Run the pipeline again"
            )
        result = _range_result(plan, rejects_kept)
        return stage(allowed, [result], shards, _run_metadata(rows_job))

    with (
        acquire_for_commit(store, exclusive=preflight.exclusive) as lease,
        _spelled_for_python(),
    ):
        manifest = publish_once(context, stage_dataset)
        if lease.is_held():  # else another run may be at work there
            rows_job.run_workspace.remove()
            workspace.remove()
    return manifest


def _context(rows_job: RowsJob, totals: RowsTotals, records: int) -> RunContext:
    job = rows_job.job
    if job.declared is not None:
        schema = job.declared.to_schema()
    elif job.payload == "example":
        schema = totals.observed.to_schema(records)
    else:
        schema = RECORD_SCHEMA
    fingerprint = rows_fingerprint(job, totals)
    return RunContext(
        job=job,
        source=PipelineRowsSource(schema),
        split_names=rows_job.split_names,
        bucket_bits=rows_job.bucket_bits,
        exchange=rows_job.exchange,
        run_key=fingerprint,
        output=rows_job.store.uri,
        workspace=rows_job.workspace(fingerprint),
        overwrite=rows_job.overwrite,
        grace=rows_job.grace,
    )


def _range_result(plan: RowsPlan, rejects: RejectTotals) -> RangeResult:
    """Returns the result of all rows as if they were one input range."""
    return RangeResult(
        range=InputRange(0, "", "", 0, 0, 0, 0),
        rows_read=plan.rows_read,
        rows_rejected=plan.rows_rejected,
        runs=(),
        rejects=rejects,
    )


def _run_metadata(rows_job: RowsJob) -> bytes:
    return json_bytes(
        {
            "recordmill": version("recordmill"),
            "beam": version("apache-beam"),
            "python": platform.python_version(),
            "exchange": rows_job.exchange,
            "published_unix": round(time.time(), 3),
        }
    )


@contextmanager
def _spelled_for_python() -> Iterator[None]:
    """Spells options in errors as the arguments of WriteDataset."""
    try:
        yield
    except (OutputError, UsageError) as error:
        raise type(error)(spell(str(error), "python")) from error
