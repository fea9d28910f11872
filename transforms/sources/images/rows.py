"""Reads images by references, and makes rows and features of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema, Shape
from recordmill.schemas.input_files import FileChecksum, InputFile, Seen
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import (
    I64,
    MAX_CELL_BYTES,
    array_parts,
    offsets_of,
    views_of,
)
from recordmill.transforms.exchange.keys import text_hashes
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.base import (
    REFERENCE,
    ReferencedRows,
    Rows,
    RowSink,
)
from recordmill.transforms.sources.images.annotations import (
    Annotations,
    Note,
    read_note,
)
from recordmill.transforms.sources.images.options import FeatureNames
from recordmill.transforms.storage.reading import read_file, read_files
from recordmill.transforms.tfrecord import FRAME_BYTES, crc32c


class Reference(NamedTuple):
    """What a reference names.

    Attributes:
      seen: size and version of the file.
      path: of the file.
      problem: why there is no image to read, or "".
      note: what is known of it beside the file.
    """

    seen: Seen
    path: str
    problem: str
    note: Note


@dataclass(slots=True)
class ReadImages:
    """The images that could be read, a list entry for each, and the others.

    Attributes:
      kept: the indices of their references; the others are rejects.
      paths: of these images.
      notes: what is known of them.
      data: their bytes.
      crcs: the CRC-32Cs of their files.
      headers: their headers.
      kinds: of the files; see ImageHeader.
      next_index: the first reference that is still to be read.
    """

    kept: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)
    headers: list[ImageHeader] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    next_index: int = 0


TakenImage = tuple[bytes, ImageHeader, str]
"""An image as it goes into a record: its bytes, their header, and the kind of its file
with what of that is not in these bytes."""


def reference_to(file: InputFile) -> bytes:
    r"""Returns b"1234:1700000000000000000 cat/1.jpg" for a file of a local folder.

    A version of a store may hold a space: b"1234:2026-01-01%2012 cat/1.jpg".
    Without a file, b"!a link to nothing\0cat/2.jpg".
    """
    if file.problem:
        return f"!{file.problem}\0{file.path}".encode()
    version = f":{quote(file.version)}" if file.version else ""
    return f"{file.size}{version} {file.path}".encode()


def references_to(files: Sequence[InputFile]) -> list[bytes]:
    """Returns what `reference_to` does for each file; of local files in half the time."""
    are_times = "".join([file.version for file in files if not file.problem])
    if not (are_times.isdecimal() and are_times.isascii()):
        return [reference_to(file) for file in files]
    return [
        f"{size}:{version} {path}".encode()
        if version and not problem
        else reference_to(file)
        for file in files
        for path, _, size, version, _, problem in (file,)
    ]


def parse_references(references: pa.BinaryArray) -> list[Reference]:
    """Returns size and version, path and problem of files, and their notes."""
    notes = cache(read_note)  # many have the same
    found = []
    for reference in references.to_pylist():
        text, _, note = reference.partition(b"\0")
        if reference.startswith(b"!"):
            path, _, note = note.partition(b"\0")
            seen, problem = Seen(0, ""), text[1:].decode()
        else:
            size_and_version, _, path = text.partition(b" ")
            size, _, version = size_and_version.decode().partition(":")
            seen = Seen(int(size), unquote(version) if "%" in version else version)
            problem = ""
        found.append(Reference(seen, path.decode(), problem, notes(note)))
    return found


def contents_of(
    references: Iterable[Reference], root: str, storage: StorageOptions
) -> Generator[bytes, None, None]:
    """Yields the bytes of each file that can be read and can be in a record.

    Args:
      references: of the files.
      root: what every uri begins with, before the path.
      storage: options of the files' storage.

    Raises:
      InputError: a file cannot be read, or is another one by now.
    """
    files = (
        (root + path, seen)
        for seen, path, problem, _ in references
        if not problem and seen.size <= MAX_CELL_BYTES
    )
    return read_files(files, storage)


def read_images(
    references: Sequence[Reference],
    root: str,
    contents: Iterator[bytes],
    take: Callable[[bytes], TakenImage],
    sink: RowSink,
    max_bytes: int | None = None,
) -> ReadImages:
    """Reads and checks images.

    Args:
      references: of the files.
      root: what every uri begins with, before the path.
      contents: what `contents_of` yields for these references, and perhaps for more.
      take: makes a file's bytes an image, or raises ImageHeaderError.
      sink: gets rejects and checksums.
      max_bytes: reading ends with the file after which this much is held; None for all.

    Raises:
      InputError: a file cannot be read, or its size is not what it was.
    """
    found = ReadImages()
    held = 0
    # A loop per file: each costs an open and a read, a hundred times its share of it.
    for index, (seen, path, problem, note) in enumerate(references):
        if max_bytes is not None and held >= max_bytes:
            break
        found.next_index = index + 1
        size = seen.size
        if problem:
            sink.rejects.append(Reject(path, note.at, problem, note.raw))
            continue
        if size > MAX_CELL_BYTES:  # not worth the reading
            reason = (
                f"has {size:,} bytes, more than a record can hold ({MAX_CELL_BYTES:,})"
            )
            sink.rejects.append(Reject(path, 0, reason, b""))
            continue
        content = next(contents)
        if len(content) != size:
            raise ChangedInputError(
                f"{root}{path}: has {len(content)} bytes, but had {size} when the run "
                "began; did it change meanwhile?"
            )
        crc = crc32c(content)
        sink.checksums.append(FileChecksum(path, 0, size, crc))
        try:
            if note.problem:
                raise ImageHeaderError(note.problem)
            data, header, kind = take(content)
        except ImageHeaderError as error:
            held += size
            sink.rejects.append(Reject(path, 0, str(error), content))
            continue
        found.kept.append(index)
        found.paths.append(path)
        found.notes.append(note)
        found.data.append(data)
        found.crcs.append(crc)
        found.headers.append(header)
        found.kinds.append(kind)
        held += len(data)
    return found


def listed_rows(
    files: Sequence[InputFile],
    labels: Mapping[str, pa.Array],
    storage: StorageOptions,
    notes: Sequence[bytes],
) -> Rows:
    """Returns references to images: the size and path of each file.

    Args:
      files: the images.
      labels: columns that are known without reading the files.
      storage: options of the files' storage.
      notes: of each, as they stand at the end of its reference.
    """
    paths = [file.path for file in files]
    pairs = zip(references_to(files), notes, strict=True)
    references = [reference + note for reference, note in pairs]
    return Rows(
        batch=pa.RecordBatch.from_pydict(
            {
                REFERENCE: pa.array(references, pa.binary()),
                **labels,
                "filename": pa.array(paths, pa.string()),
            }
        ),
        # The path alone, not its position in the listing: an image keeps its
        # order key and its split when others are added or removed.
        origins=text_hashes(paths),
        positions=np.arange(len(files), dtype=np.int64),
        raw=lambda row: (0, read_file(files[row].uri, storage, files[row].seen)),
        planned_bytes=np.array([file.size for file in files], np.int64) + FRAME_BYTES,
    )


def image_batch(
    found: ReadImages,
    labels: Mapping[str, pa.Array],
    *,
    by_view: bool = False,
) -> pa.RecordBatch:
    """Returns the columns of the images that could be read.

    Args:
      found: the images.
      labels: the columns of labels, and of features beside the images' own.
      by_view: whether the images' bytes stay where they are.
    """
    formats = [header.format for header in found.headers]
    return pa.RecordBatch.from_pydict(
        {
            "image": (
                views_of(found.data) if by_view else pa.array(found.data, pa.binary())
            ),
            "format": pa.array(formats, pa.string()),
            "height": pa.array([h.height for h in found.headers], pa.int64()),
            "width": pa.array([h.width for h in found.headers], pa.int64()),
            "depth": pa.array([h.depth for h in found.headers], pa.int64()),
            "filename": pa.array(found.paths, pa.string()),
            **labels,
        }
    )


def read_rows_of(listed: Rows, found: ReferencedRows, first: int) -> Rows:
    """Returns the rows of a range that were read by some of its references.

    Args:
      listed: references to the range's images.
      found: what was read by some of them.
      first: the first of these references.
    """
    kept = found.kept + first
    return Rows(
        batch=found.batch,
        origins=listed.origins[kept],
        positions=listed.positions[kept],
        raw=partial(_raw_of_kept, listed, kept),
        paths=found.batch["filename"].to_pylist(),
    )


def _raw_of_kept(rows: Rows, kept: I64, row: int) -> tuple[int, bytes]:
    return rows.raw(int(kept[row]))


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
    """Returns the names that features of a table cannot have.

    Args:
      names: which names the features of the images get.
      has_labels: whether labels are among them.
    """
    own = dict(_NAMES[names])
    if not has_labels:
        own = {key: own[key] for key in own if key not in ("label", "text")}
    return frozenset({*own, *own.values(), "image", "height", "width", "depth"})


def image_schema(
    names: FeatureNames,
    annotations: Annotations,
    *,
    decodable: bool,
) -> Schema:
    """Returns the schema of images.

    Args:
      names: which names the features get.
      annotations: the images' labels and features.
      decodable: whether one TensorFlow op decodes all the images to one rank.
    """
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

    Args:
      pixels: the samples of each image.
      headers: of the images.
    """
    heights = np.array([header.height for header in headers], np.int64)
    row_bytes = np.array([header.width * header.depth for header in headers], np.int64)
    offsets, data = array_parts(pixels)
    samples = pa.array(data[int(offsets[0]) : int(offsets[-1])], pa.uint8())
    row_starts = offsets_of(np.repeat(row_bytes, heights))
    rows = pa.LargeListArray.from_arrays(row_starts, samples)
    return pa.LargeListArray.from_arrays(offsets_of(heights), rows)
