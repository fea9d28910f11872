"""Which folders of images are taken for splits and which for classes."""

from __future__ import annotations

import pytest

from recordmill.schemas.input_files import InputFile
from recordmill.transforms.sources.images.find import (
    FolderLayout,
    describe_folders,
    find_layout,
)
from recordmill.transforms.sources.images.options import ImagesOptions


def listed(paths: str) -> list[InputFile]:
    """Files; the part of a path before "//" is the given folder, else the root."""
    files = []
    for path in paths.split():
        given, _, below = path.rpartition("//")
        whole = f"{given}/{below}".strip("/")
        files.append(InputFile(whole, f"/root/{whole}", 1, "", given))
    return files


def found(
    paths: str, split_from: str = "auto", label_from: str = "auto"
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns "split:class" of each path, and the warnings."""
    files = listed(paths)
    options = ImagesOptions(split_from=split_from, label_from=label_from)
    layout, warnings = find_layout(files, options)
    places = layout.places(file.path for file in files)
    return {
        file.path: f"{place.split}:{place.label}"
        for file, place in zip(files, places, strict=True)
    }, warnings


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        # One input, no splits: the first folder, whatever is in it.
        ("cat/1 cat/tabby/2 dog/3", ":cat :cat :dog"),
        ("cat/1 cat/train/2 dog/test/3", ":cat :cat :dog"),
        # Splits above class folders, in all their spellings.
        ("train/cat/1 test/dog/2", "train:cat test:dog"),
        ("Train/cat/1 VAL/cat/tabby/2", "Train:cat VAL:cat"),
        ("training/a/1 valid/a/1 validation/a/1 dev/a/1 testing/a/1",
         "training:a valid:a validation:a dev:a testing:a"),
        ("train/cat/1", "train:cat"),
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
        ("train/1 cat/2", "classes named like splits: 'train', beside 'cat'."),
        ("train/a/1 cat/b/2", "classes named like splits: 'train', beside 'cat'."),
        ("train/1 test/2", "classes named like splits: 'test', 'train'. If"),
        ("train//1 test//2", "classes named like splits: 'test', 'train'. If"),
        ("cat/1 cat/2", "there is only one class, 'cat'; if there are more"),
        (
            "all/cat/1 all/dog/2",
            "there is only one class, 'all'; if the folders in it are the classes, use "
            "`label_from=2`",
        ),
        (
            "train/all/cat/1 test/all/dog/2",
            "there is only one class, 'all'; if the folders in it are the classes, use "
            "`label_from=3`",
        ),
        ("train/cat/1 train/dog/2 test/3", "1 image directly in 'test' will be rej"),
        ("cat/1 dog/2 3", "1 image directly in the input folder will be rejected"),
    ],
)
def test_what_looks_wrong_is_told(paths: str, told: str) -> None:
    _, warnings = found(paths)
    assert len(warnings) == 1
    assert warnings[0].startswith(told)


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
        ("all/cat/1 all/dog/2", "auto", "2"),
        ("train/all/cat/1 test/all/dog/2", "auto", "3"),
    ],
)
def test_nothing_is_told_where_nothing_is_wrong(
    paths: str, split_from: str, label_from: str
) -> None:
    assert found(paths, split_from, label_from)[1] == ()


def test_paths_outside_the_layout_have_no_place() -> None:
    assert FolderLayout().places(["cat/1.jpg"]) == [("", "")]


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
    told = describe_folders(listed(paths), ImagesOptions())
    assert (told == "") is is_plain
