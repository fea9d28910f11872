"""Folders of pictures: a folder per class, the bytes of each file kept as they are.

One file is one record and its size is known without reading it, so the plan needs no
payload: ranges are slices of the inventory, runs hold paths, and the shard's writer
reads the pictures itself (`fetch`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Self

import numpy as np
import pyarrow as pa

from schemas.errors import InputError
from schemas.features import Content, FeatureSpec, Kind, Schema
from schemas.job import FeatureNames
from schemas.ranges import InputFile, InputRange, Reject
from transforms.keys import text_hashes
from transforms.pixels import ImageHeader, ImageHeaderError, read_header
from transforms.sources.base import Rows, Source
from transforms.storage import read_file
from transforms.tfrecord import FRAME_BYTES

ENDINGS = (".jpeg", ".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
FILES_PER_RANGE = 4096

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


@dataclass(frozen=True)
class ImagesSource(Source):
    """A folder of pictures per class; `classes` are the sorted folder names."""

    feature_names: FeatureNames = "default"
    root: str = ""
    classes: tuple[str, ...] = ()
    listing: tuple[InputFile, ...] = ()

    by_reference = True

    def prepare(self, files: Sequence[InputFile]) -> Self:
        pictures = tuple(f for f in files if f.path.lower().endswith(ENDINGS))
        if not pictures:
            endings = " ".join(sorted({PurePosixPath(f.path).suffix for f in files}))
            raise InputError(
                f"no pictures among the {len(files)} input files (endings: "
                f"{endings or 'none'}); expected {' '.join(ENDINGS)}"
            )
        classes = sorted({class_of(file.path) for file in pictures} - {""})
        if not classes:
            raise InputError(
                f"{pictures[0].uri}: lies in no class folder; expected "
                "INPUT/<class>/<picture>: give the folder above the class folders"
            )
        root = pictures[0].uri.removesuffix(pictures[0].path)
        return replace(self, root=root, classes=tuple(classes), listing=pictures)

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        """Slices of the inventory, in files; the ranges' unit is one file."""
        total = len(self.listing)
        starts = range(0, total, FILES_PER_RANGE)
        return [
            InputRange(
                index=index,
                path=self.listing[start].path,
                uri=self.root,
                start=start,
                stop=min(start + FILES_PER_RANGE, total),
                first_position=start,
                total_positions=total,
            )
            for index, start in enumerate(starts)
        ]

    def schema(
        self, observed: tuple[int, ...] = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        features = []
        for column, name in _NAMES[self.feature_names].items():
            if column == "image":
                feature = FeatureSpec(
                    name,
                    Kind.BYTES,
                    column,
                    dtype="uint8",
                    shape=(None, None, None),
                    content=Content.PICTURE,
                )
            elif column in _TEXT_COLUMNS:
                feature = FeatureSpec(name, Kind.BYTES, column, dtype="string")
            elif column == "label":
                feature = FeatureSpec(
                    name, Kind.INT64, column, class_names=self.classes
                )
            else:
                feature = FeatureSpec(name, Kind.INT64, column)
            features.append(feature)
        return Schema(tuple(features))

    def read(self, spot: InputRange, expected: tuple[int, ...]) -> Iterator[Rows]:
        """The paths of a slice of the inventory; no picture is opened."""
        files = self.listing[spot.start : spot.stop]
        paths = [file.path for file in files]
        classes = [class_of(path) for path in paths]
        sizes = np.array([file.size for file in files], np.int64)
        yield Rows(
            batch=pa.RecordBatch.from_pydict(
                {
                    "path": pa.array([_reference(f) for f in files], pa.binary()),
                    "label": pa.array(classes, pa.string()),
                    "filename": pa.array(paths, pa.string()),
                }
            ),
            # The path alone, not its place in the listing: a picture keeps its place
            # in the order and its split when others come or go.
            origins=text_hashes(paths),
            places=np.arange(len(files), dtype=np.int64),
            raw=lambda row: (0, read_file(files[row].uri)),
            weights=sizes + FRAME_BYTES,
        )

    def fetch(self, references: Sequence[str]) -> tuple[pa.RecordBatch, list[Reject]]:
        """Reads the pictures that the batches of `read` refer to in column "path".

        Returns:
          The batch of those that are pictures, in order, and rejects for the others.

        Raises:
          InputError: a file cannot be read, or its size is not what it was.
        """
        label_of = {name: label for label, name in enumerate(self.classes)}
        kept: list[str] = []
        data: list[bytes] = []
        headers: list[ImageHeader] = []
        rejects = []
        # A loop per file: each costs an open and a read, a hundred times its share
        # of the loop.
        for reference in references:
            size, _, path = reference.partition(" ")
            content = read_file(self.root + path)
            if len(content) != int(size):
                raise InputError(
                    f"{self.root}{path}: has {len(content)} bytes, but had {size} when "
                    "the run began: did it change meanwhile?"
                )
            try:
                if not class_of(path):
                    raise ImageHeaderError("lies in no class folder")
                headers.append(read_header(content))
            except ImageHeaderError as error:
                rejects.append(Reject(path, 0, str(error), content))
                continue
            kept.append(path)
            data.append(content)
        classes = [class_of(path) for path in kept]
        return pa.RecordBatch.from_pydict(
            {
                "image": pa.array(data, pa.binary()),
                "format": pa.array([h.format for h in headers], pa.string()),
                "height": pa.array([h.height for h in headers], pa.int64()),
                "width": pa.array([h.width for h in headers], pa.int64()),
                "depth": pa.array([h.depth for h in headers], pa.int64()),
                "filename": pa.array(kept, pa.string()),
                "label": pa.array([label_of[name] for name in classes], pa.int64()),
                "text": pa.array(classes, pa.string()),
            }
        ), rejects


def _reference(file: InputFile) -> bytes:
    """What stands for a picture until it is read: its size and path."""
    return f"{file.size} {file.path}".encode()


def class_of(path: str) -> str:
    """The class of a picture: the first folder of its path, or "" if there is none.

    >>> class_of("cat/tabby/1.jpg")
    'cat'
    """
    folder, slash, _ = path.partition("/")
    return folder if slash else ""
