"""Joins protobuf fields row by row: headers by length, and what stands behind them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import (
    I64,
    distinct_lengths,
    require_fit,
    value_lengths,
)
from recordmill.transforms.native.numpy_loops import field_header


def header_cells(
    make_header: Callable[[int], bytes],
    lengths: I64,
    valid: npt.NDArray[np.bool_] | None = None,
) -> pa.BinaryArray:
    """Returns the header of each row's payload, nothing where the row has none.

    Args:
      make_header: the header for one payload length; called once for each.
      lengths: payload bytes of each row.
      valid: which rows have a payload; None if all do.
    """
    distinct, which = distinct_lengths(lengths)
    headers = pa.array(map(make_header, distinct.tolist()), pa.binary())
    missing = None if valid is None else ~valid
    return headers.take(pa.array(which, mask=missing)).fill_null(b"")


def delimited_stream(values: pa.BinaryArray, tag: bytes) -> pa.BinaryArray:
    """Returns each value as a length-delimited field.

    The values "ab", "c" with tag 0a give 0a 02 61 62 and 0a 01 63.

    Args:
      values: plain binary without nulls.
      tag: the field's, one byte.
    """
    headers = header_cells(lambda n: field_header(tag, n), value_lengths(values))
    return pc.binary_join_element_wise(headers, values, b"")


def join_cells(arrays: list[pa.BinaryArray], tail_room: int) -> pa.BinaryArray:
    """Joins the arrays' cells row by row, and adds zero bytes behind each row.

    Raises:
      RecordmillError: together they are beyond 2 GiB.
    """
    num_bytes = sum(int(value_lengths(array).sum()) for array in arrays)
    # The join would end in an Arrow error without a word on what is too big.
    require_fit(num_bytes + tail_room * len(arrays[0]))
    if tail_room:
        arrays = [*arrays, pa.repeat(pa.scalar(bytes(tail_room)), len(arrays[0]))]
    return pc.binary_join_element_wise(*arrays, b"")
