"""What every source offers: list, cut, read. One file per format implements it.

A source is a frozen value: building one touches no storage, and it travels to the
workers pickled. `prepare` is the one step that looks at the input before the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Self

import pyarrow as pa

from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile, InputRange, Reject
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.storage import Store

REFERENCE = "reference"  # the column of references
RANGE_BYTES = 16 << 20  # input of one task; fixes the cut, so never depends on workers


@dataclass(slots=True)
class Rows:
    """Rows read from one input range.

    Attributes:
      batch: the columns; for a source by reference, only what is known unread.
      origins: a hash of each row's origin, the same on every run.
      places: each row's position in its range, rising (see keys.position_keys).
      raw: row index -> (byte offset in the file, the row's raw bytes); for rejects.
      planned_bytes: planned bytes of each row, where the plan must not depend on reading.
      rejects: rows that never made it into the batch.
      observed: what each column was seen to hold (csv), else empty.
      nulls: missing values of each column, in the schema's column order.
    """

    batch: pa.RecordBatch
    origins: U64
    places: I64
    raw: Callable[[int], tuple[int, bytes]]
    planned_bytes: I64 | None = None
    rejects: list[Reject] = field(default_factory=list)
    observed: tuple[int, ...] = ()
    nulls: tuple[int, ...] = ()


@dataclass(slots=True)
class ReferencedRows:
    """Rows read by reference.

    Attributes:
      batch: the columns of the rows that could be read.
      kept: their places among the references.
      rejects: the others.
      raw: row index -> (path, byte offset in the file, the row's raw bytes).
    """

    batch: pa.RecordBatch
    kept: I64
    rejects: list[Reject]
    raw: Callable[[int], tuple[str, int, bytes]]


class Source(ABC):
    """One input format."""

    storage: StorageOptions  # of the inputs' storage
    supports_references = (
        False  # whether `list_references` and `read_references` are there
    )
    sizes_known_upfront = (
        False  # whether the plan counts file sizes, known without reading
    )

    @property
    def infers_types(self) -> bool:
        """Whether `sample`, `Rows.observed` and `needs_reencode` mean something."""
        return False

    @abstractmethod
    def prepare(self, files: Sequence[InputFile]) -> Self:
        """The source with what it must know of the whole input (headers, classes).

        Raises:
          InputError: the input cannot be of this format.
        """

    @abstractmethod
    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        """The source that reads the new files as if they stood beside the others.

        Args:
          kept: the files that were converted before, as they are still there.
          new: those to convert now; the only ones that `cut` may cut.
          schema: of the dataset that is there; None if the job declares it.

        Raises:
          InputError: the new files cannot be of one data set with the others.
        """

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Names and types of the columns that `read` gives, known once prepared."""

    @abstractmethod
    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        """The input ranges, by constants alone; files this format leaves out, aside."""

    def needs_survey(self, ranges: Sequence[InputRange]) -> bool:
        """Whether these ranges can be read only after a survey of each."""
        return False

    def survey(self, input_range: InputRange) -> int:
        """A number learnt from a range before ranges can be read (0: nothing)."""
        return 0

    def resolve_ranges(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """The ranges with what the surveys told; both in range order."""
        return list(ranges)

    def sample(self, input_range: InputRange) -> tuple[int, ...]:
        """What the columns of a few rows of a range hold, as `Rows.observed`."""
        return ()

    @abstractmethod
    def schema(
        self, observed: tuple[int, ...] = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        """The features, given what the columns were observed to hold."""

    def needs_reencode(
        self, observed: tuple[int, ...], used: tuple[int, ...], final: tuple[int, ...]
    ) -> bool:
        """Whether a range encoded for `used` must be redone for `final`."""
        return False

    @abstractmethod
    def read(
        self, input_range: InputRange, expected: tuple[int, ...]
    ) -> Iterator[Rows]:
        """Reads a range.

        Args:
          input_range: the range.
          expected: what each column is taken for, bits as in `Rows.observed`; a batch
            has the types that this asks for together with all batches so far.
        """

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Whether rows travel best by reference here; never if they cannot."""
        return False

    def list_references(self, input_range: InputRange) -> Iterator[Rows]:
        """References to a range's rows instead of the rows, in column REFERENCE.

        The other columns are those by which rows can be told apart unread. Only where
        `supports_references`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no references")

    def read_references(self, references: pa.BinaryArray) -> ReferencedRows:
        """Reads the rows that `list_references` referred to."""
        raise NotImplementedError(f"{type(self).__name__} has no references")

    def spill_inventory(self, store: Store, name: str) -> Self:
        """The source with what is large and workers need put into a file of a store."""
        return self

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        """Small parts of the input, spread over it, that can be read each alone."""
        return list(ranges[:: -(-len(ranges) // 4)])

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        """An upper estimate of all records' bytes; fixes the histogram's grain."""
        return sum(file.size for file in files)


def spread_evenly(
    ranges: Sequence[InputRange], count: int, size: int
) -> list[InputRange]:
    """Parts of the same size, spread evenly over all ranges; none reaches into two.

    Args:
      ranges: what to look at.
      count: how many parts; fewer where ranges are small.
      size: of a part, in the ranges' unit; parts begin at multiples of it.
    """
    ends = list(accumulate(input_range.num_positions for input_range in ranges))
    parts: dict[tuple[int, int], InputRange] = {}
    for number in range(count):
        place = ends[-1] * (2 * number + 1) // (2 * count)
        index = bisect_right(ends, place)
        input_range = ranges[index]
        inside = place - (ends[index] - input_range.num_positions)
        start = input_range.start + inside // size * size
        parts[index, start] = replace(
            input_range,
            start=start,
            stop=min(start + size, input_range.stop),
            first_position=input_range.first_position + start - input_range.start,
        )
    return list(parts.values())


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
