"""Defines the steps of WriteDataset: rows to sorted runs or pieces, then to shards.

    rows -> encode --+-> summaries -> totals -> plan ------------+
                     |                                           v
                     +-> sorted runs (scratch) -------------> write shards -> publish
                     +-> pieces (engine) -> cut by plan -> group by shard -^

With scratch only summaries pass through the runner. With the engine exchange the
encoded rows do, twice: the engine keeps them until the plan is made, which needs all of
  them, and
then shuffles them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.beam_jobs.pipelines.group_by_shard import ShardsToWrite, WritePieces
from recordmill.schemas.dataset.shards import (
    KEY_SPACE,
    ShardPlan,
    ShardResult,
    ShardTask,
    SplitPlan,
)
from recordmill.schemas.ranges import SortedRunRef
from recordmill.schemas.reject_totals import RejectTotals
from recordmill.transforms.exchange.block import Block
from recordmill.transforms.exchange.messages import cut_block
from recordmill.transforms.exchange.piece import open_piece
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.rows.encode_rows import RowsEncoder
from recordmill.transforms.rows.row_rejects import summarize_rejects
from recordmill.transforms.rows.row_summary import RowsSummary, RowsTotals
from recordmill.transforms.rows.rows_job import RowsJob, RowsPlan, write_rejects
from recordmill.transforms.tasks.write_shard import write_shard

SUMMARIES, REJECTS = "summaries", "rejects"
REJECT_FILES = 16  # each file is sorted in memory

_RUN_BYTES = 64 << 20  # of records that make one sorted run, with scratch
_PIECES_BYTES = 16 << 20  # of records that are cut into pieces, with engine

Piece = tuple[int, bytes]
"""(split index, records), or after the plan (shard number, records)."""


class EncodeRows(beam.DoFn):
    """A DoFn that encodes elements as records.

    It emits pieces (only with the engine exchange) and, as tagged outputs, RowsSummary
    (SUMMARIES) and rejects as (number of their file, line) (REJECTS).
    """

    def __init__(self, rows_job: RowsJob) -> None:
        self._rows_job = rows_job

    def start_bundle(self) -> None:
        # A bundle that failed can have left rows here.
        self._encoder = RowsEncoder(self._rows_job.job, self._rows_job.bucket_bits)
        self._blocks: list[Block] = []
        self._summaries: list[RowsSummary] = []
        self._bytes = 0

    def process(self, element: object) -> Iterator[Piece | TaggedOutput[str, object]]:
        for block, summary in self._encoder.add(element):
            yield from self._buffer(block, summary)
        yield from self._emit_rejects()

    def finish_bundle(
        self,
    ) -> Iterator[WindowedValue | TaggedOutput[str, WindowedValue]]:
        for block, summary in self._encoder.flush():
            for output in self._buffer(block, summary):
                yield _in_global_window(output)
        for output in (*self._flush(), *self._emit_rejects()):
            yield _in_global_window(output)

    def _buffer(
        self, block: Block, summary: RowsSummary
    ) -> Iterator[Piece | TaggedOutput[str, object]]:
        self._blocks.append(block)
        self._summaries.append(summary)
        self._bytes += block.payloads.nbytes
        limit = _RUN_BYTES if self._rows_job.exchange == "scratch" else _PIECES_BYTES
        if self._bytes >= limit:
            yield from self._flush()

    def _flush(self) -> Iterator[Piece | TaggedOutput[str, object]]:
        """Sends the buffered records to a sorted run or in pieces."""
        if not self._blocks:
            return
        summaries, self._summaries, self._bytes = self._summaries, [], 0
        runs: tuple[SortedRunRef, ...] = ()
        num_splits = len(self._rows_job.split_names)
        if self._rows_job.exchange == "scratch":
            runs = (_store_run(self._rows_job, self._blocks, num_splits),)
            self._blocks.clear()
        else:
            # Unique, also among the pieces of a repeated bundle.
            origin = (uuid4().int >> 64, 0)
            block = Block.joined(self._blocks)
            yield from cut_block(block, _one_shard_each(num_splits), origin)
        for summary in summaries:
            yield TaggedOutput(SUMMARIES, summary)
        if runs:
            yield TaggedOutput(SUMMARIES, RowsSummary(runs=runs))

    def _emit_rejects(self) -> Iterator[TaggedOutput[str, object]]:
        rejects = self._encoder.take_rejects()
        if not rejects:
            return
        for digest, line in rejects:
            yield TaggedOutput(REJECTS, (digest[0] % REJECT_FILES, line))
        yield TaggedOutput(SUMMARIES, summarize_rejects(rejects))


def _in_global_window(
    output: Piece | TaggedOutput[str, object],
) -> WindowedValue | TaggedOutput[str, WindowedValue]:
    if isinstance(output, TaggedOutput):
        value = GlobalWindows.windowed_value(output.value)
        return TaggedOutput(output.tag, value)
    return GlobalWindows.windowed_value(output)


def _store_run(
    rows_job: RowsJob, blocks: Sequence[Block], num_splits: int
) -> SortedRunRef:
    workspace = rows_job.run_workspace
    if not workspace.shared:
        workspace.local_path("runs").mkdir(parents=True, exist_ok=True)
    return workspace.runs.save(uuid4().hex, blocks, num_splits)


def _one_shard_each(num_splits: int) -> ShardPlan:
    """Returns a plan with one shard for each split."""
    whole = SplitPlan("", (0, KEY_SPACE), (1,), (1,))
    return ShardPlan((whole,) * num_splits)


@dataclass
class SumRows(beam.CombineFn):
    """A CombineFn that adds summaries, first those of a bundle in its worker."""

    num_splits: int
    bucket_bits: int

    def create_accumulator(self) -> RowsTotals:
        return RowsTotals(Histogram.empty(self.num_splits, self.bucket_bits))

    def add_input(self, accumulator: RowsTotals, element: RowsSummary) -> RowsTotals:
        accumulator.add(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[RowsTotals]) -> RowsTotals:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: RowsTotals) -> RowsTotals:
        return accumulator


@dataclass
class WriteFromRuns(beam.PTransform[PCollection[RowsPlan], PCollection[ShardResult]]):
    """Writes every planned shard from the sorted runs, each as one task."""

    rows_job: RowsJob
    summaries: PCollection[RowsSummary]

    def expand(self, plan: PCollection[RowsPlan]) -> PCollection[ShardResult]:
        runs = self.summaries | "ListRuns" >> beam.FlatMap(lambda summary: summary.runs)
        return (
            plan
            | "ListTasks" >> beam.FlatMap(lambda plan: plan.shard_plan.tasks())
            | "SpreadTasks" >> beam.Reshuffle()  # ShardTask
            | "WriteShards"
            >> beam.Map(
                write_from_runs,
                self.rows_job,
                plan=AsSingleton(plan),
                runs=AsList(runs),
            )
        )


def write_from_runs(
    task: ShardTask, rows_job: RowsJob, plan: RowsPlan, runs: list[SortedRunRef]
) -> ShardResult:
    folder = rows_job.run_workspace.runs
    return write_shard(plan.context, task, runs, folder=folder)


@dataclass
class WriteFromPieces(beam.PTransform[PCollection[RowsPlan], PCollection[ShardResult]]):
    """Cuts the pieces by the plan, groups them by shard and writes the shards."""

    pieces: PCollection[Piece]

    def expand(self, plan: PCollection[RowsPlan]) -> PCollection[ShardResult]:
        to_write = plan | "ListShards" >> beam.Map(
            lambda plan: ShardsToWrite(plan.context, plan.shard_plan, plan.finished)
        )
        return (
            self.pieces
            | "CutPieces" >> beam.FlatMap(cut_piece, to_write=AsSingleton(to_write))
            | "WriteShards" >> WritePieces(to_write)
        )


def cut_piece(piece: Piece, to_write: ShardsToWrite) -> Iterator[Piece]:
    """Cuts a piece of a split at the boundaries of the shards."""
    if not to_write.plan.num_shards:
        return
    block, head = open_piece(piece[1], piece[0])
    yield from cut_block(block, to_write.plan, head.place, to_write.finished)


def write_reject_file(
    grouped: tuple[int, Iterable[bytes]], plan: RowsPlan
) -> RejectTotals:
    """Writes one file of rejects; returns their totals."""
    return write_rejects(grouped[0], grouped[1], plan)
