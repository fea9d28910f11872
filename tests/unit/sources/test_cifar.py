"""CIFAR binary files: layouts, pixels, labels, class names and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from source_tools import GOLDEN, prepare, read

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, Kind
from recordmill.schemas.input_files import InputFile
from recordmill.transforms import arrow
from recordmill.transforms.sources.arrays import source as arrays_source
from recordmill.transforms.sources.arrays.fixed_records import (
    CIFAR10,
    CIFAR100,
    CifarLayout,
    CifarSource,
    detect_layout,
    parse_split,
)
from recordmill.transforms.sources.base import REFERENCE, RangeFindings
from recordmill.transforms.sources.registry import CifarOptions


def naive_pixels(record: bytes, num_labels: int) -> bytes:
    planes = np.frombuffer(record[num_labels:], np.uint8).reshape(3, 32, 32)
    return planes.transpose(1, 2, 0).tobytes()


def records_of(layout: CifarLayout, num_records: int, labels: int = 0) -> bytes:
    pixels = np.arange(3072, dtype=np.uint32)
    return b"".join(
        bytes([labels] * len(layout.labels)) + (pixels + n).astype(np.uint8).tobytes()
        for n in range(num_records)
    )


@pytest.mark.parametrize(
    ("name", "layout"), [("cifar10.bin", CIFAR10), ("cifar100.bin", CIFAR100)]
)
@pytest.mark.parametrize("range_bytes", [1 << 24, 7000])
def test_golden_records(name: str, layout: CifarLayout, range_bytes: int) -> None:
    reading = read(CifarSource(range_bytes=range_bytes), GOLDEN / name)
    data = (GOLDEN / name).read_bytes()
    size = layout.record_bytes
    records = [data[at : at + size] for at in range(0, len(data), size)]
    assert len(reading.rows) == len(records) == 20
    assert len(reading.ranges) == (1 if range_bytes > 7000 else 10)
    assert all(input_range.start % size == 0 for input_range in reading.ranges)
    for row, record in zip(reading.rows, records, strict=True):
        labels = {label: record[n] for n, (label, *_) in enumerate(layout.labels)}
        image = naive_pixels(record, len(layout.labels))
        sizes = {"height": 32, "width": 32, "depth": 3}
        assert row == {"image": image, **labels, **sizes}


def test_rows_that_are_kept_stay_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "_MIN_POOLED_BYTES", 1)
    monkeypatch.setattr(arrays_source, "BATCH_BYTES", 2 * 3073)
    pixels = np.random.default_rng(5).integers(0, 256, (9, 3072), np.uint8)
    records = [bytes([n]) + row.tobytes() for n, row in enumerate(pixels)]
    for name, some in (("a.bin", records[:4]), ("b.bin", records[4:])):
        (tmp_path / name).write_bytes(b"".join(some))
    reading = prepare(CifarSource(), [tmp_path])
    source, ranges = reading.source, reading.ranges
    read_rows = [
        rows for each in ranges for rows in source.read(each, (), RangeFindings())
    ]
    images = [image for rows in read_rows for image in rows.batch["image"].to_pylist()]
    assert images == [naive_pixels(record, 1) for record in records]
    raw = [rows.raw_row(n)[1] for rows in read_rows for n in range(len(rows.positions))]
    assert raw == records
    listed = [
        rows.batch
        for each in ranges
        for rows in source.list_references(each, RangeFindings())
    ]
    references = pa.concat_arrays([batch[REFERENCE] for batch in listed])
    orders = [[8, 2, 5, 0, 1], [3, 7, 1, 4, 4], [6, 6, 0, 8, 2]]
    monkeypatch.setattr(arrays_source, "WINDOW_BYTES", 2 * 3073)
    windows = [references.take(pa.array(order)) for order in orders]
    parts = [order[start : start + 2] for order in orders for start in (0, 2, 4)]
    for some, rows in zip(
        parts, source.read_windows(windows, RangeFindings()), strict=True
    ):
        expected = [naive_pixels(records[n], 1) for n in some]
        assert rows.batch["image"].to_pylist() == expected
        places = [
            (str(tmp_path / "ab"[n > 3]) + ".bin", (n - 4 * (n > 3)) * 3073)
            for n in some
        ]
        told = [(*place, records[n]) for place, n in zip(places, some, strict=True)]
        assert [rows.raw_row(row) for row in range(len(some))] == told
    (nothing,) = source.read_windows([references[:0]], RangeFindings())
    assert nothing.batch.num_rows == 0


def test_cifar100_has_the_fine_label_as_its_label(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(bytes([19, 99]) + bytes(3072))
    (row,) = read(CifarSource(), path).rows
    assert (row["coarse_label"], row["label"]) == (19, 99)


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("data_batch_1.bin", 3073 * 10, CIFAR10),
        ("sub/test_batch.bin", 3073, CIFAR10),
        ("train.bin", 3074 * 10, CIFAR100),
        ("TEST.BIN", 3074, CIFAR100),
        ("data_batch_1.bin", 3073 * 10 + 5, CIFAR10),  # cut short: the name tells
        ("train.bin", 3074 * 10 - 1, CIFAR100),
        ("train.bin", 3073 * 3074, CIFAR100),  # the size fits both
        ("mine.bin", 3073 * 3, CIFAR10),  # the size tells
        ("mine.bin", 3074 * 3, CIFAR100),
        ("my-cifar-10.bin", 3073 * 3074, CIFAR10),
        ("cifar100_part.bin", 100, CIFAR100),
        ("my_cifar_10.bin", 3074 * 2, CIFAR100),  # only a hint: the size is sure
    ],
)
def test_detect_layout(name: str, size: int, expected: CifarLayout) -> None:
    assert detect_layout(InputFile(name, f"/in/{name}", size)) == expected


WAY = "use `variant=cifar10` or `variant=cifar100`"


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("mine.bin", 3072, "3072 bytes is a whole number of neither 3,073-byte (CIFAR-10) nor 3,074-byte (CIFAR-100) records; "),
        ("mine.bin", 3073 * 3074, "9446402 bytes is a whole number of both 3,073-byte (CIFAR-10) and 3,074-byte (CIFAR-100) records; "),
        ("train.bin", 30730, "the name is one of CIFAR-100, but 30730 bytes is a whole number of CIFAR-10's 3,073-byte records; "),
        ("data_batch_1.bin", 30740, "the name is one of CIFAR-10, but 30740 bytes is a whole number of CIFAR-100's 3,074-byte records; "),
    ],
)  # fmt: skip
def test_layout_that_nothing_tells(name: str, size: int, message: str) -> None:
    with pytest.raises(InputError) as error:
        detect_layout(InputFile(name, f"/in/{name}", size))
    assert str(error.value) == f"/in/{name}: {message}{WAY}"


def test_variant_overrules_name_and_size(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(records_of(CIFAR10, 2))
    with pytest.raises(InputError, match="use `variant=cifar10`"):
        prepare(CifarSource(), [tmp_path])
    reading = read(CifarSource(options=CifarOptions(variant="cifar10")), tmp_path)
    assert len(reading.rows) == 2
    assert not reading.rejects


MANY = "cat\ndog\n" + "cat\n" * 8  # no schema and no TFDS could tell them apart


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"readme.html": b""}, r"no \.bin file among the inputs"),
        (
            {"data_batch_1.bin": records_of(CIFAR10, 1), "test.bin": records_of(CIFAR100, 1)},
            "^data_batch_1.bin is cifar10 and test.bin is cifar100: convert them into two datasets, or set `variant`$",
        ),
        ({"batches.meta.txt": b"cat\ndog\n"}, "meta.txt: 2 class names, expected 10"),
        ({"batches.meta.txt": b"caf\xe9\n" * 10}, "meta.txt: class names are not UTF-8"),
        ({"batches.meta.txt": MANY.encode()}, "meta.txt: class name 'cat' is given twice"),
    ],
)  # fmt: skip
def test_files_that_are_refused(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    if "batches.meta.txt" in files:
        (tmp_path / "data_batch_1.bin").write_bytes(records_of(CIFAR10, 1))
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        prepare(CifarSource(), [tmp_path])


def test_half_a_record_is_a_reject(tmp_path: Path) -> None:
    data = records_of(CIFAR10, 1)[:-1]
    (tmp_path / "data_batch_1.bin").write_bytes(data)
    (reject,) = read(CifarSource(), tmp_path).rejects
    assert (reject.position, reject.raw) == (0, data)
    assert reject.reason == (
        "3,072 bytes at the end of the file, expected a whole cifar10 record of 3073 "
        "(1 label + 32 x 32 x 3): the file is cut short"
    )


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([20, 99], "coarse_label: 20 is not a class label (0 to 19)"),
        ([19, 100], "label: 100 is not a class label (0 to 99)"),
        ([20, 100], "coarse_label: 20 is not a class label (0 to 19)"),
    ],
)
def test_labels_that_do_not_exist(
    tmp_path: Path, labels: list[int], reason: str
) -> None:
    good = records_of(CIFAR100, 1)
    bad = bytes(labels) + good[len(labels) :]
    (tmp_path / "train.bin").write_bytes(good + bad + good)
    reading = read(CifarSource(), tmp_path)
    (reject,) = reading.rejects
    assert (reject.position, reject.raw, reject.reason) == (3074, bad, reason)
    assert reading.parts[0].raws == [(0, good), (2 * 3074, good)]
    assert reading.parts[0].positions == [0, 2 * 3074]


def test_class_names(tmp_path: Path) -> None:
    coarse = "abcdefghijklmnopqrst"
    (tmp_path / "coarse_label_names.txt").write_text("\r\n".join(coarse) + "\n\n")
    (tmp_path / "train.bin").write_bytes(records_of(CIFAR100, 1))
    schema = prepare(CifarSource(), [tmp_path]).source.schema()
    assert schema["coarse_label"].class_names == tuple(coarse)
    assert schema["label"].class_names == tuple(map(str, range(100)))  # no such file


def test_schema() -> None:
    schema = prepare(CifarSource(), [GOLDEN / "cifar100.bin"]).source.schema()
    assert [feature.name for feature in schema.features] == [
        *("coarse_label", "depth", "height", "image", "label", "width")
    ]
    image = schema["image"]
    assert (image.kind, image.shape, image.dtype, image.content) == (
        *(Kind.BYTES, (32, 32, 3), "uint8"),
        Content.ARRAY,
    )


@pytest.mark.parametrize(
    ("split", "paths"),
    [
        ("train", ["data_batch_1.bin", "cifar/data_batch_12.bin", "train.bin"]),
        ("test", ["test_batch.bin", "test.bin", "Test_Batch.bin"]),
        ("", ["cifar10.bin", "test/mine.bin"]),  # a folder's name tells nothing
    ],
)
def test_split(split: str, paths: list[str]) -> None:
    assert {parse_split(path) for path in paths} == {split}


def test_an_empty_file_of_records(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(records_of(CIFAR10, 1))
    (tmp_path / "mine.bin").touch()
    with pytest.raises(InputError, match=r"/mine\.bin: is empty, expected"):
        prepare(CifarSource(), [tmp_path])
    # The ways out.
    prepare(CifarSource(), [tmp_path / "data_batch_1.bin"])
    (tmp_path / "mine.bin").write_bytes(records_of(CIFAR10, 1))
    prepare(CifarSource(), [tmp_path])


def test_what_was_understood(tmp_path: Path) -> None:
    for name in ("data_batch_1.bin", "test_batch.bin", "mine.bin"):
        (tmp_path / name).write_bytes(records_of(CIFAR10, 1))
    (tmp_path / "readme.html").write_text("about")
    found = prepare(CifarSource(), [tmp_path])
    assert [each.split for each in found.ranges] == ["train", "", "test"]
    assert found.source.input_report().to_lines() == [
        "records: CIFAR-10, 3,073 bytes each",
        "columns: image uint8 [32, 32, 3], label uint8 (10 classes)",
        "rows of no split: 1 row of mine.bin",
        "split test by file: 1 row of test_batch.bin",
        "split train by file: 1 row of data_batch_1.bin",
        "skipped: 1 file (does not end in .bin), such as readme.html",
    ]
