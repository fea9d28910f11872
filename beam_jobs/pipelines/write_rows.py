"""The steps of WriteDataset: rows -> records in runs or pieces -> shards.

    rows -> encode --+-> facts -> totals -> plan ----------+
                     |                                     v
                     +-> sorted runs (scratch) --------> write shards -> publish
                     +-> pieces (engine) -> cut by plan -> by shard ---^

With scratch only facts cross the engine. With the engine exchange the encoded rows do,
twice: they wait in the engine for the plan, which hangs on all of them, and then go
through its shuffle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from recordmill.transforms.exchange.block import Block
from recordmill.transforms.exchange.messages import cut_block, open_piece
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.exchange.sorted_run import write_sorted_run
from recordmill.transforms.rows.encode_rows import RowsEncoder, summarize_rejects
from recordmill.transforms.rows.row_summary import RowsSummary, RowsTotals
from recordmill.transforms.rows.rows_job import RowsJob, RowsPlan, write_rejects
from recordmill.transforms.tasks.write_shard import write_shard

SUMMARIES, REJECTS = "facts", "rejects"
REJECT_FILES = 16  # each is sorted in memory

_RUN_BYTES = 64 << 20  # records of a bundle that are sorted at once, with scratch
_PIECES_BYTES = 16 << 20  # the same with the engine's shuffle

Piece = tuple[int, bytes]
"""Index of a split and records of it; or number of a shard and records of it."""


class EncodeRows(beam.DoFn):
    """Makes records of elements.

    Emits pieces (engine exchange only), and on the side RowsSummary (SUMMARIES) and rejects
    (REJECTS) as (number of their file, line).
    """

    def __init__(self, work: RowsJob) -> None:
        self._work = work

    def start_bundle(self) -> None:
        # Anew: a bundle that failed may have left something.
        self._reading = RowsEncoder(self._work.job, self._work.bucket_bits)
        self._blocks: list[Block] = []
        self._facts: list[RowsSummary] = []
        self._bytes = 0

    def process(self, element: object) -> Iterator[Piece | TaggedOutput[str, object]]:
        for block, facts in self._reading.add(element):
            yield from self._buffer(block, facts)
        yield from self._tell_rejects()

    def finish_bundle(
        self,
    ) -> Iterator[WindowedValue | TaggedOutput[str, WindowedValue]]:
        for block, facts in self._reading.flush():
            for output in self._buffer(block, facts):
                yield _at_the_end(output)
        for output in (*self._flush(), *self._tell_rejects()):
            yield _at_the_end(output)

    def _buffer(
        self, block: Block, facts: RowsSummary
    ) -> Iterator[Piece | TaggedOutput[str, object]]:
        self._blocks.append(block)
        self._facts.append(facts)
        self._bytes += block.payloads.nbytes
        limit = _RUN_BYTES if self._work.exchange == "scratch" else _PIECES_BYTES
        if self._bytes >= limit:
            yield from self._flush()

    def _flush(self) -> Iterator[Piece | TaggedOutput[str, object]]:
        """Sends what is held on its way."""
        if not self._blocks:
            return
        facts, self._facts, self._bytes = self._facts, [], 0
        block = Block.joined(self._blocks)
        runs: tuple[SortedRunRef, ...] = ()
        num_splits = len(self._work.split_names)
        if self._work.exchange == "scratch":
            runs = (_store_run(self._work, block, num_splits),)
        else:
            # What tells it from all others, also from those of a retried bundle.
            origin = (uuid4().int >> 64, 0)
            yield from cut_block(block, _one_shard_each(num_splits), origin)
        for one in facts:
            yield TaggedOutput(SUMMARIES, one)
        if runs:
            yield TaggedOutput(SUMMARIES, RowsSummary(runs=runs))

    def _tell_rejects(self) -> Iterator[TaggedOutput[str, object]]:
        rejects = self._reading.take_rejects()
        if not rejects:
            return
        for digest, line in rejects:
            yield TaggedOutput(REJECTS, (digest[0] % REJECT_FILES, line))
        yield TaggedOutput(SUMMARIES, summarize_rejects(rejects))


def _at_the_end(
    output: Piece | TaggedOutput[str, object],
) -> WindowedValue | TaggedOutput[str, WindowedValue]:
    if isinstance(output, TaggedOutput):
        value = GlobalWindows.windowed_value(output.value)
        return TaggedOutput(output.tag, value)
    return GlobalWindows.windowed_value(output)


def _store_run(work: RowsJob, block: Block, num_splits: int) -> SortedRunRef:
    workspace = work.run_workspace
    if not workspace.shared:
        workspace.local_path("runs").mkdir(parents=True, exist_ok=True)
    with workspace.runs.writing(uuid4().hex) as stem:
        return write_sorted_run(stem, block, num_splits)


def _one_shard_each(num_splits: int) -> ShardPlan:
    """A plan by which each split's rows stay together."""
    whole = SplitPlan("", (0, KEY_SPACE), (1,), (1,))
    return ShardPlan((whole,) * num_splits)


@dataclass
class SumRows(beam.CombineFn):
    """Adds up summaries of rows; within a bundle before they leave the worker."""

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
    """Writes every planned shard from the sorted runs, each a task of its own."""

    work: RowsJob
    facts: PCollection[RowsSummary]

    def expand(self, planned: PCollection[RowsPlan]) -> PCollection[ShardResult]:
        runs = self.facts | "Runs" >> beam.FlatMap(lambda facts: facts.runs)
        return (
            planned
            | "Tasks" >> beam.FlatMap(lambda planned: planned.plan.tasks())
            | "Spread" >> beam.Reshuffle()
            | "Shards"
            >> beam.Map(
                write_from_runs,
                self.work,
                planned=AsSingleton(planned),
                runs=AsList(runs),
            )
        )


def write_from_runs(
    task: ShardTask, work: RowsJob, planned: RowsPlan, runs: list[SortedRunRef]
) -> ShardResult:
    folder = work.run_workspace.runs
    return write_shard(planned.context, task, runs, folder=folder)


@dataclass
class WriteFromPieces(beam.PTransform[PCollection[RowsPlan], PCollection[ShardResult]]):
    """Sends the pieces to their shards, groups them and writes every planned shard."""

    pieces: PCollection[Piece]

    def expand(self, planned: PCollection[RowsPlan]) -> PCollection[ShardResult]:
        to_write = planned | "ToWrite" >> beam.Map(
            lambda planned: ShardsToWrite(
                planned.context, planned.plan, planned.finished
            )
        )
        return (
            self.pieces
            | "Cut" >> beam.FlatMap(cut_piece, to_write=AsSingleton(to_write))
            | "Write" >> WritePieces(to_write)
        )


def cut_piece(piece: Piece, to_write: ShardsToWrite) -> Iterator[Piece]:
    """Cuts a piece of a split at the shards' bounds."""
    if not to_write.plan.num_shards:
        return
    block, (origin, number) = open_piece(piece[1], piece[0])
    yield from cut_block(block, to_write.plan, (origin, number), to_write.finished)


def write_reject_file(grouped: tuple[int, Iterable[bytes]], planned: RowsPlan) -> int:
    """Writes one file of rejects; how many there are."""
    return write_rejects(grouped[0], grouped[1], planned)
