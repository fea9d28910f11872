"""Finds the files that have the objects in images, and reads those of COCO."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import NOT_VALID, count, first_names, human_bytes
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.columns import inside_lists
from recordmill.transforms.images.objects import BOX
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.file_splits import AUTO, NO_SPLITS, FileSplits
from recordmill.transforms.sources.images.object_tables import (
    NO_OBJECTS,
    OTHERWISE,
    ObjectFiles,
    Objects,
    outside_facts,
    side_of,
    table_of,
)
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.tables import (
    FEATURE,
    MAX_BYTES,
    LabelTable,
    one_array,
)
from recordmill.transforms.sources.images.voc_yolo import (
    find_voc,
    find_yolo,
    read_voc,
    read_yolo,
)
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c


def find_objects(
    given: Sequence[tuple[str, InputFile]],
    others: Sequence[InputFile],
    images: Inventory,
    options: ImagesOptions,
    storage: StorageOptions,
) -> ObjectFiles | None:
    """Finds objects in the files that are given, as (split, file), or else in others.

    Those in others count if they are of half of the images or more: a tree of classes may
    have a stray file.

    Raises:
      InputError: they are of two formats, or given ones are of none.
    """
    files = given or [("", file) for file in others]
    coco = _find_coco(files, storage, is_named=bool(given))
    named = [file for _, file in files]
    voc = find_voc(named, storage, is_named=bool(given))
    yolo = find_yolo(named if given else (), others, images, storage)
    found = {
        "COCO": [file for _, file in coco],
        "Pascal VOC": voc,
        "YOLO": [] if yolo is None else [yolo.names],
    }
    several = [
        f"{name} ({first_names([file.path for file in each], 3)})"
        for name, each in found.items()
        if each
    ]
    if len(several) > 1:
        raise InputError(
            f"{images.root}: has annotations of {' and of '.join(several)}; expected one "
            f"format: name the files that count in `annotations`, {OTHERWISE}"
        )
    if given and not several:
        raise InputError(
            f"`annotations`: {given[0][1].uri}: is not a file of COCO (.json), Pascal VOC "
            "(.xml) or YOLO (data.yaml, obj.names or classes.txt, beside labels): name "
            f"such files, {OTHERWISE}"
        )
    if coco:
        objects = _read_coco(coco, options, storage, is_named=bool(given))
    elif voc:
        objects = read_voc(voc, others, images, options, storage)
    elif yolo is not None:
        objects = read_yolo(yolo, others, images, options, storage)
    else:
        return None
    number = sum(len(table.rows) for table in objects.tables)
    if given or not objects.tables or number * 2 >= len(images):
        return objects
    first = objects.tables[0].file.path
    told = (
        f"{first_names(sorted(objects.used), 3)}: of {count(number, 'image')} where there "
        f"are {len(images):,}; `annotations={first}` takes them"
    )
    return NO_OBJECTS._replace(facts=((_LEFT_OUT, told),))


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
_AGAIN = re.compile(r"(^|/)(?:person_keypoints|captions|panoptic|stuff)_(?=[^/]*$)")
_LEFT_OUT = "annotations left out"
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


def _kind_of(data: bytes) -> str:
    """Returns why a file that begins like COCO's has no objects; "" if it may have."""
    keys = (
        *("segments_info", "caption", "bbox", "image_id"),
        *("images", "annotations", "categories"),
    )
    names = {name for name in keys if f'"{name}"'.encode() in data}
    if "segments_info" in names:
        return "has panoptic segmentation, whose masks are in other images"
    if "caption" in names and "bbox" not in names:
        return "has captions, not boxes"
    lacking = {"images", "annotations", "categories"} - names
    lacking |= {"bbox"} - names if "image_id" in names else set()
    return f"has no {first_names(sorted(lacking))}" if lacking else ""


_OF_NUMBERS = b"[],.+-eE0123456789"


