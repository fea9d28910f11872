"""Finds arrays in files whose headers describe them: .npy and .npz, and IDX.

NumPy files have format version 1.0 to 3.0 (see numpy.lib.format); nothing is unpickled.
MNIST is published in IDX, whose numbers are big-endian:

    00 00 08 03 | 00 00 ea 60 | 00 00 00 1c | 00 00 00 1c      uint8, 60,000 x 28 x 28

Source: yann.lecun.com/exdb/mnist, "The IDX file format".
"""

from __future__ import annotations

import ast
import math
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms.sources.arrays.array_parts import (
    MAX_ROW_BYTES,
    ArrayGroup,
    ArrayInput,
    Field,
    NamedArray,
    NameRole,
    RowArray,
    group_arrays,
    parse_name_role,
    read_class_names,
    split_names_files,
)
from recordmill.transforms.sources.arrays.rows import ArrayRows, open_array
from recordmill.transforms.sources.registry import IdxOptions, NumpyOptions
from recordmill.transforms.storage.archives import read_zip_directory
from recordmill.transforms.storage.input_stream import MARK_BYTES, compression_of
from recordmill.transforms.storage.reading import open_stream, read_range

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 1 << 16
START_BYTES = 12  # maximum size of magic, version and header length
_MAX_AXES = 8
_SUPPORTED_KINDS = "biufSUV"
_NUMPY_ENDINGS = (".npy", ".npz")
_ZIP_SIGNATURE = b"PK"
_LOCAL_HEADER = struct.Struct(
    "<4s5H3I2H"
)  # local header, before the bytes of a zip member
_ENCRYPTED_FLAG = 1
_HEADER_ERRORS = (
    *(ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError),
)

# Name of an array, its location in the file, and its size in bytes after unpacking.
_ArrayMember = tuple[str, RowArray, int]


def find_numpy(
    options: NumpyOptions, files: Sequence[InputFile], storage: StorageOptions
) -> ArrayInput:
    """Finds the arrays of NumPy files."""
    files_of_classes, other_files = split_names_files(files, options.class_names)
    named_arrays: list[NamedArray] = []
    skipped: list[tuple[str, str]] = []
    any_labels = False
    for file in other_files:
        members = _list_arrays(file, storage)
        if members is None:
            skipped.append(("neither .npy nor .npz", file.path))
        for member in members or ():
            names = (member[0], member[0].removesuffix(".npy"), file.path)
            is_label = bool(options.label_array) and options.label_array in names
            any_labels |= is_label
            named_arrays.append(_open_named_array(file, member, is_label, storage))
    if options.label_array and not any_labels:
        raise InputError(
            f"`label_array`: no array is named {options.label_array!r}; found "
            f"{', '.join(sorted(named_array.role.column for named_array in named_arrays)) or 'none'}. Name "
            "the file among the inputs, as in recordmill convert numpy images.npy "
            "labels.npy OUT"
        )
    if not named_arrays:
        raise InputError(
            f"no .npy or .npz file among the inputs ({format_count(len(files), 'input file')})"
        )
    parts = group_arrays(named_arrays)
    columns = [f.name for f in parts[0].fields if not f.shape and f.dtype[1] in "iuf"]
    classes, checksums = read_class_names(files_of_classes, columns, storage)
    return ArrayInput(
        tuple(parts), classes, skipped_files=skipped, other_checksums=checksums
    )


def _list_arrays(file: InputFile, storage: StorageOptions) -> list[_ArrayMember] | None:
    """Returns the arrays of a file, or None if the file is no NumPy file."""
    head = read_range(file.uri, 0, START_BYTES, storage, file.stat)
    if head.startswith(_ZIP_SIGNATURE) or file.path.endswith(".npz"):
        stream = open_stream(file, storage)
        member_infos = read_zip_directory(stream, file.size, file.uri, ".npz")
        return [
            _locate_member(file, member_info, storage) for member_info in member_infos
        ]
    if head.startswith(MAGIC) or file.path.endswith(_NUMPY_ENDINGS):
        name = PurePosixPath(file.path).name
        return [(name, RowArray(file), file.size)]
    return None


