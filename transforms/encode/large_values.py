"""Frames records around large cells that are not copied: an image's bytes.

An image of 75 kB is nearly all of its record. To join it with the rest, and to copy that
to where it is framed, took more time than to read it. So a hollow record is made without
it, and the two are put together where they are written. Two records:

    frames   h h h h e e|e e t t h h h h e e e|e t t     h head, e example, t tail
    cuts                6                    17          | where each cell belongs
    cells    "first image", "second image"

The cells are not even read again for checksums: that of a record, and that of its file,
are combined from the cell's own, which is known, and those of the few bytes around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Kind, Schema
from recordmill.transforms import native
from recordmill.transforms.arrow import (
    I64,
    U8,
    array_parts,
    binary_array,
    is_of_views,
    offsets_of,
    value_lengths,
    viewed_values,
)
from recordmill.transforms.encode.examples import load_columns, measure, write_rows
from recordmill.transforms.native import Buffer
from recordmill.transforms.native.numpy_loops import U32, combine
from recordmill.transforms.tfrecord import FRAME_BYTES, HEAD_BYTES, TAIL_BYTES, crc32c


@dataclass(frozen=True, slots=True)
class HollowRecords:
    """Framed records, each without the bytes of one large cell."""

    frames: U8  # all other bytes, record after record
    starts: I64  # where each record begins in `frames`, and the end of the last one
    cuts: I64  # where each cell belongs in `frames`
    cells: Sequence[memoryview]  # their bytes
    crc32c: int  # the CRC-32C of all records with their cells

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def lengths(self) -> I64:
        """Returns the bytes of each record, its cell included."""
        return np.diff(self.starts) + _sizes(self.cells)

    def pieces(self) -> Iterator[memoryview]:
        """Yields the bytes of all records in order, no cell joined with anything."""
        frames = self.frames.data
        start = int(self.starts[0])
        for cut, cell in zip(self.cuts.tolist(), self.cells, strict=True):
            yield frames[start:cut]
            yield cell
            start = cut
        yield frames[start : self.starts[-1]]

    def filled(self) -> pa.BinaryArray:
        """Returns the records with their cells, as a copy."""
        data = np.frombuffer(b"".join(self.pieces()), np.uint8)
        return binary_array(offsets_of(self.lengths), data)


Window: TypeAlias = "pa.BinaryArray | HollowRecords"
"""Framed records, whole or hollow."""


def whole(window: Window) -> pa.BinaryArray:
    """Returns the records of a window with their cells, which are copied."""
    return window.filled() if isinstance(window, HollowRecords) else window


def record_lengths(window: Window) -> I64:
    """Returns the bytes of each record of a window."""
    return (
        window.lengths if isinstance(window, HollowRecords) else value_lengths(window)
    )


def window_bytes(window: Window) -> int:
    """Returns the bytes of all records of a window."""
    return int(record_lengths(window).sum())


def window_crc(window: Window, before: int = 0) -> int:
    """Returns the CRC-32C of all bytes of a window, behind those that have `before`."""
    if isinstance(window, HollowRecords):
        return combine(before, window.crc32c, window_bytes(window))
    (body,) = pieces_of(window)
    return crc32c(body, before)


def pieces_of(window: Window) -> Iterator[memoryview]:
    """Yields the bytes of a window in order, in as few pieces as there are."""
    if isinstance(window, HollowRecords):
        yield from window.pieces()
    else:
        offsets, data = array_parts(window)
        yield data.data[offsets[0] : offsets[-1]]


def _sizes(cells: Sequence[memoryview]) -> I64:
    return np.array(list(map(len, cells)), np.int64)


# The cell's bytes are needed for nothing but to be copied: all headers depend on its length
# alone. So a column of the same lengths stands for it, and where the cells of a row would
# be joined, that one is left out. A row with the cells a, image and z:
#
#     whole    0a len | a | header of image | image | z
#     hollow   0a len | a | header of image |       | z
#     cut      -----------------------------^


def large_column(batch: pa.RecordBatch, schema: Schema) -> str | None:
    """Returns the only column of views, if its values are stored as they are."""
    viewed = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if is_of_views(column)
    ]
    features = [feature for feature in schema.features if feature.column in viewed]
    if len(viewed) != 1 or len(features) != 1:
        return None
    (feature,) = features
    is_stored = feature.kind is Kind.BYTES and feature.dtype != "string"
    is_whole = is_stored and not feature.sequence and not batch[viewed[0]].null_count
    return viewed[0] if is_whole else None


def encode_around(
    batch: pa.RecordBatch,
    schema: Schema,
    column: str,
    values: Sequence[bytes] | None = None,
    crcs: U32 | None = None,
) -> HollowRecords:
    """Makes the records of all rows without the value of one column.

    `column` is what `large_column` returned; its values and their CRC-32Cs may be known
    apart from it. Raises what `encode` does.
    """
    if values is None:
        cells = viewed_values(batch[column])
    else:
        cells = [memoryview(value) for value in values]
    lengths = _sizes(cells)
    offsets = offsets_of(lengths)
    # Nobody reads these bytes, so they never get pages of memory.
    absent = binary_array(offsets, np.empty(int(offsets[-1]), np.uint8))
    place = batch.schema.get_field_index(column)
    batch = batch.set_column(place, column, absent)
    cuts = np.empty(batch.num_rows, np.int64)
    columns = [
        (column[0], native.loops.LEFT_OUT, cuts, column[3], None, None)
        if column[3] is not None and _is_buffer_of(column[2], absent)
        else column
        for column in load_columns(batch, schema.features)
    ]
    sizes, whole = measure(columns, batch.num_rows, FRAME_BYTES)
    framed = write_rows(columns, sizes, whole - lengths, HEAD_BYTES, TAIL_BYTES)
    starts, frames = array_parts(framed)
    if crcs is None:
        crcs = np.fromiter(map(crc32c, cells), np.uint32, len(cells))
    whole_crc = native.loops.seal_around(frames, starts, cuts, lengths, crcs)
    return HollowRecords(frames, starts, cuts, cells, whole_crc)


def _is_buffer_of(buffer: Buffer, array: pa.BinaryArray) -> bool:
    """Returns whether it is the buffer that the values of an array lie in."""
    data = array.buffers()[2]  # None if there are no bytes
    return bool(buffer) and data is not None and buffer.address == data.address
