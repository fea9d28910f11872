"""Packs the values of unwritten records as bytes, some rows at a time, and opens them.

Packed values are what goes through a runner's shuffle in place of records: a third of
their bytes (see unwritten_records.py).

    u32 bytes of the description | description | column | column | ...

The description has for each column

    u8 kind | u8 bytes of a number | u8 may be missing | u32 bytes of the name | name

and a column holds, for the packed rows,

    a bit for each row, 0 where the feature is missing     if it may be missing
    a u32 for each row, the length of its value            if it holds bytes
    the values                                             numbers, or bytes end to end

All little-endian. Integers have as few bytes as the largest of a block needs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.feature_spec import Kind
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.encode.examples import TAGS
from recordmill.transforms.encode.unwritten_records import (
    Payloads,
    UnwrittenRecords,
    measured_records,
)
from recordmill.transforms.native import Buffer, Column

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
