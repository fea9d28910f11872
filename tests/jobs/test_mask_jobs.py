"""Masks and texts beside images, through the command."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import Argument, Ran, assert_whole, examples_of, manifest_of, recordmill
from PIL import Image, ImageOps
from PIL.Image import Resampling

from recordmill import open_dataset
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.sources.images.pairs import Partners

pytestmark = pytest.mark.usefixtures("without_beam")

NAMES = ("a", "b", "c", "d", "e")


def mask_of(number: int) -> Any:
    pixels = np.arange((12 + number) * 20, dtype=np.uint8).reshape(12 + number, 20)
    return pixels // 7 % 21


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images of several sizes and their masks, gray and with palettes."""
    monkeypatch.chdir(tmp_path)
    for folder in ("data/images", "data/masks"):
        Path(folder).mkdir(parents=True)
    for number, name in enumerate(NAMES):
        mask = mask_of(number)
        exif = Image.Exif()
        exif[0x112] = 6 if name == "b" else 1
        image = Image.fromarray(np.repeat(mask[:, :, None] * 9, 3, axis=2))
        image.save(f"data/images/{name}.jpg", exif=exif)
        marked = Image.fromarray(mask)
        if number % 2:
            marked.putpalette([each * 11 % 256 for each in range(768)])
        marked.save(f"data/masks/{name}.png")
    return tmp_path / "data"


def converted(*options: Argument) -> Ran:
    ran = recordmill("convert", "images", "data", "out", *options)
    assert ran.status == 0, ran.err
    assert_whole(Path("out"))
    return ran


def refused_by(*options: Argument) -> str:
    ran = recordmill("convert", "images", "data", "out", *options)
    assert ran.status != 0
    return ran.err


def rows() -> dict[str, dict[str, Any]]:
    """Returns the features of each record by the name of its image."""
    found = {}
    for example in examples_of(Path("out")):
        features = {
            name: (value.bytes_list.value or value.int64_list.value)[0]
            for name, value in example.features.feature.items()
            if not name.startswith("objects/")
        }
        found[Path(features["filename"].decode()).stem] = features
    return found


def run_json() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out/run.json").read_bytes())
    return found


def pixels(png: bytes) -> Any:
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        assert image.mode in ("L", "I;16")
        return np.asarray(image)


def by_name() -> list[tuple[str, dict[str, Any]]]:
    every = open_dataset("out", "train")
    return [(Path(str(row["filename"])).stem, row) for row in every]


def pixels_of(mask: Any) -> Any:
    return pixels(mask) if isinstance(mask, bytes) else np.array(mask)


def test_masks_are_a_feature_and_no_class(data: Path) -> None:
    ran = converted()
    assert "pair masks: 5 of 1 channel of uint8, in masks" in ran.out + ran.err
    found = rows()
    assert sorted(found) == list(NAMES)
    for number, name in enumerate(NAMES):
        assert "label" not in found[name]
        assert found[name]["image"] == (data / f"images/{name}.jpg").read_bytes()
        assert np.array_equal(pixels(found[name]["masks"]), mask_of(number))
    # What is gray already stays as it is.
    assert found["a"]["masks"] == (data / "masks/a.png").read_bytes()
    told = run_json()["understood"]["facts"]
    assert told["pair masks"] == "5 of 1 channel of uint8, in masks"
    feature = {each["name"]: each for each in manifest_of(Path("out"))["features"]}
    assert feature["masks"]["shape"] == [None, None, 1]


def test_lists_of_splits_of_voc_count_for_masks_too(data: Path) -> None:
    """CVAT's segmentation masks, or VOC's without its boxes."""
    (data / "images").rename(data / "JPEGImages")
    (data / "masks").rename(data / "SegmentationClass")
    lists = data / "ImageSets/Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\nb\nc\n")
    (lists / "val.txt").write_text("d\ne\n")
    (lists / "trainval.txt").write_text("a\nb\nc\nd\ne\n")
    ran = converted()
    assert "images by split: train 3, val 2" in ran.err
    assert "list ImageSets/Segmentation/val.txt: 2 images of split val" in ran.err
    assert "images by split" not in converted("--overwrite", "--split-from", "none").err


