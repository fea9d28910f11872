from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from frames import FOO_RECORD, frame, read_bytes, records_of
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.proto import example_pb2
from recordmill.transforms import tfrecord
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, frame_records, mask

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def sealed(examples: list[bytes], before: int = 0) -> bytes:
    """Framed by `seal`, the first `before` rows being sliced off."""
    room = [bytes(HEAD_BYTES) + data + bytes(TAIL_BYTES) for data in examples]
    array = pa.array([b"junk"] * before + room, pa.binary()).slice(before)
    # Fresh and writable, as the encoder gives it.
    data = pa.py_buffer(bytearray(array.buffers()[2]))
    buffers = [None, array.buffers()[1], data]
    array = pa.BinaryArray.from_buffers(pa.binary(), len(room), buffers, -1, before)
    frame_records(array)
    return b"".join(array.to_pylist())


def test_literal_record() -> None:
    assert sealed([b"foo"]) == FOO_RECORD == frame([b"foo"])
    assert records_of(FOO_RECORD) == [b"foo"]


def test_mask_of_the_check_value() -> None:
    crc = tfrecord.crc32c(b"123456789")
    assert crc == 0xE3069283  # CRC-32C's check value, RFC 3720
    assert mask(crc) == 0xC78AB0E5


@pytest.mark.parametrize(
    ("file", "num_records"),
    [
        ("tutorial.tfrecord", 1000),
        ("cifar10.tfrecord", 20),
        ("cifar100.tfrecord", 20),
        ("images.tfrecord", 4),
        ("zoo.tfrecord", 12),
    ],
)
def test_golden_files_read_and_framed_again(file: str, num_records: int) -> None:
    data = (GOLDEN / file).read_bytes()
    examples = records_of(data)
    assert len(examples) == num_records
    assert sealed(examples) == data
    assert sealed(examples, before=3) == data
    for one in examples:
        example_pb2.Example.FromString(one)


def test_golden_gzip() -> None:
    wanted = [bytes.fromhex(entry["serialized_hex"]) for entry in zoo()]
    packed = (GOLDEN / "zoo.tfrecord.gz").read_bytes()
    assert list(read_bytes(packed, "zoo", "gzip")) == wanted
    assert wanted == records_of((GOLDEN / "zoo.tfrecord").read_bytes())


def zoo() -> list[dict[str, str]]:
    entries: list[dict[str, str]] = json.loads((GOLDEN / "zoo.json").read_text())
    return entries


@given(st.lists(st.binary(max_size=300)), st.integers(0, 2))
def test_seal_equals_framing_by_the_book(examples: list[bytes], before: int) -> None:
    data = sealed(examples, before)
    assert data == frame(examples)
    assert records_of(data) == examples


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1))
@example([0, 1, 0xFFFF, 0x10000, 0x1FFFF, (1 << 32) - 1, 1 << 32, 1 << 48, 1 << 62])
def test_checksums_of_lengths(lengths: list[int]) -> None:
    wanted = [mask(tfrecord.crc32c(n.to_bytes(8, "little"))) for n in lengths]
    assert numpy_loops.length_crcs(np.array(lengths, np.int64)).tolist() == wanted
