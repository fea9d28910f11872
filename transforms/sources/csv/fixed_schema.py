"""Converts CSV rows to the schema of the dataset that they are appended to.

Whatever types the new cells would have by themselves, a row has to fit the features
that all other records have; one that does not is a reject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Schema, usual_kind
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.sources.csv.text_rows import TextRows
from recordmill.transforms.sources.text_types import cells_of, convert_to_dtype
from recordmill.transforms.sources.type_flags import ARROW_TYPES


def fixed_columns(names: Sequence[str], schema: Schema) -> pa.Schema:
    """Returns the columns as the dataset's features have them.

    Raises:
      SchemaError: columns and features are not the same.
    """
    dtypes = _dtypes(names, schema)
    return pa.schema([(name, ARROW_TYPES[dtype]) for name, dtype in dtypes.items()])


def fit_rows(
    rows: TextRows,
    names: Sequence[str],
    schema: Schema,
    input_range: InputRange,
    decimal: str = ".",
) -> tuple[TextRows, pa.RecordBatch]:
    """Returns the rows that fit a dataset's schema, and their typed columns.

    Args:
      rows: as text.
      names: the columns.
      schema: the dataset's.
      input_range: the range that the rows come from.
      decimal: as in `Dialect`.

    Returns:
      The rows without those that do not fit, which are among the rejects now.
    """
    columns = []
    reasons: dict[int, str] = {}
    for name, dtype in _dtypes(names, schema).items():
        cells = cells_of(rows.table, name)
        with_points = cells
        if decimal == "," and dtype != "string":
            with_points = swap_points(cells)
        column, wrong = convert_to_dtype(with_points, dtype)
        columns.append(column)
        for row in np.flatnonzero(wrong).tolist():
            value = shown(cells[row].as_py())
            reason = f"{name}: {value} is not a valid {dtype}, its type in the dataset"
            reasons.setdefault(row, reason)
        if column.null_count and not schema[name].optional:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(missing & ~wrong).tolist():
                reason = f"{name}: missing; every record of the dataset has it"
                reasons.setdefault(row, reason)
    batch = pa.RecordBatch.from_arrays(columns, names=list(names))
    if not reasons:
        return rows, batch
    rejects = [
        Reject(rows.paths[row] if rows.paths else input_range.path, at, reason, raw)
        for row, reason in reasons.items()
        for at, raw in [rows.raw(row)]
    ]
    files = {file.path: index for index, file in enumerate(input_range.files)}
    rejects = sorted(
        [*rows.rejects, *rejects], key=lambda r: (files.get(r.path, 0), r.position)
    )
    kept = np.delete(np.arange(batch.num_rows), list(reasons))
    fitting = replace(rows.select(kept), rejects=rejects)
    return fitting, batch.take(pa.array(kept))


def _dtypes(names: Sequence[str], schema: Schema) -> dict[str, str]:
    """Returns the dtype that each column's cells are converted to."""
    features = {feature.name: feature for feature in schema.features}
    if features.keys() != set(names):
        raise SchemaError(
            f"the columns are {', '.join(sorted(names))}, but the dataset's features "
            f"are {', '.join(sorted(features))}"
        )
    for feature in features.values():
        dtype = feature.dtype
        if dtype not in ARROW_TYPES or feature.kind is not usual_kind(dtype):
            raise SchemaError(
                f"feature {feature.name!r} of the dataset is {dtype} in "
                f"{feature.kind}; without a declared schema no CSV column becomes that"
            )
    return {name: features[name].dtype for name in names}
