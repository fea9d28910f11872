"""Reads the column metadata that the Hugging Face package `datasets` stores in tables.

The schema of a Parquet or Arrow file has the metadata key `huggingface`
(datasets/features/features.py):

    {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
                           "image": {"_type": "Image"}}}}

In the table, an image is a struct of the bytes and the path of its file, so its columns
would be `image/bytes` and `image/path`. This module names them `image`, whose content is
checked, and `image/path`. The same applies to audio.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Shape
from recordmill.schemas.input_text import as_input_error, parse_json
from recordmill.schemas.ranges import RowIssue
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.cast.typed_values import NO_LABEL, class_index_reason
from recordmill.transforms.encode.columns import (
    inside_lists,
    is_list,
    lists_of,
    plain_type,
)
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeader
from recordmill.transforms.sources.plain_types import SEPARATOR

_METADATA_KEY = b"huggingface"
_FILES = frozenset({"Image", "Audio", "Video", "Pdf", "Nifti", "Mesh"})
_LISTS = frozenset({"List", "LargeList", "Sequence"})
_PLAIN_FEATURES = frozenset(
    {"Value", "Translation", "TranslationVariableLanguages", "Json"}
)
UNLABELLED = "no label"  # the code of an issue


@dataclass(slots=True)
class ColumnMetadata:
    """The metadata of columns, by column name."""

    # column name in the file -> column name in the dataset; "" drops the column
    names: dict[str, str] = field(default_factory=dict)
    file_columns: list[str] = field(default_factory=list)  # columns of whole files
    image_columns: list[str] = field(
        default_factory=list
    )  # the image columns in `files`
    audio_columns: list[str] = field(
        default_factory=list
    )  # the audio columns in `files`
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)  # of array columns
    unused_metadata: list[str] = field(
        default_factory=list
    )  # messages about unused metadata

    def dataset_name(self, column: str) -> str:
        """Returns the dataset name of a column of the file; "" if it is dropped."""
        return self.names.get(column, column)

    def describe(self) -> str:
        """Returns a description of the metadata for the input report."""
        descriptions = [f"{name} images" for name in self.image_columns]
        descriptions += [f"{name} audio" for name in self.audio_columns]
        descriptions += [
            f"{name} {format_count(len(class_names), 'class')}"
            for name, class_names in self.classes.items()
        ]
        return ", ".join(descriptions)

    def size_fields(self) -> list[pa.Field]:
        """Returns the size columns of the images (pixels) and of the audio."""
        return size_columns(self.image_columns) + size_columns(
            self.audio_columns, LENGTHS
        )

    def keep_files(self, columns: Container[str]) -> None:
        """Keeps the images and audio that are in `columns`, or whose sizes are."""
        for names, sides in (self.image_columns, _SIDES), (self.audio_columns, LENGTHS):
            names[:] = [
                name
                for name in names
                if name in columns
                or any(
                    size_column.name in columns
                    for size_column in size_columns([name], sides)
                )
            ]

    def dataset_types(
        self, columns: Mapping[str, pa.DataType]
    ) -> dict[str, pa.DataType]:
        """Returns the column types by dataset name; arrays have their shapes."""
        types_by_name = {}
        for column, kind in columns.items():
            if name := self.dataset_name(column):
                if (shape := self.shapes.get(name)) is not None:
                    kind = lists_of(inside_lists(kind)[0], shape)
                types_by_name[name] = kind
        return types_by_name


def read_column_metadata(schema: pa.Schema) -> ColumnMetadata:
    """Returns the metadata of a file; skips metadata that contradicts its columns."""
    meaning = ColumnMetadata()
    metadata_json = (schema.metadata or {}).get(_METADATA_KEY)
    if metadata_json is None:
        return meaning
    location = "the metadata 'huggingface'"
    try:
        metadata = parse_json(metadata_json, location)
        with as_input_error(location, "info: {features: ...}"):
            features = metadata["info"]["features"]
            columns = [
                (name, features[name]) for name in schema.names if name in features
            ]
    except InputError as error:
        meaning.unused_metadata.append(str(error))
        return meaning
    for name, feature in columns:
        try:
            with as_input_error(
                f"{location} of column {name}", "a feature of datasets"
            ):
                _read_feature(name, feature, schema.field(name).type, meaning)
        except InputError as error:
            meaning.unused_metadata.append(str(error))
    return meaning


def _read_feature(
    name: str,
    feature: Any,
    column: pa.DataType,
    meaning: ColumnMetadata,
    lists: int = 0,
) -> None:
    """Adds the metadata of a feature to `meaning`.

    Args:
      name: the column, or the field of a struct column.
      feature: the feature in the metadata.
      column: the Arrow type of the column.
      meaning: collects the metadata.
      lists: number of lists around this part of the column.
    """
    if isinstance(feature, list) and len(feature) == 1:  # as before datasets 4
        feature = {"_type": "Sequence", "feature": feature[0]}
    kind = feature.get("_type", dict) if isinstance(feature, dict) else None
    column = plain_type(column)
    if kind in _LISTS:
        inner = feature.get("feature")
        if pt.is_struct(column) and isinstance(inner, dict):  # a struct of lists
            inner = {
                key: {"_type": "List", "feature": part_feature}
                for key, part_feature in inner.items()
            }
        elif is_list(column):
            column, lists = column.value_type, lists + 1
        _read_feature(name, inner, column, meaning, lists)
    elif isinstance(kind, type) and pt.is_struct(column):
        for struct_field in column:
            if struct_field.name in feature:
                part_name = f"{name}{SEPARATOR}{struct_field.name}"
                _read_feature(
                    part_name,
                    feature[struct_field.name],
                    struct_field.type,
                    meaning,
                    lists,
                )
    elif kind == "ClassLabel" and pt.is_integer(column):
        names = feature.get("names") or range(int(feature.get("num_classes") or 0))
        classes = tuple(map(str, names))
        if not classes or len({*classes}) < len(classes):
            raise ValueError(f"classes {classes}")
        meaning.classes[name] = classes
    elif kind in _FILES and _is_file(column):
        content, path = f"{name}{SEPARATOR}bytes", f"{name}{SEPARATOR}path"
        meaning.names |= {content: name} | ({path: ""} if lists else {})
        if not lists:
            meaning.file_columns.append(name)
            meaning.image_columns += [name] if kind == "Image" else []
            meaning.audio_columns += [name] if kind == "Audio" else []
    elif str(kind).startswith("Array") and _is_shape(feature.get("shape"), column):
        meaning.shapes[name] = (*[None] * lists, *feature["shape"])
    elif kind not in _PLAIN_FEATURES:
        meaning.unused_metadata.append(f"column {name}: {kind or feature} of {column}")


def _is_shape(shape: Any, column: pa.DataType) -> bool:
    """Returns True if `shape` is valid and has one side for each list of the column."""
    depth = len(inside_lists(column)[1])
    return (isinstance(shape, list) and len(shape) == depth) and all(
        side is None or (type(side) is int and 0 < side < 1 << 31) for side in shape
    )


def _is_file(column: pa.DataType) -> bool:
    return pt.is_struct(column) and {"bytes", "path"} <= {part.name for part in column}


def merge_column_metadata(
    meanings: Sequence[tuple[str, ColumnMetadata]],
) -> ColumnMetadata:
    """Returns the merged metadata of several files.

    Args:
      meanings: pairs (URI, metadata), one for each file.

    Raises:
      InputError: two files number the classes of a column differently.
    """
    merged = ColumnMetadata()
    for uri, meaning in meanings:
        merged.names |= meaning.names
        merged.file_columns += [
            name for name in meaning.file_columns if name not in merged.file_columns
        ]
        merged.image_columns += [
            name for name in meaning.image_columns if name not in merged.image_columns
        ]
        merged.audio_columns += [
            name for name in meaning.audio_columns if name not in merged.audio_columns
        ]
        merged.unused_metadata += [
            message
            for message in meaning.unused_metadata
            if message not in merged.unused_metadata
        ]
        merged.shapes |= meaning.shapes
        for name, classes in meaning.classes.items():
            require_same_classes(uri, name, classes, merged.classes.get(name, classes))
            merged.classes[name] = classes
    return merged


def require_same_classes(
    uri: str, column: str, classes: Sequence[str], expected_classes: Sequence[str]
) -> None:
    """Raises InputError if a column has other classes than in earlier files."""
    if tuple(classes) != tuple(expected_classes):
        raise InputError(
            f"{uri}: the classes of column {column!r} are {format_names(classes)}; "
            f"expected {format_names(expected_classes)}, so that equal labels mean the same "
            "class. Convert such files one by one, or declare the classes in a schema "
            "file (`schema`)"
        )


class CheckedBatch(NamedTuple):
    """A batch with the headers of its images and the problems of its rows."""

    batch: pa.RecordBatch
    # for each row, the image headers by column; [] if there are no images
    headers: list[dict[str, ImageHeader]]
    problems: dict[int, str]  # by row index


_SIDES = ("height", "width")  # in pixels
LENGTHS = ("sample_rate", "channels", "frames")


def size_columns(files: Sequence[str], sides: Sequence[str] = _SIDES) -> list[pa.Field]:
    """Returns the size columns of the given columns of files."""
    return [
        pa.field(f"{name}{SEPARATOR}{side}", pa.int64())
        for name in files
        for side in sides
    ]


def check_files(batch: pa.RecordBatch, meaning: ColumnMetadata) -> CheckedBatch:
    """Checks the images and audio of a batch; the size of a missing file is null.

    In every column of files, a row that has only the path is a problem.
    """
    problems: dict[int, str] = {}
    for name in meaning.file_columns:
        paths = f"{name}{SEPARATOR}path"
        if not {name, paths} <= {*batch.schema.names}:
            continue
        lacks = pc.and_(batch.column(name).is_null(), batch.column(paths).is_valid())
        for row in np.flatnonzero(lacks.to_numpy(zero_copy_only=False)).tolist():
            path = shorten(batch.column(paths)[row].as_py())
            problems[row] = (
                f"{name}: the table has only the path {path}, not the file: write it "
                "again by datasets, whose to_parquet puts files into the table"
            )
    headers_by_column = {
        name: _read_headers(name, batch.column(name), check_image, problems)
        for name in meaning.image_columns
    }
    headers = [
        {
            name: header
            for name, header in zip(headers_by_column, row, strict=True)
            if header is not None
        }
        for row in zip(*headers_by_column.values(), strict=True)
    ]
    sides = dict.fromkeys(headers_by_column, _SIDES) | dict.fromkeys(
        meaning.audio_columns, LENGTHS
    )
    for name in meaning.audio_columns:
        column = batch.column(name)
        headers_by_column[name] = _read_headers(name, column, _audio_header, problems)
    sizes = [
        pa.array(
            [getattr(header, side, None) for header in headers_by_column[name]],
            pa.int64(),
        )
        for name in headers_by_column
        for side in sides[name]
    ]
    fields = [*batch.schema, *meaning.size_fields()]
    columns = [*batch.columns, *sizes]
    checked_batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return CheckedBatch(checked_batch, headers, problems)


def _read_headers(
    name: str, column: pa.Array, read: Callable[[bytes], Any], problems: dict[int, str]
) -> list[Any]:
    """Returns the header of each file, or None; adds the problems of damaged files."""
    headers = []
    # A Python loop is fast enough: header and structure of a JPEG take 8 us.
    for row, cell in enumerate(column):
        header = None
        if cell.is_valid:
            try:
                header = read(cell.as_py())
            except ValueError as error:
                problems.setdefault(row, f"{name}: {error}")
        headers.append(header)
    return headers


def _audio_header(audio_bytes: bytes) -> Any:
    """Returns sample rate, channels and frames of audio; None for M4A and AIFF.

    Only other packages read these two formats. Such files are stored unchanged.
    """
    from recordmill.transforms.audio import header  # only needed for audio

    return (
        None
        if header.other_audio_format(audio_bytes)
        else header.read_audio_header(audio_bytes)
    )


def check_labels(
    batch: pa.RecordBatch, classes: Mapping[str, Sequence[str]], uri: str
) -> tuple[dict[int, str], tuple[RowIssue, ...]]:
    """Returns the problems of rows with invalid labels, and the issues of labels -1."""
    problems: dict[int, str] = {}
    issues = []
    for name, names in classes.items():
        column, rows = batch.column(name), np.arange(batch.num_rows)
        while is_list(column.type):
            rows = rows[pc.list_parent_indices(column).to_numpy()]
            column = pc.list_flatten(column)
        labels = column.cast(pa.int64()).fill_null(0).to_numpy()
        for label_index in np.flatnonzero(
            (labels < NO_LABEL) | (labels >= len(names))
        ).tolist():
            problems.setdefault(
                int(rows[label_index]),
                f"{name}: {class_index_reason(labels[label_index], names)}",
            )
        if num_unlabelled := int(np.count_nonzero(labels == NO_LABEL)):
            issues.append(RowIssue(UNLABELLED, name, num_unlabelled, uri))
    return problems, tuple(issues)


def report_unlabelled(issues: Sequence[RowIssue]) -> tuple[tuple[str, str], ...]:
    """Returns lines for the input report about labels -1, which test sets have."""
    return tuple(
        ("no label", f"{format_count(issue.count, 'value')} -1 of {issue.column}")
        for issue in issues
        if issue.code == UNLABELLED
    )
