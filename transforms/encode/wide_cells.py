"""Makes the cells of many columns at once, where a batch has few rows.

NumPy and Arrow take some microseconds for a call, however few rows it is for, and a
column takes dozens of calls: with 20,000 columns and 30 rows they are all of the time.
Here every cell of every column is an item of one array. Two rows of a int64 and b bytes:

    payloads   07, 08 | "x", "yz"      column by column, then row by row: 07 "x" 08 "yz"
    headers    of each (column, length) that there is: made once, taken for each cell
    joined     row 0 a, row 0 b, row 1 a, row 1 b: every second offset begins a row
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import Kind
from recordmill.transforms.arrow import array_parts, binary_array, value_lengths
from recordmill.transforms.encode.cells import Cells
from recordmill.transforms.encode.feature_map import Entry
from recordmill.transforms.encode.wire import varint_stream

MAX_ROWS = 512  # with more, whole columns take less time
MIN_COLUMNS = 64


def pays_off(num_rows: int, num_columns: int) -> bool:
    """Tells whether the cells of a batch are made in less time here."""
    return num_rows <= MAX_ROWS and num_columns >= MIN_COLUMNS


def wide_cells(
    entries: Sequence[Entry],
    num_rows: int,
    make_header: Callable[[str, Kind, int], bytes],
) -> Cells:
    """Makes the cells of columns with one value in a row, or none.

    Args:
      entries: the columns, in the order of their keys; none of them has lists.
      num_rows: of the batch.
      make_header: (key, kind, payload length) -> what stands before a payload.
    """
    payloads = _payloads(entries, num_rows)
    lengths = value_lengths(payloads)
    # (column, length) as one number, to find the different ones.
    columns = np.tile(np.arange(len(entries)), num_rows)
    span = int(lengths.max(initial=0)) + 1
    distinct, which = np.unique(columns * span + lengths, return_inverse=True)
    headers = [
        make_header(entries[code // span].key, entries[code // span].kind, code % span)
        for code in distinct.tolist()
    ]
    missing = _missing(entries, num_rows)
    if missing is not None:
        which = np.where(missing, len(headers), which)
        headers.append(b"")
    before = pa.array(headers, pa.binary()).take(pa.array(which))
    joined = pc.binary_join_element_wise(before, payloads, b"")
    offsets, data = array_parts(joined)
    offsets = offsets[:: len(entries)]
    return Cells([binary_array(offsets, data)], np.diff(offsets))


def _payloads(entries: Sequence[Entry], num_rows: int) -> pa.BinaryArray:
    """Returns the payload of each cell, row by row; empty where there is no value."""
    by_kind: dict[Kind, list[int]] = {}
    for at, entry in enumerate(entries):
        by_kind.setdefault(entry.kind, []).append(at)
    parts = []
    order = np.empty(len(entries), np.int64)  # of the columns, kind by kind
    start = 0
    for kind, members in by_kind.items():
        order[members] = np.arange(start, start + len(members))
        start += len(members)
        parts.append(_payloads_of(kind, [entries[at] for at in members]))
    cells = pa.concat_arrays(parts)
    # Cell (row, column) lies at column's place in the order x rows + row.
    taken = order[None, :] * num_rows + np.arange(num_rows)[:, None]
    return cells.take(pa.array(taken.ravel()))


def _payloads_of(kind: Kind, entries: Sequence[Entry]) -> pa.BinaryArray:
    """Returns the payloads of columns of one kind, column by column."""
    if kind is Kind.BYTES:
        return pa.concat_arrays([entry.column.values for entry in entries])
    values = np.concatenate([entry.column.values for entry in entries])
    if kind is Kind.FLOAT:
        data = np.ascontiguousarray(values, "<f4").view(np.uint8)
        offsets = np.arange(len(values) + 1, dtype=np.int64) * 4
    else:
        offsets, data = varint_stream(values.astype(np.int64).view(np.uint64))
    cells = binary_array(offsets, data)
    if all(entry.column.valid is None for entry in entries):
        return cells
    valid = np.concatenate(
        [
            np.ones(len(entry.column.values), np.bool_)
            if entry.column.valid is None
            else entry.column.valid
            for entry in entries
        ]
    )
    return pc.if_else(pa.array(valid), cells, pa.scalar(b"", pa.binary()))


def _missing(entries: Sequence[Entry], num_rows: int) -> npt.NDArray[np.bool_] | None:
    """Returns which cells have no value, row by row; None if all have one."""
    if all(entry.column.valid is None for entry in entries):
        return None
    missing = np.zeros((num_rows, len(entries)), np.bool_)
    for at, entry in enumerate(entries):
        if entry.column.valid is not None:
            missing[:, at] = ~entry.column.valid
    return missing.ravel()
