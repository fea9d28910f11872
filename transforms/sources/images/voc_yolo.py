"""Reads Pascal VOC and YOLO, which have an annotation file for each image.

An annotation file belongs to the image with the same path, apart from the ending and from
a folder name that means images or annotations:

    VOC2012/Annotations/2007_000027.xml     VOC2012/JPEGImages/2007_000027.jpg
    train/labels/1.txt                      train/images/1.jpg
    photos/1.xml                            photos/1.jpg

If no path matches, files are matched by name, provided that all names are unique.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Any, NamedTuple, Self
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count, format_names, is_utf8
from recordmill.schemas.yaml_lines import YamlDocument
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.inventory import Inventory, base_names, strip_extensions
from recordmill.transforms.sources.file_splits import AUTO, SPLIT_NAMES
from recordmill.transforms.sources.images.annotation_draft import ObjectFiles
from recordmill.transforms.sources.images.object_tables import (
    WITHOUT_BOXES_HINT,
    ImageObjects,
    build_tables,
    parse_side,
)
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.xml_text import parse_xml
from recordmill.transforms.storage.reading import (
    checksum_of,
    read_files,
    read_head,
    read_summed,
)

_HEAD_BYTES = 4096
_LABEL_BYTES = 1 << 16  # bytes of a text file that are checked for labels
_SAMPLE = 100  # files that are checked, to determine the kind of all files
_KIND_FOLDER = r"(?i)(^|/)(?:images|jpegimages|labels|annotations)/"


def _match_files(files: Sequence[InputFile], images: Inventory) -> I64:
    """Returns the index of each image's annotation file, or -1."""
    paths = (
        images.paths.combine_chunks(),
        pa.array([f.path for f in files], pa.string()),
    )
    shortened_paths = [
        pc.replace_substring_regex(path_array, _KIND_FOLDER, r"\1")
        for path_array in paths
    ]
    file_indices = pa.nulls(len(images), pa.int32())
    for keys in shortened_paths, [*map(base_names, paths)]:
        image_keys, file_keys = map(strip_extensions, keys)
        is_unique = all(
            len(key_array.unique()) == len(key_array)
            for key_array in (image_keys, file_keys)
        )
        if keys is shortened_paths or is_unique:
            file_indices = pc.index_in(image_keys, value_set=file_keys)
        if file_indices.null_count < len(file_indices):
            break
    return np.asarray(pc.fill_null(file_indices, -1), np.int64)


def _images_by_file(files: Sequence[InputFile], file_of: I64) -> dict[str, list[int]]:
    """Returns the indices of the images of each file, by path of the file.

    Args:
      files: the annotation files.
      file_of: the index of each image's file, or -1.
    """
    owners = dict[str, list[int]]()
    for row in np.flatnonzero(file_of >= 0).tolist():
        owners.setdefault(files[file_of[row]].path, []).append(row)
    return owners


class _FileContent(NamedTuple):
    """The content of an annotation file."""

    # of each object: class, box (ymin, xmin, ymax, xmax as fractions of the size) and
    # the cells of further columns
    objects: Sequence[tuple[Any, ...]] = ()
    size: tuple[float, float] = (np.nan, np.nan)  # height and width, if stated
    problem: str = ""  # why the image is a reject
    image_name: str = ""  # the file name of the image, if stated
    is_certain: bool = True  # whether the content alone proves the format


