"""Writes Arrow batches as tf.train.Example in JSON, as tf.io.decode_json_example reads.

    {"features":{"feature":{"age":{"int64List":{"value":["7"]}},"x":{"floatList":...}}}}

proto3's canonical JSON: int64 as text, bytes in base64, NaN and infinities as text.
Its spelling is free, so it is chosen: no spaces, keys sorted by code point, an empty
list is {"value":[]}, floats have the fewest digits that tell them apart as float32.

Everything is text made and joined by Arrow, base64 by NumPy; no value is touched in
Python.
Source: protobuf.dev, "ProtoJSON Format".
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import Kind, Schema
from recordmill.transforms.encode.base64_text import base64_texts
from recordmill.transforms.encode.feature_map import load_entries
from recordmill.transforms.encode.stored_values import Column
from recordmill.transforms.encode.wire import join_cells

_LIST_NAME = {Kind.BYTES: "bytesList", Kind.FLOAT: "floatList", Kind.INT64: "int64List"}
_START, _END = b'{"features":{"feature":{', b"}}}"
_SPECIAL = [
    *(b'"NaN"', b"-0.0", b"3.4028234e+38", b"-3.4028234e+38"),
    *(b'"Infinity"', b'"-Infinity"'),
]
_MINUS_ZERO_BITS = 1 << 31
_LARGEST = np.finfo(np.float32).max  # 3.4028234664e38


def encode_json(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Writes every row's example as JSON text, in UTF-8; the rest is as in `encode`."""
    start, end = (
        pa.repeat(pa.scalar(text), batch.num_rows)
        for text in (bytes(head_room) + _START, _END)
    )
    arrays = [start]
    is_first = np.ones(batch.num_rows, np.bool_)  # rows without an entry so far
    entries = load_entries(batch, schema.features)
    for key, kind, column in sorted(entries, key=lambda entry: entry.key):
        arrays += _entry_texts(key, kind, column, is_first)
        if column.valid is None:
            is_first[:] = False
        else:
            is_first &= ~column.valid
    arrays.append(end)
    return join_cells(arrays, tail_room)


def _entry_texts(
    key: str, kind: Kind, column: Column, is_first: npt.NDArray[np.bool_]
) -> list[pa.BinaryArray]:
    """Makes a key's part of each row's text: head, values, tail; nothing for a null."""
    quote = "" if kind is Kind.FLOAT else '"'
    name = f'{json.dumps(key, ensure_ascii=False)}:{{"{_LIST_NAME[kind]}":'
    texts = _value_texts(kind, column.values)
    is_empty = missing = np.zeros(len(is_first), np.bool_)
    if column.lists is not None:
        offsets = pa.array(column.lists, pa.int32())
        rows = pa.ListArray.from_arrays(offsets, texts)
        texts = pc.binary_join(rows, f"{quote},{quote}".encode())
        is_empty = np.diff(column.lists) == 0
    if column.valid is not None:
        missing = ~column.valid
        if column.lists is None:
            texts = pc.if_else(pa.array(missing), b"", texts)
    which = np.where(missing, 0, np.where(is_empty, 1, 2))
    comma = np.where(missing | is_first, 0, 1)
    return [
        pa.array([b"", b","]).take(pa.array(comma)),
        _choose(["", name + '{"value":[', name + '{"value":[' + quote], which),
        texts,
        _choose(["", "]}}", quote + "]}}"], which),
    ]


def _choose(texts: list[str], which: npt.NDArray[np.integer]) -> pa.BinaryArray:
    return pa.array([text.encode() for text in texts]).take(pa.array(which))


def _value_texts(kind: Kind, values: Any) -> pa.BinaryArray:
    """Formats each value as JSON, without the quotes around integers and base64."""
    if kind is Kind.BYTES:
        return base64_texts(values)
    texts = pa.array(values).cast(pa.string()).cast(pa.binary())
    if kind is Kind.FLOAT:
        # What Arrow writes as nan, inf and -0; readers take -0 for the integer 0. The
        # fewest digits of the largest float are a little more than it is, which
        # protobuf refuses as too large.
        minus_zero = values.view(np.uint32) == _MINUS_ZERO_BITS
        largest = np.abs(values) == _LARGEST
        special = ~np.isfinite(values) | minus_zero | largest
        if special.any():
            positive = values > 0
            cases = [
                np.isnan(values),
                minus_zero,
                largest & positive,
                largest,
                positive,
            ]
            which = np.select(cases, [0, 1, 2, 3, 4], 5)
            replacements = pa.array(_SPECIAL).take(pa.array(which))
            texts = pc.if_else(pa.array(special), replacements, texts)
    return texts
