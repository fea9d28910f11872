"""Decodes records of any payload to an Arrow batch.

The inverse of encode/payloads.py. Only plain examples are read many at a time. Sequence
examples and JSON are parsed by the protobuf runtime one by one and converted to plain
examples, so that all values are checked and cast in one place.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import (
    Example,
    FeatureList,
    Features,
    SequenceExample,
)
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.decode.columns import (
    DecodeErrors,
    check_feature,
    read_column,
)
from recordmill.transforms.decode.examples import (
    DecodedRecords,
    Unknown,
    decode_records,
    unknown_feature,
)
from recordmill.transforms.decode.wire import WORD_BYTES, Spans, padded_parts
from recordmill.transforms.encode.columns import nest_values
from recordmill.transforms.encode.payloads import check_payload, raw_feature

_SHOWN_BYTES = 24


def decode_payload(
    records: pa.BinaryArray,
    schema: Schema,
    payload: Payload,
    *,
    unknown: Unknown = "ignore",
) -> DecodedRecords:
    """Decodes the features of unframed records; also returns errors of records.

    Raw records have one column: the feature whose bytes they are.

    Raises:
      SchemaError: records of this payload cannot hold the schema's features.
    """
    check_payload(schema, payload)
    if payload == "raw":
        return _decode_raw(records, raw_feature(schema))
    if payload == "json":
        return _decode_json(records, schema, unknown)
    if payload == "sequence_example":
        return _decode_sequences(records, schema, unknown)
    return decode_records(records, schema, unknown=unknown)


def _decode_raw(records: pa.BinaryArray, feature: FeatureSpec) -> DecodedRecords:
    """Decodes raw records: each has the bytes that an example stores for the feature."""
    check_feature(feature)
    data, starts, ends = padded_parts(records, 8 * WORD_BYTES)
    spans = Spans(starts, ends - starts, np.ones(len(starts), np.bool_))
    findings = DecodeErrors(np.zeros(len(starts), np.bool_))
    column = read_column(data, feature, [spans], findings)
    batch = pa.RecordBatch.from_arrays([column], [feature.name])
    return DecodedRecords(batch, sorted(findings.reasons.items()))


def _decode_json(
    records: pa.BinaryArray, schema: Schema, unknown: Unknown
) -> DecodedRecords:
    examples, reasons = [], {}
    for row, text in enumerate(records.to_pylist()):
        example = Example()
        try:
            json_value = json.loads(text, parse_float=_as_float32)
            if not isinstance(json_value, dict):
                raise json_format.ParseError(
                    f"{type(json_value).__name__}, expected an object"
                )
            json_format.ParseDict(json_value, example)
        except (json_format.ParseError, ValueError, RecursionError) as error:
            reasons[row] = (
                f"{len(text)} bytes that start with {text[:_SHOWN_BYTES]!r} are not valid "
                f"JSON of a tf.train.Example: {error}"
            )
            example.Clear()
        examples.append(example.SerializeToString(deterministic=True))
    decoded = decode_records(pa.array(examples, pa.binary()), schema, unknown=unknown)
    reasons = dict(decoded.row_errors) | reasons
    return DecodedRecords(decoded.batch, sorted(reasons.items()))


def _as_float32(text: str) -> float:
    """Rounds like TensorFlow; json_format would reject 3.4028235e38 as too large."""
    with np.errstate(over="ignore"):
        return float(np.float32(text))


def _decode_sequences(
    records: pa.BinaryArray, schema: Schema, unknown: Unknown
) -> DecodedRecords:
    parsed, reasons = _parse_sequences(records)
    lists = [feature for feature in schema.features if feature.is_sequence]
    context = [feature for feature in schema.features if not feature.is_sequence]
    if unknown == "error":
        names = {feature.name for feature in lists}
        keys = {key for feature in context for key in feature.keys}
        for row, message in enumerate(parsed):
            for name in sorted(
                (message.context.feature.keys() - keys)
                | (message.feature_lists.feature_list.keys() - names)
            ):
                reasons.setdefault(row, unknown_feature(name))
    columns: dict[str, pa.Array] = {}
    if context:
        examples = [
            Example(features=message.context).SerializeToString(deterministic=True)
            for message in parsed
        ]
        decoded = decode_records(
            pa.array(examples, pa.binary()), Schema(tuple(context))
        )
        columns |= zip(decoded.batch.schema.names, decoded.batch.columns, strict=True)
        reasons = dict(decoded.row_errors) | reasons
    for feature in lists:
        feature_lists = [message.feature_lists.feature_list for message in parsed]
        columns[feature.name] = _steps_column(feature_lists, feature, reasons)
    ordered = {feature.name: columns[feature.name] for feature in schema.features}
    batch = pa.RecordBatch.from_pydict(ordered)
    return DecodedRecords(batch, sorted(reasons.items()))


def _parse_sequences(
    records: pa.BinaryArray,
) -> tuple[list[SequenceExample], dict[int, str]]:
    """Returns each record's message, empty if invalid, and the errors by record."""
    parsed, reasons = [], {}
    for row, data in enumerate(records.to_pylist()):
        try:
            parsed.append(SequenceExample.FromString(data))
        except DecodeError as error:
            parsed.append(SequenceExample())
            reasons[row] = (
                f"{len(data)} bytes that start with {data[: _SHOWN_BYTES // 2].hex()!r} "
                f"are not a valid tf.train.SequenceExample: {error}"
            )
    return parsed, reasons


def _steps_column(
    feature_lists: Sequence[Mapping[str, FeatureList]],
    feature: FeatureSpec,
    reasons: dict[int, str],
) -> pa.Array:
    """Returns a feature list's column, lists of steps; adds errors to `reasons`."""
    name = feature.name
    present = np.array([name in lists for lists in feature_lists], np.bool_)
    steps = [lists[name].feature if name in lists else () for lists in feature_lists]
    offsets = offsets_of(np.fromiter(map(len, steps), np.int64, len(steps)))
    examples = [
        Example(features=Features(feature={name: step})).SerializeToString(
            deterministic=True
        )
        for step in itertools.chain(*steps)
    ]
    step_schema = Schema((replace(feature, is_sequence=False),))
    decoded = decode_records(pa.array(examples, pa.binary()), step_schema)
    (column,) = decoded.batch.columns
    step_errors = dict(decoded.row_errors)
    for index in np.flatnonzero(column.is_null().to_numpy(False)).tolist():
        step_errors.setdefault(index, f"feature {name!r}: no value")
    for index in sorted(step_errors):
        row = int(np.searchsorted(offsets, index, side="right")) - 1
        step = index - int(offsets[row])
        reasons.setdefault(row, f"step {step}: {step_errors[index]}")
    return nest_values(column, [offsets], present)
