"""Images with boxes: files of COCO, Pascal VOC and YOLO are found, read and joined."""

from __future__ import annotations

import base64
import json
import random
import re
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import Argument, Ran, recordmill
from pixel_zoo import IMAGES
from pycocotools.coco import COCO

from recordmill import open_dataset
from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.sources.listing import list_inputs

pytestmark = pytest.mark.usefixtures("without_beam")

JPEG, _ = IMAGES["rgb.jpg"]
CATEGORIES = [{"id": 90, "name": "brush"}, {"id": 1, "name": "person"}]


def convert(folder: Path, *options: Argument) -> Ran:
    """Converts a folder to the folder out beside it."""
    return recordmill("convert", "images", folder, folder.parent / "out", *options)


def converted(folder: Path, *options: Argument) -> Ran:
    ran = convert(folder, *options)
    assert ran.status == 0, ran.err
    return ran


def of_size(width: int, height: int) -> bytes:
    """Returns a JPEG whose header says this size; nothing here decodes it."""
    at = JPEG.index(b"\xff\xc0") + 5  # of a baseline frame: length, bits, height, width
    sides = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return JPEG[:at] + sides + JPEG[at + 4 :]


def add_images(
    folder: Path, *names: str, grow: int = 0, size: tuple[int, int] = (640, 480)
) -> None:
    """Adds images of 640 x 480 pixels, or each as much larger as `grow` says."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        more = grow * number
        data = of_size(size[0] + more, size[1] + more)
        data += number.to_bytes(2, "big")  # behind the image's end: all differ
        (folder / name).write_bytes(data)


def boxes_in(number: int, width: int, height: int) -> list[list[float]]:
    """1 to 50 boxes of an image, the same each time: x, y, width, height."""
    chance = random.Random(number)
    found = []
    for _ in range(chance.randint(1, 50)):
        x, y = chance.uniform(0, width * 0.9), chance.uniform(0, height * 0.9)
        sides = chance.uniform(1, width - x - 1), chance.uniform(1, height - y - 1)
        found.append([round(each, 2) for each in (x, y, *sides)])
    return found


def annotation(
    number: int, image: int, box: list[float], **more: Any
) -> dict[str, Any]:
    x, y, width, height = box
    return {
        "id": number,
        "image_id": image,
        "category_id": CATEGORIES[number % 2]["id"],
        "bbox": box,
        "area": round(width * height, 1),
        "iscrowd": number % 2,
        "segmentation": [[x, y, x + width, y, x, y + height]],
        **more,
    }


def coco(path: Path, images: list[dict[str, Any]], annotations: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {
        "info": {"year": 2017},
        "images": images,
        "annotations": annotations,
        "categories": CATEGORIES,
    }
    path.write_text(json.dumps(whole))


def image(
    number: int, name: str, width: int = 640, height: int = 480
) -> dict[str, Any]:
    return {"id": number, "file_name": name, "height": height, "width": width}


def rows_of(folder: Path, split: str = "train") -> dict[str, dict[str, Any]]:
    rows = open_dataset(str(folder), split)
    return {str(row["filename"]): dict(row) for row in rows}


def test_a_thousand_images_of_coco_have_the_boxes_that_pycocotools_reads(
    tmp_path: Path,
) -> None:
    names = [f"{number:012d}.jpg" for number in range(1000)]
    add_images(tmp_path / "coco", *(f"val2017/{name}" for name in names), grow=1)
    images = [image(7 * n, name, 640 + n, 480 + n) for n, name in enumerate(names)]
    every = [
        (each["id"], box)
        for n, each in enumerate(images)
        for box in boxes_in(n, 640 + n, 480 + n)
    ]
    random.Random(0).shuffle(every)  # as in COCO, those of an image lie apart
    annotations = [annotation(n, *pair) for n, pair in enumerate(every)]
    path = tmp_path / "coco/annotations/instances_val2017.json"
    coco(path, images, annotations)
    converted(tmp_path / "coco")
    rows = rows_of(tmp_path / "out")
    known = COCO(path)
    order = sorted(known.getCatIds())
    assert len(rows) == 1000
    for each in known.loadImgs(known.getImgIds()):
        row = rows[f"val2017/{each['file_name']}"]
        objects = known.loadAnns(known.getAnnIds(each["id"]))
        wanted = [
            [
                *(y / each["height"], x / each["width"]),
                *((y + h) / each["height"], (x + w) / each["width"]),
            ]
            for x, y, w, h in (each["bbox"] for each in objects)
        ]
        # Box by box what TFDS's builder of COCO computes, in its order of the file.
        np.testing.assert_array_equal(
            row["objects/bbox"], np.array(wanted, np.float64).astype(np.float32)
        )
        assert list(row["objects/label"]) == [
            order.index(each["category_id"]) for each in objects
        ]
        assert list(row["objects/id"]) == [each["id"] for each in objects]
        assert list(row["objects/is_crowd"]) == [each["iscrowd"] for each in objects]
        np.testing.assert_array_equal(
            row["objects/area"], np.array([o["area"] for o in objects], np.float32)
        )
        told = [json.loads(text) for text in row["objects/segmentation"]]
        assert told == [each["segmentation"] for each in objects]


def voc_xml(name: str, width: int, height: int, objects: list[str]) -> str:
    """A file as the VOC devkit has it (VOC2012/Annotations)."""
    return (
        f"<annotation>\n\t<folder>VOC2012</folder>\n\t<filename>{name}</filename>\n"
        f"\t<size><width>{width}</width><height>{height}</height><depth>3</depth></size>\n"
        f"\t<segmented>0</segmented>\n{''.join(objects)}</annotation>\n"
    )


def voc_object(name: str, box: list[float], flag: int) -> str:
    left, top, right, bottom = (str(side) for side in box)
    return (
        f"\t<object>\n\t\t<name>{name}</name>\n\t\t<pose>Left</pose>\n"
        f"\t\t<truncated>{flag}</truncated>\n\t\t<difficult>{1 - flag}</difficult>\n"
        f"\t\t<bndbox><xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax>"
        f"<ymax>{bottom}</ymax></bndbox>\n"
        "\t\t<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax>"
        "<ymax>2</ymax></bndbox></part>\n\t</object>\n"
    )


def test_a_thousand_images_of_voc_have_the_boxes_that_tfds_computes(
    tmp_path: Path,
) -> None:
    top = tmp_path / "voc/VOCdevkit/VOC2012"
    names = [f"2007_{number:06d}" for number in range(1000)]
    (top / "Annotations").mkdir(parents=True)
    (top / "ImageSets/Main").mkdir(parents=True)
    for split, part in (("train", names[:700]), ("val", names[700:])):
        text = "".join(f"{name}\n" for name in part)
        (top / f"ImageSets/Main/{split}.txt").write_text(text)
        (top / f"ImageSets/Main/dog_{split}.txt").write_text(
            text.replace("\n", " -1\n")
        )
    (top / "ImageSets/Main/trainval.txt").write_text("\n".join(names))
    wanted: dict[str, list[Any]] = {}
    for n, name in enumerate(names):
        width, height = 500 + n % 7, 375 + n % 5
        add_images(top / "JPEGImages", f"{name}.jpg", size=(width, height))
        boxes = [
            [int(x) + 1, int(y) + 1, int(x + w) + 1, int(y + h) + 1]
            for x, y, w, h in boxes_in(n, width, height)
        ]
        objects = [
            voc_object(["dog", "cat"][i % 2], b, i % 2) for i, b in enumerate(boxes)
        ]
        text = voc_xml(f"{name}.jpg", width, height, objects)
        (top / f"Annotations/{name}.xml").write_text(text)
        # voc.py of TFDS: ymin / height and so on, of the texts as floats
        wanted[name] = [
            [
                *(float(y0) / height, float(x0) / width),
                *(float(y1) / height, float(x1) / width),
            ]
            for x0, y0, x1, y1 in boxes
        ]
    ran = converted(tmp_path / "voc")
    assert "Pascal VOC, 1,000 files" in ran.out + ran.err
    rows = {
        Path(path).stem: row
        for split in ("train", "val")
        for path, row in rows_of(tmp_path / "out", split).items()
    }
    assert len(rows_of(tmp_path / "out", "val")) == 300
    for name, boxes in wanted.items():
        row = rows[name]
        np.testing.assert_array_equal(
            row["objects/bbox"], np.array(boxes).astype(np.float32)
        )
        flags = [number % 2 for number in range(len(boxes))]
        assert list(row["objects/label"]) == [1 - flag for flag in flags]  # cat, dog
        assert list(row["objects/is_truncated"]) == flags
        assert list(row["objects/is_difficult"]) == [1 - flag for flag in flags]
        assert [*row["objects/pose"]] == ["Left"] * len(flags)


def test_a_thousand_images_of_yolo_have_the_boxes_of_their_lines(
    tmp_path: Path,
) -> None:
    top = tmp_path / "yolo"
    wanted: dict[str, list[Any]] = {}
    for n in range(1000):
        split = "train" if n % 4 else "val"
        add_images(top / "images" / split, f"{n}.jpg")
        lines, wanted[f"{split}/{n}.jpg"] = [], []
        for x, y, w, h in boxes_in(n, 640, 480) if n % 50 else ():
            values = [round(v, 6) for v in ((x + w / 2) / 640, (y + h / 2) / 480)]
            values += [round(v, 6) for v in (w / 640, h / 480)]
            lines.append(f"{len(lines) % 3} {' '.join(map(str, values))}\n")
            cx, cy, w, h = values
            box = [cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2]
            wanted[f"{split}/{n}.jpg"].append(np.clip(box, 0, 1))
        if (
            n % 100
        ):  # Ultralytics: no file for an image without objects, or an empty one
            (top / "labels" / split).mkdir(parents=True, exist_ok=True)
            (top / f"labels/{split}/{n}.txt").write_text("".join(lines))
    (top / "data.yaml").write_text(
        "path: ../datasets/yolo\ntrain: images/train\nval: images/val\ntest:\n"
        "names:\n  0: person\n  1: car\n  2: brush\n"
    )
    ran = converted(top)
    told = ran.out + ran.err
    assert "YOLO, 990 files of labels" in told
    assert "20 images without any" in told
    rows = {
        f"{split}/{Path(path).name}": row
        for split in ("train", "val")
        for path, row in rows_of(tmp_path / "out", split).items()
    }
    for path, boxes in wanted.items():
        np.testing.assert_array_equal(
            np.reshape(rows[path]["objects/bbox"], (-1, 4)),
            np.array(boxes, np.float64).reshape(-1, 4).astype(np.float32),
        )
        assert list(rows[path]["objects/label"]) == [n % 3 for n in range(len(boxes))]


@pytest.mark.parametrize(
    ("folder", "names"),
    [("Main", ("Train", "Validation")), ("Segmentation", ("train", "val"))],
)
def test_lists_of_splits_of_voc_have_the_names_that_cvat_writes(
    tmp_path: Path, folder: str, names: tuple[str, str]
) -> None:
    """CVAT's export of a project: all images in one folder, a list for each subset."""
    top = tmp_path / "voc"
    for split, name in zip(names, "ab", strict=True):
        add_images(top / "JPEGImages", f"{name}.jpg")
        text = voc_xml(f"{name}.jpg", 640, 480, [voc_object("dog", [1, 1, 9, 9], 0)])
        for path, what in (
            (f"Annotations/{name}.xml", text),
            (f"ImageSets/{folder}/{split}.txt", f"{name}\n"),
        ):
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(what)
    ran = converted(top)
    wanted = [(name.lower(), 1) for name in names]
    assert [
        (name, len(rows_of(tmp_path / "out", name))) for name, _ in wanted
    ] == wanted
    assert f"list ImageSets/{folder}/{names[1]}.txt: 1 image of split" in ran.err
    assert "skipped" not in ran.err


