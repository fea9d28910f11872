"""Runs the steps of a job one after the other, without Beam: a tenth of the time.

They are the pipeline's own functions, with a context that was pickled as for a worker,
and ranges and shards come last to first, as a runner gives no order. What Beam itself
does to a job is tested elsewhere, on all runners.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import pytest

from recordmill.beam_jobs.pipelines import group_by_shard
from recordmill.beam_jobs.pipelines.convert import (
    SendRange,
    apply_boundaries,
    compute_histogram,
    convert_ranges,
    decide_types,
    find_finished_shards,
    key_results_by_index,
    pack_sorted_runs,
    plan_dataset,
    publish_dataset,
    redo_ranges,
    scan_packed_ranges,
    write_planned_shard,
)
from recordmill.beam_jobs.runners import embedded
from recordmill.schemas.ranges import (
    InputRange,
    ShardPlan,
    ShardResult,
    TypeFlags,
    pack_value,
)
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.tasks.context import RunContext


@contextmanager
def without_beam() -> Iterator[None]:
    """Runs all jobs inside by `run_steps`."""
    options = embedded.pipeline_options((), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "recordmill.beam_jobs.service.run.load_beam_options", lambda _: options
        )
        patch.setattr(
            "recordmill.beam_jobs.pipelines.convert.convert_dataset", run_steps
        )
        patch.setattr(embedded, "run_pipeline", lambda build, *_, **__: build(None))
        yield


def run_steps(
    _: object,
    context: RunContext,
    ranges: Sequence[InputRange],
    run_metadata: dict[str, object],
) -> None:
    """Runs what `convert_dataset` builds."""
    context = pickle.loads(pickle.dumps(context))
    needs_survey = len(ranges) > 1 and context.source.input_source.needs_boundary_scan(
        ranges
    )
    surveys = [(pack_value(list(ranges)), list[int]())]
    if needs_survey:
        parts = [list(ranges[at : at + 3]) for at in range(0, len(ranges), 3)]
        surveys = [
            scan_packed_ranges(pack_value(part), context) for part in parts[::-1]
        ]
    guessed = list(apply_boundaries(surveys, context))[::-1]
    by = _by_engine if context.exchange == "engine" else _by_files
    results, shards = by(guessed, context)
    list(publish_dataset(None, context, run_metadata, results, shards))


def _planned(
    guessed: list[bytes], context: RunContext
) -> tuple[list[bytes], ShardPlan, TypeFlags]:
    results = [convert_ranges(each, context) for each in guessed]
    final = decide_types(results, context)
    if context.source.infers_types:
        results = [redo_ranges(each, context, final) for each in results]
    parts = chain.from_iterable(compute_histogram(each, context) for each in results)
    histogram = Histogram.sum_of(parts, context.num_splits, context.bucket_bits)
    return results, plan_dataset(histogram, context, results), final


def _by_files(
    guessed: list[bytes], context: RunContext
) -> tuple[list[bytes], list[ShardResult]]:
    results, plan, _ = _planned(guessed, context)
    runs = pack_sorted_runs(plan, results[::-1])
    return results, [
        write_planned_shard(task, context, runs)
        for task in reversed(list(plan.tasks()))
    ]


def _by_engine(
    guessed: list[bytes], context: RunContext
) -> tuple[list[bytes], list[ShardResult]]:
    measured, plan, final = _planned(guessed, context)
    to_write = find_finished_shards(plan, context)
    pieces: defaultdict[int, list[bytes]] = defaultdict(list)
    for each in chain.from_iterable(map(key_results_by_index, measured)):
        send = SendRange(context, on_flink=False).process
        for sent in send(each, final, to_write):
            pieces[sent[0]].append(sent[1])
    written = [
        each
        for group in pieces.items()
        for each in group_by_shard.write_shard_group(group, to_write)
    ]
    return (
        [each for each in written if isinstance(each, bytes)],
        [each for each in written if isinstance(each, ShardResult)],
    )
