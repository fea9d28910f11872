"""Reads the objects in images where each image has a file of them: Pascal VOC and YOLO.

A file belongs to the image whose path is the same but for the ending, and for a folder
that holds all images or all such files:

    VOC2012/Annotations/2007_000027.xml     VOC2012/JPEGImages/2007_000027.jpg
    train/labels/1.txt                      train/images/1.jpg
    photos/1.xml                            photos/1.jpg

If that pairs none, the names of the files do, where all differ.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, first_names
from recordmill.schemas.yaml_lines import YamlDocument
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.file_splits import AUTO
from recordmill.transforms.sources.images.object_tables import (
    OTHERWISE,
    ObjectFiles,
    Objects,
    outside_facts,
    side_of,
    table_of,
)
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.tables import LabelTable
from recordmill.transforms.storage.reading import read_file, read_files, read_range
from recordmill.transforms.tfrecord import crc32c

_HEAD_BYTES = 4096
_SAMPLE = 100  # files that are looked at, to know what all are
_ASIDE = r"(?i)(^|/)(?:images|jpegimages|labels|annotations)/"
_FOLDERS = r"^.*/"
_ENDING = r"\.[^./]*$"


def _pair(files: Sequence[InputFile], images: Inventory) -> I64:
    """Returns the index of each image's file, or -1."""
    paths = [
        images.paths.combine_chunks(),
        pa.array([f.path for f in files], pa.string()),
    ]
    found = pa.nulls(len(images), pa.int32())
    for pattern, way in ((_ASIDE, r"\1"), (_FOLDERS, "")):
        keys = [
            pc.replace_substring_regex(
                pc.replace_substring_regex(each, pattern, way), _ENDING, ""
            )
            for each in paths
        ]
        if pattern is _ASIDE or all(len(each.unique()) == len(each) for each in keys):
            found = pc.index_in(keys[0], value_set=keys[1])
        if found.null_count < len(found):
            break
    return np.asarray(pc.fill_null(found, -1), np.int64)


def _read_all(
    files: Sequence[InputFile], storage: StorageOptions, checksums: list[FileChecksum]
) -> Iterator[tuple[InputFile, bytes]]:
    readable = [file for file in files if not file.problem]
    coming = read_files(((file.uri, file.seen) for file in readable), storage)
    for file, data in zip(readable, coming, strict=True):
        checksums.append(FileChecksum(file.path, 0, len(data), crc32c(data)))
        yield file, data


def _raw_file(
    files: Sequence[InputFile], storage: StorageOptions, row: int
) -> tuple[str, int, bytes]:
    file = files[row]
    return file.path, 0, read_file(file.uri, storage, file.seen)


def _without_image(file: InputFile, data: bytes) -> Reject:
    reason = "there is no image of this name in the input"
    return Reject(file.path, 0, reason, data, "label")


def _takes_splits(options: ImagesOptions) -> bool:
    elsewhere = options.split_lists or "split" in options.groups
    return options.split_from == AUTO and not elsewhere


# Pascal VOC has an XML file for each image:
#
#     <annotation><size><width>500</width><height>375</height><depth>3</depth></size>
#       <object><name>dog</name><pose>Left</pose><truncated>1</truncated>
#         <difficult>0</difficult>
#         <bndbox><xmin>48</xmin><ymin>240</ymin><xmax>195</xmax><ymax>371</ymax></bndbox>
#       </object></annotation>
#
# and lists of the images of each split in ImageSets/Main: train.txt, val.txt, trainval.txt
# and test.txt. As in TFDS, a box is xmin / width and so on: nothing is subtracted.

_LIST = re.compile(r"(?:^|/)ImageSets/Main/(train|val|trainval|test)\.txt$")
_MOST_DEEP = 100  # elements in each other: the path of each is as long as that
_CORNERS = ("bndbox/ymin", "bndbox/xmin", "bndbox/ymax", "bndbox/xmax")


class _Voc(NamedTuple):
    """What an XML file has: texts by the path of their elements."""

    root: str
    image: dict[str, str]
    objects: list[dict[str, str]]


