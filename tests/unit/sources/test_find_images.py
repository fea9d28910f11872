"""Images are found by content; nothing else goes unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pixel_zoo import IMAGES
from source_tools import Reading, prepare, read

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_summary import SkippedFiles
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.storage import open_store

JPEG, _ = IMAGES["rgb.jpg"]
PNG, _ = IMAGES["rgb.png"]
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def names(reading: Reading) -> list[str]:
    return [row["filename"] for row in reading.rows]


@pytest.mark.parametrize("kind", IMAGES)
def test_content_decides_where_the_name_does_not(tmp_path: Path, kind: str) -> None:
    data, _ = IMAGES[kind]
    write(tmp_path, {"a/x": data, "a/x.jpg.1": data, "a/x.jfif": data, "b/y.png": PNG})
    reading = read(ImagesSource(), tmp_path)
    assert names(reading) == ["a/x", "a/x.jfif", "a/x.jpg.1", "b/y.png"]
    assert reading.source.understood().passed_over == ()


def test_in_a_store(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path.name}-images")
    for name, data in (("a/x", JPEG), ("a/y.txt", b"text"), ("b/z.png", PNG)):
        store.put_bytes(data, name)
    assert names(read(ImagesSource(), store.uri)) == ["a/x", "b/z.png"]


def test_what_is_passed_over_is_counted_by_reason(tmp_path: Path) -> None:
    write(tmp_path, {"a/1.jpg": JPEG, "b/1.jpg": JPEG})
    write(tmp_path, {f"a/{n}.txt": b"BM is how this text begins" for n in range(3)})
    write(tmp_path, {"readme": b"text", "a/empty.dat": b"", "b/new.heic": HEIC})
    write(tmp_path, {f"b/{n}.{n}": b"x" for n in range(10)})
    told = prepare(ImagesSource(), [tmp_path]).source.understood()
    counts = {each.reason: each.files for each in told.passed_over}
    assert counts.pop("other endings, no image in it") == 6
    assert counts.pop(".txt, no image in it") == 3
    assert counts.pop("HEIC is not supported") == 1
    assert counts.pop("no ending, no image in it") == 1
    assert counts.pop("empty") == 1
    assert set(counts.values()) == {1}
    assert len(counts) == 4
    assert SkippedFiles("empty", 1, "a/empty.dat") in told.passed_over
    assert told.warnings == (
        "1 image skipped, such as b/new.heic: HEIC is not supported; save them as "
        "JPEG or PNG",
    )


def test_what_was_understood(tmp_path: Path) -> None:
    write(tmp_path, {f"train/c{n:02}/{m}.jpg": JPEG for n in range(12) for m in (1, 2)})
    write(tmp_path, {"test/c00/1": PNG})
    facts = dict(prepare(ImagesSource(), [tmp_path]).source.understood().facts)
    assert facts == {
        "splits by folder": "test 1, train 24",
        "classes": "12 (c00 3, c01 2, c02 2, c03 2, c04 2, c05 2, c06 2, c07 2, c08 2, "
        "c09 2 and 2 more)",
        "images": ".jpg 24, no ending 1",
        "readers get": "decoded images (TFDS)",
    }


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (
            {"dog/1.txt": b"x", "dog/sub/2.heic": HEIC},
            "/dog: is the folder of a class, but holds no image, only 2 other files "
            "(endings: .heic, .txt): put images into it; if it is not a class",
        ),
        ({"dog/": b""}, "/dog: is the folder of a class, but is empty: put images"),
        ({"dog/sub/": b""}, "/dog: is the folder of a class, but is empty: put imag"),
        ({"dog/.hidden": b"x"}, "/dog: is the folder of a class, but is empty: put"),
        ({"dog/Thumbs.db": b"x"}, "/dog: is the folder of a class, but is empty: put"),
    ],
)
@pytest.mark.parametrize("split", ["", "train/"])
def test_a_class_without_images(
    tmp_path: Path, others: dict[str, bytes], told: str, split: str
) -> None:
    write(tmp_path, {f"{split}cat/1.jpg": JPEG, f"{split}emu/1.jpg": JPEG})
    for name, data in others.items():
        if name.endswith("/"):
            (tmp_path / split / name).mkdir(parents=True)
        else:
            write(tmp_path, {f"{split}{name}": data})
    with pytest.raises(InputError) as error:
        prepare(ImagesSource(), [tmp_path])
    assert str(error.value).startswith(f"{tmp_path}/{split}".rstrip("/") + told)
    # The ways out.
    each = [tmp_path / split / name for name in ("cat", "emu")]
    assert len(read(ImagesSource(), *each).rows) == 2
    shutil.rmtree(tmp_path / split / "dog")
    assert len(read(ImagesSource(), tmp_path).rows) == 2


def test_a_given_folder_without_images(tmp_path: Path) -> None:
    write(tmp_path, {"cat/1.jpg": JPEG, "dog/1.txt": b"x"})
    with pytest.raises(
        InputError, match=r"/dog: is the folder of a class, but holds no"
    ):
        prepare(ImagesSource(), [tmp_path / "cat", tmp_path / "dog"])


def test_a_split_without_files_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"train/cat/1.jpg": JPEG, "train/dog/1.jpg": JPEG})
    write(tmp_path, {"val/cat/1.jpg": JPEG, "val/dog/readme.txt": b"x"})
    (tmp_path / "test").mkdir()
    told = prepare(ImagesSource(), [tmp_path]).source.understood()
    assert told.warnings == (f"{tmp_path}/test: is an empty folder",)


def test_a_link_back_is_not_an_empty_class(tmp_path: Path) -> None:
    write(tmp_path, {"cat/1.jpg": JPEG, "dog/1.jpg": JPEG})
    (tmp_path / "here").symlink_to(".")
    assert prepare(ImagesSource(), [tmp_path]).source.understood().warnings == ()


def test_images_given_one_by_one(tmp_path: Path) -> None:
    """As a shell expands data/*/*; other folders beside them do not matter."""
    write(tmp_path, {"cat/1.jpg": JPEG, "cat/x.txt": b"x", "dog/1.jpg": JPEG})
    (tmp_path / "emu").mkdir()
    given = sorted(tmp_path.glob("*/*"))
    rows = read(ImagesSource(), *given).rows
    assert [(row["filename"], row["text"]) for row in rows] == [
        ("cat/1.jpg", "cat"),
        ("dog/1.jpg", "dog"),
    ]
