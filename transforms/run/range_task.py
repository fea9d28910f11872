"""One input range: read, encode, frame, key, sort; out come runs, rejects and facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import UsageError
from schemas.features import Schema
from schemas.ranges import Bits, InputRange, RangeResult, Reject, RunRef, or_bits
from transforms.conform.side_files import SideFiles
from transforms.encode.wire import I64, U64
from transforms.exchange.runs import read_index, run_is_there, run_is_whole, write_run
from transforms.keys import position_keys, shuffle_keys, value_hashes
from transforms.plan import Histogram
from transforms.run.context import RunContext
from transforms.run.records import frame_rows
from transforms.run.scratch import load_fact, save_fact, save_rejects
from transforms.sources.base import REFERENCE, Rows
from transforms.tfrecord import array_parts

RUN_BYTES = 256 << 20  # records of a range beyond this go into a further run


def convert_range(
    context: RunContext, spot: InputRange, expected: Bits, redo: bool = False
) -> RangeResult:
    """Converts a range, or takes up what an earlier try finished.

    Args:
      context: the run.
      spot: the range.
      expected: what each column is taken for (see Source.read); () guesses.
      redo: whether an earlier result is known to be of the wrong types.
    """
    name = f"range-{context.exchange}-{spot.index:06d}"
    earlier = None if redo else load_fact(context.scratch, name, RangeResult)
    if earlier is not None and earlier.range == spot:
        # References carry no checksums of their own; they are few bytes.
        check = run_is_whole if context.exchange == "reference" else run_is_there
        if all(check(context.scratch.runs, run) for run in earlier.runs):
            return earlier
    if context.source.infers_types and not expected:
        expected = context.source.sample(spot)
    while True:
        builder = _RangeBuilder(context, spot, name)
        used, whole = _read_all(builder, expected)
        if whole:
            break
        expected = used  # the guess was too narrow for some batch: once more
    builder.flush()
    save_rejects(context.scratch, name, builder.rejects)
    result = RangeResult(
        range=spot,
        rows_read=builder.rows_read,
        rows_rejected=len(builder.rejects),
        runs=tuple(builder.runs),
        observed=builder.observed,
        used=used,
        nulls=builder.nulls,
    )
    save_fact(context.scratch, name, result)
    return result


def _read_all(builder: _RangeBuilder, expected: Bits) -> tuple[Bits, bool]:
    """Adds the batches of the range, as long as all are encoded for the same types.

    Returns:
      What the columns were taken for, `expected` or wider; and whether all batches
      were added. If not, begin again with the wider types.
    """
    source = builder.context.source
    used = expected
    if builder.context.exchange == "reference":
        batches = source.refer(builder.spot)
    else:
        batches = source.read(builder.spot, expected)
    for rows in batches:
        used = or_bits(used, rows.observed)
        # A first batch may widen the types alone: if no other follows, all is well.
        if builder.num_batches and source.touched(used, expected, used):
            return used, False
        builder.add(rows, builder.context.schema(used))
    return used, True


@dataclass(slots=True)
class _RangeBuilder:
    """What adds up over the batches of one range, and the run in the making."""

    context: RunContext
    spot: InputRange
    name: str
    num_batches: int = 0
    rows_read: int = 0
    rejects: list[Reject] = field(default_factory=list)
    observed: Bits = ()
    nulls: tuple[int, ...] = ()
    runs: list[RunRef] = field(default_factory=list)
    num_bytes: int = 0
    payloads: list[pa.BinaryArray] = field(default_factory=list)
    keys: list[U64] = field(default_factory=list)
    splits: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    weights: list[I64] = field(default_factory=list)

    def add(self, rows: Rows, schema: Schema) -> None:
        """Encodes a batch (by reference: keeps its paths) and gives each row its key."""
        self.num_batches += 1
        self.rows_read += rows.batch.num_rows + len(rows.rejects)
        self.rejects += rows.rejects
        self.observed = or_bits(self.observed, rows.observed)
        earlier = self.nulls or (0,) * len(rows.nulls)
        self.nulls = tuple(map(sum, zip(earlier, rows.nulls, strict=True)))
        if rows.batch.num_rows == 0:
            return
        context = self.context
        keys, splits = place_rows(context, self.spot, rows)
        for payloads, kept in self._payloads(rows, schema):
            if rows.weights is not None:
                weights = rows.weights[kept]
            else:
                weights = np.diff(array_parts(payloads)[0])
            self.payloads.append(payloads)
            self.keys.append(keys[kept])
            self.splits.append(splits[kept])
            self.weights.append(weights)
            self.num_bytes += payloads.nbytes
            if self.num_bytes >= RUN_BYTES:
                self.flush()

    def _payloads(
        self, rows: Rows, schema: Schema
    ) -> Iterator[tuple[pa.BinaryArray, I64]]:
        """What goes into the run for which rows: references or framed records."""
        context = self.context
        if context.exchange == "reference":
            yield rows.batch[REFERENCE], np.arange(rows.batch.num_rows, dtype=np.int64)
            return
        for framed in frame_rows(
            rows.batch,
            schema,
            context.job,
            files=side_files_of(self.spot),
            expected=context.expected,
        ):
            for row, reason in framed.refused:
                position, raw = rows.raw(row)
                self.rejects.append(Reject(self.spot.path, position, reason, raw))
            yield framed.records, framed.kept

    def flush(self) -> None:
        """Sorts what was collected and writes it as a run."""
        if not self.payloads:
            return
        payloads = pa.concat_arrays(self.payloads)
        self.payloads.clear()  # not held twice while the run is written
        stem = self.context.scratch.runs / f"{self.name}-{len(self.runs):03d}"
        self.runs.append(
            write_run(
                stem,
                payloads,
                np.concatenate(self.keys),
                np.concatenate(self.splits),
                np.concatenate(self.weights),
                self.context.num_splits,
            )
        )
        for column in (self.keys, self.splits, self.weights):
            column.clear()
        self.num_bytes = 0


def side_files_of(spot: InputRange) -> SideFiles:
    """The files that a table's cells may name: beside it, below the input root."""
    return SideFiles.beside(spot.uri, spot.uri.removesuffix(spot.path))


