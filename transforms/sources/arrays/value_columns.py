"""Makes Arrow columns of rows of bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import U8, binary_array, offsets_of
from recordmill.transforms.sources.arrays.row_arrays import Field

Reasons = dict[int, str]
_FEW = 4  # planes of an image that are copied one by one
_HALF_CHARACTERS = (0xD800, 0xDFFF)


def column_of(
    records: U8, field: Field, classes: int
) -> tuple[pa.Array, Mapping[int, str]]:
    """Returns a column and the reasons of rows without a valid value.

    Args:
      records: rows of bytes, shape (rows, bytes of one).
      field: which value of them.
      classes: how many there are; 0 if it is not a class label.
    """
    stop = field.offset + field.num_bytes
    stored = np.dtype(field.dtype)
    cells = np.ascontiguousarray(records[:, field.offset : stop])
    if classes:
        values = cells.view(stored).reshape(len(records))
        return _labels(values, field, classes)
    is_text = stored.kind in "SVU"
    item = np.dtype(f"V{stored.itemsize}") if is_text else stored
    values = cells.view(item).reshape(len(records), *field.shape)
    if field.axes:
        values = _with_axes(values, field.axes)
    if is_text:
        cells = (
            values.reshape(len(records), -1).view(np.uint8) if len(records) else cells
        )
        return _texts(cells, field, stored)
    if stored == np.uint8 and field.shape:
        size = field.num_bytes
        offsets = np.arange(len(records) + 1, dtype=np.int64) * size
        return binary_array(offsets, values.reshape(-1)), {}
    flat = pa.array(plain_values(values.reshape(-1), stored))
    return (_lists(flat, field) if field.shape else flat), {}


def plain_values(values: npt.NDArray[Any], stored: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns values in the byte order of this machine, of a type that encoders take."""
    if stored.kind == "b":
        # A byte other than 0 and 1 is true, too, but Arrow would not know.
        return np.asarray(values.view(np.uint8) != 0)
    if stored.kind == "f":
        return values.astype(np.float64 if stored.itemsize == 8 else np.float32)
    if stored.kind == "u" and stored.itemsize == 8:
        return values.astype(np.uint64)
    return values.astype(np.int64)


def _lists(flat: pa.Array, field: Field) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(flat, math.prod(field.shape))


def _with_axes(values: npt.NDArray[Any], axes: Sequence[int]) -> npt.NDArray[Any]:
    """Returns values with other axes, row-major again.

    Planes of red, green and blue become pixels: r0 r1 g0 g1 b0 b1 -> r0 g0 b0 r1 g1 b1.
    """
    turned = values.transpose(0, *(axis + 1 for axis in axes))
    if turned.shape[-1] > _FEW:
        return np.ascontiguousarray(turned)
    result = np.empty(turned.shape, turned.dtype)
    for plane in range(turned.shape[-1]):  # some strided copies beat one transpose
        result[..., plane] = turned[..., plane]
    return result


def _labels(
    values: npt.NDArray[Any], field: Field, classes: int
) -> tuple[pa.Array, Reasons]:
    """Returns class indices; a label that is none has a reason, and index 0."""
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int64)
        wrong = (labels != values) | (labels < 0)
    if field.wraps:
        table = np.array(field.wraps, np.int64)
        wrong |= labels >= len(table)
        labels = table[np.where(wrong, 0, labels)]
    wrong |= (labels < 0) | (labels >= classes)
    if not wrong.any():
        return pa.array(labels), {}
    valid = [n for n, found in enumerate(field.wraps) if found >= 0]
    least, most = (valid[0], valid[-1]) if valid else (0, classes - 1)
    reasons = {
        row: f"{field.name}: {values[row].item()} is not the label of a class "
        f"({least} to {most})"
        for row in np.flatnonzero(wrong).tolist()
    }
    labels[wrong] = 0
    return pa.array(labels), reasons


def _texts(cells: U8, field: Field, stored: np.dtype[Any]) -> tuple[pa.Array, Reasons]:
    """Returns raw bytes, or bytes or text without the zeros that fill it up."""
    num_rows, size = len(cells), stored.itemsize
    items = cells.reshape(-1, size)
    reasons: Reasons = {}
    if stored.kind == "U":
        flat, reasons = _unicode(items, num_rows, stored)
    elif stored.kind == "V":
        offsets = np.arange(len(items) + 1, dtype=np.int64) * size
        flat = binary_array(offsets, items.reshape(-1))
    else:
        lengths = size - np.argmax(items[:, ::-1] != 0, axis=1)
        lengths[~items.any(axis=1)] = 0
        inside = np.arange(size) < lengths[:, np.newaxis]
        flat = binary_array(offsets_of(lengths), items[inside])
    return (_lists(flat, field) if field.shape else flat), reasons


def _unicode(
    items: U8, num_rows: int, stored: np.dtype[Any]
) -> tuple[pa.Array, Reasons]:
    points = items.view(stored.byteorder.replace("|", "=") + "u4")
    each = items.size // 4 // max(1, num_rows)
    points = points.astype(np.uint32).reshape(num_rows, each)
    low, high = _HALF_CHARACTERS
    wrong = (points > 0x10FFFF) | ((points >= low) & (points <= high))
    reasons = {
        row: f"U+{points[row][wrong[row]][0]:X} is not a character of Unicode"
        for row in np.flatnonzero(wrong.any(axis=1)).tolist()
    }
    points[wrong] = 0
    # Values one by one: Arrow would end a text at its first zero. Such arrays are small.
    length = stored.itemsize // 4
    texts = points.reshape(len(items), length).view(f"=U{length}")
    return pa.array(texts.reshape(-1).tolist(), pa.string()), reasons
