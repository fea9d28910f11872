"""Records by declaration against numpy.frombuffer; what is wrong with a declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_cases import idx_bytes
from source_tools import read

from recordmill.schemas.errors import InputError, UsageError
from recordmill.transforms.sources.arrays.fixed_records import (
    TYPES,
    find_records,
    parse_record,
)
from recordmill.transforms.sources.arrays.headers import find_idx
from recordmill.transforms.sources.arrays.source import ArraysSource
from recordmill.transforms.sources.registry import BinaryOptions, IdxOptions


@pytest.mark.parametrize("order", ["little", "big"])
def test_every_type_is_read_as_numpy_does(order: Any, tmp_path: Path) -> None:
    mark = ">" if order == "big" else "<"
    types = [(name, mark + text, (2,)) for name, text in TYPES.items()]
    dtype = np.dtype([*types, ("gap", "V3"), ("id", "V2")])
    values = np.frombuffer(np.random.default_rng(1).bytes(dtype.itemsize * 9), dtype)
    (tmp_path / "a.bin").write_bytes(b"head" + values.tobytes())
    record = ",".join(f"{name}:{name}[2]" for name in TYPES) + ",_:u8[3], id:bytes[2]"
    options = BinaryOptions(record=record, byte_order=order, header_bytes=4)
    rows = read(ArraysSource(find_records, options, range_bytes=100), tmp_path).rows
    assert len(rows) == 9
    for row, value in zip(rows, values, strict=True):
        assert row.pop("u8") == value["u8"].tobytes()
        assert row.pop("id") == value["id"].tobytes()
        for name, found in row.items():
            is_float = name.startswith("f")
            expected = value[name].astype(np.float64) if is_float else value[name]
            assert repr(found) == repr(expected.tolist())  # nan equals nan


def test_axes_are_put_in_the_order_that_is_wanted(tmp_path: Path) -> None:
    stored = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    (tmp_path / "a.bin").write_bytes(stored.tobytes())
    for axes, order in ("chw->hwc", (2, 3, 1)), ("cwh->hwc", (3, 2, 1)):
        options = BinaryOptions(record=f"image:u8[3,4,5]:{axes}")
        reading = read(ArraysSource(find_records, options), tmp_path)
        wanted = stored.transpose(0, *order)
        assert [row["image"] for row in reading.rows] == [w.tobytes() for w in wanted]
        assert reading.source.schema()["image"].shape == wanted.shape[1:]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ("label", "cannot read 'label'"),
        ("label:u9", "'u9' is not a type"),
        ("a:u8,a:u8", "two fields are named 'a'"),
        ("a:u8,", "cannot read ','"),
        ("_:u8", "has no field with a name"),
        ("a:u8[0]", "sizes of at least 1"),
        ("a:u8[]", r"found \[\]"),
        ("a:u8[99999,99999,9]", "at most 268,435,456 values"),
        ("a:u8[3,2]:ch-", "Quote the declaration"),
        ("a:u8[3,2]:ch->hw", "do not define the order of 2 sizes"),
        ("a:bytes", "bytes have one size and no axes"),
        ("a:u8" + "0" * 20_000, "20,004 characters"),
    ],
)
def test_wrong_declarations_are_told(record: str, told: str) -> None:
    with pytest.raises(UsageError, match=rf"^`record`: .*{told}"):
        parse_record(record, "little")


NUMPY_MARK = b"\x93NUMPY" + bytes(94)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (bytes(3073 * 2), r"6,146 bytes .*: 46 bytes follow 61 records of 100 \(54 are missing.* fits records of CIFAR-10 \(convert cifar\)"),
        (bytes(27648), r"fits records of STL-10 \(layout=stl10\)"),
        (idx_bytes(np.zeros((3, 2, 2), np.uint8)), r"begins like an IDX file \(convert idx\)"),
        (NUMPY_MARK[:99], r"is a NumPy array \(convert numpy\)"),
        (b"", "has 0 bytes, expected records of 100"),
    ],
)  # fmt: skip
def test_another_layout_that_fits_is_told(
    content: bytes, told: str, tmp_path: Path
) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(InputError, match=told):
        read(ArraysSource(find_records, BinaryOptions(record="x:u8[100]")), tmp_path)


def stl10(folder: Path, **sizes: int) -> None:
    for name, size in sizes.items():
        (folder / f"{name}.bin").write_bytes(b"\1" * size)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"train_X": 27648}, "train_y.bin is missing next to it"),
        ({"train_X": 27648 * 2, "train_y": 3}, r"train_X.bin \(image\) has 2 rows, but .*train_y.bin \(label\) has 3"),
        ({"train_X": 27650, "train_y": 1}, "has 27,650 bytes, 2 more than 1 row of"),
    ],
)  # fmt: skip
def test_files_of_stl10_that_do_not_fit(
    sizes: dict[str, int], told: str, tmp_path: Path
) -> None:
    stl10(tmp_path, **sizes)
    with pytest.raises(InputError, match=told):
        read(ArraysSource(find_records, BinaryOptions()), tmp_path)


def test_a_label_of_no_class_is_a_reject(tmp_path: Path) -> None:
    stl10(tmp_path, train_X=27648 * 3)
    (tmp_path / "train_y.bin").write_bytes(b"\x01\x0b\x0a")
    reading = read(ArraysSource(find_records, BinaryOptions()), tmp_path)
    assert [row["label"] for row in reading.rows] == [0, 9]
    (reject,) = reading.rejects
    told = "train_y.bin: label: 11 is not a class label (1 to 10)"
    assert (reject.path, reject.position, reject.reason) == ("train_X.bin", 27648, told)
    assert reject.raw == b"\1" * 27648 + b"\x0b"


HUGE = b"\0\0\x08\x03" + b"\x7f\xff\xff\xff" * 3


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x-idx3-ubyte", b"", "begins with nothing, expected the magic"),
        ("x-idx3-ubyte", b"\0\0\x07\x01", "begins with 00 00 07 01"),
        ("x-idx3-ubyte", b"\0\0\x08\xff", "declares 255 axes"),
        ("x-idx3-ubyte", b"\0\0\x08\x03\0", "inside its header of 16"),
        ("x-idx3-ubyte", HUGE, "a row of 4,611,686,014,132,420,609 bytes"),
    ],
)
def test_wrong_headers_are_told(
    name: str, content: bytes, told: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=told):
        read(ArraysSource(find_idx, IdxOptions()), tmp_path)
