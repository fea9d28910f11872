"""Reads the objects in images, each a box and a label, from files that COCO tools write.

A file becomes a table with a row for each image, whose objects are lists of equal lengths.
The rows are joined with the images as those of any table are.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import NOT_VALID, count, first_names, human_bytes
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.images.objects import BOX
from recordmill.transforms.sources.file_splits import AUTO, NO_SPLITS, FileSplits
from recordmill.transforms.sources.images.annotations import PROBLEM, STATED
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.tables import (
    FEATURE,
    LABEL,
    MAX_BYTES,
    SPLIT,
    LabelTable,
)
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

F64 = npt.NDArray[np.float64]

_OTHERWISE = "or use `annotations=none` for images without boxes"


class ObjectFiles(NamedTuple):
    """The objects of images, and the files that have them."""

    tables: tuple[LabelTable, ...]  # a row for each image
    classes: tuple[str, ...]  # in their order; () for that of their names
    facts: tuple[tuple[str, str], ...]
    found: tuple[str, ...]  # the paths that `annotations` could name
    used: frozenset[str]  # the paths of all files that were read
    leaves_out_empty: bool  # whether images without objects are left out


class _Objects(NamedTuple):
    """Objects in the order of their images."""

    paths: list[str]  # of the images
    sizes: F64  # height and width of each, as they are stated, or NaN
    problems: dict[int, str]  # why an image is a reject, by its index
    images: I64  # the index of each object's image, rising
    boxes: F64  # ymin, xmin, ymax, xmax of each, over the size
    labels: list[str]  # the name of each one's class
    more: dict[str, pa.Array]  # other values of each, by name


def find_objects(
    given: Sequence[tuple[str, InputFile]],
    others: Sequence[InputFile],
    options: ImagesOptions,
    storage: StorageOptions,
) -> ObjectFiles | None:
    """Finds objects in the files that are given, as (split, file), or else in others."""
    files = given or [("", file) for file in others]
    coco = _find_coco(files, storage, is_named=bool(given))
    if not coco:
        return None
    return _read_coco(coco, options, storage)


# The boxes of YOLO have six digits: what is this little outside was rounded.
_ROUNDING = 2e-6


def _table_of(
    found: _Objects, splits: Sequence[str], rule: str, outside: Counter[str]
) -> pa.Table:
    """Returns a row for each image, with its objects as lists.

    `outside` counts boxes that are not inside the image, and those without an area.
    """
    boxes, problems = found.boxes, dict(found.problems)
    clipped = boxes.clip(0, 1)
    is_outside = np.any((boxes < -_ROUNDING) | (boxes > 1 + _ROUNDING), axis=1)
    is_empty = np.any(clipped[:, :2] >= clipped[:, 2:], axis=1)
    outside["outside"] += int(np.count_nonzero(is_outside & ~is_empty))
    outside["empty"] += int(np.count_nonzero(is_empty))
    kept: npt.NDArray[np.bool_] = np.ones(len(boxes), np.bool_)
    if rule == "clip":
        boxes, kept = clipped, ~is_empty
    for at in np.flatnonzero(is_outside | is_empty) if rule == "reject" else ():
        box = ", ".join(f"{side:g}" for side in boxes[at])
        what = "has no area in it" if is_empty[at] else "is not inside it"
        problems.setdefault(
            int(found.images[at]),
            f"the box of a {shown(found.labels[at])} {what}: ymin, xmin, ymax, xmax are "
            f"{box} of its size, expected 0 to 1. Correct it, or use `boxes_outside=clip`",
        )
    size = len(found.paths)
    offsets = offsets_of(np.bincount(found.images[kept], minlength=size))
    order = pa.array(np.flatnonzero(kept))
    flat = pa.array(boxes.astype(np.float32).ravel())
    columns = {
        LABEL: pa.array(found.labels, pa.string()),
        FEATURE + BOX: pa.FixedSizeListArray.from_arrays(flat, 4),
        **{f"{FEATURE}objects/{name}": each for name, each in found.more.items()},
    }
    lists = {
        name: pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), column if kept.all() else column.take(order)
        )
        for name, column in columns.items()
    }
    reasons = [problems.get(at) for at in range(size)] if problems else [None] * size
    stated = np.where(found.sizes > 0, found.sizes, np.nan)
    return pa.table(
        {
            "path": pa.array(found.paths, pa.string()),
            **({SPLIT: pa.array(splits, pa.string())} if splits else {}),
            PROBLEM: pa.array(reasons, pa.string()),
            **{
                name: pa.array(side, pa.float64(), from_pandas=True).cast(pa.int64())
                for name, side in zip(STATED, stated.T, strict=True)
            },
            **lists,
        }
    )


def _outside_facts(outside: Counter[str], rule: str) -> list[tuple[str, str]]:
    """Returns what was done with boxes that are not inside their images."""
    done = {
        "clip": ("clipped", "left out"),
        "keep": ("kept", "kept"),
        "reject": ("their images rejected", "their images rejected"),
    }[rule]
    told = [
        f"{count(outside[name], 'object')} {what}: {way}"
        for name, what, way in zip(
            ("outside", "empty"),
            ("beyond the image", "without an area in it"),
            done,
            strict=True,
        )
        if outside[name]
    ]
    return [("boxes outside", "; ".join(told))] if told else []


# COCO has one file for all images, or for those of a split:
#
#     {"images": [{"id": 7, "file_name": "a.jpg", "height": 480, "width": 640}, ...],
#      "categories": [{"id": 18, "name": "dog"}, ...],
#      "annotations": [{"id": 1, "image_id": 7, "category_id": 18, "iscrowd": 0,
#        "bbox": [x, y, width, height], "area": 702.1, "segmentation": [[x, y, ...]]}, ...]}
#
# That of 118,000 images has 450 MB, and 50 million numbers in its polygons: as Python's
# floats they would take 2 GB. So each annotation is taken when its object ends, numbers
# come as the text that they are, and polygons stay text.

_COCO_HEAD = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:info|licen[cs]es?|images|annotations|categories|type)"'
)
_HEAD_BYTES = 256
_MOST_JSON = 100  # files in one folder; where there are more, each is of one image


def _find_coco(
    files: Iterable[tuple[str, InputFile]], storage: StorageOptions, *, is_named: bool
) -> list[tuple[str, InputFile]]:
    """Returns those files that begin like COCO's."""
    found = [each for each in files if each[1].path.lower().endswith(".json")]
    per_folder = Counter(file.path.rpartition("/")[0] for _, file in found)
    coco = []
    for split, file in found:
        if not is_named and per_folder[file.path.rpartition("/")[0]] > _MOST_JSON:
            continue
        stop = min(file.size, _HEAD_BYTES)
        head = (
            b"" if file.problem else read_range(file.uri, 0, stop, storage, file.seen)
        )
        if is_named or _COCO_HEAD.match(head):
            coco.append((split, file))
    return coco