class _AnnotationFiles(NamedTuple):
    """The contents of the annotation files of one format."""

    contents: dict[int, tuple[InputFile, _FileContent]]  # by the index of the image
    used_paths: set[str]  # the paths of the files that have this format
    checksums: list[FileChecksum]
    rejects: list[Reject]  # files without an image

    @classmethod
    def read(
        cls,
        files: Sequence[InputFile],
        owners: Mapping[str, Sequence[int]],
        images: Inventory,
        parse: Callable[[bytes], _FileContent | None],
        storage: StorageOptions,
    ) -> _AnnotationFiles:
        """Reads and parses annotation files.

        Args:
          files: the candidates.
          owners: the indices of the images of each file, by path of the file.
          images: of the input.
          parse: returns the content of a file; None for a file of another format.
          storage: options of the inputs' storage.
        """
        annotation_files = cls({}, set(), [], [])
        for file in files:
            for row in owners.get(file.path, ()) if file.problem else ():
                annotation_files.contents[row] = (
                    file,
                    _FileContent(problem=file.problem),
                )
        readable = [file for file in files if not file.problem]
        coming = read_files(((file.uri, file.stat) for file in readable), storage)
        for file, content in zip(readable, coming, strict=True):
            annotation_files.checksums.append(checksum_of(file.path, content))
            labels = parse(content)
            rows = owners.get(file.path, ())
            if labels is None or not (rows or labels.is_certain):
                continue
            annotation_files.used_paths.add(file.path)
            if not rows:
                reason = "no image of this name in the input"
                annotation_files.rejects.append(
                    Reject(file.path, 0, reason, content, "label")
                )
            # If it matches a.jpg and a.png, it may name one of them.
            names = [images[row].path.rpartition("/")[2] for row in rows[1:] and rows]
            for row, name in zip_longest(rows, names):
                if name == labels.image_name or labels.image_name not in names:
                    annotation_files.contents[row] = file, labels
        return annotation_files

    def objects(
        self,
        file: InputFile,
        rows: Sequence[int],
        images: Inventory,
        kinds: Mapping[str, pa.DataType],
    ) -> ImageObjects:
        """Returns the objects of the selected images.

        Args:
          file: the annotation file that represents all files.
          rows: the indices of the images.
          images: of the input.
          kinds: the types of the further columns of objects.
        """
        labels_of_rows = [
            self.contents.get(row, (file, _FileContent())) for row in rows
        ]
        objects_of_rows = [
            () if row_labels.problem else row_labels.objects
            for _, row_labels in labels_of_rows
        ]
        all_objects = list(chain.from_iterable(objects_of_rows))
        labels, boxes, *more_columns = (
            zip(*all_objects, strict=True) if all_objects else [()] * (2 + len(kinds))
        )
        return ImageObjects(
            file,
            images.paths.take(pa.array(rows, pa.int64())).to_pylist(),
            np.array(
                [row_labels.size for _, row_labels in labels_of_rows], np.float64
            ).reshape(-1, 2),
            {
                at: f"{file.path}: {row_labels.problem}. Correct it"
                for at, (file, row_labels) in enumerate(labels_of_rows)
                if row_labels.problem
            },
            np.repeat(
                np.arange(len(rows)),
                [len(row_objects) for row_objects in objects_of_rows],
            ),
            np.array(boxes, np.float64).reshape(-1, 4),
            pa.array(labels, pa.string()),
            dict(zip(kinds, map(pa.array, more_columns, kinds.values()), strict=True)),
            checksums=tuple(self.checksums),
            rejects=tuple(self.rejects),
        )


# Pascal VOC has an XML file for each image:
#
#     <annotation><size><width>500</width><height>375</height><depth>3</depth></size>
#       <object><name>dog</name><pose>Left</pose><truncated>1</truncated>
#         <difficult>0</difficult>
#         <bndbox><xmin>48</xmin><ymin>240</ymin><xmax>195</xmax><ymax>371</ymax></bndbox>
#       </object></annotation>
#
# and lists of the images of each split in ImageSets/Main: train.txt, val.txt,
# trainval.txt and test.txt; CVAT writes Train.txt and Validation.txt. Lists of the images
# with masks are in ImageSets/Segmentation. As in TFDS, a box is xmin / width and so on,
# without an offset of 1 pixel.

_SPLIT_LIST = re.compile(
    rf"(?:^|/)ImageSets/(Main|Segmentation)/(trainval|{'|'.join(sorted(SPLIT_NAMES))})"
    r"\.txt$",
    re.IGNORECASE,
)
_CORNERS = ("bndbox/ymin", "bndbox/xmin", "bndbox/ymax", "bndbox/xmax")
_VOC = {"is_difficult": pa.bool_(), "is_truncated": pa.bool_(), "pose": pa.string()}


