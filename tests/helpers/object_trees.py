"""Makes folders of images with a COCO file beside them, and reads records back."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from job_tools import examples_of
from PIL import Image, ImageOps

CLASSES = {3: "cat", 7: "dog", 21: "emu"}  # by the ids of categories


class Pictured(NamedTuple):
    """An image file, the size that COCO states of it, and its objects as COCO has them."""

    name: str
    data: bytes
    size: tuple[int, int]  # height and width
    objects: Sequence[dict[str, Any]]


def coco_tree(folder: Path, images: Sequence[Pictured]) -> Path:
    """Writes images and instances.json; objects get ids in their order."""
    found: dict[str, list[Any]] = {"images": [], "annotations": []}
    for number, each in enumerate(images):
        path = folder / "images" / each.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(each.data)
        height, width = each.size
        entry = {"id": number, "file_name": each.name, "height": height, "width": width}
        found["images"].append(entry)
        for one in each.objects:
            *_, box_width, box_height = one["bbox"]
            whole = {
                "id": len(found["annotations"]) + 1,
                "image_id": number,
                "category_id": 3,
                "area": box_width * box_height,
                "iscrowd": 0,
                **one,
            }
            found["annotations"].append(whole)
    found["categories"] = [{"id": n, "name": name} for n, name in CLASSES.items()]
    (folder / "instances.json").write_text(json.dumps(found))
    return folder


def with_exif(image: Image.Image, orientation: int, form: str = "PNG") -> bytes:
    """Returns the file of an image that viewers turn by this orientation."""
    exif = Image.Exif()
    exif[0x112] = orientation
    image.save(buffer := io.BytesIO(), form, exif=exif)
    return buffer.getvalue()


def shown(image: Image.Image, orientation: int) -> Image.Image:
    """Returns an image as viewers turn it."""
    return ImageOps.exif_transpose(
        Image.open(io.BytesIO(with_exif(image, orientation)))
    )


def objects_of(folder: Path, split: str = "train") -> dict[str, dict[str, list[Any]]]:
    """Returns the values of each example's features, by the name of its file."""
    found = {}
    for message in examples_of(folder, split):
        values = {
            name: list(getattr(each, each.WhichOneof("kind") or "int64_list").value)
            for name, each in message.features.feature.items()
        }
        name = (values.get("filename") or values["image/filename"])[0]
        found[name.decode().rpartition("/")[2]] = values
    return found
