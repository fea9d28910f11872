"""Loads what each key of the feature map holds from a batch, in the map's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    map_order,
    shape_text,
)
from recordmill.transforms.encode.arrow_types import require_column
from recordmill.transforms.encode.nested import Nested, open_column, open_steps
from recordmill.transforms.encode.ragged import ragged_columns
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    by_row,
    errors_in,
    merge,
    raise_errors,
    rows_error,
)
from recordmill.transforms.encode.shapes import check_shape
from recordmill.transforms.encode.stored_values import Column, value_column
from recordmill.transforms.encode.tensors import array_column, tensor_column

_INT64 = pa.int64()


class Entry(NamedTuple):
    """One key of the feature map and what it holds in every row."""

    key: str
    kind: Kind
    column: Column


def load_entries(batch: pa.RecordBatch, features: Sequence[FeatureSpec]) -> list[Entry]:
    """Returns the keys of all features in the order in which protobuf writes a map.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows with a value that a feature cannot hold; those of all features.
    """
    errors: RowErrors = {}
    entries: list[Entry] = []
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    if len(arrays) < batch.num_columns:
        arrays = {}  # a name that is there twice
    for feature in features:
        require_no_steps(feature)
        if feature.column not in arrays:
            require_column(batch.schema, feature)
            arrays[feature.column] = batch[feature.column]
        try:
            columns = load_feature(arrays[feature.column], feature)
        except RowsError as error:
            errors = merge(errors, errors_in(error))
            continue
        # Row lengths are int64 whatever the values are.
        kinds = [feature.kind] + [Kind.INT64] * (len(columns) - 1)
        entries += map(Entry, feature.keys, kinds, columns)
    raise_errors(errors)
    return sorted(entries, key=lambda entry: map_order(entry.key))


def load_feature(array: pa.Array, feature: FeatureSpec) -> list[Column]:
    """Returns what the feature's keys hold, in the order of `feature.keys`.

    Raises:
      SchemaError: the column's type does not fit the feature.
      RowsError: rows with a value that the feature cannot hold.
    """
    if _is_plain_integer(feature) and array.type == _INT64:
        return [_integer_column(array)]
    nested = open_column(array, feature)
    check_shape(nested)
    if feature.content is Content.ARRAY:
        return [array_column(nested)]
    if feature.content is Content.TENSOR:
        return [tensor_column(nested)]
    if feature.is_ragged:
        return ragged_columns(nested)
    return [value_column(nested)]


def _is_plain_integer(feature: FeatureSpec) -> bool:
    """Tells whether int64 is stored as it is: nothing can be wrong with a value.

    It is the most frequent column of wide tables, where the steps for each column, not
    the values, take the time.
    """
    return (
        feature.dtype == "int64"
        and not feature.sequence
        and feature.kind is Kind.INT64
        and feature.shape == ()
        and feature.content is Content.VALUES
    )


def _integer_column(array: pa.Array) -> Column:
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.fill_null(0)
    return Column(array.to_numpy(), None, valid)


def load_steps(array: pa.Array, feature: FeatureSpec) -> tuple[Nested, Column]:
    """Returns a feature list's column: which steps each row has, and what they hold.

    Raises:
      SchemaError: the column's type does not fit the feature.
      RowsError: rows with a step that the feature cannot hold.
    """
    require_plain_steps(feature)
    nested = open_steps(array, feature)
    assert nested.starts is not None  # it has been opened
    try:
        (column,) = load_feature(nested.leaf, replace(feature, sequence=False))
    except RowsError as error:
        raise rows_error(by_row(errors_in(error), nested.starts)) from error
    return nested, column


def require_no_steps(feature: FeatureSpec) -> None:
    """Checks that a feature is not a feature list.

    Raises:
      SchemaError: if it is one.
    """
    if feature.sequence:
        raise SchemaError(
            f"feature {feature.name!r}: only sequence examples have feature lists. Use "
            "`payload=sequence_example`, or declare one more unknown dimension instead of "
            "the sequence"
        )


def require_plain_steps(feature: FeatureSpec) -> None:
    """Checks that each step of a feature list is one feature.

    Raises:
      SchemaError: if the steps are ragged.
    """
    if feature.is_ragged:
        raise SchemaError(
            f"feature {feature.name!r}: a step of a feature list has no row lengths, so "
            f"it has one unknown dimension at most, got shape {shape_text(feature.shape)}: "
            "store the steps as tensors"
        )
