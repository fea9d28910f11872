"""Finds every feature of many examples at once, where they are as the encoder has them.

The encoder's layout (recordmill.transforms.encode.examples) makes the header of a map entry depend on the
entry's length alone, so the walk mirrors the encoder: read the length, look up the one
header that fits, compare. All records move on together, one key a step. Where a header
differs, the record lacks the key, and a record whose end is not reached in this way is
of another layout (or damaged): it is left to the protobuf runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from recordmill.schemas.features.feature import Kind
from recordmill.transforms.arrow import I64, U8, U64, distinct_lengths
from recordmill.transforms.decode.wire import (
    WORD_BYTES,
    Mask,
    Spans,
    gather_words,
    read_varints,
)
from recordmill.transforms.encode.examples import entry_header
from recordmill.transforms.encode.wire import varint

# Beside the name: five tags and the varints of five lengths, each below 2 GiB.
_MAX_HEADER_BYTES = 5 * (1 + 5)
_TAG = 0x0A  # of the only field of Example, of Features, and of an entry's key


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the feature map and what stands in it.

    Attributes:
      name: UTF-8 bytes.
      kind: the list that holds the payload.
      delimited: whether the payload is one length-delimited field of the list
        (packed numbers, one bytes value) and not a series of such fields.
    """

    name: bytes
    kind: Kind
    delimited: bool

    @property
    def header_words(self) -> int:
        """64-bit words that hold the longest header of the key's entry."""
        return -(-(len(self.name) + _MAX_HEADER_BYTES) // WORD_BYTES)


def room_behind(keys: Sequence[Key]) -> int:
    """Bytes that the walk and its readers may look at behind the last record."""
    return max((len(key.name) for key in keys), default=0) + 8 * WORD_BYTES


def walk_entries(
    data: U8, starts: I64, ends: I64, keys: Sequence[Key]
) -> tuple[list[Spans], Mask]:
    """The payload of every key in every record.

    Args:
      data: the records' bytes and `room_behind` the keys.
      starts: where each record starts.
      ends: where each record ends.
      keys: in the order in which they lie in the records.

    Returns:
      Where each key's payload lies, and which records were understood to their end.
    """
    places, whole = _enter(data, starts, ends)
    found = []
    for key in keys:
        spans = _take_entry(data, places, ends, key)
        found.append(spans)
        places = np.where(spans.present, spans.starts + spans.lengths, places)
    return found, whole & (places == ends)


def _enter(data: U8, starts: I64, ends: I64) -> tuple[I64, Mask]:
    """Behind the header of the one Features message, and where it fills the record."""
    words = gather_words(data, starts).ravel()
    lengths, sizes = read_varints(words >> np.uint64(8))
    places = starts + 1 + sizes
    whole = (words & np.uint64(0xFF)) == _TAG
    # A varint cut off by the shift has a length that fits no record.
    whole &= places + lengths.view(np.int64) == ends
    places = np.where(whole, places, ends)
    return places, whole | (starts == ends)  # no bytes are an example, too


def _take_entry(data: U8, places: I64, ends: I64, key: Key) -> Spans:
    """The payload of the key's entry, where such an entry begins at the place."""
    found = gather_words(data, places, key.header_words)
    lengths = _entry_lengths(found[:, 0], ends - places)
    distinct, which = distinct_lengths(lengths)
    table = _HeaderTable.of(key, distinct)
    if len(distinct) == 1:
        present = table.match_one(found)
        headers, payloads = table.header_lengths[0], table.payload_lengths[0]
    else:
        present = table.match(found, which)
        headers, payloads = table.header_lengths[which], table.payload_lengths[which]
    starts = places + headers
    present &= starts + payloads <= ends
    if present.all():
        return Spans(starts, np.broadcast_to(payloads, starts.shape), present)
    starts = np.where(present, starts, places)
    return Spans(starts, np.where(present, payloads, 0), present)


def _entry_lengths(words: U64, room: I64) -> I64:
    """What stands behind the entries' tags as their length; 0 if beyond the room."""
    behind = words >> np.uint64(8)
    short = behind.astype(np.uint8)
    if len(short) and short.max() < 0x80:  # most often one byte, and no need to squeeze
        return short.astype(np.int64)
    lengths, _ = read_varints(behind)
    return np.where(lengths < room.view(np.uint64), lengths, np.uint64(0)).view(
        np.int64
    )


@dataclass(frozen=True, slots=True)
class _HeaderTable:
    """The header that goes with each entry length, to compare in words.

    Attributes:
      words: the headers, padded, shape (entry lengths, words).
      masks: which bits of them count.
      header_lengths: bytes.
      payload_lengths: bytes; beyond any record where no entry has that length.
    """

    words: U64
    masks: U64
    header_lengths: I64
    payload_lengths: I64

    @classmethod
    def of(cls, key: Key, entry_lengths: I64) -> _HeaderTable:
        headers, payloads = [], []
        # A step for each distinct length, not for each record.
        for length in entry_lengths.tolist():
            header, payload = _header_of(key, length)
            headers.append(header)
            payloads.append(payload)
        width = key.header_words * WORD_BYTES
        padded = b"".join(header.ljust(width, b"\0") for header in headers)
        counted = b"".join(
            (b"\xff" * len(header)).ljust(width, b"\0") for header in headers
        )
        shape = (len(headers), width // WORD_BYTES)
        return cls(
            np.frombuffer(padded, "<u8").reshape(shape),
            np.frombuffer(counted, "<u8").reshape(shape),
            np.fromiter(map(len, headers), np.int64, len(headers)),
            np.array(payloads, np.int64),
        )

    def match_one(self, found: U64) -> Mask:
        """Which of the words found are the only header."""
        equal: Mask = (found[:, 0] & self.masks[0, 0]) == self.words[0, 0]
        for index in range(1, self.words.shape[1]):
            equal &= (found[:, index] & self.masks[0, index]) == self.words[0, index]
        return equal

    def match(self, found: U64, which: npt.NDArray[np.intp]) -> Mask:
        """Which of the words found are the header of the row's own entry length."""
        differs = np.zeros(len(found), np.uint64)
        for index in range(self.words.shape[1]):
            wanted = self.words[:, index].take(which)
            counted = self.masks[:, index].take(which)
            differs |= (found[:, index] ^ wanted) & counted
        nothing: Mask = differs == 0
        return nothing


_NO_HEADER = (b"", 1 << 40)  # with a payload that no record can hold


@lru_cache(1 << 14)
def _header_of(key: Key, entry_length: int) -> tuple[bytes, int]:
    """The header of an entry of this length, and the length of the payload behind it."""
    feature = _behind_prefix(
        entry_length - len(varint(len(key.name))) - 1 - len(key.name)
    )
    values = None if feature is None else _behind_prefix(feature)
    if values is None:
        return _NO_HEADER
    payload: int | None = values
    # Of packed numbers an empty field is left out; an empty bytes value is not.
    if key.delimited and (values or key.kind is Kind.BYTES):
        payload = _behind_prefix(values)
    if payload is None:
        return _NO_HEADER
    header = entry_header(key.name, key.kind, payload, delimited=key.delimited)
    return header, payload


def _behind_prefix(length: int) -> int | None:
    """What is left of so many bytes behind a tag and the varint of just that rest."""
    for prefix in range(2, 7):
        rest = length - prefix
        if rest >= 0 and len(varint(rest)) == prefix - 1:
            return rest
    return None
