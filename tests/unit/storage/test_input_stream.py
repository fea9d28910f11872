"""InputStream: the bytes of a file, unpacked and decoded, with one checksum."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import random
import weakref
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.transforms.storage import input_stream
from recordmill.transforms.storage.input_stream import InputStream, compression_of
from recordmill.transforms.tfrecord import crc32c

DATA = random.Random(1).randbytes(300) * 7 + bytes(range(256)) * 3


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue())


def two_gzip(data: bytes) -> bytes:
    return gzip.compress(data[:700]) + bytes(9) + gzip.compress(data[700:]) + bytes(3)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": two_gzip,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "deflate": raw_deflate,
    "deflated": two_gzip,
}


def stream_of(data: bytes, compression: str = "", **how: object) -> InputStream:
    def read(start: int, stop: int) -> bytes:
        return data[start:stop]

    return InputStream(read, len(data), uri="x", compression=compression, **how)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("BLOCK_BYTES", 200), ("STEP_BYTES", 70), ("TEXT_BYTES", 90)):
        monkeypatch.setattr(input_stream, name, size)


@pytest.mark.parametrize("compression", PACKERS)
@pytest.mark.parametrize("window", [0, 333])
def test_any_part_in_any_order(compression: str, window: int) -> None:
    packed = PACKERS[compression](DATA)
    stream = stream_of(packed, compression, window_bytes=window)
    order = random.Random(2)
    for _ in range(100):
        start = order.randrange(len(DATA) + 10)
        stop = start + order.randrange(400)
        assert stream.part(start, stop) == DATA[start:stop]
    stream.seek(-5, io.SEEK_CUR) if stream.tell() else stream.seek(3)
    assert stream.read() == DATA[3:]
    assert stream.checksum_of_part() == crc32c(packed)


@pytest.mark.parametrize("compression", PACKERS)
def test_pieces_once_forwards(compression: str) -> None:
    packed = PACKERS[compression](DATA)
    stream = stream_of(packed, compression)
    assert b"".join(iter(stream.read_block, b"")) == DATA
    assert stream.packed_bytes_read == len(packed)
    assert stream.positions.offsets[-1] == len(DATA)
    assert stream.checksum_of_part() == crc32c(packed)


def test_zstd_is_told_by_its_start() -> None:
    packed = zstd(DATA)
    assert compression_of(packed) == "zstd"
    assert stream_of(packed, "zstd").read() == DATA


def test_what_is_kept_is_not_read_again() -> None:
    asked = []

    def read(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return DATA[start:stop]

    stream = InputStream(read, len(DATA), part=(100, 900), window_bytes=300)
    assert stream.part(100, 110) == DATA[100:110]
    stream.keep_from_offset = 350
    assert stream.part(399, 500) == DATA[399:500]
    assert stream.part(350, 699) == DATA[350:699]
    assert stream.part(800, 9999) == DATA[800:]
    assert asked == [(100, 400), (400, 699), (699, len(DATA))]
    assert stream.checksum_of_part() == crc32c(DATA[100:900])
    assert len(asked) == 3


@pytest.mark.parametrize("compression", [name for name in PACKERS if name])
def test_a_file_that_breaks_off(compression: str) -> None:
    packed = PACKERS[compression](DATA)
    damaged = stream_of(packed[: len(packed) // 2], compression)
    with pytest.raises(InputError, match=r"x: cannot be decompressed.*: copy it again"):
        damaged.read()
    # Of a file whose end is left out, all that there is; it is no damage.
    cut = stream_of(packed, compression, part=(0, len(packed) // 2))
    assert cut.is_cut
    assert DATA.startswith(cut.read())


def test_a_file_that_became_shorter() -> None:
    stream = InputStream(lambda start, stop: DATA[start:stop], len(DATA) + 1, uri="x")
    with pytest.raises(
        ChangedInputError, match=f"x: ends at byte {len(DATA)}, but had"
    ):
        stream.read()


def test_text_of_another_encoding() -> None:
    text = "a,ü\n" * 100
    stream = stream_of(gzip.compress(text.encode("utf-16")), "gzip", encoding="utf-16")
    assert b"".join(iter(stream.read_block, b"")) == text.encode()
    broken = stream_of(b"a\xff\xfeb" * 3, encoding="ascii")
    assert b"".join(iter(broken.read_block, b"")) == b"a\xed\xb3\xbf\xed\xb3\xbfb" * 3
    with pytest.raises(OSError, match="before the start"):
        broken.seek(-1)


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_memory_is_free_with_the_last_reference(compression: str) -> None:
    """Ranges have 16 MiB each, and the garbage collector seldom runs in a job."""
    data = gzip.compress(bytes(99)) if compression else bytes(99)
    stream = stream_of(data, compression)
    assert stream.part(0, 9) == bytes(9)
    is_there = weakref.ref(stream)
    gc.disable()
    try:
        del stream
        assert is_there() is None
    finally:
        gc.enable()
