"""Frames of TFRecord files: found, checked, found again behind damage; nothing is lost."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from frames import frame
from tfrecord_tools import whole_file

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms import native
from recordmill.transforms import tfrecord as frames_of
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.sources.tfrecord.frames import cut_files
from recordmill.transforms.tfrecord import (
    FrameWindow,
    LostBytes,
    crc32c,
    find_frames,
    find_whole_frame,
    mask,
    read_frames,
)

RECORDS = [b"a" * n for n in (0, 5, 300, 1, 40, 2, 2, 90)]


@pytest.fixture(params=["native", "numpy"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(native, "loops", numpy_loops)


def windows_of(path: Path, window_bytes: int = 1 << 20) -> list[FrameWindow]:
    file = whole_file(path)
    stop = None if file.is_packed else path.stat().st_size
    return list(read_frames(file.part, 0, stop, window_bytes))


def read_all(
    path: Path, window_bytes: int = 1 << 20
) -> tuple[list[bytes], list[LostBytes]]:
    """The frames and what is lost of a file."""
    windows = windows_of(path, window_bytes)
    found = [each for window in windows for each in window.frames().to_pylist()]
    return found, [each for window in windows for each in window.lost]


@pytest.mark.usefixtures("loops")
def test_frames_are_found_up_to_damage() -> None:
    data = frame(RECORDS)
    starts = find_frames(np.frombuffer(data, np.uint8)).tolist()
    assert [b - a - 16 for a, b in pairwise(starts)] == [len(r) for r in RECORDS]
    assert starts[-1] == len(data)
    cut = find_frames(np.frombuffer(data[:-1], np.uint8)).tolist()
    assert cut == starts[:-1]
    broken = bytearray(data)
    broken[starts[3] + 9] ^= 1  # in the checksum of a length
    assert find_frames(np.frombuffer(broken, np.uint8)).tolist() == starts[:4]
    found = find_whole_frame(np.frombuffer(broken, np.uint8), starts[3] + 1)
    assert found == (starts[4], 0)
    assert find_frames(np.zeros(100, np.uint8)).tolist() == [0]  # no head is all zeros


@pytest.mark.usefixtures("loops")
def test_so_many_frames_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_of, "MAX_FRAMES", 3)
    data = np.frombuffer(frame(RECORDS), np.uint8)
    starts = find_frames(data)
    assert len(starts) == 3 + 1
    assert find_frames(data, int(starts[-1])).tolist()[0] == starts[-1]


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("tried_at_once", [1, 2, 3, 1 << 18])
def test_a_frame_at_the_very_end_is_found(
    before: int, tried_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames_of, "_BYTES_PER_TRY", tried_at_once)
    for record in (b"", b"abc"):
        whole = frame([record])
        data = np.frombuffer(b"\xff" * before + whole, np.uint8)
        assert find_whole_frame(data, 0) == (before, 0)
        assert find_whole_frame(data, before + 1) == (None, 0)
        cut = len(record) > 0
        needed = before + len(whole) if cut else 0
        assert find_whole_frame(data[:-1], 0) == (None, needed)


@pytest.mark.parametrize("window_bytes", [1, 30, 400, 1 << 20])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress])
def test_every_frame_is_read_from_any_packing(
    tmp_path: Path, pack: Callable[[bytes], bytes], window_bytes: int
) -> None:
    path = tmp_path / "a"
    path.write_bytes(pack(frame(RECORDS)))
    assert read_all(path, window_bytes) == ([frame([r]) for r in RECORDS], [])


def test_gzip_files_that_were_joined_are_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    halves = [gzip.compress(frame(part)) for part in (RECORDS[:3], RECORDS[3:])]
    path.write_bytes(bytes(5).join(halves) + bytes(3))
    assert read_all(path, 50)[0] == [frame([r]) for r in RECORDS]


def test_a_damaged_compressed_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    packed = gzip.compress(frame([bytes(range(256)) * 40]))
    path.write_bytes(packed[:-20])
    with pytest.raises(InputError, match="it ends before its compressed data do"):
        windows_of(path)
    path.write_bytes(packed[:60] + b"\xff\xff" + packed[62:])
    with pytest.raises(InputError, match=r"cannot be decompressed: .*copy it again"):
        windows_of(path)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (0, "length is wrong; reading continues 16 bytes"),
        (10, "length is wrong; reading continues 16 bytes"),
        (16 + 14, "5 bytes is wrong"),
        (-1, "90 bytes is wrong"),
        (-95, "length is wrong; no whole record"),
    ],
)
def test_damage_costs_its_record(tmp_path: Path, at: int, reason: str) -> None:
    data = bytearray(frame(RECORDS))
    data[at] ^= 0x10
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    for window_bytes in (1, 100, 1 << 20):
        found, (told,) = read_all(path, window_bytes)
        assert told.reason.startswith(f"the checksum of the record's {reason}")
        assert len(found) == len(RECORDS) - 1
        assert bytes(data[told.offset :]).startswith(told.raw)
        assert len(b"".join(found)) + len(told.raw) == len(data)


def test_bytes_that_are_missing_in_the_middle_cost_what_they_touch(
    tmp_path: Path,
) -> None:
    """A length that is right, but whose data runs into the next record."""
    path = tmp_path / "a.tfrecord"
    data = frame([b"a" * 50, b"b" * 50, b"c" * 50])
    path.write_bytes(data[:90] + data[110:])
    found, (lost,) = read_all(path)
    assert found == [frame([b"a" * 50]), frame([b"c" * 50])]
    assert "they are damaged; reading continues 46 bytes later" in lost.reason


def test_a_huge_length_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for length in (1 << 31, 1 << 60):
        size = length.to_bytes(8, "little")
        head = size + mask(crc32c(size)).to_bytes(4, "little")
        path.write_bytes(head + frame([b"", b"after"]))
        found, (lost,) = read_all(path)
        assert found == [frame([b""]), frame([b"after"])]
        assert f"has {length:,} bytes, expected at most" in lost.reason


def test_the_search_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_of, "SEARCH_BYTES", 16)
    monkeypatch.setattr(frames_of, "MAX_SEARCH_BYTES", 64)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame([b"a"]) + bytes(500) + frame([b"b"]))
    found, (lost,) = read_all(path)
    assert found == [frame([b"a"])]
    assert lost.reason.endswith("no whole record follows: 517 bytes are lost")
    assert len(lost.raw) == 64


def test_large_files_are_cut_where_records_begin(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    records = [bytes(n % 90) for n in range(200)] + [bytes(3 << 20)]
    data = frame(records)
    path.write_bytes(data)
    starts = find_frames(np.frombuffer(data, np.uint8)).tolist()

    def edges(step: int) -> list[int]:
        version = str(path.stat().st_mtime_ns)
        file = InputFile(path.name, str(path), len(data), version)
        cut = cut_files([file], NO_OPTIONS, whole_bytes=1000, step_bytes=step)
        assert [start for _, start, _ in cut[1:]] == [stop for _, _, stop in cut[:-1]]
        assert cut[-1][2] == len(data)
        return [start for _, start, _ in cut]

    assert edges(1) == starts[:-1]
    few = edges(3000)
    assert set(few) < set(starts)
    assert all(b - a < 3200 for a, b in pairwise(few))
    assert edges(1 << 30) == [0]
    broken = bytearray(data)
    broken[starts[90] + 9] ^= 1
    path.write_bytes(broken)
    assert edges(1) == starts[:91]  # behind damage nothing tells where records begin
