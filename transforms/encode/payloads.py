"""Encodes records of every payload: examples, JSON, sequence examples, raw bytes."""

from __future__ import annotations

import json
from binascii import b2a_base64
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.transforms.arrow import require_fit
from recordmill.transforms.encode.columns import (
    StoredColumn,
    nest_values,
    require_column,
)
from recordmill.transforms.encode.examples import (
    encode,
    encode_sequences,
    load_entries,
    load_feature,
    require_steps,
)
from recordmill.transforms.encode.row_errors import (
    flag_invalid,
    prefix_errors,
    raise_errors,
)
from recordmill.transforms.encode.tensors import join_cells

#     {"features":{"feature":{"age":{"int64List":{"value":["7"]}},"x":{"floatList":...}}}}
#
# proto3's canonical JSON: int64 as text, bytes in base64, NaN and infinities as text. The
# format leaves some choices open, which are fixed here: no spaces, keys sorted by code
# point, an empty list is {"value":[]}, floats have the fewest digits that identify them
# as float32.
#
# Arrow formats and joins all text, except base64.
# Source: protobuf.dev, "ProtoJSON Format".

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
    """Writes every row's example as JSON text in UTF-8; other behavior as in `encode`."""
    start, end = (
        pa.repeat(pa.scalar(text), batch.num_rows)
        for text in (bytes(head_room) + _START, _END)
    )
    arrays = [start]
    is_first = np.ones(batch.num_rows, np.bool_)  # mask of rows without an entry so far
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
    key: str, kind: Kind, column: StoredColumn, is_first: npt.NDArray[np.bool_]
) -> list[pa.BinaryArray]:
    """Creates a key's part of each row's text: head, values, tail; empty for a null."""
    quote = "" if kind is Kind.FLOAT else '"'
    name = f'{json.dumps(key, ensure_ascii=False)}:{{"{_LIST_NAME[kind]}":'
    texts = _value_texts(kind, column.values)
    is_empty = missing = np.zeros(len(is_first), np.bool_)
    if column.lists is not None:
        rows = nest_values(texts, [column.lists])
        texts = pc.binary_join(rows, f"{quote},{quote}".encode())
        is_empty = np.diff(column.lists) == 0
    if column.valid is not None:
        missing = ~column.valid
        if column.lists is None:
            texts = pc.if_else(pa.array(missing), b"", texts)
    text_indices = np.where(missing, 0, np.where(is_empty, 1, 2))
    comma = np.where(missing | is_first, 0, 1)
    return [
        pa.array([b"", b","]).take(pa.array(comma)),
        _take_texts(
            ["", name + '{"value":[', name + '{"value":[' + quote], text_indices
        ),
        texts,
        _take_texts(["", "]}}", quote + "]}}"], text_indices),
    ]


def _take_texts(texts: list[str], indices: npt.NDArray[np.integer]) -> pa.BinaryArray:
    return pa.array([text.encode() for text in texts]).take(pa.array(indices))


def _value_texts(kind: Kind, values: Any) -> pa.BinaryArray:
    """Formats each value as JSON, without the quotes around integers and base64."""
    if kind is Kind.BYTES:
        # A loop over the values, 0.3 us each. With padding (RFC 4648, section 4).
        texts = [b2a_base64(value, newline=False) for value in values.to_pylist()]
        require_fit(sum(map(len, texts)))
        return pa.array(texts, pa.binary())
    texts = pa.array(values).cast(pa.string()).cast(pa.binary())
    if kind is Kind.FLOAT:
        # Arrow writes nan, inf and -0; readers parse -0 as the integer 0. The fewest
        # digits of the largest float exceed it slightly, so protobuf would reject them.
        minus_zero = values.view(np.uint32) == _MINUS_ZERO_BITS
        largest = np.abs(values) == _LARGEST
        special = ~np.isfinite(values) | minus_zero | largest
        if special.any():
            above = values > 0
            cases = [np.isnan(values), minus_zero, largest & above, largest, above]
            case_indices = np.select(cases, [0, 1, 2, 3, 4], 5)
            replacements = pa.array(_SPECIAL).take(pa.array(case_indices))
            texts = pc.if_else(pa.array(special), replacements, texts)
    return texts


def check_payload(schema: Schema, payload: Payload) -> None:
    """Checks that records of a payload can store a schema's features."""
    if payload == "raw":
        raw_feature(schema)
        return
    for feature in schema.features:
        require_steps(feature, has_lists=payload == "sequence_example")


def raw_feature(schema: Schema) -> FeatureSpec:
    """Returns the feature whose bytes are the records of payload `raw`.

    It is the only bytes feature, or the only image or array among several.
    """
    whole = (Content.IMAGE, Content.ARRAY)
    candidates = [
        feature
        for feature in schema.features
        if feature.kind is Kind.BYTES
        and not feature.is_sequence
        and (feature.content is not Content.VALUES or feature.shape == ())
    ]
    media = [feature for feature in candidates if feature.content in whole]
    for chosen in (candidates, media):
        if len(chosen) == 1:
            return chosen[0]
    if not candidates:
        raise SchemaError(
            "payload raw: no feature has one bytes value per record; the features are "
            f"{', '.join(feature.name for feature in schema.features)}: declare one of "
            "dtype bytes or string"
        )
    raise SchemaError(
        "payload raw: a record contains the bytes of one feature, but there are "
        f"{', '.join(feature.name for feature in media or candidates)}: choose one "
        "with a `schema` that declares no other"
    )


def encode_payload(
    batch: pa.RecordBatch,
    schema: Schema,
    payload: Payload,
    *,
    head_room: int = 0,
    tail_room: int = 0,
) -> pa.BinaryArray:
    """Encodes every row as a record, without its frame.

    The schema must have passed `check_payload`; other arguments are as in `encode`.
    """
    encoders = {
        "example": encode,
        "sequence_example": encode_sequences,
        "json": encode_json,
        "raw": encode_raw,
    }
    return encoders[payload](batch, schema, head_room=head_room, tail_room=tail_room)


def encode_raw(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Returns every row's bytes of `raw_feature`; a row without them is rejected."""
    feature = raw_feature(schema)
    require_column(batch.schema, feature.name, feature.column)
    (column,) = load_feature(batch[feature.column], feature)
    if column.valid is not None:
        reason = "no value, but a raw record needs its bytes"
        missing = flag_invalid(~column.valid, lambda _: reason)
        raise_errors(prefix_errors(feature.name, missing))
    head = pa.repeat(pa.scalar(bytes(head_room)), batch.num_rows)
    return join_cells([head, column.values], tail_room)
