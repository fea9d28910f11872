"""Refers to images, and names the features that they have.

A reference carries what is known of its image as JSON, so that the writer of a shard
needs nothing else:

    ["1.jpg", 1234, "17000", [2, 0.5, [[1.0, 2.0]]]]              label 2 and two features
    ["1.jpg", 1234, "17000", [], "labels.csv ..."]                why it is a reject
    ["t.csv", 0, "", [], "'3.jpg': there is ...", "3.jpg,cat", 17]  a row without an image

Behind the path stand size and version of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema, Shape
from recordmill.schemas.input_files import InputFile, Seen
from recordmill.transforms.arrow import MAX_CELL_BYTES, array_parts, offsets_of
from recordmill.transforms.images.header import ImageHeader
from recordmill.transforms.sources.images.annotations import (
    AT,
    PROBLEM,
    RAW,
    Annotations,
)
from recordmill.transforms.sources.images.options import FeatureNames

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Reference(NamedTuple):
    """What a reference says of its image.

    Attributes:
      path: of the file.
      size, version: of the file, as it was listed.
      values: of the label, if there is one, and of the features.
      problem: why the image is a reject for what is known of it, or "".
      unread: the bytes that are rejected where there is no file to read, as Latin-1.
      at: where they begin in the file.
    """

    path: str
    size: int
    version: str
    values: Sequence[Any] = ()
    problem: str = ""
    unread: str | None = None
    at: int = 0

    @property
    def seen(self) -> Seen:
        """Returns size and version of the file."""
        return Seen(self.size, self.version)

    @property
    def is_read(self) -> bool:
        """Returns whether its file is read: it is there, and fits in a record."""
        return self.unread is None and self.size <= MAX_CELL_BYTES


def references_to(
    files: Sequence[InputFile], table: pa.Table, columns: Mapping[str, pa.Array]
) -> list[bytes]:
    """Returns the reference to each image, by its row of annotations.

    The columns are what `Annotations.listed` returns of the table.
    """
    # Single labels are few: 0.1 us each, others 3 us.
    are_few = [pa.types.is_integer(each.type) for each in columns.values()] == [True]
    written = cache(_ENCODE) if are_few else _ENCODE
    rows = zip(*(each.to_pylist() for each in columns.values()), strict=True)
    more = (table[name].to_pylist() for name in (PROBLEM, AT, RAW))
    found = []
    for file, values, problem, at, raw in zip(
        files, rows if columns else repeat(()), *more, strict=False
    ):
        rejected = ""
        if file.problem:
            unread = (raw or b"").decode("latin-1")
            rejected = f",{_ENCODE(file.problem)},{_ENCODE(unread)},{at}"
        elif problem:
            rejected = f",{_ENCODE(problem)}"
        path, version = _ENCODE(file.path), _ENCODE(file.version)
        text = f"[{path},{file.size},{version},{written(values)}{rejected}]"
        found.append(text.encode())
    return found


def parse_references(references: pa.BinaryArray) -> list[Reference]:
    """Returns what `references_to` wrote."""
    together = b",".join(references.to_pylist())  # in half the time of one by one
    return [Reference(*each) for each in json.loads(b"[%b]" % together)]


_SIZES = {name: name for name in ("height", "width", "depth")}
_NAMES: dict[FeatureNames, dict[str, str]] = {
    "default": {
        "image": "image",
        "label": "label",
        **_SIZES,
        "filename": "filename",
    },
    "tutorial": {"image": "image_raw", "label": "label", **_SIZES},
    "imagenet": {
        "image": "image/encoded",
        "format": "image/format",
        "height": "image/height",
        "width": "image/width",
        "depth": "image/channels",
        "filename": "image/filename",
        "label": "image/class/label",
        "text": "image/class/text",
    },
}
_TEXT_COLUMNS = ("format", "filename", "text")


def reserved_names(names: FeatureNames, *, has_labels: bool) -> frozenset[str]:
    """Returns the names that features of a table cannot have."""
    own = dict(_NAMES[names])
    for label in () if has_labels else ("label", "text"):
        own.pop(label, None)
    return frozenset({*own, *own.values(), "image", "height", "width", "depth"})


def image_schema(
    names: FeatureNames,
    annotations: Annotations,
    dtype: str,
    shape: Shape,
    content: Content = Content.IMAGE,
) -> Schema:
    """Returns the schema of images of this dtype, shape and content."""
    features = annotations.specs()
    label_type = annotations.label_type
    labels: Shape = (None,) if pa.types.is_list(label_type or pa.null()) else ()
    for column, name in _NAMES[names].items():
        if column in ("label", "text") and label_type is None:
            continue
        feature = FeatureSpec(name, Kind.INT64, column)
        if column == "image":
            feature = FeatureSpec(
                name, Kind.BYTES, column, dtype=dtype, shape=shape, content=content
            )
        elif column in _TEXT_COLUMNS:
            lists = labels if column == "text" else ()
            feature = FeatureSpec(name, Kind.BYTES, column, dtype="string", shape=lists)
        elif column == "label":
            feature = replace(feature, shape=labels, class_names=annotations.classes)
        features.append(feature)
    return Schema(tuple(features))


def pixel_lists(
    pixels: pa.BinaryArray, headers: Sequence[ImageHeader]
) -> pa.LargeListArray:
    """Returns pixels as lists of rows of samples, as a tensor of three sides is read.

    Images of 2 x 1 and 1 x 3 pixels of three channels are the lists [[3], [3], [9]]:
    rows begin at samples 0, 3, 6 and end at 15; images begin at rows 0 and 2.
    """
    heights = np.array([header.height for header in headers], np.int64)
    row_bytes = np.array([header.width * header.depth for header in headers], np.int64)
    offsets, data = array_parts(pixels)
    samples = pa.array(data[int(offsets[0]) : int(offsets[-1])], pa.uint8())
    row_starts = offsets_of(np.repeat(row_bytes, heights))
    rows = pa.LargeListArray.from_arrays(row_starts, samples)
    return pa.LargeListArray.from_arrays(offsets_of(heights), rows)
