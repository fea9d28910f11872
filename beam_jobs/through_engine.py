"""Convert, plan, write: rows go to their shards through the engine's own shuffle.

    measure -> redo -> plan -> send again, in pieces -> GroupByKey -> write

Nothing but results and finished shards is written, so workers need to share no more
than the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from beam_jobs.planning import OrBits, SumHistograms, plan_dataset
from schemas.ranges import Bits, InputRange, RangeResult
from schemas.shards import ShardPlan, ShardResult
from transforms.run.context import RunContext
from transforms.run.engine_task import Measured, measure_range, send_range
from transforms.run.facts import noting_errors
from transforms.run.shard_task import finished_shards, write_inline

_RESULTS = "results"


def convert_through_engine(
    spots: PCollection[tuple[InputRange, Bits]], context: RunContext, *, redo: bool
) -> tuple[PCollection[RangeResult], PCollection[ShardResult]]:
    """The facts of all ranges and of all shards, which lie in staging then.

    Args:
      spots: ranges, with a guess of their types.
      context: the run.
      redo: whether what was measured for other types must be measured again.
    """
    measured = spots | "Measure" >> beam.Map(measure_one, context)  # Measured
    final = (
        measured
        | "Observed" >> beam.Map(lambda one: one.result.observed)  # (bits, ...)
        | "FinalTypes" >> beam.CombineGlobally(OrBits())
    )
    if redo:
        measured = measured | "Redo" >> beam.Map(
            measure_again, context, final=AsSingleton(final)
        )
    plan = measured | "Plan" >> PlanMeasured(context)  # ShardPlan
    finished = plan | "Finished" >> beam.Map(find_finished, context)  # {number, ...}
    sent = (
        measured
        | "Again" >> beam.Map(by_index).with_output_types(tuple[int, InputRange])
        | "Send"
        >> beam.ParDo(
            SendRange(context),
            AsSingleton(final),
            AsSingleton(plan),
            AsSingleton(finished),
        ).with_outputs(_RESULTS, main="pieces")
    )
    shards = sent["pieces"] | "Write" >> WritePieces(context, plan, finished)
    return sent[_RESULTS], shards


def measure_one(guessed: tuple[InputRange, Bits], context: RunContext) -> Measured:
    spot, guess = guessed
    with noting_errors(context.scratch):
        return measure_range(context, spot, guess)


def measure_again(measured: Measured, context: RunContext, final: Bits) -> Measured:
    result = measured.result
    if not context.source.touched(result.observed, result.used, final):
        return measured
    with noting_errors(context.scratch):
        return measure_range(context, result.range, final, redo=True)


@dataclass
class PlanMeasured(beam.PTransform[PCollection[Measured], PCollection[ShardPlan]]):
    """Adds up the histograms of all ranges and cuts every split into shards."""

    context: RunContext

    def expand(self, measured: PCollection[Measured]) -> PCollection[ShardPlan]:
        results = measured | "Results" >> beam.Map(lambda one: one.result)
        return (
            measured
            | "Histograms" >> beam.Map(lambda one: one.histogram)  # packed
            | beam.CombineGlobally(
                SumHistograms(self.context.num_splits, self.context.bits)
            )
            | beam.Map(plan_dataset, self.context, results=AsList(results))
        )


def find_finished(plan: ShardPlan, context: RunContext) -> frozenset[int]:
    """The numbers of the shards that an earlier try has written."""
    with noting_errors(context.scratch):
        return finished_shards(context, plan)


def by_index(measured: Measured) -> tuple[int, InputRange]:
    return measured.result.range.index, measured.result.range


class SendRange(beam.DoFn):
    """Reads a range again; emits its pieces, and its facts on the side.

    The state is never used. It is there because Flink's batch runner makes one bundle of
    all that a worker gets, takes nothing out of a bundle before its end, and stands
    still for ever at a hundred messages (about 1 GB); of a stateful step it makes a
    bundle for each key. It also spreads the ranges anew, as a Reshuffle would.
    """

    BUNDLE_FOR_EACH_RANGE = ReadModifyWriteStateSpec("unused", VarIntCoder())

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def process(
        self,
        element: tuple[int, InputRange],
        final: Bits,
        plan: ShardPlan,
        finished: frozenset[int],
        unused: object = beam.DoFn.StateParam(BUNDLE_FOR_EACH_RANGE),
    ) -> Iterator[tuple[int, bytes] | TaggedOutput[str, RangeResult]]:
        context, (_, spot) = self._context, element
        with noting_errors(context.scratch):
            for sent in send_range(context, spot, final, plan, finished):
                if isinstance(sent, RangeResult):
                    yield TaggedOutput(_RESULTS, sent)
                else:
                    yield sent


@dataclass
class WritePieces(
    beam.PTransform[PCollection[tuple[int, bytes]], PCollection[ShardResult]]
):
    """Groups the pieces by shard and writes every planned shard into staging."""

    context: RunContext
    plan: PCollection[ShardPlan]
    finished: PCollection[frozenset[int]]

    def expand(
        self, pieces: PCollection[tuple[int, bytes]]
    ) -> PCollection[ShardResult]:
        # A shard to which no row came, as all were rejected, must be written too.
        numbers = self.plan | "Numbers" >> beam.FlatMap(
            lambda plan: ((number, b"") for number in range(plan.num_shards))
        )
        keyed = [
            part
            | f"Typed{place}"
            >> beam.Map(lambda pair: pair).with_output_types(tuple[int, bytes])
            for place, part in enumerate((pieces, numbers))
        ]
        return (
            keyed
            | beam.Flatten()
            | beam.GroupByKey()
            | beam.Map(
                write_one,
                self.context,
                plan=AsSingleton(self.plan),
                finished=AsSingleton(self.finished),
            )
        )


def write_one(
    grouped: tuple[int, Iterable[bytes]],
    context: RunContext,
    plan: ShardPlan,
    finished: frozenset[int],
) -> ShardResult:
    number, pieces = grouped
    task = plan.task(number)
    with noting_errors(context.scratch):
        return write_inline(
            context, task, filter(None, pieces), must_be_there=number in finished
        )
