"""Makes the cells of a key, the bytes it adds to each row, as a few Arrow arrays.

A column of numbers of fixed size is a template and a matrix of values; neighbouring
ones share one matrix, one template row and one copy. All others become a header (by
payload length) and a payload. The element-wise join in C++ lays the cells of a row
end to end. Three features, a int64, b float and c bytes, in two rows:

    template  0a 0a 0a 01 61 12 05 1a 03 0a 01 ..            a: one byte to fill in
              0a 0d 0a 01 62 12 08 12 06 0a 04 .. .. .. ..   b: four bytes
              .. .. .. .. .. .. .. .. .. .. ..               c: its header
    row 0     07 | 00 00 80 3f | 0a 0a 0a 01 63 12 05 0a 03 0a 01
    row 1     08 | 00 00 00 40 | 0a 0b 0a 01 63 12 06 0a 04 0a 02
    payload   "x", "yz" of c: a second array, joined behind the first
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.feature_spec import Kind
from recordmill.transforms.arrow import (
    I64,
    U8,
    binary_array,
    offsets_of,
    scatter,
    value_lengths,
    view_rows,
)
from recordmill.transforms.encode.stored_values import Column
from recordmill.transforms.encode.wire import (
    delimited_stream,
    headers_by_length,
    varint_lengths,
    varint_rows,
    varint_stream,
)


class MakeHeader(Protocol):
    """A function that makes what stands before a payload of so many bytes.

    `delimited` says that the payload is one length-delimited field of the list (packed
    numbers, one bytes value) and not a series of such fields.
    """

    def __call__(self, payload_length: int, *, delimited: bool) -> bytes: ...


@dataclass(slots=True)
class Fixed:
    """A cell of the same size in every row: a template and where values go."""

    template: bytes
    values: npt.NDArray[np.float32] | U8 | None = None


@dataclass(slots=True)
class Cells:
    """Cells of differing size.

    Attributes:
      arrays: to lay end to end, row by row.
      lengths: bytes of each row's cell, without the head.
      head: stands before them. It has one size, so it goes into the block of its
        neighbours, which saves an array in the join.
    """

    arrays: list[pa.Array]
    lengths: I64
    head: Fixed | None = None


@dataclass(slots=True)
class RowCells:
    """The cells of all features so far, with neighbouring fixed ones in one block."""

    num_rows: int
    arrays: list[pa.Array] = field(default_factory=list)
    lengths: I64 = field(init=False)
    block: list[Fixed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lengths = np.zeros(self.num_rows, np.int64)

    def add(self, cells: Fixed | Cells) -> None:
        if isinstance(cells, Fixed):
            self.block.append(cells)
            return
        if cells.head is not None:
            self.block.append(cells.head)
        self.flush()
        self.arrays.extend(cells.arrays)
        self.lengths += cells.lengths

    def flush(self) -> None:
        if self.block:
            matrix = _fill_block(self.block, self.num_rows)
            width = matrix.shape[1]
            self.arrays.append(fixed_array(matrix))
            self.lengths += width
            self.block = []


def cells_of(kind: Kind, column: Column, make_header: MakeHeader) -> Fixed | Cells:
    """Makes a column's cells: a header and a payload, nothing for a null."""
    if column.lists is None and kind is not Kind.BYTES:
        return _scalar_number_cells(kind, column, make_header)
    if column.lists is None:
        payload, delimited = column.values, True
    else:
        payload, delimited = (
            _list_payload(kind, column.values, column.lists),
            kind is not Kind.BYTES,
        )
    return payload_cells(
        payload, column.valid, partial(make_header, delimited=delimited)
    )


def payload_cells(
    payload: pa.BinaryArray,
    valid: npt.NDArray[np.bool_] | None,
    make_header: Callable[[int], bytes],
) -> Cells:
    """Puts a header before each row's payload, nothing where a row is null."""
    lengths = value_lengths(payload)
    if valid is None:
        rows, header_lengths = headers_by_length(make_header, lengths)
        width = rows.dtype.itemsize
        if len(rows) and header_lengths.min() == width:
            head = Fixed(b"", rows.view(np.uint8).reshape(-1, width))
            return Cells([payload], lengths, head)
        offsets = offsets_of(header_lengths)
        headers = binary_array(offsets, scatter(rows, offsets))
        return Cells([headers, payload], lengths + header_lengths)
    rows, header_lengths = headers_by_length(make_header, lengths[valid])
    offsets, headers = _sparse(rows, header_lengths, valid)
    return Cells([headers, payload], lengths + np.diff(offsets))


