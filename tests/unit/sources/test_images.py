"""Folders of images: classes, listing, features and what is rejected."""

from __future__ import annotations

import os
import pickle
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from held_memory import most_held
from pixel_zoo import IMAGES
from source_tools import GOLDEN, prepare, read, read_one, write

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, Kind
from recordmill.schemas.input_files import FileStat, InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.images.header import read_header
from recordmill.transforms.sources.base import REFERENCE, RangeFindings
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.sources.images.options import FeatureNames, ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.storage import open_store
from recordmill.transforms.storage import reading as reading_files
from recordmill.transforms.tfrecord import FRAME_BYTES, crc32c

JPEG, _ = IMAGES["rgb.jpg"]
PNG, _ = IMAGES["rgb.png"]


def test_golden_images() -> None:
    rows = read(ImagesSource(), GOLDEN / "images").rows
    folder = GOLDEN / "images"
    assert rows == [
        {
            "image": (folder / path).read_bytes(),
            "format": kind,
            "height": height,
            "width": width,
            "depth": depth,
            "filename": path,
            "label": label,
            "text": path[:3],
        }
        for path, kind, height, width, depth, label in [
            ("cat/a.jpg", "jpeg", 40, 30, 3, 0),
            ("cat/b.jpg", "jpeg", 17, 23, 1, 0),
            ("dog/c.png", "png", 9, 11, 4, 1),
            ("dog/d.png", "png", 31, 5, 3, 1),
        ]
    ]


def test_every_format_has_the_numbers_of_its_header(tmp_path: Path) -> None:
    write(tmp_path, {f"zoo/{name}": data for name, (data, _) in IMAGES.items()})
    reading = read(ImagesSource(), tmp_path)
    assert not reading.rejects
    assert len(reading.rows) == len(IMAGES)
    for row in reading.rows:
        header = read_header(row["image"])
        found = (row["format"], row["height"], row["width"], row["depth"])
        assert found == (header.format, header.height, header.width, header.depth)


def test_labels_are_places_among_the_sorted_classes(tmp_path: Path) -> None:
    write(
        tmp_path, {"b/1.jpg": JPEG, "a/2.jpg": JPEG, "C/3.jpg": JPEG, "a/n/4.png": PNG}
    )
    reading = read(ImagesSource(), tmp_path)
    assert isinstance(reading.source, ImagesSource)
    assert reading.source.annotations.classes == ("C", "a", "b")
    assert [(r["filename"], r["label"], r["text"]) for r in reading.rows] == [
        ("C/3.jpg", 0, "C"),
        ("a/2.jpg", 1, "a"),
        ("a/n/4.png", 1, "a"),  # a folder in a class folder
        ("b/1.jpg", 2, "b"),
    ]


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        (
            "a/2.jpg",
            b"hello, world",
            "not an image: starts with b'hello, wo' (expected",
        ),
        ("a/2.jpg", b"", "not an image: has no bytes"),
        ("a/2.jpg", JPEG[:100], "JPEG ends inside its header after 100 bytes"),
        ("a/2.jpg", PNG[:20], "PNG ends inside its header after 20 bytes"),
        ("stray.jpg", JPEG, "is not in the folder of a class"),
    ],
)
def test_what_is_rejected(tmp_path: Path, path: str, data: bytes, reason: str) -> None:
    write(tmp_path, {"a/1.jpg": JPEG, path: data, "b/3.jpg": JPEG})
    reading = read(ImagesSource(), tmp_path)
    assert [row["filename"] for row in reading.rows] == ["a/1.jpg", "b/3.jpg"]
    (reject,) = reading.rejects
    assert (reject.path, reject.position, reject.raw) == (path, 0, data)
    assert reject.reason.startswith(reason)


def test_a_class_of_rejects_alone_keeps_its_label(tmp_path: Path) -> None:
    write(tmp_path, {"a/1.jpg": b"x", "b/2.jpg": JPEG})
    assert [row["label"] for row in read(ImagesSource(), tmp_path).rows] == [1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no images among 0 input files (extensions: none); expected .jpeg .jpg"),
        (
            ["a/1.txt", "a/2.csv"],
            "no images among 2 input files (extensions: .csv .txt); expected",
        ),
        (
            ["1.jpg", "2.jpg"],
            "/in/1.jpg: is not in the folder of a class; expected "
            "INPUT/<class>/<file>: use the folder with the class folders",
        ),
    ],
)
def test_input_without_classes_of_images(files: list[str], message: str) -> None:
    listing = [InputFile(path, f"/in/{path}", 0) for path in files]
    with pytest.raises(InputError) as error:
        ImagesSource().prepare(listing)
    assert str(error.value).startswith(message)


