"""Finds rows that miss a value which all records of a dataset have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Schema


def missing_required(batch: pa.RecordBatch, schema: Schema | None) -> dict[int, str]:
    """Returns the reason of each row that misses such a value, by row, ascending.

    Args:
      batch: the rows.
      schema: of the dataset that they are appended to, or None.
    """
    reasons: dict[int, str] = {}
    for feature in schema.features if schema else ():
        column = batch.column(feature.column)
        if not feature.optional and column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            reason = f"{feature.name}: missing; every record of the dataset has it"
            for row in np.flatnonzero(missing).tolist():
                reasons.setdefault(row, reason)
    return dict(sorted(reasons.items()))