def _locate_member(
    file: InputFile, member_info: zipfile.ZipInfo, storage: StorageOptions
) -> _ArrayMember:
    location = f"{file.uri}: {member_info.filename!r}"
    if not member_info.filename.endswith(".npy"):
        raise InputError(
            f"{location} is not an array; expected only .npy members, as numpy.savez writes them"
        )
    is_packed = member_info.compress_type == zipfile.ZIP_DEFLATED
    if member_info.flag_bits & _ENCRYPTED_FLAG or not (
        is_packed or member_info.compress_type == zipfile.ZIP_STORED
    ):
        raise InputError(
            f"{location} is encrypted or packed in an unusual way: write it again with "
            "numpy.savez or numpy.savez_compressed"
        )
    at = member_info.header_offset
    local = read_range(file.uri, at, at + _LOCAL_HEADER.size, storage, file.stat)
    if len(local) < _LOCAL_HEADER.size or not local.startswith(b"PK\3\4"):
        raise InputError(
            f"{location} is not at the position in the archive's index: copy "
            "the file again"
        )
    *_, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(local)
    start = at + _LOCAL_HEADER.size + name_bytes + extra_bytes
    stop = start + member_info.compress_size
    if stop > file.size:
        raise InputError(
            f"{location} extends beyond the end of the file: copy it again"
        )
    if not is_packed and member_info.compress_size != member_info.file_size:
        raise InputError(f"{location} states two sizes: copy the file again")
    array = RowArray(file, start)
    if is_packed:
        array = RowArray(file, compression="deflate", crc32=member_info.CRC)
        array = replace(array, compressed_start=start, compressed_stop=stop)
    return member_info.filename.removesuffix(".npy"), array, member_info.file_size


def _open_named_array(
    file: InputFile, member: _ArrayMember, is_label: bool, storage: StorageOptions
) -> NamedArray:
    name, array, size = member
    role, folder, location = parse_name_role(PurePosixPath(name).name), "", file.uri
    if is_label:
        role = role._replace(column="label")
    if name == PurePosixPath(file.path).name:
        folder = file.path.rpartition("/")[0]
    else:  # a member of an archive
        folder, location = file.path, f"{file.uri}: {name}"
        if not role.split:
            role = role._replace(
                split=parse_name_role(PurePosixPath(file.path).name).split
            )
    return NamedArray(
        _open_npy(array, size, role.column, location, storage), role, folder
    )


def _open_npy(
    array: RowArray, size: int, column: str, location: str, storage: StorageOptions
) -> RowArray:
    """Reads the header of an array and returns the array with its rows and fields.

    Args:
      array: The location of the .npy data in the file.
      size: Size of the .npy data in bytes, after unpacking.
      column: Name of the column.
      location: Location of the array, for messages.
      storage: Options of the storage.
    """
    stream = open_array(array, storage, (array.start, array.start + size))
    start = bytes(stream.read(START_BYTES))
    length = parse_header_length(start, location)
    head = (start + bytes(stream.read(max(0, length - len(start)))))[:length]
    _require_header(len(head), length, location)
    header = parse_npy(head, location)
    expected = length + header.row_bytes * header.shape[0]
    if expected != size:
        shape = " x ".join(map(str, header.shape))
        advice = "The file is cut short: copy it again"
        if size > expected:
            advice = "Save each array in a file of its own, or all with numpy.savez"
        raise InputError(
            f"{location}: its header declares {shape} values of {header.dtype.itemsize} "
            f"bytes, {expected:,} bytes with the header, but the file has {size:,}. "
            f"{advice}"
        )
    array = replace(
        array,
        start=array.start + length,
        row_bytes=header.row_bytes,
        num_rows=header.shape[0],
        fields=_create_fields(header, column, location),
        fortran_value_bytes=int(header.dtype.itemsize) if header.is_fortran else 0,
    )
    if array.compression and array.fortran_value_bytes:
        raise InputError(
            f"{location}: is compressed and in Fortran order, so its rows cannot be read one "
            "by one: save numpy.ascontiguousarray(array), or without compression"
        )
    return array