def _scalar_number_cells(
    kind: Kind, column: Column, make_header: MakeHeader
) -> Fixed | Cells:
    """Makes a header and one packed value, of one size unless varints or nulls differ."""
    values = column.values if column.valid is None else column.values[column.valid]
    if kind is Kind.FLOAT:
        lengths = np.full(len(values), 4, np.int64)
        payload = np.ascontiguousarray(values, "<f4").view(np.uint8).reshape(-1, 4)
    else:
        unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)
        lengths = varint_lengths(unsigned)
        payload = varint_rows(unsigned, lengths)
    make_header = partial(make_header, delimited=True)
    width = payload.shape[1]
    if column.valid is None and (len(lengths) == 0 or lengths.min() == width):
        return Fixed(make_header(width), payload)
    headers, header_lengths = headers_by_length(make_header, lengths)
    header_width = headers.dtype.itemsize
    rows = np.empty((len(values), header_width + width), np.uint8)
    rows[:, :header_width] = headers.view(np.uint8).reshape(-1, header_width)
    if len(values) and header_lengths.min() < header_width:
        # Only names near a varint's limit: payloads begin at different columns.
        columns = header_lengths[:, None] + np.arange(width)
        np.put_along_axis(rows, columns, payload, axis=1)
    else:
        rows[:, header_width:] = payload
    if column.valid is None:
        offsets = offsets_of(header_lengths + lengths)
        cells = binary_array(offsets, scatter(view_rows(rows), offsets))
    else:
        offsets, cells = _sparse(
            view_rows(rows), header_lengths + lengths, column.valid
        )
    return Cells([cells], np.diff(offsets))


def _list_payload(kind: Kind, values: Any, lists: I64) -> pa.BinaryArray:
    """Makes each row's list content: packed numbers or length-delimited values."""
    if kind is Kind.FLOAT:
        data = np.ascontiguousarray(values, "<f4").view(np.uint8)
        return binary_array(lists * 4, data)
    if kind is Kind.INT64:
        unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)
        offsets, data = varint_stream(unsigned)
    else:
        offsets, data = delimited_stream(values, b"\x0a")
    return binary_array(offsets[lists], data)


def _fill_block(block: list[Fixed], num_rows: int) -> U8:
    template = np.frombuffer(
        b"".join(
            cell.template + bytes(0 if cell.values is None else cell.values.shape[1])
            for cell in block
        ),
        np.uint8,
    )
    matrix = np.empty((num_rows, len(template)), np.uint8)
    matrix[:] = template
    offset = 0
    for cell in block:
        offset += len(cell.template)
        if cell.values is not None and num_rows:
            width = cell.values.shape[1]
            # One item per row copies three times faster than single bytes.
            item = np.dtype("<u4") if width == 4 else np.dtype(f"V{width}")
            target = np.ndarray(
                (num_rows,), item, matrix.data, offset, (len(template),)
            )
            target[:] = np.ascontiguousarray(cell.values).view(item).ravel()
            offset += width
    return matrix


def fixed_array(matrix: U8) -> pa.BinaryArray:
    """Returns the rows of a matrix as an Arrow binary array."""
    num_rows, width = matrix.shape
    offsets = np.arange(num_rows + 1, dtype=np.int64) * width
    return binary_array(offsets, matrix.reshape(-1))


def _sparse(
    rows: npt.NDArray[np.void], row_lengths: I64, valid: npt.NDArray[np.bool_]
) -> tuple[I64, pa.BinaryArray]:
    """Returns cells for the valid rows, empty ones for the others."""
    lengths = np.zeros(len(valid), np.int64)
    lengths[valid] = row_lengths
    offsets = offsets_of(lengths)
    data = scatter(rows, offsets_of(row_lengths))
    return offsets, binary_array(offsets, data)
