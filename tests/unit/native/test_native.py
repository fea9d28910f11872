"""The native extension refuses what would make it read or write elsewhere."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from recordmill.transforms import native
from recordmill.transforms.native.interface import _load
from recordmill.transforms.tfrecord import crc32c

_loops = _load()  # also where the others are tried without them
INT64, FLOAT, BYTES = 0x1A, 0x12, 0x0A
LEFT_OUT = _loops.LEFT_OUT


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "starts",
    [
        i64(0, 15),  # no room for a frame
        i64(0, 65),  # beyond the end
        i64(-1, 20),
        i64(20, 40, 30),  # backwards
        i64(),
    ],
)
def test_frames_outside_are_not_sealed(starts: Any) -> None:
    data = np.full(64, 7, np.uint8)
    with pytest.raises(ValueError, match="outside the data"):
        _loops.seal(data, starts)
    assert (data == 7).all()


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        (i64(0), i64(15)),
        (i64(50), i64(16)),
        (i64(-1), i64(16)),
        (i64(0), i64(1 << 62)),
        (i64(1 << 62), i64(16)),
        (i64(0, 16), i64(16)),
    ],
)
def test_frames_outside_are_not_checked(starts: Any, lengths: Any) -> None:
    with pytest.raises(ValueError, match="outside the data"):
        _loops.first_damaged_frame(bytes(64), starts, lengths)


@pytest.mark.parametrize(
    ("starts", "cuts", "sizes", "crcs"),
    [
        (i64(0, 65), i64(20), i64(5), 1),
        (i64(0, 15), i64(12), i64(5), 1),
        (i64(0, 64), i64(11), i64(5), 1),
        (i64(0, 64), i64(61), i64(5), 1),
        (i64(0, 64), i64(20), i64(-1), 1),
        (i64(0, 64), i64(20), i64(5, 5), 1),
        (i64(0, 64), i64(20, 30), i64(5, 5), 2),
        (i64(0, 64), i64(20), i64(5), 0),
        (i64(), i64(), i64(), 0),
    ],
)
def test_cells_outside_of_frames_are_not_sealed(
    starts: Any, cuts: Any, sizes: Any, crcs: int
) -> None:
    data = np.full(64, 7, np.uint8)
    with pytest.raises(ValueError, match="outside the data, or a cell outside it"):
        _loops.seal_around(data, starts, cuts, sizes, np.zeros(crcs, np.uint32))
    assert (data == 7).all()


def test_frames_are_not_searched_outside() -> None:
    for at, starts in ((-1, i64(0)), (65, i64(0)), (0, i64())):
        with pytest.raises(ValueError, match="outside the data"):
            _loops.find_frames(bytes(64), at, starts)


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        (i64(-1), i64(4)),
        (i64(61), i64(4)),
        (i64(0), i64(-1)),
        (i64(0), i64(1 << 62)),
        (i64(0, 4), i64(4)),
    ],
)
def test_parts_are_not_gathered_outside(starts: Any, lengths: Any) -> None:
    with pytest.raises(ValueError, match="outside the target"):
        _loops.gather(0, i64(0), starts, lengths, np.zeros(64, np.uint8))


@pytest.mark.parametrize(
    ("paths", "sizes", "modified"),
    [
        ((b"/",), i64(-1), i64(0)),
        ((b"/",), i64(1, 1), i64(0, 0)),
        ((b"/", b"/"), i64(1, 1), i64(0)),
        ([b"/"], i64(1), i64(0)),
        (("/",), i64(1), i64(0)),
        ((b"/",), i64(1 << 62), i64(0)),
    ],
)
def test_files_without_a_place_are_not_read(
    paths: Any, sizes: Any, modified: Any
) -> None:
    with pytest.raises((ValueError, TypeError, MemoryError)):
        _loops.read_files(paths, sizes, modified)


@pytest.mark.parametrize(
    ("paths", "places"),
    [
        (b"/", (1, 1, 1)),
        (b"/\0/", (1, 1, 1)),
        (b"/\0/", (2, 2, 2)),
        (b"/\0/\0", (1, 1, 1)),
        (b"/\0", (1, 2, 1)),
        (b"/\0", (1, 1, 0)),
        (b"", (1, 1, 1)),
    ],
)
def test_files_without_a_place_are_not_asked(paths: bytes, places: Any) -> None:
    facts = [np.full(places[each], 7, np.int64) for each in range(3)]
    with pytest.raises(ValueError, match="a zero byte behind it, and a place"):
        _loops.read_status(paths, *facts)
    assert all((each == 7).all() for each in facts)


def test_pieces_are_copied_to_where_they_stand_together() -> None:
    pieces = [
        memoryview(b"ab"),
        memoryview(b""),
        memoryview(b"cdefg"),
        memoryview(b"h"),
    ]
    for skip in range(11):
        for room in range(11):
            target = np.full(room, ord("-"), np.uint8)
            copied = b"abcdefgh"[skip : skip + room]
            assert _loops.copy(pieces, skip, target) == len(copied)
            assert target.tobytes() == copied.ljust(room, b"-")
    for given, skip in (
        ([memoryview(b"a"), "b"], 0),
        ([memoryview(b"a")], -1),
        ((), 0),
    ):
        with pytest.raises((TypeError, ValueError, SystemError)):
            _loops.copy(cast("Any", given), skip, np.zeros(4, np.uint8))


@pytest.mark.parametrize(
    ("row_bytes", "before", "count", "image_bytes"),
    [(12, 1, 2, 12), (12, 13, 2, 0), (12, -1, 2, 12), (12, 0, -1, 12), (12, 0, 2, 11)],
)
def test_planes_outside_are_not_laid_side_by_side(
    row_bytes: int, before: int, count: int, image_bytes: int
) -> None:
    rows = np.zeros(row_bytes * abs(count), np.uint8)
    images = np.zeros(image_bytes * abs(count), np.uint8)
    with pytest.raises(ValueError, match="planes of the images"):
        _loops.interleave(rows, before, count, images)


def test_very_many_images_without_pixels_take_no_time() -> None:
    images = np.zeros(0, np.uint8)
    _loops.interleave(b"", 0, 1 << 62, images)


@pytest.mark.parametrize("pixels", [0, 1, 5, 15, 16, 17, 33, 100])
def test_planes_are_laid_side_by_side(pixels: int) -> None:
    rows = np.random.default_rng(pixels).integers(0, 256, (3, 2 + 3 * pixels), np.uint8)
    images = np.zeros((3, pixels, 3), np.uint8)
    _loops.interleave(rows, 2, 3, images)
    planes = rows[:, 2:].reshape(3, 3, pixels)
    assert (images == planes.transpose(0, 2, 1)).all()


@pytest.mark.parametrize(
    "column",
    [
        (b"k", INT64, i64(1), None, None, None),  # one value for two rows
        (b"k", FLOAT, np.zeros(1, np.float32), None, None, None),
        (b"k", INT64, i64(1, 2), None, i64(0, 1, 3), None),
        (b"k", INT64, i64(1, 2), None, i64(0, 2, 1), None),
        (b"k", INT64, i64(1, 2), None, i64(-1, 1, 2), None),
        (b"k", INT64, i64(1, 2), None, i64(0, 2), None),
        (b"k", INT64, i64(1, 2), None, None, b"\1"),
        (b"k", BYTES, b"abc", None, None, None),
        (b"k", BYTES, b"abc", np.array([0, 4, 3], np.int32), None, None),
        (b"k", BYTES, b"abc", np.array([0, 1, 4], np.int32), None, None),
        (b"k", 7, i64(1, 2), None, None, None),
        (b"k", LEFT_OUT, i64(0), np.array([0, 4, 8], np.int32), None, None),
        (b"k", LEFT_OUT, bytes(16), np.array([0, 4, 8], np.int32), None, None),
        (b"k", LEFT_OUT, i64(0, 0), np.array([0, 4], np.int32), None, None),
        (b"k", LEFT_OUT, i64(0, 0), np.array([0, 4, 3], np.int32), None, None),
        (b"k", LEFT_OUT, i64(0, 0), None, None, None),
        (b"k", LEFT_OUT, i64(0, 0), np.array([0, 4, 8], np.int32), i64(0, 1, 2), None),
        (b"k", LEFT_OUT, i64(0, 0), np.array([0, 4, 8], np.int32), None, b"\1\1"),
    ],
)
def test_columns_that_do_not_fit_are_refused(column: Any) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        _loops.measure([column], i64(0, 0))


def test_one_column_is_left_out() -> None:
    offsets = np.array([0, 4, 204], np.int32)
    one, two = ((key, LEFT_OUT, i64(0, 0), offsets, None, None) for key in (b"a", b"b"))
    with pytest.raises(ValueError, match="do not fit"):
        _loops.measure([one, two], i64(0, 0))
    sizes = i64(0, 0)
    _loops.measure([one], sizes)
    assert sizes.tolist() == [15, 215]  # as if they were there
    for starts in (i64(0, 17, 235), i64(0, 13, 32)):  # all, or a byte too much
        with pytest.raises(ValueError, match="places of the rows"):
            _loops.write([one], 0, sizes, starts, 0, 0, np.zeros(400, np.uint8))
    _loops.write([one], 0, sizes, i64(0, 13, 31), 0, 0, np.zeros(400, np.uint8))
    assert one[2].tolist() == [13, 31]


@pytest.mark.parametrize("columns", [[(b"k",)], ["k"], None, [(None, *"12345")]])
def test_other_objects_are_refused(columns: Any) -> None:
    with pytest.raises((TypeError, ValueError, SystemError)):
        _loops.measure(columns, i64(0, 0))


@pytest.mark.parametrize(
    ("starts", "room"),
    [
        (i64(0, 20, 40), 200),  # not what the rows take
        (i64(0, 13, 26), 25),  # too short for the last row
        (i64(0, 13), 200),
        (i64(-13, 0, 13), 200),
    ],
)
def test_places_that_do_not_fit_are_refused(starts: Any, room: int) -> None:
    columns = [(b"k", INT64, i64(1, 2), None, None, None)]
    sizes = i64(0, 0)
    _loops.measure(columns, sizes)
    assert sizes.tolist() == [12, 12]
    with pytest.raises(ValueError, match="places of the rows"):
        _loops.write(columns, 0, sizes, starts, 0, 0, np.zeros(room, np.uint8))


@pytest.mark.parametrize(
    ("head", "tail"), [(-5, 5), (5, -5), (1 << 62, -(1 << 62)), (1 << 62, 1 << 62)]
)
def test_less_than_no_room_is_refused(head: int, tail: int) -> None:
    columns = [(b"k", INT64, i64(1, 2), None, None, None)]
    sizes, target = i64(0, 0), np.zeros(200, np.uint8)
    _loops.measure(columns, sizes)
    _loops.write(columns, 0, sizes, i64(0, 14, 28), 0, 0, target)
    with pytest.raises(ValueError, match="places of the rows"):
        _loops.write(columns, 0, sizes, i64(0, 14, 28), head, tail, target)


def test_read_only_memory_is_not_written_to() -> None:
    with pytest.raises((TypeError, BufferError)):
        _loops.seal(bytes(64), i64(0, 32))


def test_checksums_by_tables(tmp_path: Path) -> None:
    """As on a processor without an instruction for CRC-32C."""
    source = Path(native.__file__).with_name("crc32c.c")
    library = tmp_path / "crc32c.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    flags = ["-DCRC32C_BY_TABLE", "-O0", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, source, "-o", library], check=True)
    loops = ctypes.CDLL(str(library))
    loops.crc32c_choose.restype = ctypes.c_char_p
    assert loops.crc32c_choose() == b"table"
    loops.crc32c.restype = ctypes.c_uint32
    datas = [random.Random(size).randbytes(size) for size in (0, 1, 7, 8, 9, 40, 999)]
    for data in datas:
        assert loops.crc32c(data, ctypes.c_size_t(len(data))) == crc32c(data)
    three = (datas[2], datas[4], datas[6])
    found = (ctypes.c_uint32 * 3)()
    sizes = (ctypes.c_size_t * 3)(*map(len, three))
    loops.crc32c_three((ctypes.c_char_p * 3)(*three), sizes, found)
    assert list(found) == [crc32c(data) for data in three]
