"""Holds records that are not written yet: what their features hold, column by column.

A row of a table with 40 columns takes 300 bytes as values, and 940 as a framed record, of
which most is the names of its features. So records that wait in memory for their shard
wait as values, sorted by order key, and are written where the shard is made.

Only with the native extension: they write some rows out of the middle at the same cost for
each row. Features with lists are written at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import Schema
from recordmill.transforms import native
from recordmill.transforms.arrow import (
    I64,
    MAX_CELL_BYTES,
    array_parts,
    binary_array,
    offsets_of,
    require_fit,
    value_offsets,
)
from recordmill.transforms.encode.examples import (
    load_columns,
    measure,
    write_rows,
)
from recordmill.transforms.native import Column
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

# Values are held in place of records if they take at most so much of their bytes.
_MOST_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class UnwrittenRecords:
    """Framed records as the values of their features; made by `load_records`.

    Attributes:
      columns: the features, in the order in which they are written; without lists.
      sizes: bytes of each record's Features message.
      offsets: where each framed record would begin if all were written one behind the
        other, and where the last one would end.
    """

    columns: tuple[Column, ...]
    sizes: I64
    offsets: I64

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        """Returns the bytes of the framed records."""
        return int(self.offsets[-1])

    @property
    def held_bytes(self) -> int:
        """Returns the memory that the values take."""
        return 16 * len(self) + sum(map(_bytes_of, self.columns))

    def write(self, first: int, end: int, target: memoryview) -> None:
        """Writes the framed records from `first` to `end` into their exact room."""
        starts = self.offsets[first : end + 1] - self.offsets[first]
        sizes = self.sizes[first:end]
        native.loops.write(
            list(self.columns), first, sizes, starts, HEAD_BYTES, TAIL_BYTES, target
        )
        native.loops.seal(target, starts)

    def written(self) -> pa.BinaryArray:
        """Returns all records, framed."""
        data = np.empty(self.nbytes, np.uint8)
        self.write(0, len(self), data.data)
        return binary_array(self.offsets, data)

    @classmethod
    def joined(
        cls,
        parts: Sequence[UnwrittenRecords],
        order: npt.NDArray[np.intp] | None = None,
    ) -> UnwrittenRecords | None:
        """Joins records.

        Args:
          parts: of all records.
          order: index of each record of the result among all; None: as they are.

        Returns:
          None if their features have not the same names and types, or if they hold more
          than 2 GiB together, which may be one column.
        """
        features = [[column[:2] for column in part.columns] for part in parts]
        if any(found != features[0] for found in features):
            return None
        if sum(part.held_bytes for part in parts) > MAX_CELL_BYTES:
            return None
        rows = [len(part) for part in parts]
        sizes = np.concatenate([part.sizes for part in parts])
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        # A column at a time: what was joined is still in the cache when it is ordered.
        columns = tuple(
            _joined_column(columns, rows, order)
            for columns in zip(*(part.columns for part in parts), strict=True)
        )
        if order is not None:
            sizes, lengths = sizes.take(order), lengths.take(order)
        return cls(columns, sizes, offsets_of(lengths))


Payloads: TypeAlias = pa.BinaryArray | UnwrittenRecords


def load_records(batch: pa.RecordBatch, schema: Schema) -> Payloads:
    """Returns the examples of a batch, unwritten if that saves memory.

    Those that are written have free room for their frames, like those of `encode`.

    Args:
      batch: the columns that the schema's features name.
      schema: features; a null cell leaves its feature out of the example.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows with a value that a feature cannot hold.
      RecordmillError: the examples together are beyond 2 GiB.
    """
    columns = load_columns(batch, schema.features)
    sizes, lengths = measure(columns, batch.num_rows, HEAD_BYTES + TAIL_BYTES)
    if all(column[4] is None for column in columns):
        unwritten = UnwrittenRecords(tuple(columns), sizes, offsets_of(lengths))
        if unwritten.held_bytes <= _MOST_SHARE * unwritten.nbytes:
            require_fit(unwritten.nbytes)
            return unwritten
    return write_rows(columns, sizes, lengths, HEAD_BYTES, TAIL_BYTES)


def measured_records(columns: list[Column], num_rows: int) -> UnwrittenRecords:
    """Returns the records of features that are loaded already, without lists."""
    sizes, lengths = measure(columns, num_rows, HEAD_BYTES + TAIL_BYTES)
    return UnwrittenRecords(tuple(columns), sizes, offsets_of(lengths))


def payload_offsets(payloads: Payloads) -> I64:
    """Returns where each payload begins among all, and where the last one ends."""
    if isinstance(payloads, UnwrittenRecords):
        return payloads.offsets
    return array_parts(payloads)[0]


def written_payloads(payloads: Payloads) -> pa.BinaryArray:
    """Returns payloads as bytes."""
    if isinstance(payloads, UnwrittenRecords):
        return payloads.written()
    return payloads


def _bytes_of(column: Column) -> int:
    _, _, values, offsets, _, valid = column
    num_bytes: int = 0 if valid is None else valid.nbytes
    if offsets is None:
        num_bytes += values.nbytes
    else:
        num_bytes += offsets.nbytes + int(offsets[-1]) - int(offsets[0])
    return num_bytes


def _cells(column: Column) -> pa.BinaryArray:
    """Returns a column of bytes as an array."""
    _, _, values, offsets, _, _ = column
    assert offsets is not None
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _joined_column(
    columns: Sequence[Column], rows: Sequence[int], order: npt.NDArray[np.intp] | None
) -> Column:
    """Joins the parts of a column, which have so many rows, and orders its values."""
    key, tag, _, offsets, _, _ = columns[0]
    valid = None
    if any(column[5] is not None for column in columns):
        parts = zip(columns, rows, strict=True)
        found = [
            np.ones(n, np.bool_) if each[5] is None else each[5] for each, n in parts
        ]
        valid = np.concatenate(found)
        valid = valid if order is None else valid.take(order)
    if offsets is None:
        values = np.concatenate([column[2] for column in columns])
        values = values if order is None else values.take(order)
        return key, tag, values, None, None, valid
    cells = pa.concat_arrays([_cells(column) for column in columns])
    if order is not None:
        cells = pc.take(cells, pa.array(order), boundscheck=False)
    return key, tag, cells.buffers()[2] or b"", value_offsets(cells), None, valid
