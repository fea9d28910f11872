"""Images with boxes: files of COCO, Pascal VOC and YOLO are found, read and joined."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from job_tools import Argument, Ran, recordmill
from pixel_zoo import IMAGES
from pycocotools.coco import COCO

from recordmill.beam_jobs.recordmill import open_dataset

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


def add_images(folder: Path, *names: str, grow: int = 0) -> None:
    """Adds images of 640 x 480 pixels, or each as much larger as `grow` says."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        more = grow * number
        data = of_size(640 + more, 480 + more)
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
