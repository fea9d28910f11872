"""Finds images and labels in IDX files, in which MNIST is published.

    00 00 08 03 | 00 00 ea 60 | 00 00 00 1c | 00 00 00 1c      uint8, 60,000 x 28 x 28

Source: yann.lecun.com/exdb/mnist, "The IDX file format"; numbers are big-endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.sources.arrays.array_parts import (
    MAX_ROW_BYTES,
    Field,
    Found,
    NamedArray,
    Part,
    Role,
    RowArray,
    files_of_names,
    folder_of,
    parts_of,
    read_class_names,
    role_of,
)
from recordmill.transforms.sources.arrays.rows import ArrayRows, open_array
from recordmill.transforms.sources.packing import MARK_BYTES, compression_of
from recordmill.transforms.storage.reading import read_range

LABEL = "label"
_TYPES = {8: "|u1", 9: "|i1", 0xB: ">i2", 0xC: ">i4", 0xD: ">f4", 0xE: ">f8"}
_MAX_AXES = 8
_MAX_HEADER_BYTES = 4 + 4 * _MAX_AXES
_ROLES = ("image", "images", "label", "labels")
_MOST_UNPACKED = 1032  # bytes that deflate makes of one, at most
_STEP_ROWS = 1 << 20


@dataclass(frozen=True)
class IdxFinder:
    """Finds arrays in IDX files; labels of uint8 are classes.

    Attributes: the options.
    """

    class_names: str = ""

    def find(self, files: Sequence[InputFile], storage: StorageOptions) -> Found:
        files_of_classes, rest = files_of_names(files, self.class_names)
        named: list[NamedArray] = []
        skipped: list[tuple[str, str]] = []
        for file in rest:
            role, key = _role(PurePosixPath(file.path).name)
            array = _open(file, role.column, storage)
            if array is None:
                skipped.append(("not named like IDX, and does not begin so", file.path))
            else:
                named.append(NamedArray(array, role, f"{folder_of(file.path)}/{key}"))
        if not named:
            raise InputError(
                f"none of {count(len(files), 'input file')} is an IDX file, such as "
                "train-images-idx3-ubyte or train-labels-idx1-ubyte.gz"
            )
        parts = parts_of(named, labels_last=True)
        columns = [field.name for field in parts[0].fields if field.is_integer]
        names, read = read_class_names(files_of_classes, columns, storage)
        if not files_of_classes and LABEL in columns:
            numbers = _highest_label(parts, storage) + 1
            if numbers:
                names = ((LABEL, tuple(map(str, range(numbers)))),)
        return Found(tuple(parts), names, skipped=skipped, read=read)


def _role(name: str) -> tuple[Role, str]:
    """Returns the role of a file, and words by which files belong together.

    >>> _role("emnist-letters-train-labels-idx1-ubyte.gz")
    (Role(column='label', split='train', number=''), 'emnist_letters')
    """
    role = role_of(name)
    words = role.column.split("_")
    found = [word for word in words if word.lower() in _ROLES]
    if len(found) != 1:
        return role, ""
    rest = "_".join(word for word in words if word not in found)
    return role._replace(column=found[0].lower().removesuffix("s")), rest


def _open(file: InputFile, column: str, storage: StorageOptions) -> RowArray | None:
    """Returns the array of a file; None if it cannot be meant as IDX.

    Images without channels get one, as TFDS has it.
    """
    head = read_range(file.uri, 0, _MAX_HEADER_BYTES, storage, file.seen)
    array = RowArray(file)
    if compression_of(head[:MARK_BYTES]) == "gzip":
        array = replace(array, packing="gzip", packed_stop=file.size)
        stream = open_array(array, storage)
        head = stream.read(4)
        head += stream.read(4 * min(head[3], _MAX_AXES) if len(head) == 4 else 0)
    looks_like = "idx" in file.path.lower() or "ubyte" in file.path.lower()
    if not looks_like and (len(head) < 4 or head[:2] != b"\0\0"):
        return None
    dtype, shape = parse_idx(head, file.uri)
    header, row_bytes = 4 + 4 * len(shape), int(dtype[2:]) * math.prod(shape[1:])
    expected = header + shape[0] * row_bytes
    sides = " x ".join(map(str, shape))
    if not 0 < row_bytes <= MAX_ROW_BYTES:
        raise InputError(
            f"{file.uri}: its header says {sides}, a row of {row_bytes:,} bytes; expected "
            f"1 to {MAX_ROW_BYTES:,}: the file is damaged, or not IDX"
        )
    is_wrong, size = expected != file.size, f"the file has {file.size:,}"
    if array.packing:
        most = file.size * _MOST_UNPACKED
        is_wrong = expected > most
        size = f"{file.size:,} bytes of gzip hold at most {most:,}"
    if is_wrong:
        raise InputError(
            f"{file.uri}: its header says {sides} values of {dtype[2:]} "
            f"bytes, {expected:,} bytes with the header, but {size}. The file is "
            "cut short or damaged: copy it again"
        )
    field = Field(column, dtype, shape[1:])
    if column == "image" and len(field.shape) == 2 and field.is_bytes:
        field = replace(field, shape=(*field.shape, 1))
    return replace(
        array, start=header, row_bytes=row_bytes, num_rows=shape[0], fields=(field,)
    )


def parse_idx(head: bytes, uri: str) -> tuple[str, tuple[int, ...]]:
    """Returns type and shape of an array by the first bytes of its file."""
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
        raise InputError(
            f"{uri}: begins with {head[:4].hex(' ') or 'nothing'}, expected the magic "
            "number of an IDX file: 00 00, a type (08, 09, 0b to 0e), the number of axes. "
            "Name only IDX files; other layouts are declared with convert binary"
        )
    rank = head[3]
    if not 1 <= rank <= _MAX_AXES:
        raise InputError(
            f"{uri}: its header says {rank} axes, expected 1 to {_MAX_AXES}: the file is "
            "damaged, or not IDX"
        )
    if len(head) < 4 + 4 * rank:
        raise InputError(
            f"{uri}: ends after {len(head)} bytes inside its header of {4 + 4 * rank}: "
            "the file is cut short; copy it again"
        )
    return _TYPES[head[2]], struct.unpack_from(f">{rank}I", head, 4)


def _highest_label(parts: Sequence[Part], storage: StorageOptions) -> int:
    """Returns the highest label of uint8; -1 if there is none."""
    highest = -1
    for part in parts:
        for array in part.arrays:
            if array.fields == (Field(LABEL, "|u1"),):
                rows = ArrayRows(array, (0, array.num_rows), array.span, storage)
                for labels in rows.matrices(_STEP_ROWS):
                    highest = max(highest, int(labels.max()))
    return highest