def _coco_data(file: InputFile, storage: StorageOptions) -> tuple[bytes, str]:
    """Returns the bytes of a file, and why it has no objects, or ""."""
    if file.size > MAX_BYTES:
        raise InputError(
            f"{file.uri}: has {human_bytes(file.size)}; a file of COCO is held in memory "
            f"and may have {human_bytes(MAX_BYTES)}: divide it into files of fewer images, "
            f"{_OTHERWISE}"
        )
    data = read_range(file.uri, 0, file.size, storage, file.seen)
    names = [
        name
        for name in (
            "segments_info",
            "caption",
            "bbox",
            "images",
            "annotations",
            "categories",
        )
        if f'"{name}"'.encode() in data
    ]
    if "segments_info" in names:
        return data, "has panoptic segmentation, whose masks are in other images"
    if "caption" in names and "bbox" not in names:
        return data, "has captions, not boxes"
    lacking = {"images", "annotations", "categories"} - {*names}
    return data, f"has no {first_names(sorted(lacking))}" if lacking else ""


class _Coco:
    """The annotations of a file, taken while it is parsed."""

    def __init__(self) -> None:
        self.ids: list[Any] = []
        self.images: list[Any] = []
        self.categories: list[Any] = []
        self.boxes, self.areas = array("d"), array("d")
        self.crowds = bytearray()
        self.polygons: list[str] = []
        self.keypoints: list[list[Any]] = []

    def take(self, value: dict[str, Any]) -> Any:
        """Takes an annotation; returns any other object of JSON as it is."""
        if "counts" in value:  # a mask, as run lengths
            counts = value["counts"]
            text = (
                f"[{','.join(counts)}]" if type(counts) is list else json.dumps(counts)
            )
            size = value.get("size", ())
            return f'{{"size":[{",".join(size)}],"counts":{text}}}'
        if "image_id" not in value:
            return value
        self.ids.append(value.get("id"))
        self.images.append(value["image_id"])
        self.categories.append(value.get("category_id"))
        try:
            x, y, width, height = map(float, value["bbox"])
        except NOT_VALID:
            x = y = width = height = np.nan
        self.boxes.extend((x, y, width, height))
        area = value.get("area")
        self.areas.append(width * height if area is None else float(area))
        self.crowds.append(value.get("iscrowd") in ("1", True))
        outline = value.get("segmentation") or ""
        if type(outline) is list:
            rings = [f"[{','.join(each)}]" for each in outline]
            outline = f"[{','.join(rings)}]"
        self.polygons.append(outline)
        self.keypoints.append(value.get("keypoints") or [])
        return None


