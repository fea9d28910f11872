"""Groups pieces by shard through the engine's own shuffle, and writes the shards.

This module uses GroupByKey, or a stateful step on Flink. On Flink, both use the same
shuffle, but Flink holds each group of GroupByKey in memory, serializes it and sends it as
one value. It sends up to a hundred shards to a worker before the worker has accepted one.
A stateful step receives pieces one by one, one shard at a time, as one bundle. It does
not suit every runner: Prism (2.77) can split such a step within a key.

A stateful step does not know which value of a key is the last, so it counts rows: the
plan holds the number of rows of every shard, and every piece holds its own.

Pieces are the only output of the step that sends them. Flink writes all elements that a
step emits once for each of its outputs, and once more when they are flattened with the
output of another step (Flatten). The step therefore sends its other results as pieces,
with NO_SHARD in place of a shard number.
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
from recordmill.transforms.tasks.write_shard import write_shard_from_pieces

# In place of a shard's number: the piece is the packed result of a range.
NO_SHARD = -1


class TotalCombineFn(beam.CombineFn):
    """A CombineFn that adds elements to a total, first within each bundle.

    `create_empty` returns an empty total: an object with the methods `add` (for an
    element) and `merge` (for another total).
    """

    def __init__(self, create_empty: Callable[[], Any]) -> None:
        self._create_empty = create_empty

    def create_accumulator(self) -> Any:
        return self._create_empty()

    def add_input(self, accumulator: Any, element: Any) -> Any:
        accumulator.add(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        merged = self._create_empty()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def write_shards_from_pieces(
    pieces: PCollection[tuple[int, bytes]], to_write: PCollection[ShardsToWrite]
) -> PCollection[ShardResult | bytes]:
    """Groups (shard number, piece) by shard; writes every planned shard into staging.

    A finished shard has no pieces; an empty piece requests its result
    (`emit_finished_shards`).
    Emits the results of the shards, and the results of ranges that were sent as pieces.
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
        | "WriteShards" >> beam.FlatMap(write_shard_group, to_write=side)
    )


def emit_finished_shards(to_write: ShardsToWrite) -> Iterator[tuple[int, bytes]]:
    return ((number, b"") for number in to_write.finished_shards)


class WriteWhenComplete(beam.DoFn):
    """A DoFn that collects all pieces of a shard, and then writes the shard.

    Its state is never used. It makes Flink's batch runner use one bundle per key. Pieces
    stored in Beam's state would hold a whole shard in the memory of worker and runner.
    """

    BUNDLE_FOR_EACH_SHARD = ReadModifyWriteStateSpec("unused", VarIntCoder())

    def setup(self) -> None:
        release_memory()  # that the previous steps used

    def start_bundle(self) -> None:
        # None: the shard is written, so any further piece of it is a repeated one.
        self._shards: dict[int, ShardPieces | None] = {}

    def process(
        self,
        element: tuple[int, bytes],
        to_write: ShardsToWrite,
        unused: object = beam.DoFn.StateParam(BUNDLE_FOR_EACH_SHARD),
    ) -> Iterator[ShardResult | bytes]:
        number, piece = element
        if number == NO_SHARD or not piece:
            yield from write_shard_group((number, [piece]), to_write)
            return
        if number not in self._shards:
            self._shards[number], self._to_write = (
                _empty_shard_pieces(to_write),
                to_write,
            )
        pieces = self._shards[number]
        if pieces is None:
            return
        with report_errors_to_launcher(to_write.context.workspace):
            pieces.add(piece)
            if pieces.planned_rows < to_write.plan.num_rows_of(number):
                return
            result = write_shard_from_pieces(to_write, number, pieces)
            self._shards[number] = pieces = None
        release_memory()
        yield result

    def finish_bundle(self) -> None:
        # This raises an error: later pieces would be collected without the earlier ones.
        for number, pieces in self._shards.items():
            if pieces is not None:
                with report_errors_to_launcher(self._to_write.context.workspace):
                    write_shard_from_pieces(self._to_write, number, pieces)


def _empty_shard_pieces(to_write: ShardsToWrite) -> ShardPieces:
    workspace = to_write.context.workspace
    return ShardPieces(None if workspace.is_in_store else workspace.local_path("runs"))


def write_shard_group(
    grouped: tuple[int, Iterable[bytes]], to_write: ShardsToWrite
) -> Iterator[ShardResult | bytes]:
    """Writes a shard from its pieces; a finished shard has a single, empty piece."""
    number, pieces = grouped
    if number == NO_SHARD:
        yield from pieces
        return
    with report_errors_to_launcher(to_write.context.workspace):
        shard_pieces = _empty_shard_pieces(to_write)
        for piece in filter(None, pieces):
            shard_pieces.add(piece)
        yield write_shard_from_pieces(to_write, number, shard_pieces)
