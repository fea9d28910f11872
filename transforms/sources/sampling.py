"""Leaves out rows of a source: by a share, behind the first, or of large classes.

This stands between a source and all that uses it, so every format is treated alike. Which
rows are kept follows from the hash of each, or from its order key, never from others that
are read with it: all ranges, retries and second readings keep the same.

Four rows, `sample=50%` and then `limit=1`; a draw below half of u64 is kept, and of these
the row with the smallest order key:

    draw    0.31  0.74  0.02  0.48    of 2**64
    key     12    3     9     40
    kept                *             sample_below 2**63, last_key 9
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.job import JobSpec
from recordmill.schemas.options import WEIGHT
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.keys import sample_draws
from recordmill.transforms.sources.base import (
    Findings,
    ReferencedRows,
    Rows,
    RowSink,
    RowSource,
    RowTransform,
)
from recordmill.transforms.sources.label_split import class_hashes


@dataclass(frozen=True)
class BalancedClasses:
    """How many rows become of each row of a class, and their weight."""

    column: str  # of the classes
    decimal_comma: bool  # whether numbers in its text have a comma before their places
    seed: int
    hashes: U64  # of the classes' keys, ascending; all others are of the same length
    times: I64  # rows of each row
    below: U64  # a row with a smaller draw has one more
    weights: npt.NDArray[np.float32] | None = None
    split: int = 0  # the index of the split with copies

    def _classes(self, batch: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """Returns the index of each row's class."""
        values = batch.column(self.column)
        found = class_hashes(values, decimal_comma=self.decimal_comma)
        index = np.searchsorted(self.hashes, found)
        index = np.minimum(index, len(self.hashes) - 1)
        if bool((self.hashes[index] != found).any()):
            raise ChangedInputError(
                f"`balance` {self.column}: has a value that was not there when the rows "
                "were counted. Run the job again, and do not write to its inputs meanwhile"
            )
        return index

    def times_of(self, rows: Rows) -> I64:
        """Returns how many rows become of each."""
        index = self._classes(rows.batch)
        more = sample_draws(rows.origins, self.seed) < self.below[index]
        times: I64 = self.times[index] + more
        return times

    def weighed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns a batch with the weight of each row, if there are weights."""
        if self.weights is None:
            return batch
        weights = pa.array(self.weights[self._classes(batch)], pa.float32())
        return batch.append_column(WEIGHT, weights)


@dataclass(frozen=True)
class SampledRows(RowTransform):
    """The rows of a source that sampling keeps."""

    job: JobSpec
    sample_below: int | None = None  # the first draw that is not kept; None keeps all
    # the largest order key that is kept, and how many rows with it; None keeps all
    last_key: tuple[int, int] | None = None
    balance: BalancedClasses | None = None
    share: float = 1.0  # of the rows that are kept, about
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        # Only a plan that counts file sizes is the same with weights, by each exchange.
        inner = self.inner
        known = inner.sizes_known_upfront or not self._has_weights
        return inner.supports_references and known

    @property
    def _has_weights(self) -> bool:
        return self.balance is not None and self.balance.weights is not None

    @property
    def lists_rows(self) -> bool:  # type: ignore[override]
        return self.inner.lists_rows

    @property
    def sizes_known_upfront(self) -> bool:  # type: ignore[override]
        return self.inner.sizes_known_upfront

    @property
    def key_shift(self) -> int:  # type: ignore[override]
        # Small keys alone would fill few buckets, and shards could not be balanced.
        return 64 - max(1, self.last_key[0].bit_length()) if self.last_key else 0

    def unsampled(self) -> tuple[RowSource, float]:
        return self.inner, self.share

    def understood(self, found: Findings | None = None) -> InputSummary:
        if found is not None:
            found = found._replace(schema=self.inner.schema(found.observed))
        return self.inner.understood(found).updated(InputSummary(self.facts))

    def columns(self) -> pa.Schema:
        found = self.inner.columns()
        return (
            found.append(pa.field(WEIGHT, pa.float32())) if self._has_weights else found
        )

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return self.inner.estimated_bytes(files)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        found = self.inner.schema(observed, nulls)
        if not self._has_weights:
            return found
        weight = FeatureSpec(WEIGHT, Kind.FLOAT, dtype="float32")
        return Schema((*found.features, weight))

    def input_schema(self, observed: TypeFlags) -> Schema | None:
        return self.inner.input_schema(observed)

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        return self.inner.prefers_reference(files)

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        if self.inner.lists_rows:  # by every exchange the same files stay unread
            for rows in self.list_references(input_range, sink):
                yield from self.read_listed(rows, sink)
            return
        for rows in self.inner.read(input_range, expected, sink):
            yield self._weighed(self._kept(input_range, rows, sink))

    def read_listed(self, rows: Rows, sink: RowSink) -> Iterator[Rows]:
        return map(self._weighed, self.inner.read_listed(rows, sink))

    def _weighed(self, rows: Rows) -> Rows:
        if not self._has_weights or self.balance is None:
            return rows
        return replace(rows, batch=self.balance.weighed(rows.batch))

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        sink = RowSink()
        for rows in self.inner.read_as_text(input_range):
            yield self._kept(input_range, rows, sink)

    def list_references(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        for rows in self.inner.list_references(input_range, sink):
            yield self._kept(input_range, rows, sink)

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], sink: RowSink
    ) -> Iterator[ReferencedRows]:
        for found in self.inner.read_windows(windows, sink):
            if self.balance is not None:
                found.batch = self.balance.weighed(found.batch)
            yield found

    def _kept(self, input_range: InputRange, rows: Rows, sink: RowSink) -> Rows:
        """Returns the rows that are kept; counts the others."""
        keep = np.ones(len(rows.origins), np.bool_)
        if self.sample_below is not None:
            draws = sample_draws(rows.origins, self.job.seed)
            keep &= draws < np.uint64(self.sample_below)
        if self.last_key is not None:
            keys, (last, ties) = rows.order_keys(input_range, self.job), self.last_key
            # Rows that a function makes of one have its position, and come in one batch.
            tied = np.flatnonzero(keep & (keys == np.uint64(last)))
            keep &= keys <= np.uint64(last)
            keep[tied[ties:]] = False
        kept = np.flatnonzero(keep)
        if self.balance is not None and not self._has_weights:
            # Classes of which no row is in the sample were not counted.
            kept = kept[self.balance.times_of(rows.taken(kept)) > 0]
        if len(kept) == len(keep):
            return rows
        sink.left_out += len(keep) - len(kept)
        return rows.taken(kept)
