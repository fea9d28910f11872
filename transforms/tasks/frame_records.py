"""Rows of a source -> framed records: conform, encode, frame, on whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import RowsError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec, Payload
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.cast_batch import cast
from recordmill.transforms.cast.side_files import FileReader
from recordmill.transforms.dataset.expected import require_values
from recordmill.transforms.encode.payloads import encode_payload
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, seal


@dataclass(frozen=True, slots=True)
class FramedRows:
    """Records of some rows of a batch.

    Attributes:
      records: one framed record per row that could be encoded.
      kept: the rows' indices in the batch, ascending.
      refused: (row index, reason) of the rows left out.
    """

    records: pa.BinaryArray
    kept: I64
    refused: list[tuple[int, str]]


def frame_rows(
    batch: pa.RecordBatch,
    schema: Schema,
    job: JobSpec,
    *,
    files: FileReader | None = None,
    expected: Schema | None = None,
) -> Iterator[FramedRows]:
    """Framed records of all rows that can be encoded, in one part or, where the rows
    pull in files, in several of bounded size.

    Args:
      batch: columns of the source.
      schema: features of the records.
      job: says what is declared and what a record holds.
      files: what a feature with `bytes_from` reads.
      expected: a schema whose bounds the values must keep.

    Raises:
      SchemaError: values are outside the bounds expected.
    """
    if job.declared is None:
        _check(batch, schema, expected)
        yield _frame(batch, schema, job.payload)
        return
    for part in cast(batch, job.declared, files):
        _check(part.batch, schema, expected)
        framed = _frame(part.batch, schema, job.payload)
        own = part.kept.tolist()
        refused = [(own[row], reason) for row, reason in framed.refused]
        yield FramedRows(
            framed.records, part.kept[framed.kept], sorted(part.refused + refused)
        )


def _check(batch: pa.RecordBatch, schema: Schema, expected: Schema | None) -> None:
    if expected is not None:
        require_values(batch, schema, expected)


def _frame(batch: pa.RecordBatch, schema: Schema, payload: Payload) -> FramedRows:
    kept = np.arange(batch.num_rows, dtype=np.int64)
    refused: list[tuple[int, str]] = []
    while True:
        try:
            records = encode_payload(
                batch, schema, payload, head_room=HEAD_BYTES, tail_room=TAIL_BYTES
            )
            break
        except RowsError as error:
            refused += zip(kept[error.rows].tolist(), error.reasons, strict=True)
            mask = np.ones(len(kept), np.bool_)
            mask[error.rows] = False
            batch, kept = batch.filter(pa.array(mask)), kept[mask]
    seal(records)
    return FramedRows(records, kept, sorted(refused))
