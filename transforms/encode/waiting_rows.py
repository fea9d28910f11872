"""Holds records that are not written yet: what their features hold, column by column.

A row of a table with 40 columns takes 300 bytes as values, and 940 as a framed record, of
which most is the names of its features. So records that wait in memory for their shard
wait as values, sorted by order key, and are written where the shard is made.

Features with lists are written at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.feature_spec import Kind, Schema
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
    TAGS,
    load_columns,
    measure,
    write_rows,
)
from recordmill.transforms.native import Buffer, Column
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


# Packed values are what goes through a runner's shuffle in place of records: a third of
# their bytes (see UnwrittenRecords).
#
#     u32 bytes of the description | description | column | column | ...
#
# The description has for each column
#
#     u8 kind | u8 bytes of a number | u8 may be missing | u32 bytes of the name | name
#
# and a column holds, for the packed rows,
#
#     a bit for each row, 0 where the feature is missing     if it may be missing
#     a u32 for each row, the length of its value            if it holds bytes
#     the values                                             numbers, or bytes end to end
#
# All little-endian. Integers have as few bytes as the largest of a block needs.

_FACTS = struct.Struct("<BBBI")
_LENGTH = struct.Struct("<I")
_INTEGERS = tuple(np.dtype(f"<i{width}") for width in (1, 2, 4, 8))


@dataclass(frozen=True, slots=True)
class _ColumnFacts:
    """What the description says of a column.

    Attributes:
      key: name of the feature, in UTF-8.
      tag: kind of its list (see `Column`).
      width: bytes of a number; 0: it holds bytes.
      may_miss: whether bits tell where the feature is missing.
    """

    key: bytes
    tag: int
    width: int
    may_miss: bool

    def packed(self) -> bytes:
        """Returns the bytes of the description."""
        facts = (self.tag, self.width, self.may_miss, len(self.key))
        return _FACTS.pack(*facts) + self.key

    @property
    def dtype(self) -> np.dtype[Any]:
        """Returns the type of a number."""
        return np.dtype(f"<{'f' if self.tag == TAGS[Kind.FLOAT] else 'i'}{self.width}")


class PackedValues:
    """The values of some records, ready to be packed.

    Attributes:
      ends: bytes of the values of all rows before each row, and of all.
      overhead: most bytes that some rows take beside.
    """

    ends: I64
    overhead: int

    def __init__(self, records: UnwrittenRecords) -> None:
        columns = [_narrowed(column) for column in records.columns]
        facts = [_facts_of(column) for column in columns]
        self._columns = columns
        self._description = b"".join(each.packed() for each in facts)
        row_bytes = sum(each.width or _LENGTH.size for each in facts)
        row_bits = sum(each.may_miss for each in facts)
        rows = np.arange(len(records) + 1)
        self.ends = row_bytes * rows + row_bits * rows // 8
        # Bits fill whole bytes: one more for each column, and one for rounding.
        self.overhead = _LENGTH.size + len(self._description) + row_bits + 1
        for _, _, _, offsets, _, _ in columns:
            if offsets is not None:
                self.ends += offsets
                self.ends -= offsets[0]

    def rows(self, first: int, end: int) -> list[Buffer]:
        """Returns the rows from `first` to `end` as parts, to be joined."""
        parts: list[Buffer] = [_LENGTH.pack(len(self._description)), self._description]
        for _, _, values, offsets, _, valid in self._columns:
            if valid is not None:
                parts.append(np.packbits(valid[first:end]))
            if offsets is None:
                parts.append(values[first:end])
            else:
                parts.append(np.diff(offsets[first : end + 1]).astype("<u4"))
                parts.append(memoryview(values)[offsets[first] : offsets[end]])
        return parts


def open_values(data: memoryview, num_rows: int) -> Payloads:
    """Returns the framed records of packed rows.

    Raises:
      RecordmillError: the bytes are not what `PackedValues.rows` made of so many rows.
    """
    try:
        columns = _open_columns(data, num_rows)
    except (ValueError, struct.error) as error:
        raise RecordmillError(f"packed values are damaged: {error}") from error
    return measured_records(columns, num_rows)


def _open_columns(data: memoryview, num_rows: int) -> list[Column]:
    (length,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + length
    columns: list[Column] = []
    for facts in _facts_in(bytes(data[_LENGTH.size : at])):
        valid = offsets = None
        if facts.may_miss:
            num_bytes = -(-num_rows // 8)
            bits = np.frombuffer(data, np.uint8, num_bytes, at)
            valid = np.unpackbits(bits, count=num_rows).view(np.bool_)
            at += num_bytes
        if facts.width:
            values: npt.NDArray[Any] = np.frombuffer(data, facts.dtype, num_rows, at)
            at += values.nbytes
            if facts.dtype.kind == "i":
                values = values.astype(np.int64)
        else:
            lengths = np.frombuffer(data, "<u4", num_rows, at)
            at += lengths.nbytes
            offsets = offsets_of(lengths).astype(np.int32)
            values = np.frombuffer(data, np.uint8, int(offsets[-1]), at)
            at += values.nbytes
        columns.append((facts.key, facts.tag, values, offsets, None, valid))
    if at != len(data):
        raise ValueError(f"{len(data)} bytes, expected {at}")
    return columns


# All pieces of a block, and mostly all of a dataset, have the same one.
@lru_cache(maxsize=64)
def _facts_in(description: bytes) -> tuple[_ColumnFacts, ...]:
    found = []
    at = 0
    while at < len(description):
        tag, width, may_miss, length = _FACTS.unpack_from(description, at)
        at += _FACTS.size + length
        key = description[at - length : at]
        found.append(_ColumnFacts(key, tag, width, bool(may_miss)))
    return tuple(found)


def _facts_of(column: Column) -> _ColumnFacts:
    key, tag, values, offsets, _, valid = column
    width = values.dtype.itemsize if offsets is None else 0
    return _ColumnFacts(key, tag, width, valid is not None)


def _narrowed(column: Column) -> Column:
    """Returns a column whose integers have as few bytes as the largest needs."""
    key, tag, values, offsets, lists, valid = column
    if tag == TAGS[Kind.INT64] and len(values):
        bounds = int(values.min()), int(values.max())
        values = values.astype(next(kind for kind in _INTEGERS if _fit(bounds, kind)))
    return key, tag, values, offsets, lists, valid


def _fit(bounds: tuple[int, int], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return limits.min <= bounds[0] and bounds[1] <= limits.max
