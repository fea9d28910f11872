"""Reads the block of a range of a CSV file with the rest of its last row, and cuts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.schemas.input_files import FileChecksum
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.csv.broken_rows import (
    KEPT_BYTES,
    MAX_ROW_BYTES,
    masked,
)
from recordmill.transforms.sources.csv.dialect import Dialect
from recordmill.transforms.sources.csv.held_bytes import AHEAD_BYTES, held
from recordmill.transforms.sources.csv.quote_states import end_state
from recordmill.transforms.sources.csv.range_parts import ends_early
from recordmill.transforms.sources.csv.row_bounds import Reader, row_start
from recordmill.transforms.sources.csv.states import QuoteState
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

_FIRST_ROW_BYTES = 1 << 14  # mostly more than is left of a row before a sample


@dataclass(frozen=True, slots=True)
class RangeBody:
    """The rows of a range, where they lie in what was read: the block is not copied.

    Attributes:
      data: what was read.
      first: where the first row begins in it.
      stop: where the last one ends.
      is_whole: whether the last one is whole.
    """

    data: bytes
    first: int
    stop: int
    is_whole: bool

    def __len__(self) -> int:
        return self.stop - self.first

    def part(self, start: int, stop: int) -> bytes:
        """Returns a part; positions count from the first row."""
        return self.data[self.first + start : min(self.first + stop, self.stop)]


def hold_sample(file: Reader, input_range: InputRange, max_bytes: int) -> Reader:
    """Reads the first rows of a range in the middle of a file by one request, mostly.

    Args:
      file: reads the range's file.
      input_range: the range.
      max_bytes: that are wanted from the first row on.

    Returns:
      A reader of the whole file that gives these, and the bytes before, from memory.
    """
    start, seen = input_range.start, input_range.seen
    stop = start + max_bytes + _FIRST_ROW_BYTES
    size = seen.size if seen is not None else None
    if size is not None:
        stop = min(stop, size)
    return held(file, start - 1, stop, size)[1]


def read_small_file(
    input_range: InputRange, storage: StorageOptions, checksums: list[FileChecksum]
) -> bytes:
    """Returns the bytes of a file that is one range.

    Args:
      input_range: the range.
      storage: options of the file's storage.
      checksums: is given that of the bytes.

    Raises:
      ChangedInputError: the file is shorter than it was.
    """
    size = input_range.stop
    data = read_range(input_range.uri, 0, size, storage, input_range.seen)
    if len(data) < size:
        raise ends_early(input_range, len(data))
    checksums.append(FileChecksum(input_range.path, 0, size, crc32c(data)))
    return data


def hold_block(
    file: Reader, input_range: InputRange, checksums: list[FileChecksum]
) -> tuple[bytes, Reader]:
    """Reads a block by one request, with what is mostly left of its last row.

    Args:
      file: reads the range's file.
      input_range: the range.
      checksums: is given that of the block.

    Returns:
      The bytes from `held_from` the block on, and a reader of the whole file that gives
      these from memory.

    Raises:
      ChangedInputError: the file is shorter than it was.
    """
    start, stop, seen = input_range.start, input_range.stop, input_range.seen
    ahead = stop + AHEAD_BYTES * (input_range.quoted[1] != 0)
    if seen is not None:
        ahead = min(ahead, max(stop, seen.size))
    size = seen.size if seen is not None else None
    begin = held_from(input_range)
    data, read = held(file, begin, ahead, size)
    if begin + len(data) < stop:
        raise ends_early(input_range, begin + len(data))
    # The whole block, though its first bytes belong to a row of the one before: so
    # the checksums of all blocks join.
    crc = crc32c(memoryview(data)[start - begin : stop - begin])
    checksums.append(FileChecksum(input_range.path, start, stop, crc))
    return data, read


def held_from(input_range: InputRange) -> int:
    r"""Returns where `hold_block` begins to read: at the \r or \n before the block."""
    return max(0, input_range.start - 1)


def body_of(
    input_range: InputRange,
    begin: int,
    data: bytes,
    read: Reader,
    dialect: Dialect,
) -> RangeBody:
    """Returns the rows of a range.

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
    held_at = held_from(input_range)
    if end - held_at <= len(data) and not begin <= input_range.unclosed < end:
        return RangeBody(data, begin - held_at, end - held_at, is_whole)
    body = masked(read, input_range.unclosed, dialect)(begin, end)
    if len(body) < end - begin:
        raise ends_early(input_range, begin + len(body))
    return RangeBody(body, 0, len(body), is_whole)


def cut_batches(
    body: RangeBody, dialect: Dialect, batch_bytes: int
) -> Iterator[tuple[int, int]]:
    """Cuts a range at row starts into batches small enough for the processor's cache."""
    start = 0
    while start < len(body):
        stop = min(start + batch_bytes, len(body))
        if stop < len(body):
            first, end = body.first + start, body.first + stop
            state = end_state(body.data, None, dialect, first, end)
            found = row_start(body.part, stop, state, len(body), dialect)
            stop = len(body) if found is None else found
        yield start, stop
        start = stop
