"""Reads rows and parts from anywhere in a file into an array."""

from __future__ import annotations

import os

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from recordmill.schemas.archive_member import member_of
from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.ranges import Seen
from recordmill.transforms import compiled
from recordmill.transforms.arrow import I64, U8
from recordmill.transforms.storage.read_local import path_text, require_seen
from recordmill.transforms.storage.reading import is_local, read_range
from recordmill.transforms.storage.row_spans import row_spans
from recordmill.transforms.storage.storage_errors import input_error


def read_rows(
    uri: str,
    offsets: I64,
    target: U8,
    positions: I64,
    options: StorageOptions = NO_OPTIONS,
    seen: Seen | None = None,
) -> None:
    """Reads rows of equal length from scattered offsets of a file.

    Args:
      uri: the file.
      offsets: byte offset of each row.
      target: array of shape (rows, bytes of a row).
      positions: row of `target` that each is copied to.
      options: for the storage of the inputs.
      seen: what the file has to be, or None; see `can_read_version`.

    Raises:
      ChangedInputError: it is another one by now, or ends before a row does.
      InputError: the file cannot be read.
    """
    size = target.shape[1]
    if is_local(uri) and not (seen is not None and member_of(seen.version)):
        lengths = np.full(len(offsets), size, np.int64)
        gather_parts(uri, offsets, lengths, target.reshape(-1), positions * size, seen)
        return
    for rows, start, stop in row_spans(offsets, size):
        data = np.frombuffer(read_range(uri, start, stop, options, seen), np.uint8)
        if len(data) < stop - start:
            raise _cut_short(uri, stop)
        target[positions[rows]] = sliding_window_view(data, size)[offsets[rows] - start]


def gather_parts(
    uri: str, offsets: I64, lengths: I64, target: U8, starts: I64, seen: Seen | None
) -> None:
    """Reads parts of different lengths from anywhere in a file of this machine.

    Args:
      uri: the file.
      offsets: byte offset of each part.
      lengths: its bytes.
      target: what they are copied to.
      starts: where each begins there.
      seen: what the file has to be, or None.

    Raises:
      ChangedInputError: it is another one by now, or ends before a part does.
      InputError: the file cannot be read.
    """
    try:
        # A window of rows lies in dozens of files: a pathlib.Path takes longer than this.
        descriptor = os.open(path_text(uri), os.O_RDONLY)
        try:
            short = _gather(descriptor, offsets, lengths, target, starts)
            require_seen(descriptor, uri, seen)  # tells more
            if short >= 0:
                raise _cut_short(uri, int(offsets[short] + lengths[short]))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise input_error(error, f"{uri}: cannot be read: {error}") from error


def _gather(
    descriptor: int, offsets: I64, lengths: I64, target: U8, starts: I64
) -> int:
    """Returns the first part that the file does not hold, or -1."""
    if compiled.loops is not None:
        return compiled.loops.gather(descriptor, offsets, starts, lengths, target)
    parts = zip(offsets.tolist(), lengths.tolist(), starts.tolist(), strict=True)
    for number, (offset, length, start) in enumerate(parts):
        part = target.data[start : start + length]
        if length and os.preadv(descriptor, [part], offset) != length:
            return number
    return -1


def _cut_short(uri: str, stop: int) -> ChangedInputError:
    return ChangedInputError(
        f"{uri}: ends before byte {stop}; it was longer when the run began. Do not "
        "change inputs during a run; run again"
    )