BOX = [64, 48, 320, 240]  # of 640 x 480: ymin, xmin, ymax, xmax are 0.1 0.1 0.6 0.6


def small_coco(
    folder: Path, *, name: str = "annotations/instances_default.json"
) -> None:
    """Makes two images, the first with an object, and COCO's file as CVAT exports it."""
    add_images(folder / "images", "a.jpg", "b.jpg")
    images = [image(1, "a.jpg"), image(2, "b.jpg")]
    coco(folder / name, images, [annotation(4, 1, BOX)])


def small_voc(folder: Path) -> None:
    """Makes what LabelImg writes: XML beside the image."""
    add_images(folder, "a.jpg", "b.jpg")
    for name, objects in (("a", [voc_object("dog", [64, 48, 384, 288], 0)]), ("b", [])):
        (folder / f"{name}.xml").write_text(voc_xml(f"{name}.jpg", 640, 480, objects))


def small_yolo(folder: Path) -> None:
    """Makes what CVAT exports as YOLO."""
    add_images(folder / "obj_train_data", "a.jpg", "b.jpg")
    (folder / "obj.names").write_text("cat\ndog\n")
    (folder / "obj.data").write_text(
        "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n"
    )
    (folder / "train.txt").write_text(
        "data/obj_train_data/a.jpg\ndata/obj_train_data/b.jpg\n"
    )
    (folder / "obj_train_data/a.txt").write_text("1 0.35 0.35 0.5 0.5\n")
    (folder / "obj_train_data/b.txt").write_text("")


SMALL = {"coco": small_coco, "voc": small_voc, "yolo": small_yolo}


def found_in(output: Path, split: str = "train") -> dict[str, list[list[float]]]:
    """Returns the boxes of each image by its name, rounded."""
    return {
        Path(path).name: np.round(np.float64(row["objects/bbox"]), 4)
        .reshape(-1, 4)
        .tolist()
        for path, row in rows_of(output, split).items()
    }


def rejects_of(output: Path) -> dict[str, str]:
    lines = [
        json.loads(line)
        for file in (output / "rejects").iterdir()
        for line in file.read_text().splitlines()
    ]
    return {each["uri"]: each["reason"] for each in lines}


