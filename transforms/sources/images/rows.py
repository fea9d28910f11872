r"""Refers to images, and names the features that they have.

A reference carries what is known of its image as JSON, so that the writer of a shard
needs nothing else:

    1234:1700000000000000000 1.jpg\0[2, 0.5, [[1.0, 2.0]]]   label 2 and two features
    1234:1700000000000000000 2.jpg\0"labels.csv ..."         why it is a reject
    !"3.jpg": there is no such image\0labels.csv\0{"at": 17, "raw": "3.jpg,cat"}

Before the path stand size and version of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema, Shape
from recordmill.schemas.input_files import InputFile, Seen
from recordmill.transforms.arrow import MAX_CELL_BYTES, array_parts, offsets_of
from recordmill.transforms.images.header import ImageHeader
from recordmill.transforms.sources.images.annotations import (
    AT,
    LABEL,
    PROBLEM,
    RAW,
    Annotations,
)
from recordmill.transforms.sources.images.options import FeatureNames


class Reference(NamedTuple):
    """What a reference says of its image.

    Attributes:
      seen: size and version of the file.
      path: of the file.
      values: of the label, if there is one, and of the features.
      unreadable: why there is no file to read, or "".
      problem: why the image is a reject for what is known of it, or "".
      at: where the row of a table begins that is a reject.
      raw: its bytes.
    """

    seen: Seen
    path: str
    values: Sequence[Any] = ()
    unreadable: str = ""
    problem: str = ""
    at: int = 0
    raw: bytes = b""

    @property
    def is_read(self) -> bool:
        """Returns whether its file is read: it is there, and fits in a record."""
        return not self.unreadable and self.seen.size <= MAX_CELL_BYTES


def reference_to(file: InputFile) -> bytes:
    r"""Returns b"1234:1700000000000000000 cat/1.jpg" for a file of a local folder.

    A version of a store may hold a space: b"1234:2026-01-01%2012 cat/1.jpg".
    Without a file, b"!a link to nothing\0cat/2.jpg".
    """
    if file.problem:
        return f"!{file.problem}\0{file.path}".encode()
    version = f":{quote(file.version)}" if file.version else ""
    return f"{file.size}{version} {file.path}".encode()


def references_to(
    files: Sequence[InputFile], table: pa.Table, columns: Mapping[str, pa.Array]
) -> list[bytes]:
    """Returns the reference to each image.

    Args:
      files: the images, and tables whose rows are rejects.
      table: their rows of annotations.
      columns: what `Annotations.listed` returns of these.
    """
    are_times = "".join([file.version for file in files if not file.problem])
    is_plain = are_times.isdecimal() and are_times.isascii()
    return [
        f"{size}:{version} {path}".encode() + note  # of local files in half the time
        if is_plain and version and not problem
        else reference_to(file) + note
        for file, note in zip(files, _notes(table, columns), strict=True)
        for path, _, size, version, _, problem in (file,)
    ]


def _notes(table: pa.Table, columns: Mapping[str, pa.Array]) -> Iterator[bytes]:
    """Yields what stands at the end of each reference."""

    def written(found: Any) -> bytes:
        return b"\0" + json.dumps(found, ensure_ascii=False).encode()

    # Notes of labels alone are few: 0.1 us each, others 3 us.
    simple = cache(written) if columns.keys() <= {LABEL} else written
    if any(pa.types.is_nested(each.type) for each in columns.values()):
        simple = written
    rows = zip(*(each.to_pylist() for each in columns.values()), strict=True)
    others = (table[name].to_pylist() for name in (PROBLEM, AT, RAW))
    for row, problem, at, raw in zip(
        rows if columns else repeat(()), *others, strict=False
    ):
        if raw is None:
            yield simple(problem or row)
        else:
            yield written({"at": at, "raw": raw.decode("latin-1")})


def parse_references(references: pa.BinaryArray) -> list[Reference]:
    """Returns what `references_to` wrote."""
    parse = cache(json.loads)  # many have the same
    found = []
    for reference in references.to_pylist():
        text, _, note = reference.partition(b"\0")
        if reference.startswith(b"!"):
            path, _, note = note.partition(b"\0")
            seen, unreadable = Seen(0, ""), text[1:].decode()
        else:
            size_and_version, _, path = text.partition(b" ")
            size, _, version = size_and_version.decode().partition(":")
            seen = Seen(int(size), unquote(version) if "%" in version else version)
            unreadable = ""
        values: Any = parse(note)
        problem, at, raw = "", 0, b""
        if isinstance(values, dict):
            values, at, raw = (), values["at"], values["raw"].encode("latin-1")
        elif isinstance(values, str):
            values, problem = (), values
        found.append(
            Reference(seen, path.decode(), values, unreadable, problem, at, raw)
        )
    return found


_NAMES: dict[FeatureNames, dict[str, str]] = {
    "default": {
        "image": "image",
        "label": "label",
        "height": "height",
        "width": "width",
        "depth": "depth",
        "filename": "filename",
    },
    "tutorial": {
        "image": "image_raw",
        "label": "label",
        "height": "height",
        "width": "width",
        "depth": "depth",
    },
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
    if not has_labels:
        own = {key: own[key] for key in own if key not in ("label", "text")}
    return frozenset({*own, *own.values(), "image", "height", "width", "depth"})


def image_schema(
    names: FeatureNames, annotations: Annotations, *, decodable: bool
) -> Schema:
    """Returns the schema of images, which one TensorFlow op decodes or not."""
    features = annotations.specs()
    label_type = annotations.label_type
    labels: Shape = (None,) if pa.types.is_list(label_type or pa.null()) else ()
    for column, name in _NAMES[names].items():
        if column in ("label", "text") and label_type is None:
            continue
        if column == "image":
            feature = FeatureSpec(
                name,
                Kind.BYTES,
                column,
                dtype="uint8" if decodable else "bytes",
                shape=(None, None, None) if decodable else (),
                content=Content.IMAGE,
            )
        elif column in _TEXT_COLUMNS:
            feature = FeatureSpec(
                name,
                Kind.BYTES,
                column,
                dtype="string",
                shape=labels if column == "text" else (),
            )
        elif column == "label":
            feature = FeatureSpec(
                name, Kind.INT64, column, shape=labels, class_names=annotations.classes
            )
        else:
            feature = FeatureSpec(name, Kind.INT64, column)
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
