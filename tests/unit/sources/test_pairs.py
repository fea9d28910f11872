"""Which files belong to images, by the names of folders and files."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.images.find import describe_folders, find_partners
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.pairs import Partners


def listed(paths: Iterable[str]) -> Inventory:
    return Inventory.from_files(
        [InputFile(path, f"/data/{path}", 10) for path in paths]
    )


def tree(*folders: str) -> list[str]:
    """Returns two files in each folder; `*` is in place of their names."""
    return sorted(each.replace("*", name) for each in folders for name in ("1", "20"))


def paired(
    paths: Iterable[str], options: ImagesOptions | None = None
) -> Partners | None:
    return find_partners(listed(paths), options or ImagesOptions())


# Trees of published datasets, and names that people use; the feature, and where its files
# and the images of these are, once for each folder.
TREES = {
    "images and masks": (
        ["images/*.jpg", "masks/*.png"],
        {"masks": [("masks", "images")]},
    ),
    "CamVid, as fastai has it": (
        ["images/*.png", "labels/*_P.png"],
        {"labels": [("labels", "images")]},
    ),
    "CamVid, as SegNet has it": (
        ["train/*.png", "trainannot/*.png", "val/*.png", "valannot/*.png"],
        {"annot": [("trainannot", "train"), ("valannot", "val")]},
    ),
    "Pascal VOC": (
        ["VOC2012/JPEGImages/*.jpg", "VOC2012/SegmentationClass/*.png"],
        {"SegmentationClass": [("VOC2012/SegmentationClass", "VOC2012/JPEGImages")]},
    ),
    "Oxford-IIIT Pet": (
        ["images/*.jpg", "annotations/trimaps/*.png", "annotations/xmls/*.xml"],
        {"trimaps": [("annotations/trimaps", "images")]},
    ),
    "ADE20K": (
        [
            f"{kind}/{split}/*.{end}"
            for kind, end in (("images", "jpg"), ("annotations", "png"))
            for split in ("training", "validation")
        ],
        {
            "annotations": [
                ("annotations/training", "images/training"),
                ("annotations/validation", "images/validation"),
            ]
        },
    ),
    "Carvana": (
        ["train/*.jpg", "train_masks/*_mask.gif"],
        {"masks": [("train_masks", "train")]},
    ),
    "splits above": (
        [
            "train/image/*.png",
            "train/label/*.png",
            "test/image/*.png",
            "test/label/*.png",
        ],
        {"label": [("test/label", "test/image"), ("train/label", "train/image")]},
    ),
    "in the folder of the images": (
        ["*.jpg", "masks/*.png"],
        {"masks": [("masks", "")]},
    ),
    "classes": (
        ["images/cat/*.jpg", "images/dog/*.jpg", "masks/cat/*.png", "masks/dog/*.png"],
        {"masks": [("masks/cat", "images/cat"), ("masks/dog", "images/dog")]},
    ),
    "several": (
        ["img/*.jpg", "gt/*.png", "captions/*.txt", "meta/*.json"],
        {
            "gt": [("gt", "img")],
            "captions": [("captions", "img")],
            "meta": [("meta", "img")],
        },
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_folders_of_datasets(name: str) -> None:
    folders, wanted = TREES[name]
    found = paired(tree(*folders))
    assert found is not None
    assert {
        pair.name: [(each.partner_folder, each.image_folder) for each in pair.matches]
        for pair in found.pairs
    } == wanted


@pytest.mark.parametrize(
    "folders",
    [
        ["cat/*.jpg", "dog/*.jpg"],
        ["with_mask/*.jpg", "without_mask/*.jpg"],  # classes of a well-known dataset
        ["mask/*.jpg", "no_mask/*.jpg"],
        ["train/cat/*.jpg", "train/target/*.jpg"],
        ["images/*.jpg", "labels/*.txt"],  # boxes of YOLO
        ["JPEGImages/*.jpg", "Annotations/*.xml"],  # boxes of VOC
    ],
)
def test_other_folders_are_no_pairs(folders: list[str]) -> None:
    assert paired(tree(*folders)) is None


def test_named_folders() -> None:
    options = ImagesOptions(pair="mask=annotated/png,text=said")
    found = paired(
        tree("train/photo/*.jpg", "train/annotated/png/*.png", "train/said/*.txt"),
        options,
    )
    assert found is not None
    assert [(pair.name, pair.kind, pair.matches[0][:2]) for pair in found.pairs] == [
        ("mask", "image", ("train/annotated/png", "train/photo")),
        ("text", "text", ("train/said", "train/photo")),
    ]
    assert (
        len(
            found.exclude_partners(
                listed(tree("train/photo/*.jpg", "train/said/*.txt"))
            )
        )
        == 2
    )


@pytest.mark.parametrize(
    ("folders", "options", "reason"),
    [
        (
            ["images/*.jpg", "masks/1*.png"],
            {},
            "have other names than those in 'images'",
        ),
        (["a/*.jpg"], {"pair": "m=b"}, "no input file is in a folder 'b'"),
        (
            ["a/*.jpg", "b/x*.png"],
            {"pair": "m=b"},
            "has the name of an image, expected",
        ),
        (["a/*.jpg", "b/*.mat"], {"pair": "m=b"}, "has the name of an image, expected"),
    ],
)
def test_what_belongs_to_nothing(
    folders: list[str], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        paired(tree(*folders), ImagesOptions(**options))
    assert paired(tree(*folders), ImagesOptions(pair="none")) is None


@pytest.mark.parametrize("text", ["masks", "=masks", "m=", "m=a,b", "none,m=a"])
def test_pairs_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        ImagesOptions(pair=text)


@pytest.mark.parametrize(
    ("folders", "places"),
    [
        (["images/*.jpg", "masks/*.png"], ("none", {"*"})),
        (["VOC/JPEGImages/*.jpg", "VOC/SegmentationClass/*.png"], ("none", {"VOC/*"})),
        (["train/images/*.jpg", "train/masks/*.png"], ("none", {"train/*"})),
        (
            ["images/train/*.jpg", "masks/train/*.png", "images/val/*.jpg"],
            ("none", {"train/*", "val/*"}),
        ),
        (
            ["cat/images/*.jpg", "cat/masks/*.png", "dog/images/*.jpg"],
            ("auto", {"cat/*", "dog/*"}),
        ),
        (["train/*.jpg", "train_masks/*.png"], ("none", {"train/*"})),
    ],
)
def test_a_folder_of_images_is_no_class(
    folders: list[str], places: tuple[str, set[str]]
) -> None:
    found = paired(tree(*folders))
    assert found is not None
    images = found.exclude_partners(listed(tree(*folders)))
    shorter, options = found.cut_image_folders(images, ImagesOptions())
    label_from, paths = places
    assert options.label_from == label_from
    assert set(shorter.paths.to_pylist()) == {
        f"{path.replace('*', name)}.jpg" for path in paths for name in ("1", "20")
    }


def test_pairs_belong_to_what_fixes_the_bytes() -> None:
    files = listed(tree("images/*.jpg", "masks/*.png"))
    one, other, none = (
        describe_folders(files, ImagesOptions(pair=pair), StorageOptions())
        for pair in ("auto", "mask=masks", "none")
    )
    assert len({one, other, none}) == 3
    assert none == ""
