"""Makes rows of the frames of a window: positions, origins, rejects, raw bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.arrow import I64, binary_array
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.sources.tfrecord.file_bytes import FileBytes
from recordmill.transforms.sources.tfrecord.read_frames import FrameWindow
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

_NO_BATCH = pa.record_batch([pa.array([], pa.binary())], [""])


def rows_of(
    window: FrameWindow, input_range: InputRange, file: FileBytes, before: int
) -> Rows:
    """Makes the rows of a window, whose batch is still to be set.

    A record's origin is its file and its offset in it, however the file is cut.

    Args:
      window: frames of the range.
      input_range: the range.
      file: its bytes.
      before: bytes of the file that were read before this window.
    """
    positions = window.offsets - input_range.start
    if file.is_packed:  # about where they are in the file, as their offsets are not
        num_rows = len(window.starts)
        span = file.consumed - before
        positions = before + np.arange(num_rows, dtype=np.int64) * span // max(
            1, num_rows
        )
        positions = np.minimum(positions, max(0, file.consumed - 1))
    return Rows(
        batch=_NO_BATCH,
        origins=origins_in(input_range.path, 0, window.offsets),
        positions=positions,
        raw=window.raw,
        rejects=[
            Reject(input_range.path, lost.offset, lost.reason, lost.raw)
            for lost in window.lost
        ],
    )


def without_frames(window: FrameWindow) -> pa.BinaryArray:
    """Returns the data of the frames."""
    starts = window.starts + HEAD_BYTES
    ends = window.starts + window.lengths - TAIL_BYTES
    if not len(starts):
        return pa.array([], pa.binary())
    # Rows that stand for what is around: data, frame, data, frame, ...
    edges = np.column_stack([starts, ends]).ravel()
    return binary_array(edges, window.data).take(pa.array(_even(len(edges))))


def _even(count: int) -> I64:
    return np.arange(0, count, 2)


def without_rejects(
    rows: Rows, reasons: Mapping[int, str], window: FrameWindow, path: str
) -> Rows:
    """Returns rows whose batch is set without those that became rejects."""
    if reasons:
        mask = np.ones(rows.batch.num_rows, np.bool_)
        mask[list(reasons)] = False
        kept = np.flatnonzero(mask)
        rejected = [Reject(path, *_at(window, row, reasons)) for row in sorted(reasons)]
        rows.batch = rows.batch.filter(pa.array(mask))
        rows.origins, rows.positions = rows.origins[mask], rows.positions[mask]
        rows.raw = lambda row: window.raw(int(kept[row]))
        rows.rejects = sorted(
            rows.rejects + rejected, key=lambda reject: reject.position
        )
    rows.nulls = tuple(column.null_count for column in rows.batch.columns)
    return rows


def _at(
    window: FrameWindow, row: int, reasons: Mapping[int, str]
) -> tuple[int, str, bytes]:
    offset, raw = window.raw(row)
    return offset, reasons[row], raw
