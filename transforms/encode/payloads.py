"""Encodes records: examples, sequence examples, JSON, or a column's own bytes."""

from __future__ import annotations

import pyarrow as pa

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.transforms.encode.arrow_types import require_column
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.feature_map import (
    load_feature,
    require_no_steps,
    require_plain_steps,
)
from recordmill.transforms.encode.json_examples import encode_json
from recordmill.transforms.encode.row_errors import flag_invalid, prefixed, raise_errors
from recordmill.transforms.encode.sequences import encode_sequences
from recordmill.transforms.encode.wire import join_cells


def check_payload(schema: Schema, payload: Payload) -> None:
    """Checks that records of a kind can be made of a schema's features.

    Raises:
      SchemaError: if not, with the features that are in the way.
    """
    if payload == "raw":
        raw_feature(schema)
        return
    for feature in schema.features:
        if payload != "sequence_example":
            require_no_steps(feature)
        elif feature.sequence:
            require_plain_steps(feature)


def raw_feature(schema: Schema) -> FeatureSpec:
    """Returns the feature whose bytes are the records of payload `raw`.

    It is the only one that is bytes, or the only picture or array among several.

    Raises:
      SchemaError: there is none, or several.
    """
    candidates = [
        feature
        for feature in schema.features
        if feature.kind is Kind.BYTES and not feature.sequence and _is_single(feature)
    ]
    media = [
        feature
        for feature in candidates
        if feature.content in (Content.PICTURE, Content.ARRAY)
    ]
    for chosen in (candidates, media):
        if len(chosen) == 1:
            return chosen[0]
    if not candidates:
        raise SchemaError(
            "payload raw: no feature has one bytes value for each record; there are "
            f"{', '.join(feature.name for feature in schema.features)}: declare one "
            "of dtype bytes or string"
        )
    raise SchemaError(
        "payload raw: a record holds the bytes of one feature, there are "
        f"{', '.join(feature.name for feature in media or candidates)}: choose "
        "one by a `schema` that has no other"
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

    Args:
      batch: the columns that the schema's features name.
      schema: what `check_payload` let pass.
      payload: what the records hold.
      head_room: zero bytes to leave before each record.
      tail_room: zero bytes to leave behind each record.

    Returns:
      A binary array of batch.num_rows rows, its buffers fresh and writable.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows that cannot be made into a record.
      RecordmillError: the records together are beyond 2 GiB.
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
    require_column(batch.schema, feature)
    (column,) = load_feature(batch[feature.column], feature)
    if column.valid is not None:
        reason = "no value, and a raw record is its bytes"
        missing = flag_invalid(~column.valid, lambda _: reason)
        raise_errors(prefixed(feature.name, missing))
    head = pa.repeat(pa.scalar(bytes(head_room)), batch.num_rows)
    return join_cells([head, column.values], tail_room)


def _is_single(feature: FeatureSpec) -> bool:
    return feature.content is not Content.VALUES or feature.shape == ()