def _parse_voc(content: bytes) -> _FileContent | None:
    """Parses a file of Pascal VOC; returns None for another format."""
    try:
        root = parse_xml(content)
        if root.tag != "annotation":
            return None
        height, width = (
            parse_side(_element_text(root, f"size/{n}")) for n in ("height", "width")
        )
        objects = [
            _parse_voc_object(number, element, height, width)
            for number, element in enumerate(root.iterfind("object"), 1)
        ]
        if objects and np.isnan((height, width)).any():
            raise ValueError("has no width and height of the image in its size")
    except ValueError as error:
        return _FileContent(problem=str(error))
    return _FileContent(
        objects, (height, width), image_name=_element_text(root, "filename")
    )


def _element_text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _parse_voc_object(
    number: int, element: ElementTree.Element, height: float, width: float
) -> tuple[Any, ...]:
    """Returns class, box and flags of an object; raises ValueError without box or name.

    Args:
      number: of the object in its file, from 1.
      element: the XML of the object.
      height: of the image.
      width: of the image.
    """
    name, texts = (
        _element_text(element, "name"),
        [_element_text(element, corner) for corner in _CORNERS],
    )
    try:
        box = [float(text) for text in texts]
    except ValueError:
        box = []
    is_box = box and np.isfinite(box).all() and box[0] <= box[2] and box[1] <= box[3]
    if not is_box or not name:
        raise ValueError(
            f"object {number} has the name {shorten(name)} and ymin, xmin, ymax, xmax "
            f"{' '.join(map(shorten, texts))}; expected a name and numbers that rise"
        )
    parts = [box[0] / height, box[1] / width, box[2] / height, box[3] / width]
    flags = (_element_text(element, flag) == "1" for flag in ("difficult", "truncated"))
    return name, parts, *flags, _element_text(element, "pose") or "Unspecified"


def find_voc(
    files: Sequence[InputFile], storage: StorageOptions, *, is_named: bool
) -> list[InputFile]:
    """Returns the XML files, if a sample has Pascal VOC or `is_named` is set."""
    xml_files = [file for file in files if file.path.lower().endswith(".xml")]
    folders = dict[str, list[InputFile]]()
    for xml_file in () if is_named else xml_files:
        if not xml_file.problem:
            folders.setdefault(xml_file.path.rpartition("/")[0], []).append(xml_file)
    # The first file of each folder, then the second of each, so that a stray file which
    # is alone in its folder does not decide.
    together = zip_longest(
        *(folder_files[:_SAMPLE] for folder_files in folders.values())
    )
    sample = [file for row in together for file in row if file][:_SAMPLE]
    is_voc = is_named or any(
        re.search(rb"<annotation[\s>]", read_head(file, _HEAD_BYTES, storage))
        for file in sample
    )
    return xml_files if is_voc else []


def read_voc(
    files: Sequence[InputFile],
    other_files: Sequence[InputFile],
    images: Inventory,
    options: ImagesOptions,
    storage: StorageOptions,
) -> ObjectFiles:
    """Reads files of Pascal VOC.

    Args:
      files: the XML files.
      other_files: the input files that are no images, for lists of splits.
      images: of the input.
      options: of the job.
      storage: options of the inputs' storage.
    """
    owners = _images_by_file(files, _match_files(files, images))
    read = _AnnotationFiles.read(files, owners, images, _parse_voc, storage)
    rows = sorted(read.contents)
    if not rows:
        raise InputError(
            f"{files[0].uri}: no file ({format_count(len(files), 'XML file')}) has the name "
            "of an image; expected names like "
            f"{shorten(images[0].path.rpartition('/')[2])}, with the ending .xml, "
            f"{WITHOUT_BOXES_HINT}"
        )
    objects = read.objects(read.contents[rows[0]][0], rows, images, _VOC)
    tables, box_facts = build_tables([objects], options.boxes_outside)
    number = format_count(len(read.used_paths) - len(read.rejects), "file")
    facts = (("annotation format", f"Pascal VOC, {number}"), *box_facts)
    lists = find_voc_lists(other_files, "Main") if options.split_level == AUTO else ()
    used = frozenset(read.used_paths | {file.path for _, file in lists})
    return ObjectFiles(tables, facts=facts, used_paths=used, split_lists=lists)


