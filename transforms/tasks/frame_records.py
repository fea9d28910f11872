"""Casts, encodes and frames the rows of a source, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import RowsError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.job import JobSpec
from recordmill.schemas.options import Payload
from recordmill.transforms.arrow import I64, value_lengths
from recordmill.transforms.cast.cast_batch import CastBatch, cast
from recordmill.transforms.cast.side_files import SidecarFiles
from recordmill.transforms.dataset.files import require_values
from recordmill.transforms.encode.payloads import encode_payload
from recordmill.transforms.encode.row_errors import error_mask
from recordmill.transforms.encode.waiting_rows import (
    RecordWindow,
    defer_rows,
    encode_without_values,
    large_column,
    payload_rows,
)
from recordmill.transforms.native.numpy_loops import U32
from recordmill.transforms.sources.base import FRAMED
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, frame_records


@dataclass(frozen=True, slots=True)
class FramedRows:
    """The encoded and the invalid rows of a part of a batch."""

    rows: pa.RecordBatch  # the encoded rows, as deferred rows
    row_indices: I64  # indices of these rows in the batch, ascending
    # (index, reason) of each row that could not be encoded
    invalid_rows: list[tuple[int, str]]


def frame_rows(
    batch: pa.RecordBatch,
    schema: Schema,
    job: JobSpec,
    *,
    files: SidecarFiles | None = None,
    expected_schema: Schema | None = None,
) -> Iterator[FramedRows]:
    """Yields the rows of a batch that can be encoded, as deferred rows.

    Mostly there is one part. There are several parts of bounded size if the records would
    be large, or if cells name sidecar files. Records of the column FRAMED stay unchanged.
    Values must be within the bounds of `expected_schema`.

    Raises:
      SchemaError: a value is outside the bounds of `expected_schema`.
    """
    if batch.schema.names == [FRAMED]:
        yield FramedRows(
            payload_rows(batch[FRAMED]), np.arange(batch.num_rows, dtype=np.int64), []
        )
        return
    for start, stop in slices_of(batch, schema):
        rows = batch.slice(start, stop - start)
        if job.declared is None:
            parts: Iterable[CastBatch] = [
                CastBatch(rows, np.arange(rows.num_rows, dtype=np.int64), [])
            ]
        else:
            parts = cast(rows, job.declared, files)
        for part in parts:
            if expected_schema is not None:
                require_values(part.batch, schema, expected_schema)
            framed = _frame(part.batch, schema, job.payload)
            row_indices = part.row_indices[framed.row_indices]
            framing_errors = [
                (int(part.row_indices[row]), reason)
                for row, reason in framed.invalid_rows
            ]
            invalid = sorted(part.invalid_rows + framing_errors)
            yield FramedRows(
                framed.rows,
                row_indices + start,
                [(row + start, reason) for row, reason in invalid],
            )


def frame_around(
    batch: pa.RecordBatch,
    schema: Schema,
    job: JobSpec,
    *,
    crcs: U32 | None = None,
    values: Sequence[bytes] | None = None,
    expected_schema: Schema | None = None,
) -> RecordWindow | None:
    """Returns the records of a batch with one large column of views, without copying it.

    `values` and `crcs` (CRC-32C) of the column may be passed separately, which saves 2 us
    per row. Returns None if there are no rows or no such column, if the column is not
    stored unchanged, or if a row cannot be encoded. Then use `frame_rows`. Raises the
    errors of `frame_rows`.
    """
    column = large_column(batch, schema) if batch.num_rows else None
    if column is None or job.declared is not None or job.payload != "example":
        return None
    if expected_schema is not None:
        require_values(batch, schema, expected_schema)
    try:
        return encode_without_values(batch, schema, column, values, crcs)
    except RowsError:
        return None


def _frame(batch: pa.RecordBatch, schema: Schema, payload: Payload) -> FramedRows:
    row_indices = np.arange(batch.num_rows, dtype=np.int64)
    invalid_rows: list[tuple[int, str]] = []
    while True:
        try:
            if payload == "example":
                rows = defer_rows(batch, schema)
            else:
                records = encode_payload(
                    batch, schema, payload, head_room=HEAD_BYTES, tail_room=TAIL_BYTES
                )
                frame_records(records)
                rows = payload_rows(records)
            return FramedRows(rows, row_indices, sorted(invalid_rows))
        except RowsError as error:
            wrong = error_mask(error.errors, len(row_indices))
            reasons = error.errors.values()
            invalid_rows += zip(row_indices[wrong].tolist(), reasons, strict=True)
            mask = ~wrong
            batch, row_indices = batch.filter(pa.array(mask)), row_indices[mask]


# A batch is bounded by the bytes of its cells, but each record repeats the names of all
# features: 50,000 rows of forty one-letter cells under names of 300 bytes are 4 MB as a
# batch and 650 MB as records.

MAX_BYTES = 64 << 20  # size of the records that are encoded at once
# Tags and lengths of a map entry, its Feature and its list, and the list's brackets in
# JSON: they take at most 27 bytes per map entry in protobuf.
_ENTRY_BYTES = 32


def slices_of(
    batch: pa.RecordBatch, schema: Schema, max_bytes: int = MAX_BYTES
) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of slices whose records take about `max_bytes` at most.

    A single row may take more. The batch is not cast yet. An empty batch is one slice.
    """
    names = sum(len(feature.name.encode()) for feature in schema.features)
    every_row = names + _ENTRY_BYTES * len(schema.features)
    # A fast check with the average row, which is enough for almost all batches.
    if batch.num_rows * every_row + batch.nbytes <= max_bytes:
        yield 0, batch.num_rows
        return
    ends = np.cumsum(_cell_bytes(batch) + every_row)
    start = 0
    while start < batch.num_rows:
        end_before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, end_before + max_bytes, side="right"))
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def _cell_bytes(batch: pa.RecordBatch) -> I64:
    """Returns the size of each row's cells in bytes; averages for nested columns."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            total += value_lengths(column)
        else:
            total += -(-column.nbytes // max(1, len(column)))
    return total
