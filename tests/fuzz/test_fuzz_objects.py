"""Damaged files of COCO, Pascal VOC and YOLO: no image has boxes that its file has not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import yaml
from mutations import damaged, try_all, with_odd_element, with_odd_keys, with_odd_word
from pixel_zoo import IMAGES
from source_tools import read, write

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource

pytestmark = pytest.mark.fuzz

JPEG, _ = IMAGES["rgb.jpg"]
HEIGHT, WIDTH = 5, 7
NAMES = ("images/0.jpg", "images/1.jpg", "images/2.jpg")
Files = dict[str, bytes]
Box = tuple[str, float, float, float, float]  # class, ymin, xmin, ymax, xmax


def coco(random: Random) -> Files:
    whole = {
        "images": [
            {"id": n, "file_name": name[7:], "height": HEIGHT, "width": WIDTH}
            for n, name in enumerate(NAMES, 5)
        ],
        "annotations": [
            {
                "id": n,
                "image_id": random.randrange(5, 7),
                "category_id": random.choice((3, 18)),
                "bbox": [n, 1, 2.5, 3],
                "area": 7.5,
                "iscrowd": 0,
                "segmentation": [[n, 1, n + 2.5, 4, n, 4]],
            }
            for n in range(3)
        ],
        "categories": [{"id": 3, "name": "cat"}, {"id": 18, "name": "dog"}],
    }
    return {"instances.json": json.dumps(whole).encode()}


def coco_boxes(files: Files, name: str) -> list[Box]:
    """Boxes of an image, by the words of COCO's format; an error if they are none."""
    whole = json.loads(files["instances.json"], parse_int=str, parse_float=str)
    images = [each for each in whole["images"] if each["file_name"] == name[7:]]
    if not images:
        return []
    (image,) = images
    classes = {str(each["id"]): str(each["name"]) for each in whole["categories"]}
    found = []
    for each in whole["annotations"]:
        is_one = isinstance(each, dict) and "image_id" in each  # a reject of its own
        if is_one and each["image_id"] == image["id"]:
            x, y, width, height = map(float, each["bbox"])
            box = y / HEIGHT, x / WIDTH, (y + height) / HEIGHT, (x + width) / WIDTH
            found.append((classes[each["category_id"]], *box))
    return found


def voc(random: Random) -> Files:
    objects = [
        f"<object><name>{random.choice(['cat', 'dog'])}</name><pose>Left</pose><difficult>0"
        f"</difficult><bndbox><xmin>{n}</xmin><ymin>1</ymin><xmax>{n + 2.5}</xmax>"
        "<ymax>4</ymax></bndbox></object>"
        for n in range(3)
    ]
    size = (
        f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
    )
    return {
        f"Annotations/{n}.xml": (
            f"<annotation><filename>{n}.jpg</filename>{size}{''.join(objects[n:])}"
            "</annotation>"
        ).encode()
        for n in range(3)
    }


def voc_boxes(files: Files, name: str) -> list[Box]:
    data = files[f"Annotations/{name[7:8]}.xml"]
    root = ElementTree.fromstring(data)
    if root.tag != "annotation":
        return []
    assert b"<!DOCTYPE" not in data
    corners = "ymin", "xmin", "ymax", "xmax"
    return [
        (
            (each.findtext("name") or "").strip(),
            *(
                float(each.findtext(f"bndbox/{corner}") or "") / side
                for corner, side in zip(corners, (HEIGHT, WIDTH) * 2, strict=True)
            ),
        )
        for each in root.findall("object")
    ]


def yolo(random: Random) -> Files:
    lines = [f"{random.randrange(2)} 0.5 0.4{n} 0.25 0.3" for n in range(3)]
    found = {f"labels/{n}.txt": "\n".join(lines[n:]).encode() for n in range(3)}
    names: Any = ["cat", "dog"]
    if random.random() < 0.5:
        names = {"0": "cat", "1": "dog"}
    names = {"train": "images", "nc": 2, "names": names}
    return {**found, "data.yaml": json.dumps(names).encode()}


def yolo_boxes(files: Files, name: str) -> list[Box]:
    names = yaml.load(files["data.yaml"], yaml.BaseLoader)["names"]
    classes = [names[n] for n in sorted(names)] if isinstance(names, dict) else names
    found = []
    for line in files[f"labels/{name[7:8]}.txt"].split(b"\n"):
        if line.split():
            label, *values = map(float, line.split())
            if len(values) == 4:
                x, y, width, height = values
                box = y - height / 2, x - width / 2, y + height / 2, x + width / 2
            else:
                xs, ys = values[::2], values[1::2]
                assert len(xs) == len(ys) > 2
                box = min(ys), min(xs), max(ys), max(xs)
            found.append((classes[int(label)], *box))
    return found


class Kind(NamedTuple):
    make: Callable[[Random], Files]
    boxes: Callable[[Files, str], list[Box]]
    named: str  # what names the annotations


KINDS = {
    "coco": Kind(coco, coco_boxes, "instances.json"),
    "voc": Kind(voc, voc_boxes, "Annotations"),
    "yolo": Kind(yolo, yolo_boxes, "data.yaml"),
}
CHANGES = {".xml": with_odd_element, ".txt": with_odd_word}  # of JSON, otherwise


def in_image(box: Box, rule: str) -> Box:
    sides = (
        [min(1.0, max(0.0, side)) for side in box[1:]] if rule == "clip" else box[1:]
    )
    return (box[0], *sides)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_annotations(tmp_path: Path, kind: str) -> None:
    write(tmp_path, dict.fromkeys(NAMES, JPEG))

    def attempt(number: int) -> bool:
        random = Random(number)
        files = KINDS[kind].make(random)
        changed = random.choice(list(files))
        change = damaged
        if number % 3:
            change = CHANGES.get(Path(changed).suffix, with_odd_keys)
        files[changed] = change(files[changed], number)
        write(tmp_path, files)
        named = random.choice(["auto", KINDS[kind].named])
        rule = "clip" if named == "auto" else random.choice(["keep", "clip"])
        options = ImagesOptions(boxes_outside=rule, annotations=named)
        reading = read(ImagesSource(options), tmp_path)
        rows = {row["filename"]: row for row in reading.rows}
        of_images = [each.path for each in reading.rejects if each.path in NAMES]
        assert sorted([*rows, *of_images]) == [*NAMES]
        assert all(each.reason.encode() for each in reading.rejects)
        with_boxes = [row for row in rows.values() if "objects/bbox" in row]
        if not with_boxes:  # no annotations at all, as a job tells
            assert named == "auto" or not rows
            return False
        schema = reading.source.schema((0,), (0,) * 20)
        classes = schema["objects/label"].class_names
        for name, row in rows.items():
            try:
                every = [in_image(box, rule) for box in KINDS[kind].boxes(files, name)]
            except RecursionError:  # of Python's parser; Arrow's has no limit
                continue
            except Exception as error:
                shown = row["objects/label"], row["objects/bbox"]
                raise AssertionError(f"{name} is not a reject: {shown}") from error
            expected = [
                box
                for box in every
                if rule == "keep" or (box[1] < box[3] and box[2] < box[4])
            ]
            found = [
                (classes[label], *box)
                for label, box in zip(
                    row["objects/label"], row["objects/bbox"], strict=True
                )
            ]
            assert [each[0] for each in found] == [each[0] for each in expected]
            for own, other in zip(found, expected, strict=True):
                assert all(
                    math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
                    for a, b in zip(own[1:], other[1:], strict=True)
                ), (name, own, other)
        return True

    try_all(attempt, refused=(RecordmillError,))