def _parse_xml(data: bytes) -> _Voc:
    """Parses a file; raises ExpatError, or ValueError if it defines entities or is deep."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    found = _Voc("", {}, [])
    names: list[str] = []
    roots: list[str] = []
    texts: list[str] = []

    def start(name: str, _: Any) -> None:
        roots.append(name) if not names else None
        names.append(name)
        texts.clear()
        if len(names) > _MOST_DEEP:
            raise ValueError(f"has more than {_MOST_DEEP} elements in each other")
        if names[1:] == ["object"]:
            found.objects.append({})

    def end(_: str) -> None:
        path = "/".join(names[1:])
        values = found.image
        if path.startswith("object/"):
            path, values = path.removeprefix("object/"), found.objects[-1]
        values.setdefault(path, "".join(texts).strip())
        names.pop()
        texts.clear()

    def refuse(*_: Any) -> None:
        raise ValueError("has a document type, which could define entities")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = texts.append
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.Parse(data, True)
    return found._replace(root=roots[0])


def find_voc(
    files: Sequence[InputFile], storage: StorageOptions, *, is_named: bool
) -> list[InputFile]:
    """Returns the XML files, if some are of Pascal VOC or they are named."""
    found = [each for each in files if each.path.lower().endswith(".xml")]
    folders = dict[str, list[InputFile]]()
    for each in () if is_named else found:
        if not each.problem:
            folders.setdefault(each.path.rpartition("/")[0], []).append(each)
    # One of each folder, then the next of each: a stray file may be the first of its own.
    together = zip_longest(*(each[:_SAMPLE] for each in folders.values()))
    sample = [each for row in together for each in row if each][:_SAMPLE]
    is_voc = is_named or any(
        b"<annotation"
        in read_range(each.uri, 0, min(each.size, _HEAD_BYTES), storage, each.seen)
        for each in sample
    )
    return found if is_voc else []


def read_voc(
    files: Sequence[InputFile],
    others: Sequence[InputFile],
    images: Inventory,
    options: ImagesOptions,
    storage: StorageOptions,
) -> ObjectFiles:
    """Reads files of Pascal VOC."""
    checksums, rejects = list[FileChecksum](), list[Reject]()
    file_of = _pair(files, images)
    image_of = {
        files[at].path: row for row, at in enumerate(file_of.tolist()) if at >= 0
    }
    rows, sizes, problems = (
        list[InputFile](),
        list[tuple[float, float]](),
        dict[int, str](),
    )
    of_image, boxes, objects = list[int](), list[list[float]](), list[dict[str, str]]()
    used = set[str]()
    for file, data in _read_all(files, storage, checksums):
        found, problem = _Voc("annotation", {}, []), ""
        size = (np.nan, np.nan)
        own: list[list[float]] = []
        try:
            found = _parse_xml(data)
            if found.root != "annotation":
                continue
            size = _voc_size(found.image)
            own = [
                _voc_box(number, each) for number, each in enumerate(found.objects, 1)
            ]
            if own and np.isnan(size).any():
                problem = "has no width and height of the image in its size"
        except (expat.ExpatError, ValueError) as error:
            problem = str(error)
        used.add(file.path)
        if file.path not in image_of:
            rejects.append(_without_image(file, data))
            continue
        if problem:
            problems[len(rows)] = f"{file.path}: {problem}. Correct it"
        else:
            of_image += [len(rows)] * len(own)
            boxes += own
            objects += found.objects
        rows.append(file)
        sizes.append(size)
    sides = np.array(sizes, np.float64).reshape(-1, 2)
    owners = np.array(of_image, np.int64)
    corners = (
        np.array(boxes, np.float64).reshape(-1, 4) / sides[owners][:, [0, 1, 0, 1]]
    )
    more = {
        f"is_{name}": pa.array([each.get(name) == "1" for each in objects], pa.bool_())
        for name in ("difficult", "truncated")
    }
    poses = [each.get("pose") or "Unspecified" for each in objects]
    more["pose"] = pa.array(poses, pa.string())
    labels = [each["name"] for each in objects]
    paths = images.paths.take(
        pa.array([image_of[file.path] for file in rows], pa.int64())
    )
    found_objects = Objects(
        paths.to_pylist(), sides, problems, owners, corners, labels, more
    )
    outside = Counter[str]()
    table = table_of(found_objects, (), options.boxes_outside, outside)
    if not rows:
        raise InputError(
            f"{files[0].uri}: neither it nor another of {count(len(files), 'XML file')} has "
            "the name of an image; expected names like "
            f"{shown(images[0].path.rpartition('/')[2])}, with the ending .xml, {OTHERWISE}"
        )
    raw = partial(_raw_file, rows, storage)
    tables = (LabelTable(rows[0], "", table, raw, tuple(checksums), tuple(rejects)),)
    facts = [("annotation format", f"Pascal VOC, {count(len(rows), 'file')}")]
    facts += outside_facts(outside, options.boxes_outside)
    lists = _voc_lists(others) if _takes_splits(options) else ()
    used |= {file.path for _, file in lists}
    return ObjectFiles(tables, (), tuple(facts), frozenset(used), lists)


def _voc_size(image: dict[str, str]) -> tuple[float, float]:
    """Returns height and width, or NaN; raises ValueError where they are not numbers."""
    return side_of(image.get("size/height")), side_of(image.get("size/width"))


def _voc_box(number: int, found: dict[str, str]) -> list[float]:
    """Returns ymin, xmin, ymax and xmax; raises ValueError where there is no box or name."""
    texts = [found.get(corner, "") for corner in _CORNERS]
    try:
        box = [float(text) for text in texts]
    except ValueError:
        box = []
    is_box = box and np.isfinite(box).all() and box[0] <= box[2] and box[1] <= box[3]
    if not is_box or not found.get("name"):
        raise ValueError(
            f"object {number} has the name {shown(found.get('name', ''))} and ymin, xmin, "
            f"ymax, xmax {' '.join(map(shown, texts))}; expected a name and numbers that rise"
        )
    return box


def _voc_lists(others: Sequence[InputFile]) -> tuple[tuple[str, InputFile], ...]:
    """Returns the lists of splits; trainval is that for training if train is not there."""
    lists = [(found[1], each) for each in others if (found := _LIST.search(each.path))]
    if {"train", "val"} & {split for split, _ in lists}:
        return tuple(each for each in lists if each[0] != "trainval")
    return tuple(("train" if s == "trainval" else s, each) for s, each in lists)


# YOLO has a text file for each image that has objects, with a line for each: the number of
# its class, then a box (centre x and y, width, height) or the points of an outline, all as
# fractions of the size, which it does not state.
#
#     2 0.5 0.5 0.25 0.5                 ymin 0.25, xmin 0.375, ymax 0.75, xmax 0.625
#     2 0.1 0.1 0.9 0.1 0.5 0.9          ymin 0.1, xmin 0.1, ymax 0.9, xmax 0.9
#
# The names of the classes are in data.yaml, which also says where the images of each
# split are; in obj.names (CVAT; obj.data has the lists of splits); or in classes.txt.


class Yolo(NamedTuple):
    """The files of a dataset in YOLO's format."""

    names: InputFile  # that has the names of the classes
    classes: tuple[str, ...]
    splits: tuple[tuple[str, str], ...]  # (split, folder or list) as that file has them
    labels: tuple[InputFile, ...]  # one for an image
    read: tuple[FileChecksum, ...]


