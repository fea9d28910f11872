"""Leaves out rows of a source: by a share, or behind the first of the whole dataset.

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
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import (
    position_keys,
    sample_draws,
    shuffle_keys,
)
from recordmill.transforms.sources.base import (
    Findings,
    ReferencedRows,
    Rows,
    RowSink,
    RowSource,
    Source,
)


def order_keys(job: JobSpec, input_range: InputRange, rows: Rows) -> U64:
    """Returns the order key of each row, before any shift."""
    if job.shuffle:
        return shuffle_keys(rows.origins, job.seed)
    return position_keys(input_range, rows.positions)


@dataclass(frozen=True)
class SampledRows(RowSource):
    """The rows of a source that sampling keeps."""

    inner: RowSource
    job: JobSpec
    sample_below: int | None = None  # the first draw that is not kept; None keeps all
    # the largest order key that is kept, and how many rows with it; None keeps all
    last_key: tuple[int, int] | None = None
    share: float = 1.0  # of the rows that are kept, about
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def input(self) -> Source:
        return self.inner.input

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        return self.inner.supports_references

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

    def on(self, source: Source) -> Self:
        return replace(self, inner=self.inner.on(source))

    def understood(self, found: Findings | None = None) -> InputSummary:
        return self.inner.understood(found).updated(InputSummary(self.facts))

    def own_splits(self) -> tuple[str, ...]:
        return self.inner.own_splits()

    def own_split_rows(self) -> tuple[int, ...]:
        return self.inner.own_split_rows()

    def columns(self) -> pa.Schema:
        return self.inner.columns()

    def sample(self, input_range: InputRange) -> TypeFlags:
        return self.inner.sample(input_range)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return self.inner.estimated_bytes(files)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        return self.inner.schema(observed, nulls)

    def input_schema(self, observed: TypeFlags) -> Schema | None:
        return self.inner.input_schema(observed)

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        return self.inner.needs_reencode(observed, used, final)

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        return self.inner.prefers_reference(files)

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        if self.inner.lists_rows:  # by every exchange the same files stay unread
            for rows in self.list_references(input_range, sink):
                yield from self.inner.read_listed(rows, sink)
            return
        for rows in self.inner.read(input_range, expected, sink):
            yield self._kept(input_range, rows, sink)

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        sink = RowSink()
        for rows in self.inner.read_as_text(input_range):
            yield self._kept(input_range, rows, sink)

    def list_references(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        for rows in self.inner.list_references(input_range, sink):
            yield self._kept(input_range, rows, sink)

    def read_references(
        self, references: pa.BinaryArray, sink: RowSink
    ) -> ReferencedRows:
        return self.inner.read_references(references, sink)

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], sink: RowSink
    ) -> Iterator[ReferencedRows]:
        return self.inner.read_windows(windows, sink)

    def _kept(self, input_range: InputRange, rows: Rows, sink: RowSink) -> Rows:
        """Returns the rows that are kept; counts the others."""
        keep = np.ones(len(rows.origins), np.bool_)
        if self.sample_below is not None:
            draws = sample_draws(rows.origins, self.job.seed)
            keep &= draws < np.uint64(self.sample_below)
        if self.last_key is not None:
            keys, (last, ties) = order_keys(self.job, input_range, rows), self.last_key
            # Rows that a function makes of one have its position, and come in one batch.
            tied = np.flatnonzero(keep & (keys == np.uint64(last)))
            keep &= keys <= np.uint64(last)
            keep[tied[ties:]] = False
        if keep.all():
            return rows
        kept = np.flatnonzero(keep)
        sink.left_out += len(keep) - len(kept)
        return rows.taken(kept)
