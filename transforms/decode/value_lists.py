"""Reads the values of one key in many records as flat values and offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.features.feature import Kind
from recordmill.transforms.arrow import I64, U8, offsets_of
from recordmill.transforms.decode.wire import (
    Mask,
    Spans,
    extract,
    extract_binary,
    gather,
    gather_words,
    read_int64,
    read_varints,
    unpack_varints,
)

VALUE_TAG = 0x0A  # field 1, length-delimited: the values of a BytesList
# With so few records left, a loop over them is faster than array steps.
_FEW_RECORDS = 16


@dataclass(frozen=True, slots=True)
class Lists:
    """The values of one key in many records.

    Attributes:
      values: the values of all records, concatenated: int64, float32 or, for bytes, an
        Arrow binary array.
      offsets: where each record's values start, and the end; int64, records + 1.
      present: mask of the records that have the key.
      irregular: mask of the records whose payload is damaged or not in the encoder's
        layout; their values are undefined.
    """

    values: Any
    offsets: I64
    present: Mask
    irregular: Mask

    @property
    def counts(self) -> I64:
        """Returns the number of values in each record."""
        return np.diff(self.offsets)

    def without(self, records: Mask) -> Lists:
        """Returns the same lists without the values of these records."""
        if not records.any():
            return self
        counts = self.counts
        kept = np.repeat(~records, counts)
        if isinstance(self.values, pa.Array):
            values = self.values.filter(pa.array(kept))
        else:
            values = self.values[kept]
        offsets = offsets_of(np.where(records, 0, counts))
        return Lists(values, offsets, self.present, self.irregular)


def read_scalars(data: U8, spans: Spans, kind: Kind) -> Lists:
    """Reads payloads of exactly one value; all others are irregular."""
    present = spans.present
    if kind is Kind.BYTES:
        starts, lengths = spans.starts, spans.lengths
        if not present.all():
            starts, lengths = starts[present], lengths[present]
        values = extract_binary(data, starts, lengths)
        return Lists(values, _single_offsets(present), present, np.zeros_like(present))
    if kind is Kind.FLOAT:
        numbers = gather(data, spans.starts, 4).view("<f4").ravel()
        single = spans.lengths == 4
    else:
        numbers, lengths = read_int64(data, spans.starts)
        single = spans.lengths == lengths
    irregular = present & ~single
    with_value = present & single
    if not with_value.all():
        numbers = numbers[with_value]
    return Lists(numbers, _single_offsets(with_value), present, irregular)


def _single_offsets(with_value: Mask) -> I64:
    return offsets_of(with_value.astype(np.int64))


def read_lists(data: U8, spans: Spans, kind: Kind) -> Lists:
    """Reads payloads of any number of values."""
    if kind is Kind.BYTES:
        return read_byte_values(data, spans, VALUE_TAG)
    if kind is Kind.FLOAT:
        return _read_floats(data, spans)
    packed, offsets = extract(data, spans.starts, spans.lengths)
    values, lists, irregular = unpack_varints(packed, offsets)
    if irregular.any():
        packed, offsets = extract(
            data, spans.starts, np.where(irregular, 0, spans.lengths)
        )
        values, lists, _ = unpack_varints(packed, offsets)
    return Lists(values, lists, spans.present, irregular)


def _read_floats(data: U8, spans: Spans) -> Lists:
    irregular = spans.lengths % 4 != 0
    lengths = (
        np.where(irregular, 0, spans.lengths) if irregular.any() else spans.lengths
    )
    packed, offsets = extract(data, spans.starts, lengths)
    values = packed[: int(offsets[-1])].view("<f4")
    return Lists(values, offsets // 4, spans.present, irregular)


def read_byte_values(data: U8, spans: Spans, tag: int) -> Lists:
    """Reads payloads that are a series of length-delimited fields with one tag.

    Each step reads the next value of all records that have one. Two records with the
    values "a", "bc" and "d", tag 0a:

        bytes     0a 01 61 0a 02 62 63 | 0a 01 64      starts [0, 7], ends [7, 10]
        step 1    rows [0, 1], value starts [2, 9], lengths [1, 1], positions [3, 10]
        step 2    rows [0],    value starts [5],    lengths [2],    positions [7]

    Counts are [2, 1], offsets [0, 2, 3], values "a", "bc", "d". The last few records
    are read by a loop instead of steps.
    """
    positions = spans.starts.copy()
    ends = spans.starts + spans.lengths
    irregular = np.zeros(len(positions), np.bool_)
    counts = np.zeros(len(positions), np.int64)
    rows = np.flatnonzero(positions < ends)
    taken: list[tuple[npt.NDArray[np.intp], I64, I64, I64]] = []
    while len(rows) > _FEW_RECORDS:
        words = gather_words(data, positions[rows]).ravel()
        lengths, sizes = read_varints(words >> np.uint64(8))
        starts = positions[rows] + 1 + sizes
        fits = (words & np.uint64(0xFF)) == tag
        fits &= (starts <= ends[rows]) & (
            lengths <= (ends[rows] - starts).view(np.uint64)
        )
        irregular[rows[~fits]] = True
        rows, starts = rows[fits], starts[fits]
        value_lengths = lengths[fits].view(np.int64)
        taken.append((rows, counts[rows], starts, value_lengths))
        counts[rows] += 1
        positions[rows] = starts + value_lengths
        rows = rows[positions[rows] < ends[rows]]
    for row in rows.tolist():
        starts, value_lengths = _scan(data, int(positions[row]), int(ends[row]), tag)
        irregular[row] = (
            int(starts[-1] + value_lengths[-1]) != ends[row] if len(starts) else True
        )
        nth = counts[row] + np.arange(len(starts))
        taken.append((np.full(len(starts), row), nth, starts, value_lengths))
        counts[row] += len(starts)
    counts[irregular] = 0
    offsets = offsets_of(counts)
    starts = np.empty(int(offsets[-1]), np.int64)
    value_lengths = np.empty(int(offsets[-1]), np.int64)
    for rows, nth, some_starts, some_lengths in taken:
        kept = ~irregular[rows]
        index = (offsets[rows] + nth)[kept]
        starts[index] = some_starts[kept]
        value_lengths[index] = some_lengths[kept]
    values = extract_binary(data, starts, value_lengths)
    return Lists(values, offsets, spans.present, irregular)


def _scan(data: U8, position: int, end: int, tag: int) -> tuple[I64, I64]:
    """Returns starts and lengths of one record's values, until an irregular one."""
    starts, lengths = [], []
    view = data.data
    while position < end and view[position] == tag:
        position, shift, length = position + 1, 0, 0
        while position < end and shift <= 28:
            byte = view[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            break
        if length > end - position:
            break
        starts.append(position)
        lengths.append(length)
        position += length
    return np.array(starts, np.int64), np.array(lengths, np.int64)
