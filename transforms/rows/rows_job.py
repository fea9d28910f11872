"""A job on the rows of a pipeline, from their facts to the published dataset. No Beam.

Until all rows were seen nobody knows what the dataset will be, so two folders are used:

    .recordmill/rows-ID/        sorted runs, with the scratch exchange; ID is drawn when
                                the pipeline is built, names in it are unique
    .recordmill/FINGERPRINT/    what recordmill.transforms.tasks.workspace says, once all is known

What a retried bundle left in the first is named by nobody, and goes with the folder.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.dataset.shards import ShardPlan, ShardResult
from recordmill.schemas.errors import OutputError, RecordmillError, UsageError
from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.ranges import InputRange, RangeResult
from recordmill.schemas.text import json_bytes
from recordmill.transforms.commit.commit import check_output, require_stored
from recordmill.transforms.commit.detached import acquire_for_commit, publish_once
from recordmill.transforms.commit.staging import stage
from recordmill.transforms.exchange.plan import plan_shards
from recordmill.transforms.rows.encode_rows import RECORD_SCHEMA, reject_limit_error
from recordmill.transforms.rows.row_summary import RowsTotals, rows_fingerprint
from recordmill.transforms.sources.pipeline_rows import PipelineRowsSource
from recordmill.transforms.storage import Preflight, Store
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tasks.write_shard import finished_shards

RowsExchange = Literal["scratch", "engine"]

_NO_FINGERPRINT = "0" * 32


@dataclass(frozen=True, slots=True)
class RowsJob:
    """What every worker of the pipeline needs to know; small, and free of storage.

    Attributes:
      job: what the rows become; its source is PIPELINE_ROWS.
      store: of the output.
      bucket_bits: of the order key, for the histogram.
      exchange: how records reach the shards' writers.
      overwrite: whether another dataset may be replaced.
      run_id: 11 hexadecimal digits, another for every pipeline.
      scratch: folder for sorted runs and facts that all workers see, or "".
      remote: whether workers may be on other machines.
    """

    job: JobSpec
    store: Store
    bucket_bits: int
    exchange: RowsExchange
    overwrite: bool
    run_id: str
    scratch: str = ""
    remote: bool = False

    @property
    def split_names(self) -> tuple[str, ...]:
        return tuple(split.name for split in self.job.splits)

    @property
    def run_workspace(self) -> Workspace:
        """Where sorted runs lie."""
        name = f"rows-{self.run_id}"
        return Workspace.of(self.store, name, self.scratch, remote=self.remote)

    def staging(self, fingerprint: str) -> Workspace:
        """Where shards are made."""
        return Workspace.of(self.store, fingerprint, self.scratch, remote=self.remote)


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """All that is known once every row was seen.

    Attributes:
      context: the run that follows from it.
      plan: of the shards; without any if nothing is to be written.
      rows_read: rows that came, rejects included.
      rows_rejected: those left out.
      finished: numbers of the shards that an earlier try has written.
      is_published: whether this very dataset stands in the output already.
    """

    context: RunContext
    plan: ShardPlan
    rows_read: int
    rows_rejected: int
    finished: frozenset[int] = frozenset()
    is_published: bool = False


def check_output_early(work: RowsJob) -> Preflight:
    """Finds out, while rows are worked on, whether the output can be used at all.

    Raises:
      OutputError: it is no folder for a dataset, or cannot be written.
    """
    store = work.store.with_short_retries()
    with _in_python():
        # What stands there may be replaced, or be this very dataset: known later.
        check_output(store, _NO_FINGERPRINT, overwrite=True)
    return store.preflight()


def plan_rows(totals: RowsTotals, work: RowsJob) -> RowsPlan:
    """The plan; makes the folders that the shards' writers need.

    Raises:
      RejectLimitError: too many rows were rejected.
      SchemaError: examples without a schema contradict each other.
      OutputError: another dataset stands in the output.
    """
    job, rejected = work.job, totals.rows_rejected
    if rejected > job.max_rejects.allowed(totals.rows_read):
        raise reject_limit_error(
            f"{rejected} of {totals.rows_read} rows",
            job.max_rejects.text,
            totals.reject,
        )
    records = totals.rows_read - rejected
    if not records:
        raise RecordmillError(
            f"no record to write: {totals.rows_read} rows read, {rejected} rejected"
        )
    context = _context(work, totals, records)
    with _in_python():
        manifest = check_output(
            work.store.with_short_retries(),
            context.fingerprint,
            overwrite=work.overwrite,
        )
    if manifest is not None:
        require_stored(work.store, manifest)
        plan = ShardPlan(())
        return RowsPlan(context, plan, totals.rows_read, rejected, is_published=True)
    plan = plan_shards(totals.histogram, job.sharding, work.split_names)
    context.workspace.create(work.exchange)
    finished = finished_shards(context, plan)
    return RowsPlan(context, plan, totals.rows_read, rejected, finished)


def write_rejects(group: int, lines: Iterable[bytes], planned: RowsPlan) -> int:
    """Writes one file of rejects, in the order of its lines; how many there are."""
    ordered = sorted(lines)
    if not planned.is_published:
        workspace = planned.context.workspace
        data = b"".join(line + b"\n" for line in ordered)
        workspace.put(f"{REJECTS_NAME}/rows-{group:02d}.jsonl", data)
    return len(ordered)


def publish_rows(
    work: RowsJob,
    ready: Preflight,
    planned: RowsPlan,
    shards: Sequence[ShardResult],
    rejects_kept: int,
) -> Manifest:
    """Publishes what was written; once, and safe to repeat.

    Raises:
      OutputError: another run holds the output, or put something else there.
      RecordmillError: rows are missing or double.
    """
    context = planned.context
    workspace, store = context.workspace, work.store
    if rejects_kept != planned.rows_rejected:
        raise RecordmillError(
            f"{planned.rows_rejected} rows were rejected, but {rejects_kept} kept: "
            "nothing is published"
        )

    def put_into_staging() -> None:
        if planned.is_published:
            raise OutputError(
                f"{store.uri}: held this dataset when the run planned it, and does no "
                "longer: run the pipeline again"
            )
        stage(context, [_as_range(planned)], shards, _run_metadata(work))

    with acquire_for_commit(store, exclusive=ready.exclusive), _in_python():
        manifest = publish_once(context, put_into_staging)
        work.run_workspace.remove()
        workspace.remove()
    return manifest


def _context(work: RowsJob, totals: RowsTotals, records: int) -> RunContext:
    job = work.job
    if job.declared is not None:
        schema = job.declared.to_schema()
    elif job.payload == "example":
        schema = totals.found.to_schema(records)
    else:
        schema = RECORD_SCHEMA
    fingerprint = rows_fingerprint(job, totals)
    return RunContext(
        job=job,
        source=PipelineRowsSource(schema),
        split_names=work.split_names,
        bucket_bits=work.bucket_bits,
        exchange=work.exchange,
        fingerprint=fingerprint,
        output=work.store.uri,
        workspace=work.staging(fingerprint),
        overwrite=work.overwrite,
    )


def _as_range(planned: RowsPlan) -> RangeResult:
    """The facts of all rows, in the form that publishing adds up."""
    return RangeResult(
        range=InputRange(0, "", "", 0, 0, 0, 0),
        rows_read=planned.rows_read,
        rows_rejected=planned.rows_rejected,
        runs=(),
    )


def _run_metadata(work: RowsJob) -> bytes:
    return json_bytes(
        {
            "recordmill": version("recordmill"),
            "beam": version("apache-beam"),
            "python": platform.python_version(),
            "exchange": work.exchange,
            "published_unix": round(time.time(), 3),
        }
    )


@contextmanager
def _in_python() -> Iterator[None]:
    """Says in errors how the way out is called here."""
    try:
        yield
    except (OutputError, UsageError) as error:
        text = str(error).replace("--overwrite", "overwrite=True")
        raise type(error)(text) from error
