"""Reads text cells that hold plain numbers, by a compiled loop."""

from __future__ import annotations

import pyarrow as pa

from recordmill.transforms import compiled

_BYTES = 8  # of a value
_TYPES = {"int64": pa.int64(), "float32": pa.float64()}  # as in `ARROW_TYPES`


def read_plain(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns cells as `cast_cells` does, or None if one of them is not plainly written.

    Args:
      cells: text.
      dtype: of the values.
    """
    loops, kind = compiled.loops, _TYPES.get(dtype)
    if loops is None or kind is None or not len(cells) or cells.offset:
        return None
    valid, offsets, data = cells.buffers()
    if not cells.null_count:
        valid = None
    target = pa.allocate_buffer(len(cells) * _BYTES)
    if not loops.numbers(offsets, data or b"", valid, dtype == "float32", target):
        return None
    return pa.Array.from_buffers(kind, len(cells), [valid, target], cells.null_count)
