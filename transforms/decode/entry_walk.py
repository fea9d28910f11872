"""Finds the features of many examples at once, if they have the encoder's layout.

In the encoder's layout (encode/examples.py) the header of a map entry depends only on
the entry's length. So the walk reads that length, looks up the one header that goes
with it, and compares. All records advance together, one key in each step. Where the
header differs, the record lacks the key. A record whose end is not reached in this way
has another layout (or is damaged) and is left to the protobuf runtime.

Two records with the int64 features a = 7 and b = 8 in the first, b = 9 in the second:

    record 0   0a 18 | 0a 0a 0a 01 61 12 05 1a 03 0a 01 07 | 0a 0a 0a 01 62 ... 01 08
    record 1   0a 0c | 0a 0a 0a 01 62 12 05 1a 03 0a 01 09

    enter      positions [2, 28]: after the tag and length of Features
    key a      entry length 10 (0a) goes with the header 0a 0a 0a 01 61 12 05 1a 03 0a 01;
               it matches in record 0 only: present [1, 0], starts [13, -], lengths [1,
               0] positions [14, 28]
    key b      present [1, 1], starts [25, 39], lengths [1, 1], positions [26, 40] = ends
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

# Without the name: five tags and five lengths as varints, each below 2 GiB.
_MAX_HEADER_BYTES = 5 * (1 + 5)
_TAG = 0x0A  # of the only field of Example and of Features, and of an entry's key


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the feature map and how its payload is stored.

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
        """Returns how many 64-bit words hold the longest header of the key's entry."""
        return -(-(len(self.name) + _MAX_HEADER_BYTES) // WORD_BYTES)


def padding_bytes(keys: Sequence[Key]) -> int:
    """Returns how many bytes may be read after the last record."""
    return max((len(key.name) for key in keys), default=0) + 8 * WORD_BYTES


def walk_entries(
    data: U8, starts: I64, ends: I64, keys: Sequence[Key]
) -> tuple[list[Spans], Mask]:
    """Finds the payload of every key in every record.

    Args:
      data: the records' bytes, followed by `padding_bytes(keys)` bytes.
      starts: where each record starts.
      ends: where each record ends.
      keys: in the order in which they are stored in the records.

    Returns:
      The payload's span for each key, and a mask of the records read to their end.
    """
    positions, whole = _enter_features(data, starts, ends)
    found = []
    for key in keys:
        spans = _read_entry(data, positions, ends, key)
        found.append(spans)
        positions = np.where(spans.present, spans.starts + spans.lengths, positions)
    return found, whole & (positions == ends)


def _enter_features(data: U8, starts: I64, ends: I64) -> tuple[I64, Mask]:
    """Returns the positions after Features' header, and a mask where it is valid."""
    words = gather_words(data, starts).ravel()
    lengths, sizes = read_varints(words >> np.uint64(8))
    positions = starts + 1 + sizes
    whole = (words & np.uint64(0xFF)) == _TAG
    # A varint cut off by the shift gives a length that does not fit the record.
    whole &= positions + lengths.view(np.int64) == ends
    positions = np.where(whole, positions, ends)
    return positions, whole | (starts == ends)  # zero bytes are an empty example


def _read_entry(data: U8, positions: I64, ends: I64, key: Key) -> Spans:
    """Returns the payload of the key's entry, where an entry begins at the position."""
    found = gather_words(data, positions, key.header_words)
    lengths = _entry_lengths(found[:, 0], ends - positions)
    distinct, which = distinct_lengths(lengths)
    table = _HeaderTable.of(key, distinct)
    if len(distinct) == 1:
        present = table.match_one(found)
        headers, payloads = table.header_lengths[0], table.payload_lengths[0]
    else:
        present = table.match(found, which)
        headers, payloads = table.header_lengths[which], table.payload_lengths[which]
    starts = positions + headers
    present &= starts + payloads <= ends
    if present.all():
        return Spans(starts, np.broadcast_to(payloads, starts.shape), present)
    starts = np.where(present, starts, positions)
    return Spans(starts, np.where(present, payloads, 0), present)


def _entry_lengths(words: U64, left: I64) -> I64:
    """Returns the lengths after the entries' tags; 0 if longer than the bytes left."""
    after_tag = words >> np.uint64(8)
    short = after_tag.astype(np.uint8)
    if len(short) and short.max() < 0x80:  # most often all lengths are single bytes
        return short.astype(np.int64)
    lengths, _ = read_varints(after_tag)
    return np.where(lengths < left.view(np.uint64), lengths, np.uint64(0)).view(
        np.int64
    )


@dataclass(frozen=True, slots=True)
class _HeaderTable:
    """The headers that go with each entry length, as words to compare.

    Attributes:
      words: the headers, padded, shape (entry lengths, words).
      masks: the bits that are compared.
      header_lengths: in bytes.
      payload_lengths: in bytes; longer than any record if no entry has that length.
    """

    words: U64
    masks: U64
    header_lengths: I64
    payload_lengths: I64

    @classmethod
    def of(cls, key: Key, entry_lengths: I64) -> _HeaderTable:
        headers, payloads = [], []
        # A loop over the distinct lengths, not over the records.
        for length in entry_lengths.tolist():
            header, payload = _build_header(key, length)
            headers.append(header)
            payloads.append(payload)
        width = key.header_words * WORD_BYTES
        padded = b"".join(header.ljust(width, b"\0") for header in headers)
        compared = b"".join(
            (b"\xff" * len(header)).ljust(width, b"\0") for header in headers
        )
        shape = (len(headers), width // WORD_BYTES)
        return cls(
            np.frombuffer(padded, "<u8").reshape(shape),
            np.frombuffer(compared, "<u8").reshape(shape),
            np.fromiter(map(len, headers), np.int64, len(headers)),
            np.array(payloads, np.int64),
        )

    def match_one(self, found: U64) -> Mask:
        """Returns a mask of the records whose words are the only header."""
        equal: Mask = (found[:, 0] & self.masks[0, 0]) == self.words[0, 0]
        for index in range(1, self.words.shape[1]):
            equal &= (found[:, index] & self.masks[0, index]) == self.words[0, index]
        return equal

    def match(self, found: U64, which: npt.NDArray[np.intp]) -> Mask:
        """Returns a mask of the records whose words are the header of their length."""
        differs = np.zeros(len(found), np.uint64)
        for index in range(self.words.shape[1]):
            header = self.words[:, index].take(which)
            mask = self.masks[:, index].take(which)
            differs |= (found[:, index] ^ header) & mask
        equal: Mask = differs == 0
        return equal


_NO_HEADER = (b"", 1 << 40)  # with a payload longer than any record


@lru_cache(1 << 14)
def _build_header(key: Key, entry_length: int) -> tuple[bytes, int]:
    """Returns the header of an entry of this length, and the length of its payload."""
    feature = _payload_length(
        entry_length - len(varint(len(key.name))) - 1 - len(key.name)
    )
    values = None if feature is None else _payload_length(feature)
    if values is None:
        return _NO_HEADER
    payload: int | None = values
    # The encoder omits an empty field of packed numbers, but not an empty bytes value.
    if key.delimited and (values or key.kind is Kind.BYTES):
        payload = _payload_length(values)
    if payload is None:
        return _NO_HEADER
    header = entry_header(key.name, key.kind, payload, delimited=key.delimited)
    return header, payload


def _payload_length(length: int) -> int | None:
    """Returns n such that a tag, the varint n and n bytes are `length` bytes; or None.

    For length 12: n = 10, as the tag and the varint 0a take 2 bytes.
    """
    for prefix in range(2, 7):
        rest = length - prefix
        if rest >= 0 and len(varint(rest)) == prefix - 1:
            return rest
    return None
