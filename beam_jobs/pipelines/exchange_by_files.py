"""Convert, plan, write: rows wait in sorted runs, or travel by reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.beam_jobs.pipelines.combine import (
    MergeTypeFlags,
    SumHistograms,
    plan_dataset,
)
from recordmill.schemas.dataset.shards import ShardPlan, ShardResult, ShardTask
from recordmill.schemas.ranges import InputRange, RangeResult, SortedRunRef, TypeFlags
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.tasks.checkpoints import report_errors_to_launcher
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.sort_range import convert_range, range_histogram
from recordmill.transforms.tasks.write_shard import write_shard


def exchange_by_files(
    input_ranges: PCollection[tuple[InputRange, TypeFlags]],
    context: RunContext,
    *,
    redo: bool,
) -> tuple[PCollection[RangeResult], PCollection[ShardResult]]:
    """The facts of all ranges and of all shards, which lie in staging then.

    Args:
      input_ranges: ranges, with a guess of their types.
      context: the run.
      redo: whether what was encoded for other types must be converted again.
    """
    settled = input_ranges | "Convert" >> ConvertRanges(context)  # RangeResult
    if redo:
        settled = settled | "Redo" >> RedoRanges(context)  # RangeResult
    plan = settled | "Plan" >> PlanShards(context)  # ShardPlan
    return settled, plan | "Write" >> WriteShards(context, settled)


@dataclass
class ConvertRanges(
    beam.PTransform[PCollection[tuple[InputRange, TypeFlags]], PCollection[RangeResult]]
):
    """Reads, encodes and sorts every range into runs in scratch."""

    context: RunContext

    def expand(
        self, input_ranges: PCollection[tuple[InputRange, TypeFlags]]
    ) -> PCollection[RangeResult]:
        return input_ranges | beam.Map(convert_one, self.context)


def convert_one(
    guessed: tuple[InputRange, TypeFlags], context: RunContext
) -> RangeResult:
    input_range, guess = guessed
    with report_errors_to_launcher(context.workspace):
        return convert_range(context, input_range, guess)


@dataclass
class RedoRanges(beam.PTransform[PCollection[RangeResult], PCollection[RangeResult]]):
    """Converts again what was encoded before a column turned out to be wider."""

    context: RunContext

    def expand(self, converted: PCollection[RangeResult]) -> PCollection[RangeResult]:
        final = (
            converted
            | beam.Map(lambda result: result.observed_types)  # (bits, ...)
            | "FinalTypes" >> beam.CombineGlobally(MergeTypeFlags())
        )
        return converted | beam.Map(redo_one, self.context, final=AsSingleton(final))


def redo_one(result: RangeResult, context: RunContext, final: TypeFlags) -> RangeResult:
    if not context.source.needs_reencode(
        result.observed_types, result.encoded_types, final
    ):
        return result
    with report_errors_to_launcher(context.workspace):
        return convert_range(context, result.range, final, redo=True)


@dataclass
class PlanShards(beam.PTransform[PCollection[RangeResult], PCollection[ShardPlan]]):
    """Adds up the histograms of all ranges and cuts every split into shards."""

    context: RunContext

    def expand(self, settled: PCollection[RangeResult]) -> PCollection[ShardPlan]:
        return (
            settled
            | beam.Map(count_range, self.context)  # Histogram
            | beam.CombineGlobally(
                SumHistograms(self.context.num_splits, self.context.bucket_bits)
            )
            | beam.Map(plan_dataset, self.context, results=AsList(settled))
        )


def count_range(result: RangeResult, context: RunContext) -> Histogram:
    with report_errors_to_launcher(context.workspace):
        return range_histogram(context, result)


@dataclass
class WriteShards(beam.PTransform[PCollection[ShardPlan], PCollection[ShardResult]]):
    """Writes every planned shard into staging, each a task of its own."""

    context: RunContext
    settled: PCollection[RangeResult]

    def expand(self, plan: PCollection[ShardPlan]) -> PCollection[ShardResult]:
        return (
            plan
            | beam.FlatMap(lambda plan: plan.tasks())  # ShardTask
            | beam.Reshuffle()
            | beam.Map(write_one, self.context, results=AsList(self.settled))
        )


def write_one(
    task: ShardTask, context: RunContext, results: list[RangeResult]
) -> ShardResult:
    with report_errors_to_launcher(context.workspace):
        return write_shard(context, task, runs_in_order(results))


def runs_in_order(results: Iterable[RangeResult]) -> list[SortedRunRef]:
    """All runs, ordered by range: a side input comes in any order."""
    ordered = sorted(results, key=lambda result: result.range.index)
    return [run for result in ordered for run in result.runs]
