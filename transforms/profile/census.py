"""Counts the rows of an input by the values of one column, in a first reading.

Classes have their names, and exact splits their limits, before a row is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import split_draws
from recordmill.transforms.exchange.rank_sketch import WIDTH, RankSketch
from recordmill.transforms.profile.in_threads import in_threads, surveyed
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.class_keys import texts_of
from recordmill.transforms.sources.source_rows import Rows

MAX_CLASSES = 10_000
Sketches = Mapping[str | None, RankSketch]
"""The rows of each value, None for a missing one; all of one without a column."""


def count_rows(
    source: Source,
    ranges: Sequence[InputRange],
    column: str | None,
    too_many: str,
    *,
    workers: int,
    ends: tuple[int, ...] = (),
    seed: int = 0,
    width: int = WIDTH,
    values_of: Callable[[pa.Array], tuple[Sequence[str | None], np.ndarray]] = texts_of,
) -> Sketches:
    """Reads all rows of some ranges, and counts those of each value of a column.

    Args:
      source: prepared.
      ranges: what is counted.
      column: whose values are told apart; None for no such column.
      too_many: the error if there are more than MAX_CLASSES values.
      workers: threads.
      ends: where splits are expected to end (see exact_splits.expected_ends).
      seed: the job's seed.
      width: of the sketches.
      values_of: returns what values are told apart by, and the index of each row's.

    Raises:
      UsageError: a row that was read is several rows, and splits are to be exact.
      InputError: there are too many values, or the input cannot be read.
    """
    total: dict[str | None, RankSketch] = {}

    def read(input_range: InputRange) -> dict[str | None, RankSketch]:
        found: dict[str | None, RankSketch] = {}
        for rows in _read(source, input_range, column):
            if ends and rows.groups is not None:  # rows are counted one by one
                raise UsageError(
                    "`map` makes several rows of one, which belong into one split, so the "
                    "splits cannot be exact: leave out `split_exact` and `stratify_by`, "
                    "or return at most one row for each"
                )
            draws = split_draws(rows.origins, seed) if ends else rows.origins
            texts: Sequence[str | None] = [None]
            indices = np.zeros(len(draws), np.int64)
            if column is not None:
                texts, indices = values_of(rows.batch.column(column))
            for text, own in _by_value(texts, indices, draws):
                found.setdefault(text, RankSketch(ends, width)).add(own)
            _require_few(found, too_many)
        return found

    for found in in_threads(read, surveyed(source, ranges, workers), workers):
        for text, sketch in found.items():
            total.setdefault(text, RankSketch(ends, width)).merge(sketch)
        _require_few(total, too_many)
    return total


def _require_few(found: Sketches, too_many: str) -> None:
    if len(found) > MAX_CLASSES:
        raise InputError(too_many)


def _read(
    source: Source, input_range: InputRange, column: str | None
) -> Iterator[Rows]:
    """Reads rows, or only what is known without reading them if that has the column."""
    if source.supports_references or source.lists_rows:
        listed = source.list_references(input_range)
        for rows in listed:
            if column is not None and column not in rows.batch.schema.names:
                break
            yield rows
        else:
            return
    yield from source.read_as_text(input_range)


def _by_value(
    texts: Sequence[str | None], indices: np.ndarray, draws: U64
) -> Iterator[tuple[str | None, U64]]:
    """Yields each value of a batch with the draws of its rows."""
    if not len(draws):
        return
    order = np.argsort(indices, kind="stable")
    ends = np.cumsum(np.bincount(indices, minlength=len(texts)))
    yield from zip(texts, np.split(draws[order], ends[:-1]), strict=True)
