"""What every source offers: list, cut, read. One file per format implements it.

A source is a frozen value: building one touches no storage, and it travels to the
workers pickled. `prepare` is the one step that looks at the input before the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from schemas.features import Schema
from schemas.ranges import InputFile, InputRange, Reject
from transforms.wire import I64, U64

RANGE_BYTES = 16 << 20  # input of one task; fixes the cut, so never depends on workers
BATCH_BYTES = 64 << 20  # estimated records of one batch


@dataclass(slots=True)
class Rows:
    """Rows read from one input range.

    Attributes:
      batch: the columns; for a source by reference, only what is known unread.
      origins: a hash of each row's origin, the same on every run.
      places: each row's position in its range, rising (see keys.position_keys).
      raw: row index -> (byte offset in the file, the row's raw bytes); for rejects.
      weights: planned bytes of each row, where the plan must not depend on reading.
      rejects: rows that never made it into the batch.
      observed: what each column was seen to hold (csv), else empty.
      nulls: missing values of each column, in the schema's column order.
    """

    batch: pa.RecordBatch
    origins: U64
    places: I64
    raw: Callable[[int], tuple[int, bytes]]
    weights: I64 | None = None
    rejects: list[Reject] = field(default_factory=list)
    observed: tuple[int, ...] = ()
    nulls: tuple[int, ...] = ()


class Source(ABC):
    """One input format."""

    by_reference = False  # whether a file is a record whose size is known unread

    @abstractmethod
    def prepare(self, files: Sequence[InputFile]) -> Self:
        """The source with what it must know of the whole input (headers, classes).

        Raises:
          InputError: the input cannot be of this format.
        """

    @abstractmethod
    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        """The input ranges, by constants alone; files this format leaves out, aside."""

    def survey(self, spot: InputRange) -> int:
        """A number learnt from a range before ranges can be read (0: nothing)."""
        return 0

    @property
    def needs_survey(self) -> bool:
        return False

    def settle(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """The ranges with what the surveys told; both in range order."""
        return list(ranges)

    def sample(self, spot: InputRange) -> tuple[int, ...]:
        """What the columns of a few rows of a range hold, as `Rows.observed`."""
        return ()

    @abstractmethod
    def schema(
        self, observed: tuple[int, ...] = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        """The features, given what the columns were observed to hold."""

    def touched(
        self, observed: tuple[int, ...], used: tuple[int, ...], final: tuple[int, ...]
    ) -> bool:
        """Whether a range encoded for `used` must be redone for `final`."""
        return False

    @abstractmethod
    def read(self, spot: InputRange, expected: tuple[int, ...]) -> Iterator[Rows]:
        """Reads a range.

        Args:
          spot: the range.
          expected: what each column is taken for, bits as in `Rows.observed`.
        """

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        """An upper estimate of all records' bytes; fixes the histogram's grain."""
        return sum(file.size for file in files)


def number_ranges(parts: Sequence[tuple[InputFile, int, int, str]]) -> list[InputRange]:
    """Input ranges from (file, start, stop, split) in input order."""
    total = sum(stop - start for _, start, stop, _ in parts)
    ranges = []
    position = 0
    for index, (file, start, stop, split) in enumerate(parts):
        ranges.append(
            InputRange(index, file.path, file.uri, start, stop, position, total, split)
        )
        position += stop - start
    return ranges
