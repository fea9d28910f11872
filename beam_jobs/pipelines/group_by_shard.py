"""Groups pieces by shard through the engine's own shuffle, and writes the shards.

It uses GroupByKey, and on Flink a stateful step. On Flink both use the same shuffle,
but a group of GroupByKey is held in memory, serialized and sent as one value, and up to
a hundred shards are sent to a worker before it has taken one. A stateful step gets
pieces one by one, one shard at a time. It does not suit all runners: Prism (2.77) can
split such a step within a key, and loses the state then.

A stateful step is not told which value of a key is the last, so it counts: the plan has
the rows of every shard, and every piece says for how many of them it accounts.

Pieces are the only output of the step that sends them: Flink writes all that a step emits
once for each of its outputs. So what else it has to say goes the way of the pieces, with
NO_SHARD in place of a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec

from recordmill.beam_jobs.runners.embedded import is_flink
from recordmill.schemas.ranges import ShardResult
from recordmill.transforms.exchange.pieces import planned_rows
from recordmill.transforms.tasks.context import ShardsToWrite
from recordmill.transforms.tasks.launches import report_errors_to_launcher
from recordmill.transforms.tasks.memory import release_memory
from recordmill.transforms.tasks.write_shard import write_inline

# In place of a shard's number: the piece is the packed result of a range.
NO_SHARD = -1


class Total(beam.CombineFn):
    """A CombineFn that adds parts to a total, first those of a bundle in its worker.

    `nothing` makes a total of no parts, which has `add` for a part, and `merge`.
    """

    def __init__(self, nothing: Callable[[], Any]) -> None:
        self._nothing = nothing

    def create_accumulator(self) -> Any:
        return self._nothing()

    def add_input(self, accumulator: Any, element: Any) -> Any:
        accumulator.add(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        merged = self._nothing()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def write_pieces(
    pieces: PCollection[tuple[int, bytes]], to_write: PCollection[ShardsToWrite]
) -> PCollection[ShardResult | bytes]:
    """Groups (shard number, piece) by shard; writes every planned shard into staging.

    Emits the results of the shards, and those of ranges that came with the pieces.
    """
    # A finished shard gets no pieces: an empty one asks for its result.
    finished = to_write | "ListFinished" >> beam.FlatMap(
        lambda to_write: ((number, b"") for number in to_write.finished)
    )
    keyed = [
        part
        | f"SetType{index}"
        >> beam.Map(lambda pair: pair).with_output_types(tuple[int, bytes])
        for index, part in enumerate((pieces, finished))
    ]
    all_keyed = keyed | beam.Flatten()
    side = AsSingleton(to_write)
    if is_flink(pieces.pipeline):
        return all_keyed | "WriteShards" >> beam.ParDo(WriteWhenComplete(), side)
    return (
        all_keyed
        | "GroupByShard" >> beam.GroupByKey()
        | "WriteShards" >> beam.FlatMap(write_group, to_write=side)
    )


class WriteWhenComplete(beam.DoFn):
    """A DoFn that keeps the pieces of a shard until it has all, and then writes it.

    The state stays in the worker until the end of a bundle, and is sent to the runner
    only if the shard is not complete by then.
    """

    PIECES = BagStateSpec("pieces", BytesCoder())
    ROWS = ReadModifyWriteStateSpec("rows", VarIntCoder())

    def setup(self) -> None:
        release_memory()  # of the steps before

    def process(
        self,
        element: tuple[int, bytes],
        to_write: ShardsToWrite,
        pieces: Any = beam.DoFn.StateParam(PIECES),  # noqa: B008  as Beam declares state
        rows: Any = beam.DoFn.StateParam(ROWS),  # noqa: B008
    ) -> Iterator[ShardResult | bytes]:
        number, piece = element
        if number == NO_SHARD or not piece:
            yield from write_group((number, [piece]), to_write)
            return
        planned = to_write.plan.rows_of(number)
        rows_received = rows.read() or 0
        if rows_received >= planned:
            return  # the shard is written: this piece is a repeated one
        pieces.add(piece)
        rows_received += planned_rows([piece])
        if rows_received >= planned:
            rows_received = planned_rows(pieces.read())  # without repeated ones
        rows.write(rows_received)
        if rows_received >= planned:
            yield from write_group((number, pieces.read()), to_write)
            pieces.clear()
            release_memory()


def write_group(
    grouped: tuple[int, Iterable[bytes]], to_write: ShardsToWrite
) -> Iterator[ShardResult | bytes]:
    """Writes a shard from its pieces; a finished one comes with one empty piece."""
    number, pieces = grouped
    if number == NO_SHARD:
        yield from pieces
        return
    with report_errors_to_launcher(to_write.context.workspace):
        yield write_inline(
            to_write.context,
            to_write.plan.task(number),
            filter(None, pieces),
            already_written=number in to_write.finished,
        )
