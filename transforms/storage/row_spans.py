"""Joins rows that lie near each other in a file, so that one request reads several.

Rows of 3 bytes at offsets 30, 0, 4 and 100, with gaps of up to 10 bytes:

    order    [1, 2, 0, 3]     offsets rising: 0, 4, 30, 100
    gaps     1, 23, 67        between the end of each row and the next one
    spans    rows [1, 2] are bytes 0 to 7, [0] is 30 to 33, [3] is 100 to 103
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recordmill.transforms.arrow import I64

MAX_GAP_BYTES = 1 << 20  # bytes that are read for nothing take less time than a request
SPAN_BYTES = 8 << 20  # read at once


def row_spans(
    offsets: I64,
    row_bytes: int,
    *,
    max_gap_bytes: int = MAX_GAP_BYTES,
    span_bytes: int = SPAN_BYTES,
) -> Iterator[tuple[I64, int, int]]:
    """Yields the parts of a file that hold rows of equal length, in order of the file.

    Args:
      offsets: byte offset of each row.
      row_bytes: size of a row.
      max_gap_bytes: the most that is read between two rows and not used.
      span_bytes: all rows of a part begin in one interval of so many bytes.

    Yields:
      The indices of the rows in a part, its first byte, and one after its last byte.
    """
    if not len(offsets):
        return
    order = np.argsort(offsets, kind="stable")
    rising = offsets[order]
    is_far = np.diff(rising) > row_bytes + max_gap_bytes
    is_beyond = np.diff(rising // span_bytes) > 0
    for rows in np.split(order, np.flatnonzero(is_far | is_beyond) + 1):
        yield rows, int(offsets[rows[0]]), int(offsets[rows[-1]]) + row_bytes
