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
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.cast_batch import CastBatch, cast
from recordmill.transforms.cast.side_files import SideFiles
from recordmill.transforms.dataset.files import require_values
from recordmill.transforms.encode.large_values import (
    HollowRecords,
    encode_around,
    large_column,
)
from recordmill.transforms.encode.payloads import encode_payload, slices_of
from recordmill.transforms.encode.waiting_rows import load_rows, payload_rows
from recordmill.transforms.native.numpy_loops import U32
from recordmill.transforms.sources.base import FRAMED
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, seal


@dataclass(frozen=True, slots=True)
class FramedRows:
    """What became of some rows of a batch."""

    rows: pa.RecordBatch  # those that could be encoded, as waiting rows
    kept: I64  # indices of these rows in the batch, ascending
    # (index, reason) of each row that became no record
    invalid_rows: list[tuple[int, str]]


def frame_rows(
    batch: pa.RecordBatch,
    schema: Schema,
    job: JobSpec,
    *,
    files: SideFiles | None = None,
    expected_schema: Schema | None = None,
) -> Iterator[FramedRows]:
    """Yields all rows that can be encoded, as waiting rows.

    Mostly it is one part; several of bounded size where the records would be large, or
    where cells name files to read. Records of the column FRAMED stay as they are.
    Values must keep the bounds of `expected_schema`.

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
            own = part.kept[framed.kept]
            found = [(int(part.kept[row]), why) for row, why in framed.invalid_rows]
            invalid = sorted(part.invalid_rows + found)
            yield FramedRows(
                framed.rows, own + start, [(row + start, why) for row, why in invalid]
            )


def frame_around(
    batch: pa.RecordBatch,
    schema: Schema,
    job: JobSpec,
    *,
    crcs: U32 | None = None,
    values: Sequence[bytes] | None = None,
    expected_schema: Schema | None = None,
) -> HollowRecords | None:
    """Returns the records of a batch with one large column of views, which is not copied.

    `values` and `crcs` (CRC-32C) of the column may be known apart from the batch: 2 us
    less for each. None if there are no rows or no such column, or it is not stored as
    it is, or a row cannot be encoded: use `frame_rows`, whose errors it raises.
    """
    column = large_column(batch, schema) if batch.num_rows else None
    if column is None or job.declared is not None or job.payload != "example":
        return None
    if expected_schema is not None:
        require_values(batch, schema, expected_schema)
    try:
        return encode_around(batch, schema, column, values, crcs)
    except RowsError:
        return None


def _frame(batch: pa.RecordBatch, schema: Schema, payload: Payload) -> FramedRows:
    kept = np.arange(batch.num_rows, dtype=np.int64)
    invalid_rows: list[tuple[int, str]] = []
    while True:
        try:
            if payload == "example":
                rows = load_rows(batch, schema)
            else:
                records = encode_payload(
                    batch, schema, payload, head_room=HEAD_BYTES, tail_room=TAIL_BYTES
                )
                seal(records)
                rows = payload_rows(records)
            return FramedRows(rows, kept, sorted(invalid_rows))
        except RowsError as error:
            invalid_rows += zip(kept[error.rows].tolist(), error.reasons, strict=True)
            mask = np.ones(len(kept), np.bool_)
            mask[error.rows] = False
            batch, kept = batch.filter(pa.array(mask)), kept[mask]
