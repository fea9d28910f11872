"""The pipeline, from input ranges to a published dataset. Read this first.

    ranges -> survey -> settle -> convert -> redo -> histogram -> plan
                          |                    ^                    |
                          +-> guess the types  +- final types       v
                                                   publish <- write shards

Convert, plan and write hang on the exchange. With scratch and by reference payload stays
in sorted runs (exchange_by_files), and only small facts cross the engine: ranges, type
bits, histograms, shard tasks, results. With the engine's own shuffle (exchange_by_engine)
convert only measures, and after the plan every range is read again and sent in pieces.
A step that an input does not need, because it is small or its types are known, is left
out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsList, PBegin, PCollection

from recordmill.beam_jobs.pipelines.exchange_by_engine import exchange_by_engine
from recordmill.beam_jobs.pipelines.exchange_by_files import exchange_by_files
from recordmill.beam_jobs.pipelines.survey import ResolveRanges
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.shards import ShardResult
from recordmill.schemas.ranges import InputRange, RangeResult
from recordmill.schemas.text import json_bytes
from recordmill.transforms.commit.commit import commit
from recordmill.transforms.commit.detached import publish_detached
from recordmill.transforms.commit.staging import stage
from recordmill.transforms.storage.lease import require_holder
from recordmill.transforms.tasks.checkpoints import report_errors_to_launcher
from recordmill.transforms.tasks.context import RunContext


def convert_dataset(
    pipeline: beam.Pipeline,
    context: RunContext,
    ranges: Sequence[InputRange],
    run_metadata: dict[str, object],
) -> PCollection[Manifest]:
    """Builds the whole job; its last step publishes the dataset."""
    input_ranges = pipeline | "Ranges" >> ResolveRanges(
        context, ranges
    )  # (InputRange, bits)
    # One range tells its types alone, so nothing it encodes has to be redone.
    redo = context.source.infers_types and len(ranges) > 1
    if context.exchange == "engine":
        settled, shards = exchange_by_engine(input_ranges, context, redo=redo)
    else:
        settled, shards = exchange_by_files(input_ranges, context, redo=redo)
    return pipeline | "Publish" >> PublishDataset(
        context, settled, shards, run_metadata
    )


@dataclass
class PublishDataset(beam.PTransform[PBegin, PCollection[Manifest]]):
    """Checks the facts, stages the metadata, switches; once, safe to repeat."""

    context: RunContext
    settled: PCollection[RangeResult]
    shards: PCollection[ShardResult]
    run_metadata: dict[str, object]

    def expand(self, pbegin: PBegin) -> PCollection[Manifest]:
        return (
            pbegin
            | beam.Create([None], reshuffle=False)
            | beam.FlatMap(
                publish_dataset,
                self.context,
                self.run_metadata,
                results=AsList(self.settled),
                shards=AsList(self.shards),
            )
        )


def publish_dataset(
    _: None,
    context: RunContext,
    run_metadata: dict[str, object],
    results: list[RangeResult],
    shards: list[ShardResult],
) -> Iterator[Manifest]:
    with report_errors_to_launcher(context.workspace):
        started = float(str(run_metadata.get("started_unix", time.time())))
        facts = run_metadata | {"seconds": round(time.time() - started, 3)}
        ordered = sorted(results, key=lambda result: result.range.index)
        if not context.lease:
            yield publish_detached(context, ordered, shards, json_bytes(facts))
            return
        stage(context, ordered, shards, json_bytes(facts))
        require_holder(context.workspace.store, context.lease)
        yield commit(context.workspace)
