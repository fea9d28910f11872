"""Finds where the splits of a run end, if they are exact, before the run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from recordmill.beam_jobs.service.give_roles import require_class_column, too_many
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.job import JobSpec, parse_fraction
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import count
from recordmill.transforms.exchange.exact_splits import (
    WIDTH,
    SplitLimits,
    expected_ends,
    find_limits,
)
from recordmill.transforms.sources.base import RowSource
from recordmill.transforms.sources.label_split import (
    MISSING_KEY,
    has_decimal_commas,
    keys_of,
)
from recordmill.transforms.statistics.input_statistics import count_rows

_WIDER = 8  # times, if a limit was not within the window that was looked at


def is_exact(job: JobSpec) -> bool:
    """Tells whether a job's splits are exact, of all rows or of each class."""
    return job.split_exact or job.stratify_by is not None


def find_exact_limits(
    job: JobSpec, source: RowSource, ranges: Sequence[InputRange], workers: int
) -> SplitLimits:
    """Counts the rows of each class, and finds where their splits end.

    Args:
      job: with exact splits.
      source: prepared, its columns with their roles.
      ranges: those that the job's splits divide.
      workers: threads.

    Raises:
      UsageError: there is no such column.
      InputError: it has too many values, or the input cannot be read.
    """
    column = job.stratify_by
    comma = False
    if column is not None:
        require_class_column("stratify_by", column, source.columns())
        comma = has_decimal_commas(job, source, column)
    fractions = [parse_fraction(split.fraction) for split in job.splits]
    width = WIDTH
    while True:
        found = count_rows(
            source,
            ranges,
            column,
            too_many("stratify_by", str(column)),
            workers=workers,
            ends=expected_ends(fractions),
            seed=job.seed,
            width=width,
            values_of=partial(keys_of, decimal_comma=comma),
        )
        sketches = {key or MISSING_KEY: sketch for key, sketch in found.items()}
        limits = find_limits(sketches, fractions)
        if limits is not None:
            return limits
        width *= _WIDER


def told_of(job: JobSpec, limits: SplitLimits) -> Understood:
    """Returns what is told of exact splits before the run."""
    names = [split.name for split in job.splits]
    told = ", ".join(
        f"{name} {rows:,}" for name, rows in zip(names, limits.records, strict=True)
    )
    by = ""
    if job.stratify_by is not None:
        by = f", of each of {count(len(limits.classes), 'class')} by {job.stratify_by}"
    return Understood(facts=(("exact splits", f"{told} rows{by}"),))
