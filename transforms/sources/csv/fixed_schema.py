"""CSV rows for a dataset that is there already: its types are settled.

Whatever the new cells would be taken for by themselves, a row has to fit the features
that all other records have; one that does not is a reject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.feature import Schema, usual_kind
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.sources.csv.column_types import (
    ARROW_TYPES,
    convert_settled,
)
from recordmill.transforms.sources.csv.split_cells import Parsed, cells_of


def settled_columns(names: Sequence[str], settled: Schema) -> pa.Schema:
    """The columns as the dataset's features have them.

    Raises:
      SchemaError: columns and features are not the same.
    """
    dtypes = _dtypes(names, settled)
    return pa.schema([(name, ARROW_TYPES[dtype]) for name, dtype in dtypes.items()])


def fit_rows(
    parsed: Parsed, names: Sequence[str], settled: Schema, input_range: InputRange
) -> tuple[Parsed, pa.RecordBatch]:
    """The rows that fit a dataset's schema, and their typed columns.

    Args:
      parsed: rows as text.
      names: the columns.
      settled: the dataset's schema.
      input_range: the range that the rows come from.

    Returns:
      The rows without those that do not fit, which are among the rejects now.
    """
    columns = []
    reasons: dict[int, str] = {}
    for name, dtype in _dtypes(names, settled).items():
        cells = cells_of(parsed.table, name)
        column, wrong = convert_settled(cells, dtype)
        columns.append(column)
        for row in np.flatnonzero(wrong).tolist():
            what = shown(cells[row].as_py())
            why = f"{name}: {what} is not a valid {dtype}, as {name} is in the dataset"
            reasons.setdefault(row, why)
        if cells.null_count and not settled[name].optional:
            missing = cells.is_null().to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(missing).tolist():
                why = f"{name}: missing; no record of the dataset lacks it"
                reasons.setdefault(row, why)
    batch = pa.RecordBatch.from_arrays(columns, names=list(names))
    if not reasons:
        return parsed, batch
    rejects = [
        Reject(input_range.path, position, reason, raw)
        for row, reason in reasons.items()
        for position, raw in [parsed.raw(row)]
    ]
    kept = np.delete(np.arange(batch.num_rows), list(reasons))
    fitting = replace(
        parsed,
        table=parsed.table.take(pa.array(kept)),
        ordinals=parsed.ordinals[kept],
        rejects=sorted([*parsed.rejects, *rejects], key=lambda r: r.position),
    )
    return fitting, batch.take(pa.array(kept))


def _dtypes(names: Sequence[str], settled: Schema) -> dict[str, str]:
    """Returns the dtype that each column's cells are converted to."""
    features = {feature.name: feature for feature in settled.features}
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
                f"{feature.kind}, which no CSV column becomes undeclared"
            )
    return {name: features[name].dtype for name in names}
