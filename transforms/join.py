"""Joins long lists of files by their paths, with only some rows in memory.

A list with unsorted paths becomes sorted runs, mapped from an unnamed temporary file.
Then both lists are read in step, up to one path and then up to the next:

    files b, c, a, d      as runs     b, c  |  a, d
    others d, b           as a run    b, d
    windows               up to a:    a  |  none
                          up to c:    b, c  |  b
                          up to d:    d  |  d
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.temporary import TEMPORARY, gather_batches, take_batches

RUN_ROWS = 1 << 18
"""Rows of one sorted run."""

ROW_INDEX = "at"
"""The column of windows with the index of each row in its list."""

ROW_INDEX_TYPE = pa.int32()  # the type of that column


def by_folders(names: pa.Array) -> pa.Array:
    """Returns sort keys (texts or bytes) that order names folder by folder."""
    # No character sorts before a zero.
    zero, slash = (b"\0", b"/") if pa.types.is_binary(names.type) else ("\0", "/")
    return pc.replace_substring(names, slash, zero)


def are_sorted(parts: Iterable[pa.Array], *, strictly: bool = False) -> bool:
    """Checks whether names are in order, folder by folder; strictly: also unique."""
    falls = pc.greater_equal if strictly else pc.greater
    last = None
    for names in parts:
        if not len(names):
            continue
        keys = by_folders(names)
        if last is not None and falls(last, keys[0]).as_py():
            return False
        if pc.any(falls(keys[:-1], keys[1:])).as_py():
            return False
        last = keys[-1]
        TEMPORARY.drop_pages()
    return True


def sorted_runs(table: pa.Table) -> list[pa.Table]:
    """Returns the rows of a list as runs that are sorted by path."""
    batches = table.to_batches(RUN_ROWS)
    if are_sorted(batch["path"] for batch in batches):
        return [table]

    def run(start: int) -> pa.RecordBatch:
        (rows,) = table.slice(start, RUN_ROWS).combine_chunks().to_batches()
        at = pa.array(np.arange(start, start + len(rows)), ROW_INDEX_TYPE)
        order = pc.sort_indices(by_folders(rows["path"]))
        return rows.append_column(ROW_INDEX, at).take(order)

    starts = range(0, len(table), RUN_ROWS)
    rows = gather_batches(
        map(run, starts), table.schema.append(pa.field(ROW_INDEX, ROW_INDEX_TYPE))
    )
    return [rows.slice(start, RUN_ROWS) for start in starts]


def iterate_windows(
    runs: Sequence[pa.Table], other: pa.Table
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yields all rows of a list, with the rows of another list in the same path range."""
    run_cursors, other_cursors = (
        [[run, 0] for run in tables] for tables in (runs, sorted_runs(other))
    )
    step = max(1, RUN_ROWS // 2 // len(run_cursors))
    while keys := [
        _key(run["path"][min(start + step, len(run)) - 1])
        for run, start in run_cursors
        if start < len(run)
    ]:
        yield _read(run_cursors, min(keys)), _read(other_cursors, min(keys))
        TEMPORARY.drop_pages()


def _read(cursors: list[list[Any]], key: str) -> pa.Table:
    """Reads the next rows of all runs, up to a key.

    A cursor is a run and the index of its next row, which is advanced.
    """
    parts = []
    for cursor in cursors:
        run, start = cursor
        stop = cursor[1] = bisect_right(run["path"], key, start, key=_key)
        part = run.slice(start, stop - start)
        if ROW_INDEX not in part.column_names:
            at = pa.array(np.arange(start, stop), ROW_INDEX_TYPE)
            part = part.append_column(ROW_INDEX, at)
        parts.append(part)
    return pa.concat_tables(parts)


def _key(path: pa.StringScalar) -> str:
    return str(path.as_py()).replace("/", "\0")


def join_rows(
    table: pa.Table,
    other: pa.Table,
    question: Callable[[pa.Table, pa.Table], pa.Array],
    kind: pa.DataType,
) -> pa.ChunkedArray:
    """Returns a column with an answer for each row of a list.

    `question` is called with some of the rows and the rows of the other list in the same
    path range, and returns an answer for each of the former.
    """
    runs, schema = (
        sorted_runs(table),
        pa.schema({ROW_INDEX: ROW_INDEX_TYPE, "answer": kind}),
    )
    answers = (
        pa.RecordBatch.from_arrays(
            [rows[ROW_INDEX].combine_chunks(), question(rows, candidate_rows)],
            schema=schema,
        )
        for rows, candidate_rows in iterate_windows(runs, other)
    )
    answer_table = gather_batches(answers, schema)
    if runs[0] is not table:
        order = np.empty(len(answer_table), np.int64)
        order[answer_table[ROW_INDEX].to_numpy()] = np.arange(len(answer_table))
        answer_table = gather_batches(take_batches(answer_table, order), schema)
    return answer_table["answer"]
