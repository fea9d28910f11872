"""Images are found by content; folders are taken for splits and classes."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from pixel_zoo import IMAGES
from source_tools import Reading, prepare, read, write

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputWarning, SkippedFiles
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.images import find
from recordmill.transforms.sources.images.find import (
    FolderLayout,
    describe_folders,
    find_layout,
)
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.storage import open_store
from recordmill.transforms.temporary import TEMPORARY

JPEG, _ = IMAGES["rgb.jpg"]
PNG, _ = IMAGES["rgb.png"]
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


def names(reading: Reading) -> list[str]:
    return [row["filename"] for row in reading.rows]


@pytest.mark.parametrize("kind", IMAGES)
def test_content_decides_where_the_name_does_not(tmp_path: Path, kind: str) -> None:
    data, _ = IMAGES[kind]
    write(tmp_path, {"a/x": data, "a/x.jpg.1": data, "a/x.jfif": data, "b/y.png": PNG})
    reading = read(ImagesSource(), tmp_path)
    assert names(reading) == ["a/x", "a/x.jfif", "a/x.jpg.1", "b/y.png"]
    assert reading.source.input_report().skipped_files == ()


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
    told = prepare(ImagesSource(), [tmp_path]).source.input_report()
    counts = {each.reason: each.num_files for each in told.skipped_files}
    assert counts.pop("other extensions, no image content") == 6
    assert counts.pop(".txt, no image content") == 3
    assert counts.pop("HEIC is not supported") == 1
    assert counts.pop("no extension, no image content") == 1
    assert counts.pop("empty") == 1
    assert set(counts.values()) == {1}
    assert len(counts) == 4
    assert SkippedFiles("empty", 1, "a/empty.dat") in told.skipped_files
    assert told.warnings == (
        InputWarning(
            "unsupported-images",
            "1 image skipped, such as b/new.heic: HEIC is not supported; save them as "
            "JPEG or PNG",
        ),
    )


def test_what_was_understood(tmp_path: Path) -> None:
    write(tmp_path, {f"train/c{n:02}/{m}.jpg": JPEG for n in range(12) for m in (1, 2)})
    write(tmp_path, {"test/c00/1": PNG})
    facts = dict(prepare(ImagesSource(), [tmp_path]).source.input_report().fields)
    assert facts == {
        "splits by folder": "test 1, train 24",
        "classes": "12 (c00 3, c01 2, c02 2, c03 2, c04 2, c05 2, c06 2, c07 2, c08 2, "
        "c09 2 and 2 more)",
        "images": ".jpg 24, no extension 1",
        "images when read": "decoded by TFDS",
    }


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (
            {"dog/1.txt": b"x", "dog/sub/2.heic": HEIC},
            "/dog: is the folder of a class, but contains no image, only 2 other files "
            "(extensions: .heic, .txt): add such files; if it is not a class",
        ),
        ({"dog/": b""}, "/dog: is the folder of a class, but is empty: add such"),
        ({"dog/sub/": b""}, "/dog: is the folder of a class, but is empty: add such"),
        ({"dog/.hidden": b"x"}, "/dog: is the folder of a class, but is empty: add"),
        ({"dog/Thumbs.db": b"x"}, "/dog: is the folder of a class, but is empty: add"),
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
        InputError, match=r"/dog: is the folder of a class, but contains no"
    ):
        prepare(ImagesSource(), [tmp_path / "cat", tmp_path / "dog"])


def test_a_split_without_files_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"train/cat/1.jpg": JPEG, "train/dog/1.jpg": JPEG})
    write(tmp_path, {"val/cat/1.jpg": JPEG, "val/dog/readme.txt": b"x"})
    (tmp_path / "test").mkdir()
    told = prepare(ImagesSource(), [tmp_path]).source.input_report()
    assert told.warnings == (
        InputWarning("empty-folder", f"{tmp_path}/test: is an empty folder"),
    )


@examples(300)
@given(st.lists(st.text("a./\n.Jé", min_size=1, max_size=8), max_size=6))
def test_endings_are_those_of_the_standard_library(paths: list[str]) -> None:
    found = (os.path.splitext(path)[1].lower() for path in paths)  # noqa: PTH122
    expected = Counter(each if len(each) > 1 else "no extension" for each in found)
    files = Inventory.from_files(InputFile(path, path, 1) for path in paths)
    with patch.object(find, "format_names", list):
        told = find.count_endings(files)
    assert sorted(told) == sorted(f"{name} {n:,}" for name, n in expected.items())


def test_an_empty_class_beside_files_of_a_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A split's folder holds a file of its own, and is no folder of a class.

    The first rows of a table are put elsewhere if the chosen folder is gone.
    """
    monkeypatch.setattr(TEMPORARY, "folder", str(tmp_path / "gone"))
    write(tmp_path, {"train/cat/1.jpg": JPEG, "train/dog/1.jpg": JPEG})
    write(tmp_path, {"test/cat/1.jpg": JPEG, "train/labels.csv": b"x"})
    (tmp_path / "test" / "dog").mkdir()
    (tmp_path / "train" / "emu").mkdir()
    with pytest.raises(InputError, match=r"train/emu: is the folder of a class, but"):
        prepare(ImagesSource(), [tmp_path])
    (tmp_path / "train" / "emu").rmdir()
    told = prepare(ImagesSource(), [tmp_path]).source.input_report().warnings
    assert [each.message for each in told if each.code == "empty-folder"] == [
        f"{tmp_path}/test/dog: is an empty folder"
    ]


