"""Finds records of a declared layout in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import PassedOver, Understood
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.sources.arrays.class_name_files import (
    name_files,
    read_class_names,
)
from recordmill.transforms.sources.arrays.file_roles import role_of
from recordmill.transforms.sources.arrays.row_arrays import Field, Found, Part, RowArray
from recordmill.transforms.sources.binary.known_layouts import known_layout
from recordmill.transforms.sources.binary.options import ByteOrder, Layout
from recordmill.transforms.sources.binary.record_syntax import parse_record
from recordmill.transforms.sources.binary.stl10 import find_stl10, is_stl10


@dataclass(frozen=True)
class BinaryFinder:
    """Finds records of a fixed length.

    Attributes: the options.
    """

    record: str = ""
    byte_order: ByteOrder = "little"
    header_bytes: int = 0
    class_names: str = ""
    layout: Layout = "auto"

    def find(self, files: Sequence[InputFile], storage: StorageOptions) -> Found:
        if self.record and self.layout != "auto":
            raise InputError(
                f"`layout={self.layout}` and `record` exclude each other: leave out one"
            )
        if self.layout == "stl10" or (not self.record and is_stl10(files)):
            return find_stl10(files, storage)
        if not self.record:
            hint = next(filter(None, (known_layout(f, storage) for f in files)), "")
            raise InputError(
                "`record` is not given, and the files are not those of a published "
                f"layout{f' ({hint})' if hint else ''}: declare the record, as in "
                "record='label:u8,image:u8[3,32,32]:chw->hwc'"
            )
        fields, size = parse_record(self.record, self.byte_order)
        names, rest = name_files(files, self.class_names)
        data, others = _data_files(rest)
        class_names, read = read_class_names(names, _label_columns(fields), storage)
        parts = tuple(self._part(file, fields, size, storage) for file in data)
        told = Understood(
            (("records", f"{size:,} bytes each"),), (), PassedOver.counted(others)
        )
        reason = (
            f"expected a whole record of {size:,}: the file is cut short, or `record` "
            "or `header_bytes` is wrong"
        )
        return Found(parts, class_names, told, read, reason)

    def _part(
        self,
        file: InputFile,
        fields: tuple[Field, ...],
        size: int,
        storage: StorageOptions,
    ) -> Part:
        header = self.header_bytes
        if file.size < header or not file.size:
            raise InputError(
                f"{file.uri}: has {count(file.size, 'byte')}, expected "
                f"{f'a header of {header:,} and ' if header else ''}records of {size:,}: "
                "copy the file again, or leave it out of the inputs"
            )
        num_rows, tail = divmod(file.size - header, size)
        if tail and (other := known_layout(file, storage)):
            raise InputError(
                f"{file.uri}: {file.size:,} bytes are no whole number of records: "
                f"{count(tail, 'byte')} follow {count(num_rows, 'record')} of {size:,} "
                f"({size - tail:,} are missing to the next). {other}. Correct `record` or "
                "`header_bytes`, or copy the file again if it is cut short"
            )
        array = RowArray(file, header, size, fields)
        split = role_of(file.path.rpartition("/")[2].rpartition(".")[0]).split
        return Part((array,), num_rows, split, first=header, scale=size, tail=tail)


def _label_columns(fields: Sequence[Field]) -> list[str]:
    return [f.name for f in fields if not f.shape and f.dtype[1] in "iu"]


def _data_files(
    files: Sequence[InputFile],
) -> tuple[list[InputFile], list[tuple[str, str]]]:
    """Returns the files of records, and the others: where some end in .bin, the rest."""
    data = [file for file in files if file.path.lower().endswith(".bin")]
    if not data:
        return list(files), []
    others = [
        ("does not end in .bin", file.path)
        for file in files
        if not file.path.lower().endswith(".bin")
    ]
    return data, others
