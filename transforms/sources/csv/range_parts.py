"""Defines a part of a range of a CSV file, and says what is wrong with a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.arrow import I64
from recordmill.transforms.sources.csv.split_cells import Parsed


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Some rows of a range, split into cells.

    Attributes:
      parsed: the rows.
      rows_before: rows of the range before them, rejects counted.
      start, stop: their bytes, counted from the range's first row.
      range_bytes: bytes of all rows of the range.
    """

    parsed: Parsed
    rows_before: int
    start: int
    stop: int
    range_bytes: int

    def positions(self, parsed: Parsed, num_positions: int) -> I64:
        """Returns about where each row starts within a range of so many positions.

        It is scaled to the range, because its last row may reach beyond it. Short rows
        may share a position, in order. 4 rows in 80 bytes, of a range of 64: offsets
        0 20 40 60, positions 0 16 32 48.
        """
        size = self.stop - self.start
        offsets = parsed.ordinals * size // max(1, parsed.num_rows)
        return (self.start + offsets) * num_positions // self.range_bytes


def ends_early(input_range: InputRange, end: int) -> ChangedInputError:
    """Returns the error of a file that is shorter than it was."""
    return ChangedInputError(
        f"{input_range.uri}: ends at byte {end}, but had {input_range.stop} bytes when "
        "the run began; did it change meanwhile?"
    )


def columns_differ(uri: str, names: Sequence[str], columns: Sequence[str]) -> str:
    """Describes how the columns of a file differ from those of the first one."""
    missing = sorted(set(columns) - set(names))
    extra = sorted(set(names) - set(columns))
    found = [f"lacks {', '.join(missing)}"] if missing else []
    found += [f"also has {', '.join(extra)}"] if extra else []
    return (
        f"{uri}: its columns differ from those of the first file: it "
        f"{' and '.join(found)}; all files of one dataset need the same columns"
    )