def _require_header(num_bytes: int, expected: int, location: str) -> None:
    if num_bytes < expected:
        raise InputError(
            f"{location}: ends after {num_bytes:,} bytes inside its header of {expected:,}: the "
            "file is cut short; copy it again"
        )


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The type, shape and memory order of an array in a .npy file.

    In Fortran order, the first axis varies fastest.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool

    @property
    def row_bytes(self) -> int:
        """Returns the size of a row in bytes."""
        return int(self.dtype.itemsize) * math.prod(self.shape[1:])


def parse_header_length(start: bytes, location: str) -> int:
    """Returns the size in bytes of the header of a .npy file, read from its first bytes.

    Raises:
      InputError: the bytes are no start of a .npy file.
    """
    if not start.startswith(MAGIC):
        raise InputError(
            f"{location}: begins with {start[:6].hex(' ') or 'nothing'}, expected the "
            "signature of a .npy file, 93 4e 55 4d 50 59. Write the array with "
            "numpy.save, or leave the file out"
        )
    major = start[6] if len(start) > 6 else 0
    width = 2 if major == 1 else 4
    if major not in (1, 2, 3) or len(start) < 8 + width:
        raise InputError(
            f"{location}: version {major} of .npy, expected 1 to 3: the file is damaged or "
            "cut short; copy it again"
        )
    length = 8 + width + int.from_bytes(start[8 : 8 + width], "little")
    if length > MAX_HEADER_BYTES:
        raise InputError(
            f"{location}: its header has {length:,} bytes, expected at most "
            f"{MAX_HEADER_BYTES:,}: the file is damaged"
        )
    return length


def parse_npy(head: bytes, location: str, least_axes: int = 1) -> NpyHeader:
    """Parses the header of a .npy file.

    Args:
      head: The header, of the size that `parse_header_length` returns.
      location: Location of the array, for messages.
      least_axes: Minimum number of axes. 1: the first axis counts rows. 0: the array is
        one value, which may be a scalar or empty.

    Raises:
      InputError: the header is damaged, or its dtype or shape cannot become a feature.
    """
    text = head[10 if head[6] == 1 else 12 :]
    try:
        header_fields = ast.literal_eval(
            text.decode("utf-8" if head[6] == 3 else "latin-1")
        )
        if set(header_fields) != {"descr", "fortran_order", "shape"}:
            raise ValueError(f"has the keys {sorted(map(str, header_fields))}")
        shape, is_fortran = header_fields["shape"], header_fields["fortran_order"]
        dtype = npy.descr_to_dtype(header_fields["descr"])
        if not isinstance(shape, tuple) or any(
            type(size) is not int or size < 0 for size in shape
        ):
            raise ValueError(f"has the shape {shape!r}")
    except _HEADER_ERRORS as error:
        problem = " ".join(str(error).split())[:200]
        raise InputError(
            f"{location}: its header is not valid ({problem}): the file is damaged; write the "
            "array again with numpy.save"
        ) from error
    if dtype.hasobject:
        raise InputError(
            f"{location}: contains Python objects, which recordmill does not read because "
            "unpickling can run any code. Write numbers or text: numpy.save(path, "
            "numpy.array(values.tolist())), or one array per field"
        )
    if not least_axes <= len(shape) <= _MAX_AXES:
        of_rows = ", the first of them for the rows: save array[numpy.newaxis] for a single row"
        raise InputError(
            f"{location}: has {len(shape)} axes, expected {least_axes} to {_MAX_AXES}"
            f"{of_rows if least_axes else ''}"
        )
    header = NpyHeader(dtype, shape, bool(is_fortran) and len(shape) > 1)
    if least_axes and not 0 < header.row_bytes <= MAX_ROW_BYTES:
        raise InputError(
            f"{location}: a row of shape {list(shape[1:])} has {header.row_bytes:,} "
            f"bytes, expected 1 to {MAX_ROW_BYTES:,}: the first axis must be the rows; "
            "move it there with numpy.moveaxis, or the file is damaged"
        )
    return header


