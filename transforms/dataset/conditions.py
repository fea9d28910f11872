"""Finds the records of which a feature has a given value, in whole batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.feature import Content, FeatureSpec, Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.transforms.arrow import I64
from recordmill.transforms.decode.payloads import decode_payload

_TRUTH_VALUES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Condition:
    """What a record must have.

    Attributes:
      feature: that is looked at.
      value: that it must have; of a feature with a shape, among its values.
    """

    feature: FeatureSpec
    value: bool | int | float | str | bytes


def parse_condition(
    text: str, schema: Schema, names: Mapping[str, Sequence[str]]
) -> Condition:
    """Parses FEATURE=VALUE, where the value may be the name of a class.

    Raises:
      UsageError: there is no such feature, or it cannot have the value.
    """
    name, equals, value = text.partition("=")
    features = {feature.name: feature for feature in schema.features}
    if not equals or name not in features:
        raise UsageError(
            f"`where`: expected FEATURE=VALUE, got {text!r}; the features are "
            f"{', '.join(sorted(features))}"
        )
    feature = features[name]
    if feature.content is Content.PICTURE:
        raise UsageError(
            f"`where`: the values of {name!r} are pictures, not to compare"
        )
    classes = list(names.get(name, ()))
    if value in classes:
        return Condition(feature, classes.index(value))
    try:
        return Condition(feature, _value_of(value, feature.dtype))
    except ValueError:
        expected = feature.dtype + (" or a class name" if classes else "")
        raise UsageError(
            f"`where`: {value!r} is no value of {name!r} (expected {expected})"
        ) from None


def rows_with(
    records: pa.BinaryArray,
    conditions: Sequence[Condition],
    schema: Schema,
    payload: Payload,
) -> I64:
    """Returns the indices of the records that meet all conditions, in order.

    Args:
      records: without their frames.
      conditions: one or more.
      schema: of the records.
      payload: what they hold.
    """
    if payload in ("example", "json"):  # no other feature has to be decoded
        wanted = {condition.feature.name for condition in conditions}
        schema = Schema(tuple(f for f in schema.features if f.name in wanted))
    batch = decode_payload(records, schema, payload).batch
    found = np.arange(len(records))
    for condition in conditions:
        rows = _rows_with(batch.column(condition.feature.name), condition.value)
        found = np.intersect1d(found, rows)
    return found


def _rows_with(column: pa.Array, value: object) -> I64:
    rows: I64 = np.arange(len(column))
    while pa.types.is_nested(column.type):  # a list: any of its values may be the one
        rows = rows[pc.list_parent_indices(column).to_numpy(zero_copy_only=False)]
        column = pc.list_flatten(column)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # Arrow compares no half floats
    try:
        scalar = pa.scalar(value, column.type)
    except (pa.ArrowInvalid, OverflowError):
        return rows[:0]  # 300 is no uint8: no record has it
    equal = pc.equal(column, scalar).fill_null(False)
    found: I64 = rows[equal.to_numpy(zero_copy_only=False)]
    return found


def _value_of(text: str, dtype: str) -> bool | int | float | str | bytes:
    if dtype == "string":
        return text
    if dtype == "bytes":
        return text.encode()
    if dtype == "bool":
        if text.lower() not in _TRUTH_VALUES:
            raise ValueError(text)
        return _TRUTH_VALUES[text.lower()]
    return float(text) if dtype.startswith("float") else int(text)