@pytest.mark.parametrize("first", ["val", "train"])
def test_lists_of_splits_that_contradict_folders_are_an_error(
    data: Path, first: str
) -> None:
    for split, names in (("train", "abc"), ("val", "de")):
        for kind in ("images", "masks"):
            (data / split / kind).mkdir(parents=True)
            for name in names:
                (file,) = (data / kind).glob(f"{name}.*")
                file.rename(data / split / kind / file.name)
    for kind in ("images", "masks"):
        (data / kind).rmdir()
    lists = data / "ImageSets/Segmentation"
    lists.mkdir(parents=True)
    second = "train" if first == "val" else "val"
    (lists / f"{first}.txt").write_text("a\nb\nc\n")
    (lists / f"{second}.txt").write_text("d\ne\n")
    if first == "train":  # as the folders have it
        assert "images by split: train 3, val 2" in converted().err
        return
    told = refused_by()
    assert (
        "images/a.jpg: is in the split train by its folder or table, but in val" in told
    )
    names = [f"ImageSets/Segmentation/{split}.txt" for split in ("train", "val")]
    assert (
        f"Leave out {', '.join(names)} with --exclude, or use --split-from none" in told
    )
    without = [each for name in names for each in ("--exclude", name)]
    ran = converted(*without)
    assert "train: 3 records" in ran.err
    assert "val: 2 records" in ran.err
    assert "train: 5 records" in converted("--overwrite", "--split-from", "none").err


@pytest.mark.parametrize("folders", [("data",), ("data/cat", "data/dog")])
def test_masks_in_the_folders_of_their_images_are_asked_about(
    data: Path, folders: tuple[str, ...]
) -> None:
    """As Roboflow exports them, and BUSI has them in folders of classes."""
    for number, name in enumerate(NAMES):
        folder = Path(folders[number % len(folders)])
        folder.mkdir(exist_ok=True)
        Path(f"data/images/{name}.jpg").rename(folder / f"{name}.jpg")
        Path(f"data/masks/{name}.png").rename(folder / f"{name}_mask.png")
    for emptied in ("data/images", "data/masks"):
        Path(emptied).rmdir()
    for options in ((), ("--label-from", "none")):
        told = refused_by(*options)
        assert "a_mask.png: has the name of " in told
        assert "'_mask.png', as have 5 images of 10" in told
    # The ways out.
    labels = () if len(folders) > 1 else ("--label-from", "none")
    converted(*labels, "--exclude", "*_mask.png")
    assert len(rows()) == 5
    converted("--overwrite", *labels, "--pair", "none")
    assert len(rows()) == 10
    for emptied in ("data/images", "data/masks"):
        Path(emptied).mkdir()
    for name in NAMES:
        (moved,) = Path("data").rglob(f"{name}_mask.png")
        moved.rename(f"data/masks/{name}.png")
        (image,) = Path("data").rglob(f"{name}.jpg")
        image.rename(f"data/images/{name}.jpg")
    for folder in {*folders} - {"data"}:
        Path(folder).rmdir()
    assert "pair masks: 5 of 1 channel" in converted("--overwrite").err


def test_masks_beside_their_images_are_left_out_as_told(data: Path) -> None:
    for name in NAMES:
        Path(f"data/images/{name}.jpg").rename(f"data/{name}.jpg")
        Path(f"data/masks/{name}.png").rename(f"data/{name} mask.png")
    told = refused_by("--label-from", "none")
    (way_out,) = re.findall(r"with (--exclude .+); if not", told)
    converted("--label-from", "none", *shlex.split(way_out))
    assert len(rows()) == 5


def array_of(number: int, dtype: str, shape: tuple[int, ...]) -> Any:
    values = np.random.default_rng(number).uniform(0, 99, shape)
    return np.asfortranarray(values.astype(dtype))


