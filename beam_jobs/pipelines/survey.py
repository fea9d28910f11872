"""The first steps of the pipeline: ranges, and a guess of what their columns hold."""

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

NUM_SAMPLES = 16  # ranges looked at before all are read


@dataclass
class ResolveRanges(beam.PTransform[PBegin, PCollection[tuple[InputRange, TypeFlags]]]):
    """Emits the input ranges, surveyed where the format needs it, with a guess of what
    their columns hold.
    """

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
                | "Survey" >> beam.Map(survey_range, context)  # (index, survey)
                | beam.CombineGlobally(ToListCombineFn())
            )
        else:
            nothing = [(input_range.index, 0) for input_range in ranges]
            surveys = pbegin | beam.Create([nothing], reshuffle=False)
        return (
            surveys
            | "Settle" >> beam.FlatMap(settle_ranges, context, ranges)
            | "Spread" >> beam.Reshuffle()  # (InputRange, bits)
        )


@dataclass(frozen=True)
class SurveyResult:
    """What the survey of a range found, for a run that goes on from there."""

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


def settle_ranges(
    surveys: list[tuple[int, int]], context: RunContext, ranges: list[InputRange]
) -> Iterator[tuple[InputRange, TypeFlags]]:
    """The ranges as the surveys tell; samples spread over them give the guess."""
    with report_errors_to_launcher(context.workspace):
        numbers = [number for _, number in sorted(surveys)]
        settled = context.source.resolve_ranges(ranges, numbers)
        step = max(1, len(settled) // NUM_SAMPLES)
        samples = (
            context.source.sample(input_range) for input_range in settled[::step]
        )
        nothing: TypeFlags = ()
        guess = reduce(merge_type_flags, samples, nothing)
    for input_range in settled:
        yield input_range, guess
