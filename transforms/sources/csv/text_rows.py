"""Defines the rows of a CSV range as text, of whichever files they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from recordmill.schemas.input_files import FileChecksum
from recordmill.schemas.ranges import OddRows, Reject
from recordmill.transforms.arrow import I64, U64


@dataclass(frozen=True, slots=True)
class TextRows:
    """Some rows of a range, split into cells.

    Attributes:
      table: the cells as text; without a column if no row is there.
      num_bytes: of the text, at most.
      origins, positions, raw, paths: of the rows, as in `Rows`.
      rejects: rows that could not be split.
      checksums: of what was read for these rows.
      odd: lines that are comments.
    """

    table: pa.Table
    num_bytes: int
    origins: U64
    positions: I64
    raw: Callable[[int], tuple[int, bytes]]
    paths: Sequence[str] = ()
    rejects: list[Reject] = field(default_factory=list)
    checksums: Sequence[FileChecksum] = ()
    odd: tuple[OddRows, ...] = ()

    @classmethod
    def nothing(cls, checksums: Sequence[FileChecksum]) -> TextRows:
        """Returns no row, but the checksums of what was read."""
        none = np.empty(0, np.int64)
        return cls(
            pa.table({}), 0, none.view(np.uint64), none, _no_row, checksums=checksums
        )

    @property
    def is_nothing(self) -> bool:
        return bool(self.table.num_columns == 0)

    def select(self, kept: I64) -> TextRows:
        """Returns some of the rows, and all rejects."""
        return replace(
            self,
            table=self.table.take(pa.array(kept)),
            origins=self.origins[kept],
            positions=self.positions[kept],
            raw=lambda row: self.raw(int(kept[row])),
            paths=[self.paths[row] for row in kept.tolist()] if self.paths else (),
        )


def _no_row(row: int) -> tuple[int, bytes]:
    raise IndexError(f"there is no row {row}")