NUMBERS = {f"{name} int64" for name in ("label", "height", "width", "depth")}
OF_IMAGENET = {f"image/{name} int64" for name in ("height", "width", "channels")}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("default", {"image uint8", *NUMBERS, "filename string"}),
        ("tutorial", {"image_raw uint8", *NUMBERS}),
        (
            "imagenet",
            {"image/encoded uint8", "image/format string", "image/filename string"}
            | {"image/class/label int64", "image/class/text string", *OF_IMAGENET},
        ),
    ],
)
def test_feature_names(names: FeatureNames, expected: set[str]) -> None:
    reading = read(ImagesSource(ImagesOptions(feature_names=names)), GOLDEN / "images")
    features = reading.source.schema().features
    assert {f"{each.name} {each.dtype}" for each in features} == expected
    for each in features:
        assert each.kind is (Kind.INT64 if each.dtype == "int64" else Kind.BYTES)
    images = [f for f in features if f.content is Content.IMAGE]
    assert [f.shape for f in images] == [(None, None, None)]
    labels = [f.class_names for f in features if f.class_names]
    assert labels == [("cat", "dog")]
    assert {feature.column for feature in features} <= reading.rows[0].keys()


def test_planned_bytes_are_known_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a/1.jpg": JPEG, "b/2.png": PNG})
    reading = prepare(ImagesSource(), [tmp_path])

    def refuse(uri: str) -> bytes:
        raise AssertionError(f"{uri} was read")

    monkeypatch.setattr(images_source, "read_file", refuse)
    (rows,) = reading.source.list_references(reading.ranges[0], RangeFindings())
    assert rows.planned_bytes is not None
    assert rows.planned_bytes.tolist() == [
        len(JPEG) + FRAME_BYTES,
        len(PNG) + FRAME_BYTES,
    ]
    assert rows.batch["label"].to_pylist() == [0, 1]  # for splits by column
    assert rows.batch["filename"].to_pylist() == ["a/1.jpg", "b/2.png"]


@pytest.mark.parametrize(
    ("sizes", "files", "cuts"),
    [
        ([9] * 5, 2, [0, 2, 4, 5]),
        ([30, 30, 40, 1, 99, 250, 100, 100, 50, 60], 9, [0, 3, 5, 6, 7, 8, 9, 10]),
    ],
)
def test_ranges_are_slices_of_the_inventory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    files: int,
    cuts: list[int],
) -> None:
    """They have at most so many files, and 100 bytes or a larger file."""
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", files)
    monkeypatch.setattr(images_source, "MAX_RANGE_BYTES", 100)
    write(tmp_path, {f"a/{n}.jpg": bytes(size) for n, size in enumerate(sizes)})
    ranges = prepare(ImagesSource(), [tmp_path]).ranges
    assert [(each.start, each.stop) for each in ranges] == list(pairwise(cuts))
    assert [each.path for each in ranges] == [f"a/{n}.jpg" for n in cuts[:-1]]


@pytest.mark.parametrize("where", ["", "memory://inventory"])
def test_the_inventory_may_lie_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    where = where or str(tmp_path)
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    write(tmp_path / "in", {f"a/{n}.jpg": JPEG for n in range(5)})
    reading = prepare(ImagesSource(), [tmp_path / "in"])
    kept = reading.source.spill_inventory(open_store(where), "inventory.arrow")
    assert len(pickle.dumps(kept)) < 3000
    for input_range in reading.ranges:
        expected = read_one(reading.source, input_range)
        assert read_one(kept, input_range).rows == expected.rows
        assert read_one(kept, input_range).origins == expected.origins


def test_origins_do_not_depend_on_other_files(tmp_path: Path) -> None:
    write(tmp_path, {"b/1.jpg": JPEG})
    (before,) = read(ImagesSource(), tmp_path).origins
    write(tmp_path, {"a/0.jpg": JPEG})
    assert read(ImagesSource(), tmp_path).origins[1] == before


