"""Objects in images are the same in tf.data, TFDS and open_dataset, box by box."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)
from interop_tools import ask
from job_tools import convert, payloads, recordmill, shards_of
from object_trees import CLASSES, Pictured, coco_tree
from PIL import Image
from pycocotools import mask as coco_mask

from recordmill import open_dataset
from recordmill.schemas.proto.example_pb2 import Example

NAMES = list(CLASSES.values())
IDS = list(CLASSES)


def pictured(number: int, most: int = 50) -> Pictured:
    """Returns an image of 16 to 60 pixels a side with 1 to `most` boxes in it."""
    chance = random.Random(number)
    width, height = chance.randint(16, 60), chance.randint(16, 60)
    colour = tuple(chance.randrange(256) for _ in range(3))
    Image.new("RGB", (width, height), colour).save(buffer := io.BytesIO(), "JPEG")
    objects = []
    for _ in range(chance.randint(1, most)):
        x, y = chance.uniform(0, width - 4), chance.uniform(0, height - 4)
        box = [x, y, chance.uniform(3, width - x), chance.uniform(3, height - y)]
        x, y, box_width, box_height = (round(side, 2) for side in box)
        right, lower = x + box_width, y + box_height
        objects.append(
            {
                "bbox": [x, y, box_width, box_height],
                "category_id": chance.choice(IDS),
                "iscrowd": chance.randrange(2),
                "area": round(box_width * box_height, 3),
                "segmentation": [[x, y, right, y, right, lower, x, lower]],
            }
        )
    return Pictured(f"{number:04d}.jpg", buffer.getvalue(), (height, width), objects)


def boxes_of(image: Pictured) -> Any:
    """Returns ymin, xmin, ymax, xmax of an image's objects, as TFDS's builder of COCO does."""
    height, width = image.size
    wanted = [
        (y / height, x / width, (y + box_height) / height, (x + box_width) / width)
        for x, y, box_width, box_height in (each["bbox"] for each in image.objects)
    ]
    return np.array(wanted, np.float64).astype(np.float32).clip(0, 1)


def voc_tree(folder: Path, images: list[Pictured]) -> Path:
    """Writes JPEGImages and Annotations, as Pascal VOC has them."""
    for each in images:
        height, width = each.size
        objects = "".join(
            f"<object><name>{NAMES[IDS.index(one['category_id'])]}</name>"
            f"<difficult>{one['iscrowd']}</difficult><bndbox><xmin>{x}</xmin>"
            f"<ymin>{y}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
            for one in each.objects
            for x, y, w, h in [one["bbox"]]
        )
        files = {
            f"JPEGImages/{each.name}": each.data,
            f"Annotations/{each.name[:-4]}.xml": (
                f"<annotation><filename>{each.name}</filename><size><width>{width}</width>"
                f"<height>{height}</height><depth>3</depth></size>{objects}</annotation>"
            ).encode(),
        }
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    return folder


def in_yolo(image: Pictured) -> list[tuple[float, ...]]:
    height, width = image.size
    return [
        tuple(
            round(each, 6)
            for each in (
                (x + w / 2) / width,
                (y + h / 2) / height,
                w / width,
                h / height,
            )
        )
        for x, y, w, h in (one["bbox"] for one in image.objects)
    ]


def yolo_tree(folder: Path, images: list[Pictured]) -> Path:
    """Writes images, labels and data.yaml, as Ultralytics has them."""
    for name in ("images", "labels"):
        (folder / name / "train").mkdir(parents=True)
    for each in images:
        (folder / "images/train" / each.name).write_bytes(each.data)
        numbers = zip(each.objects, in_yolo(each), strict=True)
        lines = (
            f"{IDS.index(one['category_id'])} {' '.join(map(str, box))}"
            for one, box in numbers
        )
        label = folder / "labels/train" / f"{each.name[:-4]}.txt"
        label.write_text("\n".join(lines))
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(NAMES))
    (folder / "data.yaml").write_text(f"train: images/train\nnames:\n{names}")
    return folder


def boxes_of_yolo(image: Pictured) -> Any:
    found = np.array(in_yolo(image), np.float64)
    centre, half = found[:, 1::-1], found[:, :1:-1] / 2
    corners = np.column_stack([centre - half, centre + half])
    return corners.clip(0, 1).astype(np.float32)


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_a_thousand_images_are_the_same_for_all_readers(
    tmp_path: Path, kind: str
) -> None:
    images = [pictured(number) for number in range(1000)]
    out = tmp_path / "pets" / "1.0.0"
    trees = {"coco": coco_tree, "voc": voc_tree, "yolo": yolo_tree}
    convert("images", trees[kind](tmp_path / "in", images), out)
    code = recordmill("inspect", out, "--tf").out
    by_tfds = ask("read_objects.py", "tfds", out)
    by_program = ask("read_objects.py", "program", out, given=code)
    ours = {str(row["filename"])[-8:]: row for row in open_dataset(str(out), "train")}
    theirs = [
        {each["filename"][-8:]: each for each in found}
        for found in (by_tfds, by_program)
    ]
    for image in images:
        objects = image.objects
        boxes = boxes_of_yolo(image) if kind == "yolo" else boxes_of(image)
        wanted = {
            "bbox": boxes.tolist(),
            "label": [IDS.index(each["category_id"]) for each in objects],
        }
        if kind == "coco":
            wanted["is_crowd"] = [bool(each["iscrowd"]) for each in objects]
            wanted["area"] = [float(np.float32(each["area"])) for each in objects]
        if kind == "voc":
            wanted["is_difficult"] = [bool(each["iscrowd"]) for each in objects]
        for found in theirs:
            assert {key: found[image.name][key] for key in wanted} == wanted
            assert found[image.name]["shape"] == [*image.size, 3]
        for key, values in wanted.items():
            assert np.asarray(ours[image.name][f"objects/{key}"]).tolist() == values
    assert by_tfds[0]["names"] == NAMES
    assert len(ours) == len(by_tfds) == len(by_program) == 1000


def golden(image: Pictured) -> Example:
    """Returns the example of an image as create_coco_tf_record.py writes it.

    Its keys are read by TfExampleDecoder; image/key/sha256 is left out. Source:
    research/object_detection/dataset_tools/create_coco_tf_record.py in tensorflow/models.
    """
    height, width = image.size
    found = Example()
    feature = found.features.feature
    path = f"images/{image.name}".encode()
    feature["image/encoded"].bytes_list.value.append(image.data)
    feature["image/format"].bytes_list.value.append(b"jpeg")
    feature["image/filename"].bytes_list.value.append(path)
    feature["image/source_id"].bytes_list.value.append(path)
    feature["image/height"].int64_list.value.append(height)
    feature["image/width"].int64_list.value.append(width)
    sides = boxes_of(image).T.tolist()
    for side, values in zip(("ymin", "xmin", "ymax", "xmax"), sides, strict=True):
        feature[f"image/object/bbox/{side}"].float_list.value.extend(values)
    for each in image.objects:
        index = IDS.index(each["category_id"])
        feature["image/object/class/label"].int64_list.value.append(index + 1)
        feature["image/object/class/text"].bytes_list.value.append(
            NAMES[index].encode()
        )
        feature["image/object/area"].float_list.value.append(each["area"])
        feature["image/object/is_crowd"].int64_list.value.append(each["iscrowd"])
    return found


def masks_of(image: Pictured) -> list[Any]:
    outlines = (each["segmentation"] for each in image.objects)
    parts = (coco_mask.frPyObjects(each, *image.size) for each in outlines)
    return [coco_mask.decode(each).max(2) for each in parts]


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Pictured], Path]:
    """Returns images, and the dataset of them by the names of the detection API."""
    images = [pictured(number, 8) for number in range(40)]
    root = tmp_path_factory.mktemp("detection")
    data = coco_tree(root / "in", images)
    convert("images", data, root / "out", "--feature-names", "tfod", "--masks", "png")
    return images, root / "out"


def test_names_and_values_of_the_detection_api(
    detection: tuple[list[Pictured], Path],
) -> None:
    images, out = detection
    found = {}
    for shard in shards_of(out):
        for payload in payloads(shard):
            message = Example.FromString(payload)
            name = message.features.feature["image/filename"].bytes_list.value[0]
            found[name.decode()] = message
    for image in images:
        message = found[f"images/{image.name}"]
        feature = message.features.feature
        masks = feature.pop("image/object/mask").bytes_list.value
        for mask, wanted in zip(masks, masks_of(image), strict=True):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(mask))), wanted)
        # Those that the API has no name for.
        assert len(feature.pop("image/object/id").int64_list.value) == len(masks)
        assert len(feature.pop("image/object/segmentation").bytes_list.value) == len(
            masks
        )
        assert message == golden(image)


def test_the_decoder_of_the_detection_api_reads_them(
    detection: tuple[list[Pictured], Path],
) -> None:
    images, out = detection
    rows = [
        row
        for each in shards_of(out)
        for row in ask("read_objects.py", "detection", each)
    ]
    found = {row["image/filename"]: row for row in rows}
    assert len(found) == len(images)
    for image in images:
        row = found[f"images/{image.name}"]
        height, width = image.size
        assert row["shape"] == [height, width, 3]
        assert (row["image/height"], row["image/width"]) == image.size
        assert row["boxes"] == boxes_of(image).tolist()
        labels = [IDS.index(each["category_id"]) for each in image.objects]
        assert row["image/object/class/label"] == [label + 1 for label in labels]
        assert row["image/object/class/text"] == [NAMES[label] for label in labels]
        assert row["image/object/is_crowd"] == [
            each["iscrowd"] for each in image.objects
        ]
        sums = [int(mask.sum()) for mask in masks_of(image)]
        assert row["masks"] == [[[height, width], number] for number in sums]


def test_the_label_map(detection: tuple[list[Pictured], Path]) -> None:
    """It is text of StringIntLabelMap (object_detection/protos/string_int_label_map.proto)."""
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto")
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=9, label=1)
    item.field.add(name="id", number=2, type=5, label=1)
    whole = file.message_type.add(name="StringIntLabelMap")
    whole.field.add(name="item", number=1, type=11, label=3, type_name=".Item")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = pool.FindMessageTypeByName("StringIntLabelMap")
    message: Any = message_factory.GetMessageClass(kind)()
    text_format.Parse((detection[1] / "label_map.pbtxt").read_text(), message)
    assert [(each.id, each.name) for each in message.item] == [*enumerate(NAMES, 1)]
    labels = (detection[1] / "image.object.class.label.labels.txt").read_text()
    assert labels.split() == ["background", *NAMES]
    assert (
        "label_map.pbtxt"
        in json.loads((detection[1] / "manifest.json").read_text())["files"]
    )
