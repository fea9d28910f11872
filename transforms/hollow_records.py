"""Frames records around large cells that are not copied: a picture's bytes.

A picture of 75 kB is nearly all of its record. To join it with the rest, and to copy that
to where it is framed, took more time than to read it. So a hollow record is made without
it, and the two are put together where they are written. Two records:

    frames   h h h h e e|e e t t h h h h e e e|e t t     h head, e example, t tail
    cuts                6                    17          | where each cell belongs
    cells    "first picture", "second picture"

The cells are not even read again for checksums: that of a record, and that of its file,
are combined from the cell's own, which is known, and those of the few bytes around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recordmill.transforms import native
from recordmill.transforms.arrow import (
    I64,
    U8,
    array_parts,
    binary_array,
    offsets_of,
    value_lengths,
)
from recordmill.transforms.native.combine_crcs import U32
from recordmill.transforms.tfrecord import crc32c


@dataclass(frozen=True, slots=True)
class HollowRecords:
    """Framed records, each without the bytes of one large cell.

    Attributes:
      frames: all other bytes, record after record.
      starts: where each record begins in `frames`, and the end of the last one.
      cuts: where each cell belongs in `frames`.
      cells: their bytes.
      crc32c: the CRC-32C of all records with their cells.
    """

    frames: U8
    starts: I64
    cuts: I64
    cells: Sequence[memoryview]
    crc32c: int

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


def window_crc(window: Window) -> int:
    """Returns the CRC-32C of all bytes of a window."""
    if isinstance(window, HollowRecords):
        return window.crc32c
    (body,) = pieces_of(window)
    return crc32c(body)


def pieces_of(window: Window) -> Iterator[memoryview]:
    """Yields the bytes of a window in order, in as few pieces as there are."""
    if isinstance(window, HollowRecords):
        yield from window.pieces()
    else:
        offsets, data = array_parts(window)
        yield data.data[offsets[0] : offsets[-1]]


def seal_around(
    framed: pa.BinaryArray,
    before: I64,
    cells: Sequence[memoryview],
    crcs: U32 | None = None,
) -> HollowRecords:
    """Writes lengths and checksums into the free bytes around every hollow example.

    Args:
      framed: rows of 12 free bytes, the example without its cell, 4 free bytes. The
        buffer is changed in place, so nothing else may use it.
      before: bytes of each row that stand before its cell.
      cells: of the rows.
      crcs: the CRC-32Cs of the cells; None to compute them.
    """
    starts, frames = array_parts(framed)
    cuts, sizes = starts[:-1] + before, _sizes(cells)
    if crcs is None:
        crcs = np.fromiter(map(crc32c, cells), np.uint32, len(cells))
    whole_crc = native.loops.seal_around(frames, starts, cuts, sizes, crcs)
    return HollowRecords(frames, starts, cuts, cells, whole_crc)


def _sizes(cells: Sequence[memoryview]) -> I64:
    return np.array(list(map(len, cells)), np.int64)
