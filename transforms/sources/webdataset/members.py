"""Makes values of the files of a sample, by the last part of their names."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

import numpy as np

from recordmill.schemas.errors import InputError
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.pictures.check import check_picture
from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.arrays.value_columns import plain_values
from recordmill.transforms.sources.jsonl.json_values import flat_values
from recordmill.transforms.sources.numpy_files.npy_header import (
    header_length,
    parse_npy,
)

MemberKind = Literal["picture", "integer", "text", "json", "array", "bytes"]
Values = dict[str, Any]

# As the package webdataset decodes them, but for what only Python can unpickle.
_KINDS: dict[str, MemberKind] = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif"), "picture"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "integer"),
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    "npy": "array",
}
_INTEGER = re.compile(rb"[+-]?[0-9]{1,19}")
_NUMBERS = "biuf"


def kind_of(name: str) -> MemberKind:
    """Returns what a file holds, by its name behind the key.

    >>> kind_of("left.jpg"), kind_of("cls"), kind_of("jpg.txt"), kind_of("mp4")
    ('picture', 'integer', 'text', 'bytes')
    """
    return _KINDS.get(name.rpartition(".")[2], "bytes")


def size_names(name: str) -> tuple[str, str]:
    """Returns the names of a picture's height and width."""
    return f"{name}/height", f"{name}/width"


def values_of(name: str, data: bytes, headers: dict[str, ImageHeader]) -> Values | str:
    """Returns the columns that a file becomes, or why it cannot be read.

    Args:
      name: behind the key.
      data: of the file.
      headers: gets the header of a picture.
    """
    match kind_of(name):
        case "picture":
            try:
                header = check_picture(data)
            except ImageHeaderError as error:
                return f"{name}: {error}"
            headers[name] = header
            height, width = size_names(name)
            return {name: data, height: header.height, width: header.width}
        case "integer":
            text = data.strip()
            if not _INTEGER.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
                return f"{name}: found {shown(data)}, expected an integer of 64 bits"
            return {name: int(text)}
        case "text":
            try:
                return {name: data.decode()}
            except UnicodeDecodeError as error:
                return (
                    f"{name}: not UTF-8: byte {data[error.start]:#04x} at {error.start}"
                )
        case "json":
            return _json_values(name, data)
        case "array":
            return _array_value(name, data)
    return {name: data}


def _json_values(name: str, data: bytes) -> Values | str:
    try:
        found = json.loads(data.decode())
    except UnicodeDecodeError as error:
        return f"{name}: not UTF-8: byte {data[error.start]:#04x} at {error.start}"
    except json.JSONDecodeError as error:
        return f"{name}: not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        return f"{name}: not JSON that can be read: {error}"
    values = flat_values({name: found})
    return f"{name}: {values}" if isinstance(values, str) else values


def _array_value(name: str, data: bytes) -> Values | str:
    try:
        length = header_length(data[:12], name)
        header = parse_npy(data[:length], name, least_axes=0)
    except InputError as error:
        return str(error)
    dtype = header.dtype
    if dtype.kind not in _NUMBERS or (dtype.kind == "f" and dtype.itemsize > 8):
        return f"{name}: is an array of {dtype}, expected numbers or booleans"
    size = dtype.itemsize * math.prod(header.shape)
    if len(data) - length != size:
        return (
            f"{name}: its header says {size:,} bytes of values, but {len(data) - length:,} "
            "follow: the file is damaged"
        )
    flat = plain_values(np.frombuffer(data, dtype, offset=length), dtype)
    order: Literal["C", "F"] = "F" if header.is_fortran else "C"
    return {name: np.ascontiguousarray(flat.reshape(header.shape, order=order))}
