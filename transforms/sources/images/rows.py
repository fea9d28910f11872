"""Reads images by references, and makes rows and features of them.

What is known of each image beside its file are columns beside the inventory. A reference
carries those of its image as JSON, so that the writer of a shard needs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from recordmill.transforms.sources.base import REFERENCE, ReferencedRows, Rows
from recordmill.transforms.sources.images.layout import Place
from recordmill.transforms.sources.images.options import FeatureNames
from recordmill.transforms.sources.plain_types import plain_schema
from recordmill.transforms.storage.reading import read_file, read_files
from recordmill.transforms.tfrecord import FRAME_BYTES, crc32c

# Of the columns beside the inventory; features have names that begin with FEATURE.
SPLIT, LABEL, PROBLEM, AT, RAW = "split", "label", "rejected", "at", "raw"
FEATURE = "feature "


class Note(NamedTuple):
    """What a reference says beside its file.

    Attributes:
      values: of the label, if there is one, and of the features.
      problem: why the picture is a reject, or "".
      at: where the row of a table begins that is a reject.
      raw: its bytes.
    """

    values: Sequence[Any] = ()
    problem: str = ""
    at: int = 0
    raw: bytes = b""


NO_NOTE = Note()


@dataclass(frozen=True)
class NoteTypes:
    """What is noted of all pictures.

    Attributes:
      has_labels: whether they have labels.
      has_several: whether one may have several.
      features: names and types of the features.
      optional: the names of those that some pictures lack.
    """

    has_labels: bool = True
    has_several: bool = False
    features: tuple[tuple[str, pa.DataType], ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def label_type(self) -> pa.DataType:
        return pa.list_(pa.int64()) if self.has_several else pa.int64()

    def specs(self) -> list[FeatureSpec]:
        """Returns the features that pictures do not have by themselves."""
        if not self.features:
            return []
        nulls = [int(name in self.optional) for name, _ in self.features]
        return list(plain_schema(pa.schema(list(self.features)), nulls).features)

    def columns(
        self, values: Sequence[Sequence[Any]], classes: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Returns the columns of pictures with these values.

        Args:
          values: of each picture.
          classes: the names that labels count.
        """
        wanted = [("label", self.label_type)] if self.has_labels else []
        wanted += self.features
        found = {
            name: pa.array([each[at] for each in values], kind)
            for at, (name, kind) in enumerate(wanted)
        }
        if self.has_labels:
            names = pa.array(classes, pa.string())
            found.setdefault("text", _named(found["label"], names))
        return found

    def listed(self, notes: pa.Table, classes: Sequence[str]) -> dict[str, pa.Array]:
        """Returns the same of what is noted, without "text"; labels are names there."""
        found = {}
        if self.has_labels:
            found["label"] = _numbered(_array(notes[LABEL]), classes)
        for name, _ in self.features:
            found[name] = _array(notes[FEATURE + name])
        return found


def write_notes(notes: pa.Table, columns: dict[str, pa.Array]) -> list[bytes]:
    """Returns the note of each reference, as it stands at its end.

    Args:
      notes: what is noted.
      columns: what `NoteTypes.listed` says of it.
    """
    problems = notes[PROBLEM].to_pylist()
    rows = zip(*(each.to_pylist() for each in columns.values()), strict=True)
    written = []
    # A loop, 3 us each: opening the picture takes longer.
    for row, problem, at, raw in zip(
        rows if columns else repeat(()),
        problems,
        notes[AT].to_pylist(),
        notes[RAW].to_pylist(),
        strict=False,
    ):
        if raw is not None:
            found: Any = {"at": at, "raw": raw.decode("latin-1")}
        else:
            found = problem or row
        written.append(b"\0" + json.dumps(found, ensure_ascii=False).encode())
    return written


def read_note(text: bytes) -> Note:
    """Returns what `write_notes` wrote of one reference, without the zero."""
    if not text:
        return NO_NOTE
    found = json.loads(text)
    if isinstance(found, dict):
        return Note(at=found["at"], raw=found["raw"].encode("latin-1"))
    return Note(problem=found) if isinstance(found, str) else Note(found)


