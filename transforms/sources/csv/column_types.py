"""Finds the types of the columns of CSV files: in a sample, and those of all rows."""

from __future__ import annotations

from functools import lru_cache

from recordmill.schemas.feature_spec import FeatureSpec, Schema, usual_kind
from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.sources.csv.range_rows import RangeRows
from recordmill.transforms.sources.csv.split_cells import columns_of
from recordmill.transforms.sources.type_flags import (
    TypeFlag,
    column_dtype,
    has_missing_words,
)
from recordmill.transforms.sources.wide_columns import classify_columns

SAMPLE_BYTES = 1 << 16
_SAMPLED_FILES = 8  # of a range of small files


def sample_types(rows: RangeRows, input_range: InputRange) -> TypeFlags:
    """Returns the type flags of the columns in the first rows of a range.

    Of a range of small files, in the first rows of some.
    """
    flags: TypeFlags = (int(TypeFlag.NOTHING),) * len(rows.names)
    files = input_range.by_file()
    chosen = files[:: -(-len(files) // _SAMPLED_FILES)]
    for each in chosen:
        parsed = rows.sample(each, SAMPLE_BYTES // len(chosen))
        if parsed is not None and parsed.table.num_rows:
            columns = columns_of(parsed.table, rows.names)
            if rows.dialect.decimal == ",":
                columns = [swap_points(column) for column in columns]
            found = tuple(map(int, classify_columns(columns, SAMPLE_BYTES)))
            flags = merge_type_flags(flags, found)
    return flags


# Asked for each batch: a schema of 20,000 columns takes longer than a batch of them.
@lru_cache(maxsize=8)
def infer_schema(
    names: tuple[str, ...], observed: TypeFlags, nulls: tuple[int, ...]
) -> Schema:
    """Returns the features of columns whose types follow from their cells.

    Args:
      names: of the columns.
      observed: what the cells of each were observed to hold.
      nulls: missing values of each.
    """
    features = []
    for name, flags, missing in zip(names, observed, nulls, strict=True):
        dtype = column_dtype(flags)
        optional = missing > 0 or has_missing_words(flags)
        features.append(
            FeatureSpec(name, usual_kind(dtype), dtype=dtype, optional=optional)
        )
    return Schema(tuple(features))
