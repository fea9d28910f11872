"""Combines type flags and histograms of all ranges, and plans the shards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import apache_beam as beam

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.ranges import OddRows, RangeResult, TypeFlags, merge_type_flags
from recordmill.schemas.shards import ShardPlan
from recordmill.transforms.commit.build_manifest import (
    check_reject_limit,
    locator_of,
    merge_column_info,
)
from recordmill.transforms.dataset.expected import require_schema
from recordmill.transforms.exchange.plan import Histogram, PackedHistogram, plan_shards
from recordmill.transforms.tasks.checkpoints import report_errors_to_launcher
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.progress_reader import save_plan_totals
from recordmill.transforms.tasks.rejects import rejects_command, run_rejects


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
        if problem := context.source.odd_problem(odd):
            raise SchemaError(problem)
        require_schema(
            context.expected_schema, context.schema(*merge_column_info(results))
        )
        plan = plan_shards(histogram, context.job.sharding, context.split_names)
        save_plan_totals(context.workspace, plan)
        return plan