def _numbered(labels: pa.Array, classes: Sequence[str]) -> pa.Array:
    """Returns names, or lists of names, as numbers."""
    names = pa.array(classes, pa.string())
    if not pa.types.is_list(labels.type):
        return pc.index_in(labels, value_set=names).cast(pa.int64())
    numbers = pc.index_in(labels.flatten(), value_set=names).cast(pa.int64())
    return _as_lists(labels, numbers)


def _named(numbers: pa.Array, names: pa.StringArray) -> pa.Array:
    if not pa.types.is_list(numbers.type):
        return names.take(numbers)
    return _as_lists(numbers, names.take(numbers.flatten()))


def _as_lists(like: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Returns values in lists as long as others; one that is missing stays so."""
    lengths = pc.fill_null(pc.list_value_length(like), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = like.is_null() if like.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()


class Reference(NamedTuple):
    """What a reference names.

    Attributes:
      seen: size and version of the file.
      path: of the file.
      problem: why there is no picture to read, or "".
      note: what is noted of it (see picture_notes).
    """

    seen: Seen
    path: str
    problem: str
    note: bytes = b""


@dataclass(slots=True)
class ReadPictures:
    """The pictures that could be read, a list entry for each, and the others.

    Attributes:
      kept: the indices of their references.
      paths: of these pictures.
      places: their splits and classes.
      notes: what is noted of them.
      data: their bytes.
      crcs: the CRC-32Cs of their files.
      headers: their headers.
      kinds: of the files; see ImageHeader.
      rejects: the other references.
      checksums: of all files that were read.
      next_index: the first reference that is still to be read.
    """

    kept: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)
    headers: list[ImageHeader] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    checksums: list[FileChecksum] = field(default_factory=list)
    next_index: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as it goes into a record.

    Attributes:
      data: its bytes.
      header: of these bytes.
      kind: of the file, and what of it is not in these bytes.
    """

    data: bytes
    header: ImageHeader
    kind: str


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


def parse_reference(reference: bytes) -> Reference:
    """Returns size and version, path and problem of a file, and its note."""
    text, _, note = reference.partition(b"\0")
    if reference.startswith(b"!"):
        path, _, note = note.partition(b"\0")
        return Reference(Seen(0, ""), path.decode(), text[1:].decode(), note)
    facts, _, path = text.partition(b" ")
    size, _, version = facts.decode().partition(":")
    if "%" in version:
        version = unquote(version)
    return Reference(Seen(int(size), version), path.decode(), "", note)


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


def read_pictures(
    references: Sequence[Reference],
    places: Sequence[Place],
    root: str,
    contents: Iterator[bytes],
    take: Callable[[bytes], Picture],
    max_bytes: int | None = None,
) -> ReadPictures:
    """Reads and checks pictures.

    Args:
      references: of the files.
      places: split and class of each.
      root: what every uri begins with, before the path.
      contents: what `contents_of` yields for these references, and perhaps for more.
      take: makes a file's bytes a picture, or raises ImageHeaderError.
      max_bytes: reading ends with the file after which this much is held; None for all.

    Raises:
      InputError: a file cannot be read, or its size is not what it was.
    """
    found = ReadPictures()
    held = 0
    # A loop per file: each costs an open and a read, a hundred times its share of it.
    for index, (seen, path, problem, noted) in enumerate(references):
        if max_bytes is not None and held >= max_bytes:
            break
        found.next_index = index + 1
        size = seen.size
        note = read_note(noted)
        if problem:
            found.rejects.append(Reject(path, note.at, problem, note.raw))
            continue
        if size > MAX_CELL_BYTES:  # not worth the reading
            reason = (
                f"has {size:,} bytes, more than a record can hold ({MAX_CELL_BYTES:,})"
            )
            found.rejects.append(Reject(path, 0, reason, b""))
            continue
        content = next(contents)
        if len(content) != size:
            raise ChangedInputError(
                f"{root}{path}: has {len(content)} bytes, but had {size} when the run "
                "began; did it change meanwhile?"
            )
        crc = crc32c(content)
        found.checksums.append(FileChecksum(path, 0, size, crc))
        try:
            if note.problem:
                raise ImageHeaderError(note.problem)
            if note is NO_NOTE and not places[index].label:
                raise ImageHeaderError("is not in the folder of a class")
            picture = take(content)
        except ImageHeaderError as error:
            held += size
            found.rejects.append(Reject(path, 0, str(error), content))
            continue
        found.kept.append(index)
        found.paths.append(path)
        found.places.append(places[index])
        found.notes.append(note)
        found.data.append(picture.data)
        found.crcs.append(crc)
        found.headers.append(picture.header)
        found.kinds.append(picture.kind)
        held += len(picture.data)
    return found


def listed_rows(
    files: Sequence[InputFile],
    labels: Mapping[str, pa.Array],
    storage: StorageOptions,
    notes: Sequence[bytes] = (),
) -> Rows:
    """Returns references to pictures: the size and path of each file.

    Args:
      files: the pictures.
      labels: columns that are known without reading the files.
      storage: options of the files' storage.
      notes: what is noted of each, or ().
    """
    paths = [file.path for file in files]
    references = references_to(files)
    if notes:
        references = [b"".join(pair) for pair in zip(references, notes, strict=True)]
    return Rows(
        batch=pa.RecordBatch.from_pydict(
            {
                REFERENCE: pa.array(references, pa.binary()),
                **labels,
                "filename": pa.array(paths, pa.string()),
            }
        ),
        # The path alone, not its position in the listing: a picture keeps its
        # order key and its split when others are added or removed.
        origins=text_hashes(paths),
        positions=np.arange(len(files), dtype=np.int64),
        raw=lambda row: (0, read_file(files[row].uri, storage, files[row].seen)),
        planned_bytes=np.array([file.size for file in files], np.int64) + FRAME_BYTES,
    )


def listed_labels(
    places: Sequence[Place], classes: Sequence[str]
) -> dict[str, pa.Array]:
    """Returns the labels of pictures by their folders; null in no class."""
    label_of = _labels(classes)
    labels = [label_of.get(place.label) for place in places]
    return {"label": pa.array(labels, pa.int64())}


def labels_of(places: Sequence[Place], classes: Sequence[str]) -> dict[str, pa.Array]:
    """Returns label and name of the class of pictures by their folders."""
    label_of = _labels(classes)
    names = [place.label for place in places]
    return {
        "label": pa.array([label_of[name] for name in names], pa.int64()),
        "text": pa.array(names, pa.string()),
    }


def picture_batch(
    found: ReadPictures,
    labels: Mapping[str, pa.Array],
    *,
    by_view: bool = False,
) -> pa.RecordBatch:
    """Returns the columns of the pictures that could be read.

    Args:
      found: the pictures.
      labels: the columns of labels, and of features beside the pictures' own.
      by_view: whether the pictures' bytes stay where they are.
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
      listed: references to the range's pictures.
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
        rejects=found.rejects,
        observed=found.observed,
        odd=found.odd,
        checksums=found.checksums,
    )


def _labels(classes: Sequence[str]) -> Mapping[str, int]:
    return {name: label for label, name in enumerate(classes)}


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
      names: which names the features of the pictures get.
      has_labels: whether labels are among them.
    """
    own = dict(_NAMES[names])
    if not has_labels:
        own = {key: own[key] for key in own if key not in ("label", "text")}
    return frozenset({*own, *own.values(), "image", "height", "width", "depth"})


def image_schema(
    names: FeatureNames,
    classes: tuple[str, ...],
    decodable: bool,
    types: NoteTypes | None = None,
) -> Schema:
    """Returns the schema of pictures.

    Args:
      names: which names the features get.
      classes: names of the labels.
      decodable: whether one TensorFlow op decodes all the pictures to one rank.
      types: what is noted of the pictures, or None for one label each.
    """
    features = [] if types is None else types.specs()
    labels: Shape = (None,) if types is not None and types.has_several else ()
    for column, name in _NAMES[names].items():
        if column in ("label", "text") and types is not None and not types.has_labels:
            continue
        if column == "image":
            feature = FeatureSpec(
                name,
                Kind.BYTES,
                column,
                dtype="uint8" if decodable else "bytes",
                shape=(None, None, None) if decodable else (),
                content=Content.PICTURE,
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
                name, Kind.INT64, column, shape=labels, class_names=classes
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
