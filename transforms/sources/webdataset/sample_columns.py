"""Makes columns of the files of samples: values by the endings of names, types by a few."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, Kind, Schema
from recordmill.schemas.ranges import TypeFlags
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.encode.column_types import is_list
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.arrays.headers import header_length, parse_npy
from recordmill.transforms.sources.arrays.rows import plain_values
from recordmill.transforms.sources.images.summary import all_decodable
from recordmill.transforms.sources.json_lines import (
    ObservedColumn,
    column_of,
    flat_values,
    is_text,
)
from recordmill.transforms.sources.plain_types import SEPARATOR, plain_schema

MemberKind = Literal["image", "integer", "text", "json", "array", "bytes"]
Values = dict[str, Any]

# As the package webdataset decodes them, but for what only Python can unpickle.
_KINDS: dict[str, MemberKind] = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif"), "image"),
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
    ('image', 'integer', 'text', 'bytes')
    """
    return _KINDS.get(name.rpartition(".")[2], "bytes")


def values_of(name: str, data: bytes, headers: dict[str, ImageHeader]) -> Values | str:
    """Returns the columns that a file becomes, or why it cannot be read.

    The name is what stands behind the key; `headers` gets the header of an image.
    """
    kind = kind_of(name)
    if kind == "image":
        try:
            header = check_image(data)
        except ImageHeaderError as error:
            return f"{name}: {error}"
        headers[name] = header
        sizes = {f"{name}/height": header.height, f"{name}/width": header.width}
        return {name: data, **sizes}
    if kind == "integer":
        text = data.strip()
        if not _INTEGER.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
            return f"{name}: found {shown(data)}, expected an integer of 64 bits"
        return {name: int(text)}
    if kind == "array":
        return _array_value(name, data)
    if kind == "bytes":
        return {name: data}
    try:
        decoded = data.decode()
        values = {name: decoded if kind == "text" else json.loads(decoded)}
    except UnicodeDecodeError as error:
        return f"{name}: not UTF-8: byte {data[error.start]:#04x} at {error.start}"
    except json.JSONDecodeError as error:
        return f"{name}: not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        return f"{name}: not JSON that can be read: {error}"
    flat = flat_values(values)
    return f"{name}: {flat}" if isinstance(flat, str) else flat


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


Array = npt.NDArray[Any]
_DTYPES = {"int64": "i8", "uint64": "u8", "float": "f4", "double": "f8"}


def array_type(values: Sequence[Array]) -> pa.DataType:
    """Returns the type of most of these arrays: lists of fixed sizes if of one shape.

    Arrays of another number of axes do not fit.
    """
    ranks = [value.ndim for value in values]
    rank = max(set(ranks), key=lambda each: (ranks.count(each), -each))
    chosen = [value for value in values if value.ndim == rank]
    found = pa.from_numpy_dtype(np.result_type(*chosen))
    if pa.types.is_floating(found):
        found = pa.float64() if pa.types.is_float64(found) else pa.float32()
    elif pa.types.is_boolean(found) and any(v.dtype != bool for v in chosen):
        found = pa.int64()
    shapes = {value.shape for value in chosen}
    is_fixed = len(shapes) == 1 and all(next(iter(shapes)))
    for side in reversed(chosen[0].shape):
        found = pa.list_(found, side if is_fixed else -1)
    return found


def _inside(arrow_type: pa.DataType) -> tuple[pa.DataType, list[int | None]]:
    """Returns what is in lists, and the size of the lists of each level, where fixed."""
    sides: list[int | None] = []
    while is_list(arrow_type):
        is_fixed = pa.types.is_fixed_size_list(arrow_type)
        sides.append(arrow_type.list_size if is_fixed else None)
        arrow_type = arrow_type.value_type
    return arrow_type, sides


def misfit_of(value: Array, arrow_type: pa.DataType) -> str:
    """Returns why an array cannot be in a column, or ""."""
    leaf, sides = _inside(arrow_type)
    if len(sides) != value.ndim or any(
        side not in (None, found)
        for side, found in zip(sides, value.shape, strict=True)
    ):
        return f"an array of shape {list(value.shape)}"
    if not np.can_cast(value.dtype, _dtype(leaf), "same_kind"):
        return f"an array of {value.dtype}"
    return ""


def array_column(values: Sequence[Array | None], arrow_type: pa.DataType) -> pa.Array:
    """Returns arrays that all fit as a column; None is a missing one."""
    leaf, sides = _inside(arrow_type)
    dtype = _dtype(leaf)
    missing = np.array([value is None for value in values], np.bool_)
    blank = np.zeros([side or 0 for side in sides], dtype)
    parts = [blank if value is None else value for value in values]
    flat = [part.astype(dtype, copy=False).reshape(-1) for part in parts]
    joined = np.concatenate([np.zeros(0, dtype), *flat])
    column = pa.array(joined, leaf, mask=None if sides else missing)
    for level in reversed(range(len(sides))):
        mask = None if level else pa.array(missing)
        if (side := sides[level]) is not None:
            column = pa.FixedSizeListArray.from_arrays(column, side, mask=mask)
            continue
        lengths = [
            part.shape[level]
            for part in parts
            for _ in range(math.prod(part.shape[:level]))
        ]
        offsets = pa.array(offsets_of(np.array(lengths, np.int64)), pa.int32())
        column = pa.ListArray.from_arrays(offsets, column, mask=mask)
    return column


