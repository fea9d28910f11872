"""Drops rows of a source: all but a share, all after a limit, or rows of large classes.

This transform wraps a source, so every format behaves the same. The hash or the order key
of a row alone decides whether the row is kept, not the rows that are read with it. All
retries and further passes over a range therefore keep the same rows.

An example with four rows, `sample=50%` and `limit=1`. Rows with a hash below half of
2**64 are kept, and among these the row with the smallest order key:

    hash    0.31  0.74  0.02  0.48    times 2**64
    key     12    3     9     40
    kept                *             sample_hash_below 2**63, last_key 9
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
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.job import JobSpec
from recordmill.schemas.options import WEIGHT
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.keys import sample_hashes
from recordmill.transforms.sources.base import (
    InputFindings,
    RangeFindings,
    ReferencedRows,
    Rows,
    RowSource,
    RowTransform,
)
from recordmill.transforms.sources.label_split import class_hashes


@dataclass(frozen=True)
class BalancedClasses:
    """The number of copies and the weight of each row of a class."""

    column: str  # the column of the classes
    decimal_comma: bool  # True if numbers in its text have a decimal comma
    seed: int
    # the hashes of the class keys, ascending; `times`, `below` and `weights` have one
    # element for each of them
    class_hashes: U64
    num_copies: I64  # number of output rows for each input row
    extra_copy_below: U64  # a row with a smaller hash gets one more output row
    weights: npt.NDArray[np.float32] | None = None
    split: int = 0  # the index of the split with copies

    def _class_indices(self, batch: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """Returns the index of each row's class."""
        class_column = batch.column(self.column)
        row_hashes = class_hashes(class_column, decimal_comma=self.decimal_comma)
        index = np.searchsorted(self.class_hashes, row_hashes)
        index = np.minimum(index, len(self.class_hashes) - 1)
        if bool((self.class_hashes[index] != row_hashes).any()):
            raise ChangedInputError(
                f"`balance` {self.column}: has a value that did not exist when the "
                "rows were counted. Run the job again when nothing writes to its inputs"
            )
        return index

    def copies_of_rows(self, rows: Rows) -> I64:
        """Returns the number of output rows for each row."""
        index = self._class_indices(rows.batch)
        has_extra_copy = (
            sample_hashes(rows.origins, self.seed) < self.extra_copy_below[index]
        )
        times: I64 = self.num_copies[index] + has_extra_copy
        return times

    def add_weights(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch with the weight of each row, if there are weights."""
        if self.weights is None:
            return batch
        weights = pa.array(self.weights[self._class_indices(batch)], pa.float32())
        return batch.append_column(WEIGHT, weights)


@dataclass(frozen=True)
class SampledRows(RowTransform):
    """The rows of a source that sampling keeps."""

    job: JobSpec
    # rows with a hash below this are kept; None keeps all rows
    sample_hash_below: int | None = None
    # the largest order key that is kept, and the number of kept rows with this key; None
    # keeps all rows
    last_key: tuple[int, int] | None = None
    balance: BalancedClasses | None = None
    share: float = 1.0  # the approximate share of rows that are kept
    report_lines: tuple[tuple[str, str], ...] = ()

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        # With weights, every exchange has the same plan only if it counts file sizes.
        inner = self.inner_source
        has_stable_plan = inner.sizes_known_upfront or not self._has_weights
        return inner.supports_references and has_stable_plan

    @property
    def _has_weights(self) -> bool:
        return self.balance is not None and self.balance.weights is not None

    @property
    def lists_rows(self) -> bool:  # type: ignore[override]
        return self.inner_source.lists_rows

    @property
    def sizes_known_upfront(self) -> bool:  # type: ignore[override]
        return self.inner_source.sizes_known_upfront

    @property
    def key_shift(self) -> int:  # type: ignore[override]
        # Without the shift, the small keys that remain would all be in a few buckets of
        # the histogram, and shards could not be balanced.
        return 64 - max(1, self.last_key[0].bit_length()) if self.last_key else 0

    def source_before_sampling(self) -> tuple[RowSource, float]:
        return self.inner_source, self.share

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        if input_findings is not None:
            input_findings = input_findings._replace(
                schema=self.inner_source.schema(input_findings.type_flags)
            )
        return self.inner_source.input_report(input_findings).merged_with(
            InputReport(self.report_lines)
        )

    def columns(self) -> pa.Schema:
        inner_columns = self.inner_source.columns()
        return (
            inner_columns.append(pa.field(WEIGHT, pa.float32()))
            if self._has_weights
            else inner_columns
        )

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return self.inner_source.estimated_bytes(files)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        inner_schema = self.inner_source.schema(observed, nulls)
        if not self._has_weights:
            return inner_schema
        weight = FeatureSpec(WEIGHT, Kind.FLOAT, dtype="float32")
        return Schema((*inner_schema.features, weight))

    def input_schema(self, observed: TypeFlags) -> Schema | None:
        return self.inner_source.input_schema(observed)

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        return self.inner_source.prefers_reference(files)

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        if (
            self.inner_source.lists_rows
        ):  # so that every exchange leaves the same files unread
            for rows in self.list_references(input_range, range_findings):
                yield from self.read_listed_rows(rows, range_findings)
            return
        for rows in self.inner_source.read(input_range, expected, range_findings):
            yield self._add_weights(
                self._sample_rows(input_range, rows, range_findings)
            )

    def read_listed_rows(
        self, rows: Rows, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        return map(
            self._add_weights, self.inner_source.read_listed_rows(rows, range_findings)
        )

    def _add_weights(self, rows: Rows) -> Rows:
        """Returns the rows with the weight of each, if there are weights."""
        if not self._has_weights or self.balance is None:
            return rows
        return replace(rows, batch=self.balance.add_weights(rows.batch))

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        range_findings = RangeFindings()
        for rows in self.inner_source.read_as_text(input_range):
            yield self._sample_rows(input_range, rows, range_findings)

    def list_references(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        for rows in self.inner_source.list_references(input_range, range_findings):
            yield self._sample_rows(input_range, rows, range_findings)

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], range_findings: RangeFindings
    ) -> Iterator[ReferencedRows]:
        for referenced_rows in self.inner_source.read_windows(windows, range_findings):
            if self.balance is not None:
                referenced_rows.batch = self.balance.add_weights(referenced_rows.batch)
            yield referenced_rows

    def _sample_rows(
        self, input_range: InputRange, rows: Rows, range_findings: RangeFindings
    ) -> Rows:
        """Returns the rows that are kept; counts the dropped rows."""
        keep = np.ones(len(rows.origins), np.bool_)
        if self.sample_hash_below is not None:
            draws = sample_hashes(rows.origins, self.job.seed)
            keep &= draws < np.uint64(self.sample_hash_below)
        if self.last_key is not None:
            keys, (last, ties) = rows.order_keys(input_range, self.job), self.last_key
            # Rows that a function created from one row share its position and its batch.
            tied = np.flatnonzero(keep & (keys == np.uint64(last)))
            keep &= keys <= np.uint64(last)
            keep[tied[ties:]] = False
        kept_indices = np.flatnonzero(keep)
        if self.balance is not None and not self._has_weights:
            # Classes without a row in the sample were not counted.
            kept_indices = kept_indices[
                self.balance.copies_of_rows(rows.take_rows(kept_indices)) > 0
            ]
        if len(kept_indices) == len(keep):
            return rows
        range_findings.num_sampled_out_rows += len(keep) - len(kept_indices)
        return rows.take_rows(kept_indices)
