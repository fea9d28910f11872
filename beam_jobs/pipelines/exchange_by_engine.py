"""Convert, plan, write: rows go to their shards through the engine's own shuffle.

    measure -> redo -> plan -> send again, in pieces -> group by shard -> write

Nothing but results and finished shards is written, so workers need to share no more
than the output.
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
from recordmill.beam_jobs.runners.flink import is_flink
from recordmill.schemas.dataset.shards import ShardPlan, ShardResult
from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import InputRange, RangeResult, TypeFlags
from recordmill.schemas.text import human_bytes
from recordmill.transforms.tasks.checkpoints import report_errors_to_launcher
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.send_range import (
    MeasuredRange,
    measure_range,
    send_range,
)
from recordmill.transforms.tasks.write_shard import finished_shards

# Of a range's pieces: below a hundred messages of 10 MB, as Python's workers make them.
FLINK_BUNDLE_BYTES = 900_000_000

_RESULTS = "results"


def exchange_by_engine(
    input_ranges: PCollection[tuple[InputRange, TypeFlags]],
    context: RunContext,
    *,
    redo: bool,
) -> tuple[PCollection[RangeResult], PCollection[ShardResult]]:
    """The facts of all ranges and of all shards, which lie in staging then.

    Args:
      input_ranges: ranges, with a guess of their types.
      context: the run.
      redo: whether what was measured for other types must be measured again.
    """
    measured = input_ranges | "Measure" >> beam.Map(measure_one, context)  # Measured
    final = (
        measured
        | "Observed" >> beam.Map(lambda one: one.result.observed_types)  # (bits, ...)
        | "FinalTypes" >> beam.CombineGlobally(MergeTypeFlags())
    )
    if redo:
        measured = measured | "Redo" >> beam.Map(
            measure_again, context, final=AsSingleton(final)
        )
    plan = measured | "Plan" >> PlanMeasured(context)  # ShardPlan
    to_write = plan | "ToWrite" >> beam.Map(find_finished, context)  # ShardsToWrite
    sent = (
        measured
        | "Again" >> beam.Map(by_index).with_output_types(tuple[int, RangeResult])
        | "Send"
        >> beam.ParDo(
            SendRange(context, on_flink=is_flink(input_ranges.pipeline)),
            AsSingleton(final),
            AsSingleton(to_write),
        ).with_outputs(_RESULTS, main="pieces")
    )
    shards = sent["pieces"] | "Write" >> WritePieces(to_write)
    return sent[_RESULTS], shards


def measure_one(
    guessed: tuple[InputRange, TypeFlags], context: RunContext
) -> MeasuredRange:
    input_range, guess = guessed
    with report_errors_to_launcher(context.workspace):
        return measure_range(context, input_range, guess)


def measure_again(
    measured: MeasuredRange, context: RunContext, final: TypeFlags
) -> MeasuredRange:
    result = measured.result
    if not context.source.needs_reencode(
        result.observed_types, result.encoded_types, final
    ):
        return measured
    with report_errors_to_launcher(context.workspace):
        return measure_range(context, result.range, final, redo=True)


@dataclass
class PlanMeasured(beam.PTransform[PCollection[MeasuredRange], PCollection[ShardPlan]]):
    """Adds up the histograms of all ranges and cuts every split into shards."""

    context: RunContext

    def expand(self, measured: PCollection[MeasuredRange]) -> PCollection[ShardPlan]:
        results = measured | "Results" >> beam.Map(lambda one: one.result)
        return (
            measured
            | "Histograms" >> beam.Map(lambda one: one.histogram)  # packed
            | beam.CombineGlobally(
                SumHistograms(self.context.num_splits, self.context.bucket_bits)
            )
            | beam.Map(plan_dataset, self.context, results=AsList(results))
        )


def find_finished(plan: ShardPlan, context: RunContext) -> ShardsToWrite:
    with report_errors_to_launcher(context.workspace):
        return ShardsToWrite(context, plan, finished_shards(context, plan))


def by_index(measured: MeasuredRange) -> tuple[int, RangeResult]:
    return measured.result.range.index, measured.result


class SendRange(beam.DoFn):
    """Reads a range again; emits its pieces, and its facts on the side.

    The state is never used. It is there because Flink's batch runner makes one bundle of
    all that a worker gets, takes nothing out of a bundle before its end, and stands
    still for ever at a hundred messages (about 1 GB); of a stateful step it makes a
    bundle for each key. It also spreads the ranges anew, as a Reshuffle would.

    A range that gives more than that all the same (a table of which each row names a
    large file) is an error there.
    """

    BUNDLE_FOR_EACH_RANGE = ReadModifyWriteStateSpec("unused", VarIntCoder())

    def __init__(self, context: RunContext, *, on_flink: bool) -> None:
        self._context = context
        self._most_bytes = FLINK_BUNDLE_BYTES if on_flink else None

    def process(
        self,
        element: tuple[int, RangeResult],
        final: TypeFlags,
        to_write: ShardsToWrite,
        unused: object = beam.DoFn.StateParam(BUNDLE_FOR_EACH_RANGE),
    ) -> Iterator[tuple[int, bytes] | TaggedOutput[str, RangeResult]]:
        context, (_, measured) = self._context, element
        num_bytes = 0
        with report_errors_to_launcher(context.workspace):
            for sent in send_range(
                context, measured, final, to_write.plan, to_write.finished
            ):
                if isinstance(sent, RangeResult):
                    yield TaggedOutput(_RESULTS, sent)
                    return
                num_bytes += len(sent[1])
                if self._most_bytes is not None and num_bytes > self._most_bytes:
                    input_range = measured.range
                    raise InputError(
                        f"{input_range.uri}: the rows from {input_range.start} to {input_range.stop} make "
                        f"records of more than {human_bytes(self._most_bytes)}, which "
                        "Flink's runner does not carry at once: use --exchange scratch"
                    )
                yield sent
