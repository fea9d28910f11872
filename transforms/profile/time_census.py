"""Looks at times before a run: are there any, and where do splits by shares of them end?"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.job.split_times import SplitTimes
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.text_values import without_missing
from recordmill.transforms.exchange.exact_splits import divide
from recordmill.transforms.exchange.pair_ranks import (
    MAX_KEPT,
    SIGMAS,
    WHOLE,
    Pair,
    PairLimits,
    PairSketch,
    Window,
    next_windows,
)
from recordmill.transforms.profile.in_threads import in_threads, surveyed
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.roles import RankedTimes
from recordmill.transforms.sources.time_splits import order_of

_WIDER = 8  # times, if a rank was not within the window that was looked at
_FULL_WINDOWS = 8  # that may be held at once; of more, each holds less
_SAMPLED_ROWS = 1_000  # by which text is taken for times or for numbers


def rank_times(
    source: Source,
    ranges: Sequence[InputRange],
    column: str,
    fractions: Sequence[Fraction],
    *,
    workers: int,
    decimal_comma: bool = False,
    max_kept: int = MAX_KEPT,
) -> RankedTimes:
    """Reads all rows, and finds the times at which the splits have their shares.

    Args:
      source: prepared.
      ranges: of it.
      column: of times or numbers.
      fractions: share of each split, the earliest first.
      workers: threads.
      decimal_comma: whether numbers in the column's text have a comma before their
        places.
      max_kept: pairs that are held of each window, of more than a few windows fewer.

    Raises:
      InputError: no row has a time or a number, or the input cannot be read.
    """
    todo = surveyed(source, ranges, workers)
    are_times = _are_times(source, todo, column, decimal_comma=decimal_comma)

    def read(windows: set[Window]) -> dict[Window, PairSketch]:
        kept = min(max_kept, _FULL_WINDOWS * max_kept // len(windows))
        total = {window: PairSketch(window, kept) for window in windows}

        def read_range(input_range: InputRange) -> dict[Window, PairSketch]:
            found = {window: PairSketch(window, kept) for window in windows}
            for rows in source.read_as_text(input_range):
                order, missing = order_of(
                    rows.batch.column(column),
                    are_times=are_times,
                    decimal_comma=decimal_comma,
                )
                for sketch in found.values():
                    sketch.add(order[~missing], rows.origins[~missing])
            return found

        for found in in_threads(read_range, todo, workers):
            for window, sketch in found.items():
                total[window].merge(sketch)
        return total

    sketches = read({WHOLE})
    num_rows = sketches[WHOLE].inside
    if not num_rows:
        raise InputError(
            f"`split_by_time` {column}: no row has a time or a number; name another "
            "column, or leave out `split_by_time`"
        )
    (records,) = divide([num_rows], fractions)
    ranks = list(accumulate(records))[:-1]
    limits: dict[int, Pair] = {num_rows: WHOLE[1]}  # all rows lie before it
    windows = dict.fromkeys(ranks, WHOLE)
    sigmas: float = SIGMAS
    while True:
        for rank in {*ranks} - limits.keys():
            found = sketches[windows[rank]].pair(rank)
            if found is not None:
                limits[rank] = found
        left = sorted({*ranks} - limits.keys())
        if not left:
            break
        held = [sketches[windows[rank]] for rank in left]
        wanted = next_windows(held, left, sigmas)
        if wanted is None:  # once in 10**15 times: look farther, from the start
            sigmas *= _WIDER
            wanted = [WHOLE] * len(left)
        windows = dict(zip(left, wanted, strict=True))
        sketches = read({*wanted})
    pairs = np.array([limits[rank] for rank in ranks], np.uint64).reshape(-1, 2)
    return RankedTimes(PairLimits(pairs[:, 0], pairs[:, 1]), are_times, records)


def require_times(
    source: Source,
    ranges: Sequence[InputRange],
    times: SplitTimes,
    *,
    decimal_comma: bool,
) -> None:
    """Refuses a column in which no row of a sample has a time, or no number.

    Args:
      source: prepared.
      ranges: of it.
      times: the column, and boundaries that are times or numbers.
      decimal_comma: as of `rank_times`.

    Raises:
      UsageError: all rows would be rejects, but only after all were read.
    """
    found = ""
    for input_range in source.sample_ranges(ranges):
        try:
            rows = next(iter(source.read_as_text(input_range)), None)
        except InputError:
            continue  # a range that begins inside a quoted field; the run tells
        if rows is None:
            continue
        values = rows.batch.column(times.column)[:_SAMPLED_ROWS].drop_null()
        if pt.is_string(values.type):  # a later row may have more than such texts
            values = without_missing(values).drop_null()
        missing = order_of(
            values, are_times=times.are_times, decimal_comma=decimal_comma
        )[1]
        if not missing.all():
            return
        if not found and len(values):
            found = shown(str(values[0]))
            kind = "" if pt.is_string(values.type) else f" ({values.type})"
            found = f"{found}{kind}"
    if not found:
        return  # no values at all: each such row is told
    wanted = "times like 2026-01-31" if times.are_times else "numbers like 20.5"
    raise UsageError(
        f"`split_by_time` {times.column}: the first rows have no values like those of its "
        f"boundaries, but {found}; expected {wanted}. Name another column, give boundaries "
        "that are like its values, or write its values so"
    )


def _are_times(
    source: Source,
    ranges: Sequence[InputRange],
    column: str,
    *,
    decimal_comma: bool,
) -> bool:
    """Tells whether a column has times; text by more of its first rows than numbers."""
    for input_range in ranges:
        for rows in source.read_as_text(input_range):
            values = rows.batch.column(column)[:_SAMPLED_ROWS]
            if not pt.is_string(values.type):
                return not (pt.is_integer(values.type) or pt.is_floating(values.type))
            no_time = order_of(values, are_times=True)[1]
            no_number = order_of(values, are_times=False, decimal_comma=decimal_comma)[
                1
            ]
            num_times, num_numbers = int((~no_time).sum()), int((~no_number).sum())
            if num_times or num_numbers:
                return num_times > num_numbers
    return False
