"""Reads the block of a range of a CSV file, and the rest of its last row."""

from __future__ import annotations

from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.csv.broken_rows import (
    KEPT_BYTES,
    MAX_ROW_BYTES,
    masked,
)
from recordmill.transforms.sources.csv.dialect import Dialect
from recordmill.transforms.sources.csv.held_bytes import AHEAD_BYTES, held
from recordmill.transforms.sources.csv.range_parts import ends_early
from recordmill.transforms.sources.csv.row_bounds import Reader, row_start
from recordmill.transforms.sources.csv.states import QuoteState
from recordmill.transforms.tfrecord import crc32c


def hold_block(
    file: Reader, input_range: InputRange, checksums: list[FileChecksum]
) -> tuple[memoryview, Reader]:
    """Reads a block by one request, with what is mostly left of its last row.

    Args:
      file: reads the range's file.
      input_range: the range.
      checksums: is given that of the block.

    Returns:
      The bytes from the block's start on, and a reader of the whole file that gives
      these, and the one before them, from memory.

    Raises:
      ChangedInputError: the file is shorter than it was.
    """
    start, stop, seen = input_range.start, input_range.stop, input_range.seen
    before = min(1, start)  # \r or \n in front of the block
    ahead = stop + AHEAD_BYTES * (input_range.quoted[1] != 0)
    if seen is not None:
        ahead = min(ahead, max(stop, seen.size))
    size = seen.size if seen is not None else None
    window, read = held(file, start - before, ahead, size)
    data = memoryview(window)[before:]
    if len(data) < stop - start:
        raise ends_early(input_range, start + len(data))
    # The whole block, though its first bytes belong to a row of the one before: so
    # the checksums of all blocks join.
    crc = crc32c(data[: stop - start])
    checksums.append(FileChecksum(input_range.path, start, stop, crc))
    return data, read


def body_of(
    input_range: InputRange,
    begin: int,
    data: memoryview,
    read: Reader,
    dialect: Dialect,
) -> tuple[bytes, bool]:
    """Returns the bytes of a range's rows, and whether the last one is whole.

    Args:
      input_range: the range.
      begin: where its first row starts.
      data, read: as `hold_block` returns them.
      dialect: of the file.
    """
    end: int | None = input_range.stop
    if input_range.quoted[1]:
        state = QuoteState(input_range.quoted[1])
        found = masked(read, input_range.unclosed, dialect)
        end = row_start(found, input_range.stop, state, MAX_ROW_BYTES, dialect)
    is_whole = end is not None
    end = input_range.stop + KEPT_BYTES if end is None else end
    start = input_range.start

    def in_block(first: int, last: int) -> bytes:
        if last - start <= len(data):
            return bytes(data[first - start : last - start])
        return read(first, last)

    body = masked(in_block, input_range.unclosed, dialect)(begin, end)
    if len(body) < end - begin:
        raise ends_early(input_range, begin + len(body))
    return body, is_whole
