"""One input range: read, encode, frame, key, sort; out come runs, rejects and facts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from schemas.errors import RowsError, UsageError
from schemas.features import Schema
from schemas.ranges import InputRange, RangeResult, Reject, RunRef
from transforms.encode import encode
from transforms.keys import position_keys, shuffle_keys, value_hashes
from transforms.plan import Histogram
from transforms.run_context import RunContext
from transforms.runs import read_index, run_is_whole, write_run
from transforms.scratch import load_fact, save_fact, save_rejects
from transforms.sources.base import Rows
from transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, seal
from transforms.wire import I64, U64


@dataclass(slots=True)
class _Tally:
    """What adds up over the batches of a range."""

    num_rows: int = 0
    runs: list[RunRef] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    observed: list[int] = field(default_factory=list)
    nulls: list[int] = field(default_factory=list)

    def add(self, rows: Rows) -> None:
        self.num_rows += rows.batch.num_rows + len(rows.rejects)
        self.rejects += rows.rejects
        self.observed = self.observed or [0] * len(rows.observed)
        self.nulls = self.nulls or [0] * len(rows.nulls)
        for place, holds in enumerate(rows.observed):
            self.observed[place] |= holds
        for place, missing in enumerate(rows.nulls):
            self.nulls[place] += missing


def convert_range(
    context: RunContext, spot: InputRange, expected: tuple[int, ...], redo: bool = False
) -> RangeResult:
    """Converts a range, or takes up what an earlier try finished.

    Args:
      context: the run.
      spot: the range.
      expected: what each column is taken for (see Source.read).
      redo: whether an earlier result is known to be of the wrong types.
    """
    name = f"range-{spot.index:06d}"
    if not redo:
        earlier = load_fact(context.scratch, name, RangeResult)
        if earlier is not None and earlier.range == spot:
            if all(run_is_whole(context.scratch.runs, run) for run in earlier.runs):
                return earlier
    tally = _Tally()
    used: tuple[int, ...] = ()
    for number, rows in enumerate(context.source.read(spot, expected)):
        tally.add(rows)
        used = rows.observed
        if rows.batch.num_rows:
            stem = context.scratch.runs / f"{name}-{number:03d}"
            tally.runs.append(_write_batch(context, spot, rows, stem.name, tally))
    save_rejects(context.scratch, name, tally.rejects)
    result = RangeResult(
        range=spot,
        rows_read=tally.num_rows,
        rows_rejected=len(tally.rejects),
        runs=tuple(tally.runs),
        observed=tuple(tally.observed),
        used=used,
        nulls=tuple(tally.nulls),
    )
    save_fact(context.scratch, name, result)
    return result


def histogram_of(context: RunContext, result: RangeResult) -> Histogram:
    """Planned bytes and records per order key bucket of one range."""
    histogram = Histogram.empty(context.num_splits, context.bits)
    for run in result.runs:
        index = read_index(context.scratch.runs, run)
        weights = index.weights.astype(np.int64)
        histogram += Histogram.of(index.keys, weights, run.counts, context.bits)
    return histogram


def encode_and_frame(
    batch: pa.RecordBatch, schema: Schema
) -> tuple[pa.BinaryArray, I64, list[tuple[int, str]]]:
    """Framed records of all rows that can be encoded.

    Returns:
      The records, the row indices they come from, and (row index, reason) of the
      rows left out.
    """
    kept = np.arange(batch.num_rows, dtype=np.int64)
    refused: list[tuple[int, str]] = []
    while True:
        try:
            framed = encode(
                batch, schema, head_room=HEAD_BYTES, tail_room=TAIL_BYTES
            )
            break
        except RowsError as error:
            refused += zip(kept[error.rows].tolist(), error.reasons, strict=True)
            mask = np.ones(len(kept), np.bool_)
            mask[error.rows] = False
            batch, kept = batch.filter(pa.array(mask)), kept[mask]
    seal(framed)
    return framed, kept, sorted(refused)


def _write_batch(
    context: RunContext, spot: InputRange, rows: Rows, stem: str, tally: _Tally
) -> RunRef:
    if context.source.by_reference:
        payloads = rows.batch["path"]
        kept = np.arange(rows.batch.num_rows, dtype=np.int64)
    else:
        schema = context.source.schema(rows.observed)
        payloads, kept, refused = encode_and_frame(rows.batch, schema)
        for row, reason in refused:
            position, raw = rows.raw(row)
            tally.rejects.append(Reject(spot.path, position, reason, raw))
    if rows.weights is not None:
        weights = rows.weights[kept]
    else:
        weights = np.diff(_offsets(payloads))
    splits = context.splits_of(_groups(context, rows)[kept], spot)
    if context.job.shuffle:
        keys = shuffle_keys(rows.origins, context.job.seed)[kept]
    else:
        keys = position_keys(spot, rows.places)[kept]
    return write_run(
        context.scratch.runs / stem,
        payloads,
        keys,
        splits,
        weights,
        context.num_splits,
    )


def _groups(context: RunContext, rows: Rows) -> U64:
    column = context.job.split_by
    if column is None:
        return rows.origins
    if column not in rows.batch.schema.names:
        raise UsageError(
            f"--split-by {column}: no such column; there are "
            f"{', '.join(rows.batch.schema.names)}"
        )
    return value_hashes(rows.batch[column])


def _offsets(array: pa.BinaryArray) -> I64:
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