def find_voc_lists(
    other_files: Sequence[InputFile], use: str
) -> tuple[tuple[str, InputFile], ...]:
    """Returns (split, file) of the lists for a use, or else of the lists for another use.

    The list trainval is used for training if there is no list train.

    Args:
      other_files: the input files that are no images.
      use: Main or Segmentation.
    """
    matched_lists = [
        (match, file)
        for file in other_files
        if (match := _SPLIT_LIST.search(file.path))
    ]
    lists_of_use = [pair for pair in matched_lists if pair[0][1].lower() == use.lower()]
    lists = [(match[2].lower(), file) for match, file in lists_of_use or matched_lists]
    if {split for split, _ in lists} - {"trainval", "test"}:
        return tuple(
            split_and_file
            for split_and_file in lists
            if split_and_file[0] != "trainval"
        )
    return tuple(("train" if s == "trainval" else s, file) for s, file in lists)


# YOLO has a text file for each image with objects. Each line has the number of the class,
# then a box (centre x and y, width, height) or the points of an outline, all as fractions
# of the image size. The size itself is not stated.
#
#     2 0.5 0.5 0.25 0.5                 ymin 0.25, xmin 0.375, ymax 0.75, xmax 0.625
#     2 0.1 0.1 0.9 0.1 0.5 0.9          ymin 0.1, xmin 0.1, ymax 0.9, xmax 0.9
#
# The class names are in data.yaml, which also has the image folders of each split; in
# obj.names (CVAT, whose obj.data has the lists of splits); or in classes.txt.


_YOLO = {"segmentation": pa.string()}
_MAX_PATH = 4096  # characters; no file has a longer path
# Endings of files with class names, in order of precedence. Roboflow writes
# _darknet.labels.
_NAMES_ENDINGS = (".yaml", ".yml"), (".names", "_darknet.labels"), ("classes.txt",)


class YoloFiles(NamedTuple):
    """The files of a dataset in YOLO's format."""

    names_file: InputFile  # the file with the class names, or the first of several
    classes: tuple[str, ...]
    # (split, folder or list) as written in that file
    splits: tuple[tuple[str, str], ...]
    label_files: tuple[InputFile, ...]  # text files, at most one for each image
    checksums: tuple[
        FileChecksum, ...
    ]  # checksums of the files with class names and splits
    folders: tuple[str, ...] = ()  # the folders of all files with these class names

    def with_lists(self, file_bytes: bytes, checksum: FileChecksum) -> Self:
        """Returns a copy with the lists of splits of obj.data, next to obj.names.

        Args:
          file_bytes: the content of obj.data.
          checksum: of obj.data.
        """
        lines = file_bytes.decode("utf-8", "replace").splitlines()
        pairs = (line.partition("=") for line in lines)
        fields = {name.strip().lower(): text.strip() for name, _, text in pairs}
        split_names = ("train", "valid", "val", "test")
        splits = tuple((name, fields[name]) for name in split_names if fields.get(name))
        return self._replace(splits=splits, checksums=(*self.checksums, checksum))


