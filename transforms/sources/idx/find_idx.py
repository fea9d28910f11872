"""Finds images and labels in IDX files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import PassedOver, Understood
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.sources.arrays.class_name_files import (
    name_files,
    read_class_names,
)
from recordmill.transforms.sources.arrays.file_roles import (
    Named,
    Role,
    folder_of,
    part_of,
    role_of,
    side_by_side,
)
from recordmill.transforms.sources.arrays.read_rows_of import matrices, unpacked
from recordmill.transforms.sources.arrays.row_arrays import (
    MAX_ROW_BYTES,
    Field,
    Found,
    Part,
    RowArray,
)
from recordmill.transforms.sources.idx.idx_header import MAX_HEADER_BYTES, parse_idx
from recordmill.transforms.sources.packing import MARK_BYTES, compression_of
from recordmill.transforms.storage.reading import read_range

LABEL = "label"
_ROLES = ("image", "images", "label", "labels")
_MOST_UNPACKED = 1032  # bytes that deflate makes of one, at most
_STEP_ROWS = 1 << 20
_Counted = tuple[RowArray, int]


@dataclass(frozen=True)
class IdxFinder:
    """Finds arrays in IDX files; labels of uint8 are classes.

    Attributes: the options.
    """

    class_names: str = ""

    def find(self, files: Sequence[InputFile], storage: StorageOptions) -> Found:
        named_files, rest = name_files(files, self.class_names)
        named: list[Named[_Counted]] = []
        others: list[tuple[str, str]] = []
        for file in rest:
            found = _open(file, storage)
            if found is None:
                others.append(("not named like IDX, and does not begin so", file.path))
                continue
            role, key = _role(PurePosixPath(file.path).name)
            folder = f"{folder_of(file.path)}/{key}"
            named.append(Named(_renamed(*found, role.column), role, folder))
        if not named:
            raise InputError(
                f"none of {count(len(files), 'input file')} is an IDX file, such as "
                "train-images-idx3-ubyte or train-labels-idx1-ubyte.gz"
            )
        parts = tuple(_part(group) for group in side_by_side(named))
        fields = [field for field in parts[0].fields if _is_label(field)]
        columns = [field.name for field in fields]
        names, read = read_class_names(named_files, columns, storage)
        if not named_files and LABEL in columns:
            numbers = _highest_label(parts, storage) + 1
            if numbers:
                names = ((LABEL, tuple(map(str, range(numbers)))),)
        told = Understood((), (), PassedOver.counted(others))
        return Found(parts, names, told, read)


def _part(group: Sequence[Named[_Counted]]) -> Part:
    arrays = [each.item[0] for each in group]
    counts = [each.item[1] for each in group]
    order = sorted(range(len(group)), key=lambda n: _is_label(arrays[n].fields[0]))
    return part_of(
        [arrays[n] for n in order], [counts[n] for n in order], group[0].role.split
    )


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
    return replace(role, column=found[0].lower().removesuffix("s")), rest


def _open(file: InputFile, storage: StorageOptions) -> _Counted | None:
    """Returns the array of a file and its rows; None if it cannot be meant as IDX.

    Raises:
      InputError: it should be IDX by its name or its start, but is not.
    """
    head = read_range(file.uri, 0, MAX_HEADER_BYTES, storage, file.seen)
    array = RowArray(file, 0, 1, ())
    if compression_of(head[:MARK_BYTES]) == "gzip":
        array = replace(array, packing="gzip", packed_stop=file.size)
        head = _unpacked_head(array, storage)
    looks_like = "idx" in file.path.lower() or "ubyte" in file.path.lower()
    if not looks_like and (len(head) < 4 or head[:2] != b"\0\0"):
        return None
    header = parse_idx(head, file.uri)
    num_rows, row_bytes = header.shape[0], header.row_bytes
    expected = header.num_bytes + num_rows * row_bytes
    told = " x ".join(map(str, header.shape))
    if not 0 < row_bytes <= MAX_ROW_BYTES:
        raise InputError(
            f"{file.uri}: its header says {told}, a row of {row_bytes:,} bytes; expected "
            f"1 to {MAX_ROW_BYTES:,}: the file is damaged, or not IDX"
        )
    if array.packing:
        most = file.size * _MOST_UNPACKED
        is_wrong = expected > most
        size = f"{file.size:,} bytes of gzip hold at most {most:,}"
    else:
        is_wrong = expected != file.size
        size = f"the file has {file.size:,}"
    if is_wrong:
        raise InputError(
            f"{file.uri}: its header says {told} values of {header.dtype[2:]} "
            f"bytes, {expected:,} bytes with the header, but {size}. The file is "
            "cut short or damaged: copy it again"
        )
    field = Field("value", header.dtype, header.shape[1:])
    array = replace(array, start=header.num_bytes, row_bytes=row_bytes, fields=(field,))
    return array, num_rows


def _unpacked_head(array: RowArray, storage: StorageOptions) -> bytes:
    """Returns the first unpacked bytes: those of the sizes that are stated."""
    stream = unpacked(array, storage)
    head = stream.take(4)
    rank = head[3] if len(head) == 4 else 0
    return head + stream.take(4 * min(rank, 8))


def _renamed(array: RowArray, num_rows: int, column: str) -> _Counted:
    """Names the column of an array; images without channels get one, as TFDS has it."""
    (field,) = array.fields
    shape = field.shape
    if column == "image" and len(shape) == 2 and field.dtype == "|u1":
        shape = (*shape, 1)
    return replace(array, fields=(replace(field, name=column, shape=shape),)), num_rows


def _is_label(field: Field) -> bool:
    return not field.shape and field.dtype[1] in "iu"


def _highest_label(parts: Sequence[Part], storage: StorageOptions) -> int:
    """Returns the highest label of uint8; -1 if there is none."""
    highest = -1
    for part in parts:
        for array in part.arrays:
            (field,) = array.fields
            if field.name == LABEL and field.dtype == "|u1" and not field.shape:
                whole = (0, part.num_rows)
                for rows in matrices(array, part.num_rows, whole, _STEP_ROWS, storage):
                    highest = max(highest, int(rows.max()))
    return highest
