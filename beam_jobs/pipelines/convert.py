"""Builds the pipeline of a job, from input ranges to a dataset. Read this first.

    ranges -> boundary scan -> resolve -> convert -> redo -> histogram -> plan
                                  |                   ^                     |
                                  +-> guessed types   +- final types        v
                                                           publish <- write shards

The steps convert and write depend on the exchange. With the exchanges scratch and
reference, records stay in sorted runs or in the input, and only metadata passes through
the runner: ranges, type flags, histograms, shard tasks, results. With the engine's own
shuffle (exchange_by_engine), convert only measures. After the plan, every range is read
again and its records are sent in pieces.

The pipeline omits steps that an input does not need, such as the type steps if its types
are known. A single range is converted in one step: there is nothing to exchange, and ten
rows should not pay for twenty steps of the runner.

Ranges and their results pass through the runner as bytes that the tasks have packed. Beam
encodes, decodes and measures every object of an element at each step, and the launcher
does that for all workers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import chain
from typing import cast

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList, AsSingleton, PCollection
from apache_beam.transforms.combiners import ToListCombineFn
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from recordmill.beam_jobs.pipelines.group_by_shard import (
    NO_SHARD,
    TotalCombineFn,
    emit_finished_shards,
    write_shards_from_pieces,
)
from recordmill.beam_jobs.pipelines.lineage import report_lineage
from recordmill.beam_jobs.runners.embedded import is_flink
from recordmill.schemas.errors import InputError
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.ranges import (
    InputRange,
    RangeResult,
    RowIssue,
    ShardPlan,
    ShardResult,
    ShardTask,
    TypeFlags,
    merge_type_flags,
    pack_list,
    pack_value,
    unpack_value,
)
from recordmill.schemas.text import format_bytes, format_json
from recordmill.transforms.commit.build_manifest import (
    check_run_rejects,
    merge_column_info,
)
from recordmill.transforms.commit.commit import commit
from recordmill.transforms.commit.staging import publish_detached, stage
from recordmill.transforms.exchange.plan import Histogram, PackedHistogram, plan_shards
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.base import InputFindings
from recordmill.transforms.storage.lease import require_holder
from recordmill.transforms.storage.reading import is_local
from recordmill.transforms.tasks.context import RunContext, ShardsToWrite
from recordmill.transforms.tasks.convert_range import (
    PARALLEL_SCANS,
    convert_range,
    measure_range,
    range_histogram,
    scan_boundaries,
    send_range,
)
from recordmill.transforms.tasks.launches import report_errors_to_launcher
from recordmill.transforms.tasks.progress_reader import save_plan_totals, save_stage_end
from recordmill.transforms.tasks.write_shard import finished_shards, write_shard


def convert_dataset(
    pipeline: beam.Pipeline,
    context: RunContext,
    ranges: Sequence[InputRange],
    run_metadata: dict[str, object],
) -> PCollection[Manifest]:
    """Builds all steps of a job; the last one publishes the dataset.

    `run_metadata` is the content of run.json, such as versions and the runner.
    """
    if len(ranges) == 1 and context.exchange != "engine":
        return (
            pipeline
            | beam.Impulse()
            | "ConvertOneRange"
            >> beam.FlatMap(convert_one_range, ranges[0], context, run_metadata)
        )
    input_ranges = emit_input_ranges(pipeline, context, list(ranges))
    # A single range determines the types alone, so no rows have to be encoded again.
    redo = context.source.infers_types and len(ranges) > 1
    results, shards = exchange_rows(input_ranges, context, redo=redo)
    return (
        pipeline
        | beam.Create([None], reshuffle=False)
        | "PublishDataset"
        >> beam.FlatMap(
            publish_dataset,
            context,
            run_metadata,
            results=AsList(results),
            shards=AsList(shards),
        )
    )


def convert_one_range(
    _: bytes,
    input_range: InputRange,
    context: RunContext,
    run_metadata: dict[str, object],
) -> Iterator[Manifest]:
    """Converts a single range into a dataset, with the functions of all steps."""
    result = convert_ranges(pack_value([(input_range, ())]), context)
    histogram = Histogram.sum_of(
        compute_histogram(result, context), context.num_splits, context.bucket_bits
    )
    plan = plan_dataset(histogram, context, [result])
    runs = pack_sorted_runs(plan, [result])
    shards = [write_planned_shard(task, context, runs) for task in plan.tasks()]
    yield from publish_dataset(None, context, run_metadata, [result], shards)


def publish_dataset(
    _: None,
    context: RunContext,
    run_metadata: dict[str, object],
    results: Iterable[bytes],
    shards: list[ShardResult],
) -> Iterator[Manifest]:
    """Checks all results, stages the metadata and commits; safe to repeat."""
    with report_errors_to_launcher(context.workspace):
        save_stage_end(context.workspace, "write")
        roots, store = context.publishing.input_roots, context.workspace.store
        report_lineage(sources=roots, range_findings=store.uri)
        started = float(str(run_metadata.get("started_unix", time.time())))
        metadata = run_metadata | {"seconds": round(time.time() - started, 3)}
        ordered = RangeResult.unpack(results)
        metadata["understood"] = _build_input_report(
            context, run_metadata, ordered, shards
        )
        if not context.publishing.lease_nonce:
            yield publish_detached(context, ordered, shards, format_json(metadata))
            return
        staged = stage(context, ordered, shards, format_json(metadata))
        lease = context.publishing.lease_nonce
        require_holder(store, lease)
        yield commit(context.workspace, staged, lease)


def _build_input_report(
    context: RunContext,
    run_metadata: dict[str, object],
    results: Collection[RangeResult],
    shards: list[ShardResult],
) -> dict[str, object]:
    """Returns the input report for run.json, after all rows were read."""
    report_before_run = cast("dict[str, object]", run_metadata.get("understood", {}))
    report_after_run = context.source.input_report(
        _collect_range_findings(context, results, shards)
    )
    records = Counter[str]()
    for shard in shards:
        records[shard.split] += shard.records
    input_report = InputReport.from_dict(report_before_run).merged_with(
        report_after_run
    )
    input_report = input_report.with_warnings(context.warn_empty(records))
    if any(shard.rejects.rows for shard in shards) or any(
        range_result.rows_rejected
        or range_result.rows_dropped
        or range_result.rows_added
        or range_result.rows_sampled_out
        or range_result.rows_copied
        for range_result in results
    ):
        input_report = input_report.with_input_counts()
    return input_report.to_dict()


def _collect_range_findings(
    context: RunContext,
    results: Collection[RangeResult],
    shards: Sequence[ShardResult] = (),
) -> InputFindings:
    """Returns the findings of all ranges, and of shards that read rows by reference."""
    issues = RowIssue.merge_issues(
        [
            *(range_result.issues for range_result in results),
            *(shard_result.issues for shard_result in shards),
        ]
    )
    rows = sum(
        range_result.rows_read - range_result.rows_rejected for range_result in results
    )
    return context.findings(*merge_column_info(results, shards), issues, rows)


def plan_dataset(
    histogram: Histogram, context: RunContext, packed: Iterable[bytes]
) -> ShardPlan:
    """Plans the shards of the dataset, from the results of all ranges.

    Raises:
      RejectLimitError: too many rows were rejected.
      SchemaError: the schema differs from the expected schema.
    """
    with report_errors_to_launcher(context.workspace):
        save_stage_end(context.workspace, "read")
        results = RangeResult.unpack(packed)
        check_run_rejects(
            context,
            sum(result.rows_read for result in results),
            sum(result.rows_rejected for result in results),
        )
        context.require_acceptable_rows(_collect_range_findings(context, results))
        plan = plan_shards(histogram, context.job.sharding, context.split_names)
        save_plan_totals(context.workspace, plan)
        return plan


def exchange_rows(
    input_ranges: PCollection[bytes], context: RunContext, *, redo: bool
) -> tuple[PCollection[bytes], PCollection[ShardResult]]:
    """Converts all ranges and writes all shards into staging; returns their results.

    Each range comes with guessed types. With `redo`, ranges that were encoded or measured
    with types other than the final ones are read again.
    """
    results = input_ranges | "ConvertRanges" >> beam.Map(
        convert_ranges, context
    )  # lists of RangeResult, packed
    by_engine = context.exchange == "engine"
    if redo or by_engine:
        final_types = AsSingleton(
            results
            | "ListResults"
            >> beam.CombineGlobally(ToListCombineFn()).without_defaults()
            | "SettleTypes" >> beam.Map(decide_types, context)
        )
    if redo:
        results = results | "RedoRanges" >> beam.Map(
            redo_ranges, context, final_types=final_types
        )
    create_histogram = partial(Histogram.empty, context.num_splits, context.bucket_bits)
    plan = (
        results
        | "CountRanges" >> beam.FlatMap(compute_histogram, context)  # PackedHistogram
        | "SumHistograms"
        >> beam.CombineGlobally(TotalCombineFn(create_histogram)).without_defaults()
        | "PlanShards" >> beam.Map(plan_dataset, context, packed=AsList(results))
    )  # ShardPlan
    if by_engine:
        return exchange_by_engine(results, final_types, plan, context)
    runs = plan | "ListRuns" >> beam.Map(pack_sorted_runs, results=AsList(results))
    shards = (
        plan
        | "ListShards" >> beam.FlatMap(lambda plan: plan.tasks())  # ShardTask
        | "SpreadShards" >> beam.Reshuffle()
        | "WriteShards"
        >> beam.Map(write_planned_shard, context, runs=AsSingleton(runs))
    )
    return results, shards


def decide_types(results: list[bytes], context: RunContext) -> TypeFlags:
    range_findings = _collect_range_findings(context, RangeResult.unpack(results))
    return context.source.input_source.final_type_flags(range_findings)


def convert_ranges(packed: bytes, context: RunContext) -> bytes:
    """Converts ranges, or measures them for the engine exchange; returns the results.

    `packed` holds, for each range, the range, the assumed types of its columns, and
    whether it is read again.
    """
    convert = measure_range if context.exchange == "engine" else convert_range
    with report_errors_to_launcher(context.workspace):
        return context.execute_packed(convert, packed)


def redo_ranges(packed: bytes, context: RunContext, final_types: TypeFlags) -> bytes:
    """Converts the ranges again whose assumed types differ from the final types."""
    results = RangeResult.unpack([packed])
    ranges_to_redo = [
        (range_result.range, final_types, True)
        for range_result in results
        if context.source.needs_reencode(
            range_result.observed_types, range_result.encoded_types, final_types
        )
    ]
    if not ranges_to_redo:
        return packed
    redone_results = RangeResult.unpack(
        [convert_ranges(pack_value(ranges_to_redo), context)]
    )
    results_by_index = {
        range_result.range.index: range_result
        for range_result in (*results, *redone_results)
    }
    return RangeResult.pack(list(results_by_index.values()))


def compute_histogram(packed: bytes, context: RunContext) -> Iterator[PackedHistogram]:
    with report_errors_to_launcher(context.workspace):
        yield from context.execute(range_histogram, packed)


def pack_sorted_runs(_: ShardPlan, results: Iterable[bytes]) -> bytes:
    """Returns all sorted runs in range order, as one table for all shard tasks."""
    runs = chain.from_iterable(
        range_result.sorted_runs for range_result in RangeResult.unpack(results)
    )
    return pack_list(runs)


def write_planned_shard(
    task: ShardTask, context: RunContext, runs: bytes
) -> ShardResult:
    with report_errors_to_launcher(context.workspace):
        result: ShardResult = context.execute(write_shard, task, runs)
        return result


# Limit of the pieces of one range: less than 100 messages of 10 MB, the message size of
# Python workers.
FLINK_BUNDLE_BYTES = 900_000_000


def exchange_by_engine(
    measured: PCollection[bytes],
    final_types: AsSingleton,
    plan: PCollection[ShardPlan],
    context: RunContext,
) -> tuple[PCollection[bytes], PCollection[ShardResult]]:
    """Sends the rows of measured ranges through the runner's shuffle, and writes them.

    Only results and finished shards are written to files, so the output is the only
    storage that workers have to share.
    """
    to_write = plan | "FindFinished" >> beam.Map(
        find_finished_shards, context
    )  # ShardsToWrite
    send = SendRange(context, on_flink=is_flink(measured.pipeline))
    sent = (
        measured
        | "KeyByIndex"
        >> beam.FlatMap(key_results_by_index).with_output_types(tuple[int, bytes])
        | "SendRanges" >> beam.ParDo(send, final_types, AsSingleton(to_write))
    )  # (shard number, piece), and (NO_SHARD, result of a range)
    written = write_shards_from_pieces(sent, to_write)
    results = written | "OnlyRanges" >> beam.Filter(isinstance, bytes)
    shards = written | "OnlyShards" >> beam.Filter(isinstance, ShardResult)
    return results, shards


def key_results_by_index(packed: bytes) -> Iterator[tuple[int, bytes]]:
    for result in RangeResult.unpack([packed]):
        yield result.range.index, RangeResult.pack([result])


def find_finished_shards(plan: ShardPlan, context: RunContext) -> ShardsToWrite:
    with report_errors_to_launcher(context.workspace):
        return ShardsToWrite(context, plan, finished_shards(context, plan))


class SendRange(beam.DoFn):
    """A DoFn that reads a range again, and emits its pieces and then its result.

    Its state is never used. It makes Flink's batch runner use one bundle per key.
    Without state, Flink puts all elements of a worker into one bundle, accepts no output
    before the end of the bundle, and hangs at a hundred messages (about 1 GB). Like a
    Reshuffle, the state also redistributes the ranges.

    On Flink, a range whose pieces exceed that size is an error. An example is a table
    in which each row names a large file.
    """

    BUNDLE_FOR_EACH_RANGE = ReadModifyWriteStateSpec("unused", VarIntCoder())

    def __init__(self, context: RunContext, *, on_flink: bool) -> None:
        self._context = context
        self._max_bytes = FLINK_BUNDLE_BYTES if on_flink else None

    def process(
        self,
        element: tuple[int, bytes],
        final_types: TypeFlags,
        to_write: ShardsToWrite,
        unused: object = beam.DoFn.StateParam(BUNDLE_FOR_EACH_RANGE),
    ) -> Iterator[tuple[int, bytes]]:
        context, (measured,) = self._context, RangeResult.unpack([element[1]])
        num_bytes = 0
        if measured.range.index == 0:
            yield from emit_finished_shards(to_write)
        with report_errors_to_launcher(context.workspace):
            for sent in send_range(
                context, measured, final_types, to_write.plan, to_write.finished_shards
            ):
                if isinstance(sent, RangeResult):
                    yield NO_SHARD, RangeResult.pack([sent])
                    return
                num_bytes += len(sent[1])
                if self._max_bytes is not None and num_bytes > self._max_bytes:
                    raise InputError(
                        f"{measured.range.location}: the records are larger than "
                        f"{format_bytes(self._max_bytes)}, the limit per input range "
                        "of exchange engine on Flink. Use `exchange=scratch`"
                    )
                yield sent


NUM_SAMPLES = 16  # ranges that are sampled to guess the types
SAMPLES_AT_ONCE = 8  # in an object store, a sample mostly waits for a response
MIN_ELEMENTS = 16  # minimum number of elements, so that all workers get some
# A runner holds ranges and results several times, with 300 bytes for each element. If
# there are more ranges, several are packed into one element, and so are their results.
# That takes a fifth of the bytes.
MAX_ELEMENTS = 1 << 16


def emit_input_ranges(
    pipeline: beam.Pipeline, context: RunContext, ranges: list[InputRange]
) -> PCollection[bytes]:
    """Emits the input ranges with guessed types, after a boundary scan if needed."""
    if len(ranges) == 1:
        only = pack_value([(ranges[0], ())])
        return pipeline | "Range" >> beam.Create([only], reshuffle=False)
    # Packed, because Beam copies each element and inspects the types of all its objects.
    if context.source.input_source.needs_boundary_scan(ranges):
        at_once = min(PARALLEL_SCANS, len(ranges) // MIN_ELEMENTS)
        together = 1 if is_local(ranges[0].uri) else at_once
        step = max(together, 1 + len(ranges) // MAX_ELEMENTS)
        parts = (ranges[start : start + step] for start in range(0, len(ranges), step))
        boundary_scans = (
            pipeline
            | "Ranges" >> beam.Create([pack_value(part) for part in parts])
            | "ScanBoundaries" >> beam.Map(scan_packed_ranges, context)
            | beam.CombineGlobally(ToListCombineFn()).without_defaults()
        )
    else:
        unread = pack_value(ranges), list[int]()
        boundary_scans = pipeline | "Ranges" >> beam.Create([[unread]], reshuffle=False)
    return (
        boundary_scans
        | "ApplyBoundaries" >> beam.FlatMap(apply_boundaries, context)
        # Lists of (InputRange, guessed TypeFlags), packed.
        | "SpreadRanges" >> beam.Reshuffle()
    )


def scan_packed_ranges(
    packed_ranges: bytes, context: RunContext
) -> tuple[bytes, list[int]]:
    """Returns packed ranges, with the boundaries that a scan of each range found."""
    with report_errors_to_launcher(context.workspace):
        return packed_ranges, context.execute(
            scan_boundaries, unpack_value(packed_ranges)
        )


def apply_boundaries(
    boundary_scans: list[tuple[bytes, list[int]]], context: RunContext
) -> Iterator[bytes]:
    """Yields the ranges with exact boundaries, and with types guessed from samples."""
    with report_errors_to_launcher(context.workspace):
        parts = [
            (unpack_value(packed), boundaries) for packed, boundaries in boundary_scans
        ]
        parts.sort(key=lambda part: [input_range.index for input_range in part[0][:1]])
        resolved = [input_range for ranges, _ in parts for input_range in ranges]
        if all_boundaries := [
            boundary for _, boundaries in parts for boundary in boundaries
        ]:
            resolved = context.source.input_source.apply_boundaries(
                resolved, all_boundaries
            )
        step = max(1, len(resolved) // NUM_SAMPLES)
        samples = map_ahead(
            resolved[::step], context.source.sample_type_flags, SAMPLES_AT_ONCE
        )
        guess: TypeFlags = reduce(merge_type_flags, samples, ())
    step = 1 + len(resolved) // MAX_ELEMENTS
    for start in range(0, len(resolved), step):
        yield pack_value(
            [(input_range, guess) for input_range in resolved[start : start + step]]
        )
