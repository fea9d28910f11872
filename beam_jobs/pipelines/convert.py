"""Builds the pipeline of a job, from input ranges to a dataset. Read this first.

    ranges -> survey -> resolve -> convert -> redo -> histogram -> plan
                           |                   ^                     |
                           +-> guessed types   +- final types        v
                                                    publish <- write shards

Convert, plan and write depend on the exchange. With scratch and by reference, records
stay in sorted runs, and only metadata passes through the runner:
ranges, type flags, histograms, shard tasks, results. With the engine's own shuffle
(exchange_by_engine) convert only measures; after the plan every range is read again and
its records are sent in pieces. Steps that an input does not need, because its types are
known, are left out. If there is only one range, all of it is one step: there is nothing
to exchange, and ten rows should not pay for twenty steps of the runner.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import cast

import apache_beam as beam
from apache_beam.pvalue import AsList, PCollection

from recordmill.beam_jobs.pipelines.exchange import (
    convert_one,
    count_range,
    exchange,
    input_ranges_of,
    list_runs,
    plan_dataset,
    write_one,
)
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.ranges import InputRange, RangeResult, RowIssue
from recordmill.schemas.shards import ShardResult
from recordmill.schemas.text import json_bytes
from recordmill.transforms.commit.build_manifest import (
    merge_column_info,
)
from recordmill.transforms.commit.commit import commit
from recordmill.transforms.commit.detached import publish_detached
from recordmill.transforms.commit.staging import stage
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.sources.base import Findings
from recordmill.transforms.storage.lease import require_holder
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.launches import report_errors_to_launcher


def convert_dataset(
    pipeline: beam.Pipeline,
    context: RunContext,
    ranges: Sequence[InputRange],
    run_metadata: dict[str, object],
) -> PCollection[Manifest]:
    """Builds all steps of a job; the last one publishes the dataset.

    `run_metadata` is what run.json says, such as versions and the runner.
    """
    if len(ranges) == 1 and context.exchange != "engine":
        return (
            pipeline
            | beam.Impulse()
            | "ConvertOneRange"
            >> beam.FlatMap(convert_one_range, ranges[0], context, run_metadata)
        )
    input_ranges = input_ranges_of(pipeline, context, list(ranges))
    # A single range determines its types itself, so nothing has to be encoded again.
    redo = context.source.infers_types and len(ranges) > 1
    results, shards = exchange(input_ranges, context, redo=redo)
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
    """Makes a dataset of one range, by the functions of the separate steps."""
    result = convert_one((input_range, ()), context)
    histogram = Histogram.sum_of(
        count_range(result, context), context.num_splits, context.bucket_bits
    )
    plan = plan_dataset(histogram, context, [result])
    runs = list_runs(plan, [result])
    shards = [write_one(task, context, runs) for task in plan.tasks()]
    yield from publish_dataset(None, context, run_metadata, [result], shards)


def publish_dataset(
    _: None,
    context: RunContext,
    run_metadata: dict[str, object],
    results: list[RangeResult],
    shards: list[ShardResult],
) -> Iterator[Manifest]:
    """Checks all results, stages the metadata and commits; once, and safe to repeat."""
    with report_errors_to_launcher(context.workspace):
        started = float(str(run_metadata.get("started_unix", time.time())))
        metadata = run_metadata | {"seconds": round(time.time() - started, 3)}
        ordered = sorted(results, key=lambda result: result.range.index)
        metadata["understood"] = _understood(context, run_metadata, ordered, shards)
        if not context.publishing.lease:
            yield publish_detached(context, ordered, shards, json_bytes(metadata))
            return
        staged = stage(context, ordered, shards, json_bytes(metadata))
        require_holder(context.workspace.store, context.publishing.lease)
        yield commit(context.workspace, staged)


def _understood(
    context: RunContext,
    run_metadata: dict[str, object],
    results: list[RangeResult],
    shards: list[ShardResult],
) -> dict[str, object]:
    """Returns what run.json says of the input, now that all rows were read."""
    before = cast("dict[str, object]", run_metadata.get("understood", {}))
    issues = RowIssue.merged(
        [*(result.issues for result in results), *(shard.issues for shard in shards)]
    )
    observed, nulls = merge_column_info(results, shards)
    schema = context.schema(observed, nulls)
    later = context.source.understood(Findings(schema, issues, observed))
    told = InputSummary.from_dict(before).updated(later)
    if any(shard.rejects.rows for shard in shards) or any(
        each.rows_rejected or each.rows_dropped or each.rows_added for each in results
    ):
        told = told.of_input()
    return told.to_dict()
