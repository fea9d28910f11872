"""Converts, plans and writes: records reach their shards through the engine's shuffle.

    measure -> redo -> plan -> send in pieces -> group by shard -> write

Only results and finished shards are written to files, so workers need to share nothing
but the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from recordmill.beam_jobs.pipelines.combine import (
    MergeTypeFlags,
    SumHistograms,
    plan_dataset,
)
from recordmill.beam_jobs.pipelines.group_by_shard import ShardsToWrite, WritePieces
from recordmill.beam_jobs.runners.portable import is_flink
from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import InputRange, RangeResult, TypeFlags
from recordmill.schemas.shards import ShardPlan, ShardResult
from recordmill.schemas.text import human_bytes
from recordmill.transforms.tasks.checkpoints import report_errors_to_launcher
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.finished_shards import finished_shards
from recordmill.transforms.tasks.send_range import (
    MeasuredRange,
    measure_range,
    send_range,
)

# Pieces of one range: less than 100 messages of 10 MB, the size that Python workers
# send.
FLINK_BUNDLE_BYTES = 900_000_000

_RESULTS = "results"


def exchange_by_engine(
    input_ranges: PCollection[tuple[InputRange, TypeFlags]],
    context: RunContext,
    *,
    redo: bool,
) -> tuple[PCollection[RangeResult], PCollection[ShardResult]]:
    """Converts all ranges and writes all shards into staging.

    Args:
      input_ranges: ranges, each with a guess of its types.
      context: the run.
      redo: whether ranges that were measured with other types are measured again.

    Returns:
      The results of all ranges and of all shards.
    """
    measured = input_ranges | "MeasureRanges" >> beam.Map(
        measure_one, context
    )  # MeasuredRange
    final_types = (
        measured
        | "GetTypes" >> beam.Map(lambda one: one.result.observed_types)  # TypeFlags
        | "MergeTypes" >> beam.CombineGlobally(MergeTypeFlags()).without_defaults()
    )
    if redo:
        measured = measured | "MeasureAgain" >> beam.Map(
            measure_again, context, final_types=AsSingleton(final_types)
        )
    plan = measured | "PlanShards" >> PlanMeasured(context)  # ShardPlan
    to_write = plan | "FindFinished" >> beam.Map(
        find_finished, context
    )  # ShardsToWrite
    sent = (
        measured
        | "KeyByIndex" >> beam.Map(by_index).with_output_types(tuple[int, RangeResult])
        | "SendRanges"
        >> beam.ParDo(
            SendRange(context, on_flink=is_flink(input_ranges.pipeline)),
            AsSingleton(final_types),
            AsSingleton(to_write),
        ).with_outputs(_RESULTS, main="pieces")
    )
    # sent["pieces"]: (shard number, piece)
    shards = sent["pieces"] | "WriteShards" >> WritePieces(to_write)
    return sent[_RESULTS], shards


def measure_one(
    guessed: tuple[InputRange, TypeFlags], context: RunContext
) -> MeasuredRange:
    input_range, guess = guessed
    with report_errors_to_launcher(context.workspace):
        return measure_range(context, input_range, guess)


def measure_again(
    measured: MeasuredRange, context: RunContext, final_types: TypeFlags
) -> MeasuredRange:
    result = measured.result
    if not context.source.needs_reencode(
        result.observed_types, result.encoded_types, final_types
    ):
        return measured
    with report_errors_to_launcher(context.workspace):
        return measure_range(context, result.range, final_types, redo=True)


@dataclass
class PlanMeasured(beam.PTransform[PCollection[MeasuredRange], PCollection[ShardPlan]]):
    """Adds the histograms of all ranges and cuts every split into shards."""

    context: RunContext

    def expand(self, measured: PCollection[MeasuredRange]) -> PCollection[ShardPlan]:
        results = measured | "GetResults" >> beam.Map(
            lambda one: one.result
        )  # RangeResult
        return (
            measured
            | "GetHistograms" >> beam.Map(lambda one: one.histogram)  # PackedHistogram
            | beam.CombineGlobally(
                SumHistograms(self.context.num_splits, self.context.bucket_bits)
            ).without_defaults()
            | beam.Map(plan_dataset, self.context, results=AsList(results))
        )


def find_finished(plan: ShardPlan, context: RunContext) -> ShardsToWrite:
    with report_errors_to_launcher(context.workspace):
        return ShardsToWrite(context, plan, finished_shards(context, plan))


def by_index(measured: MeasuredRange) -> tuple[int, RangeResult]:
    return measured.result.range.index, measured.result


class SendRange(beam.DoFn):
    """A DoFn that reads a range again; emits its pieces, and its result on the side.

    Its state is never used. It makes Flink's batch runner use one bundle per key.
    Without state, Flink makes one bundle of all that a worker gets, takes no output
    before the end of the bundle, and hangs at a hundred messages (about 1 GB). Like a
    Reshuffle, it also distributes the ranges again.

    A range whose pieces are larger than that (a table where each row names a large
    file) is an error on Flink.
    """

    BUNDLE_FOR_EACH_RANGE = ReadModifyWriteStateSpec("unused", VarIntCoder())

    def __init__(self, context: RunContext, *, on_flink: bool) -> None:
        self._context = context
        self._max_bytes = FLINK_BUNDLE_BYTES if on_flink else None

    def process(
        self,
        element: tuple[int, RangeResult],
        final_types: TypeFlags,
        to_write: ShardsToWrite,
        unused: object = beam.DoFn.StateParam(BUNDLE_FOR_EACH_RANGE),
    ) -> Iterator[tuple[int, bytes] | TaggedOutput[str, RangeResult]]:
        context, (_, measured) = self._context, element
        num_bytes = 0
        with report_errors_to_launcher(context.workspace):
            for sent in send_range(
                context, measured, final_types, to_write.plan, to_write.finished
            ):
                if isinstance(sent, RangeResult):
                    yield TaggedOutput(_RESULTS, sent)
                    return
                num_bytes += len(sent[1])
                if self._max_bytes is not None and num_bytes > self._max_bytes:
                    raise InputError(
                        f"{measured.range.where} make records of more than "
                        f"{human_bytes(self._max_bytes)}, the limit of exchange engine "
                        "for one range on Flink. Use `exchange=scratch`"
                    )
                yield sent
