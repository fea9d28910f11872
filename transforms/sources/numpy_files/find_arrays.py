"""Finds arrays in .npy and .npz files, and which of them stand side by side."""

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
    folder_of,
    part_of,
    role_of,
    side_by_side,
)
from recordmill.transforms.sources.arrays.row_arrays import Found, Part, RowArray
from recordmill.transforms.sources.numpy_files.npy_header import (
    MAGIC,
    MAX_HEADER_BYTES,
    START_BYTES,
    fields_of,
    header_length,
    parse_npy,
)
from recordmill.transforms.sources.numpy_files.npz_members import (
    MARK,
    Member,
    MemberStart,
    members_of,
)
from recordmill.transforms.storage.reading import read_range

_ENDINGS = (".npy", ".npz")
_Counted = tuple[RowArray, int]


@dataclass(frozen=True)
class NumpyFinder:
    """Finds the arrays of NumPy files.

    Attributes: the options.
    """

    label_array: str = ""
    class_names: str = ""

    def find(self, files: Sequence[InputFile], storage: StorageOptions) -> Found:
        named_files, rest = name_files(files, self.class_names)
        named: list[Named[_Counted]] = []
        others: list[tuple[str, str]] = []
        seen_labels = False
        for file in rest:
            head = read_range(file.uri, 0, START_BYTES, storage, file.seen)
            is_archive = head.startswith(MARK)
            if not (is_archive or head.startswith(MAGIC)) and not file.path.endswith(
                _ENDINGS
            ):
                others.append(("neither .npy nor .npz", file.path))
                continue
            members = [_whole_file(file)]
            if is_archive or file.path.endswith(".npz"):
                members = members_of(file, storage)
            for member in members:
                is_label = self.label_array and self.label_array in _names_of(
                    file, member
                )
                seen_labels = seen_labels or bool(is_label)
                named.append(_named(file, member, bool(is_label), storage))
        if self.label_array and not seen_labels:
            raise InputError(
                f"`label_array`: no array is named {self.label_array!r}; found "
                f"{', '.join(sorted(each.role.column for each in named)) or 'none'}. Name "
                "the file among the inputs, as in recordmill convert numpy images.npy "
                "labels.npy OUT"
            )
        if not named:
            raise InputError(
                f"none of {count(len(files), 'input file')} is a .npy or .npz file"
            )
        parts = _parts(named)
        columns = [
            f.name for f in parts[0].fields if not f.shape and f.dtype[1] in "iuf"
        ]
        names, read = read_class_names(named_files, columns, storage)
        told = Understood((), (), PassedOver.counted(others))
        return Found(parts, names, told, read)


def _parts(named: Sequence[Named[_Counted]]) -> tuple[Part, ...]:
    """Makes the parts; positions in a file go on where it has several."""
    parts: list[Part] = []
    positions: dict[str, int] = {}
    for group in side_by_side(named):
        arrays = [each.item[0] for each in group]
        counts = [each.item[1] for each in group]
        path = arrays[0].file.path
        first = positions.get(path, 0)
        parts.append(part_of(arrays, counts, group[0].role.split, first))
        positions[path] = parts[-1].stop
    return tuple(parts)


def _whole_file(file: InputFile) -> Member:
    name = PurePosixPath(file.path).name
    return Member(name, RowArray(file, 0, 1, ()), file.size)


def _names_of(file: InputFile, member: Member) -> tuple[str, ...]:
    """Returns the names by which a person may mean an array."""
    return member.name, member.name.removesuffix(".npy"), file.path


def _named(
    file: InputFile, member: Member, is_label: bool, storage: StorageOptions
) -> Named[_Counted]:
    role = role_of(PurePosixPath(member.name).name)
    if is_label:
        role = replace(role, column="label")
    folder = folder_of(file.path)
    if member.name != PurePosixPath(file.path).name:  # of an archive
        folder = file.path
        if not role.split:
            role = replace(role, split=role_of(PurePosixPath(file.path).name).split)
    array = _opened(file, member, role.column, storage)
    return Named(array, role, folder)


def _opened(
    file: InputFile, member: Member, column: str, storage: StorageOptions
) -> _Counted:
    where = file.uri
    if member.name != PurePosixPath(file.path).name:
        where = f"{file.uri}: {member.name}"
    reader = MemberStart(member, storage)
    start = reader.take(START_BYTES)
    length = header_length(start, where)
    if length > MAX_HEADER_BYTES:
        raise InputError(
            f"{where}: its header has {length:,} bytes, expected at most "
            f"{MAX_HEADER_BYTES:,}: the file is damaged"
        )
    head = (start + reader.take(max(0, length - len(start))))[:length]
    if len(head) < length:
        raise InputError(
            f"{where}: ends after {len(head):,} bytes inside its header of {length:,}: the "
            "file is cut short; copy it again"
        )
    header = parse_npy(head, where)
    expected = header.num_bytes + header.data_bytes
    if expected != member.size:
        shape = " x ".join(map(str, header.shape))
        more = "The file is cut short: copy it again"
        if member.size > expected:
            more = "Save each array in a file of its own, or all with numpy.savez"
        raise InputError(
            f"{where}: its header says {shape} values of {header.dtype.itemsize} bytes, "
            f"{expected:,} bytes with the header, but there are {member.size:,}. {more}"
        )
    array = replace(
        member.array,
        start=member.array.start + header.num_bytes,
        row_bytes=header.row_bytes,
        fields=fields_of(header, column, where),
        transposed=int(header.dtype.itemsize) if header.is_fortran else 0,
    )
    if array.packing and array.transposed:
        raise InputError(
            f"{where}: is compressed and in Fortran order, so its rows cannot be read one "
            "by one: save numpy.ascontiguousarray(array), or without compression"
        )
    return array, header.shape[0]
