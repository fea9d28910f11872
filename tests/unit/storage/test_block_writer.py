"""Files written through and past the page cache hold the same bytes."""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from recordmill.transforms.storage.shard_file import (
    BLOCK_BYTES,
    BUFFER_BYTES,
    BlockWriter,
)

pytestmark = pytest.mark.on_disk  # a tmpfs takes direct I/O that is not aligned

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


@pytest.fixture(autouse=True, params=[True, False], ids=["direct", "cached"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with direct I/O, and one without."""
    if not request.param:
        monkeypatch.setattr("recordmill.transforms.storage.shard_file._O_DIRECT", 0)


def write(path: Path, parts: list[bytes]) -> None:
    with BlockWriter(path) as file:
        for part in parts:
            file.write([memoryview(part)])
        file.finish()


@pytest.mark.parametrize("size", SIZES)
def test_written_in_one_piece(tmp_path: Path, size: int) -> None:
    data = RANDOM[:size]
    write(tmp_path / "file", [data])
    assert (tmp_path / "file").read_bytes() == data


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
def test_written_in_pieces(tmp_path: Path, cuts: list[int]) -> None:
    edges = [0, *cuts, len(RANDOM)]
    parts = [RANDOM[a:b] for a, b in pairwise(edges)]
    write(tmp_path / "file", parts)
    assert (tmp_path / "file").read_bytes() == RANDOM


def test_takes_views_of_arrays(tmp_path: Path) -> None:
    """Records come as slices of larger buffers, read-only or not."""
    array = np.frombuffer(RANDOM, np.uint8)
    with BlockWriter(tmp_path / "file") as file:
        file.write([array.data[3:5000]])
        file.write([memoryview(RANDOM)[5000:]])
        file.finish()
    assert (tmp_path / "file").read_bytes() == RANDOM[3:]


def test_longer_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(RANDOM)
    write(tmp_path / "file", [b"short"])
    assert (tmp_path / "file").read_bytes() == b"short"


def test_writers_share_no_buffer(tmp_path: Path) -> None:
    """Of those that are used again, none is used twice, also after an error."""
    with pytest.raises(TypeError):
        write(tmp_path / "x", [RANDOM, None])  # type: ignore[list-item]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(BlockWriter(tmp_path / str(n))) for n in range(6)
        ]
        for _ in range(BUFFER_BYTES // 1000):
            for number, file in enumerate(writers):
                file.write([memoryview(bytes([number]) * 1001)])
        for file in writers:
            file.finish()
    for number, file in enumerate(writers):
        assert (tmp_path / str(number)).read_bytes() == bytes([number]) * file.size
    write(tmp_path / "later", [b"later"])
    assert (tmp_path / "later").read_bytes() == b"later"


def test_in_memory_file_system() -> None:
    """Many kernels refuse direct I/O on tmpfs; then files are written as usual."""
    path = Path("/dev/shm") / f"recordmill-{uuid4().hex}"
    try:
        write(path, [RANDOM])
        assert path.read_bytes() == RANDOM
    finally:
        path.unlink(missing_ok=True)


def test_refused_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without it: the flag is one that no plain file is opened with."""
    monkeypatch.setattr(
        "recordmill.transforms.storage.shard_file._O_DIRECT", os.O_DIRECTORY
    )
    with BlockWriter(tmp_path / "file") as file:
        assert not file.is_direct
        file.write([memoryview(RANDOM)])
        file.finish()
    assert (tmp_path / "file").read_bytes() == RANDOM


def test_buffers_are_aligned() -> None:
    assert BLOCK_BYTES % mmap.PAGESIZE == 0 or mmap.PAGESIZE % BLOCK_BYTES == 0
    assert BUFFER_BYTES % BLOCK_BYTES == 0