def place_rows(
    context: RunContext, spot: InputRange, rows: Rows
) -> tuple[U64, npt.NDArray[np.uint8]]:
    """The order key and the split index of each row."""
    if context.job.shuffle:
        keys = shuffle_keys(rows.origins, context.job.seed)
    else:
        keys = position_keys(spot, rows.places)
    return keys, context.splits_of(_groups(context, rows), spot)


def _groups(context: RunContext, rows: Rows) -> U64:
    """What decides the split: rows with equal values share one."""
    column = context.job.split_by
    if column is None:
        return rows.origins
    if column not in rows.batch.schema.names:
        raise UsageError(
            f"--split-by {column}: no such column; there are "
            f"{', '.join(rows.batch.schema.names)}"
        )
    return value_hashes(rows.batch[column])


def histogram_of(context: RunContext, result: RangeResult) -> Histogram:
    """Planned bytes and records per order key bucket of one range."""
    histogram = Histogram.empty(context.num_splits, context.bits)
    if context.source.plans_unread:
        # Every exchange plans with the same sizes, rows that are rejected included.
        for rows in context.source.refer(result.range):
            assert rows.weights is not None  # known unread
            keys, splits = place_rows(context, result.range, rows)
            order = np.argsort(splits, kind="stable")
            counts = np.bincount(splits, minlength=context.num_splits)
            histogram += Histogram.of(
                keys[order], rows.weights[order], counts.tolist(), context.bits
            )
        return histogram
    for run in result.runs:
        index = read_index(context.scratch.runs, run)
        weights = index.weights.astype(np.int64)
        histogram += Histogram.of(index.keys, weights, run.counts, context.bits)
    return histogram
