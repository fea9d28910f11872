"""Finds numeric arrays in MATLAB files of version 5, without unpacking more than headers.

    128 bytes     text, version 01 00, byte order "IM" (little) or "MI"
    element       type, size | a matrix: flags, sizes, name, values
                  type 15, size | the same, compressed with zlib

A matrix is in Fortran order: if its last axis counts the rows, each row is in one piece.
Source: MathWorks, "MAT-File Format", level 5. A library would hold all of a file in
memory, and the largest of SVHN has 1.6 GB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.arrays.read_rows_of import unpacked
from recordmill.transforms.sources.arrays.row_arrays import RowArray
from recordmill.transforms.storage.reading import read_range

HEADER_BYTES = 128
_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8",
    13: "u8",
}  # fmt: skip
_MATRIX, _COMPRESSED = 14, 15
_NUMERIC = range(6, 16)  # classes of a matrix: double, single, int8 ... uint64
_COMPLEX = 0x0800
_LONGEST = 4096  # bytes of sizes or of a name
_MOST_ELEMENTS = 1000
_HDF5 = b"\x89HDF"


@dataclass(frozen=True, slots=True)
class MatArray:
    """A numeric array of a file.

    Attributes:
      name: of the variable.
      dtype: NumPy's text of the stored type.
      shape: as MATLAB has it.
      array: where the values are; rows and fields are still to be set.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    array: RowArray


def mat_arrays(file: InputFile, storage: StorageOptions) -> Iterator[MatArray]:
    """Yields the numeric arrays of a file.

    Raises:
      InputError: it is not a MATLAB file of version 5, or damaged.
    """

    def read(start: int, stop: int) -> bytes:
        return read_range(file.uri, start, min(stop, file.size), storage, file.seen)

    order = _byte_order(read(0, HEADER_BYTES), file.uri)
    at = HEADER_BYTES
    for _ in range(_MOST_ELEMENTS):
        if at >= file.size:
            return
        tag = read(at, at + 8)
        if len(tag) < 8:
            raise _damaged(file, f"ends inside an element at byte {at:,}")
        kind, size = struct.unpack(f"{order}II", tag)
        if at + 8 + size > file.size:
            raise _damaged(
                file,
                f"has an element of {size:,} bytes at byte {at:,}, but "
                f"{file.size - at - 8:,} are left",
            )
        whole = RowArray(file, at + 8, 1, ())
        if kind == _COMPRESSED:
            yield from _packed(whole, size, order, storage)
        elif kind == _MATRIX:
            reader = _Taken(_plain_reader(read, at + 8), file)
            yield from _matrix(reader, whole, order, size)
        at += 8 + size
    raise _damaged(file, f"has more than {_MOST_ELEMENTS} elements")


def _byte_order(head: bytes, uri: str) -> str:
    order = {b"IM": "<", b"MI": ">"}.get(head[126:128], "")
    version = int.from_bytes(head[124:126], "little" if order == "<" else "big")
    if head.startswith(_HDF5) or version == 0x0200:
        raise InputError(
            f"{uri}: is a MATLAB file of version 7.3 (HDF5), expected version 5: write it "
            "with save(..., '-v7'), or its arrays with numpy.save for convert numpy"
        )
    if not order or version != 0x0100:
        raise InputError(
            f"{uri}: is not a MATLAB file of version 5 (bytes 124 to 128 are "
            f"{head[124:128].hex(' ') or 'missing'}). Name only files such as "
            "train_32x32.mat; write other ones with save(..., '-v7')"
        )
    return order


class _Taken:
    """Takes bytes in order, and counts them."""

    def __init__(self, take: Callable[[int], bytes], file: InputFile) -> None:
        self._take, self._file = take, file
        self.at = 0

    def take(self, size: int) -> bytes:
        data = self._take(size)
        if len(data) < size:
            raise _damaged(self._file, "ends inside the header of an array")
        self.at += size
        return data


def _plain_reader(
    read: Callable[[int, int], bytes], start: int
) -> Callable[[int], bytes]:
    at = start

    def take(size: int) -> bytes:
        nonlocal at
        data = read(at, at + size)
        at += size
        return data

    return take


def _packed(
    array: RowArray, size: int, order: str, storage: StorageOptions
) -> Iterator[MatArray]:
    start = array.start
    array = replace(
        array,
        start=0,
        packing="zlib",
        packed_start=start,
        packed_stop=start + size,
    )
    reader = _Taken(unpacked(array, storage).take, array.file)
    kind, inside = struct.unpack(f"{order}II", reader.take(8))
    if kind == _MATRIX:
        yield from _matrix(reader, array, order, inside + 8)


def _matrix(
    reader: _Taken, array: RowArray, order: str, size: int
) -> Iterator[MatArray]:
    """Yields the array that a matrix is; nothing if it is not numeric."""
    file = array.file
    _, flags = _element(reader, order, file)
    if len(flags) < 8:
        raise _damaged(file, "has a matrix without flags")
    (word,) = struct.unpack(f"{order}I", flags[:4])
    if word & 0xFF not in _NUMERIC:
        return
    _, sizes = _element(reader, order, file)
    count = len(sizes) // 4
    shape = struct.unpack(f"{order}{count}i", sizes[: 4 * count])
    _, name = _element(reader, order, file)
    text = name.decode("latin-1")
    if word & _COMPLEX:
        raise InputError(
            f"{file.uri}: {text!r} is complex, which can be no feature; expected real "
            "numbers: save real and imaginary part as two arrays"
        )
    kind, num_bytes = _tag(reader, order, file)
    if kind not in _TYPES or count < 2 or min(shape) < 0:
        raise _damaged(file, f"{text!r} has values of type {kind}, shape {list(shape)}")
    dtype = _TYPES[kind]
    expected = int(dtype[1])
    for side in shape:
        expected *= side
    if num_bytes != expected or reader.at + num_bytes > size:
        raise _damaged(
            file,
            f"{text!r} has {num_bytes:,} bytes, expected {expected:,} for shape "
            f"{list(shape)}, in an element of {size:,}",
        )
    stored = f"{'|' if dtype[1] == '1' else order}{dtype}"
    start = array.start + reader.at
    yield MatArray(text, stored, shape, replace(array, start=start))


def _tag(reader: _Taken, order: str, file: InputFile) -> tuple[int, int]:
    """Returns type and bytes of an element whose values come next."""
    word, size = struct.unpack(f"{order}II", reader.take(8))
    if (
        word >> 16
    ):  # up to four bytes inside the tag itself: no images or labels of SVHN
        raise _damaged(file, "has an array of at most four bytes, expected SVHN's")
    return word, size


def _element(reader: _Taken, order: str, file: InputFile) -> tuple[int, bytes]:
    """Returns type and bytes of a small element, and skips what fills it up."""
    tag = reader.take(8)
    word, size = struct.unpack(f"{order}II", tag)
    if word >> 16:
        return word & 0xFFFF, tag[4 : 4 + min(4, word >> 16)]
    if size > _LONGEST:
        raise _damaged(file, f"has a header element of {size:,} bytes")
    data = reader.take(-(-size // 8) * 8)
    return word, data[:size]


def _damaged(file: InputFile, what: str) -> InputError:
    return InputError(
        f"{file.uri}: {what}. The file is damaged or cut short: copy it again"
    )