def find_yolo(
    annotation_files: Sequence[InputFile],
    other_files: Sequence[InputFile],
    images: Inventory,
    storage: StorageOptions,
    *,
    is_new: bool,
) -> YoloFiles | None:
    """Finds the class names and label files of YOLO; returns None if there are none.

    Args:
      annotation_files: the files that `annotations` names.
      other_files: the input files that are no images.
      images: of the input.
      storage: options of the inputs' storage.
      is_new: whether the input becomes a new dataset.

    Raises:
      InputError: several files have class names; label files match no image; or label
        files have no class names, and are named or become a new dataset.
    """
    files_by_path = {file.path: file for file in (*annotation_files, *other_files)}
    endings = (".yaml", ".yml", ".names", ".data", ".labels", ".txt")
    if annotation_files and not any(
        file.path.lower().endswith(endings) for file in annotation_files
    ):
        return None
    labels = [
        file for path, file in files_by_path.items() if path.lower().endswith(".txt")
    ]
    if not labels:
        return None
    paired = np.unique(_match_files(labels, images))
    matched = [labels[at] for at in paired.tolist() if at >= 0 and labels[at].size]
    is_paired = bool(paired[-1] >= 0)
    if not is_paired:
        has_names = any(
            path.lower().endswith(tuple(chain(*_NAMES_ENDINGS)))
            for path in files_by_path
        )
        if not (has_names and _have_labels(labels, (), storage)):
            return None
    kinds: list[list[YoloFiles]] = [[], [], []]
    for file in annotation_files or files_by_path.values():
        name = file.path.lower()
        kind = next(
            (
                n
                for n, name_endings in enumerate(_NAMES_ENDINGS)
                if name.endswith(name_endings)
            ),
            None,
        )
        if kind is not None and not file.problem and file.size <= 1 << 20:
            file_bytes, checksum = read_summed(file, storage)
            if (
                classes := _parse_class_names(file, file_bytes, is_yaml=kind == 0)
            ) is not None:
                lists = files_by_path.get(re.sub(r"\.names$", ".data", file.path), file)
                names, splits = classes
                candidate = YoloFiles(file, names, splits, tuple(labels), (checksum,))
                if not splits and lists is not file and not lists.problem:
                    candidate = candidate.with_lists(*read_summed(lists, storage))
                kinds[kind].append(candidate)
    candidates = next(
        (candidates_of_kind for candidates_of_kind in kinds if candidates_of_kind), []
    )
    is_doubtful = is_paired and candidates and not annotation_files
    if is_doubtful and not _have_labels(matched, candidates[0].classes, storage):
        return None
    if candidates and not is_paired:
        raise InputError(
            f"{labels[0].uri}: no file ({format_count(len(labels), 'text file')}) has the "
            "name of an image; expected labels/1.txt for images/1.jpg. Some are labels "
            f"of the classes that {candidates[0].names_file.path} names. Rename them like their "
            f"images, {WITHOUT_BOXES_HINT}"
        )
    if len(candidates) > 1 and len({candidate.classes for candidate in candidates}) > 1:
        raise InputError(
            f"{candidates[0].names_file.uri} and {candidates[1].names_file.uri} both contain class names; "
            "expected one such file. Leave out one of them and its images with "
            "`exclude`, or convert the folder of each alone"
        )
    if (
        is_new
        and not (candidates or annotation_files)
        and _have_labels(matched, (), storage)
    ):
        raise InputError(
            f"{matched[0].uri}: has YOLO labels, which require class names; expected "
            "data.yaml with names, obj.names or classes.txt. Add one to the input and "
            f"name it in `annotations`, {WITHOUT_BOXES_HINT}"
        )
    if not candidates and annotation_files:
        without = find_yolo((), other_files, images, storage, is_new=is_new)
        if without is None:
            raise InputError(
                f"`annotations`: {annotation_files[0].uri}: YOLO labels require class names; "
                "expected data.yaml with names, obj.names or classes.txt. Add one to "
                "the input"
            )
        return without._replace(label_files=tuple(labels))
    if not candidates:
        return None
    folders = (candidate.names_file.path.rpartition("/")[0] for candidate in candidates)
    return candidates[0]._replace(folders=tuple(dict.fromkeys(folders)))


