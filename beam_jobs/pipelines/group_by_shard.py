"""Pieces that came through the engine's own shuffle: grouped by shard, and written.

By GroupByKey; but on Flink by a step with state. Both go through the same shuffle there,
but what GroupByKey groups is held, serialised and sent whole: a shard is one value, and a
hundred are sent to a worker before the runner looks whether it takes any. A step with state
gets pieces one by one, and has a shard's turn to itself. It is not for all runners: Prism
(2.77) may split such a step in the middle of a key, and forgets state when it does.

A step with state is not told when a key's last value came, so it counts: every shard's
rows are planned, and every piece says how many of them it accounts for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec

from recordmill.beam_jobs.runners.flink import is_flink
from recordmill.schemas.dataset.shards import ShardPlan, ShardResult
from recordmill.transforms.exchange.messages import planned_rows
from recordmill.transforms.tasks.checkpoints import report_errors_to_launcher
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.memory import release_memory
from recordmill.transforms.tasks.write_shard import write_inline


@dataclass(frozen=True, slots=True)
class ShardsToWrite:
    """What the writers of shards need to know.

    Attributes:
      context: the run.
      plan: of the shards.
      finished: numbers of the shards that an earlier try has written.
    """

    context: RunContext
    plan: ShardPlan
    finished: frozenset[int]


@dataclass
class WritePieces(
    beam.PTransform[PCollection[tuple[int, bytes]], PCollection[ShardResult]]
):
    """Groups the pieces by shard and writes every planned shard into staging."""

    to_write: PCollection[ShardsToWrite]

    def expand(
        self, pieces: PCollection[tuple[int, bytes]]
    ) -> PCollection[ShardResult]:
        # A finished shard gets no piece, and its facts are wanted all the same.
        finished = self.to_write | "Finished" >> beam.FlatMap(
            lambda to_write: ((number, b"") for number in to_write.finished)
        )
        keyed = [
            part
            | f"Typed{place}"
            >> beam.Map(lambda pair: pair).with_output_types(tuple[int, bytes])
            for place, part in enumerate((pieces, finished))
        ]
        all_keyed = keyed | beam.Flatten()
        to_write = AsSingleton(self.to_write)
        if is_flink(pieces.pipeline):
            return all_keyed | "Shards" >> beam.ParDo(WriteWhenComplete(), to_write)
        return (
            all_keyed
            | "ByShard" >> beam.GroupByKey()
            | "Shards" >> beam.Map(write_one, to_write=to_write)
        )


class WriteWhenComplete(beam.DoFn):
    """Holds the pieces of a shard until all are there; then writes it.

    State is kept in the worker while a bundle lasts, and leaves it only if the bundle
    ends before the shard is complete.
    """

    PIECES = BagStateSpec("pieces", BytesCoder())
    ROWS = ReadModifyWriteStateSpec("rows", VarIntCoder())

    def setup(self) -> None:
        release_memory()  # what the steps before have left

    def process(
        self,
        element: tuple[int, bytes],
        to_write: ShardsToWrite,
        pieces: Any = beam.DoFn.StateParam(PIECES),  # noqa: B008  Beam's way
        rows: Any = beam.DoFn.StateParam(ROWS),  # noqa: B008
    ) -> Iterator[ShardResult]:
        number, piece = element
        if not piece:
            yield write_one((number, [piece]), to_write)
            return
        planned = to_write.plan.rows_of(number)
        rows_received = rows.read() or 0
        if rows_received >= planned:
            return  # it is written: the piece has come twice
        pieces.add(piece)
        rows_received += planned_rows([piece])
        if rows_received >= planned:
            rows_received = planned_rows(pieces.read())  # some may have come twice
        rows.write(rows_received)
        if rows_received >= planned:
            yield write_one((number, pieces.read()), to_write)
            pieces.clear()
            release_memory()


def write_one(
    grouped: tuple[int, Iterable[bytes]], to_write: ShardsToWrite
) -> ShardResult:
    """Writes a shard; of one that is finished a single empty value has come."""
    number, pieces = grouped
    with report_errors_to_launcher(to_write.context.workspace):
        return write_inline(
            to_write.context,
            to_write.plan.task(number),
            filter(None, pieces),
            already_written=number in to_write.finished,
        )