def find_yolo(
    named: Sequence[InputFile],
    others: Sequence[InputFile],
    images: Inventory,
    storage: StorageOptions,
) -> Yolo | None:
    """Finds the names of classes, and the files of labels, among all files.

    Raises:
      InputError: several files have names of classes, or labels are named without such.
    """
    every = {file.path: file for file in (*named, *others) if not file.problem}
    if named and not any(
        path.lower().endswith((".yaml", ".yml", ".names", ".data", ".txt"))
        for path in (file.path for file in named)
    ):
        return None
    labels = [file for path, file in every.items() if path.lower().endswith(".txt")]
    paired = np.unique(_pair(labels, images)) if labels else np.array([-1])
    matched = [labels[at] for at in paired.tolist() if at >= 0 and labels[at].size]
    if paired[-1] < 0:
        return None
    checksums: list[FileChecksum] = []
    kinds: list[list[Yolo]] = [[], [], []]
    for file in (f for f in named if f.path in every) if named else every.values():
        name = file.path.rpartition("/")[2].lower()
        endings = (".yaml", ".yml"), (".names",), ("classes.txt",)
        kind = next((n for n, each in enumerate(endings) if name.endswith(each)), None)
        if kind is not None and file.size <= 1 << 20:
            data = read_range(file.uri, 0, file.size, storage, file.seen)
            checksum = FileChecksum(file.path, 0, len(data), crc32c(data))
            if (classes := _class_names(file, data, is_yaml=kind == 0)) is not None:
                splits = classes[1] or _obj_splits(file, every, storage, checksums)
                read = (checksum,)
                kinds[kind].append(Yolo(file, classes[0], splits, tuple(labels), read))
    found = next((each for each in kinds if each), [])
    if found and not named and not _are_labels(matched, found[0].classes, storage):
        return None
    if len(found) > 1 and len({each.classes for each in found}) > 1:
        raise InputError(
            f"{found[0].names.uri} and {found[1].names.uri} both have names of classes; "
            "expected one such file. Leave out one of them and its images with `exclude`, "
            "or convert the folder of each alone"
        )
    if not found and named:
        without = find_yolo((), others, images, storage)
        if without is None:
            raise InputError(
                f"`annotations`: {named[0].uri}: YOLO's labels need the names of the "
                "classes; expected data.yaml with names, obj.names or classes.txt. Add "
                "one to the input"
            )
        return without._replace(labels=tuple(labels))
    return found[0]._replace(read=(*found[0].read, *checksums)) if found else None


