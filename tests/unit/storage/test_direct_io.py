"""Files written and read with and round the page cache hold the same bytes."""

from __future__ import annotations

import mmap
import os
import threading
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.storage.direct_io import (
    BLOCK_BYTES,
    BUFFER_BYTES,
    BlockWriter,
    ScratchSpeed,
    read_into,
)

SIZES = [
    0,
    1,
    BLOCK_BYTES - 1,
    BLOCK_BYTES,
    BLOCK_BYTES + 1,
    BUFFER_BYTES - BLOCK_BYTES,
    BUFFER_BYTES - 1,
    BUFFER_BYTES,
    BUFFER_BYTES + 1,
    2 * BUFFER_BYTES,
    2 * BUFFER_BYTES + BLOCK_BYTES + 1,
    5 * BUFFER_BYTES - 1,  # all buffers twice
]
RANDOM = np.random.default_rng(3).bytes(max(SIZES) + 1)
BOTH_WAYS = pytest.mark.parametrize("direct", [False, True])


def write(path: Path, parts: list[bytes], *, direct: bool) -> None:
    with BlockWriter(path, direct=direct) as file:
        for part in parts:
            file.write(part)
        file.finish(durable=True)


def read(path: Path, offset: int, size: int, *, direct: bool) -> bytes:
    target = bytearray(size)
    read_into(path, memoryview(target), offset, direct=direct)
    return bytes(target)


@BOTH_WAYS
@pytest.mark.parametrize("size", SIZES)
def test_written_in_one_piece(tmp_path: Path, size: int, direct: bool) -> None:
    data = RANDOM[:size]
    write(tmp_path / "file", [data], direct=direct)
    assert (tmp_path / "file").read_bytes() == data


@BOTH_WAYS
@pytest.mark.parametrize(
    "cuts",
    [
        [0],  # an empty piece is none
        [1, 2, 3],
        [BLOCK_BYTES],
        [BLOCK_BYTES - 1, 2 * BLOCK_BYTES + 1],
        [BUFFER_BYTES - 1, BUFFER_BYTES + 1],
        [BUFFER_BYTES, 2 * BUFFER_BYTES],
        [7, BUFFER_BYTES + 7, 2 * BUFFER_BYTES + 7],
    ],
)
def test_written_in_pieces(tmp_path: Path, cuts: list[int], direct: bool) -> None:
    edges = [0, *cuts, len(RANDOM)]
    parts = [RANDOM[a:b] for a, b in pairwise(edges)]
    write(tmp_path / "file", parts, direct=direct)
    assert (tmp_path / "file").read_bytes() == RANDOM


