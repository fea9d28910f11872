"""Classifies and converts all columns of a table of text; wide tables in few steps.

A call of Arrow costs some microseconds however few cells it gets, and a column takes
dozens of calls: in a table of 20,000 columns and 60 rows they would be nearly all of the
time. So where columns are short, those of one type are put end to end, and taken for
one column. What comes out for each is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from recordmill.transforms.cast.text_values import without_missing
from recordmill.transforms.sources.text_types import (
    as_dtype,
    cast_cells,
    classify,
    convert,
    kinds_of,
)
from recordmill.transforms.sources.type_flags import TypeFlag, column_dtype, is_text

_SHORT = 1024  # cells of a column that is put together with others
_JOINED_BYTES = 64 << 20  # of the text that is joined at once


def classify_columns(
    columns: Sequence[pa.StringArray], num_bytes: int | None = None
) -> list[TypeFlag]:
    """Returns the type flags of each column, as `classify` does.

    Args:
      columns: of text.
      num_bytes: of all text, at most, if it is known.
    """
    flags = [TypeFlag.NOTHING] * len(columns)
    for group in _groups(columns, range(len(columns)), num_bytes):
        if len(group) == 1:
            flags[group[0]] = classify(columns[group[0]])
            continue
        counts = np.array([len(columns[at]) - columns[at].null_count for at in group])
        filled = np.flatnonzero(counts)
        if not len(filled):
            continue
        cells = pa.concat_arrays([columns[at] for at in group]).drop_null()
        # Columns of 3, 0 and 2 cells: those with cells start at 0 and 3.
        starts = (np.cumsum(counts) - counts)[filled]
        sums = np.zeros(len(filled), np.int64)
        cells = without_missing(cells)
        missing = cells.is_null().to_numpy(zero_copy_only=False)
        kinds = {TypeFlag.MISSING: missing, **kinds_of(cells.fill_null(""))}
        text = np.ones(len(cells), np.bool_)
        for flag, found in kinds.items():
            sums |= np.where(np.logical_or.reduceat(found, starts), int(flag), 0)
            text &= ~found
        sums |= np.where(np.logical_or.reduceat(text, starts), int(TypeFlag.TEXT), 0)
        for at, total in zip(filled.tolist(), sums.tolist(), strict=True):
            flags[group[at]] = TypeFlag(total)
    return flags


def convert_columns(
    columns: Sequence[pa.StringArray],
    expected: Sequence[int],
    num_bytes: int | None = None,
) -> tuple[list[pa.Array], list[int]]:
    """Converts columns to the types that are expected, as `convert` does each.

    Args:
      columns: of text.
      expected: the type flags to assume for each.
      num_bytes: of all text, at most, if it is known.

    Returns:
      The converted columns, and the type flags that were seen in each.
    """
    converted: list[pa.Array | None] = [None] * len(columns)
    observed = [int(flags & ~TypeFlag.MISSING) for flags in expected]
    known: dict[str, list[int]] = {}  # by the dtype that is expected
    unknown = []
    for at, (cells, flags) in enumerate(zip(columns, expected, strict=True)):
        if len(cells) > _SHORT or cells.null_count == len(cells):
            continue
        dtype = column_dtype(flags)
        if dtype != "string":
            known.setdefault(dtype, []).append(at)
        elif not is_text(flags):
            unknown.append(at)
    for dtype, members in known.items():
        # None: some column needs a wider type, so each is converted for itself.
        groups = _groups(columns, members, num_bytes)
        _convert_joined(columns, groups, partial(cast_cells, dtype=dtype), converted)
    if len(unknown) > 1:
        seen = classify_columns([columns[at] for at in unknown], num_bytes)
        found: dict[str, list[int]] = {}
        for at, flags in zip(unknown, seen, strict=True):
            observed[at] = int(expected[at]) | int(flags)
            found.setdefault(column_dtype(observed[at]), []).append(at)
        for dtype, members in found.items():
            groups = _groups(columns, members, num_bytes)
            _convert_joined(columns, groups, partial(as_dtype, dtype=dtype), converted)
    arrays = []
    for at, (cells, done) in enumerate(zip(columns, converted, strict=True)):
        if done is None:
            done, flag = convert(cells, expected[at])
            observed[at] = int(flag)
        arrays.append(done)
    return arrays, observed


def _convert_joined(
    columns: Sequence[pa.StringArray],
    groups: Sequence[Sequence[int]],
    convert_cells: Callable[[pa.StringArray], pa.Array | None],
    converted: list[pa.Array | None],
) -> None:
    """Converts columns put end to end; leaves out single ones and what does not fit."""
    for group in groups:
        if len(group) == 1:
            continue
        joined = convert_cells(pa.concat_arrays([columns[at] for at in group]))
        if joined is None:
            continue
        start = 0
        for at in group:
            size = len(columns[at])
            converted[at] = joined.slice(start, size)
            start += size


def _bytes_of(columns: Sequence[pa.StringArray]) -> int:
    """Returns the bytes of columns, which takes long to ask of each."""
    num_bytes: int = pa.chunked_array(columns).nbytes
    return num_bytes


def _groups(
    columns: Sequence[pa.StringArray],
    members: Sequence[int],
    num_bytes: int | None = None,
) -> list[list[int]]:
    """Groups columns to be joined; a long one is alone."""
    groups: list[list[int]] = []
    short = [at for at in members if len(columns[at]) <= _SHORT]
    if num_bytes is None and short:
        num_bytes = _bytes_of([columns[at] for at in short])
    if short and num_bytes is not None and num_bytes <= _JOINED_BYTES:
        return [short, *([at] for at in members if len(columns[at]) > _SHORT)]
    is_full = True
    group_bytes = 0
    for at in members:
        is_long = len(columns[at]) > _SHORT
        size = columns[at].nbytes
        if is_full or is_long or group_bytes + size > _JOINED_BYTES:
            groups.append([])
            group_bytes = 0
        groups[-1].append(at)
        group_bytes += size
        is_full = is_long
    return groups
