"""Defines what a source gives: rows of an input range, or rows read by references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.input_files import FileChecksum
from recordmill.schemas.ranges import InputRange, OddRows, Reject
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.native.combine_crcs import U32


@dataclass(slots=True)
class Rows:
    """Rows read from one input range.

    Attributes:
      batch: the columns; for references, only what is known without reading a row.
      origins: a hash of each row's origin, the same in every run.
      positions: each row's position in its range, rising (see keys.position_keys).
      raw: row index -> (byte offset in the file, the row's raw bytes); for rejects.
      paths: each row's file, where a range holds several; else () for the range's own.
      planned_bytes: planned bytes of each row, where the plan must not depend on reading.
      rejects: rows that could not be read.
      observed: the type flags of each column, if the source infers types.
      nulls: missing values of each column, in the schema's column order.
      odd: rows that the end of the run tells of.
      groups: a hash for each row, where those with equal ones stay in one split; None:
        `origins`.
      dropped: rows of the input that are neither here nor rejects, because a function
        (`map`) leaves them out.
      added: rows here beside the first that comes from a row of the input.
      checksums: of parts of the input that were read for these rows, and those of no
        row; all `Rows` of a range together name each of its bytes (`tells_checksums`).
      splits: the index of each row's split among `own_splits`, where a column tells it.
    """

    batch: pa.RecordBatch
    origins: U64
    positions: I64
    raw: Callable[[int], tuple[int, bytes]]
    paths: Sequence[str] = ()
    planned_bytes: I64 | None = None
    rejects: list[Reject] = field(default_factory=list)
    observed: tuple[int, ...] = ()
    nulls: tuple[int, ...] = ()
    odd: tuple[OddRows, ...] = ()
    checksums: Sequence[FileChecksum] = ()
    splits: npt.NDArray[np.uint8] | None = None
    groups: U64 | None = None
    dropped: int = 0
    added: int = 0

    @property
    def num_read(self) -> int:
        """Returns how many rows of the input they come from, rejects included."""
        found: int = self.batch.num_rows + len(self.rejects)
        return found + self.dropped - self.added


@dataclass(slots=True)
class ReferencedRows:
    """Rows read by reference.

    Attributes:
      batch: the columns of the rows that could be read.
      kept: the indices of their references.
      rejects: the other rows.
      raw: row index -> (path, byte offset in the file, the row's raw bytes).
      observed: the type flags of what was read, as in `Rows`.
      odd: rows that the end of the run tells of.
      checksums: of the files that were read, if `list_references` did not read them.
      view_crcs: the CRC-32C of each value of the batch's only column of views (see
        recordmill.transforms.arrow), or None.
      view_values: these values, where they are known apart from the batch.
    """

    batch: pa.RecordBatch
    kept: I64
    rejects: list[Reject]
    raw: Callable[[int], tuple[str, int, bytes]]
    observed: tuple[int, ...] = ()
    odd: tuple[OddRows, ...] = ()
    checksums: Sequence[FileChecksum] = ()
    view_crcs: U32 | None = None
    view_values: Sequence[bytes] | None = None


def without_rows(rows: Rows, reasons: dict[int, str], input_range: InputRange) -> Rows:
    """Returns the rows without some, which are rejects."""
    kept: I64 = np.delete(np.arange(rows.batch.num_rows), list(reasons))
    rejects = []
    for row in sorted(reasons):
        path = rows.paths[row] if rows.paths else input_range.path
        position, raw = rows.raw(row)
        rejects.append(Reject(path, position, reasons[row], raw))
    return replace(
        rows,
        batch=rows.batch.take(pa.array(kept)),
        origins=rows.origins[kept],
        positions=rows.positions[kept],
        raw=lambda row: rows.raw(int(kept[row])),
        paths=[rows.paths[row] for row in kept] if rows.paths else (),
        rejects=[*rows.rejects, *rejects],
        splits=None if rows.splits is None else rows.splits[kept],
    )
