"""Damage of every kind, and the record, the byte and the words that name it."""

from __future__ import annotations

import gzip
import io
import pickle
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from frames import FOO_RECORD, frame, records_of
from held_memory import most_held

from recordmill.schemas.errors import CorruptRecordError, RecordmillError
from recordmill.transforms import tfrecord
from recordmill.transforms.tfrecord import check_frames, mask, open_stream, read_records

# Three records; the middle one starts at byte 19 = 16 + 3.
THREE = frame([b"one", b"second", b""])
SECOND_AT = 19

FLIPS = [
    (0, "length", "first byte of the length"),
    (7, "length", "last byte of the length"),
    (8, "length", "first byte of the length's checksum"),
    (11, "length", "last byte of the length's checksum"),
    (12, "data", "first byte of the data"),
    (17, "data", "last byte of the data"),
    (18, "data", "first byte of the data's checksum"),
    (21, "data", "last byte of the data's checksum"),
]


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize(("spot", "what", "reason"), FLIPS)
def test_one_bit_flipped(spot: int, what: str, reason: str, bit: int) -> None:
    damaged = bytearray(THREE)
    damaged[SECOND_AT + spot] ^= 1 << bit
    read: list[bytes] = []
    with pytest.raises(CorruptRecordError) as caught:
        read.extend(map(bytes, read_records(io.BytesIO(damaged), "gs://b/x")))
    assert read == [b"one"], reason
    assert (caught.value.record_index, caught.value.offset) == (1, SECOND_AT), reason
    message = str(caught.value)
    assert message.startswith(f"gs://b/x: record 1 at byte 19: checksum of the {what} ")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.offset, again.uri) == (message, SECOND_AT, "gs://b/x")


def test_message_of_a_damaged_checksum() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        records_of(FOO_RECORD[:-1] + b"\0")
    assert str(caught.value) == (
        "a.tfrecord: record 0 at byte 0: "
        "checksum of the data is 00be8a61, expected febe8a61"
    )


@pytest.mark.parametrize("read_bytes", [1, 5, 12, 19, 1 << 20])
def test_truncated_anywhere(read_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "_READ_BYTES", read_bytes)
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
        assert str(caught.value) == (
            f"a.tfrecord: record {starts.index(start)} at byte {start}: the file ends "
            f"inside this record, {size - start} bytes after its start"
        )


@pytest.mark.parametrize("read_bytes", [1, 11, 16, 17, 64, 1000])
def test_records_across_reads(read_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "_READ_BYTES", read_bytes)
    examples = [
        bytes([n]) * size for n, size in enumerate([0, 1, 15, 500, 0, 64, 3000])
    ]
    assert records_of(frame(examples)) == examples


class CountingStream(io.BytesIO):
    """Says how many bytes were asked of it."""

    asked = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.asked += len(data)
        return data

    read1 = read


def bogus(length: int) -> bytes:
    """A head whose checksum is right and whose length is not."""
    head = length.to_bytes(8, "little")
    return head + mask(tfrecord.crc32c(head)).to_bytes(4, "little")


@pytest.mark.parametrize("length", [(1 << 31) + 1, 1 << 40, (1 << 64) - 1])
def test_length_beyond_any_example(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the file is not read into memory to find out."""
    monkeypatch.setattr(tfrecord, "_READ_BYTES", 100)
    stream = CountingStream(FOO_RECORD + bogus(length) + bytes(10_000))
    with pytest.raises(CorruptRecordError) as caught:
        list(read_records(stream, "x"))
    assert str(caught.value) == (
        f"x: record 1 at byte 19: length is {length} bytes, but a "
        "tf.train.Example has at most 2147483647 bytes"
    )
    assert stream.asked <= 200


@pytest.mark.parametrize("behind", [0, 1, 4])
def test_a_damaged_length_at_the_end(behind: int) -> None:
    head = bytearray(bogus(4))
    head[0] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum of the length is"):
        records_of(FOO_RECORD + head + bytes(behind))


def test_bogus_length_takes_no_memory() -> None:
    def read() -> None:
        with pytest.raises(CorruptRecordError, match="ends inside this record"):
            records_of(bogus((1 << 31) - 1) + bytes(1000))

    assert most_held(read, enough=1 << 20) < 1 << 20


def test_large_record_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a record are joined when it is whole, not added up block by block."""
    monkeypatch.setattr(tfrecord, "_READ_BYTES", 1 << 10)
    data = frame([b"x" * (1 << 20), b"y"])
    stream = CountingStream(data)
    checked = 0
    crc = tfrecord.crc32c

    def counted(data: bytes) -> int:
        nonlocal checked
        checked += len(data)
        return crc(data)

    monkeypatch.setattr(tfrecord, "crc32c", counted)
    assert [len(record) for record in read_records(stream, "x")] == [1 << 20, 1]
    # A head seen at every block would be checked a thousand times.
    assert checked < (1 << 20) + 100, checked


def gzip_stream(data: bytes) -> BinaryIO:
    return open_stream(io.BytesIO(data), "gzip")


def test_gzip_truncated_anywhere() -> None:
    """Every record before the cut is read, and the next one is named."""
    data = b"".join(FOO_RECORD for _ in range(50))
    packed = gzip.compress(data, mtime=0)
    for size in range(1, len(packed)):
        read: list[bytes] = []
        with pytest.raises(CorruptRecordError) as caught:
            read.extend(map(bytes, read_records(gzip_stream(packed[:size]), "x")))
        assert caught.value.record_index == len(read)
        assert caught.value.offset == len(read) * len(FOO_RECORD)
        assert "damaged gzip stream: " in str(caught.value)
    assert len(read) == 50, "only the trailer is missing"


def test_gzip_damage_names_the_record_it_is_in() -> None:
    # Bytes that do not compress, so that the spot in both files is nearly the same.
    random = np.random.default_rng(0)
    examples = [random.bytes(1000) for _ in range(1000)]
    packed = bytearray(gzip.compress(frame(examples), mtime=0))
    packed[len(packed) // 2] ^= 0x40
    read: list[bytes] = []
    with pytest.raises(CorruptRecordError) as caught:
        read.extend(map(bytes, read_records(gzip_stream(bytes(packed)), "x")))
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
