"""Groups pieces by shard through the engine's own shuffle, and writes the shards.

It uses GroupByKey, and on Flink a stateful step. On Flink both use the same shuffle,
but a group of GroupByKey is held in memory, serialized and sent as one value, and up to
a hundred shards are sent to a worker before it has taken one. A stateful step gets
pieces one by one, one shard at a time, as one bundle. It does not suit all runners: Prism
(2.77) can split such a step within a key.

A stateful step is not told which value of a key is the last, so it counts: the plan has
the rows of every shard, and every piece says for how many of them it accounts.

Pieces are the only output of the step that sends them: Flink writes all that a step emits
once for each of its outputs, and once more where it is joined with those of another step
(Flatten). So what else it has to say goes the way of the pieces, with NO_SHARD in place of a
number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from recordmill.beam_jobs.runners.embedded import is_flink
from recordmill.schemas.errors import UsageError
from recordmill.schemas.ranges import ShardResult
from recordmill.transforms.exchange.pieces import ShardPieces
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

    A finished shard gets no pieces: an empty one asks for its result (`ask_for_finished`).
    Emits the results of the shards, and those of ranges that came with the pieces.
    """
    keyed = pieces | "SetPieceType" >> beam.Map(lambda pair: pair).with_output_types(
        tuple[int, bytes]
    )
    side = AsSingleton(to_write)
    if is_flink(pieces.pipeline):
        if pieces.pipeline.options.view_as(StandardOptions).streaming:
            raise UsageError(
                "`exchange=engine` on Flink needs its batch mode: leave out `--streaming`, "
                "or use `exchange=scratch`"
            )
        return keyed | "WriteShards" >> beam.ParDo(WriteWhenComplete(), side)
    return (
        keyed
        | "GroupByShard" >> beam.GroupByKey()
        | "WriteShards" >> beam.FlatMap(write_group, to_write=side)
    )


def ask_for_finished(to_write: ShardsToWrite) -> Iterator[tuple[int, bytes]]:
    return ((number, b"") for number in to_write.finished)


class WriteWhenComplete(beam.DoFn):
    """A DoFn that takes the pieces of a shard until it has all, and then writes it.

    Its state is never used: it makes Flink's batch runner use one bundle per key. State
    of Beam would be in memory, in the worker and the runner, all of a shard.
    """

    BUNDLE_FOR_EACH_SHARD = ReadModifyWriteStateSpec("unused", VarIntCoder())

    def setup(self) -> None:
        release_memory()  # of the steps before

    def start_bundle(self) -> None:
        # None: the shard is written, and a piece of it is a repeated one.
        self._shards: dict[int, ShardPieces | None] = {}

    def process(
        self,
        element: tuple[int, bytes],
        to_write: ShardsToWrite,
        unused: object = beam.DoFn.StateParam(BUNDLE_FOR_EACH_SHARD),
    ) -> Iterator[ShardResult | bytes]:
        number, piece = element
        if number == NO_SHARD or not piece:
            yield from write_group((number, [piece]), to_write)
            return
        if number not in self._shards:
            self._shards[number], self._to_write = _no_pieces(to_write), to_write
        pieces = self._shards[number]
        if pieces is None:
            return
        with report_errors_to_launcher(to_write.context.workspace):
            pieces.add(piece)
            if pieces.planned_rows < to_write.plan.rows_of(number):
                return
            result = write_inline(to_write, number, pieces)
            self._shards[number] = pieces = None
        release_memory()
        yield result

    def finish_bundle(self) -> None:
        # An error, as what comes later would be held without what came so far.
        for number, pieces in self._shards.items():
            if pieces is not None:
                with report_errors_to_launcher(self._to_write.context.workspace):
                    write_inline(self._to_write, number, pieces)


def _no_pieces(to_write: ShardsToWrite) -> ShardPieces:
    workspace = to_write.context.workspace
    return ShardPieces(None if workspace.shared else workspace.local_path("runs"))


def write_group(
    grouped: tuple[int, Iterable[bytes]], to_write: ShardsToWrite
) -> Iterator[ShardResult | bytes]:
    """Writes a shard from its pieces; a finished one comes with one empty piece."""
    number, pieces = grouped
    if number == NO_SHARD:
        yield from pieces
        return
    with report_errors_to_launcher(to_write.context.workspace):
        found = _no_pieces(to_write)
        for piece in filter(None, pieces):
            found.add(piece)
        yield write_inline(to_write, number, found)