@pytest.mark.parametrize("case", ["<f4 3", ">i2 2 3", "|b1 2", "<f2 4", "<u8 1"])
@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_arrays_beside_images_keep_their_type_and_shape(
    data: Path, case: str, exchange: str
) -> None:
    dtype, *sides = case.split()
    shutil.rmtree("data/masks")
    Path("data/embeddings").mkdir()
    for number, name in enumerate(NAMES):
        array = array_of(number, dtype, tuple(map(int, sides)))
        np.save(f"data/embeddings/{name}.npy", array)
    ran = converted("--exchange", exchange, "--resize", "longer=9")
    plain = np.dtype(dtype).newbyteorder("<")
    shape = ", ".join(sides)
    told = f"5 of arrays of {plain.name} of shape [{shape}], kept unchanged"
    assert told in ran.out + ran.err
    feature = {each["name"]: each for each in manifest_of(Path("out"))["features"]}
    assert feature["embeddings"]["shape"] == list(map(int, sides))
    assert feature["embeddings"]["dtype"] == plain.name
    for name, row in rows().items():
        wanted = np.load(f"data/embeddings/{name}.npy").astype(plain)
        assert row["embeddings"] == wanted.tobytes()


def test_arrays_of_different_shapes_are_tensors(data: Path) -> None:
    for number, name in enumerate(NAMES):
        array = array_of(number, "<f4", (number + 1, 2))
        np.save(f"data/masks/{name}.npy", array)
    np.save("data/masks/e.npy", array_of(5, "<i4", (1, 2)))
    for path in Path("data/masks").glob("*.png"):
        path.unlink()
    converted("--pair", "flow=masks", "--max-rejects", "1")
    told = recordmill("rejects", "out").out
    assert "masks/e.npy: has int32 of shape [1, 2], expected float32" in told
    feature = {each["name"]: each for each in manifest_of(Path("out"))["features"]}
    assert feature["flow"]["shape"] == [None, None]
    assert len(rows()) == 4
    for row in open_dataset("out", "train"):
        name = Path(row["filename"]).stem
        assert np.array_equal(row["flow"], np.load(f"data/masks/{name}.npy"))


def test_what_is_no_array_of_numbers_is_a_reject(data: Path) -> None:
    shutil.rmtree("data/masks")
    Path("data/npy").mkdir()
    for number, name in enumerate(NAMES):
        np.save(f"data/npy/{name}.npy", array_of(number, "<f4", (2,)))
    Path("data/npy/b.npy").write_bytes(Path("data/npy/b.npy").read_bytes()[:-1])
    np.save("data/npy/c.npy", np.array([{"a": 1}]), allow_pickle=True)
    Path("data/npy/d.npy").write_bytes(b"text")
    length = (1 << 20).to_bytes(4, "little")
    long = b"\x93NUMPY\2\0" + length + b"(" * (1 << 20)
    Path("data/npy/a.npy").write_bytes(long)
    converted("--max-rejects", "4")
    told = recordmill("rejects", "out").out
    assert "npy/a.npy: the file: its header has 1,048,588 bytes, expected at" in told
    assert "name only .npy" not in told
    assert "declares 8 bytes of values, but 7 follow" in told
    assert "contains Python objects" in told
    assert "expected the signature of a .npy file" in told
    assert sorted(rows()) == ["e"]


def test_arrays_without_values_are_arrays(data: Path) -> None:
    Path("data/npy").mkdir()
    for number, name in enumerate(NAMES):
        np.save(f"data/npy/{name}.npy", np.ones((4, number), np.float32))
    converted()
    shapes = {
        Path(row["filename"]).stem: np.shape(row["npy"])
        for row in open_dataset("out", "train")
    }
    assert shapes == {name: (4, number) for number, name in enumerate(NAMES)}


def arrays_for_masks(change: Callable[[Any], Any]) -> None:
    for path in Path("data/masks").glob("*.png"):
        np.save(path.with_suffix(".npy"), change(np.asarray(Image.open(path))))
        path.unlink()


MOVING: dict[str, list[str]] = {
    "resize": ["--resize", "8x6"],
    "crop": ["--crop", "11x9"],
    "crop after it": ["--resize", "shorter=8", "--crop", "8x6"],
    "pad": ["--resize", "longer=16", "--pad", "16x18", "--mask-pad", "77"],
    "turn": ["--orientation", "apply"],
    "turn by another option": ["--reencode", "png"],
    "raw": ["--pixels", "raw"],
}


