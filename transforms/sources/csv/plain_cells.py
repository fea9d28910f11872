"""Splits CSV rows by a compiled loop, where nothing is odd about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.transforms import compiled
from recordmill.transforms.sources.csv.dialect import Dialect

_MAX_BYTES = 1 << 30  # of a text; positions are int32
_MAX_OFFSETS = 2  # for each byte of a text
_LINE = 16  # int32 of a line of the processor's cache


def split_plain(body: bytes, names: Sequence[str], dialect: Dialect) -> pa.Table | None:
    r"""Splits rows as `split_cells` does, or returns None: then that does it.

    Worked example, "1,a\n22,\n" of two columns: there are two bytes that may end a row, so
    each column has place for three rows (the last may have no end), and its offsets begin at
    a line of the cache.

        offsets      0 1 3 ...    0 1 1 ...
        facts        0 35         0 1          (starts, then empty cells)
        valid        -            0b01
        target       1 2 2 (32 bytes of slack) a

    Args:
      body: rows of UTF-8, no comments.
      names: of the columns.
      dialect: of the rows.
    """
    loops = compiled.loops
    size, columns = len(body), len(names)
    if loops is None or not size or size > _MAX_BYTES:
        return None
    if dialect.escape or dialect.null_values or not columns:
        return None
    # An odd number of lines: columns a power of two apart would share lines of the cache.
    lines = (loops.row_ends(body) + 1) // _LINE + 1
    max_rows = (lines | 1) * _LINE - 1
    if columns * max_rows > _MAX_OFFSETS * size + (1 << 16):
        return None  # nearly all lines are blank, or in quotes
    valid_bytes = (max_rows + 7) // 8
    offsets = pa.allocate_buffer(columns * (max_rows + 1) * 4)
    valid = pa.allocate_buffer(columns * valid_bytes)
    target = pa.allocate_buffer(size + columns * loops.CELL_SLACK)
    facts = np.empty((2, columns), np.int64)
    quote = ord(dialect.quote) if dialect.quote else loops.NO_QUOTE
    num_rows = loops.cells(
        body, ord(dialect.delimiter), quote, max_rows, offsets, valid, facts, target
    )
    if num_rows < 1:
        return None
    arrays = []
    for column, (start, empty) in enumerate(facts.T.tolist()):
        begin = column * (max_rows + 1) * 4
        buffers = [
            valid.slice(column * valid_bytes, valid_bytes) if empty else None,
            offsets.slice(begin, (num_rows + 1) * 4),
            target.slice(start),
        ]
        arrays.append(pa.Array.from_buffers(pa.string(), num_rows, buffers, empty))
    return pa.table(arrays, names=list(names))
