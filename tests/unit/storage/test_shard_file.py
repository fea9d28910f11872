"""Shard files: whole under their name or not there at all."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tfrecord import FRAME_BYTES, crc32c


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Windows as gather gives them: slices too, whose offsets do not start at 0.
FRAMED = [bytes([n]) * (FRAME_BYTES + size) for n, size in enumerate([0, 5, 100, 1])]
WINDOWS = [
    pa.array([FRAMED[0], FRAMED[1]]),
    pa.array([b"left out", FRAMED[2], b"too"]).slice(1, 1),
    pa.array([b"none of it"]).slice(1),
    pa.array([], pa.binary()),
    pa.array([FRAMED[3]]),
]


def test_shard_is_its_records_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    facts = write_records(path, WINDOWS, "none")
    body = b"".join(FRAMED)
    assert path.read_bytes() == body
    assert (facts.records, facts.bytes, facts.example_bytes) == (4, len(body), 106)
    assert facts.crc32c == crc32c(body)
    assert names_in(tmp_path) == ["s"]


def test_gzip_shard(tmp_path: Path) -> None:
    path = tmp_path / "s.gz"
    facts = write_records(path, WINDOWS, "gzip")
    stored = path.read_bytes()
    assert gzip.decompress(stored) == b"".join(FRAMED)
    # magic, deflate, no file name or other field, mtime 0
    assert stored[:8] == bytes.fromhex("1f8b0800 00000000")
    assert (facts.records, facts.bytes, facts.example_bytes) == (4, len(stored), 106)
    assert facts.crc32c == crc32c(stored)
    again = write_records(tmp_path / "other name", iter(WINDOWS), "gzip")
    assert again == facts
    assert (tmp_path / "other name").read_bytes() == stored


@pytest.mark.parametrize("level", [1, 3, 6, 9])
def test_gzip_bytes_do_not_depend_on_windows(tmp_path: Path, level: int) -> None:
    records = pa.array([zlib.compress(b"%d" % n) * 20 for n in range(400)])
    one = write_records(tmp_path / "one", [records], "gzip", level)
    windows = [records.slice(n, 1) for n in range(400)]
    assert write_records(tmp_path / "many", windows, "gzip", level) == one


def test_gzip_levels_and_their_bytes(tmp_path: Path) -> None:
    """Another version of zlib-ng may give others: then say so in the changelog."""
    texts = [b"row %d has a value of %d" % (n, n**3) for n in range(20_000)]
    found = [
        write_records(tmp_path / f"{level}", [pa.array(texts)], "gzip", level)
        for level in (1, 6, 9)
    ]
    assert [(file.bytes, file.crc32c) for file in found] == [
        (283491, 2707764495),
        (190242, 3186236465),
        (191943, 3051926598),
    ]


def test_shard_without_records(tmp_path: Path) -> None:
    facts = write_records(tmp_path / "s", [], "none")
    assert (facts.records, facts.bytes, facts.example_bytes, facts.crc32c) == (0,) * 4
    assert (tmp_path / "s").read_bytes() == b""


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_failing_windows_leave_no_file(
    tmp_path: Path, failure: type[BaseException], compression: str
) -> None:
    def windows() -> Iterator[pa.BinaryArray]:
        yield WINDOWS[0]
        raise failure

    with pytest.raises(failure):
        write_records(tmp_path / "s", windows(), compression)
    assert names_in(tmp_path) == []


def test_bytes_are_on_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync of the file, rename, fsync of the folder: in this order."""
    steps: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        steps.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        steps.append(f"rename {self.name} {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    write_records(tmp_path / "s", WINDOWS, "none")
    aside = steps[0].removeprefix("fsync ")
    assert aside.startswith(".s."), "hidden, and no shard's name"
    assert steps == [f"fsync {aside}", f"rename {aside} s", f"fsync {tmp_path.name}"]


def test_two_tries_of_one_shard_at_once(tmp_path: Path) -> None:
    """A runner may start a task again while the first try still runs."""

    def other_try() -> None:
        assert write_records(tmp_path / "s", WINDOWS, "none").records == 4

    def slow_windows() -> Iterator[pa.BinaryArray]:
        yield WINDOWS[0]
        with ThreadPoolExecutor(1) as thread:
            thread.submit(other_try).result()
        yield from WINDOWS[1:]

    facts = write_records(tmp_path / "s", slow_windows(), "none")
    body = b"".join(FRAMED)
    assert (tmp_path / "s").read_bytes() == body
    assert facts.crc32c == crc32c(body)
    assert names_in(tmp_path) == ["s"]


def test_shard_larger_than_any_buffer(tmp_path: Path) -> None:
    """Windows that end inside a block, at its end, and beyond the writer's buffer."""
    random = np.random.default_rng(0)
    sizes = [4096, 1, 4095, 5_000_000, 8_388_608, 17, 4096]
    framed = [random.bytes(size) for size in sizes]
    path = tmp_path / "s"
    facts = write_records(path, (pa.array([one]) for one in framed), "none")
    body = b"".join(framed)
    assert path.read_bytes() == body
    assert (facts.bytes, facts.crc32c) == (len(body), crc32c(body))
