"""Reads the pictures that references name, and checks each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, unquote

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileChecksum, InputFile, Seen
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import MAX_CELL_BYTES
from recordmill.transforms.pictures.header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.images.folder_layout import Place
from recordmill.transforms.sources.images.picture_notes import (
    NO_NOTE,
    Note,
    read_note,
)
from recordmill.transforms.storage.reading import read_files
from recordmill.transforms.tfrecord import crc32c


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
      frames: how many bytes each frame has, where all frames of a picture are taken.
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
    frames: list[tuple[int, ...]] = field(default_factory=list)
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
      frames: how many bytes each frame has, where all frames of a picture are taken.
    """

    data: bytes
    header: ImageHeader
    kind: str
    frames: tuple[int, ...] = ()


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
        found.frames.append(picture.frames)
        held += len(picture.data)
    return found
