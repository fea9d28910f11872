"""Finds the annotation files with the objects in images, and reads COCO files."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputWarning
from recordmill.schemas.input_text import as_input_error, parse_json
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_bytes, format_count, format_names
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.images.objects import with_numbers
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.file_splits import AUTO, NONE, FileSplits
from recordmill.transforms.sources.images import voc_yolo
from recordmill.transforms.sources.images.annotation_draft import (
    NO_OBJECTS,
    ObjectFiles,
)
from recordmill.transforms.sources.images.object_tables import (
    NO_OUTLINE,
    WITHOUT_BOXES_HINT,
    ImageObjects,
    build_tables,
    parse_side,
)
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.tables import MAX_BYTES
from recordmill.transforms.storage.reading import read_head, read_range, read_summed


def find_objects(
    annotation_files: Sequence[tuple[str, InputFile]],
    other_files: Sequence[InputFile],
    images: Inventory,
    options: ImagesOptions,
    storage: StorageOptions,
    *,
    is_new: bool,
) -> ObjectFiles:
    """Finds the objects of images in the named annotation files, or else in other files.

    Objects in files that no option names are ignored if they cover less than half of the
    images, because a tree of class folders may contain a stray annotation file.

    Args:
      annotation_files: (split, file) of each file that `annotations` names.
      other_files: the input files that are no images.
      images: of the input.
      options: of the job.
      storage: options of the inputs' storage.
      is_new: whether the input becomes a new dataset.

    Raises:
      InputError: the files have several formats; a named file has none of the supported
        formats; or the input becomes a new dataset and has an unsupported format.
    """
    files = annotation_files or [("", file) for file in other_files]
    coco = _find_coco_files(files, storage, is_named=bool(annotation_files))
    candidate_files = [file for _, file in files]
    voc = voc_yolo.find_voc(candidate_files, storage, is_named=bool(annotation_files))
    of_yolo = candidate_files if annotation_files else ()
    yolo = voc_yolo.find_yolo(of_yolo, other_files, images, storage, is_new=is_new)
    if not annotation_files and (voc or yolo is not None):
        # Label Studio writes notes.json next to YOLO labels: categories without images.
        coco = [
            split_and_file
            for split_and_file in coco
            if not _why_no_objects(_read_keys(split_and_file[1], storage))
        ]
    files_by_format = {
        "COCO": [file for _, file in coco],
        "Pascal VOC": voc,
        "YOLO": [] if yolo is None else [yolo.names_file],
    }
    format_texts = [
        f"{name} ({format_names([file.path for file in format_files], 3)})"
        for name, format_files in files_by_format.items()
        if format_files
    ]
    if len(format_texts) > 1:
        raise InputError(
            f"{images.root}: has annotations of {' and of '.join(format_texts)}; expected "
            f"one format: name the files to use in `annotations`, {WITHOUT_BOXES_HINT}"
        )
    if is_new and not format_texts:
        require_supported_formats(candidate_files, storage)
    if annotation_files and not format_texts:
        raise InputError(
            f"`annotations`: {annotation_files[0][1].uri}: is not a file of COCO (.json), Pascal "
            "VOC (.xml) or YOLO (data.yaml, obj.names or classes.txt, next to labels): "
            f"name such files, {WITHOUT_BOXES_HINT}"
        )
    objects = NO_OBJECTS
    if coco:
        objects = _read_coco(coco, options, storage, is_named=bool(annotation_files))
    elif voc:
        objects = voc_yolo.read_voc(voc, other_files, images, options, storage)
    elif yolo is not None:
        objects = voc_yolo.read_yolo(yolo, other_files, images, options, storage)
    number = sum(len(table.rows) for table in objects.tables)
    if annotation_files or not objects.tables or number * 2 >= len(images):
        return objects
    first = objects.tables[0].file.path
    message = (
        f"{format_names(sorted(objects.used_paths), 3)}: has objects of "
        f"{format_count(number, 'image')}, but the input has {len(images):,} images: it is "
        f"left out, and images have no boxes. Use `annotations={first}` for these "
        "boxes, with `unlisted=leave_out` for only these images; use "
        "`annotations=none` if there are no boxes"
    )
    return NO_OBJECTS._replace(warnings=(InputWarning("few-annotations", message),))


# Unsupported annotation formats: (name, ending, pattern of the first bytes).
_UNSUPPORTED_FORMATS = (
    ("CVAT's own XML", ".xml", rb"(<\?xml[^\n]*?\?>)?\s*<annotations>\s*<version>"),
    ("Create ML", ".json", rb'\s*\[\s*\{\s*"image"\s*:.*"annotations"\s*:'),
    ("labelme", ".json", rb'\s*\{\s*"version"\s*:.*"shapes"\s*:'),
)
SAMPLED_FILES = 10  # files of each format
_LONG_HEAD_BYTES = 1 << 12


def require_supported_formats(
    files: Sequence[InputFile], storage: StorageOptions
) -> None:
    """Raises InputError if a file has objects in an unsupported format."""
    for name, ending, begin in _UNSUPPORTED_FORMATS:
        candidate_files = [
            f for f in files if f.path.lower().endswith(ending) and not f.problem
        ]
        for file in candidate_files[:SAMPLED_FILES]:
            if re.match(begin, read_head(file, _LONG_HEAD_BYTES, storage), re.DOTALL):
                raise InputError(
                    f"{file.uri}: has objects in the format of {name}, which is not "
                    "supported; expected COCO, Pascal VOC or YOLO. Export them as one "
                    "of these, or use `annotations=none` and `pair=none` for images "
                    "without annotations, and `label_from=none` if they have no classes"
                )


# COCO has one file for all images, or for the images of a split:
#
#     {"images": [{"id": 7, "file_name": "a.jpg", "height": 480, "width": 640}, ...],
#      "categories": [{"id": 18, "name": "dog"}, ...],
#      "annotations": [{"id": 1, "image_id": 7, "category_id": 18, "iscrowd": 0,
#        "bbox": [x, y, width, height], "area": 702.1, "segmentation": [[x, y, ...]]}, ...]}
#
# The file of 118,000 images has 450 MB, most of it polygons. Polygons stay text: each is
# cut out of the file and replaced by its index in a list. Arrow parses the remaining
# file; Python parses it if it has unusual values.

_COCO_HEAD = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:info|licen[cs]es?|images|annotations|categories|type)"'
)
_HEAD_BYTES = 256
_REPEATED_FILE = re.compile(
    r"(^|/)(?:person_keypoints|captions|panoptic|stuff)_(?=[^/]*$)"
)
_MAX_JSON_FILES = 100  # files in one folder; more are files of one image each
_KEYS = (  # keys that determine the kind of a file
    *("segments_info", "caption", "bbox", "image_id"),
    *("images", "annotations", "categories"),
)
_PART_BYTES, _MAX_KEY_BYTES = 1 << 24, 16  # bytes read at once; bytes of a quoted key


def _find_coco_files(
    files: Iterable[tuple[str, InputFile]], storage: StorageOptions, *, is_named: bool
) -> list[tuple[str, InputFile]]:
    """Returns the JSON files that begin like COCO; all JSON files if `is_named`."""
    json_files = [
        split_and_file
        for split_and_file in files
        if split_and_file[1].path.lower().endswith(".json")
    ]
    per_folder = Counter(file.path.rpartition("/")[0] for _, file in json_files)
    return [
        split_and_file
        for split_and_file in json_files
        if is_named
        or (
            per_folder[split_and_file[1].path.rpartition("/")[0]] <= _MAX_JSON_FILES
            and _COCO_HEAD.match(read_head(split_and_file[1], _HEAD_BYTES, storage))
        )
    ]


def _find_keys(file_bytes: bytes) -> set[str]:
    return {name for name in _KEYS if f'"{name}"'.encode() in file_bytes}


def _read_keys(file: InputFile, storage: StorageOptions) -> set[str]:
    """Returns the keys in a file; reads it in parts, to use little memory."""
    keys = set[str]()
    for start in range(0, file.size, _PART_BYTES):
        stop = min(file.size, start + _PART_BYTES + _MAX_KEY_BYTES)
        keys |= _find_keys(read_range(file.uri, start, stop, storage, file.stat))
    return keys


def _why_no_objects(names: set[str]) -> str:
    """Returns why a file with these keys has no COCO objects; "" if it may have some."""
    if "segments_info" in names:
        return "has panoptic segmentation, whose masks are in other images"
    if "caption" in names and "bbox" not in names:
        return "has captions, not boxes"
    lacking = {"images", "annotations", "categories"} - names
    lacking |= {"bbox"} - names if "image_id" in names else set()
    return f"has no {format_names(sorted(lacking))}" if lacking else ""


F32 = pa.float32()
_OUTLINE = re.compile(
    rb'"segmentation"[ \t\r\n]*:[ \t\r\n]*'
    rb"(\[(?:[-+\d.,eE \t\r\n]++|\[[-+\d.,eE \t\r\n]*+\])*+\]|"
    rb'\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\})'
)
# the key of an outline's index, which replaces the outline
_OUTLINE_INDEX = "segmentation, cut"
_EXPECTED_FIELDS = (
    "images with id and file_name, categories with id and name, and annotations. Correct "
    f"it, {WITHOUT_BOXES_HINT}"
)
_NUMBER = r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_RING = rf"\[(?:{_NUMBER}(?:,{_NUMBER})*)?\]"
_VALID_OUTLINE = rf'^(?:\[(?:{_RING}(?:,{_RING})*)?\]|\{{"size".*)$'
_PROBLEMS = (
    "bbox is not x, y, width and height: four numbers, no side below 0",
    "area is not a number in the range of float32",
    "segmentation is not a list of polygons, or run lengths with size and counts",
    "keypoints are not a list of numbers in the range of float32",
)
_REQUIRED = ("id", "file_name"), ("id", "name"), ("image_id", "category_id", "bbox")


def _field_types(of_ids: pa.DataType) -> dict[str, pa.StructType]:
    """Returns the types of the fields that are read, by list of the COCO file.

    Args:
      of_ids: the type of the ids.
    """
    number = pa.float64()
    ids = dict.fromkeys(("id", "image_id", "category_id"), of_ids)
    images = {"id": of_ids, "file_name": pa.string(), "height": number, "width": number}
    objects = {**ids, "bbox": pa.list_(number), "keypoints": pa.list_(number)}
    objects |= {"area": number, "iscrowd": pa.int64(), _OUTLINE_INDEX: pa.int64()}
    objects["segmentation"] = pa.null()  # else unusual outlines, or escapes in the key
    return {
        "images": pa.struct(images.items()),
        "categories": pa.struct({"id": of_ids, "name": pa.string()}.items()),
        "annotations": pa.struct(objects.items()),
    }


def _cut_outlines(file_bytes: bytes) -> tuple[bytes, list[bytes]]:
    """Returns a COCO file with each outline replaced by its index, and the outlines."""
    outlines = list[bytes]()

    def cut(match: re.Match[bytes]) -> bytes:
        outlines.append(_normalize_outline(match[1]))
        return b'"%b":%d' % (_OUTLINE_INDEX.encode(), len(outlines) - 1)

    return _OUTLINE.sub(cut, file_bytes), outlines


def _parse_lists(
    file_bytes: bytes, outlines: list[bytes], location: str
) -> tuple[list[pa.RecordBatch], list[Any]]:
    """Returns the images, categories and annotations of a COCO file.

    The second element of the tuple are the annotations without an image id. Any error
    means that the file is no valid COCO file.

    Args:
      file_bytes: the file with the outlines cut out.
      outlines: the outlines; the ones that were not cut out are appended.
      location: of the file, for errors.
    """
    if (parts := _parse_lists_by_arrow(file_bytes)) is not None:
        return parts, []
    document = parse_json(file_bytes, location, expected=_EXPECTED_FIELDS)
    if any(isinstance(category["name"], float) for category in document["categories"]):
        with_texts = parse_json(file_bytes, location, parse_float=str)
        document |= {"categories": with_texts["categories"]}
    annotations = [
        e if isinstance(e, dict) else {"id": e} for e in document["annotations"]
    ]
    images = [
        {
            "id": _id_text(image["id"]),
            "file_name": str(image["file_name"]),
            **{name: parse_side(image.get(name)) for name in ("height", "width")},
        }
        for image in document["images"]
    ]
    categories = [
        {"id": _id_text(category["id"]), "name": _category_name(category["name"])}
        for category in document["categories"]
    ]
    objects = [
        _plain_annotation(annotation, outlines)
        for annotation in annotations
        if "image_id" in annotation
    ]
    rows = images, categories, objects
    arrays = map(pa.array, rows, _field_types(pa.string()).values())
    lost = [annotation for annotation in annotations if "image_id" not in annotation]
    return [pa.RecordBatch.from_struct_array(array) for array in arrays], lost


def _parse_lists_by_arrow(file_bytes: bytes) -> list[pa.RecordBatch] | None:
    """Returns images, categories and annotations; None if types or fields are unusual."""
    # Arrow takes each line for a document. A line break is a blank here, never in a text.
    line = file_bytes.translate(bytes.maketrans(b"\r\n", b"\t\t"))
    schema = pa.schema({n: pa.list_(k) for n, k in _field_types(pa.int64()).items()})
    try:
        table = pj.read_json(
            pa.BufferReader(line),
            pj.ReadOptions(use_threads=False, block_size=len(line) + 1),
            pj.ParseOptions(schema, unexpected_field_behavior="ignore"),
        )
        file_bytes.decode()  # Arrow checks neither keys nor fields that it ignores
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    lists = [table[name].chunk(0) for name in schema.names]
    if len(table) != 1 or any(list_column.null_count for list_column in lists):
        return None
    parts = [
        pa.RecordBatch.from_struct_array(list_column.flatten()) for list_column in lists
    ]
    boxes, points = (parts[2][name] for name in ("bbox", "keypoints"))
    required = [p[n] for p, names in zip(parts, _REQUIRED, strict=True) for n in names]
    required += [boxes.flatten(), points.flatten()]
    has_four = pc.all(pc.equal(pc.list_value_length(boxes), 4)).as_py() is not False
    is_plain = has_four and not any(column.null_count for column in required)
    return parts if is_plain else None


def _category_name(name: Any) -> str:
    if name is None or isinstance(name, dict | list):
        raise ValueError(f"the name of a category is {shorten(name)}; expected text")
    return str(name)


def _id_text(json_id: Any) -> str:
    return str(json_id).encode(errors="replace").decode()


def _normalize_outline(text: bytes) -> bytes:
    """Returns an outline in its stored form; "0" if it is invalid, "?" if not JSON."""
    if not text.startswith(b"{"):
        text = text.replace(b", ", b",")
        if len(text.split(maxsplit=1)) > 1:
            text = re.sub(rb"\s*([\[\],])\s*", rb"\1", text)
        return text
    try:
        runs = parse_json(text, "segmentation")
    except InputError:
        return b"?"
    if not runs:
        return NO_OUTLINE.encode()
    with suppress(InputError), as_input_error("segmentation", "size and counts"):
        size, counts = runs["size"], runs["counts"]
        numbers = [*size, *(() if isinstance(counts, str) else counts)]
        if all(type(number) is int and number >= 0 for number in numbers):
            run_lengths = {"size": size, "counts": counts}
            return json.dumps(run_lengths, separators=(",", ":")).encode()
    return b"0"


def _parse_numbers(numbers: Any) -> list[float]:
    """Returns JSON numbers as floats; a single NaN if one of them is no number."""
    try:
        return [*map(float, numbers)]
    except (TypeError, ValueError, OverflowError):
        return [math.nan]


def _plain_annotation(
    annotation: dict[str, Any], outlines: list[bytes]
) -> dict[str, Any]:
    """Returns the fields of an annotation; an invalid box is None, other numbers are NaN.

    Args:
      annotation: as parsed from JSON.
      outlines: the outlines that were cut out of the file; its own outline is appended.
    """
    area, cut = annotation.get("area"), annotation.get(_OUTLINE_INDEX)
    if (outline := annotation.get("segmentation")) not in (None, [], {}):
        cut = len(outlines)
        outlines.append(_normalize_outline(json.dumps(outline).encode()))
    box = _parse_numbers(annotation.get("bbox"))
    return {
        **{n: _id_text(annotation.get(n)) for n in ("id", "image_id", "category_id")},
        "bbox": box if len(box) == 4 else None,
        "area": None if area is None else _parse_numbers([area])[0],
        "iscrowd": int(annotation.get("iscrowd") in (1, "1")),
        _OUTLINE_INDEX: cut,
        "keypoints": _parse_numbers(annotation.get("keypoints") or ()),
    }


def _read_coco(
    files: Sequence[tuple[str, InputFile]],
    options: ImagesOptions,
    storage: StorageOptions,
    *,
    is_named: bool,
) -> ObjectFiles:
    """Reads COCO files, and skips files without objects.

    Args:
      files: (split, file) of each.
      options: of the job.
      storage: options of the inputs' storage.
      is_named: whether `annotations` names the files.

    Raises:
      InputError: a file is invalid; files disagree on categories; or files are named and
        none has objects.
    """
    objects_of_files, skip_reasons = list[ImageObjects](), list[str]()
    names = dict[str, str]()
    used = set[str]()  # ids of the categories that objects have
    # COCO's own download repeats the images in files of keypoints and captions.
    paths = {file.path for _, file in files}
    repeated_paths = {
        path
        for path in paths
        if _REPEATED_FILE.sub(r"\1instances_", path, 1) in paths - {path}
    }
    if repeated_paths and not is_named:
        skip_reasons = [
            f"{path}: is next to instances_*" for path in sorted(repeated_paths)
        ]
        files = [
            split_and_file
            for split_and_file in files
            if split_and_file[1].path not in repeated_paths
        ]
    splits = FileSplits(AUTO if options.split_level == AUTO else NONE)
    splits = splits.find_rule([file for _, file in files])
    for split, file in files:
        if file.size > MAX_BYTES:
            raise InputError(
                f"{file.uri}: has {format_bytes(file.size)}; a COCO file is kept in "
                f"memory and may have at most {format_bytes(MAX_BYTES)}: divide it into "
                f"files of fewer images, {WITHOUT_BOXES_HINT}"
            )
        file_bytes, checksum = read_summed(file, storage)
        if problem := _why_no_objects(_find_keys(file_bytes)):
            skip_reasons.append(f"{file.uri}: {problem}")
            continue
        cut = _cut_outlines(file_bytes)
        del file_bytes  # 400 MB of 500 are outlines
        objects, categories, category_numbers = _parse_coco(file, cut, storage)
        file_split = split or splits.split_of(file)
        objects = objects._replace(
            checksums=(checksum,),
            splits=[file_split] * len(objects.paths) if file_split else (),
        )
        objects_of_files.append(objects)
        for number, name in categories.items():
            if names.setdefault(number, name) != name and not options.label_map:
                raise InputError(
                    f"{file.uri}: category {number} is {name!r}, but {names[number]!r} "
                    "in other files; expected one name. Use the same categories in all "
                    "files, define the order of their names with `label_map`, or "
                    "convert them one by one"
                )
        used |= category_numbers
        name_counts = Counter(names[number] for number in used & names.keys())
        for name in [
            n for n in name_counts if name_counts[n] > 1 and not options.label_map
        ]:
            numbers_of_name = [
                number for number in sorted(used) if names.get(number) == name
            ]
            raise InputError(
                f"{file.uri}: categories {' and '.join(numbers_of_name)} both have the name "
                f"{shorten(name)}; expected different names. Rename one of them, or, if "
                "they are one class, name the classes in `label_map`"
            )
    refused = [reason for reason in skip_reasons if is_named or "has no" not in reason]
    if is_named and not objects_of_files:
        raise InputError(
            f"{refused[0]}; expected COCO's objects, with bbox and category_id. Name a "
            f"file that has them in `annotations`, {WITHOUT_BOXES_HINT}"
        )
    left_out = [("annotations left out", format_names(refused, 5))] if refused else []
    if not objects_of_files:
        return NO_OBJECTS._replace(facts=tuple(left_out))
    tables, box_facts = build_tables(objects_of_files, options.boxes_outside)
    ordered = sorted(names, key=lambda number: (len(number), number))
    fact = "annotation format", f"COCO, {format_count(len(tables), 'file')}"
    return ObjectFiles(
        tables,
        tuple(dict.fromkeys(names[number] for number in ordered)),
        (fact, *splits.report_lines, *left_out, *box_facts),
        frozenset(table.file.path for table in tables),
    )


def _parse_coco(
    file: InputFile, cut: tuple[bytes, list[bytes]], storage: StorageOptions
) -> tuple[ImageObjects, dict[str, str], set[str]]:
    """Returns the objects of a COCO file, its category names by id, and the ids in use.

    Args:
      file: to parse.
      cut: its content with the outlines cut out, and the outlines.
      storage: options of the input's storage.
    """
    location = f"{file.uri}: is not valid as COCO"
    try:
        with as_input_error(location, _EXPECTED_FIELDS):
            (images, categories, objects), lost = _parse_lists(*cut, location)
            outlines = pa.array(cut[1], pa.string())
            cut[1].clear()  # frees 400 MB of 500
            are_valid = pc.match_substring_regex(outlines, _VALID_OUTLINE)
            for outline in outlines.filter(pc.invert(are_valid)).unique().to_pylist():
                parse_json(outline, location, expected=_EXPECTED_FIELDS)
            rejects = _reject_annotations(file.path, lost)
    except InputError as error:
        if isinstance(error.__cause__, json.JSONDecodeError):
            # Parsing the file with its outlines raises an error with the right line.
            file_bytes, _ = read_summed(file, storage)
            parse_json(file_bytes, location, expected=_EXPECTED_FIELDS)
        raise
    if len(images["id"].unique()) < len(images):
        repeated_id = Counter(images["id"].to_pylist()).most_common(1)[0][0]
        raise InputError(
            f"{file.uri}: two images have the id {repeated_id}; expected different ids"
        )
    names = dict[str, str]()
    for category in categories.to_pylist():
        name = names.setdefault(str(category["id"]), category["name"])
        if name != category["name"]:
            raise InputError(
                f"{file.uri}: category {category['id']} is both {shorten(name)} and "
                f"{shorten(category['name'])}; expected different ids. Change the id of one "
                f"of them, {WITHOUT_BOXES_HINT}"
            )
    matched_images = pc.index_in(objects["image_id"], value_set=images["id"])
    annotations_without_image = (
        objects.filter(pc.is_null(matched_images))
        .select(["id", "image_id"])
        .to_pylist()
    )
    rejects = [*_reject_annotations(file.path, annotations_without_image), *rejects]
    image_indices = pc.fill_null(matched_images, -1).to_numpy().astype(np.int64)
    order = np.argsort(image_indices, kind="stable")[len(annotations_without_image) :]
    objects, image_indices = objects.take(pa.array(order)), image_indices[order]
    sides = [images[name].to_pylist() for name in ("height", "width")]
    sizes = np.array(
        [[*map(parse_side, side_list)] for side_list in sides], np.float64
    ).T
    boxes = np.full((len(order), 4), np.nan)
    has_box = np.asarray(objects["bbox"].is_valid(), np.bool_)
    boxes[has_box] = objects["bbox"].flatten().to_numpy().reshape(-1, 4)
    left_top, extent = boxes[:, :2], boxes[:, 2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = sizes[image_indices][:, ::-1]
        x_and_y = np.hstack([left_top / scale, (left_top + extent) / scale])
    corners = x_and_y[:, [1, 0, 3, 2]]
    numbers = pc.index_in(objects["category_id"], value_set=categories["id"])
    labels = pc.fill_null(categories["name"].take(numbers), "")
    texts, has_outline = (
        column.take(objects[_OUTLINE_INDEX]) for column in (outlines, are_valid)
    )
    points = objects["keypoints"].flatten().cast(F32, safe=False).to_numpy()
    counts = pc.fill_null(pc.list_value_length(objects["keypoints"]), 0).to_numpy()
    of_points = np.repeat(np.arange(len(order)), counts)
    has_points = ~np.isin(np.arange(len(order)), of_points[~np.isfinite(points)])
    area = pc.coalesce(objects["area"], pa.array(extent.prod(axis=1)))
    more_columns = {
        "is_crowd": pc.equal(pc.fill_null(objects["iscrowd"], 0), 1),
        "area": area.cast(F32, safe=False),
    }
    ids = objects["id"].cast(pa.string()).fill_null("")
    if pc.all(pc.match_substring_regex(ids, r"^\d{1,18}$"), min_count=0).as_py():
        more_columns["id"] = objects["id"].cast(pa.int64())
    more_columns["segmentation"] = pc.fill_null(texts, NO_OUTLINE)
    more_columns |= _keypoint_columns(
        points[has_points[of_points]], np.where(has_points, counts, 0)
    )
    are_right = np.array(
        [
            np.isfinite(boxes).all(axis=1) & (extent >= 0).all(axis=1),
            np.isfinite(more_columns["area"].to_numpy()),
            np.asarray(pc.fill_null(has_outline, True), np.bool_),
            has_points,
        ]
    )
    has_all = np.asarray(are_right.all(axis=0), np.bool_)
    has_size = np.all(sizes[image_indices] > 0, axis=1)
    has_label = np.asarray(pc.not_equal(labels, ""), np.bool_)
    problems = dict[int, str]()
    for at in np.flatnonzero(~(has_label & has_all & has_size)).tolist():
        problem = f"category {objects['category_id'][at]} is not in its list"
        if not has_size[at]:
            problem = "its image has no height and width"
        elif not has_all[at]:
            problem = _PROBLEMS[int(are_right[:, at].argmin())]
        problems.setdefault(
            int(image_indices[at]),
            f"{file.path}, annotation {objects['id'][at]}: {problem}",
        )
    corners[~(has_all & has_size)] = 0, 0, 1, 1
    paths = images["file_name"].to_pylist()

    def raw(row: int) -> tuple[str, int, bytes]:
        return file.path, 0, json.dumps(images.slice(row, 1).to_pylist()[0]).encode()

    file_objects = ImageObjects(
        *(file, paths, sizes, problems, image_indices, corners, labels, more_columns),
        raw=raw,
        rejects=tuple(rejects),
    )
    return file_objects, names, {*map(str, objects["category_id"].unique().to_pylist())}


def _reject_annotations(
    path: str, annotations: Sequence[dict[str, Any]]
) -> list[Reject]:
    """Returns a reject for each annotation; the file has no image with its image_id."""
    return [
        Reject(
            path,
            0,
            f"annotation {_id_text(annotation.get('id'))}: no image has its image_id "
            f"{_id_text(annotation.get('image_id'))}",
            json.dumps(annotation).encode(),
            "label",
        )
        for annotation in annotations
    ]


def _keypoint_columns(
    points: npt.NDArray[np.float32], counts: I64
) -> dict[str, pa.Array]:
    """Returns the column of keypoints; no column if objects have different numbers.

    Args:
      points: the numbers of all objects: x, y and visibility of each keypoint.
      counts: how many numbers each object has.
    """
    numbers = {*counts.tolist()} - {0}
    if len(numbers) != 1 or (number := numbers.pop()) % 3:
        return {}
    keypoints = np.zeros((len(counts), number), np.float32)
    keypoints[counts > 0] = points.reshape(-1, number)
    kind = pa.list_(pa.list_(F32, 3), number // 3)
    return {"keypoints": with_numbers(kind, keypoints.ravel())}
