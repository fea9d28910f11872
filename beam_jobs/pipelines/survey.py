"""The first steps of the pipeline: ranges, and a guess of what their columns hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.combiners import ToListCombineFn

from recordmill.schemas.ranges import Bits, InputRange, or_bits
from recordmill.transforms.tasks.checkpoints import load_fact, noting_errors, save_fact
from recordmill.transforms.tasks.context import RunContext

NUM_SAMPLES = 16  # ranges looked at before all are read


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
