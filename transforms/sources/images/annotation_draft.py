"""Collects the annotations of each image before they become one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputWarning, WarningCode
from recordmill.schemas.ranges import Reject
from recordmill.schemas.text import a_or_an, format_count
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.images.options import FileOptions
from recordmill.transforms.sources.images.tables import (
    LabelTable,
    describe_types,
    infer_features,
    match_paths,
    text_cells,
)
from recordmill.transforms.sources.listing import input_root

# Further columns of the table of annotations.
PROBLEM, POSITION, RAW = "rejected", "at", "raw"
# The image sizes that annotation files state; null if an image has no stated size.
STATED_SIZES = ("stated height", "stated width")

BoolArray = npt.NDArray[Any]


class ImageRows(NamedTuple):
    """The table rows of each image."""

    counts: I64  # the number of rows of each image
    first_rows: I64  # the first row of each image, or -1
    # the rows sorted by image: all rows of image 0, then of image 1, ...
    rows_by_image: I64
    starts: I64  # where each image's rows start in `ordered`, and the total number
    become_lists: bool  # whether a feature is the list of the cells of all rows

    @classmethod
    def from_images(cls, images: I64, size: int, *, become_lists: bool) -> ImageRows:
        """Returns the rows of each image, given the index of each row's image, or -1."""
        rows = np.flatnonzero(images >= 0)
        counts = np.bincount(images[rows], minlength=size)
        ordered = rows[np.argsort(images[rows], kind="stable")]
        starts, first = offsets_of(counts), np.full(size, -1, np.int64)
        first[counts > 0] = ordered[starts[:-1][counts > 0]]
        return cls(counts, first, ordered, starts, become_lists)

    def cells_of(self, column: pa.Array) -> pa.Array:
        """Returns the cell of each image's first row, or the list of cells of its rows.

        If images have the rows [0, 2] and [1], the column a, b, c becomes [a, c] and [b].
        """
        if not self.become_lists:
            return column.take(pa.array(self.first_rows, mask=self.first_rows < 0))
        ordered_cells = column.take(pa.array(self.rows_by_image))
        return pa.ListArray.from_arrays(
            pa.array(self.starts, pa.int32()), ordered_cells
        )

    def has_any(self, flags: BoolArray) -> BoolArray:
        """Returns a flag for each image: whether any of its rows has a flag."""
        offsets = offsets_of(flags[self.rows_by_image])
        return np.asarray(np.diff(offsets[self.starts]) > 0)


def null_mask(column: pa.Array) -> BoolArray:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


@dataclass
class AnnotationDraft:
    """The annotations of each image while they are collected.

    The arrays have an element for each image. "" means: no split in `splits`, no problem
    in `problems`, an image that is named in `unlisted`, and an image that is kept in
    `left_out`. Labels have the names of the input. `rejects` are table rows that name no
    image or cannot be read.
    """

    images: Inventory
    options: FileOptions
    schema_columns: tuple[str, ...] | None
    splits: npt.NDArray[np.object_]
    problems: npt.NDArray[np.object_] = field(init=False)
    unlisted_reasons: npt.NDArray[np.object_] = field(init=False)
    left_out_reasons: npt.NDArray[np.object_] = field(init=False)
    stated_sizes: dict[str, pa.Array] = field(default_factory=dict)
    labels: pa.Array | None = None
    features: dict[str, pa.Array] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[InputWarning] = field(default_factory=list)
    checksums: list[FileChecksum] = field(default_factory=list)
    partners: dict[str, pa.StructArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = len(self.images)
        self.problems, self.unlisted_reasons, self.left_out_reasons = (
            np.full(size, "", np.object_) for _ in range(3)
        )
        self.root, self.noun = input_root(self.images), self.options.kind.noun

    def reject(self, is_rejected: BoolArray, reason: str) -> None:
        """Rejects the selected images, unless they already have a problem."""
        self.problems[is_rejected & (self.problems == "")] = reason

    def warn(self, code: WarningCode, message: str) -> None:
        self.warnings.append(InputWarning(code, message))

    def mark_unlisted(self, is_unlisted: BoolArray, reason: str) -> None:
        """Stores the reason why no table or list names the selected images."""
        self.unlisted_reasons[is_unlisted & (self.unlisted_reasons == "")] = reason

    def add_features(
        self,
        columns: dict[str, pa.Array],
        rows: ImageRows | None = None,
        *,
        are_text: bool,
    ) -> None:
        """Adds columns of images or of table rows as features.

        Args:
          columns: the cells by feature name.
          rows: the table rows of each image; None if columns have a cell for each image.
          are_text: whether cells are text, to be converted to the type of their contents.
        """
        if are_text:
            columns, facts, warnings = infer_features(columns)
            self.facts += facts
            self.warnings += warnings
        if rows is not None:
            for name, column in columns.items() if rows.become_lists else ():
                self.reject(
                    rows.has_any(null_mask(column)),
                    f"a row of it has no value in column {name!r}, which a list needs: "
                    "add it, or leave out the column",
                )
            columns = {name: rows.cells_of(cells) for name, cells in columns.items()}
        self.features |= columns
        if columns:
            self.facts.append(("features", describe_types(columns)))

    def match_rows(self, table: LabelTable, noun: str) -> tuple[I64, str]:
        """Returns the index of each row's image, or -1, and how its path was matched.

        The latter is text for the input report. Rows without an image become rejects.
        """
        file = table.file
        paths = text_cells(table.rows["path"])
        indices, way = match_paths(paths, self.images, self.root, file.uri)
        missing = np.flatnonzero(indices < 0).tolist()
        if len(missing) == len(paths):
            nonnull_paths = paths.drop_null()
            example = (
                shorten(nonnull_paths[0].as_py()) if len(nonnull_paths) else "no path"
            )
            raise InputError(
                f"{file.uri}: no path ({format_count(len(paths), noun)}) names an "
                f"{self.noun}; the first has {example}, expected a path like "
                f"{shorten(self.images[0].path)}, below {self.root} or the folder of "
                "this file"
            )
        # A loop over the rows that name no image; the other rows are joined by columns.
        for row in missing:
            path = paths[row].as_py()
            if path is None and noun == "line":
                continue  # a blank line
            origin, at, row_bytes = table.raw(row)
            reason = f"has no path of {a_or_an(self.noun)}"
            if path:
                reason = f"{shorten(path)}: no such {self.noun} in the input"
            self.rejects.append(Reject(origin, at, reason, row_bytes))
        self.rejects += table.rejects
        self.checksums += table.checksums
        return indices, way


class ObjectFiles(NamedTuple):
    """The objects of images, and the files that contain them."""

    tables: tuple[LabelTable, ...] = ()  # a row for each image
    classes: tuple[str, ...] = ()  # in label order; () to sort the class names
    facts: tuple[tuple[str, str], ...] = ()
    used_paths: frozenset[str] = frozenset()  # the paths of all files that were read
    # (split, file) of lists of the images of a split
    split_lists: tuple[tuple[str, InputFile], ...] = ()
    warnings: tuple[InputWarning, ...] = ()


NO_OBJECTS = ObjectFiles()