def _have_labels(
    files: Sequence[InputFile], classes: Sequence[str], storage: StorageOptions
) -> bool:
    """Tests whether a sampled file has objects of the classes or inside the image."""
    sample = files[:: len(files) // _SAMPLE + 1]
    for file in [sample_file for sample_file in sample if not sample_file.problem]:
        lines = read_head(file, _LABEL_BYTES, storage)
        complete_lines = (
            lines if len(lines) == file.size else lines.rpartition(b"\n")[0]
        )
        parsed_labels = _parse_yolo(complete_lines, range(1 << 31))
        if parsed_labels.is_certain and (
            max(label for label, *_ in parsed_labels.objects) < len(classes)
            or all(
                0 <= side <= 1 for _, box, _ in parsed_labels.objects for side in box
            )
        ):
            return True
    return False


def _parse_class_names(
    file: InputFile, file_bytes: bytes, *, is_yaml: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
    """Returns the classes and (split, location) pairs of a file; None without names."""
    if not is_yaml:
        lines = file_bytes.decode("utf-8-sig", "replace").splitlines()
        listed = [line.strip() for line in lines if line.strip()]
        _require_distinct(listed, file.uri)
        return tuple(listed), ()
    document = YamlDocument(file_bytes, file.uri)
    settings = document.written_value()  # a class may be 1.50, or true
    names = settings.get("names") if isinstance(settings, dict) else None
    if isinstance(names, dict):
        numbers = [str(number) for number in range(len(names))]
        if {*names} != {*numbers}:
            raise InputError(
                f"{file.uri}: the numbers of its names are {format_names(sorted(names))}; "
                "expected 0, 1, 2 and so on"
            )
        names = [names[number] for number in numbers]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    _require_distinct(names, f"{file.uri}: line {document.line_of(['names'])}")
    if not all(map(is_utf8, names)):
        raise InputError(
            f"{file.uri}: a class name has an unpaired surrogate (\\ud800 to \\udfff); "
            "expected valid Unicode text. Correct it in this file"
        )
    if settings.get("kpt_shape"):
        raise InputError(
            f"{file.uri}: has kpt_shape: keypoints of YOLO are not supported. Export "
            f"them as COCO (person_keypoints.json), {WITHOUT_BOXES_HINT}"
        )
    base = settings.get("path")
    base = f"{base}/" if isinstance(base, str) else ""
    splits = []
    for split in ("train", "val", "valid", "test"):
        locations = settings.get(split) or []
        for location in [locations] if isinstance(locations, str) else locations:
            splits += [(split, f"{base}{location}"), (split, str(location))]
    return tuple(names), tuple(dict.fromkeys(splits))


def _require_distinct(names: Sequence[str], location: str) -> None:
    """Raises InputError if a class name occurs twice, because labels are positions."""
    numbers = dict[str, int]()
    for number, name in enumerate(names):
        if (first := numbers.setdefault(name, number)) != number:
            raise InputError(
                f"{location}: classes {first} and {number} both have the name "
                f"{shorten(name)}; expected different names. Rename one of them, "
                f"{WITHOUT_BOXES_HINT}"
            )


def _candidate_paths(location: str, folder: str) -> list[str]:
    """Returns the candidate paths of a location in data.yaml, below the input root.

    Datasets are moved, so a location may be relative to the folder of that file or to one
    of its parents. Only the last folders of an absolute location may still be right.

    Args:
      location: as written in the file.
      folder: of data.yaml.
    """
    if len(location) > _MAX_PATH:
        return []
    joined = posixpath.normpath(posixpath.join(folder, location.lstrip("/")))
    parts = [part for part in location.split("/") if part not in ("", ".", "..")]
    below = [posixpath.join(folder, *parts[at:]) for at in range(len(parts))]
    above = ["/".join(parts[at:]) for at in range(len(parts))]
    return list(dict.fromkeys([joined, *below, *above]))


def _find_yolo_splits(
    yolo: YoloFiles, other_files: Sequence[InputFile], images: Inventory
) -> tuple[list[str], list[tuple[str, InputFile]]]:
    """Returns the split of each image by its folder, and (split, file) of image lists."""
    folder = yolo.names_file.path.rpartition("/")[0]
    files = {file.path: file for file in (*other_files, *yolo.label_files)}
    paths = images.paths.combine_chunks()
    splits = np.full(len(images), "", np.object_)
    lists, done = [], set[str]()
    for split, location in yolo.splits:
        if split in done:
            continue
        for place in _candidate_paths(location, folder):
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
    yolo: YoloFiles,
    other_files: Sequence[InputFile],
    images: Inventory,
    options: ImagesOptions,
    storage: StorageOptions,
) -> ObjectFiles:
    """Reads the label files of YOLO; an image without a label file has no objects.

    Args:
      yolo: the files to read.
      other_files: the input files that are no images, for lists of splits.
      images: of the input.
      options: of the job.
      storage: options of the inputs' storage.

    Raises:
      InputError: all images of a split lack labels, and some labels lack an image.
    """
    splits, lists = _find_yolo_splits(yolo, other_files, images)
    other_paths = {yolo.names_file.path, *(file.path for _, file in lists)}
    labels = [file for file in yolo.label_files if file.path not in other_paths]
    file_of = _match_files(labels, images)
    matched = _images_by_file(labels, file_of).keys()
    # The labels of images in other folders may have other class names.
    is_own, paths = np.array(splits, np.object_) != "", images.paths.combine_chunks()
    for folder in yolo.folders:
        is_own |= np.asarray(pc.starts_with(paths, folder and f"{folder}/"), np.bool_)
    file_of[~is_own & is_own.any()] = -1
    if options.split_level != AUTO:
        splits, lists = [], []
    owners = _images_by_file(labels, file_of)
    folders = {_folder_key(path) for path in owners}
    rows = [
        row
        for row, path in enumerate(images.paths.to_pylist())
        if file_of[row] >= 0 or _folder_key(path) in folders or (splits and splits[row])
    ]
    # The other label files match images that use other labels.
    label_files = [f for f in labels if f.path in owners or f.path not in matched]
    parse = partial(_parse_yolo, names=yolo.classes)
    read = _AnnotationFiles.read(label_files, owners, images, parse, storage)
    with_labels = {splits[row] for row in read.contents if splits}
    for row in rows if read.rejects and splits else ():
        if splits[row] not in with_labels:
            raise InputError(
                f"{images[row].uri}: it and all images of split {splits[row]} by "
                f"{yolo.names_file.path} have no label file; expected the same folders and "
                "names, as in images/val/a.jpg and labels/val/a.txt. But "
                f"{format_count(len(read.rejects), 'file')} of labels, such as "
                f"{read.rejects[0].path}, have no image. Rename one of them, or leave "
                "out these label files with `exclude`"
            )
    objects = read.objects(yolo.names_file, rows, images, _YOLO)
    if any(splits):
        objects = objects._replace(splits=[splits[row] for row in rows])
    objects = objects._replace(checksums=(*yolo.checksums, *objects.checksums))
    tables, box_facts = build_tables([objects], options.boxes_outside)
    number = format_count(len(read.contents), "file")
    facts = [("annotation format", f"YOLO, {number} of labels")]
    facts += [("splits", f"by {yolo.names_file.path}")] * any(splits)
    used = frozenset(
        other_paths | {checksum.path for checksum in yolo.checksums} | read.used_paths
    )
    facts += box_facts
    return ObjectFiles(tables, yolo.classes, tuple(facts), used, tuple(lists))


def _folder_key(path: str) -> str:
    return re.sub(_KIND_FOLDER, r"\1", path).rpartition("/")[0]


def _parse_yolo(content: bytes, names: Sequence[Any]) -> _FileContent:
    """Returns the objects of a label file up to the first invalid line, and its problem.

    Args:
      content: the file.
      names: the class names; labels are indices into them.
    """
    objects = list[tuple[Any, ...]]()
    for number, line in enumerate(content.split(b"\n"), 1):
        tokens = line.split()
        if not tokens:
            continue
        try:
            label, numbers = int(float(tokens[0])), [*map(float, tokens[1:])]
            numbers = numbers if label == float(tokens[0]) else []
        except (ValueError, OverflowError):
            numbers, label = [], 0
        is_box, is_outline = (
            len(numbers) == 4,
            len(numbers) >= 6 and not len(numbers) % 2,
        )
        problem = ""
        if not (is_box or is_outline) or not np.isfinite(numbers).all():
            problem = (
                f"is {shorten(line.decode('utf-8', 'replace'))}; expected the number of a "
                "class, then a box of 4 numbers or an outline of 3 points or more"
            )
        elif not 0 <= label < len(names):
            problem = f"class {label} is not one of {len(names):,} names"
        if problem:
            located_problem = f"line {number}: {problem}"
            return _FileContent(objects, problem=located_problem, is_certain=False)
        if is_box:
            x, y, width, height = numbers
            box = [y - height / 2, x - width / 2, y + height / 2, x + width / 2]
        else:
            xs, ys = numbers[::2], numbers[1::2]
            box = [min(ys), min(xs), max(ys), max(xs)]
        objects.append((names[label], box, "[]" if is_box else json.dumps([numbers])))
    return _FileContent(objects, is_certain=bool(objects))
