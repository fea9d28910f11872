"""Loads what each key of the feature map holds from a batch, in the map's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
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


def load_entries(
    batch: pa.RecordBatch, features: Sequence[FeatureSpec]
) -> Iterator[Entry]:
    """Yields the keys of all features in the order in which protobuf writes a map.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows with a value that a feature cannot hold; those of all features.
    """
    errors: RowErrors = {}
    loaded: dict[str, list[Column]] = {}
    names, types = batch.schema.names, batch.schema.types
    arrays = dict(zip(names, batch.columns, strict=True))
    if len(arrays) < len(names):
        arrays = {}  # a name that is there twice
    integers = {
        name
        for name, arrow_type in zip(names, types, strict=True)
        if arrow_type == _INT64 and name in arrays
    }
    for key, feature, part, is_plain in _keys_of(_Features(features)):
        if is_plain and feature.column in integers:
            if not errors:
                yield Entry(key, Kind.INT64, _integer_column(arrays[feature.column]))
            continue
        if feature.name not in loaded:
            require_no_steps(feature)
            array = arrays.get(feature.column)
            if array is None:
                require_column(batch.schema, feature)
                array = batch[feature.column]
            try:
                loaded[feature.name] = load_feature(array, feature)
            except RowsError as error:
                errors = merge(errors, errors_in(error))
                loaded[feature.name] = []
        if errors:
            continue  # only to find all that is wrong
        columns = loaded[feature.name]
        if len(columns) == 1:
            del loaded[feature.name]  # not held longer than its cells are made
        # Row lengths are int64 whatever the values are.
        yield Entry(key, feature.kind if part == 0 else Kind.INT64, columns[part])
    raise_errors(errors)


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


class _Features:
    """The features of a schema, which is the same object for all its batches."""

    def __init__(self, features: Sequence[FeatureSpec]) -> None:
        self.features = features

    def __hash__(self) -> int:
        return id(self.features)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Features) and self.features is other.features


# To sort 20,000 of them takes longer than a batch of ten rows.
@lru_cache(maxsize=8)
def _keys_of(schema: _Features) -> list[tuple[str, FeatureSpec, int, bool]]:
    """Returns the keys of all features, in the order in which they are written.

    With each is its feature, which of the feature's keys it is, and whether the feature
    is a plain integer.
    """
    keys = [
        (key, feature, part, _is_plain_integer(feature))
        for feature in schema.features
        for part, key in enumerate(feature.keys)
    ]
    return sorted(keys, key=lambda entry: map_order(entry[0]))