def _read_coco(
    files: Sequence[tuple[str, InputFile]],
    options: ImagesOptions,
    storage: StorageOptions,
) -> ObjectFiles | None:
    """Reads files of COCO."""
    tables, facts, outside = [], [], Counter[str]()
    names = dict[str, str]()  # of categories by their ids, in all files
    splits = NO_SPLITS
    if options.split_from == AUTO and not options.split_lists:
        splits = FileSplits(AUTO).found_in([file for _, file in files])
    for split, file in files:
        data, problem = _coco_data(file, storage)
        checksums = (FileChecksum(file.path, 0, len(data), crc32c(data)),)
        if problem:
            raise InputError(
                f"{file.uri}: {problem}; expected COCO's objects. Name the files that "
                f"have them in `annotations`, {_OTHERWISE}"
            )
        found, categories, raws, rejects = _parse_coco(file, data)
        for number, name in categories.items():
            if names.setdefault(number, name) != name:
                raise InputError(
                    f"{file.uri}: category {number} is {name!r}, but {names[number]!r} in "
                    "other files; expected one name. Give all files the same categories, "
                    "or convert them one by one"
                )
        split = split or splits.of(file)
        rows = _table_of(
            found, [split] * len(raws) if split else [], options.boxes_outside, outside
        )
        tables.append(
            LabelTable(
                file,
                split,
                rows,
                partial(_raw_image, file.path, raws),
                checksums,
                tuple(rejects),
            )
        )
    ordered = sorted(names, key=lambda number: (len(number), number))
    facts = [("annotation format", f"COCO, {count(len(files), 'file')}"), *splits.facts]
    facts += _outside_facts(outside, options.boxes_outside)
    paths = tuple(file.path for _, file in files)
    classes = tuple(dict.fromkeys(names[number] for number in ordered))
    skips = options.without_objects == "leave_out"
    return ObjectFiles(
        tuple(tables), classes, tuple(facts), paths, frozenset(paths), skips
    )


def _raw_image(path: str, images: Sequence[Any], row: int) -> tuple[str, int, bytes]:
    return path, 0, json.dumps(images[row]).encode()


def _parse_coco(
    file: InputFile, data: bytes
) -> tuple[_Objects, dict[str, str], list[Any], list[Reject]]:
    """Returns objects, names of categories, the images as they are, and rejects."""
    taken = _Coco()
    try:
        whole = json.loads(data, object_hook=taken.take, parse_float=str, parse_int=str)
        images = whole["images"]
        categories = {each["id"]: each["name"] for each in whole["categories"]}
        index = {each["id"]: at for at, each in enumerate(images)}
        paths = [str(each["file_name"]) for each in images]
        of_image = np.array([index.get(each, -1) for each in taken.images], np.int64)
        labels = [categories.get(each, "") for each in taken.categories]
        sizes = np.array(
            [(_side(each, "height"), _side(each, "width")) for each in images],
            np.float64,
        ).reshape(-1, 2)
    except NOT_VALID as error:
        told = f"KeyError {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{file.uri}: is not valid as COCO: {told}. Correct it, {_OTHERWISE}"
        ) from None
    if len(index) < len(images):
        twice = Counter(each["id"] for each in images).most_common(1)[0][0]
        raise InputError(
            f"{file.uri}: two images have the id {twice}; expected an id for each"
        )
    ids = taken.ids
    rejects = [
        Reject(
            file.path,
            0,
            f"annotation {ids[at]}: no image has its image_id {taken.images[at]}",
            json.dumps({"id": ids[at], "image_id": taken.images[at]}).encode(),
            "label",
        )
        for at in np.flatnonzero(of_image < 0).tolist()
    ]
    order = np.flatnonzero(of_image >= 0)
    order = order[np.argsort(of_image[order], kind="stable")]
    boxes = np.frombuffer(taken.boxes, np.float64).reshape(-1, 4)[order]
    of_image = of_image[order]
    left, top, width, height = boxes.T
    rows, columns = sizes[of_image].T
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = np.column_stack(
            [
                top / rows,
                left / columns,
                (top + height) / rows,
                (left + width) / columns,
            ]
        )
    problems = dict[int, str]()
    has_label = np.array([bool(each) for each in labels], np.bool_)[order]
    has_box = np.isfinite(boxes).all(axis=1) & (width >= 0) & (height >= 0)
    has_size = np.all(sizes[of_image] > 0, axis=1)
    for at in np.flatnonzero(~(has_label & has_box & has_size)).tolist():
        own = int(order[at])
        what = f"category {taken.categories[own]} is not in its list"
        if not has_size[at]:
            what = "its image has no height and width"
        elif not has_box[at]:
            what = "its bbox is not x, y, width and height"
        problems.setdefault(
            int(of_image[at]), f"{file.path}, annotation {ids[own]}: {what}"
        )
    is_bad = ~(has_box & has_size)
    corners[is_bad] = 0, 0, 1, 1
    more = {
        "is_crowd": pa.array(np.frombuffer(taken.crowds, np.bool_)[order]),
        "area": pa.array(
            np.frombuffer(taken.areas, np.float64)[order].astype(np.float32)
        ),
    }
    if None not in ids and all(type(each) is str and each.isdigit() for each in ids):
        more["id"] = pa.array([int(ids[at]) for at in order.tolist()], pa.int64())
    if any(taken.polygons):
        more["segmentation"] = pa.array(
            [taken.polygons[at] or "[]" for at in order.tolist()], pa.string()
        )
    named = [labels[at] for at in order.tolist()]
    objects = _Objects(paths, sizes, problems, of_image, corners, named, more)
    return objects, categories, images, rejects


def _side(image: dict[str, Any], name: str) -> float:
    side = image.get(name)
    return float(side) if side else np.nan