def _dtype(leaf: pa.DataType) -> Any:
    return np.dtype("bool" if pa.types.is_boolean(leaf) else _DTYPES[str(leaf)])


KEY = "key"
Types = Mapping[str, pa.DataType]
_UNDECODED = ("webp", "gif")
_LEAVES: dict[MemberKind, pa.DataType] = {
    "image": pa.binary(),
    "integer": pa.int64(),
    "text": pa.string(),
    "bytes": pa.binary(),
}


def member_of(column: str) -> str:
    """Returns the name of the files that a column comes from.

    >>> member_of("left.jpg/height"), member_of("json/box/x"), member_of("cls")
    ('left.jpg', 'json', 'cls')
    """
    return column.partition(SEPARATOR)[0]


def images_of(names: Sequence[str]) -> list[str]:
    """Returns the columns that are images."""
    return [name for name in names if name != KEY and is_image(name)]


def is_image(name: str) -> bool:
    """Tells whether a column is an image, not its height or width."""
    return SEPARATOR not in name and kind_of(name) == "image"


@dataclass(slots=True)
class ObservedSamples:
    """What the values of some samples are."""

    names: dict[str, None] = field(default_factory=dict)  # of columns, as found
    json: dict[str, ObservedColumn] = field(default_factory=dict)
    arrays: dict[str, list[Array]] = field(default_factory=dict)  # without their values

    def add(self, values: Values) -> None:
        """Adds a sample."""
        self.names.update(dict.fromkeys(values))
        for name, value in values.items():
            kind = kind_of(member_of(name))
            if kind == "json":
                self.json.setdefault(name, ObservedColumn()).add([value])
            elif kind == "array":
                zero = np.zeros((), value.dtype)
                self.arrays.setdefault(name, []).append(
                    np.broadcast_to(zero, value.shape)
                )

    def types(self, wanted: Sequence[str] | None, uri: str) -> dict[str, pa.DataType]:
        """Returns the type of each column that is wanted; None for all."""
        types: dict[str, pa.DataType] = {KEY: pa.string()}
        for name in self.names:
            if wanted is not None and name not in wanted:
                continue
            if name == KEY or not is_text(name):  # samples with any other are rejects
                continue
            found = self._type(name)
            if found is None:
                raise InputError(
                    f"{uri}: {name!r}: lists of objects, or of values of several types, "
                    "can be no feature. Declare the other columns in a schema file "
                    "(`schema`)"
                )
            types[name] = found
        if wanted is not None and KEY not in wanted:
            del types[KEY]
        return types

    def _type(self, name: str) -> pa.DataType | None:
        if name in self.json:
            return self.json[name].arrow_type
        if name in self.arrays:
            return array_type(self.arrays[name])
        if SEPARATOR in name:  # height or width
            return pa.int64()
        return _LEAVES[kind_of(name)]


def misfit_in(values: Values, types: Types, whose: str, *, only_arrays: bool) -> str:
    """Returns which value of a sample is not of its column's type, or ""."""
    for name, wanted in types.items():
        value = values.get(name)
        if value is None:
            continue
        kind = kind_of(member_of(name))
        if kind == "array":
            if misfit := misfit_of(value, wanted):
                return f"{name}: {misfit} is not {wanted}, its type {whose}"
        elif kind == "json" and not only_arrays and column_of([value], wanted) is None:
            return f"{name}: {shown(value)} is not {wanted}, its type {whose}"
    return ""


def batch_of(rows: Sequence[Values], types: Types) -> pa.RecordBatch | None:
    """Returns samples as columns, or None if a value of JSON does not fit."""
    arrays = []
    for name, wanted in types.items():
        values: list[Any] = [row.get(name) for row in rows]
        kind = kind_of(member_of(name))
        if name != KEY and kind == "array":
            column = array_column(values, wanted)
        elif name != KEY and kind == "json":
            column = column_of(values, wanted)
        else:
            column = pa.array(values, wanted)
        if column is None:
            return None
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(types.items())))


def sample_schema(
    columns: pa.Schema, observed: TypeFlags, nulls: Sequence[int]
) -> Schema:
    """Returns the features of samples; `observed` are flags of the columns of images."""
    flags = dict(zip(images_of(columns.names), observed, strict=False))
    features = []
    for feature in plain_schema(columns, nulls).features:
        if feature.name != KEY and is_image(feature.name):
            seen = (flags[feature.name],) if feature.name in flags else ()
            decodable = all_decodable(seen)
            if decodable is None:
                decodable = not feature.name.endswith(_UNDECODED)
            feature = replace(
                feature,
                kind=Kind.BYTES,
                dtype="uint8" if decodable else "bytes",
                shape=(None, None, None) if decodable else (),
                content=Content.IMAGE,
            )
        features.append(feature)
    return Schema(tuple(features))