@pytest.mark.parametrize("form", SMALL)
def test_exports_of_cvat_and_labelimg_are_found(tmp_path: Path, form: str) -> None:
    SMALL[form](tmp_path / "in")
    converted(tmp_path / "in")
    wanted = {"a.jpg": [[0.1, 0.1, 0.6, 0.6]], "b.jpg": []}
    assert found_in(tmp_path / "out") == wanted
    # By name, and by the folder.
    job = ("--overwrite", "--annotations")
    names = {"coco": "annotations", "voc": "*.xml", "yolo": "obj.names"}
    assert convert(tmp_path / "in", *job, names[form]).status == 0
    assert found_in(tmp_path / "out") == wanted
    converted(tmp_path / "in", *job, "none", "--label-from", "none")
    assert "objects/bbox" not in next(iter(rows_of(tmp_path / "out").values()))


@pytest.mark.parametrize("form", SMALL)
def test_images_without_objects_are_left_out_by_an_option(
    tmp_path: Path, form: str
) -> None:
    SMALL[form](tmp_path / "in")
    ran = converted(tmp_path / "in", "--without-objects", "leave_out")
    assert [*found_in(tmp_path / "out")] == ["a.jpg"]
    assert "no objects in it" in ran.out + ran.err


@pytest.mark.parametrize("form", SMALL)
def test_new_images_with_files_of_their_own_are_appended(
    tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "in"
    SMALL[form](folder)
    converted(folder)
    if form == "coco":
        add_images(folder / "images/new", "c.jpg")
        new = [annotation(9, 3, BOX)]
        coco(folder / "annotations/more.json", [image(3, "new/c.jpg")], new)
    elif form == "voc":
        add_images(folder / "new", "c.jpg")
        text = voc_xml("c.jpg", 640, 480, [voc_object("dog", [64, 48, 384, 288], 0)])
        (folder / "new/c.xml").write_text(text)
    else:
        add_images(folder / "obj_train_data/new", "c.jpg")
        (folder / "obj_train_data/new/c.txt").write_text("1 0.35 0.35 0.5 0.5\n")
        (folder / "other.txt").write_text("data/obj_train_data/new/c.jpg\n")
    more = ["--split-from", "none"] if form == "yolo" else []
    ran = convert(folder, "--append", *more)
    if form == "yolo":  # its list of the images of a split may not change
        assert ran.status != 0
        return
    assert ran.status == 0, ran.err
    assert found_in(tmp_path / "out")["c.jpg"] == [[0.1, 0.1, 0.6, 0.6]]
    assert len(found_in(tmp_path / "out")) == 3


def test_roboflow_has_a_file_or_a_folder_for_each_split(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "valid")):
        add_images(tmp_path / f"coco/{split}", "same.jpg")
        annotations = [annotation(4, 0, BOX)] * (number + 1)
        images = [image(0, "same.jpg")]
        coco(tmp_path / f"coco/{split}/_annotations.coco.json", images, annotations)
        add_images(tmp_path / f"yolo/{split}/images", "same.jpg")
        (tmp_path / f"yolo/{split}/labels").mkdir()
        lines = "0 0.1 0.1 0.6 0.1 0.6 0.6\n" * (number + 1)  # an outline
        (tmp_path / f"yolo/{split}/labels/same.txt").write_text(lines)
    (tmp_path / "yolo/README.dataset.txt").write_text("boxes\n")
    (tmp_path / "yolo/data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 1\n"
        "names: ['dog']\n"
    )
    for form, splits in (("coco", ("train", "valid")), ("yolo", ("train", "val"))):
        converted(tmp_path / form, "--overwrite")
        for number, split in enumerate(splits):
            wanted = [[0.1, 0.1, 0.6, 0.6]] * (number + 1)
            assert found_in(tmp_path / "out", split) == {"same.jpg": wanted}
    (row,) = rows_of(tmp_path / "out").values()
    outline = [[64.0, 48.0, 384.0, 48.0, 384.0, 288.0]]  # of 640 x 480 pixels
    assert [json.loads(text) for text in row["objects/segmentation"]] == [outline]


def test_the_same_names_in_two_folders_belong_to_the_file_of_their_split(
    tmp_path: Path,
) -> None:
    for number, split in enumerate(("train", "val")):
        add_images(tmp_path / f"in/{split}2017", "1.jpg", "2.jpg")
        path = tmp_path / f"in/annotations/instances_{split}2017.json"
        coco(
            path,
            [image(1, "1.jpg"), image(2, "2.jpg")],
            [annotation(4, 1, BOX)] * number,
        )
    converted(tmp_path / "in")
    assert found_in(tmp_path / "out")["1.jpg"] == []
    assert len(found_in(tmp_path / "out", "val")["1.jpg"]) == 1


def test_boxes_outside_the_image_are_clipped_kept_or_rejected(tmp_path: Path) -> None:
    add_images(tmp_path / "in/images", "a.jpg", "b.jpg")
    boxes = [[-64, 48, 128, 240], [700, 48, 10, 10], [64, 48, 0, 5]]
    annotations = [annotation(n, 1, box) for n, box in enumerate(boxes)]
    annotations.append(annotation(9, 2, BOX))
    images = [image(1, "a.jpg"), image(2, "b.jpg")]
    coco(tmp_path / "in/x.json", images, annotations)
    ran = converted(tmp_path / "in")
    assert found_in(tmp_path / "out")["a.jpg"] == [[0.1, 0, 0.6, 0.1]]
    told = ran.out + ran.err
    assert "1 object beyond the image: clipped" in told
    assert "2 objects without an area in it: left out" in told
    row = rows_of(tmp_path / "out")["images/a.jpg"]
    assert list(row["objects/id"]) == [0]
    converted(tmp_path / "in", "--boxes-outside", "keep", "--overwrite")
    kept = found_in(tmp_path / "out")["a.jpg"]
    assert kept[0] == [0.1, -0.1, 0.6, 0.1]
    assert len(kept) == 3
    more = ("--boxes-outside", "reject", "--overwrite", "--max-rejects", "1")
    converted(tmp_path / "in", *more)
    assert [*found_in(tmp_path / "out")] == ["b.jpg"]
    assert "boxes_outside=clip" in rejects_of(tmp_path / "out")["images/a.jpg"]


def test_what_cannot_be_read_of_coco_is_a_reject(tmp_path: Path) -> None:
    names = ["category.jpg", "box.jpg", "size.jpg", "good.jpg"]
    add_images(tmp_path / "in/images", *names)
    images = [image(n, name) for n, name in enumerate([*names, "none.jpg"])]
    images[2]["width"] = 0
    annotations = [
        annotation(1, 0, BOX, category_id=77),
        annotation(2, 1, BOX, bbox=["x", 1, 2, 3]),
        annotation(3, 2, BOX),
        annotation(4, 3, BOX),
        annotation(5, 99, BOX),
        {"id": 6, "bbox": BOX, "category_id": 1},
    ]
    coco(tmp_path / "in/x.json", images, annotations)
    converted(tmp_path / "in", "--max-rejects", "9")
    assert [*found_in(tmp_path / "out")] == ["good.jpg"]
    lines = [
        json.loads(line)
        for file in (tmp_path / "out/rejects").iterdir()
        for line in file.read_text().splitlines()
    ]
    told = sorted((each["uri"], each["reason"]) for each in lines)
    assert [uri for uri, _ in told] == [
        *("images/box.jpg", "images/category.jpg", "images/size.jpg"),
        *("x.json", "x.json", "x.json"),
    ]
    assert "x.json, annotation 2: " in told[0][1]
    assert "category 77 is not in its list" in told[1][1]
    assert "no height and width" in told[2][1]
    assert {reason.partition(":")[0] for _, reason in told[3:]} == {
        "'none.jpg'",
        "annotation 5",
        "annotation 6",
    }


