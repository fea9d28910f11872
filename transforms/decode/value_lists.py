"""The payloads of one key in many records -> flat values and how many each has."""

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
# From here on single records are quicker than steps over all that are left.
_FEW_RECORDS = 16


@dataclass(frozen=True, slots=True)
class Lists:
    """The values of one key in many records.

    Attributes:
      values: all records' values end to end: int64 or float32, or for bytes an Arrow
        binary array.
      offsets: where each record's values start, one more; int64.
      present: which records have the key.
      odd: records whose payload is not as the encoder writes it, or damaged; the
        values say nothing of them.
    """

    values: Any
    offsets: I64
    present: Mask
    odd: Mask

    @property
    def counts(self) -> I64:
        """Values of each record."""
        return np.diff(self.offsets)

    def without(self, records: Mask) -> Lists:
        """The same with nothing left of these records' values."""
        if not records.any():
            return self
        counts = self.counts
        kept = np.repeat(~records, counts)
        if isinstance(self.values, pa.Array):
            values = self.values.filter(pa.array(kept))
        else:
            values = self.values[kept]
        offsets = offsets_of(np.where(records, 0, counts))
        return Lists(values, offsets, self.present, self.odd)


def read_scalars(data: U8, spans: Spans, kind: Kind) -> Lists:
    """Payloads that should be one value each; others are odd."""
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
    odd = present & ~single
    there = present & single
    if not there.all():
        numbers = numbers[there]
    return Lists(numbers, _single_offsets(there), present, odd)


def _single_offsets(there: Mask) -> I64:
    return offsets_of(there.astype(np.int64))


def read_lists(data: U8, spans: Spans, kind: Kind) -> Lists:
    """Payloads of any number of values."""
    if kind is Kind.BYTES:
        return read_byte_values(data, spans, VALUE_TAG)
    if kind is Kind.FLOAT:
        return _read_floats(data, spans)
    packed, offsets = extract(data, spans.starts, spans.lengths)
    values, lists, odd = unpack_varints(packed, offsets)
    if odd.any():
        packed, offsets = extract(data, spans.starts, np.where(odd, 0, spans.lengths))
        values, lists, _ = unpack_varints(packed, offsets)
    return Lists(values, lists, spans.present, odd)


def _read_floats(data: U8, spans: Spans) -> Lists:
    odd = spans.lengths % 4 != 0
    lengths = np.where(odd, 0, spans.lengths) if odd.any() else spans.lengths
    packed, offsets = extract(data, spans.starts, lengths)
    values = packed[: int(offsets[-1])].view("<f4")
    return Lists(values, offsets // 4, spans.present, odd)


def read_byte_values(data: U8, spans: Spans, tag: int) -> Lists:
    """Payloads that are series of length-delimited fields, all of one tag.

    A step takes one value of every record that has a further one.
    """
    places = spans.starts.copy()
    ends = spans.starts + spans.lengths
    odd = np.zeros(len(places), np.bool_)
    counts = np.zeros(len(places), np.int64)
    rows = np.flatnonzero(places < ends)
    taken: list[tuple[npt.NDArray[np.intp], I64, I64, I64]] = []
    while len(rows) > _FEW_RECORDS:
        words = gather_words(data, places[rows]).ravel()
        lengths, sizes = read_varints(words >> np.uint64(8))
        starts = places[rows] + 1 + sizes
        fits = (words & np.uint64(0xFF)) == tag
        fits &= (starts <= ends[rows]) & (
            lengths <= (ends[rows] - starts).view(np.uint64)
        )
        odd[rows[~fits]] = True
        rows, starts = rows[fits], starts[fits]
        value_lengths = lengths[fits].view(np.int64)
        taken.append((rows, counts[rows], starts, value_lengths))
        counts[rows] += 1
        places[rows] = starts + value_lengths
        rows = rows[places[rows] < ends[rows]]
    for row in rows.tolist():
        starts, value_lengths = _scan(data, int(places[row]), int(ends[row]), tag)
        odd[row] = (
            int(starts[-1] + value_lengths[-1]) != ends[row] if len(starts) else True
        )
        nth = counts[row] + np.arange(len(starts))
        taken.append((np.full(len(starts), row), nth, starts, value_lengths))
        counts[row] += len(starts)
    counts[odd] = 0
    offsets = offsets_of(counts)
    starts = np.empty(int(offsets[-1]), np.int64)
    value_lengths = np.empty(int(offsets[-1]), np.int64)
    for rows, nth, some_starts, some_lengths in taken:
        kept = ~odd[rows]
        index = (offsets[rows] + nth)[kept]
        starts[index] = some_starts[kept]
        value_lengths[index] = some_lengths[kept]
    values = extract_binary(data, starts, value_lengths)
    return Lists(values, offsets, spans.present, odd)


def _scan(data: U8, place: int, end: int, tag: int) -> tuple[I64, I64]:
    """Starts and lengths of one record's values; those before the first odd one."""
    starts, lengths = [], []
    view = data.data
    while place < end and view[place] == tag:
        place, shift, length = place + 1, 0, 0
        while place < end and shift <= 28:
            byte = view[place]
            place += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            break
        if length > end - place:
            break
        starts.append(place)
        lengths.append(length)
        place += length
    return np.array(starts, np.int64), np.array(lengths, np.int64)
