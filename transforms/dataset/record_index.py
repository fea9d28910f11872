"""Writes and reads index files: the offset and size of each record of a shard.

A TFRecord file has no table of contents: to find a record, a reader adds the lengths of
all earlier records. The index file `SHARD.idx` next to a shard, which DALI and the Python
package tfrecord read, makes this unnecessary. It has a line for each record: the offset
of its frame and the frame's size in bytes, such as

    0 99
    99 99
    198 99
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import OutputRefusedError
from recordmill.transforms.arrow import I64, array_parts
from recordmill.transforms.tfrecord import FRAME_BYTES

_LINES = 1 << 20  # lines formatted together: their text fits an Arrow array


def index_text(offsets: I64) -> bytes:
    """Returns the text of an index file: [0, 99, 198] becomes "0 99" and "99 99"."""
    begins = range(0, len(offsets) - 1, _LINES)
    return b"".join(_lines(offsets[begin : begin + _LINES + 1]) for begin in begins)


def _lines(offsets: I64) -> bytes:
    starts = pa.array(offsets[:-1]).cast(pa.string())
    lengths = pa.array(np.diff(offsets)).cast(pa.string())
    lines = pc.binary_join_element_wise(starts, " ", lengths, "\n", "")
    bounds, text = array_parts(lines.cast(pa.binary()))
    return text[bounds[0] : bounds[-1]].tobytes()


def parse_index(text: bytes, uri: str, records: int, num_bytes: int) -> I64:
    """Returns the offsets in an index file, and the end of the last record.

    Raises:
      OutputRefusedError: the numbers do not match the shard's records and bytes.
    """
    try:
        numbers = np.array(text.split(), np.int64).reshape(-1, 2)
    except (ValueError, OverflowError):
        numbers = np.full((1, 2), -1)
    offsets = np.append(numbers[:, 0], num_bytes)
    if len(numbers) != records or not np.array_equal(np.diff(offsets), numbers[:, 1]):
        raise OutputRefusedError(
            f"{uri}: not the index of its shard of {records:,} records and "
            f"{num_bytes:,} bytes. Run `recordmill index` to rewrite it, or remove it"
        )
    if records and (offsets[0] != 0 or (numbers[:, 1] < FRAME_BYTES).any()):
        raise OutputRefusedError(
            f"{uri}: its records overlap or do not begin at byte 0. Run `recordmill "
            "index` to rewrite it, or remove it"
        )
    return offsets
