"""Reads a part of a file once, and what is asked of it from memory."""

from __future__ import annotations

from recordmill.transforms.sources.csv.row_bounds import Reader

AHEAD_BYTES = 1 << 16  # behind a block: the end of its last row, mostly


def held(
    read: Reader,
    start: int,
    stop: int,
    size: int | None = None,
    data: bytes | None = None,
) -> tuple[bytes, Reader]:
    """Reads a part of a file, and returns it with a reader of the whole file.

    The reader gives what lies in the part without a request. Of what lies partly in it
    only the rest is read.

    Args:
      read: reads bytes of the file; fewer at its end.
      start: first byte of the part.
      stop: one after its last byte.
      size: of the file, if it is known: nothing is read behind it.
      data: the part, if it was read before.
    """
    data = read(start, stop) if data is None else data
    end = start + len(data)

    def read_held(first: int, last: int) -> bytes:
        if first < start or first > end:
            return read(first, last)
        found = data[first - start : last - start]
        if last <= end or end < stop or end == size:  # no more is there
            return found
        return found + read(end, last)

    return data, read_held