@BOTH_WAYS
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", [0, 1, BLOCK_BYTES, BUFFER_BYTES - 1])
def test_read_part(tmp_path: Path, offset: int, size: int, direct: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(RANDOM)
    size = min(size, len(RANDOM) - offset)
    expected = RANDOM[offset : offset + size]
    assert read(path, offset, size, direct=direct) == expected


@BOTH_WAYS
@pytest.mark.parametrize(
    ("size", "offset", "wanted"),
    [
        (0, 0, 1),
        (10, 0, 11),
        (10, 10, 1),
        (10, 9000, 1),  # blocks behind the end
        (BLOCK_BYTES, BLOCK_BYTES - 1, 2),
        (BUFFER_BYTES + 5, 3, BUFFER_BYTES + 3),
    ],
)
def test_file_ends_early(
    tmp_path: Path, size: int, offset: int, wanted: int, direct: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(RANDOM[:size])
    with pytest.raises(RecordmillError) as caught:
        read(path, offset, wanted, direct=direct)
    expected = f"{path}: the scratch file ends before byte {offset + wanted}"
    assert str(caught.value) == expected


@BOTH_WAYS
def test_takes_views_of_arrays(tmp_path: Path, direct: bool) -> None:
    """Records come as slices of larger buffers, read-only or not."""
    array = np.frombuffer(RANDOM, np.uint8)
    with BlockWriter(tmp_path / "file", direct=direct) as file:
        file.write(array.data[3:5000])
        file.write(memoryview(RANDOM)[5000:])
        file.finish(durable=False)
    assert (tmp_path / "file").read_bytes() == RANDOM[3:]


@BOTH_WAYS
def test_longer_file_is_replaced(tmp_path: Path, direct: bool) -> None:
    (tmp_path / "file").write_bytes(RANDOM)
    write(tmp_path / "file", [b"short"], direct=direct)
    assert (tmp_path / "file").read_bytes() == b"short"


@BOTH_WAYS
def test_two_writers_in_one_thread(tmp_path: Path, direct: bool) -> None:
    """They would share a buffer; the one that was first goes on unharmed."""
    with BlockWriter(tmp_path / "first", direct=direct) as first:
        first.write(b"one")
        with pytest.raises(
            RuntimeError, match="second: this thread is already writing"
        ):
            BlockWriter(tmp_path / "second", direct=direct)
        first.write(b"two")
        first.finish(durable=False)
    assert (tmp_path / "first").read_bytes() == b"onetwo"
    write(tmp_path / "second", [b"later"], direct=direct)
    assert (tmp_path / "second").read_bytes() == b"later"


def test_refused_writer_leaves_the_file(tmp_path: Path) -> None:
    (tmp_path / "second").write_bytes(b"kept")
    with (
        BlockWriter(tmp_path / "first", direct=False),
        pytest.raises(RuntimeError, match="this thread is already writing"),
    ):
        BlockWriter(tmp_path / "second", direct=False)
    assert (tmp_path / "second").read_bytes() == b"kept"


@BOTH_WAYS
def test_a_close_that_fails_frees_the_thread(tmp_path: Path, direct: bool) -> None:
    with (
        pytest.raises(OSError, match="Bad file descriptor"),
        BlockWriter(tmp_path / "file", direct=direct) as file,
    ):
        os.close(file._descriptor)
    write(tmp_path / "file", [b"later"], direct=direct)
    assert (tmp_path / "file").read_bytes() == b"later"


@BOTH_WAYS
def test_error_frees_the_thread(tmp_path: Path, direct: bool) -> None:
    with pytest.raises(TypeError):
        write(tmp_path / "first", [b"half", None], direct=direct)  # type: ignore[list-item]
    write(tmp_path / "second", [b"whole"], direct=direct)
    assert (tmp_path / "second").read_bytes() == b"whole"
    with pytest.raises(FileNotFoundError):
        BlockWriter(tmp_path / "no" / "folder", direct=direct)
    write(tmp_path / "third", [b"whole"], direct=direct)


@BOTH_WAYS
def test_a_writer_in_each_thread(tmp_path: Path, direct: bool) -> None:
    number = 4
    ready = threading.Barrier(number)

    def write_own(index: int) -> None:
        with BlockWriter(tmp_path / str(index), direct=direct) as file:
            ready.wait(60)
            for _ in range(100):
                file.write(bytes([index]) * 1000)
            file.finish(durable=False)

    threads = [threading.Thread(target=write_own, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for index in range(number):
        assert (tmp_path / str(index)).read_bytes() == bytes([index]) * 100_000


@BOTH_WAYS
def test_in_memory_file_system(direct: bool) -> None:
    """Many kernels refuse direct I/O on tmpfs; then files are written as usual."""
    path = Path("/dev/shm") / f"recordmill-{uuid4().hex}"
    try:
        write(path, [RANDOM], direct=direct)
        assert path.read_bytes() == RANDOM
        assert read(path, 5, 5000, direct=direct) == RANDOM[5:5005]
    finally:
        path.unlink(missing_ok=True)


def test_refused_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without it: the flag is one that no plain file is opened with."""
    monkeypatch.setattr(
        "recordmill.transforms.storage.direct_io._O_DIRECT", os.O_DIRECTORY
    )
    with BlockWriter(tmp_path / "file", direct=True) as file:
        assert not file.direct
        file.write(RANDOM)
        file.finish(durable=True)
    assert read(tmp_path / "file", 1, 9, direct=True) == RANDOM[1:10]


CACHED, DIRECT = False, True
ENOUGH = 4 << 20


def test_scratch_speed_tries_both_ways_first() -> None:
    speed = ScratchSpeed()
    tried = []
    for _ in range(4):
        tried.append(speed.direct)
        speed.note(ENOUGH, 1.0, direct=speed.direct)
    assert tried == [CACHED, DIRECT, CACHED, DIRECT]


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([(CACHED, 1.0), (DIRECT, 2.0)] * 2, CACHED),
        ([(CACHED, 2.0), (DIRECT, 1.0)] * 2, DIRECT),
        ([(CACHED, 1.0), (DIRECT, 1.0)] * 2, CACHED),  # no gain: as everyone does
        ([(CACHED, 2.0)] * 8 + [(DIRECT, 1.0)], DIRECT),  # still to be tried
        ([(DIRECT, 1.0)] * 8 + [(CACHED, 2.0)], CACHED),
        # The mean counts, and of what is long ago nothing.
        ([(CACHED, 9.0), (CACHED, 1.0), (DIRECT, 4.0), (DIRECT, 4.0)], DIRECT),
        ([(CACHED, 99.0)] * 8 + [(CACHED, 1.0)] * 8 + [(DIRECT, 2.0)] * 2, CACHED),
    ],
)
def test_scratch_speed_takes_the_faster(
    notes: list[tuple[bool, float]], expected: bool
) -> None:
    speed = ScratchSpeed()
    for direct, seconds in notes:
        speed.note(ENOUGH, seconds, direct=direct)
    assert speed.direct == expected


def test_scratch_speed_counts_large_writes_alone() -> None:
    speed = ScratchSpeed()
    for _ in range(8):
        speed.note(ENOUGH - 1, 1e-9, direct=CACHED)
    assert speed.direct == CACHED
    speed.note(ENOUGH, 1.0, direct=CACHED)
    assert speed.direct == DIRECT


def test_scratch_speed_is_per_byte() -> None:
    speed = ScratchSpeed()
    for _ in range(2):
        speed.note(100 * ENOUGH, 10.0, direct=CACHED)
        speed.note(ENOUGH, 1.0, direct=DIRECT)
    assert speed.direct == CACHED


def test_buffers_are_aligned() -> None:
    assert BLOCK_BYTES % mmap.PAGESIZE == 0 or mmap.PAGESIZE % BLOCK_BYTES == 0
    assert BUFFER_BYTES % BLOCK_BYTES == 0
