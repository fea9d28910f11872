"""Resolves the input ranges, and guesses the types of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.combiners import ToListCombineFn

from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.transforms.tasks.checkpoints import (
    load_checkpoint,
    report_errors_to_launcher,
    save_checkpoint,
)
from recordmill.transforms.tasks.context import RunContext

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
        if context.source.needs_survey(ranges):
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
        number = context.source.survey(input_range)
        save_checkpoint(context.workspace, name, SurveyResult(input_range, number))
        return input_range.index, number


def resolve_ranges(
    surveys: list[tuple[int, int]], context: RunContext, ranges: list[InputRange]
) -> Iterator[tuple[InputRange, TypeFlags]]:
    """Yields the ranges, resolved by their surveys, with types guessed from samples."""
    with report_errors_to_launcher(context.workspace):
        numbers = [number for _, number in sorted(surveys)]
        resolved = context.source.resolve_ranges(ranges, numbers)
        step = max(1, len(resolved) // NUM_SAMPLES)
        samples = (
            context.source.sample(input_range) for input_range in resolved[::step]
        )
        no_types: TypeFlags = ()
        guess = reduce(merge_type_flags, samples, no_types)
    for input_range in resolved:
        yield input_range, guess
