"""Exchanges commas and points, so that numbers with a decimal comma are read as others are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import array_parts

_SWAPPED = np.arange(256, dtype=np.uint8)
_SWAPPED[list(b",.")] = list(b".,")
_NUMBER = r"^([ \t]*[+-]?[0-9]*)%s([0-9]*(?:[eE][+-]?[0-9]+)?[ \t]*)$"
_OTHER = "\N{NULL}"


def swap_points(cells: pa.StringArray) -> pa.StringArray:
    """Returns the cells with a point for each comma, and a comma for each point.

    So "1,5" becomes a number, and "1.5", which is none then, no longer is one.
    """
    offsets, data = array_parts(cells)
    start, stop = int(offsets[0]), int(offsets[-1])
    text = _SWAPPED[data[start:stop]]
    ends = pa.py_buffer(np.asarray(offsets - start, np.int32))
    mask = None
    if cells.null_count:
        mask = pc.is_valid(cells).buffers()[1]
    return pa.StringArray.from_buffers(len(cells), ends, pa.py_buffer(text), mask)


def swap_in_numbers(cells: pa.StringArray) -> pa.StringArray:
    """Returns the cells with them swapped in those that are numbers with either."""
    cells = pc.replace_substring_regex(cells, _NUMBER % ",", rf"\1{_OTHER}\2")
    cells = pc.replace_substring_regex(cells, _NUMBER % r"\.", r"\1,\2")
    return pc.replace_substring(cells, _OTHER, ".")