def read_npy(content: bytes, location: str) -> npt.NDArray[Any]:
    """Parses a .npy file of numbers or booleans into an array.

    Raises:
      InputError: the file is damaged, or has another type.
    """
    length = parse_header_length(content[:START_BYTES], location)
    header = parse_npy(content[:length], location, least_axes=0)
    dtype, num_value_bytes = header.dtype, len(content) - length
    if dtype.kind not in "biuf" or (dtype.kind == "f" and dtype.itemsize > 8):
        raise InputError(
            f"{location}: is an array of {dtype}, expected numbers or booleans"
        )
    size = dtype.itemsize * math.prod(header.shape)
    if num_value_bytes != size:
        raise InputError(
            f"{location}: its header declares {size:,} bytes of values, but {num_value_bytes:,} "
            "follow: the file is damaged"
        )
    flat = np.frombuffer(content, dtype, offset=length)
    order: Literal["C", "F"] = "F" if header.is_fortran else "C"
    return np.ascontiguousarray(flat.reshape(header.shape, order=order))


def _create_fields(header: NpyHeader, name: str, location: str) -> tuple[Field, ...]:
    """Returns the fields of a row; a structured dtype has one field for each name."""
    dtype, inner = header.dtype, header.shape[1:]
    if dtype.names is None or dtype.fields is None:
        # In Fortran order the inner axes are stored from the last to the first.
        axes = tuple(reversed(range(len(inner)))) if header.is_fortran else ()
        shape = inner[::-1] if header.is_fortran else inner
        axes = axes if len(axes) > 1 else ()
        return (Field(name, _check_dtype(dtype, name, location), shape, axes),)
    if inner:
        names = ", ".join(map(repr, dtype.names))
        raise InputError(
            f"{location}: rows of {list(inner)} records each: save an array of one axis, or "
            f"one array for each of the fields {names}"
        )
    fields = []
    for field_name in dtype.names:
        field_dtype, offset = dtype.fields[field_name][:2]
        base, shape = field_dtype.subdtype or (field_dtype, ())
        text = _check_dtype(base, field_name, location)
        fields.append(Field(field_name, text, tuple(shape), offset=int(offset)))
    return tuple(fields)


def _check_dtype(dtype: np.dtype[Any], name: str, location: str) -> str:
    is_wide = dtype.kind == "f" and dtype.itemsize > 8
    if (
        dtype.kind not in _SUPPORTED_KINDS
        or dtype.names
        or is_wide
        or not dtype.itemsize
    ):
        raise InputError(
            f"{location}: {name!r} is {dtype}, which cannot be a feature; expected numbers, "
            "booleans, text or bytes. Save array.astype(...) of such a type (int64 for "
            "times), and one array for each part of a complex number"
        )
    return str(dtype.str)


LABEL = "label"
_IDX_TYPES = {8: "|u1", 9: "|i1", 0xB: ">i2", 0xC: ">i4", 0xD: ">f4", 0xE: ">f8"}
_MAX_HEADER_BYTES = 4 + 4 * _MAX_AXES
_ROLE_WORDS = ("image", "images", "label", "labels")
_MAX_DEFLATE_RATIO = 1032  # maximum number of bytes that deflate unpacks from one byte
_STEP_ROWS = 1 << 20


def find_idx(
    options: IdxOptions, files: Sequence[InputFile], storage: StorageOptions
) -> ArrayInput:
    """Finds the arrays of IDX files; labels of uint8 become class labels."""
    files_of_classes, other_files = split_names_files(files, options.class_names)
    named_arrays: list[NamedArray] = []
    skipped: list[tuple[str, str]] = []
    for file in other_files:
        role, key = _idx_role(PurePosixPath(file.path).name)
        array = _open_idx(file, role.column, storage)
        if array is None:
            skipped.append(
                ("not named like IDX, and does not start like it", file.path)
            )
        else:
            folder = file.path.rpartition("/")[0]
            named_arrays.append(NamedArray(array, role, f"{folder}/{key}"))
    if not named_arrays:
        raise InputError(
            "no IDX file, such as train-images-idx3-ubyte or "
            "train-labels-idx1-ubyte.gz, among the inputs "
            f"({format_count(len(files), 'input file')})"
        )
    parts = group_arrays(named_arrays, labels_last=True)
    columns = [field.name for field in parts[0].fields if field.is_integer]
    names, checksums = read_class_names(files_of_classes, columns, storage)
    if not files_of_classes and LABEL in columns:
        numbers = _highest_label(parts, storage) + 1
        if numbers:
            names = ((LABEL, tuple(map(str, range(numbers)))),)
    return ArrayInput(
        tuple(parts), names, skipped_files=skipped, other_checksums=checksums
    )