@pytest.mark.parametrize("case", MOVING)
def test_masks_that_are_arrays_move_as_images_do(data: Path, case: str) -> None:
    exchange = ["--exchange", "engine" if case == "crop" else "scratch"]
    converted(*MOVING[case], *exchange)
    wanted = {name: pixels_of(row["masks"]) for name, row in by_name()}
    # Numbers that no image holds, a second one of each pixel, and one drawn on what
    # viewers show where the image is turned.
    arrays_for_masks(lambda mask: np.stack([mask * 1e9 + 0.5, mask], axis=2))
    if case != "resize":
        turned = np.rot90(np.load("data/masks/b.npy"), -1)
        np.save("data/masks/b.npy", turned)
    ran = converted(*MOVING[case], *exchange, "--overwrite")
    told = "5 of arrays of float64 of shape ["
    assert told in ran.out + ran.err
    assert "moved with their images, in masks" in ran.out + ran.err
    found = {name: np.array(row["masks"]) for name, row in by_name()}
    assert sorted(found) == list(NAMES)
    if case in ("resize", "crop", "crop after it", "pad"):
        feature = {each["name"]: each for each in manifest_of(Path("out"))["features"]}
        assert feature["masks"]["shape"] == [*wanted["a"].shape, 2]
    for name, mask in wanted.items():
        assert found[name].shape == (*mask.shape, 2)
        assert np.array_equal(found[name][:, :, 1], mask)
        # The dataset has numbers of 32 bits where sides differ.
        inside = mask != 77
        first = np.where(inside, mask * 1e9 + 0.5, 77)
        assert np.allclose(found[name][:, :, 0], first, rtol=1e-6)


def test_an_array_of_other_sides_than_its_image_is_a_reject(data: Path) -> None:
    arrays_for_masks(lambda mask: mask > 9)
    np.save("data/masks/c.npy", np.zeros((5, 20), bool))
    converted("--resize", "8x6", "--max-rejects", "1")
    told = recordmill("rejects", "out").out
    assert (
        "masks/c.npy: has 5 x 20 pixels, expected the size of its image, 14 x "
        "20" in told
    )
    said = refused_by("--resize", "longer=4", "--pad", "8x6", "--overwrite")
    assert "--mask-pad: arrays of 'masks' are bool, expected a value" in said
    assert "such as 0, found 255" in said
    pad = ["--resize", "longer=4", "--pad", "8x6", "--mask-pad", "0"]
    converted(*pad, "--overwrite", "--max-rejects", "1")