class _Coco:
    """The annotations of a file, taken while it is parsed."""

    def __init__(self) -> None:
        self.ids: list[Any] = []
        self.images: list[Any] = []
        self.categories: list[Any] = []
        self.boxes, self.areas = array("d"), array("f")
        self.crowds = bytearray()
        self.polygons: list[str] = []
        self.keypoints, self.points = (
            array("f"),
            array("q"),
        )  # x, y, v; how many of these

    def take(self, value: dict[str, Any]) -> Any:
        """Takes an annotation; returns any other object of JSON as it is."""
        if "counts" in value and "size" in value:  # a mask, as run lengths
            counts, size = value["counts"], value["size"]
            if not all(
                map(str.isdigit, [*size, *(() if type(counts) is str else counts)])
            ):
                raise ValueError("a mask's size or counts are not whole numbers")
            text = (
                f"[{','.join(counts)}]" if type(counts) is list else json.dumps(counts)
            )
            return f'{{"size":[{",".join(size)}],"counts":{text}}}'
        if "image_id" not in value:
            return value
        self.ids.append(value.get("id"))
        self.images.append(value["image_id"])
        self.categories.append(value.get("category_id"))
        area, outline, known = value.get("area"), "", len(self.keypoints)
        try:
            x, y, width, height = map(float, value["bbox"])
            area = width * height if area is None else float(area)
            outline = value.get("segmentation") or ""
            if type(outline) is list:
                rings = [f"[{','.join(each)}]" for each in outline]
                outline = f"[{','.join(rings)}]"
                if outline.encode().translate(None, _OF_NUMBERS):
                    raise ValueError("a text in place of a number")
            elif outline and not outline.startswith("{"):
                raise ValueError("not an outline")
            self.keypoints.extend(map(float, value.get("keypoints") or ()))
        except NOT_VALID:
            x = y = width = height = area = np.nan
            outline = ""
            del self.keypoints[known:]
        self.boxes.extend((x, y, width, height))
        self.areas.append(area)
        self.crowds.append(value.get("iscrowd") in ("1", True))
        self.polygons.append(outline)
        self.points.append(len(self.keypoints) - known)
        return None

    def are_finite(self) -> npt.NDArray[np.bool_]:
        """Returns which annotations have an area and keypoints that float32 holds."""
        found = np.isfinite(np.frombuffer(self.areas, np.float32))
        owners = np.repeat(np.arange(len(found)), np.frombuffer(self.points, np.int64))
        found[owners[~np.isfinite(np.frombuffer(self.keypoints, np.float32))]] = False
        return found

    def objects(self, order: I64) -> tuple[dict[str, pa.Array], str]:
        """Returns values of the objects in an order, by name, and what is left out."""
        ids = self.ids
        more = {
            "is_crowd": pa.array(np.frombuffer(self.crowds, np.bool_)[order]),
            "area": pa.array(np.frombuffer(self.areas, np.float32)[order]),
        }
        if all(type(each) is str and each.isdigit() and len(each) < 19 for each in ids):
            more["id"] = pa.array([int(ids[at]) for at in order.tolist()], pa.int64())
        if any(self.polygons):
            outlines = [self.polygons[at] or "[]" for at in order.tolist()]
            more["segmentation"] = pa.array(outlines, pa.string())
        points = np.frombuffer(self.points, np.int64)
        numbers = {*points.tolist()} - {0}
        if len(numbers) != 1 or (number := numbers.pop()) % 3:
            return more, "keypoints" if numbers else ""
        values = np.zeros((len(ids), number), np.float32)
        values[points > 0] = np.frombuffer(self.keypoints, np.float32).reshape(
            -1, number
        )
        triples = pa.FixedSizeListArray.from_arrays(pa.array(values[order].ravel()), 3)
        each = pa.FixedSizeListArray.from_arrays(triples, number // 3)
        return {**more, "keypoints": each}, ""


def _read_coco(
    files: Sequence[tuple[str, InputFile]],
    options: ImagesOptions,
    storage: StorageOptions,
    *,
    is_named: bool,
) -> ObjectFiles:
    """Reads files of COCO, of which some may have no objects."""
    tables, outside = list[LabelTable](), Counter[str]()
    names, others = dict[str, str](), list[str]()
    # COCO itself has the same images in files of keypoints and of captions, too.
    paths = {file.path for _, file in files}
    again = {
        path for path in paths if _AGAIN.sub(r"\1instances_", path, 1) in paths - {path}
    }
    if again and not is_named:
        others = [f"{path}: is beside instances_*" for path in sorted(again)]
        files = [each for each in files if each[1].path not in again]
    splits = NO_SPLITS
    if options.split_from == AUTO and not options.split_lists:
        splits = FileSplits(AUTO).found_in([file for _, file in files])
    for split, file in files:
        if file.size > MAX_BYTES:
            raise InputError(
                f"{file.uri}: has {human_bytes(file.size)}; a file of COCO is held in "
                f"memory and may have {human_bytes(MAX_BYTES)}: divide it into files of "
                f"fewer images, {OTHERWISE}"
            )
        data = read_range(file.uri, 0, file.size, storage, file.seen)
        if problem := _kind_of(data):
            others.append(f"{file.uri}: {problem}")
            continue
        table, categories = _parse_coco(
            file, data, split or splits.of(file), options, outside
        )
        for number, name in categories.items():
            if names.setdefault(number, name) != name and not options.label_map:
                raise InputError(
                    f"{file.uri}: category {number} is {name!r}, but {names[number]!r} in "
                    "other files; expected one name. Give all files the same categories, "
                    "give the order of their names by `label_map`, or convert them one by "
                    "one"
                )
        tables.append(table)
    refused = [told for told in others if is_named or "has no" not in told]
    if is_named and not tables:
        raise InputError(
            f"{refused[0]}; expected COCO's objects, with bbox and category_id. Name a "
            f"file that has them in `annotations`, {OTHERWISE}"
        )
    left_out = [(_LEFT_OUT, first_names(refused, 5))] if refused else []
    if not tables:
        return NO_OBJECTS._replace(facts=tuple(left_out))
    facts = [
        ("annotation format", f"COCO, {count(len(tables), 'file')}"),
        *splits.facts,
        *left_out,
    ]
    ordered = sorted(names, key=lambda number: (len(number), number))
    return ObjectFiles(
        _with_same_columns(tables),
        tuple(dict.fromkeys(names[number] for number in ordered)),
        (*facts, *outside_facts(outside, options.boxes_outside)),
        frozenset(table.file.path for table in tables),
    )


def _told(value: Any) -> str:
    return str(value).encode(errors="replace").decode()


def _with_same_columns(tables: Sequence[LabelTable]) -> tuple[LabelTable, ...]:
    """Returns tables with all columns that one of them has; the others get zeros or []."""
    kinds = dict[str, tuple[pa.DataType, str]]()
    for table in tables:
        for column in table.rows.schema:
            kind, other = kinds.setdefault(column.name, (column.type, table.file.uri))
            if kind != column.type:
                raise InputError(
                    f"{table.file.uri}: {column.name.removeprefix(FEATURE)} is "
                    f"{column.type}, but {kind} in {other}; expected as many numbers in "
                    "all files: convert them one by one"
                )
    found = []
    for table in tables:
        rows, lists = table.rows, one_array(table.rows[FEATURE + BOX])
        for name in kinds.keys() - {*rows.column_names}:
            leaf, shape = inside_lists(kinds[name][0])
            number = len(lists.flatten()) * math.prod(side or 1 for side in shape[1:])
            values = pa.repeat("[]", number)
            if not pa.types.is_string(leaf):
                values = pa.repeat(0, number).cast(leaf)
            for side in reversed(shape[1:]):
                values = pa.FixedSizeListArray.from_arrays(values, side)
            column = pa.ListArray.from_arrays(lists.offsets, values)
            rows = rows.append_column(name, column)
        found.append(table._replace(rows=rows))
    return tuple(found)


def _raw_image(path: str, images: Sequence[Any], row: int) -> tuple[str, int, bytes]:
    return path, 0, json.dumps(images[row]).encode()


def _parse_coco(
    file: InputFile,
    data: bytes,
    split: str,
    options: ImagesOptions,
    outside: Counter[str],
) -> tuple[LabelTable, dict[str, str]]:
    """Returns the images of a file with their objects, and the names of categories."""
    taken = _Coco()
    try:
        whole = json.loads(data, object_hook=taken.take, parse_float=str, parse_int=str)
        images = whole["images"]
        categories = {
            str(each["id"]): str(each["name"]) for each in whole["categories"]
        }
        index = {each["id"]: at for at, each in enumerate(images)}
        paths = [str(each["file_name"]) for each in images]
        of_image = np.array([index.get(each, -1) for each in taken.images], np.int64)
        labels = [categories.get(each, "") for each in taken.categories]
        sizes = np.array(
            [
                (side_of(each.get("height")), side_of(each.get("width")))
                for each in images
            ],
            np.float64,
        ).reshape(-1, 2)
        lost = [each for each in whole["annotations"] if each is not None]
        lost = [each if isinstance(each, dict) else {"id": each} for each in lost]
        "".join((*paths, *categories.values())).encode()  # some text is none in UTF-8
    except NOT_VALID as error:
        told = f"KeyError {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{file.uri}: is not valid as COCO: {told}. Correct it, {OTHERWISE}"
        ) from None
    if len(index) < len(images):
        twice = Counter(each["id"] for each in images).most_common(1)[0][0]
        raise InputError(
            f"{file.uri}: two images have the id {twice}; expected an id for each"
        )
    ids = taken.ids
    alone = [
        {"id": ids[at], "image_id": taken.images[at]}
        for at in np.flatnonzero(of_image < 0).tolist()
    ]
    rejects = tuple(
        Reject(
            file.path,
            0,
            f"annotation {_told(each.get('id'))}: no image has its image_id "
            f"{_told(each.get('image_id'))}",
            json.dumps(each).encode(),
            "label",
        )
        for each in [*alone, *lost]
    )
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
    has_box &= taken.are_finite()[order]
    has_size = np.all(sizes[of_image] > 0, axis=1)
    for at in np.flatnonzero(~(has_label & has_box & has_size)).tolist():
        own = int(order[at])
        what = f"category {_told(taken.categories[own])} is not in its list"
        if not has_size[at]:
            what = "its image has no height and width"
        elif not has_box[at]:
            what = (
                "bbox, area, segmentation or keypoints are not numbers as COCO has them"
            )
        problems.setdefault(
            int(of_image[at]), f"{file.path}, annotation {_told(ids[own])}: {what}"
        )
    is_bad = ~(has_box & has_size)
    corners[is_bad] = 0, 0, 1, 1
    more, left_out = taken.objects(order)
    if left_out:
        outside[left_out] += 1
    named = [labels[at] for at in order.tolist()]
    found = Objects(paths, sizes, problems, of_image, corners, named, more)
    splits = [split] * len(paths) if split else []
    table = LabelTable(
        file,
        split,
        table_of(found, splits, options.boxes_outside, outside),
        partial(_raw_image, file.path, images),
        (FileChecksum(file.path, 0, len(data), crc32c(data)),),
        rejects,
    )
    return table, categories
