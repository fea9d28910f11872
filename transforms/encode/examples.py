"""Serializes Arrow batches as tf.train.Example and SequenceExample.

    Example   0a len Features
    Features  entry*                         sorted by key
    entry     0a len | 0a len key | 12 len Feature
    Feature   0a len BytesList | 12 len FloatList | 1a len Int64List
    BytesList (0a len bytes)*    FloatList, Int64List  0a len packed values

The columns of all keys are loaded and checked first. Then the native functions write
their bytes, which are equal to protobuf's SerializeToString(deterministic=True).
Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    format_shape,
    map_sort_key,
)
from recordmill.transforms import native
from recordmill.transforms.arrow import (
    I64,
    array_parts,
    binary_array,
    offsets_of,
    require_fit,
    value_lengths,
    value_offsets,
    views_at,
)
from recordmill.transforms.encode.columns import (
    NestedColumn,
    StoredColumn,
    open_column,
    require_column,
    value_column,
)
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    errors_by_row,
    merge_errors,
    raise_errors,
)
from recordmill.transforms.encode.tensors import (
    array_column,
    header_cells,
    join_cells,
    tensor_column,
)
from recordmill.transforms.native import Column
from recordmill.transforms.native.numpy_loops import field_header, varint_lengths

# A ragged feature has its values in one key, and its row lengths in other keys:
#
#     tokens = [[5, 6], [], [7]]   of shape [null, null] is stored as
#     tokens/ragged_flat_values    5 6 7
#     tokens/ragged_row_lengths_0  2 0 1
#
# Source: tensorflow_datasets/core/example_serializer.py.


def ragged_columns(nested: NestedColumn) -> list[StoredColumn]:
    """Returns the flat values and the row lengths, in the order of the feature's keys.

    Every dimension up to the last unknown one is a level of lists. Later dimensions may
    be lists, or flat in the innermost lists.
    """
    feature, levels = nested.feature, nested.levels
    columns = [value_column(nested)]
    if nested.starts is None:  # only nulls
        nothing = np.zeros(nested.num_rows, np.int64)
        return (
            columns + [StoredColumn(nothing, None, nested.valid)] * feature.ragged_rank
        )
    starts = levels[0]
    for level in range(1, feature.ragged_rank + 1):
        lengths = np.diff(levels[level])
        if level == len(levels) - 1:
            inside = math.prod(n for n in feature.shape[level + 1 :] if n is not None)
            lengths //= max(inside, 1)
        columns.append(StoredColumn(lengths, starts, nested.valid))
        starts = levels[level][starts]
    return columns


_INT64 = pa.int64()
_PLAIN_INTEGER = ("int64", Kind.INT64, (), Content.VALUES, False)


class MapEntry(NamedTuple):
    """One key of the feature map with its values in every row."""

    key: str
    kind: Kind
    column: StoredColumn


def load_entries(
    batch: pa.RecordBatch, features: Sequence[FeatureSpec]
) -> list[MapEntry]:
    """Returns the entries of all features in the order in which protobuf writes a map."""
    errors: RowErrors = {}
    entries: list[MapEntry] = []
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    if len(arrays) < batch.num_columns:
        arrays = {}  # a name occurs twice
    for feature in features:
        require_steps(feature, has_lists=False)
        if feature.column not in arrays:
            require_column(batch.schema, feature.name, feature.column)
            arrays[feature.column] = batch[feature.column]
        try:
            columns = load_feature(arrays[feature.column], feature)
        except RowsError as error:
            errors = merge_errors(errors, error.errors)
            continue
        # Row lengths are int64 for values of any kind.
        kinds = [feature.kind] + [Kind.INT64] * (len(columns) - 1)
        entries += map(MapEntry, feature.keys, kinds, columns)
    raise_errors(errors)
    return sorted(entries, key=lambda entry: map_sort_key(entry.key))


def load_feature(array: pa.Array, feature: FeatureSpec) -> list[StoredColumn]:
    """Returns the columns of the feature's keys, in the order of `feature.keys`."""
    if (
        array.type == _INT64
        and (
            *(feature.dtype, feature.kind, feature.shape, feature.content),
            feature.is_sequence,
        )
        == _PLAIN_INTEGER
    ):
        # Every value is valid. Such columns are the most frequent in wide tables, in
        # which the steps for each column take more time than its values.
        valid = array.is_valid().to_numpy(False) if array.null_count else None
        return [StoredColumn(array.fill_null(0).to_numpy(), None, valid)]
    nested = open_column(array, feature)
    if feature.content is Content.ARRAY:
        return [array_column(nested)]
    if feature.content is Content.TENSOR:
        return [tensor_column(nested)]
    if feature.is_ragged:
        return ragged_columns(nested)
    return [value_column(nested)]


def load_steps(
    array: pa.Array, feature: FeatureSpec
) -> tuple[NestedColumn, StoredColumn]:
    """Returns the lists of steps of a feature list, and the values of all steps."""
    require_steps(feature, has_lists=True)
    nested = open_column(array, feature, steps=True)
    assert nested.starts is not None  # because of steps=True
    try:
        (column,) = load_feature(nested.leaf, replace(feature, is_sequence=False))
    except RowsError as error:
        raise RowsError(errors_by_row(error.errors, nested.starts)) from error
    return nested, column


