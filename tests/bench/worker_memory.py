"""Peak memory of a worker with ranges of some size: what docs/scale.md tells of it.

    python tests/bench/worker_memory.py scratch|engine RANGE_MIB INPUT.csv

One process takes the first two whole ranges of a CSV through the exchange, up to their
runs or pieces, with the largest histogram there is. Nothing is published; the work folder
is a temporary one. Exit status 1 if the input has no two such ranges.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from tempfile import TemporaryDirectory

import recordmill.beam_jobs.pipelines.convert  # noqa: F401 - a worker has imported it, too
from recordmill.beam_jobs.service.prepare import prepare_run
from recordmill.beam_jobs.service.resolve import resolve_run
from recordmill.schemas.job import JobSpec, RunOptions, Sharding
from recordmill.schemas.ranges import (
    InputRange,
    RangeResult,
    TypeFlags,
    merge_type_flags,
)
from recordmill.transforms.exchange.plan import Histogram, plan_shards
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import (
    convert_range,
    measure_range,
    range_histogram,
    send_range,
)

SHARDS = 1024  # the fewest with the largest histogram
MIB = 1 << 20


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def exchange_by_files(context: RunContext, input_ranges: Sequence[InputRange]) -> None:
    results = (convert_range(context, each, ()) for each in input_ranges)
    parts = chain.from_iterable(
        range_histogram(context, RangeResult.pack([each])) for each in results
    )
    Histogram.sum_of(parts, context.num_splits, context.bucket_bits)


def exchange_by_engine(context: RunContext, input_ranges: Sequence[InputRange]) -> None:
    final: TypeFlags = ()
    measured = [measure_range(context, input_range, ()) for input_range in input_ranges]
    parts = chain.from_iterable(
        range_histogram(context, RangeResult.pack([each])) for each in measured
    )
    total = Histogram.sum_of(parts, context.num_splits, context.bucket_bits)
    final = reduce(merge_type_flags, (one.observed_types for one in measured), final)
    plan = plan_shards(total, context.job.sharding, context.split_names)
    for one in measured:
        for _ in send_range(context, one, final, plan, frozenset()):
            pass  # a runner takes each piece as it comes


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exchange", choices=["scratch", "engine"])
    parser.add_argument("range_mib", type=int)
    parser.add_argument("input")
    given = parser.parse_args(argv)
    job = JobSpec(source="csv", name="x", sharding=Sharding(num_shards=SHARDS))
    with TemporaryDirectory(prefix="worker-memory-") as output:
        options = RunOptions(
            inputs=(given.input,), output=output, exchange=given.exchange
        )
        prepared = prepare_run(resolve_run(job, options))
        context = prepared.context
        source = context.source
        assert isinstance(source, CsvSource)
        range_bytes = given.range_mib * MIB
        context = replace(context, source=replace(source, range_bytes=range_bytes))
        first = context.source.cut(prepared.inputs.files)[:3]
        surveys = [context.source.scan_boundaries(input_range) for input_range in first]
        input_ranges = [
            input_range
            for input_range in context.source.apply_boundaries(first, surveys)[:2]
            if input_range.num_positions == range_bytes
        ]
        if len(input_ranges) < 2:
            print("the input has no two whole ranges of that size", file=sys.stderr)
            return 1
        context.workspace.create(context.exchange)
        before = peak_mib()
        run = exchange_by_files if given.exchange == "scratch" else exchange_by_engine
        run(context, input_ranges)
        print(f"imported {before:.0f} MiB, peak {peak_mib():.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