def test_what_cannot_be_read_of_xml_and_labels_is_a_reject(tmp_path: Path) -> None:
    small_voc(tmp_path / "voc")
    entity = '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/hostname">]><annotation/>'
    for name, text in {
        "dtd": entity,
        "cut": "<annotation><size>",
        "number": voc_xml("", 9, 9, [voc_object("dog", [1, 2, "x", 3], 0)]),  # type: ignore[list-item]
        "rising": voc_xml("", 9, 9, [voc_object("dog", [3, 2, 1, 3], 0)]),
        "size": voc_xml("", 0, 0, [voc_object("dog", [1, 1, 2, 2], 0)]),
        "side": voc_xml("", 9, 0, [voc_object("dog", [1, 1, 2, 2], 0)]),
        "other": voc_xml("", 0, 9, [voc_object("dog", [1, 1, 2, 2], 0)]),
        "deep": f"<annotation>{'<x>' * 150_000}{'</x>' * 150_000}</annotation>",
        "code": '<?xml version="1.0" encoding="none-such"?><annotation/>',
    }.items():
        add_images(tmp_path / "voc", f"{name}.jpg")
        (tmp_path / f"voc/{name}.xml").write_text(text)
    (tmp_path / "voc/alone.xml").write_text(voc_xml("", 9, 9, []))
    converted(tmp_path / "voc", "--max-rejects", "10")
    told = rejects_of(tmp_path / "out")
    assert "none-such" in told["code.jpg"]
    assert "document type" in told["dtd.jpg"]
    assert "line 1" in told["cut.jpg"]
    assert "'x'" in told["number.jpg"]
    assert "numbers that rise" in told["rising.jpg"]
    for name in ("size", "side", "other"):
        assert "no width and height" in told[f"{name}.jpg"]
    assert "no image of this name" in told["alone.xml"]
    assert "100 elements in each other" in told["deep.jpg"]
    assert len(told) == 10
    small_yolo(tmp_path / "other/yolo")
    folder = tmp_path / "other/yolo/obj_train_data"
    for name, text in {
        "few": "0 0.1 0.1\n",
        "class": "0 0.5 0.5 0.1 0.1\n7 0.5 0.5 0.1 0.1\n",
        "text": "a picture of a dog\n",
    }.items():
        add_images(folder, f"{name}.jpg")
        (folder / f"{name}.txt").write_text(text)
        with (tmp_path / "other/yolo/train.txt").open("a") as file:
            file.write(f"data/obj_train_data/{name}.jpg\n")
    (folder / "alone.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (folder / "readme.txt").write_text("notes\n")
    converted(tmp_path / "other/yolo", "--max-rejects", "9")
    told = rejects_of(tmp_path / "other/out")
    assert "few.txt: line 1" in told["obj_train_data/few.jpg"]
    assert "line 2: class 7 is not one of 2 names" in told["obj_train_data/class.jpg"]
    assert "line 1: is 'a picture of a dog'" in told["obj_train_data/text.jpg"]
    assert "no image of this name" in told["obj_train_data/alone.txt"]
    assert len(told) == 4


def test_keypoints_are_points_of_each_object(tmp_path: Path) -> None:
    add_images(tmp_path / "in", "a.jpg")
    points = [[1.5, 2, 2, 3, 4, 1], [0, 0, 0, 5, 6, 2]]
    annotations = [
        annotation(2 * n, 1, BOX, keypoints=each, num_keypoints=2)
        for n, each in enumerate(points)
    ]
    coco(
        tmp_path / "in/person_keypoints_val2017.json", [image(1, "a.jpg")], annotations
    )
    converted(tmp_path / "in")
    (row,) = rows_of(tmp_path / "out").values()
    np.testing.assert_array_equal(
        row["objects/keypoints"], np.reshape(points, (2, 2, 3))
    )


def test_classes_have_the_order_of_a_label_map(tmp_path: Path) -> None:
    small_yolo(tmp_path / "in")
    (tmp_path / "in/order.csv").write_text("id,name\n0,dog\n1,cat\n")
    converted(tmp_path / "in", "--label-map", "order.csv")
    assert list(rows_of(tmp_path / "out")["obj_train_data/a.jpg"]["objects/label"]) == [
        0
    ]


def refused(folder: Path, *options: Argument) -> str:
    ran = convert(folder, *options)
    assert ran.status != 0
    return ran.err


def test_files_without_boxes_and_files_of_two_formats_are_refused(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "in"
    add_images(folder, "a.jpg", "b.jpg")
    captions = {"image_id": 1, "id": 1, "caption": "a dog"}
    whole = {"info": {}, "images": [image(1, "a.jpg")], "annotations": [captions]}
    (folder / "captions_val2017.json").write_text(json.dumps(whole))
    assert "has captions, not boxes" in refused(folder, "--annotations", "*.json")
    segments = {"image_id": 1, "segments_info": [{"id": 3, "bbox": BOX}]}
    whole = {"info": {}, "images": [image(1, "a.jpg")], "annotations": [segments]}
    panoptic = folder / "panoptic_val2017.json"
    panoptic.write_text(json.dumps({**whole, "categories": CATEGORIES}))
    assert "panoptic segmentation" in refused(folder, "--annotations", panoptic.name)
    name = "instances_val2017.json"
    coco(folder / name, [image(1, "a.jpg"), image(2, "b.jpg")], [annotation(4, 1, BOX)])
    ran = converted(folder)
    assert "annotations left out" in ran.out + ran.err
    coco(folder / "more_val2017.json", [image(1, "a.jpg")], [annotation(4, 1, BOX)])
    assert "expected each image once" in refused(folder, "--overwrite")
    (folder / "a.xml").write_text(voc_xml("a.jpg", 640, 480, []))
    (folder / "b.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (folder / "data.yaml").write_text("names: [dog]\n")
    told = refused(folder, "--overwrite")
    assert "of COCO (" in told
    assert "of Pascal VOC (a.xml) and of YOLO (data.yaml)" in told
    # The ways out.
    converted(folder, "--overwrite", "--annotations", name)
    converted(folder, "--overwrite", "--annotations", "data.yaml")
    converted(folder, "--overwrite", "--annotations", "none", "--label-from", "none")
    (folder / name).write_text('{"images": [, "annotations": [], "categories": []}')
    told = refused(folder, "--overwrite", "--annotations", name)
    assert "is not valid as COCO" in told
    assert "line 1 column" in told
    assert "no input file is named" in refused(
        folder, "--overwrite", "--annotations", "b.jpg"
    )


ODD = (
    None,
    True,
    -1,
    1e400,
    2**70,
    1.5,
    "x",
    "\ud800",
    [],
    [["x"]],
    [None],
    {},
    {"a": 1},
)


def test_odd_values_in_coco_end_in_rejects_or_errors_that_say_so(
    tmp_path: Path,
) -> None:
    add_images(tmp_path, "a.jpg", "b.jpg")
    for value in ODD:
        for name in ("id", "image_id", "category_id", "bbox", "area", "segmentation"):
            odd = annotation(5, 1, BOX, **{name: value})
            annotations = [odd, annotation(6, 2, BOX)]
            coco(
                tmp_path / "x.json", [image(1, "a.jpg"), image(2, "b.jpg")], annotations
            )
            prepare(tmp_path)
        for name in ("id", "file_name", "height"):
            images = [{**image(1, "a.jpg"), name: value}, image(2, "b.jpg")]
            coco(tmp_path / "x.json", images, [annotation(5, 1, BOX), value])
            prepare(tmp_path)


ODD = {  # units, and what sides mean, of other formats
    "pixels in YOLO": "0 320 240 50 50",
    "parts of the sides in COCO": [0.1, 0.2, 0.3, 0.4],
    "corners in COCO": [500.0, 400.0, 600.0, 450.0],
}


@pytest.mark.parametrize("case", ODD)
def test_boxes_of_other_units_are_an_error(tmp_path: Path, case: str) -> None:
    folder, box = tmp_path / "in", ODD[case]
    if isinstance(box, str):
        yolo_folder(folder, "train", "a", "b", text=f"{box}\n" * 6)
        (folder / "data.yaml").write_text("names: [dog]\n")
    else:
        add_images(folder / "images", "a.jpg")
        annotations = [annotation(n, 0, box) for n in range(12)]
        coco(folder / "instances.json", [image(0, "a.jpg")], annotations)
    ran = convert(folder)
    assert ran.status == 65
    assert "12 of 12 boxes are outside their images or have no area" in ran.err
    converted(folder, "--boxes-outside", "keep")
    # COCO's are within the image, however small.
    job: list[Argument] = [
        "images",
        folder,
        tmp_path / "x",
        "--boxes-outside",
        "reject",
    ]
    expected = 0 if case == "parts of the sides in COCO" else 65
    assert recordmill("convert", *job).status == expected


def yolo_folder(
    folder: Path, split: str, *names: str, labels: str = "", text: str = "0 .5 .5 .1 .1"
) -> None:
    """Adds images of a split, and their labels, to a folder as Ultralytics has it."""
    add_images(folder / "images" / split, *(f"{name}.jpg" for name in names))
    (folder / "labels" / (labels or split)).mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / "labels" / (labels or split) / f"{name}.txt").write_text(text)


def test_labels_of_yolo_in_a_folder_of_another_name_are_an_error(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "in"
    yolo_folder(folder, "train", "a", "b")
    yolo_folder(folder, "val", "c", "d", labels="validation")
    (folder / "data.yaml").write_text(
        "train: images/train\nval: images/val\nnames: [dog]\n"
    )
    told = refused(folder)
    assert "images/val/c.jpg" in told
    assert "2 files of labels, such as labels/validation/c.txt" in told
    converted(folder, "--exclude", "labels/validation")  # the way out
    assert found_in(tmp_path / "out", "val") == {"c.jpg": [], "d.jpg": []}
    # With some labels in the right place, others are rejects.
    (folder / "labels/val").mkdir()
    (folder / "labels/validation/c.txt").rename(folder / "labels/val/c.txt")
    converted(folder, "--overwrite", "--max-rejects", "1")
    assert [*rejects_of(tmp_path / "out")] == ["labels/validation/d.txt"]


@pytest.mark.parametrize("text", ["", "a photo of a cat\n", "0.3 0.1 0.1 0.2 0.2\n"])
def test_texts_beside_images_in_folders_of_classes_are_no_labels(
    tmp_path: Path, text: str
) -> None:
    for label in ("cat", "dog"):
        add_images(tmp_path / f"in/{label}", f"{label}0.jpg", f"{label}1.jpg")
        (tmp_path / f"in/{label}/{label}0.txt").write_text(text)
    for name, names in (("classes.txt", "cat\ndog\n"), ("a.yaml", "names: [x, y]\n")):
        (tmp_path / "in" / name).write_text(names)
        ran = converted(tmp_path / "in", "--overwrite")
        assert "cat 2, dog 2" in ran.out + ran.err
        (tmp_path / "in" / name).unlink()


def test_labels_count_with_the_names_of_their_own_folder(tmp_path: Path) -> None:
    for name, names in (("one", "[a, b]"), ("two", "[c, d]")):
        yolo_folder(tmp_path / f"in/{name}", "", f"{name}0", text="1 .5 .5 .1 .1")
        (tmp_path / f"in/{name}/data.yaml").write_text(f"names: {names}\n")
    assert "both contain class names" in refused(tmp_path / "in")
    job = ("--overwrite", "--annotations", "one/data.yaml", "--unlisted", "leave_out")
    for options in (("--exclude", "two"), job):
        ran = converted(tmp_path / "in", *options)
        assert "(a 0, b 1)" in ran.out + ran.err
        assert [*found_in(tmp_path / "out")] == ["one0.jpg"]
    # A file elsewhere says where its images are.
    (tmp_path / "in/one/data.yaml").unlink()
    (tmp_path / "in/three").mkdir()
    (tmp_path / "in/three/one.yaml").write_text("train: one/images\nnames: [a, b]\n")
    converted(tmp_path / "in", *job[:2], "three/one.yaml", *job[3:])
    assert [*found_in(tmp_path / "out")] == ["one0.jpg"]


@pytest.mark.parametrize("stray", ["0.xml", "Annotations/0.xml", "images/0.xml"])
def test_xml_of_another_kind_hides_no_boxes(tmp_path: Path, stray: str) -> None:
    folder = tmp_path / "in"
    small_voc(folder / "images")
    (folder / stray).parent.mkdir(exist_ok=True)
    (folder / stray).write_text("<urlset/>")
    converted(folder)
    assert found_in(tmp_path / "out")["a.jpg"] == [[0.1, 0.1, 0.6, 0.6]]


def test_annotations_of_few_images_leave_folders_as_classes(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for label in ("cat", "dog"):
        add_images(folder / label, *(f"{label}{n}.jpg" for n in range(3)))
    text = voc_xml("", 640, 480, [voc_object("dog", [64, 48, 384, 288], 0)])
    (folder / "cat/cat0.xml").write_text(text)
    coco(folder / "few.json", [image(1, "cat0.jpg")], [annotation(4, 1, BOX)])
    captions = {"image_id": 1, "id": 1, "caption": "a dog"}
    whole = {"images": [image(1, "cat0.jpg")], "annotations": [captions]}
    (folder / "captions.json").write_text(json.dumps(whole))
    whole["annotations"] = [{"image_id": 1, "id": 1, "category_id": 1}]
    none = {**whole, "categories": CATEGORIES}
    (folder / "no_boxes.json").write_text(json.dumps(none))
    for name in ("few.json", "cat/cat0.xml", "captions.json", "no_boxes.json"):
        others = {"few.json", "cat/cat0.xml", "captions.json", "no_boxes.json"} - {name}
        exclude = [part for other in others for part in ("--exclude", other)]
        ran = converted(folder, "--overwrite", *exclude)
        assert "cat 3, dog 3" in ran.out + ran.err
        if name in ("few.json", "cat/cat0.xml"):  # the ways out
            assert (
                f"{name}: has objects of 1 image, but the input has 6 images" in ran.err
            )
            assert "[few-annotations]" in ran.err
            ran = converted(folder, "--overwrite", *exclude, "--annotations", "none")
            assert "few-annotations" not in ran.err
            job = ("--annotations", name, "--unlisted", "leave_out", "--overwrite")
            converted(folder, *job)
            assert found_in(tmp_path / "out") == {"cat0.jpg": [[0.1, 0.1, 0.6, 0.6]]}


def prepare(folder: Path) -> None:
    _, files = list_inputs([str(folder)])
    with suppress(InputError):
        ImagesSource().prepare(files)


def test_instances_of_coco_count_where_its_other_files_are(tmp_path: Path) -> None:
    """The layout of COCO 2017: the same images are in files of keypoints and captions."""
    folder = tmp_path / "in"
    for split in ("train2017", "val2017"):
        add_images(folder / split, f"{split}.jpg")
        images = [image(1, f"{split}.jpg")]
        points = annotation(1, 1, BOX, keypoints=[1, 2, 2], num_keypoints=1)
        for kind, found in (
            ("instances", [annotation(0, 1, BOX), annotation(1, 1, BOX)]),
            ("person_keypoints", [points]),
            ("captions", [{"id": 1, "image_id": 1, "caption": "a dog"}]),
        ):
            coco(folder / f"annotations/{kind}_{split}.json", images, found)
    ran = converted(folder)
    assert "person_keypoints_val2017.json: is next to instances_*" in ran.err
    for split in ("train", "val"):
        (row,) = rows_of(tmp_path / "out", split).values()
        assert len(row["objects/bbox"]) == 2
    named = ",".join(
        f"annotations/person_keypoints_{split}.json"
        for split in ("train2017", "val2017")
    )
    converted(folder, "--annotations", named, "--overwrite")
    (row,) = rows_of(tmp_path / "out", "val").values()
    assert len(row["objects/bbox"]) == 1


def test_two_categories_of_one_name_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    small_coco(folder)
    path = folder / "annotations/instances_default.json"
    whole = json.loads(path.read_text())
    whole["categories"] = [{"id": n, "name": "dog"} for n in (1, 2)]
    whole["annotations"] = [annotation(n, n, BOX, category_id=1) for n in (1, 2)]
    # The name of what a project is about, beside that of its class, as Roboflow has them.
    path.write_text(json.dumps(whole))
    converted(folder)
    whole["annotations"][1]["category_id"] = 2
    path.write_text(json.dumps(whole))
    assert "categories 1 and 2 both have the name 'dog'" in refused(
        folder, "--overwrite"
    )
    (folder / "names.txt").write_text("dog\n")
    converted(folder, "--overwrite", "--label-map", "names.txt")  # the way out
    rows = rows_of(tmp_path / "out").values()
    assert [list(row["objects/label"]) for row in rows] == [[0], [0]]


@pytest.mark.parametrize("line_end", [None, 1])
def test_outlines_stay_as_the_file_has_them(
    tmp_path: Path, line_end: int | None
) -> None:
    folder = tmp_path / "in"
    add_images(folder, *(f"{n}.jpg" for n in range(7)))
    outlines: list[Any] = [
        [[1.50, 2, 3e2, 4, 5, 6.25], [0.1, 2, 3, 4, 5, 6]],
        {"counts": [0, 5, 307195], "size": [480, 640]},
        {"size": [480, 640], "counts": 'ab\\c"01'},
        [],
        [1, 2, 3, 4, 5, 6],  # what is no outline
        {"size": [480, 640]},
        5,
    ]
    annotations = [
        annotation(n, n, BOX, segmentation=each) for n, each in enumerate(outlines)
    ]
    images = [image(n, f"{n}.jpg") for n in range(7)]
    coco(folder / "a.json", images, annotations)
    whole = json.loads((folder / "a.json").read_text())
    (folder / "a.json").write_text(json.dumps(whole, indent=line_end))
    converted(folder, "--max-rejects", "3")
    told = [
        [json.loads(text) for text in row["objects/segmentation"]]
        for _, row in sorted(rows_of(tmp_path / "out").items())
    ]
    assert told == [[each] for each in outlines[:4]]
    assert sorted(rejects_of(tmp_path / "out")) == ["4.jpg", "5.jpg", "6.jpg"]


@pytest.mark.parametrize("form", ["coco", "voc"])
def test_boxes_of_new_files_are_not_for_a_dataset_without(
    tmp_path: Path, form: str
) -> None:
    folder = tmp_path / "in"
    add_images(folder / "x/images", "old.jpg")
    converted(folder)
    SMALL[form](folder / "x" if form == "coco" else folder / "x/images")
    told = refused(folder, "--append")
    assert "the new files have objects in images" in told
    assert "the dataset has none" in told
    # The ways out.
    names = {"coco": "x/annotations", "voc": "**/*.xml"}
    converted(folder, "--append", "--exclude", names[form])
    assert len(rows_of(tmp_path / "out")) == 3
    job = ("--overwrite", "--unlisted", "leave_out")
    converted(folder, *job)
    assert {*found_in(tmp_path / "out")} >= {"a.jpg", "b.jpg"}


def test_labels_of_yolo_without_any_image_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    yolo_folder(folder, "", "a", "b")
    (folder / "data.yaml").write_text("names: [dog]\n")
    for name in "ab":
        (folder / f"labels/{name}.txt").rename(folder / f"labels/{name}_label.txt")
    told = refused(folder)
    assert "no file (2 text files) has the name of an image" in told
    assert "data.yaml" in told
    converted(folder, "--annotations", "none", "--label-from", "none")
    for name in "ab":  # the other way out
        (folder / f"labels/{name}_label.txt").rename(folder / f"labels/{name}.txt")
    converted(folder, "--overwrite")
    assert len(found_in(tmp_path / "out")["a.jpg"]) == 1


def test_one_file_of_voc_belongs_to_the_image_that_it_names(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    small_voc(folder)
    (folder / "a.png").write_bytes((folder / "a.jpg").read_bytes() + b"1")
    converted(folder, "--max-rejects", "1")
    assert found_in(tmp_path / "out")["a.jpg"] == [[0.1, 0.1, 0.6, 0.6]]
    assert "names it" in rejects_of(tmp_path / "out")["a.png"]
    text = (folder / "a.xml").read_text()
    (folder / "a.xml").write_text(text.replace("a.jpg", "x/7.bmp"))  # neither
    converted(folder, "--overwrite")
    both = found_in(tmp_path / "out")
    assert both["a.jpg"] == both["a.png"] == [[0.1, 0.1, 0.6, 0.6]]


def test_labels_that_cannot_be_read_are_rejects(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    small_yolo(folder)
    (folder / "obj_train_data/a.txt").unlink()
    (folder / "obj_train_data/a.txt").symlink_to("nowhere.txt")
    (folder / "obj_train_data/b.txt").write_text("1 0.35 0.35 0.5 0.5\n")
    converted(folder, "--max-rejects", "1")
    assert "a.txt" in rejects_of(tmp_path / "out")["obj_train_data/a.jpg"]


def test_a_class_of_yolo_with_half_a_character_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    add_images(folder, "images/a.jpg")
    (folder / "labels").mkdir()
    (folder / "labels/a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (folder / "data.yaml").write_text('names: ["\\uD800"]\n')
    assert "data.yaml: a class name has an unpaired surrogate" in refused(folder)
    (folder / "data.yaml").write_text('names: ["cat"]\n')
    converted(folder)


def test_yaml_beside_texts_that_are_no_labels_is_not_read(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        add_images(tmp_path / f"in/{label}", f"{label}0.jpg", f"{label}1.jpg")
    (tmp_path / "in/notes.txt").write_text("0 3 4 5 6\n")
    (tmp_path / "in/training.yaml").write_text("names: {a: [\nkpt_shape: !!x\n")
    ran = converted(tmp_path / "in")
    assert "cat 2, dog 2" in ran.out + ran.err


def test_a_category_of_two_names_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    small_coco(folder)
    path = folder / "annotations/instances_default.json"
    whole = json.loads(path.read_text())
    whole["categories"].append(whole["categories"][0])  # listed twice
    path.write_text(json.dumps(whole))
    converted(folder)
    whole["categories"][-1] = {**whole["categories"][0], "name": "zebra"}
    path.write_text(json.dumps(whole))
    told = refused(folder, "--overwrite")
    assert "category 90 is both 'brush' and 'zebra'" in told
    # The ways out.
    converted(folder, "--overwrite", "--annotations", "none", "--label-from", "none")
    whole["categories"][-1]["id"] = 91
    path.write_text(json.dumps(whole))
    converted(folder, "--overwrite")


@pytest.mark.parametrize(
    ("name", "text", "location"),
    [
        (
            "data.yaml",
            "nc: 2\nnames: [dog, dog]\n",
            "data.yaml: line 2: classes 0 and 1",
        ),
        (
            "data.yaml",
            "names: {0: dog, 1: dog}\n",
            "data.yaml: line 1: classes 0 and 1",
        ),
        ("classes.txt", "dog\ncat\ndog\n", "classes.txt: classes 0 and 2"),
        ("obj.names", "dog\ndog\n", "obj.names: classes 0 and 1"),
    ],
)
def test_a_class_name_that_is_there_twice_is_an_error(
    tmp_path: Path, name: str, text: str, location: str
) -> None:
    folder = tmp_path / "in"
    add_images(folder, "a.jpg")
    (folder / "a.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (folder / name).write_text(text)
    ran = convert(folder)
    assert ran.status == 65
    assert f"{location} both have the name 'dog'" in ran.err
    # The ways out.
    converted(folder, "--annotations", "none", "--label-from", "none")
    (folder / name).write_text(text.replace("dog", "emu", 1))
    converted(folder, "--overwrite")


@pytest.mark.parametrize("place", ["/", "../", "file:///", "http://127.0.0.1:9/"])
@pytest.mark.parametrize("key", ["path", "train"])
def test_a_data_yaml_reads_nothing_outside_the_input(
    tmp_path: Path, place: str, key: str
) -> None:
    """An entry can only name files that are below the input, by its last folders."""
    outside = tmp_path / "outside"
    add_images(outside, "b.jpg")
    folder = tmp_path / "in"
    add_images(folder, "a.jpg")
    (folder / "a.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    path = "../outside" if place == "../" else f"{place}{str(outside)[1:]}"
    (folder / "data.yaml").write_text(f"{key}: {path}\nval: .\nnames: [dog]\n")
    converted(folder)
    (tmp_path / "out").rename(tmp_path / "with-entry")
    (folder / "data.yaml").write_text("val: .\nnames: [dog]\n")
    converted(folder)
    found, expected = (
        next((tmp_path / name).glob("*.tfrecord*")).read_bytes()
        for name in ("with-entry", "out")
    )
    assert found == expected


DEEP = b"[" * 3000 + b"]" * 3000  # more than Python's parser takes


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'{"info"', b'{"licenses": ' + DEEP + b', "info"', ""),
        (b'"brush"', b'"bru\nsh"', "Invalid control character at: line"),
        (b'"segmentation": [', b'"segmentation": [\x0c', "Expecting value: line 1 col"),
        (b'"segmentation": [[', b'"segmentation": [[0 ', "Expecting ',' delimiter"),
        (b'"segmentation": [[', b'"segmentation": {"a": 1"}, [[', "Expecting ','"),
        (b'"brush"', b'{"en": 1}', "the name of a category is {'en': 1}; expected"),
    ],
)
def test_an_image_without_its_file_is_a_reject_of_valid_json(
    tmp_path: Path, old: bytes, new: bytes, told: str
) -> None:
    folder, entry = tmp_path / "in", image(3, "none.jpg")
    add_images(folder, "a.jpg")
    images = [image(1, "a.jpg"), {**entry, "license": 3}]
    coco(folder / "a.json", images, [annotation(2, 1, BOX)])
    data = (folder / "a.json").read_bytes()
    (folder / "a.json").write_bytes(data.replace(old, new, 1))
    if told:
        error = refused(folder)
        assert "a.json: is not valid as COCO: " + told in error
        return
    converted(folder, "--max-rejects", "1")
    (file,) = (tmp_path / "out/rejects").iterdir()
    assert json.loads(base64.b64decode(json.loads(file.read_text())["raw"])) == entry


@pytest.mark.parametrize(
    ("outline", "kept"),
    [
        ({"size": [480, 640], "counts": 'ab}c{"\\'}, True),
        ({"counts": "ab}c{"}, False),
        ({}, None),
        (5, False),
        (0, False),
        ("x", False),
        ([[1, 2], {"a": {}}], False),
    ],
)
@pytest.mark.parametrize("key", [b"segmentation", b"segment\\u0061tion"])
def test_an_odd_outline_changes_no_other(
    tmp_path: Path, key: bytes, outline: Any, kept: bool | None
) -> None:
    folder = tmp_path / "in"
    add_images(folder, "a.jpg", "b.jpg", "c.jpg")
    images = [image(n, name) for n, name in enumerate(("a.jpg", "b.jpg", "c.jpg"))]
    outlines = [[[1, 2, 3, 4, 5, 6.5]], outline, [[7, 8, 9, 10, 11, 12]]]
    annotations = [
        annotation(n, n, BOX, segmentation=each) for n, each in enumerate(outlines)
    ]
    coco(folder / "a.json", images, annotations)
    data = (folder / "a.json").read_bytes()
    at = data.rindex(b'"segmentation"') + 1  # of the last
    data = data[:at] + key + data[at + len("segmentation") :]
    (folder / "a.json").write_bytes(data)
    converted(folder, "--max-rejects", "1")
    found = {
        name: [json.loads(text) for text in row["objects/segmentation"]]
        for name, row in rows_of(tmp_path / "out").items()
    }
    assert found.pop("a.jpg") == [outlines[0]]
    assert found.pop("c.jpg") == [outlines[2]]
    if kept is False:
        (told,) = rejects_of(tmp_path / "out").values()
        assert "annotation 1: segmentation is not a list of polygons" in told
        assert "keypoints" not in told
    else:
        assert found.pop("b.jpg") == [outline if kept else []]
    assert not found


def test_classes_keep_the_numbers_that_are_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    small_coco(folder)
    path = folder / "annotations/instances_default.json"
    path.write_text(path.read_text().replace('"brush"', "1.50"))
    converted(folder)
    assert "1.50" in (tmp_path / "out/objects-label.labels.txt").read_text().split()


OTHER_FORMS = {
    "CVAT's own XML": (
        "annotations.xml",
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n'
        '<image id="0" name="a.jpg" width="640" height="480"></image></annotations>',
    ),
    "Create ML": (
        "_annotations.createml.json",
        '[{"image":"a.jpg","annotations":[{"label":"cat","coordinates":{"x":6,"y":8}}]}]',
    ),
    "labelme": (
        "a.json",
        '{"version": "5.0.1", "flags": {}, "shapes": [{"label": "cat"}], '
        '"imagePath": "a.jpg", "imageData": null}',
    ),
}


def as_the_way_out_says(told: str) -> list[str]:
    """Returns the options that are behind "or use" in an error, as they are printed."""
    words = told.rpartition(" or use ")[2]
    return [each for pair in re.findall(r"(--[a-z-]+) (\w+)", words) for each in pair]


@pytest.mark.parametrize("images", [1, 10])
@pytest.mark.parametrize("form", OTHER_FORMS)
def test_objects_in_forms_that_are_not_read_are_refused(
    tmp_path: Path, form: str, images: int
) -> None:
    name, text = OTHER_FORMS[form]
    folder = tmp_path / "in"
    add_images(folder, *(f"{letter}.jpg" for letter in "abcdefghij"[:images]))
    (folder / name).write_text(text)
    told = refused(folder)
    assert f"objects in the format of {form}, which is not supported" in told
    converted(folder, *as_the_way_out_says(told))


@pytest.mark.parametrize("images", ["a", "abcdefghij"])
def test_json_of_labelme_is_no_text_of_its_images(tmp_path: Path, images: str) -> None:
    folder = tmp_path / "in"
    add_images(folder / "images", *(f"{name}.jpg" for name in images))
    (folder / "annotations").mkdir()
    (folder / "annotations/a.json").write_text(OTHER_FORMS["labelme"][1])
    told = refused(folder)
    assert "a.json: has objects in the format of labelme, which is not" in told
    converted(folder, *as_the_way_out_says(told))
    (row,) = [rows_of(tmp_path / "out")["images/a.jpg"]]
    assert "annotations" not in row
    if images == "a":
        converted(folder, "--overwrite", "--annotations", "none")
        assert "shapes" in rows_of(tmp_path / "out")["images/a.jpg"]["annotations"]


@pytest.mark.parametrize("images", ["ab", "abcdefghij"])
@pytest.mark.parametrize("labels", ["labels/train2017", "images/train2017"])
def test_labels_of_yolo_need_the_names_of_the_classes(
    tmp_path: Path, labels: str, images: str
) -> None:
    """COCO128 comes without a file of names, which its tools have elsewhere."""
    folder = tmp_path / "in"
    add_images(folder / "images/train2017", *(f"{name}.jpg" for name in images))
    (folder / labels).mkdir(parents=True, exist_ok=True)
    for name in "ab":
        (folder / labels / f"{name}.txt").write_text("0 .5 .5 .1 .1")
    told = refused(folder)
    assert "a.txt: has YOLO labels, which require class names" in told
    assert "Add one to the input and name it in --annotations" in told
    converted(folder, *as_the_way_out_says(told))
    (folder / "classes.txt").write_text("dog\n")  # the other one
    converted(folder, "--overwrite", "--annotations", "classes.txt")
    assert found_in(tmp_path / "out")["a.jpg"] == [[0.45, 0.45, 0.55, 0.55]]


def test_stray_files_of_objects_leave_folders_of_classes(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        add_images(tmp_path / f"in/{label}", *(f"{n}.jpg" for n in range(5)))
    stray = {"0.json": OTHER_FORMS["labelme"][1], "0.txt": "0 .5 .5 .1 .1"}
    for name, text in stray.items():
        (tmp_path / "in/cat" / name).write_text(text)
        told = refused(tmp_path / "in", "--overwrite")
        assert f"cat/{name}: has " in told
        options = as_the_way_out_says(told)
        assert options[-2:] == ["--label-from", "none"]  # "if they have no classes"
        ran = converted(tmp_path / "in", "--overwrite", *options[:-2])
        assert "cat 5, dog 5" in ran.out + ran.err
        (tmp_path / "in/cat" / name).unlink()
    # A dataset that was written before goes on.
    converted(tmp_path / "in", "--overwrite")
    for name, text in stray.items():
        (tmp_path / "in/cat" / name).write_text(text)
        add_images(tmp_path / "in/dog", f"{name}.jpg", grow=1)
        converted(tmp_path / "in", "--append")


def test_of_large_files_beside_labels_a_part_is_held_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    yolo_folder(folder, "", "a", "b")
    (folder / "classes.txt").write_text("dog\n")
    text = '{"info": {}, "categories": []' + " " * (24 << 20) + "}"
    for number in range(3):
        (folder / f"notes{number}.json").write_text(text)
    tracemalloc.start()
    try:
        prepare(folder)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_labels_of_darknet_have_their_names_in_each_folder(tmp_path: Path) -> None:
    """Roboflow's export for Darknet: labels beside the images of each split."""
    folder = tmp_path / "in"
    for split, name in (("train", "a"), ("valid", "b")):
        add_images(folder / split, f"{name}.jpg")
        (folder / split / f"{name}.txt").write_text("1 .5 .5 .1 .1")
        (folder / split / "_darknet.labels").write_text("cat\ndog\n")
    converted(folder)
    for split, name in (("train", "a"), ("valid", "b")):
        wanted = {f"{name}.jpg": [[0.45, 0.45, 0.55, 0.55]]}
        assert found_in(tmp_path / "out", split) == wanted


def test_notes_of_label_studio_are_no_file_of_coco(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    yolo_folder(folder, "", "a", "b")
    (folder / "classes.txt").write_text("dog\n")
    notes = {"categories": [{"id": 0, "name": "dog"}], "info": {"version": "1.0"}}
    (folder / "notes.json").write_text(json.dumps(notes, indent=2))
    converted(folder)
    assert found_in(tmp_path / "out")["a.jpg"] == [[0.45, 0.45, 0.55, 0.55]]
