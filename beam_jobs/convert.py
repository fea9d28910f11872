"""The pipeline, from input ranges to a published dataset. Read this first.

    ranges -> survey -> settle -> convert -> redo -> histogram -> plan
                          |                    ^                    |
                          +-> guess the types  +- final types       v
                                                   publish <- write shards

Only small facts cross the engine: ranges, type bits, histograms, shard tasks, results.
Payload stays in sorted runs (see transforms.exchange.gather). A step that an input
does not need, because it is small or its types are known, is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PBegin, PCollection
from apache_beam.transforms.combiners import ToListCombineFn

from schemas.manifest import Manifest, json_bytes
from schemas.ranges import Bits, InputRange, RangeResult, RunRef, or_bits
from schemas.shards import ShardPlan, ShardResult, ShardTask
from transforms.dataset.expected import require_schema
from transforms.plan import Histogram, plan_shards
from transforms.run.context import RunContext
from transforms.run.publish import check_reject_limit, column_facts, stage, switch
from transforms.run.range_task import convert_range, histogram_of
from transforms.run.scratch import load_fact, noting_errors, save_fact
from transforms.run.shard_task import write_shard
from transforms.stores.lease import require_holder

NUM_SAMPLES = 16  # ranges looked at before all are read


def convert_dataset(
    pipeline: beam.Pipeline,
    context: RunContext,
    ranges: Sequence[InputRange],
    run_facts: dict[str, object],
) -> PCollection[Manifest]:
    """Builds the whole job; its last step publishes the dataset."""
    spots = pipeline | "Ranges" >> SettleRanges(context, ranges)  # (InputRange, bits)
    settled = spots | "Convert" >> ConvertRanges(context)  # RangeResult
    if context.source.infers_types and len(ranges) > 1:
        settled = settled | "Redo" >> RedoRanges(context)  # RangeResult
    plan = settled | "Plan" >> PlanShards(context)  # ShardPlan
    shards = plan | "Write" >> WriteShards(context, settled)  # ShardResult
    return pipeline | "Publish" >> PublishDataset(context, settled, shards, run_facts)


@dataclass
class SettleRanges(beam.PTransform[PBegin, PCollection[tuple[InputRange, Bits]]]):
    """Emits the input ranges, surveyed where the format needs it, with a guess of what
    their columns hold.
    """

    context: RunContext
    ranges: Sequence[InputRange]

    def expand(self, pbegin: PBegin) -> PCollection[tuple[InputRange, Bits]]:
        context, ranges = self.context, list(self.ranges)
        if len(ranges) == 1:
            return pbegin | beam.Create([(ranges[0], ())], reshuffle=False)
        if context.source.needs_survey(ranges):
            surveys = (
                pbegin
                | beam.Create(ranges)
                | "Survey" >> beam.Map(survey_range, context)  # (index, survey)
                | beam.CombineGlobally(ToListCombineFn())
            )
        else:
            nothing = [(spot.index, 0) for spot in ranges]
            surveys = pbegin | beam.Create([nothing], reshuffle=False)
        return (
            surveys
            | "Settle" >> beam.FlatMap(settle_ranges, context, ranges)
            | "Spread" >> beam.Reshuffle()  # (InputRange, bits)
        )


@dataclass(frozen=True)
class SurveyFact:
    """What the survey of a range found, for a run that goes on from there."""

    range: InputRange
    number: int


def survey_range(spot: InputRange, context: RunContext) -> tuple[int, int]:
    with noting_errors(context.scratch):
        name = f"survey-{spot.index:06d}"
        earlier = load_fact(context.scratch, name, SurveyFact)
        if earlier is not None and earlier.range == spot:
            return spot.index, earlier.number
        number = context.source.survey(spot)
        save_fact(context.scratch, name, SurveyFact(spot, number))
        return spot.index, number


def settle_ranges(
    surveys: list[tuple[int, int]], context: RunContext, ranges: list[InputRange]
) -> Iterator[tuple[InputRange, Bits]]:
    """The ranges as the surveys tell; samples spread over them give the guess."""
    with noting_errors(context.scratch):
        numbers = [number for _, number in sorted(surveys)]
        settled = context.source.settle(ranges, numbers)
        step = max(1, len(settled) // NUM_SAMPLES)
        samples = (context.source.sample(spot) for spot in settled[::step])
        nothing: Bits = ()
        guess = reduce(or_bits, samples, nothing)
    for spot in settled:
        yield spot, guess


@dataclass
class ConvertRanges(
    beam.PTransform[PCollection[tuple[InputRange, Bits]], PCollection[RangeResult]]
):
    """Reads, encodes and sorts every range into runs in scratch."""

    context: RunContext

    def expand(
        self, spots: PCollection[tuple[InputRange, Bits]]
    ) -> PCollection[RangeResult]:
        return spots | beam.Map(convert_one, self.context)


def convert_one(guessed: tuple[InputRange, Bits], context: RunContext) -> RangeResult:
    spot, guess = guessed
    with noting_errors(context.scratch):
        return convert_range(context, spot, guess)


@dataclass
class RedoRanges(beam.PTransform[PCollection[RangeResult], PCollection[RangeResult]]):
    """Converts again what was encoded before a column turned out to be wider."""

    context: RunContext

    def expand(self, converted: PCollection[RangeResult]) -> PCollection[RangeResult]:
        final = (
            converted
            | beam.Map(lambda result: result.observed)  # (bits, ...)
            | "FinalTypes" >> beam.CombineGlobally(OrBits())
        )
        return converted | beam.Map(redo_one, self.context, final=AsSingleton(final))


class OrBits(beam.CombineFn):
    """ORs tuples of bits place by place."""

    def create_accumulator(self) -> Bits:
        return ()

    def add_input(self, accumulator: Bits, element: Bits) -> Bits:
        return or_bits(accumulator, element)

    def merge_accumulators(self, accumulators: Iterable[Bits]) -> Bits:
        return reduce(or_bits, accumulators, self.create_accumulator())

    def extract_output(self, accumulator: Bits) -> Bits:
        return accumulator


def redo_one(result: RangeResult, context: RunContext, final: Bits) -> RangeResult:
    if not context.source.touched(result.observed, result.used, final):
        return result
    with noting_errors(context.scratch):
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
                SumHistograms(self.context.num_splits, self.context.bits)
            )
            | beam.Map(plan_dataset, self.context, results=AsList(settled))
        )


def count_range(result: RangeResult, context: RunContext) -> Histogram:
    with noting_errors(context.scratch):
        return histogram_of(context, result)


@dataclass
class SumHistograms(beam.CombineFn):
    """Adds histograms; within a bundle before they leave the worker."""

    num_splits: int
    bits: int

    def create_accumulator(self) -> Histogram:
        return Histogram.empty(self.num_splits, self.bits)

    def add_input(self, accumulator: Histogram, element: Histogram) -> Histogram:
        accumulator += element
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Histogram]) -> Histogram:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged += accumulator
        return merged

    def extract_output(self, accumulator: Histogram) -> Histogram:
        return accumulator


def plan_dataset(
    histogram: Histogram, context: RunContext, results: list[RangeResult]
) -> ShardPlan:
    """The plan; stops the run here if too many rows were rejected already, or the
    columns did not turn out as expected.
    """
    with noting_errors(context.scratch):
        check_reject_limit(
            context.job.max_rejects,
            sum(result.rows_read for result in results),
            sum(result.rows_rejected for result in results),
            context.scratch.rejects,
        )
        require_schema(context.expected, context.schema(*column_facts(results)))
        return plan_shards(histogram, context.job.sharding, context.split_names)


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
    with noting_errors(context.scratch):
        return write_shard(context, task, runs_in_order(results))


def runs_in_order(results: Iterable[RangeResult]) -> list[RunRef]:
    """All runs, ordered by range: a side input comes in any order."""
    ordered = sorted(results, key=lambda result: result.range.index)
    return [run for result in ordered for run in result.runs]


@dataclass
class PublishDataset(beam.PTransform[PBegin, PCollection[Manifest]]):
    """Checks the facts, stages the metadata, switches; once, safe to repeat."""

    context: RunContext
    settled: PCollection[RangeResult]
    shards: PCollection[ShardResult]
    run_facts: dict[str, object]

    def expand(self, pbegin: PBegin) -> PCollection[Manifest]:
        return (
            pbegin
            | beam.Create([None], reshuffle=False)
            | beam.FlatMap(
                publish_dataset,
                self.context,
                self.run_facts,
                results=AsList(self.settled),
                shards=AsList(self.shards),
            )
        )


def publish_dataset(
    _: None,
    context: RunContext,
    run_facts: dict[str, object],
    results: list[RangeResult],
    shards: list[ShardResult],
) -> Iterator[Manifest]:
    with noting_errors(context.scratch):
        started = float(str(run_facts.get("started_unix", time.time())))
        facts = run_facts | {"seconds": round(time.time() - started, 3)}
        ordered = sorted(results, key=lambda result: result.range.index)
        stage(context, ordered, shards, json_bytes(facts))
        if context.lease:
            require_holder(context.scratch.store, context.lease)
        yield switch(context.scratch)
