"""Makes labels, splits and features of cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import shape_text
from recordmill.schemas.text import first_names
from recordmill.transforms.sources.csv.inspect import (
    count_long,
    count_missing,
    long_warnings,
    missing_fact,
)
from recordmill.transforms.sources.plain_types import plain_schema
from recordmill.transforms.sources.text_types import TypeFlag, convert_columns


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # without a chunk
        return pa.array([], column.type)
    return column


def text_cells(column: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Returns values as text without blanks around it; null where nothing is left."""
    text = pc.utf8_trim_whitespace(one_array(column).cast(pa.string()))
    return pc.if_else(pc.equal(pc.binary_length(text), 0), None, text)


def label_cells(column: pa.Array | pa.ChunkedArray, separator: str) -> pa.Array:
    """Returns the labels of each row: a name, or a list of names.

    Args:
      column: of values or of lists.
      separator: between several labels of a cell; "" if there is one.
    """
    array = one_array(column)
    if pa.types.is_list(array.type):
        return full_lists(array, text_cells(array.flatten()))
    cells = text_cells(array)
    if not separator:
        return cells
    lists = pc.split_pattern(cells, separator)
    return full_lists(lists, text_cells(lists.flatten()))


def full_lists(lists: pa.ListArray, values: pa.StringArray) -> pa.ListArray:
    """Returns lists of the values that are not null.

    Of the lists [a, null] and [b]: lengths 1 1, values a b.
    """
    kept = values.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(
        zero_copy_only=False
    )
    ends = np.cumsum(lengths)
    before = np.concatenate([[0], np.cumsum(kept)])
    offsets = before[np.concatenate([[0], ends])].astype(np.int32)
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values.drop_null(), mask=mask
    )


def typed_features(
    cells: dict[str, pa.StringArray],
) -> tuple[dict[str, pa.Array], list[tuple[str, str]], list[str]]:
    """Returns columns of text with the types that all of their cells have.

    Args:
      cells: the columns as text.

    Returns:
      The columns; facts and warnings of cells that mean a missing value or lose digits.
    """
    if not cells:
        return {}, [], []
    names, text = list(cells), list(cells.values())
    columns, observed = convert_columns(text, [int(TypeFlag.NOTHING)] * len(text))
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    missing = count_missing(names, text, columns, tuple(observed))
    facts = missing_fact(missing, plain_schema(batch.schema))
    long = count_long(pa.table(cells), batch)
    return (
        dict(zip(names, columns, strict=True)),
        list(facts),
        long_warnings(long, names),
    )


def told_types(columns: dict[str, pa.Array]) -> str:
    """Returns names and types of columns, in words."""
    if not columns:
        return "none"
    schema = plain_schema(pa.schema([(n, each.type) for n, each in columns.items()]))
    told = [(name, schema[name]) for name in columns]
    return first_names(
        [f"{n} {f.dtype}{shape_text(f.shape) if f.shape else ''}" for n, f in told]
    )


def joined(columns: Sequence[pa.Array]) -> pa.Array:
    """Returns columns of several tables one after the other."""
    kinds = {column.type for column in columns}
    if len(kinds) > 1:  # a column without any value in one of them
        wanted = max(kinds, key=lambda kind: kind != pa.null())
        columns = [column.cast(wanted) for column in columns]
    return pa.concat_arrays(columns)