def test_a_link_back_is_not_an_empty_class(tmp_path: Path) -> None:
    write(tmp_path, {"cat/1.jpg": JPEG, "dog/1.jpg": JPEG})
    (tmp_path / "here").symlink_to(".")
    assert prepare(ImagesSource(), [tmp_path]).source.input_report().warnings == ()


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


def listed(paths: str) -> Inventory:
    """Files; before "//" is the given folder, else the root; "~" stands for a blank."""
    files = []
    for path in paths.split():
        given, _, below = path.replace("~", " ").rpartition("//")
        whole = f"{given}/{below}".strip("/")
        files.append(InputFile(whole, f"/root/{whole}", 1, "", given))
    return Inventory.from_files(files)


def found(
    paths: str, split_from: str = "auto", label_from: str = "auto"
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns "split:class" of each path, and the warnings."""
    files = listed(paths)
    options = ImagesOptions(split_from=split_from, label_from=label_from)
    options.require_consistent()
    layout, warnings = find_layout(files, options)
    places = layout.find_labels(file.path.rpartition("/")[0] for file in files)
    return {
        file.path: f"{place.split}:{place.label}"
        for file, place in zip(files, places, strict=True)
    }, warnings


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        # One input, no splits: the first folder, whatever is in it.
        ("cat/1 cat/tabby/2 dog/3", ":cat :cat :dog"),
        ("cat/1 cat/train/2 dog/3", ":cat :cat :dog"),
        ("toys/train/1 toys/ball/2 animals/dog/3", ":toys :toys :animals"),
        # Splits above class folders, in all their spellings.
        ("train/cat/1 test/dog/2", "train:cat test:dog"),
        ("Train/cat/1 VAL/cat/tabby/2", "Train:cat VAL:cat"),
        ("training/a/1 valid/a/1 validation/a/1 dev/a/1 testing/a/1",
         "training:a valid:a validation:a dev:a testing:a"),
        ("train/cat/1", "train:cat"),
        # With the same text around each.
        ("training_set/cat/1 test_set/dog/2", "training_set:cat test_set:dog"),
        ("train2017/cat/1 val2014/cat/2", "train2017:cat val2014:cat"),
        ("seg_train/sea/1 seg_test/sea/2", "seg_train:sea seg_test:sea"),
        ("Train~Set/cat/1 Test~Set/dog/2", "Train_Set:cat Test_Set:dog"),
        ("test_tube/1 bullet_train/2 contest/a/3", ":test_tube :bullet_train :contest"),
        # In the folders of the classes.
        ("cat/train/1 cat/test/2 dog/train/3", "train:cat test:cat train:dog"),
        ("cat/train2017/1 dog/val2017/2", "train2017:cat val2017:dog"),
        # Below folders that hold all others.
        ("a/b/cat/1 a/b/dog/2", ":cat :dog"),
        ("data/set/train/cat/1 data/set/test/dog/2", "train:cat test:dog"),
        ("all/cat/1 all/dog/2", ":cat :dog"),
        ("train/all/cat/1 test/all/dog/2", "train:cat test:dog"),
        ("seg_train/seg_train/sea/1 seg_test/seg_test/ice/2",
         "seg_train:sea seg_test:ice"),
        ("cat/tabby/1", ":cat"),
        # A split without class folders has no classes.
        ("train/cat/1 test/2", "train:cat test:"),
        # Several inputs: each is looked at by itself.
        ("a//cat/1 b//cat/2 b//dog/3", ":cat :cat :dog"),
        ("cat//1 dog//2", ":cat :dog"),
        ("cat//1 cat//x/2 dog//3", ":cat :cat :dog"),
        ("x/cat//1 y/cat//2", ":cat :cat"),
        ("a//train/cat/1 a//val/cat/2 b//dog/3", "train:cat val:cat :dog"),
        ("a//cat/1 a//2 b//dog/3", ":cat : :dog"),
        # The inputs are splits, or class folders in splits.
        ("train//cat/1 test//dog/2", "train:cat test:dog"),
        ("train/cat//1 train/dog//2 test/cat//3", "train:cat train:dog test:cat"),
        ("2026/cat//1 2026/dog//2", ":cat :dog"),
        ("train_set//cat/1 test_set//dog/2", "train_set:cat test_set:dog"),
        ("train_set/cat//1 test_set/cat//2", "train_set:cat test_set:cat"),
        # A folder key=value is a class only if no other in it can be, or by its key.
        ("year=2026/cat/1 year=2027/dog/2", ":cat :dog"),
        ("year=2026/cat/1 year=2027/cat/2", ":cat :cat"),
        ("year=2026/cat/1", ":cat"),
        ("year=2026/month=1/cat/1 year=2027/month=2/dog/2", ":cat :dog"),
        ("train/year=2026/cat/1 test/year=2027/dog/2", "train:cat test:dog"),
        ("year=2026/train/cat/1 year=2027/test/dog/2", "train:cat test:dog"),
        ("split=dev/label=cat/1 split=test/label=dog/2", "dev:label=cat test:label=dog"),
        ("year=2026/label=cat/1 year=2027/Class=dog/2", ":label=cat :Class=dog"),
        ("label=cat/1 label=dog/2", ":label=cat :label=dog"),
        ("label=cat/tabby/1 label=dog/2", ":label=cat :label=dog"),
        ("label=cat/year=2026/1 label=dog/year=2026/2", ":label=cat :label=dog"),
        ("year=2026/1 year=2027/2", ":year=2026 :year=2027"),
        ("year=2026/month=1/1 year=2027/month=2/2", ":year=2026 :year=2027"),
        ("split=fold1/cat/1 split=fold2/dog/2", "fold1:cat fold2:dog"),
        ("split=a/cat//1 split=b/dog//2", "a:cat b:dog"),
    ],
)  # fmt: skip
def test_what_folders_are(paths: str, expected: str) -> None:
    places, _ = found(paths)
    assert list(places.values()) == expected.split()


@pytest.mark.parametrize(
    ("paths", "split_from", "label_from", "expected"),
    [
        ("cat/train/1 dog/test/2", "2", "1", "train:cat test:dog"),
        ("a/train/cat/1 b/test/dog/2", "2", "auto", "train:cat test:dog"),
        ("a/train/cat/1 b/test/dog/2", "2", "parent", "train:cat test:dog"),
        ("fold1/cat/1 fold2/cat/2", "1", "auto", "fold1:cat fold2:cat"),
        ("train/cat/1 test/cat/2", "none", "auto", ":train :test"),
        ("train/cat/1 test/cat/2", "none", "2", ":cat :cat"),
        ("train/cat/1 test/cat/2", "auto", "1", ":train :test"),
        ("train/1 test/2", "1", "0", "train:root test:root"),
        ("train/1 test/2", "auto", "0", "train:root test:root"),
        ("train/animals/cat/1 test/plants/moss/2", "auto", "3", "train:cat test:moss"),
        ("train/animals/cat/1 test/moss/2", "auto", "parent", "train:cat test:moss"),
        ("train/1 test/cat/2", "auto", "parent", "train: test:cat"),
        ("1 cat/2", "auto", "parent", ":root :cat"),
        ("1 cat/2", "auto", "0", ":root :root"),
        ("a//x/1 b//y/2", "auto", "0", ":a :b"),
        ("a//x/1 b//y/2", "0", "1", "a:x b:y"),
        ("cat/1", "auto", "2", ":"),
    ],
)
def test_what_options_say(
    paths: str, split_from: str, label_from: str, expected: str
) -> None:
    places, _ = found(paths, split_from, label_from)
    assert list(places.values()) == expected.split()


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        ("train/1 cat/2", "classes named like splits: 'train', next to 'cat'."),
        ("train//1 cat//2", "classes named like splits: 'train', next to 'cat'."),
        ("cat/1 cat/2", "there is only one class, 'cat'; if there are more"),
        (
            "all/cat/1",
            "there is only one class, 'all'; if the folders in it are the classes, use "
            "`label_from=2`",
        ),
        ("train/cat/1 train/dog/2 test/3", "1 image directly in 'test' will be rej"),
        ("cat/1 dog/2 3", "1 image directly in the input folder will be rejected"),
    ],
)
def test_what_looks_wrong_is_told(paths: str, told: str) -> None:
    _, warnings = found(paths)
    assert len(warnings) == 1
    assert warnings[0].message.startswith(told)


@pytest.mark.parametrize(
    ("paths", "told", "ways"),
    [
        (
            "train/a/1 cat/b/2",
            "classes named like splits: 'train', next to 'cat'. If all these folders "
            "are splits, use `split_from=1`; if all are classes, `split_from=none`, or "
            "leave",
            (("1", "auto", "train:a cat:b"), ("none", "auto", ":train :cat")),
        ),
        (
            "train_set/1 test_set/2",
            "'test_set', 'train_set' are named like splits, but contain files and no ",
            (
                ("1", "none", "train_set:root test_set:root"),
                ("auto", "0", "train_set:root test_set:root"),
                ("none", "auto", ":train_set :test_set"),
            ),
        ),
        (
            "x/train/1 x/test/2",
            "'test', 'train' are named like splits, but contain files and no class",
            (("2", "none", "train:root test:root"), ("none", "auto", ":train :test")),
        ),
        (
            "train//1 test//2",
            "'test', 'train' are named like splits, but contain files and no class",
            (("0", "none", "train:train test:test"), ("none", "auto", ":train :test")),
        ),
        (
            "cat/1 cat/train/2 dog/test/3",
            "folders in 'cat', 'dog' are named like splits ('test', 'train'), but other",
            (("2", "1", ":cat train:cat test:dog"), ("none", "auto", ":cat :cat :dog")),
        ),
        (
            "fold1/train/cat/1 fold1/test/cat/2 fold2/train/dog/3",
            "folders in 'fold1', 'fold2' are named like splits ('test', 'train'), but ",
            (("2", "1", "train:fold1 test:fold1 train:fold2"),),
        ),
        (
            "train/cat/1 train/dog/2 test/images/3",
            "the split test has one folder, 'images', which no other split has, expected "
            "classes like 'cat', 'dog'. If these files have no labels, leave them out",
            (("1", "auto", "train:cat train:dog test:images"),),
        ),
        (
            "year=2026/cat/1 year=2026/2 dog/3",
            "'year=2026' would be classes, but folders in them, such as 'cat', would "
            "not. If such folders are the classes, use `label_from=2`; if not, `lab",
            (
                ("auto", "2", ":cat : :"),
                ("auto", "1", ":year=2026 :year=2026 :dog"),
            ),
        ),
        (
            "a_train/a_train/x/1 a_test/a_test/2",
            "the split a_test has one folder, 'a_test', which no other split has",
            (),
        ),
    ],
)  # fmt: skip
def test_what_nobody_can_know_is_asked_for(
    paths: str, told: str, ways: tuple[tuple[str, str, str], ...]
) -> None:
    with pytest.raises(InputError) as error:
        found(paths)
    assert str(error.value).startswith(f"/root/: {told}")
    for split_from, label_from, expected in ways:
        places, _ = found(paths, split_from, label_from)
        assert list(places.values()) == expected.split()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("cat", "Cat"), "classes of the folders 'Cat' and 'cat' differ only in case"),
        (("train/cafe\u0301", "test/café"),
         "classes of the folders 'cafe\\u0301' and 'caf\\xe9' differ only in"),
        (("train/cat", "Train/dog"), "splits of the folders 'Train' and 'train' differ "),
    ],
)  # fmt: skip
def test_folders_equal_but_for_case_or_form(
    tmp_path: Path, names: tuple[str, str], told: str
) -> None:
    write(tmp_path, {f"{name}/1.png": PNG for name in names})
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/: {told}")):
        prepare(ImagesSource(), [tmp_path])


def test_what_is_two_classes_though_equal_but_for_case(tmp_path: Path) -> None:
    """Letters are, and what a label map names both."""
    write(tmp_path / "letters", {"a/1.png": PNG, "A/1.png": PNG})
    letters = prepare(ImagesSource(), [tmp_path / "letters"]).source
    assert letters.annotations.classes == ("A", "a")
    words = tmp_path / "words"
    write(words, {"cat/1.png": PNG, "Cat/1.png": PNG, "names.txt": b"cat\nCat\n"})
    mapped = ImagesSource(ImagesOptions(label_map="names.txt"))
    assert prepare(mapped, [words]).source.annotations.classes == ("cat", "Cat")


def test_numbers_are_classes_in_the_order_of_their_values(tmp_path: Path) -> None:
    write(tmp_path, {f"{name}/1.png": PNG for name in (10, 1, 2)})
    source = prepare(ImagesSource(), [tmp_path]).source
    assert source.annotations.classes == ("1", "2", "10")
    # Once they were numbered as text.
    assert describe_folders(
        listed("1/a 2/a 10/a"), ImagesOptions(), StorageOptions()
    ).endswith("by value")


@pytest.mark.parametrize(
    ("paths", "split_from", "label_from"),
    [
        ("cat/1 dog/2", "auto", "auto"),
        ("train/cat/1 test/dog/2", "auto", "auto"),
        # The ways out that the warnings name.
        ("train/1 cat/2", "none", "auto"),
        ("train/a/1 cat/b/2", "1", "auto"),
        ("train/1 test/2", "none", "auto"),
        ("train/1 test/2", "1", "0"),
        ("all/cat/1 all/dog/2", "auto", "auto"),
        ("train/all/cat/1 test/all/dog/2", "auto", "auto"),
    ],
)
def test_nothing_is_told_where_nothing_is_wrong(
    paths: str, split_from: str, label_from: str
) -> None:
    assert found(paths, split_from, label_from)[1] == ()


def test_paths_outside_the_layout_have_no_place() -> None:
    assert FolderLayout().find_labels(["cat/1.jpg"]) == [("", "")]


@pytest.mark.parametrize(
    ("paths", "is_plain"),
    [
        ("cat/1.jpg dog/x/2.jpg 3.jpg", True),
        ("cat//1.jpg dog//2.jpg", True),
        ("a//cat/1.jpg b//cat/2.jpg", False),
        ("train/cat/1.jpg test/cat/2.jpg", False),
    ],
)
def test_only_other_layouts_change_the_fingerprint(paths: str, is_plain: bool) -> None:
    told = describe_folders(listed(paths), ImagesOptions(), StorageOptions())
    assert (told == "") is is_plain


def test_masks_beside_images_are_no_classes_in_silence(tmp_path: Path) -> None:
    """Nor are other folders that hold the same folders, with as many images in each."""
    tree = {"images": (JPEG, "jpg"), "segmentations": (PNG, "png")}
    for top, (data, ending) in tree.items():
        own = [f"{top}/{name}.{ending}" for name in ("cat/1", "cat/2", "dog/1")]
        write(tmp_path, dict.fromkeys(own, data))
    (warning,) = prepare(ImagesSource(), [tmp_path]).source.input_report().warnings
    assert (
        "classes 'images', 'segmentations' contain folders with the same names"
        in str(warning)
    )
    assert "`label_from=2`" in str(warning)
    source = prepare(ImagesSource(ImagesOptions(label_from="2")), [tmp_path]).source
    assert source.input_report().warnings == ()
    (tmp_path / "images/cat/1.jpg").unlink()
    assert prepare(ImagesSource(), [tmp_path]).source.input_report().warnings == ()
