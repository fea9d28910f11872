"""Reads the header of a .npy file: type, order and sizes of its array.

Source: numpy.lib.format, "Format Version 1.0" to "3.0". Nothing is unpickled.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib import format as npy

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.arrays.row_arrays import MAX_ROW_BYTES, Field

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 1 << 16
START_BYTES = 12  # magic, version and the length of the header, at most
_MAX_AXES = 8
_KINDS = "biufSUV"
_ERRORS = (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError)


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """An array's header.

    Attributes:
      dtype: of a value.
      shape: of the whole array.
      is_fortran: whether the first axis varies fastest.
      num_bytes: of the header itself.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    num_bytes: int

    @property
    def row_bytes(self) -> int:
        """Returns the bytes of a row."""
        return int(self.dtype.itemsize) * math.prod(self.shape[1:])

    @property
    def data_bytes(self) -> int:
        """Returns the bytes of the array."""
        return self.row_bytes * self.shape[0]


def header_length(start: bytes, where: str) -> int:
    """Returns how many bytes the header has, by the first bytes of a file.

    Raises:
      InputError: they are not those of a .npy file.
    """
    if not start.startswith(MAGIC):
        raise InputError(
            f"{where}: begins with {start[:6].hex(' ') or 'nothing'}, expected the mark of "
            "a .npy file, 93 4e 55 4d 50 59. Write the array with numpy.save, or name "
            "only .npy and .npz files"
        )
    major = start[6] if len(start) > 6 else 0
    width = 2 if major == 1 else 4
    if major not in (1, 2, 3) or len(start) < 8 + width:
        raise InputError(
            f"{where}: version {major} of .npy, expected 1 to 3: the file is damaged or "
            "cut short; copy it again"
        )
    return 8 + width + int.from_bytes(start[8 : 8 + width], "little")


def parse_npy(head: bytes, where: str, least_axes: int = 1) -> NpyHeader:
    """Parses a header.

    Args:
      head: all of its bytes, as `header_length` says.
      where: the file, for messages.
      least_axes: that the array must have; 0 also takes a single value.

    Raises:
      InputError: it is damaged, or its values can be no feature.
    """
    text = head[10 if head[6] == 1 else 12 :]
    try:
        found = ast.literal_eval(text.decode("utf-8" if head[6] == 3 else "latin-1"))
        if set(found) != {"descr", "fortran_order", "shape"}:
            raise ValueError(f"has the keys {sorted(map(str, found))}")
        shape, is_fortran = found["shape"], found["fortran_order"]
        dtype = npy.descr_to_dtype(found["descr"])
        if not isinstance(shape, tuple) or any(
            type(size) is not int or size < 0 for size in shape
        ):
            raise ValueError(f"has the shape {shape!r}")
    except _ERRORS as error:
        told = " ".join(str(error).split())[:200]
        raise InputError(
            f"{where}: its header is not valid ({told}): the file is damaged; write the "
            "array again with numpy.save"
        ) from error
    if dtype.hasobject:
        raise InputError(
            f"{where}: holds Python objects, which only unpickling could read, and that "
            "may run any code. Write numbers or text: numpy.save(path, "
            "numpy.array(values.tolist())), or one array for each field"
        )
    if not least_axes <= len(shape) <= _MAX_AXES:
        raise InputError(
            f"{where}: has {len(shape)} axes, expected 1 to {_MAX_AXES}, the first of "
            "them of the rows: save array[numpy.newaxis] for a single row"
        )
    header = NpyHeader(dtype, shape, bool(is_fortran) and len(shape) > 1, len(head))
    if not 0 < header.row_bytes <= MAX_ROW_BYTES:
        raise InputError(
            f"{where}: a row of shape {list(shape[1:])} has {header.row_bytes:,} bytes, "
            f"expected 1 to {MAX_ROW_BYTES:,}: the first axis is that of the rows; move "
            "it there with numpy.moveaxis, or the file is damaged"
        )
    return header


def fields_of(header: NpyHeader, name: str, where: str) -> tuple[Field, ...]:
    """Returns the values of a row; those of a structured type have names of their own.

    Raises:
      InputError: a type can be no feature.
    """
    dtype, inner = header.dtype, header.shape[1:]
    if dtype.names is None or dtype.fields is None:
        # In Fortran order the inner axes are stored from the last to the first.
        axes = tuple(reversed(range(len(inner)))) if header.is_fortran else ()
        shape = inner[::-1] if header.is_fortran else inner
        axes = axes if len(axes) > 1 else ()
        return (Field(name, _type_text(dtype, name, where), shape, axes),)
    if inner:
        raise InputError(
            f"{where}: rows of {list(inner)} records each: save an array of one axis, or "
            "one array for each of the fields "
            f"{', '.join(map(repr, dtype.names))}"
        )
    fields = []
    for field_name in dtype.names:
        found, offset = dtype.fields[field_name][:2]
        base, shape = found.subdtype or (found, ())
        text = _type_text(base, field_name, where)
        fields.append(Field(field_name, text, tuple(shape), offset=int(offset)))
    return tuple(fields)


def _type_text(dtype: np.dtype[Any], name: str, where: str) -> str:
    is_wide = dtype.kind == "f" and dtype.itemsize > 8
    if dtype.kind not in _KINDS or dtype.names or is_wide or not dtype.itemsize:
        raise InputError(
            f"{where}: {name!r} is {dtype}, which can be no feature; expected numbers, "
            "booleans, text or bytes: save array.astype(...) of such a type (int64 for "
            "times), and one array for each part of a complex number"
        )
    return str(dtype.str)
