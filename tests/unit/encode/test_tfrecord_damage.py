"""Damage of every kind, and the record, the byte and the words that name it."""

from __future__ import annotations

import gzip
import pickle
import re

import numpy as np
import pyarrow as pa
import pytest
from frames import FOO_RECORD, frame, read_bytes, read_file, records_of
from held_memory import most_held

from recordmill.schemas.errors import CorruptRecordError, RecordmillError
from recordmill.transforms import tfrecord
from recordmill.transforms.dataset import reader
from recordmill.transforms.tfrecord import check_frames, mask

# Three records; the middle one starts at byte 19 = 16 + 3.
THREE = frame([b"one", b"second", b""])
SECOND_AT = 19

FLIPS = [
    (0, "length is", "first byte of the length"),
    (7, "length is", "last byte of the length"),
    (8, "length is", "first byte of the length's checksum"),
    (11, "length is", "last byte of the length's checksum"),
    (12, "6 bytes is", "first byte of the data"),
    (17, "6 bytes is", "last byte of the data"),
    (18, "6 bytes is", "first byte of the data's checksum"),
    (21, "6 bytes is", "last byte of the data's checksum"),
]


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize(("spot", "what", "reason"), FLIPS)
def test_one_bit_flipped(spot: int, what: str, reason: str, bit: int) -> None:
    damaged = bytearray(THREE)
    damaged[SECOND_AT + spot] ^= 1 << bit
    read: list[bytes] = []
    with pytest.raises(CorruptRecordError) as caught:
        read.extend(read_bytes(bytes(damaged), "gs://b/x"))
    assert read == [b"one"], reason
    assert (caught.value.record_index, caught.value.offset) == (1, SECOND_AT), reason
    message = str(caught.value)
    start = "gs://b/x: record 1 at byte 19: the checksum of the record's"
    assert message.startswith(f"{start} {what} wrong")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.offset, again.uri) == (message, SECOND_AT, "gs://b/x")


def test_message_of_a_damaged_checksum() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        records_of(FOO_RECORD[:-1] + b"\0")
    assert str(caught.value) == (
        "a.tfrecord: record 0 at byte 0: "
        "the checksum of the record's 3 bytes is wrong: they are damaged"
    )


@pytest.mark.parametrize("read_bytes", [1, 5, 12, 19, 1 << 20])
def test_truncated_anywhere(read_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", read_bytes)
    borders = {0: 0, 19: 1, 41: 2, 57: 3}  # end of a record -> records
    starts = [0, 19, 41]
    assert len(THREE) == 57
    for size in range(len(THREE) + 1):
        if size in borders:
            assert len(records_of(THREE[:size])) == borders[size]
            continue
        start = max(start for start in starts if start < size)
        with pytest.raises(CorruptRecordError) as caught:
            records_of(THREE[:size])
        assert re.match(
            rf"a\.tfrecord: record {starts.index(start)} at byte {start}: the file ends "
            rf"{size - start} bytes? after the start of a record",
            str(caught.value),
        )


@pytest.mark.parametrize("read_bytes", [1, 11, 16, 17, 64, 1000])
def test_records_across_reads(read_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", read_bytes)
    examples = [
        bytes([n]) * size for n, size in enumerate([0, 1, 15, 500, 0, 64, 3000])
    ]
    assert records_of(frame(examples)) == examples


class CountingReader:
    """Reads bytes, and says how many were asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.asked = data, 0

    def __call__(self, start: int, stop: int) -> bytes:
        data = self.data[start:stop]
        self.asked += len(data)
        return data


def bogus(length: int) -> bytes:
    """A head whose checksum is right and whose length is not."""
    head = length.to_bytes(8, "little")
    return head + mask(tfrecord.crc32c(head)).to_bytes(4, "little")


@pytest.mark.parametrize("length", [(1 << 31) + 1, 1 << 40, (1 << 64) - 1])
def test_length_beyond_any_example(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the file is not read into memory to find out."""
    monkeypatch.setattr(reader, "WINDOW_BYTES", 100)
    read = CountingReader(FOO_RECORD + bogus(length) + bytes(10_000))
    with pytest.raises(CorruptRecordError) as caught:
        list(read_file(read, len(read.data), "x"))
    assert str(caught.value) == (
        f"x: record 1 at byte 19: the record has {length:,} bytes, expected at most "
        "2,147,483,647"
    )
    assert read.asked <= 200


@pytest.mark.parametrize("behind", [0, 1, 4])
def test_a_damaged_length_at_the_end(behind: int) -> None:
    head = bytearray(bogus(4))
    head[0] ^= 1
    with pytest.raises(CorruptRecordError, match="record's length is wrong"):
        records_of(FOO_RECORD + head + bytes(behind))


def test_bogus_length_takes_no_memory() -> None:
    def read() -> None:
        with pytest.raises(
            CorruptRecordError, match="ends 1,012 bytes after the start"
        ):
            records_of(bogus((1 << 31) - 1) + bytes(1000))

    assert most_held(read, enough=1 << 20) < 1 << 20


def test_a_large_record_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head tells how many bytes it has: it does not grow window by window."""
    monkeypatch.setattr(reader, "WINDOW_BYTES", 1 << 10)
    read = CountingReader(frame([b"x" * (1 << 20), b"y"]))
    found = read_file(read, len(read.data))
    assert [len(record) for record in found] == [1 << 20, 1]
    assert read.asked < (1 << 20) + (1 << 12)


def test_gzip_truncated_anywhere() -> None:
    """Every record before the cut is read, and the next one is named."""
    data = b"".join(FOO_RECORD for _ in range(50))
    packed = gzip.compress(data, mtime=0)
    for size in range(1, len(packed)):
        read: list[bytes] = []
        with pytest.raises(CorruptRecordError) as caught:
            read.extend(read_bytes(packed[:size], "x", "gzip"))
        assert caught.value.record_index == len(read)
        assert caught.value.offset == len(read) * len(FOO_RECORD)
        assert "cannot be decompressed as gzip: " in str(caught.value)
    assert len(read) == 50, "only the trailer is missing"


def test_gzip_damage_names_the_record_it_is_in() -> None:
    # Bytes that do not compress, so that the spot in both files is nearly the same.
    random = np.random.default_rng(0)
    examples = [random.bytes(1000) for _ in range(1000)]
    packed = bytearray(gzip.compress(frame(examples), mtime=0))
    packed[len(packed) // 2] ^= 0x40
    read: list[bytes] = []
    with pytest.raises(CorruptRecordError) as caught:
        read.extend(read_bytes(bytes(packed), "x", "gzip"))
    assert read == examples[: len(read)]
    assert caught.value.record_index == len(read)
    assert 450 <= len(read) <= 550


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize(("spot", "what", "reason"), FLIPS)
def test_damage_in_scratch(spot: int, what: str, reason: str, bit: int) -> None:
    """Records on their way through scratch are checked as a whole window."""
    records = [frame([data]) for data in (b"one", b"second", b"")]
    check_frames(pa.array(records, pa.binary()), "window")
    damaged = bytearray(records[1])
    damaged[spot] ^= 1 << bit
    records[1] = bytes(damaged)
    with pytest.raises(RecordmillError, match=r"^window: record 1 was damaged in"):
        check_frames(pa.array(records, pa.binary()), "window")


def test_a_slice_is_checked_alone() -> None:
    records = [frame([data]) for data in (b"one", b"second", b"three" * 20)]
    records[0] = bytes(19)
    check_frames(pa.array(records, pa.binary())[1:], "window")
    check_frames(pa.array([], pa.binary()), "window")