@pytest.mark.parametrize("options", [[], ["--channels", "1", "--orientation", "keep"]])
def test_arrays_stay_as_they_are_where_no_option_moves_pixels(
    data: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nor is their image asked for its sides.
    monkeypatch.setattr("recordmill.transforms.sources.images.pairs.read_header", None)
    arrays_for_masks(lambda mask: mask)
    turned = np.rot90(np.load("data/masks/b.npy"), -1)
    np.save("data/masks/b.npy", turned)
    np.save("data/masks/c.npy", np.zeros((5, 20), np.uint8))
    ran = converted(*options)
    assert "of uint8 of shape [null, null], kept unchanged" in ran.out + ran.err
    for name, row in by_name():
        assert np.array_equal(row["masks"], np.load(f"data/masks/{name}.npy"))
    assert len(by_name()) == 5


@pytest.mark.parametrize(("types", "pad"), [("|u1 |i1", "255"), ("<u2 |u1", "65535")])
def test_the_type_of_an_array_is_checked_before_it_is_moved(
    data: Path, types: str, pad: str
) -> None:
    usual, other = types.split()
    arrays_for_masks(lambda mask: mask.astype(usual))
    np.save("data/masks/c.npy", np.load("data/masks/c.npy").astype(other))
    np.save("data/masks/d.npy", np.load("data/masks/d.npy")[0])
    padded = ["--resize", "longer=8", "--pad", "8x8", "--mask-pad", pad]
    converted(*padded, "--max-rejects", "2")
    told = recordmill("rejects", "out").out
    names = np.dtype(other).name, np.dtype(usual).name
    assert "c.npy: has {} of shape [14, 20], expected {}".format(*names) in told
    assert f"d.npy: has {names[1]} of shape [20], expected" in told
    assert "JSON" not in told


def test_lists_among_masks_that_are_arrays_are_no_pixels(data: Path) -> None:
    arrays_for_masks(lambda mask: mask)
    for number in range(6):  # most files, but of no image
        np.save(f"data/masks/more{number}.npy", np.arange(20, dtype=np.uint8))
    np.save("data/masks/e.npy", np.arange(20, dtype=np.uint8))
    ran = converted("--resize", "8x6", "--pair", "masks=masks", "--max-rejects", "4")
    assert "of uint8 of shape [null], kept unchanged" in ran.out + ran.err
    told = recordmill("rejects", "out").out
    assert "a.npy: has uint8 of shape [12, 20], expected uint8 of shape [null]" in told


def test_arrays_that_move_are_not_appended_to_others(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays_for_masks(lambda mask: mask)
    resize = ["--resize", "shorter=8"]
    with monkeypatch.context() as before:  # the fingerprint of earlier versions
        before.setattr(Partners, "moves_arrays", lambda *_: False)
        converted(*resize)
    differs = "arrays next to images, which the dataset stores unchanged and which"
    said = refused_by(*resize)
    assert differs in said
    for folder, end in (("images", "jpg"), ("masks", "npy")):
        path = data / folder / f"a.{end}"
        path.with_stem("f").write_bytes(path.read_bytes())
    said = refused_by("--append", *resize)
    assert (
        f"differs in {differs} recordmill now transforms with the pixels; convert all inputs again"
        in said
    )
    # The way out, and what is new then.
    converted("--overwrite", *resize)
    assert "already exists; nothing to do" in converted(*resize).err
    for folder, end in (("images", "jpg"), ("masks", "npy")):
        path = data / folder / f"a.{end}"
        path.with_stem("g").write_bytes(path.read_bytes())
    converted("--append", *resize)
    assert len(by_name()) == 7


@pytest.mark.parametrize("options", [[], ["--resize", "8x6"]])
def test_other_arrays_keep_their_fingerprint(
    data: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("data/masks").rename("data/labels")
    for path in Path("data/labels").glob("*.png"):
        np.save(path.with_suffix(".npy"), np.arange(3))
        path.unlink()
    with monkeypatch.context() as before:
        before.setattr(Partners, "moves_arrays", lambda *_: False)
        converted(*options)
    assert "already exists; nothing to do" in converted(*options).err


def test_masks_with_other_axes_are_asked_for_where_pixels_move(data: Path) -> None:
    arrays_for_masks(lambda mask: mask[None])
    converted()
    for name, value in {"resize": "8x6", "reencode": "png"}.items():
        option = [f"--{name}", value]
        said = refused_by("--overwrite", *option)
        moving = name if name == "resize" else "orientation"
        assert "masks: is named like a folder of masks, but its arrays" in said
        assert (
            f"height and width of their images, whose pixels --{moving} moves" in said
        )
        assert "Save masks as arrays of (height, width) or as .png" in said
        # The ways out.
        assert "use --pair masks=masks to keep the arrays unchanged, or --pair" in said
        converted("--overwrite", *option, "--pair", "masks=masks")
        converted("--overwrite", *option, "--pair", "none", "--label-from", "none")


def test_a_list_beside_each_image_is_no_mask(data: Path) -> None:
    Path("data/masks").rename("data/labels")
    for path in Path("data/labels").glob("*.png"):
        np.save(path.with_suffix(".npy"), np.arange(3))
        path.unlink()
    ran = converted("--resize", "8x6")
    assert "5 of arrays of int64 of shape [3], kept unchanged" in ran.out + ran.err


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_masks_are_transformed_with_their_images(data: Path, exchange: str) -> None:
    converted(
        *["--resize", "longer=16", "--pad", "16x18:3", "--mask-pad", "99"],
        "--exchange",
        exchange,
    )
    found = rows()
    for number, name in enumerate(NAMES):
        image = Image.fromarray(mask_of(number))
        image.getexif()[0x112] = 6 if name == "b" else 1
        image = ImageOps.exif_transpose(image)
        side = max(image.size)
        size = tuple((2 * each * 16 + side) // (2 * side) for each in image.size)
        wanted = np.full((16, 18), 99, np.uint8)
        small = np.asarray(image.resize(size, Resampling.NEAREST))  # type: ignore[arg-type]
        top, left = (16 - small.shape[0]) // 2, (18 - small.shape[1]) // 2
        wanted[top : top + small.shape[0], left : left + small.shape[1]] = small
        assert np.array_equal(pixels(found[name]["masks"]), wanted)


@pytest.mark.parametrize("size", ["8x6", "shorter=8"])
def test_masks_as_arrays(data: Path, size: str) -> None:
    deep = Image.fromarray(np.full((12, 20), 1000, np.uint16))
    deep.save(data / "masks/a.png")
    converted("--resize", size, "--pixels", "raw")
    from recordmill import open_dataset

    for row in open_dataset("out", "train"):
        mask, image = np.array(row["masks"]), np.array(row["image"])
        assert len(mask) == len(image)
        assert 3 * mask.size == image.size
        if row["filename"] == "images/a.jpg":
            assert set(mask.reshape(-1).tolist()) == {1000}


def test_what_has_no_partner(data: Path) -> None:
    (data / "masks/b.png").unlink()
    (data / "masks/z.png").write_bytes((data / "masks/c.png").read_bytes())
    said = refused_by()
    assert "images/b.jpg" in said
    assert "expected a file 'masks/b.*'" in said
    ran = converted("--max-rejects", 1)
    assert "1 image will be rejected" in ran.err
    assert "Use --unlisted leave_out" in ran.err
    assert (
        "if the folder does not contain their masks or texts, use --pair none"
        in ran.err
    )
    assert (
        "1 file (no image is named like this 'masks'), such as masks/z.png"
        in ran.out + ran.err
    )
    assert sorted(rows()) == list("acde")
    converted("--unlisted", "leave_out", "--overwrite")
    assert sorted(rows()) == list("acde")
    assert recordmill("rejects", "out").out == "0 rows rejected\n"
    assert "or leave out the folder of the other files with --exclude" in ran.err
    converted("--exclude", "masks/*", "--overwrite")
    assert sorted(rows()) == list(NAMES)


def test_masks_that_do_not_fit(data: Path) -> None:
    Image.new("L", (5, 6)).save(data / "masks/a.png")
    Image.new("RGB", (20, 14)).save(data / "masks/c.png")
    (data / "masks/d.png").write_bytes(b"no image")
    (data / "masks/e.jpg").write_bytes((data / "masks/c.png").read_bytes())
    converted("--max-rejects", 4)
    assert list(rows()) == ["b"]
    told = recordmill("rejects", "out").out
    for reason in (
        "its masks, masks/a.png: has 6 x 5 pixels, expected the size of its image, 12 x 20",
        "its masks, masks/c.png: has 3 channels of uint8, expected 1 channel of uint8",
        "its masks, masks/d.png: not an image",
        "has several files of 'masks'",
    ):
        assert reason in told
    assert "If the folder has no masks, use `pair=none`" in told
    converted("--pair", "none", "--max-rejects", 1, "--overwrite")


def test_classes_of_the_same_names_are_asked_for(data: Path) -> None:
    (data / "images").rename(data / "photos")
    (data / "masks").rename(data / "silhouettes")
    said = refused_by()
    assert "--pair mask=silhouettes" in said
    assert "--pair none" in said
    converted("--pair", "mask=silhouettes")
    assert np.array_equal(pixels(rows()["e"]["mask"]), mask_of(4))
    converted("--pair", "none", "--overwrite")
    features = [each["name"] for each in manifest_of(Path("out"))["features"]]
    assert "label" in features
    assert Path("out/label.labels.txt").read_text().split() == ["photos", "silhouettes"]


def test_masks_of_other_names_are_asked_for(data: Path) -> None:
    for name in NAMES:
        (data / f"masks/{name}.png").rename(data / f"masks/{ord(name)}.png")
    said = refused_by()
    assert "have other names than those in 'images'" in said
    assert "--pair none" in said
    converted("--pair", "none")


def test_a_pair_is_not_named_like_another_feature(data: Path) -> None:
    assert "--pair: a name is already a feature" in refused_by("--pair", "image=masks")


def test_texts_beside_images(data: Path) -> None:
    for folder in ("captions", "meta"):
        (data / folder).mkdir()
    for name in NAMES:
        (data / f"captions/{name}.txt").write_text(f"an image: {name} ä\n")
        (data / f"meta/{name}.json").write_text(json.dumps({"name": name}))
    (data / "captions/c.txt").write_bytes(b"\xff")
    (data / "meta/d.json").write_text("{")
    converted("--max-rejects", 2)
    found = rows()
    assert sorted(found) == ["a", "b", "e"]
    assert found["b"]["captions"].decode() == "an image: b ä\n"
    assert found["b"]["meta"] == b'{"name": "b"}'
    told = recordmill("rejects", "out").out
    assert "captions/c.txt: not UTF-8" in told
    assert "meta/d.json: not JSON" in told


def test_large_texts_are_read_to_their_end(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "captions").mkdir()
    for name in NAMES:
        (data / f"captions/{name}.txt").write_text(name * 10_000)
    monkeypatch.setattr(images_source, "LARGE_BYTES", 5_000)
    monkeypatch.setattr(images_source, "HEAD_BYTES", 100)
    converted()
    found = {name: row["captions"].decode() for name, row in rows().items()}
    assert found == {name: name * 10_000 for name in NAMES}


def test_masks_beside_boxes(data: Path) -> None:
    images = [
        {"id": n, "file_name": f"{name}.jpg", "width": 20, "height": 12 + n}
        for n, name in enumerate(NAMES)
    ]
    boxes = [
        {"id": n, "image_id": n, "category_id": 1, "bbox": [5, 3, 10, 6], "area": 60}
        for n in range(len(NAMES))
    ]
    categories = [{"id": 1, "name": "cat"}]
    text = json.dumps(
        {"images": images, "annotations": boxes, "categories": categories}
    )
    (data / "instances.json").write_text(text)
    converted("--resize", "24x24")
    for example in examples_of(Path("out")):
        feature = example.features.feature
        assert len(feature["objects/bbox"].float_list.value) == 4
        assert pixels(feature["masks"].bytes_list.value[0]).shape == (24, 24)


def test_a_changed_mask_is_another_input(data: Path) -> None:
    converted()
    assert "already" in recordmill("convert", "images", "data", "out").err
    Image.fromarray(mask_of(0) + 1).save(data / "masks/a.png")
    said = refused_by()
    assert "--overwrite" in said


def test_appended_images_bring_their_masks(data: Path) -> None:
    converted()
    for folder, end in (("images", "jpg"), ("masks", "png")):
        path = data / folder / f"a.{end}"
        path.with_stem("f").write_bytes(path.read_bytes())
    (data / "masks/y.png").write_bytes((data / "masks/a.png").read_bytes())
    assert "such as masks/y.png" in converted("--append").err
    assert np.array_equal(pixels(rows()["f"]["masks"]), mask_of(0))
    (data / "images/g.jpg").write_bytes((data / "images/a.jpg").read_bytes())
    assert "expected a file 'masks/g.*'" in refused_by("--append")


def photo(size: tuple[int, int], mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Returns noise in colours, or a photo's many grays."""
    noise = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    return Image.fromarray(noise).convert(mode)


@pytest.mark.parametrize(
    ("folders", "ending", "mode"),
    [
        (("face", "face_mask"), "jpg", "RGB"),
        (("images", "labels"), "jpg", "RGB"),
        (("images", "target"), "png", "RGB"),
        (("face", "face_mask"), "jpg", "L"),
    ],
)
def test_photos_in_folders_named_like_masks_are_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folders: tuple[str, str],
    ending: str,
    mode: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, folder in enumerate(folders):
        Path("data", folder).mkdir(parents=True)
        for number in range(3):
            image = photo((48, 60), mode, seed)
            image.save(f"data/{folder}/{number}.{ending}")
    said = refused_by()
    assert f"{folders[1]}: is named like a folder of masks, but its images" in said
    assert f"use --pair mask={folders[1]}" in said
    assert "--pair none" in said
    converted("--pair", "none")
    assert Path("out/label.labels.txt").read_text().split() == sorted(folders)
    converted("--pair", f"mask={folders[1]}", "--overwrite")
    assert len(rows()["0"]["mask"]) > 0


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_masks_in_colours_are_found(data: Path, ending: str) -> None:
    for number, name in enumerate(NAMES):
        (data / f"masks/{name}.png").unlink()
        few = mask_of(number) if ending == "png" else mask_of(number) // 11 * 255
        colours = np.stack([few, few if ending == "jpg" else few // 2, few], axis=2)
        Image.fromarray(colours).save(data / f"masks/{name}.{ending}")
    ran = converted()
    assert "pair masks: 5 of 3 channels of uint8" in ran.out + ran.err


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
@pytest.mark.parametrize("resize", [(), ("--resize", "12x20", "--orientation", "keep")])
def test_a_mask_of_the_turned_image_lies_on_the_kept_one(
    data: Path, orientation: int, resize: tuple[str, ...]
) -> None:
    stored = Image.fromarray(mask_of(0))
    exif = stored.getexif()
    exif[0x112] = orientation
    photo((12, 20)).save(data / "images/a.jpg", exif=exif)
    ImageOps.exif_transpose(stored).save(data / "masks/a.png")
    converted(*resize)
    assert np.array_equal(pixels(rows()["a"]["masks"]), mask_of(0))


def test_the_folder_that_is_asked_for_is_the_one_that_differs(data: Path) -> None:
    for old, new in (("images", "photos"), ("masks", "outlines")):
        paths = list((data / old).iterdir())
        for kind in ("cat", "dog"):
            (data / new / kind).mkdir(parents=True)
            for path in paths:
                (data / new / kind / path.name).write_bytes(path.read_bytes())
        shutil.rmtree(data / old)
    assert "use --pair mask=outlines;" in refused_by()
    converted("--pair", "mask=outlines")
    assert Path("out/label.labels.txt").read_text().split() == ["cat", "dog"]


def test_masks_of_few_of_the_images_with_boxes_are_no_feature(data: Path) -> None:
    (data / "masks").rename(data / "SegmentationClass")
    (data / "images").rename(data / "JPEGImages")
    (data / "Annotations").mkdir()
    for number, name in enumerate(NAMES):
        size = f"<width>20</width><height>{12 + number}</height><depth>3</depth>"
        (data / f"Annotations/{name}.xml").write_text(
            f"<annotation><filename>{name}.jpg</filename><size>{size}</size><object>"
            "<name>dog</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax>"
            "<ymax>8</ymax></bndbox></object></annotation>"
        )
    converted()
    assert "SegmentationClass" in rows()["a"]
    for name in "cde":
        (data / f"SegmentationClass/{name}.png").unlink()
    ran = converted("--overwrite")
    told = ran.out + ran.err
    assert (
        "no pair SegmentationClass: masks of 2 of 5 images: pair=mask=SegmentationClass"
        in told
    )
    assert "2 files (masks of few images), such as SegmentationClass/a.png" in told
    assert sorted(rows()) == list(NAMES)
    assert "SegmentationClass" not in rows()["a"]
    named = ("--pair", "mask=SegmentationClass", "--unlisted", "leave_out")
    converted(*named, "--overwrite")
    assert np.array_equal(pixels(rows()["b"]["mask"]), mask_of(1))


@pytest.mark.parametrize(("folder", "ending"), [("masks", "mat"), ("text", "txt")])
def test_other_files_are_told_what_is_supported(
    data: Path, folder: str, ending: str
) -> None:
    shutil.rmtree(data / "masks")
    (data / "images").rename(data / "cat")
    shutil.copytree(data / "cat", data / "dog")
    (data / folder).mkdir()
    for name in NAMES:
        (data / f"{folder}/{name}.{ending}").write_bytes(b"text")
    said = refused_by()
    assert f"{folder}: is the folder of a class, but contains no image" in said
    assert "masks that are images, .txt, .json and .npy can belong to images" in said
    assert "leave this folder out with --exclude" in said
    converted("--exclude", f"{folder}/*")
    assert Path("out/label.labels.txt").read_text().split() == ["cat", "dog"]
