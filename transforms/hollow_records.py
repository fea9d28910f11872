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
from itertools import repeat
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from recordmill.transforms import compiled
from recordmill.transforms.arrow import (
    I64,
    U8,
    array_parts,
    binary_array,
    offsets_of,
    unaligned_rows,
    value_lengths,
)
from recordmill.transforms.combine_crcs import U32, combine_all, combine_each
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    TAIL_BYTES,
    crc32c,
    frame_heads,
    mask_array,
)


@dataclass(frozen=True, slots=True)
class HollowRecords:
    """Framed records, each without the bytes of one large cell.

    Attributes:
      frames: all other bytes, record after record.
      starts: where each record begins in `frames`, and the end of the last one.
      cuts: where each cell belongs in `frames`.
      cells: their bytes.
      crcs: their CRC-32Cs.
      whole_crc: the CRC-32C of all records with their cells, if it is known.
    """

    frames: U8
    starts: I64
    cuts: I64
    cells: Sequence[memoryview]
    crcs: U32
    whole_crc: int | None = None

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

    @property
    def crc32c(self) -> int:
        """Returns the checksum of all bytes; 3 us a record, a pass over 75 kB takes 4."""
        if self.whole_crc is not None:
            return self.whole_crc
        edges = np.concatenate((self.starts[:1], self.cuts, self.starts[-1:]))
        crcs = np.empty(2 * len(self) + 1, np.uint32)
        lengths = np.empty(len(crcs), np.int64)
        crcs[::2] = _crcs_of(self.frames, edges[:-1], edges[1:])
        lengths[::2] = np.diff(edges)
        crcs[1::2] = self.crcs
        lengths[1::2] = _sizes(self.cells)
        return combine_all(crcs, lengths)

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
    cuts, ends, sizes = starts[:-1] + before, starts[1:] - TAIL_BYTES, _sizes(cells)
    if crcs is None:
        crcs = np.fromiter(map(crc32c, cells), np.uint32, len(cells))
    if compiled.loops is not None:
        whole_crc = compiled.loops.seal_around(frames, starts, cuts, sizes, crcs)
        return HollowRecords(frames, starts, cuts, cells, crcs, whole_crc)
    heads = frame_heads(np.diff(starts) - FRAME_BYTES + sizes)
    unaligned_rows(frames, heads.dtype)[starts[:-1]] = heads
    fronts = _crcs_of(frames, starts[:-1] + HEAD_BYTES, cuts)
    data_crcs = _crcs_of(frames, cuts, ends, combine_each(fronts, crcs, sizes))
    unaligned_rows(frames, "<u4")[ends] = mask_array(data_crcs)
    return HollowRecords(frames, starts, cuts, cells, crcs)


def _sizes(cells: Sequence[memoryview]) -> I64:
    return np.array(list(map(len, cells)), np.int64)


def _crcs_of(data: U8, starts: I64, stops: I64, earlier: U32 | None = None) -> U32:
    """Computes the CRC-32C of parts of a buffer, each behind bytes with an earlier CRC."""
    parts = map(data.data.__getitem__, map(slice, starts.tolist(), stops.tolist()))
    # A call for each part: a few dozen bytes take 0.2 us.
    crcs = map(crc32c, parts, repeat(0) if earlier is None else earlier.tolist())
    return np.fromiter(crcs, np.uint32, len(starts))
