"""Finds where the splits of a run end, if they are exact, before the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recordmill.beam_jobs.service.give_roles import require_class_column, too_many
from recordmill.schemas.job.job_spec import JobSpec, parse_fraction
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import count
from recordmill.schemas.understood import Understood
from recordmill.transforms.exchange.exact_splits import (
    SplitLimits,
    expected_ends,
    find_limits,
)
from recordmill.transforms.exchange.rank_sketch import WIDTH
from recordmill.transforms.profile.census import count_rows
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.class_keys import MISSING_KEY, class_key
from recordmill.transforms.sources.column_roles import SourceWithRoles

_WIDER = 8  # times, if a limit was not within the window that was looked at


def is_exact(job: JobSpec) -> bool:
    """Tells whether a job's splits are exact, of all rows or of each class."""
    return job.split_exact or job.stratify_by is not None


def find_exact_limits(
    job: JobSpec, source: Source, ranges: Sequence[InputRange], workers: int
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
    if column is not None:
        require_class_column("stratify_by", column, source.columns())
    fractions = [parse_fraction(split.fraction) for split in job.splits]
    key = _key_of(source, column)
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
            key=key,
        )
        known = {name: sketch for name, sketch in found.items() if name is not None}
        limits = find_limits(known, fractions)
        if limits is not None:
            return limits
        width *= _WIDER


def _key_of(source: Source, column: str | None) -> Callable[[str | None], str | None]:
    """Returns what gives each value of a census the key of its class, or None."""
    if column is None:
        return lambda _: MISSING_KEY
    role = source.label if isinstance(source, SourceWithRoles) else None
    if role is None or role.column != column:
        return class_key
    labels = {name: str(number) for number, name in enumerate(role.names)}
    return lambda text: labels.get(text or "")  # others are rejects, in no split


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
