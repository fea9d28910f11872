"""Resolves, converts, plans and writes: records wait in files or pass through the runner.

exchange_by_files: convert -> redo -> plan -> write. Records wait in sorted runs, or are
read by reference.
exchange_by_engine: measure -> redo -> plan -> send in pieces -> group by shard -> write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList, AsSingleton, PBegin, PCollection, TaggedOutput
from apache_beam.transforms.combiners import ToListCombineFn
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from recordmill.beam_jobs.pipelines.group_by_shard import WritePieces
from recordmill.beam_jobs.runners.portable import is_flink
from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.ranges import (
    InputRange,
    OddRows,
    RangeResult,
    SortedRunRef,
    TypeFlags,
    merge_type_flags,
)
from recordmill.schemas.shards import ShardPlan, ShardResult, ShardTask
from recordmill.schemas.text import human_bytes
from recordmill.transforms.commit.build_manifest import (
    check_reject_limit,
    locator_of,
    merge_column_info,
)
from recordmill.transforms.dataset.expected import require_schema
from recordmill.transforms.exchange.plan import Histogram, PackedHistogram, plan_shards
from recordmill.transforms.tasks.checkpoints import (
    load_checkpoint,
    report_errors_to_launcher,
    save_checkpoint,
)
from recordmill.transforms.tasks.context import RunContext, ShardsToWrite
from recordmill.transforms.tasks.convert_range import (
    MeasuredRange,
    convert_range,
    measure_range,
    range_histogram,
    send_range,
)
from recordmill.transforms.tasks.progress_reader import save_plan_totals
from recordmill.transforms.tasks.rejects import rejects_command, run_rejects
from recordmill.transforms.tasks.write_shard import finished_shards, write_shard


class MergeTypeFlags(beam.CombineFn):
    """A CombineFn that merges type flags: (1, 2) and (4, 2) give (5, 2)."""

    def create_accumulator(self) -> TypeFlags:
        return ()

    def add_input(self, accumulator: TypeFlags, element: TypeFlags) -> TypeFlags:
        return merge_type_flags(accumulator, element)

    def merge_accumulators(self, accumulators: Iterable[TypeFlags]) -> TypeFlags:
        return reduce(merge_type_flags, accumulators, self.create_accumulator())

    def extract_output(self, accumulator: TypeFlags) -> TypeFlags:
        return accumulator


@dataclass
class SumHistograms(beam.CombineFn):
    """A CombineFn that adds histograms, first those of a bundle in its worker."""

    num_splits: int
    bucket_bits: int

    def create_accumulator(self) -> Histogram:
        return Histogram.empty(self.num_splits, self.bucket_bits)

    def add_input(self, accumulator: Histogram, element: PackedHistogram) -> Histogram:
        accumulator.add_bytes(element)
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
    """Plans the shards of the dataset, from the results of all ranges.

    Raises:
      RejectLimitError: too many rows were rejected.
      SchemaError: the schema differs from the one that is expected.
    """
    with report_errors_to_launcher(context.workspace):
        check_reject_limit(
            context.job.max_rejects,
            sum(result.rows_read for result in results),
            sum(result.rows_rejected for result in results),
            rejects_command(context.workspace),
            run_rejects(context.workspace),
            locator_of(context),
        )
        odd = OddRows.merged(result.odd for result in results)
        if problem := context.source.input.odd_problem(odd):
            raise SchemaError(problem)
        require_schema(
            context.expected_schema, context.schema(*merge_column_info(results))
        )
        plan = plan_shards(histogram, context.job.sharding, context.split_names)
        save_plan_totals(context.workspace, plan)
        return plan


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


#     measure -> redo -> plan -> send in pieces -> group by shard -> write
#
# Only results and finished shards are written to files, so workers need to share nothing
# but the output.

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


NUM_SAMPLES = 16  # ranges that are sampled to guess the types


@dataclass
class ResolveRanges(beam.PTransform[PBegin, PCollection[tuple[InputRange, TypeFlags]]]):
    """Emits the input ranges, surveyed if the format needs it, with guessed types."""

    context: RunContext
    ranges: Sequence[InputRange]

    def expand(self, pbegin: PBegin) -> PCollection[tuple[InputRange, TypeFlags]]:
        context, ranges = self.context, list(self.ranges)
        if len(ranges) == 1:
            return pbegin | beam.Create([(ranges[0], ())], reshuffle=False)
        if context.source.input.needs_survey(ranges):
            surveys = (
                pbegin
                | beam.Create(ranges)
                | "SurveyRanges"
                >> beam.Map(survey_range, context)  # (range index, survey)
                | beam.CombineGlobally(ToListCombineFn()).without_defaults()
            )
        else:
            no_surveys = [(input_range.index, 0) for input_range in ranges]
            surveys = pbegin | beam.Create([no_surveys], reshuffle=False)
        return (
            surveys
            | "ResolveRanges" >> beam.FlatMap(resolve_ranges, context, ranges)
            | "SpreadRanges" >> beam.Reshuffle()  # (InputRange, guessed TypeFlags)
        )


@dataclass(frozen=True)
class SurveyResult:
    """The survey of one range, as its checkpoint."""

    range: InputRange
    found: int


def survey_range(input_range: InputRange, context: RunContext) -> tuple[int, int]:
    with report_errors_to_launcher(context.workspace):
        name = f"survey-{input_range.index:06d}"
        earlier = load_checkpoint(context.workspace, name, SurveyResult)
        if earlier is not None and earlier.range == input_range:
            return input_range.index, earlier.found
        number = context.source.input.survey(input_range)
        save_checkpoint(context.workspace, name, SurveyResult(input_range, number))
        return input_range.index, number


def resolve_ranges(
    surveys: list[tuple[int, int]], context: RunContext, ranges: list[InputRange]
) -> Iterator[tuple[InputRange, TypeFlags]]:
    """Yields the ranges, resolved by their surveys, with types guessed from samples."""
    with report_errors_to_launcher(context.workspace):
        numbers = [number for _, number in sorted(surveys)]
        resolved = context.source.input.resolve_ranges(ranges, numbers)
        step = max(1, len(resolved) // NUM_SAMPLES)
        samples = (
            context.source.sample(input_range) for input_range in resolved[::step]
        )
        no_types: TypeFlags = ()
        guess = reduce(merge_type_flags, samples, no_types)
    for input_range in resolved:
        yield input_range, guess
