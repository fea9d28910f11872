"""Cuts batches whose records would take too much memory at once.

A batch is bounded by the bytes of its cells, but each record repeats the names of all
features: 50,000 rows of forty one-letter cells under names of 300 bytes are 4 MB as a
batch and 650 MB as records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.transforms.arrow import I64, value_lengths

MAX_BYTES = 64 << 20  # of the records that are made at once
# Tags and lengths of a map entry, its Feature and its list, and the list's brackets in
# JSON: an entry of protobuf takes at most 27 bytes of them.
_ENTRY_BYTES = 32


def slices_of(
    batch: pa.RecordBatch, schema: Schema, max_bytes: int = MAX_BYTES
) -> Iterator[tuple[int, int]]:
    """Cuts a batch so that the records of each slice take about `max_bytes` at most.

    Args:
      batch: columns of a source, not yet cast.
      schema: features of the records.
      max_bytes: of records; a single row may take more.

    Yields:
      (start, stop) of each slice; one for an empty batch.
    """
    names = sum(len(feature.name.encode()) for feature in schema.features)
    every_row = names + _ENTRY_BYTES * len(schema.features)
    # Cheap, and enough for almost all batches: their average row, with room to spare.
    if batch.num_rows * every_row + batch.nbytes <= max_bytes:
        yield 0, batch.num_rows
        return
    ends = np.cumsum(_cell_bytes(batch) + every_row)
    start = 0
    while start < batch.num_rows:
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + max_bytes, side="right"))
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def _cell_bytes(batch: pa.RecordBatch) -> I64:
    """Returns the bytes of each row's cells, those of nested columns on the average."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            total += value_lengths(column)
        else:
            total += -(-column.nbytes // max(1, len(column)))
    return total