def _idx_role(name: str) -> tuple[NameRole, str]:
    """Returns the role of an IDX file, and the words that are the same in its part.

    >>> _idx_role("emnist-letters-train-labels-idx1-ubyte.gz")
    (NameRole(column='label', split='train', number=''), 'emnist_letters')
    """
    role = parse_name_role(name)
    words = role.column.split("_")
    role_words = [word for word in words if word.lower() in _ROLE_WORDS]
    if len(role_words) != 1:
        return role, ""
    words.remove(role_words[0])
    return role._replace(column=role_words[0].lower().removesuffix("s")), "_".join(
        words
    )


def _open_idx(file: InputFile, column: str, storage: StorageOptions) -> RowArray | None:
    """Returns the array of an IDX file, or None if the file is no IDX file.

    Images without channels get one channel, as in TFDS.
    """
    head = read_range(file.uri, 0, _MAX_HEADER_BYTES, storage, file.stat)
    array = RowArray(file)
    if compression_of(head[:MARK_BYTES]) == "gzip":
        array = replace(array, compression="gzip", compressed_stop=file.size)
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
            f"{file.uri}: its header declares {sides}, a row of {row_bytes:,} bytes; "
            f"expected 1 to {MAX_ROW_BYTES:,}: the file is damaged, or not IDX"
        )
    max_bytes, size = file.size, f"the file has {file.size:,}"
    if array.compression:
        max_bytes = file.size * _MAX_DEFLATE_RATIO
        size = f"{file.size:,} bytes of gzip expand to at most {max_bytes:,}"
    if expected > max_bytes or (not array.compression and expected < max_bytes):
        raise InputError(
            f"{file.uri}: its header declares {sides} values of {dtype[2:]} bytes, "
            f"{expected:,} bytes with the header, but {size}. The file is cut short or "
            "damaged: copy it again"
        )
    field = Field(column, dtype, shape[1:])
    if column == "image" and len(field.shape) == 2 and field.is_bytes:
        field = replace(field, shape=(*field.shape, 1))
    return replace(
        array, start=header, row_bytes=row_bytes, num_rows=shape[0], fields=(field,)
    )


def parse_idx(head: bytes, uri: str) -> tuple[str, tuple[int, ...]]:
    """Parses the first bytes of an IDX file; returns the dtype and the shape.

    Raises:
      InputError: the bytes are no header of an IDX file.
    """
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
        raise InputError(
            f"{uri}: begins with {head[:4].hex(' ') or 'nothing'}, expected the magic "
            "number of an IDX file: 00 00, a type (08, 09, 0b to 0e), the number of axes. "
            "Name only IDX files; other layouts are declared with convert binary"
        )
    rank = head[3]
    if not 1 <= rank <= _MAX_AXES:
        raise InputError(
            f"{uri}: its header declares {rank} axes, expected 1 to {_MAX_AXES}: the "
            "file is damaged, or not IDX"
        )
    _require_header(len(head), 4 + 4 * rank, uri)
    return _IDX_TYPES[head[2]], struct.unpack_from(f">{rank}I", head, 4)


def _highest_label(parts: Sequence[ArrayGroup], storage: StorageOptions) -> int:
    highest = -1
    for array in (array for part in parts for array in part.arrays):
        if array.fields == (Field(LABEL, "|u1"),):
            rows = ArrayRows(array, (0, array.num_rows), array.byte_span, storage)
            for labels in rows.read_matrices(_STEP_ROWS):
                highest = max(highest, int(labels.max()))
    return highest
