"""Converts, plans and writes: records wait in sorted runs, or are read by reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.beam_jobs.pipelines.combine import (
    MergeTypeFlags,
    SumHistograms,
    plan_dataset,
)
from recordmill.schemas.ranges import InputRange, RangeResult, SortedRunRef, TypeFlags
from recordmill.schemas.shards import ShardPlan, ShardResult, ShardTask
from recordmill.transforms.exchange.plan import PackedHistogram
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
    """Converts all ranges and writes all shards into staging.

    Args:
      input_ranges: ranges, each with a guess of its types.
      context: the run.
      redo: whether ranges that were encoded with other types are converted again.

    Returns:
      The results of all ranges and of all shards.
    """
    range_results = input_ranges | "ConvertRanges" >> ConvertRanges(
        context
    )  # RangeResult
    if redo:
        range_results = range_results | "RedoRanges" >> RedoRanges(
            context
        )  # RangeResult
    plan = range_results | "PlanShards" >> PlanShards(context)  # ShardPlan
    return range_results, plan | "WriteShards" >> WriteShards(context, range_results)


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
    """Converts ranges again whose columns turned out to need wider types."""

    context: RunContext

    def expand(self, converted: PCollection[RangeResult]) -> PCollection[RangeResult]:
        final_types = (
            converted
            | "GetTypes" >> beam.Map(lambda result: result.observed_types)  # TypeFlags
            | "MergeTypes" >> beam.CombineGlobally(MergeTypeFlags()).without_defaults()
        )
        return converted | beam.Map(
            redo_one, self.context, final_types=AsSingleton(final_types)
        )


def redo_one(
    result: RangeResult, context: RunContext, final_types: TypeFlags
) -> RangeResult:
    if not context.source.needs_reencode(
        result.observed_types, result.encoded_types, final_types
    ):
        return result
    with report_errors_to_launcher(context.workspace):
        return convert_range(context, result.range, final_types, redo=True)


@dataclass
class PlanShards(beam.PTransform[PCollection[RangeResult], PCollection[ShardPlan]]):
    """Adds the histograms of all ranges and cuts every split into shards."""

    context: RunContext

    def expand(self, range_results: PCollection[RangeResult]) -> PCollection[ShardPlan]:
        return (
            range_results
            | beam.FlatMap(count_range, self.context)  # PackedHistogram
            | beam.CombineGlobally(
                SumHistograms(self.context.num_splits, self.context.bucket_bits)
            ).without_defaults()
            | beam.Map(plan_dataset, self.context, results=AsList(range_results))
        )


def count_range(result: RangeResult, context: RunContext) -> Iterator[PackedHistogram]:
    with report_errors_to_launcher(context.workspace):
        yield from range_histogram(context, result)


@dataclass
class WriteShards(beam.PTransform[PCollection[ShardPlan], PCollection[ShardResult]]):
    """Writes every planned shard into staging, each a task of its own."""

    context: RunContext
    range_results: PCollection[RangeResult]

    def expand(self, plan: PCollection[ShardPlan]) -> PCollection[ShardResult]:
        return (
            plan
            | beam.FlatMap(lambda plan: plan.tasks())  # ShardTask
            | beam.Reshuffle()
            | beam.Map(write_one, self.context, results=AsList(self.range_results))
        )


def write_one(
    task: ShardTask, context: RunContext, results: list[RangeResult]
) -> ShardResult:
    with report_errors_to_launcher(context.workspace):
        return write_shard(context, task, runs_in_order(results))


def runs_in_order(results: Iterable[RangeResult]) -> list[SortedRunRef]:
    """Orders all sorted runs by range; a side input has no order."""
    ordered = sorted(results, key=lambda result: result.range.index)
    return [run for result in ordered for run in result.runs]