def require_steps(feature: FeatureSpec, *, has_lists: bool) -> None:
    """Checks that records can store a feature's steps, if it has some.

    With `has_lists`, the records are sequence examples, which have feature lists.
    """
    if feature.is_sequence and not has_lists:
        raise SchemaError(
            f"feature {feature.name!r}: only sequence examples have feature lists. Use "
            "`payload=sequence_example`, or declare one more unknown dimension instead of "
            "the sequence"
        )
    if feature.is_sequence and feature.is_ragged:
        raise SchemaError(
            f"feature {feature.name!r}: a step of a feature list has no row lengths, so "
            f"it has one unknown dimension at most, got shape {format_shape(feature.shape)}: "
            "store the steps as tensors"
        )


TAGS = {Kind.BYTES: 0x0A, Kind.FLOAT: 0x12, Kind.INT64: 0x1A}


def encode(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Serializes every row as a tf.train.Example.

    Each example has `head_room` bytes before and `tail_room` bytes after it, for a
    record's frame. If a cell is null, its feature is left out. The array's buffers are
    new and writable.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows have a value that a feature cannot store.
      RecordmillError: all examples together have more than 2 GiB.
    """
    columns = load_columns(batch, schema.features)
    sizes, lengths = measure(columns, batch.num_rows, head_room + tail_room)
    return write_rows(columns, sizes, lengths, head_room, tail_room)


def load_columns(
    batch: pa.RecordBatch, features: Sequence[FeatureSpec]
) -> list[Column]:
    """Returns the columns of all features for the native functions."""
    return [column_of(entry) for entry in load_entries(batch, features)]


def column_of(entry: MapEntry) -> Column:
    """Returns a column's buffers in the form that the native functions expect."""
    column, offsets = entry.column, None
    if entry.kind is Kind.BYTES:
        offsets = value_offsets(column.values)
        values = column.values.buffers()[2] or b""
    elif entry.kind is Kind.FLOAT:
        values = np.ascontiguousarray(column.values, "<f4")
    else:
        values = np.ascontiguousarray(column.values, np.int64)
    lists = column.lists
    if lists is not None:
        lists = np.ascontiguousarray(lists, np.int64)
    return entry.key.encode(), TAGS[entry.kind], values, offsets, lists, column.valid


def measure(columns: Sequence[Column], num_rows: int, room: int) -> tuple[I64, I64]:
    """Returns the sizes of each row's Features message, and of its example with room."""
    sizes = np.empty(num_rows, np.int64)
    native.loops.measure(list(columns), sizes)
    return sizes, room + 1 + varint_lengths(sizes) + sizes


def write_rows(
    columns: Sequence[Column], sizes: I64, lengths: I64, head_room: int, tail_room: int
) -> pa.BinaryArray:
    """Writes the examples of all rows; `sizes` and `lengths` are from `measure`."""
    offsets = offsets_of(lengths)
    require_fit(int(offsets[-1]))
    data = np.empty(int(offsets[-1]), np.uint8)
    native.loops.write(list(columns), 0, sizes, offsets, head_room, tail_room, data)
    return binary_array(offsets, data)


#     SequenceExample  0a len Features | 12 len FeatureLists
#     FeatureLists     list*                   sorted by key
#     list             0a len | 0a len key | 12 len FeatureList
#     FeatureList      (0a len Feature)*       a Feature for each step
#
# Both parts are always written, even without an entry. The first part is an Example. The
# Feature of a step is the end of an Example with one unnamed feature:
#
#     Example   0a len | 0a len | 0a 00 | 12 len Feature      its 12 becomes the step's 0a


def encode_sequences(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Serializes every row as a sequence example; arguments and errors as in `encode`.

    Features with `sequence` are feature lists, all others are context.
    """
    context = load_columns(batch, [f for f in schema.features if not f.is_sequence])
    lists: list[pa.BinaryArray] = []
    errors: RowErrors = {}
    for feature in schema.features:
        if feature.is_sequence:
            require_column(batch.schema, feature.name, feature.column)
            try:
                lists += _list_cells(batch[feature.column], feature)
            except RowsError as error:
                errors = merge_errors(errors, error.errors)
    raise_errors(errors)
    sizes, lengths = measure(context, batch.num_rows, head_room)
    examples = write_rows(context, sizes, lengths, head_room, 0)
    list_bytes = sum(map(value_lengths, lists), np.zeros(batch.num_rows, np.int64))
    inner = header_cells(lambda length: field_header(b"\x12", length), list_bytes)
    return join_cells([examples, inner, *lists], tail_room)


def _list_cells(array: pa.Array, feature: FeatureSpec) -> list[pa.BinaryArray]:
    """Creates a feature list's map entry for each row: its header, and all steps."""
    nested, column = load_steps(array, feature)
    assert nested.starts is not None
    columns = [column_of(MapEntry("", feature.kind, column))]
    sizes, lengths = measure(columns, len(nested.leaf), 0)
    offsets, data = array_parts(write_rows(columns, sizes, lengths, 0, 0))
    inside = sizes - 1 - varint_lengths(sizes)  # approximately the entry's length
    starts = offsets[:-1] + varint_lengths(sizes) + varint_lengths(inside) + 4
    data = data.copy()
    data[starts] = 0x0A
    lengths = offsets[1:] - starts
    buffers = [pa.py_buffer(data)]
    cells = views_at(buffers, np.zeros_like(starts), starts, lengths).cast(pa.binary())
    steps = binary_array(offsets_of(lengths)[nested.starts], array_parts(cells)[1])
    key = field_header(b"\x0a", len(feature.name.encode())) + feature.name.encode()

    def header(steps_length: int) -> bytes:
        entry_bytes = key + field_header(b"\x12", steps_length)
        return field_header(b"\x0a", len(entry_bytes) + steps_length) + entry_bytes

    if nested.valid is not None:
        steps = pc.if_else(pa.array(nested.valid), steps, b"")
    return [header_cells(header, value_lengths(steps), nested.valid), steps]
