"""Encodes rows of a pipeline as blocks of framed records, with keys from their content.

Such a row has no origin in an input. Its order key and its split are seeded hashes of
its record, so they do not depend on order, bundles or runner. Equal records have equal
keys; their order makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import (
    RecordmillError,
    SchemaError,
    UsageError,
)
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import Reject
from recordmill.transforms.arrow import MAX_CELL_BYTES, U64, array_parts
from recordmill.transforms.dataset.deep_check import invalid_rows
from recordmill.transforms.decode.examples import ObservedFeatures
from recordmill.transforms.encode.waiting_rows import binary_payloads, payload_rows
from recordmill.transforms.exchange.keys import shuffle_keys
from recordmill.transforms.exchange.merge import Block
from recordmill.transforms.exchange.plan import packed_histogram
from recordmill.transforms.rows.elements import (
    Row,
    SplitRule,
    Table,
    TableBuilder,
    element_kind,
    parse_example,
    row_as_json,
    size_of,
)
from recordmill.transforms.rows.row_summary import (
    RejectLine,
    RowsSummary,
    content_hashes,
    reject_limit_error,
    sum_hashes,
    text_digest,
)
from recordmill.transforms.tasks.frame_records import FramedRows, frame_rows
from recordmill.transforms.tasks.rejects import reject_line

RECORD = "record"  # the feature of records whose content is unknown
RECORD_SCHEMA = Schema((FeatureSpec(RECORD, Kind.BYTES),))

_BATCH_ROWS = 1 << 12  # dicts and records are buffered up to this number ...
_BATCH_BYTES = 8 << 20  # ... or size


@dataclass(slots=True)
class RowsEncoder:
    """An encoder of the rows of one bundle, which buffers them into batches.

    Attributes:
      job: what the rows become.
      bucket_bits: leading bits of the order key that number a histogram bucket.
      rows_rejected: rows that became no record so far.
      rejects: those that `take_rejects` has not returned yet.
    """

    job: JobSpec
    bucket_bits: int
    rows_rejected: int = 0
    rejects: list[RejectLine] = field(default_factory=list)
    _dicts: list[Row] = field(default_factory=list)
    _records: list[bytes] = field(default_factory=list)
    _groups: list[int] = field(default_factory=list)  # what decides records' splits
    _bytes: int = 0  # of the buffered dicts and records, approximately
    _observed: ObservedFeatures = field(default_factory=ObservedFeatures)
    _tables: TableBuilder | None = None
    _rule: SplitRule = field(init=False)

    def __post_init__(self) -> None:
        self._rule = SplitRule.of(self.job)

    def add(self, element: object) -> Iterator[tuple[Block, RowsSummary]]:
        """Adds an element; yields blocks with their summaries when the buffer is full.

        Raises:
          UsageError: no record can be made of the element.
          SchemaError: the columns of a batch cannot become the features.
          RejectLimitError: too many rows were rejected.
        """
        kind = element_kind(element, self.job)
        if kind == "batch":
            yield from self._add_batch(element)
            return
        if kind == "dict":
            assert isinstance(element, Mapping)
            self._dicts.append(element)
            self._bytes += sum(map(size_of, element.values()))
        else:
            self._add_record(element)
        if (
            len(self._dicts) + len(self._records) >= _BATCH_ROWS
            or self._bytes >= _BATCH_BYTES
        ):
            yield from self.flush()

    def flush(self) -> Iterator[tuple[Block, RowsSummary]]:
        """Yields blocks of all rows that are still buffered."""
        dicts, self._dicts = self._dicts, []
        records, self._records = self._records, []
        groups, self._groups = self._groups, []
        self._bytes = 0
        if dicts:
            yield from self._encode_dicts(dicts)
        if records:
            yield from self._frame_records(records, groups)

    def take_rejects(self) -> list[RejectLine]:
        """Returns the rejects since the last call."""
        taken, self.rejects = self.rejects, []
        return taken

    def _add_record(self, element: Any) -> None:
        job = self.job
        if isinstance(element, bytes | bytearray | memoryview):
            data = bytes(element)
        else:
            data = element.SerializeToString(deterministic=True)
        if len(data) > MAX_CELL_BYTES:
            raise RecordmillError(
                f"a record of {len(data):,} bytes; expected at most "
                f"{MAX_CELL_BYTES:,} bytes; it starts with {data[:24]!r}"
            )
        infers_schema = job.declared is None and job.payload == "example"
        group = None
        if infers_schema or self._rule.column is not None:
            example = parse_example(element, data)
            if example is None:
                self._reject(
                    f"{len(data)} bytes that start with {data[:24]!r} are not a valid "
                    "tf.train.Example; for other records use payload='raw'",
                    data,
                )
                return
            if self._rule.column is not None:
                group, value = self._rule.find_in_example(example)
                if group is None:
                    self._reject(self._rule.reason(value), data)
                    return
            if infers_schema:
                self._observed.add_example(example)
        if group is not None:
            self._groups.append(group)
        self._records.append(data)
        self._bytes += len(data)

    def _frame_records(
        self, records: list[bytes], groups: list[int]
    ) -> Iterator[tuple[Block, RowsSummary]]:
        """Frames records unchanged; rejects those that do not fit a declared schema."""
        array = pa.array(records, pa.binary())
        kept = np.arange(len(records))
        if self.job.declared is not None:
            schema = self.job.declared.to_schema()
            reasons = invalid_rows(array, schema, self.job.payload)
            for row in sorted(reasons):
                self._reject(reasons[row], records[row])
            kept = np.delete(kept, list(reasons))
            array = array.take(pa.array(kept))
        batch = pa.RecordBatch.from_arrays([array], [RECORD])
        as_is = self.job.model_copy(update={"declared": None, "payload": "raw"})
        observed, self._observed = self._observed, ObservedFeatures()
        for framed in frame_rows(batch, RECORD_SCHEMA, as_is):
            own = np.array(groups, np.uint64)[kept] if groups else None
            yield from self._block(binary_payloads(framed.rows), own, observed)

    def _add_batch(self, element: Any) -> Iterator[tuple[Block, RowsSummary]]:
        batches = element.to_batches() if isinstance(element, pa.Table) else [element]
        for batch in batches:
            self._require_group_column(batch)
            size = max(1, batch.nbytes // max(1, batch.num_rows))
            rows = min(_BATCH_ROWS, max(1, _BATCH_BYTES // size))
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                for framed in self._frame(part):
                    for row, reason in framed.invalid_rows:
                        (raw,) = part.slice(row, 1).to_pylist()
                        self._reject(reason, row_as_json(raw))
                    yield from self._block_of(framed, part, part.to_pylist)

    def _encode_dicts(self, rows: Sequence[Row]) -> Iterator[tuple[Block, RowsSummary]]:
        if self._tables is None:
            assert self.job.declared is not None  # by element_kind
            self._tables = TableBuilder(self.job.declared, self._rule)
        for table in self._tables.build(rows):
            if not isinstance(table, Table):
                index, reason = table
                self._reject(reason, row_as_json(rows[index]))
                continue
            try:
                parts = list(self._frame(table.batch))
            except SchemaError as error:
                # In a batch of dicts the type of a column is the type of its values:
                # rejects.
                if len(table.rows) > 1:
                    for index in table.rows:
                        yield from self._encode_dicts([rows[index]])
                else:
                    (index,) = table.rows
                    self._reject(str(error), row_as_json(rows[index]))
                continue
            for framed in parts:
                for row, reason in framed.invalid_rows:
                    self._reject(reason, row_as_json(rows[table.rows[row]]))
                yield from self._block_of(
                    framed, table.batch, partial(_rows_at, rows, table.rows)
                )

    def _frame(self, batch: pa.RecordBatch) -> Iterator[FramedRows]:
        assert self.job.declared is not None  # by element_kind
        return frame_rows(batch, self.job.declared.to_schema(), self.job)

    def _require_group_column(self, batch: pa.RecordBatch) -> None:
        rule = self._rule
        if rule.column is not None and batch.schema.names.count(rule.column) != 1:
            raise UsageError(
                f"{rule.option}={rule.column!r}: expected one such column in each "
                f"batch, got {', '.join(batch.schema.names)}"
            )

    def _block_of(
        self,
        framed: FramedRows,
        batch: pa.RecordBatch,
        rows_of: Callable[[], Sequence[Row]],
    ) -> Iterator[tuple[Block, RowsSummary]]:
        """Yields the block of a batch's records; rejects rows without a split.

        Args:
          framed: the records.
          batch: that they were made of.
          rows_of: returns the batch's rows, for those that are rejects.
        """
        if self._rule.column is None:
            yield from self._block(binary_payloads(framed.rows), None)
            return
        values = batch[self._rule.column].take(pa.array(framed.kept))
        found = self._rule.find(values)
        records = binary_payloads(framed.rows)
        if found.null_count:
            rows = rows_of()
            for index in np.flatnonzero(found.is_null().to_numpy(False)).tolist():
                raw = row_as_json(rows[int(framed.kept[index])])
                self._reject(self._rule.reason(values[index].as_py()), raw)
            records = records.filter(found.is_valid())
            found = found.drop_null()
        yield from self._block(records, found.to_numpy())

    def _block(
        self,
        records: pa.BinaryArray,
        groups: U64 | None,
        observed: ObservedFeatures | None = None,
    ) -> Iterator[tuple[Block, RowsSummary]]:
        if not len(records):
            return
        job = self.job
        hashes = content_hashes(records)
        origins = hashes[:, 0]
        keys = shuffle_keys(origins, job.seed)
        splits = self._rule.assign(origins, groups)
        planned_bytes = np.diff(array_parts(records)[0])
        histogram = packed_histogram(
            keys, splits, planned_bytes, len(job.splits), self.bucket_bits
        )
        yield (
            Block(payload_rows(records), keys, splits, planned_bytes),
            RowsSummary(
                rows_read=len(records),
                digest=sum_hashes(hashes),
                histogram=histogram,
                observed=observed or ObservedFeatures(),
            ),
        )

    def _reject(self, reason: str, raw: bytes) -> None:
        line = reject_line(Reject("", 0, reason, raw))
        self.rejects.append((text_digest(line), line))
        self.rows_rejected += 1
        limit = self.job.max_rejects.text
        # A limit that is a share can be checked only after the last row.
        if limit.isdigit() and self.rows_rejected > int(limit):
            raise reject_limit_error(f"{self.rows_rejected} rows or more", limit, line)


def _rows_at(rows: Sequence[Row], indices: Sequence[int]) -> list[Row]:
    return [rows[index] for index in indices]
