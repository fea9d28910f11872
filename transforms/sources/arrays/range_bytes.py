"""Tells which bytes of its files a range of rows stands for, and their checksums.

A file whose rows follow each other is read once, by the ranges of its rows: what stands
before the first row belongs to the first range, what follows the last row to the last one.
Of another file (compressed, with several arrays, in Fortran order) each range tells a
share, whatever the bytes hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import U8
from recordmill.transforms.sources.arrays.row_arrays import Part, RowArray
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

_STEP_BYTES = 4 << 20


def rows_of(part: Part, input_range: InputRange) -> tuple[int, int]:
    """Returns the first row of a range, and one after its last."""
    first = max(0, input_range.start - part.first) // part.scale
    last = min(part.num_rows, (input_range.stop - part.first) // part.scale)
    return first, max(first, last)


@dataclass(frozen=True)
class PartIndex:
    """The parts of an input by their files.

    Attributes:
      parts: all of them.
    """

    parts: tuple[Part, ...]

    @cached_property
    def _by_first(self) -> dict[str, list[Part]]:
        found: dict[str, list[Part]] = {}
        for part in self.parts:
            found.setdefault(part.file.path, []).append(part)
        return found

    @cached_property
    def _by_file(self) -> dict[str, list[Part]]:
        found: dict[str, list[Part]] = {}
        for part in self.parts:
            for path in {array.file.path for array in part.arrays}:
                found.setdefault(path, []).append(part)
        return found

    @cached_property
    def _users(self) -> Counter[str]:
        return Counter(a.file.path for part in self.parts for a in part.arrays)

    def part_of(self, input_range: InputRange) -> Part:
        """Returns the part that a range is of."""
        for part in self._by_first.get(input_range.path, ()):
            if part.stop >= input_range.stop:
                return part
        raise ValueError(f"{input_range.uri}: no part holds {input_range.stop}")

    def read_as_it_stands(self, array: RowArray) -> bool:
        """Tells whether the ranges of rows read each byte of an array's file once."""
        return self._users[array.file.path] == 1 and array.is_sequential

    def share(
        self, file: InputFile, part: Part, first: int, last: int
    ) -> tuple[int, int]:
        """Returns the bytes of a file whose checksum some rows of a part tell.

        Of a file with two parts of 100 and 300 rows, those of the first one tell the
        first quarter.
        """
        parts = self._by_file[file.path]
        total = sum(each.num_rows for each in parts)
        before = sum(each.num_rows for each in parts[: parts.index(part)])
        start = file.size * (before + first) // total
        return start, file.size * (before + last) // total


class RangeChecksums:
    """Computes the checksums of what a range stands for, while its rows are read.

    Attributes:
      tail: bytes after the last row of the first array, in the last range.
    """

    def __init__(
        self,
        index: PartIndex,
        part: Part,
        input_range: InputRange,
        storage: StorageOptions,
    ) -> None:
        self._index, self._part, self._storage = index, part, storage
        self._rows = rows_of(part, input_range)
        self._crcs: dict[int, int] = {}
        self.tail = b""
        for number, array in enumerate(part.arrays):
            if index.read_as_it_stands(array):
                begin, _ = self._bytes_of(array)
                first_row = array.start + self._rows[0] * array.row_bytes
                head = read_exactly(array.file, begin, first_row, storage)
                self._crcs[number] = crc32c(head, 0)

    def _bytes_of(self, array: RowArray) -> tuple[int, int]:
        """Returns the bytes of a file that belong to the rows."""
        first, last = self._rows
        begin = array.start + first * array.row_bytes if first else 0
        is_end = last == self._part.num_rows
        end = array.file.size if is_end else array.start + last * array.row_bytes
        return begin, end

    def add(self, found: Sequence[U8]) -> None:
        """Adds rows of all arrays that were read."""
        for number, crc in self._crcs.items():
            self._crcs[number] = crc32c(found[number].data, crc)

    def finish(self) -> Iterator[FileChecksum]:
        """Reads what no row is made of, and yields the checksums."""
        told = set()
        for number, array in enumerate(self._part.arrays):
            path = array.file.path
            if number in self._crcs:
                begin, end = self._bytes_of(array)
                last_row = array.start + self._rows[1] * array.row_bytes
                rest = read_exactly(array.file, last_row, end, self._storage)
                self.tail = self.tail or rest
                crc = crc32c(rest, self._crcs[number])
                yield FileChecksum(path, begin, end, crc)
            elif path not in told:
                told.add(path)
                share = self._index.share(array.file, self._part, *self._rows)
                yield checksum_of(array.file, *share, self._storage)


def checksum_of(
    file: InputFile, start: int, stop: int, storage: StorageOptions
) -> FileChecksum:
    """Reads a part of a file for its checksum."""
    crc = 0
    for begin in range(start, stop, _STEP_BYTES):
        end = min(begin + _STEP_BYTES, stop)
        crc = crc32c(read_exactly(file, begin, end, storage), crc)
    return FileChecksum(file.path, start, stop, crc)


def read_exactly(
    file: InputFile, start: int, stop: int, storage: StorageOptions
) -> bytes:
    """Returns bytes of a file.

    Raises:
      ChangedInputError: it ends before.
      InputError: it cannot be read.
    """
    data = read_range(file.uri, start, stop, storage, file.seen)
    if len(data) < stop - start:
        raise ChangedInputError(
            f"{file.uri}: ends at byte {start + len(data)}, but had {file.size} bytes when "
            "the run began; did it change meanwhile?"
        )
    return data