@pytest.mark.parametrize("data", [JPEG + b"more", JPEG[:-1], b""])
def test_an_image_whose_size_changed_after_the_inventory(
    tmp_path: Path, data: bytes
) -> None:
    """Its planned bytes would be wrong, and its content maybe half written."""
    write(tmp_path, {"a/1.jpg": JPEG})
    reading = prepare(ImagesSource(), [tmp_path])
    write(tmp_path, {"a/1.jpg": data})
    with pytest.raises(InputError) as error:
        read_one(reading.source, reading.ranges[0])
    assert str(error.value) == (
        f"{tmp_path}/a/1.jpg: has {len(data)} bytes, but had {len(JPEG)} when the run "
        "began; did it change in the meantime?"
    )


@pytest.mark.parametrize("name", ["1 2.jpg", "größe 数.jpg", "a,b;'\".jpg", "0 .jpg"])
def test_odd_file_names(tmp_path: Path, name: str) -> None:
    write(tmp_path, {f"class 1/{name}": JPEG})
    (row,) = read(ImagesSource(), tmp_path).rows
    assert (row["filename"], row["text"]) == (f"class 1/{name}", "class 1")


def test_an_image_beyond_2_gib_is_a_reject_without_being_read(tmp_path: Path) -> None:
    """Its listed size is enough to know; the file is sparse."""
    write(tmp_path, {"cat/a.jpg": JPEG, "cat/b.jpg": JPEG})
    os.truncate(tmp_path / "cat" / "b.jpg", 1 << 31)
    reading = read(ImagesSource(), tmp_path)
    assert [row["filename"] for row in reading.rows] == ["cat/a.jpg"]
    (reject,) = reading.rejects
    assert reject.path == "cat/b.jpg"
    assert reject.reason.startswith("has 2,147,483,648 bytes, more than a record can ")


def test_a_large_file_that_is_not_an_image_is_not_read(tmp_path: Path) -> None:
    """The file is sparse: 1 GiB of zeros."""
    write(tmp_path, {"cat/a.jpg": JPEG, "cat/b.jpg": b"", "cat/c.jpg": JPEG})
    os.truncate(tmp_path / "cat" / "b.jpg", 1 << 30)
    readings = []
    held = most_held(
        lambda: readings.append(read(ImagesSource(), tmp_path)), enough=8e6
    )
    assert held < 64e6
    reading = readings[-1]
    assert [row["filename"] for row in reading.rows] == ["cat/a.jpg", "cat/c.jpg"]
    (reject,) = reading.rejects
    assert (reject.path, reject.position, reject.raw) == ("cat/b.jpg", 0, bytes(65_536))
    assert reject.reason.startswith("not an image: starts with ")
    assert reject.reason.endswith(
        "; the first 65,536 of 1,073,741,824 bytes are kept, and of 65,536 the crc32c "
        f"'{crc32c(bytes(65_536)):08x}'"
    )


def test_large_images_are_read_whole(tmp_path: Path) -> None:
    whole, damaged = JPEG + bytes(17 << 20), PNG[:20] + bytes(17 << 20)
    write(tmp_path, {"cat/a.jpg": whole, "cat/b.png": damaged})
    reading = read(ImagesSource(), tmp_path)
    assert [row["image"] for row in reading.rows] == [whole]
    (reject,) = reading.rejects
    assert reject.raw == damaged[:65_536]
    told = f"and of {len(damaged):,} the crc32c '{crc32c(damaged):08x}'"
    assert reject.reason.endswith(told)


def test_the_next_window_is_requested_while_the_caller_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = "memory://next_window"
    store = open_store(root)
    for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg"):
        store.put_bytes(JPEG, name)
    asked = {f"{root}/{name}": threading.Event() for name in ("a/1.jpg", "b/3.jpg")}
    read_one_file = reading_files.read_file

    def read_file(uri: str, options: StorageOptions, stat: FileStat) -> bytes:
        if uri in asked:
            asked[uri].set()
        return read_one_file(uri, options, stat)

    monkeypatch.setattr(reading_files, "read_file", read_file)
    reading = prepare(ImagesSource(), [root])
    (rows,) = reading.source.list_references(reading.ranges[0], RangeFindings())
    references = rows.batch[REFERENCE]
    found = reading.source.read_windows(
        [references[:2], references[:0], references[2:]], RangeFindings()
    )
    assert next(found).batch.num_rows == 2
    assert asked[f"{root}/b/3.jpg"].wait(600)
    assert [window.batch.num_rows for window in found] == [0, 1]