def _are_labels(
    files: Sequence[InputFile], classes: Sequence[str], storage: StorageOptions
) -> bool:
    """Returns whether one of some files has objects, of these classes or inside the image."""
    sample = files[:: len(files) // _SAMPLE + 1]
    for _, data in _read_all(sample, storage, []):
        lines, _ = _yolo_lines(data, 1 << 31)
        if lines and (
            max(label for label, _, _ in lines) < len(classes)
            or all(0 <= side <= 1 for _, box, _ in lines for side in box)
        ):
            return True
    return False


def _class_names(
    file: InputFile, data: bytes, *, is_yaml: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
    """Returns the classes and (split, place) of a file; None if it has no names."""
    if not is_yaml:
        lines = data.decode("utf-8-sig", "replace").splitlines()
        return tuple(line.strip() for line in lines if line.strip()), ()
    value = YamlDocument(data, file.uri).as_written()  # a class may be 1.50, or true
    names = value.get("names") if isinstance(value, dict) else None
    if isinstance(names, dict):
        numbers = [str(number) for number in range(len(names))]
        if {*names} != {*numbers}:
            raise InputError(
                f"{file.uri}: the numbers of its names are {first_names(sorted(names))}; "
                "expected 0, 1, 2 and so on"
            )
        names = [names[number] for number in numbers]
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        return None
    if value.get("kpt_shape"):
        raise InputError(
            f"{file.uri}: has kpt_shape: keypoints of YOLO are not read. Export them as "
            f"COCO (person_keypoints.json), {OTHERWISE}"
        )
    base = value.get("path")
    base = f"{base}/" if isinstance(base, str) else ""
    splits = []
    for split in ("train", "val", "valid", "test"):
        entries = value.get(split) or []
        for entry in [entries] if isinstance(entries, str) else entries:
            splits += [(split, f"{base}{entry}"), (split, str(entry))]
    return tuple(names), tuple(dict.fromkeys(splits))


def _obj_splits(
    names: InputFile,
    every: dict[str, InputFile],
    storage: StorageOptions,
    checksums: list[FileChecksum],
) -> tuple[tuple[str, str], ...]:
    """Returns the lists of splits that obj.data, beside obj.names, has."""
    file = every.get(re.sub(r"\.names$", ".data", names.path))
    if file is None or file is names:
        return ()
    data = read_range(file.uri, 0, file.size, storage, file.seen)
    checksums.append(FileChecksum(file.path, 0, len(data), crc32c(data)))
    pairs = (
        line.partition("=") for line in data.decode("utf-8", "replace").splitlines()
    )
    entries = {name.strip().lower(): value.strip() for name, _, value in pairs}
    wanted = ("train", "valid", "val", "test")
    return tuple((name, entries[name]) for name in wanted if entries.get(name))


def _places(entry: str, folder: str) -> list[str]:
    """Returns the paths that an entry of data.yaml may mean, below the input root.

    Datasets move, so an entry counts from the folder of that file, or from one above it,
    or is absolute, and then its last folders count.
    """
    joined = posixpath.normpath(posixpath.join(folder, entry.lstrip("/")))
    parts = [part for part in entry.split("/") if part not in ("", ".", "..")]
    below = [posixpath.join(folder, *parts[at:]) for at in range(len(parts))]
    above = ["/".join(parts[at:]) for at in range(len(parts))]
    return list(dict.fromkeys([joined, *below, *above]))


def _yolo_splits(
    found: Yolo, others: Sequence[InputFile], images: Inventory
) -> tuple[list[str], list[tuple[str, InputFile]]]:
    """Returns the split of each image by folders, or lists of the images of splits."""
    folder = found.names.path.rpartition("/")[0]
    files = {file.path: file for file in (*others, *found.labels)}
    paths = images.paths.combine_chunks()
    splits = np.full(len(images), "", np.object_)
    lists, done = [], set[str]()
    for split, entry in found.splits:
        if split in done:
            continue
        for place in _places(entry, folder):
            if file := files.get(place):
                lists.append((split, file))
            else:
                inside = np.asarray(pc.starts_with(paths, f"{place}/"), np.bool_)
                if not (inside & (splits == "")).any():
                    continue
                splits[inside & (splits == "")] = split
            done.add(split)
            break
    return splits.tolist(), lists


def read_yolo(
    found: Yolo,
    others: Sequence[InputFile],
    images: Inventory,
    options: ImagesOptions,
    storage: StorageOptions,
) -> ObjectFiles:
    """Reads files of YOLO; an image without one has no objects."""
    splits, lists = _yolo_splits(found, others, images)
    aside = {found.names.path, *(file.path for _, file in lists)}
    labels = [file for file in found.labels if file.path not in aside]
    file_of = _pair(labels, images)
    matched = {labels[at].path for at in file_of.tolist() if at >= 0}
    # Labels of other images may have other names of classes.
    below = images.paths.combine_chunks(), found.names.path.rpartition("/")[0]
    is_own = np.asarray(pc.starts_with(below[0], below[1] and f"{below[1]}/"), np.bool_)
    is_own |= np.array(splits, np.object_) != ""
    file_of[~is_own & is_own.any()] = -1
    if not _takes_splits(options):
        splits, lists = [], []
    folders = {_folder_key(labels[at].path) for at in file_of[file_of >= 0].tolist()}
    image_of = dict[str, list[int]]()
    rows, own = list[int](), list[InputFile | None]()
    for row, (path, at) in enumerate(
        zip(images.paths.to_pylist(), file_of.tolist(), strict=True)
    ):
        if at >= 0:
            image_of.setdefault(labels[at].path, []).append(len(rows))
        elif _folder_key(path) not in folders and not (splits and splits[row]):
            continue
        rows.append(row)
        own.append(labels[at] if at >= 0 else None)
    checksums, rejects, problems = [*found.read], list[Reject](), dict[int, str]()
    parts: list[tuple[int, list[tuple[int, list[float], str]]]] = []
    used = {*aside, *(checksum.path for checksum in found.read)}
    wanted = [f for f in labels if f.path in image_of or f.path not in matched]
    for file, data in _read_all(wanted, storage, checksums):
        lines, problem = _yolo_lines(data, len(found.classes))
        if file.path not in image_of:
            if lines and not problem:  # any other text is no file of labels
                rejects.append(_without_image(file, data))
                used.add(file.path)
            continue
        used.add(file.path)
        for row in image_of[file.path]:
            if problem:
                problems[row] = f"{file.path}, {problem}"
            parts.append((row, [] if problem else lines))
    with_labels = {
        splits[row] for row, file in zip(rows, own, strict=True) if file and splits
    }
    for row in rows if rejects and splits else ():
        if splits[row] not in with_labels:
            raise InputError(
                f"{images[row].uri}: it and all images of split {splits[row]} by "
                f"{found.names.path} have no file of labels, but "
                f"{count(len(rejects), 'file')} of labels, such as {rejects[0].path}, "
                "have no image; expected the same folders and names, as in images/val/a.jpg "
                "and labels/val/a.txt. Rename one of them, or leave out these labels with "
                "`exclude`"
            )
    parts.sort(key=lambda part: part[0])
    every = [(row, *line) for row, lines in parts for line in lines]
    boxes = np.array([box for _, _, box, _ in every], np.float64).reshape(-1, 4)
    more = {}
    if any(outline for *_, outline in every):
        outlines = [outline or "[]" for *_, outline in every]
        more["segmentation"] = pa.array(outlines, pa.string())
    paths = images.paths.take(pa.array(rows, pa.int64())).to_pylist()
    objects = Objects(
        paths,
        np.full((len(rows), 2), np.nan),
        problems,
        np.array([row for row, *_ in every], np.int64),
        boxes,
        [found.classes[number] for _, number, *_ in every],
        more,
    )
    of_rows = [splits[row] for row in rows] if any(splits) else []
    outside = Counter[str]()
    table = table_of(objects, of_rows, options.boxes_outside, outside)
    named = [file or images[row] for file, row in zip(own, rows, strict=True)]
    raw = partial(_raw_file, named, storage)
    tables = (
        LabelTable(found.names, "", table, raw, tuple(checksums), tuple(rejects)),
    )
    files = sum(1 for file in own if file is not None)
    facts = [("annotation format", f"YOLO, {count(files, 'file')} of labels")]
    if any(splits):
        facts.append(("splits", f"by {found.names.path}"))
    facts += outside_facts(outside, options.boxes_outside)
    return ObjectFiles(
        tables, found.classes, tuple(facts), frozenset(used), tuple(lists)
    )


def _folder_key(path: str) -> str:
    return re.sub(_ASIDE, r"\1", path).rpartition("/")[0]


def _yolo_lines(
    data: bytes, classes: int
) -> tuple[list[tuple[int, list[float], str]], str]:
    """Returns class, box (ymin, xmin, ymax, xmax) and outline of each line, or a problem."""
    found = []
    for number, line in enumerate(data.split(b"\n"), 1):
        tokens = line.split()
        if not tokens:
            continue
        try:
            label, values = int(float(tokens[0])), [*map(float, tokens[1:])]
            values = values if label == float(tokens[0]) else []
        except (ValueError, OverflowError):
            values, label = [], 0
        is_box = len(values) == 4
        if not (is_box or (len(values) >= 6 and len(values) % 2 == 0)) or not (
            np.isfinite(values).all()
        ):
            told = shown(line.decode("utf-8", "replace"))
            return [], (
                f"line {number}: is {told}; expected the number of a class, then a box of "
                "4 numbers or an outline of 3 points or more"
            )
        if not 0 <= label < classes:
            return [], f"line {number}: class {label} is not one of {classes:,} names"
        outline = ""
        if is_box:
            x, y, width, height = values
            box = [y - height / 2, x - width / 2, y + height / 2, x + width / 2]
        else:
            outline = json.dumps([values])
            xs, ys = values[::2], values[1::2]
            box = [min(ys), min(xs), max(ys), max(xs)]
        found.append((label, box, outline))
    return found, ""
