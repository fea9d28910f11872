"""Encodes rows of a pipeline as blocks of framed records, with keys from their content.

Such a row has no origin in an input. Its order key and its split are seeded hashes of its
record, so they do not depend on order, bundles or runner. Equal records have equal keys;
their order does not matter.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import (
    RecordmillError,
    RejectLimitError,
    SchemaError,
    UsageError,
)
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import Reject, RejectCode, SortedRunRef
from recordmill.schemas.text import escape_unprintable
from recordmill.transforms.arrow import MAX_CELL_BYTES, U64, array_parts
from recordmill.transforms.dataset.deep_check import invalid_rows
from recordmill.transforms.decode.examples import ObservedFeatures
from recordmill.transforms.encode.waiting_rows import binary_payloads, payload_rows
from recordmill.transforms.exchange.keys import shuffle_keys
from recordmill.transforms.exchange.plan import (
    BUCKETS_PER_SHARD,
    MAX_BUCKET_BITS,
    MIN_BUCKET_BITS,
    Histogram,
    PackedHistogram,
    packed_histogram,
)
from recordmill.transforms.exchange.sorted_runs import Block
from recordmill.transforms.rows.elements import (
    Row,
    SplitRule,
    TableBuilder,
    element_kind,
    parse_example,
    row_as_json,
    size_of,
)
from recordmill.transforms.tasks.fingerprint import FORMAT_VERSION, fixed_fields
from recordmill.transforms.tasks.frame_records import FramedRows, frame_rows
from recordmill.transforms.tasks.workspace import reject_line
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES

Digest = tuple[int, int]
"""Sums of two 64-bit hashes of each row, modulo 2**64: independent of the order."""

_MAX_BUCKETS = 1 << 22  # total of all splits


@dataclass(frozen=True, slots=True)
class RowsSummary:
    """A summary of some rows."""

    rows_read: int = 0  # number of rows, rejects included
    rows_rejected: int = 0  # number of rejects
    digest: Digest = (0, 0)  # of all rows
    # histogram of the rows that became records, or b""
    histogram: PackedHistogram = b""
    # features of examples without a schema
    observed: ObservedFeatures = field(default_factory=ObservedFeatures)
    # sorted runs of the records, with the scratch exchange
    runs: tuple[SortedRunRef, ...] = ()
    reject: bytes = b""  # one of the rejects, as a line of JSON, or b""


@dataclass(slots=True)
class RowsTotals:
    """The sum of all summaries."""

    histogram: Histogram
    rows_read: int = 0
    rows_rejected: int = 0
    digest: Digest = (0, 0)
    observed: ObservedFeatures = field(default_factory=ObservedFeatures)
    reject: bytes = b""

    def add(self, summary: RowsSummary) -> None:
        self.rows_read += summary.rows_read
        self.rows_rejected += summary.rows_rejected
        self.digest = add_digests(self.digest, summary.digest)
        self.observed.add(summary.observed)
        if summary.reject:  # the minimum, which does not depend on the order
            self.reject = min(self.reject or summary.reject, summary.reject)
        if summary.histogram:
            self.histogram.add(summary.histogram)

    def merge(self, other: RowsTotals) -> None:
        part = RowsSummary(other.rows_read, other.rows_rejected, other.digest)
        self.add(replace(part, observed=other.observed, reject=other.reject))
        self.histogram.merge(other.histogram)


def rows_bucket_bits(job: JobSpec) -> int:
    """Returns the bits of a histogram bucket if the size of all rows is unknown."""
    shard_bits = MAX_BUCKET_BITS
    if job.sharding.num_shards is not None:
        shard_bits = (job.sharding.num_shards * BUCKETS_PER_SHARD - 1).bit_length()
    room = (_MAX_BUCKETS // len(job.splits)).bit_length() - 1
    return max(MIN_BUCKET_BITS, min(MAX_BUCKET_BITS, shard_bits, room))


def add_digests(left: Digest, right: Digest) -> Digest:
    return (left[0] + right[0]) % (1 << 64), (left[1] + right[1]) % (1 << 64)


def content_hashes(framed: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    """Returns two 64-bit hashes of each record's bytes, shape (rows, 2).

    They are the first 16 bytes of its SHA-256 as little-endian numbers, on every machine.
    """
    offsets, buffer = array_parts(framed)
    starts = (offsets[:-1] + HEAD_BYTES).tolist()
    ends = (offsets[1:] - TAIL_BYTES).tolist()
    # One Python call per record, 1 us each: no library hashes a batch.
    datas = map(buffer.data.__getitem__, map(slice, starts, ends))
    digests = b"".join([sha256(data).digest() for data in datas])
    words = np.frombuffer(digests, "<u8").reshape(-1, 4)[:, :2]
    return words.astype(np.uint64)


def rows_fingerprint(job: JobSpec, totals: RowsTotals) -> str:
    """Returns the hash of all that determines a dataset's bytes: format, job and rows.

    The reject limit is omitted, because it changes no byte (see
    recordmill.transforms.tasks.fingerprint).
    """
    digest = blake2b(digest_size=16)
    digest.update(f"recordmill {FORMAT_VERSION}\n".encode())
    digest.update(json.dumps(fixed_fields(job), sort_keys=True).encode())
    content = (totals.rows_read, totals.rows_rejected, *totals.digest)
    digest.update(f"\nrows {content}".encode())
    return digest.hexdigest()


_MAX_EXAMPLE_BYTES = 300

DigestedReject = tuple[Digest, bytes]
"""A reject as a line of JSON, and its digest."""


def reject_limit_error(rows: str, limit: str, line: bytes) -> RejectLimitError:
    """Returns the error for too many rejects, with one of them as an example."""
    reject = json.loads(line)
    raw = base64.b64decode(reject["raw"])
    raw_text = raw[:_MAX_EXAMPLE_BYTES].decode(errors="backslashreplace")
    ellipsis = "..." if len(raw) > _MAX_EXAMPLE_BYTES else ""
    return RejectLimitError(
        f"{rows} rejected (limit {limit}). One of them: {escape_unprintable(reject['reason'])}: "
        f"{escape_unprintable(raw_text)}{ellipsis}\nFix the rows or raise max_rejects"
    )


def summarize_rejects(rejects: Sequence[DigestedReject]) -> RowsSummary:
    """Returns the summary of rejected rows."""
    digest = (0, 0)
    for reject_digest, _ in rejects:
        digest = add_digests(digest, reject_digest)
    example = min((line for _, line in rejects), default=b"")
    return RowsSummary(len(rejects), len(rejects), digest, reject=example)


RECORD = "record"  # the feature of records whose content is unknown
RECORD_SCHEMA = Schema((FeatureSpec(RECORD, Kind.BYTES),))

_BATCH_ROWS = 1 << 12  # dicts and records are buffered up to this number ...
_BATCH_BYTES = 8 << 20  # ... or size


@dataclass(slots=True)
class RowsEncoder:
    """An encoder of the rows of one bundle, which buffers them into batches."""

    job: JobSpec  # the job of the rows
    bucket_bits: int  # leading bits of the order key that number a histogram bucket
    rows_rejected: int = 0  # number of rejects so far
    # the rejects that `take_rejects` has not returned yet
    rejects: list[DigestedReject] = field(default_factory=list)
    _buffered_dicts: list[Row] = field(default_factory=list)
    _buffered_records: list[bytes] = field(default_factory=list)
    _groups: list[int] = field(default_factory=list)  # splits or hashes of records
    _buffered_bytes: int = 0  # approximate size of the buffered dicts and records
    _observed_features: ObservedFeatures = field(default_factory=ObservedFeatures)
    _tables: TableBuilder | None = None
    _rule: SplitRule = field(init=False)

    def __post_init__(self) -> None:
        self._rule = SplitRule.of(self.job)

    def add(self, element: object) -> Iterator[tuple[Block, RowsSummary]]:
        """Adds an element; yields blocks with summaries when the buffer is full."""
        kind = element_kind(element, self.job)
        if kind == "batch":
            yield from self._add_batch(element)
            return
        if kind == "dict":
            assert isinstance(element, Mapping)
            self._buffered_dicts.append(element)
            self._buffered_bytes += sum(map(size_of, element.values()))
        else:
            self._add_record(element)
        if (
            len(self._buffered_dicts) + len(self._buffered_records) >= _BATCH_ROWS
            or self._buffered_bytes >= _BATCH_BYTES
        ):
            yield from self.flush()

    def flush(self) -> Iterator[tuple[Block, RowsSummary]]:
        """Yields blocks of all rows that are still buffered."""
        dicts, self._buffered_dicts = self._buffered_dicts, []
        records, self._buffered_records = self._buffered_records, []
        groups, self._groups = self._groups, []
        self._buffered_bytes = 0
        if dicts:
            yield from self._encode_dicts(dicts)
        if records:
            yield from self._frame_records(records, groups)

    def take_rejects(self) -> list[DigestedReject]:
        """Returns the rejects since the last call."""
        rejects, self.rejects = self.rejects, []
        return rejects

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
                group, value = self._rule.split_or_hash_of_example(example)
                if group is None:
                    self._reject(self._rule.reason(value), data, "label")
                    return
            if infers_schema:
                self._observed_features.add_example(example)
        if group is not None:
            self._groups.append(group)
        self._buffered_records.append(data)
        self._buffered_bytes += len(data)

    def _frame_records(
        self, records: list[bytes], groups: list[int]
    ) -> Iterator[tuple[Block, RowsSummary]]:
        """Frames records unchanged; rejects records that do not match the schema."""
        array = pa.array(records, pa.binary())
        row_indices = np.arange(len(records))
        if self.job.declared is not None:
            schema = self.job.declared.to_schema()
            reasons = invalid_rows(array, schema, self.job.payload)
            for row in sorted(reasons):
                self._reject(reasons[row], records[row])
            row_indices = np.delete(row_indices, list(reasons))
            array = array.take(pa.array(row_indices))
        batch = pa.RecordBatch.from_arrays([array], [RECORD])
        as_is = self.job.model_copy(update={"declared": None, "payload": "raw"})
        observed, self._observed_features = self._observed_features, ObservedFeatures()
        for framed in frame_rows(batch, RECORD_SCHEMA, as_is):
            record_groups = np.array(groups, np.uint64)[row_indices] if groups else None
            yield from self._block(
                binary_payloads(framed.rows), record_groups, observed
            )

    def _add_batch(self, element: Any) -> Iterator[tuple[Block, RowsSummary]]:
        batches = element.to_batches() if isinstance(element, pa.Table) else [element]
        rule = self._rule
        for batch in batches:
            names = batch.schema.names
            if rule.column is not None and names.count(rule.column) != 1:
                raise UsageError(
                    f"{rule.option}={rule.column!r}: expected one such column in each "
                    f"batch, got {', '.join(names)}"
                )
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
        for members, batch in self._tables.build(rows):
            batch_rows = [rows[index] for index in members]
            if isinstance(batch, str):
                self._reject(batch, row_as_json(batch_rows[0]))
                continue
            try:
                parts = list(self._frame(batch))
            except SchemaError as error:
                # The column types of a batch of dicts come from its values, so a schema
                # error makes rows rejects.
                if len(batch_rows) == 1:
                    self._reject(str(error), row_as_json(batch_rows[0]))
                for row in batch_rows if len(batch_rows) > 1 else ():
                    yield from self._encode_dicts([row])
                continue
            for framed in parts:
                for number, reason in framed.invalid_rows:
                    self._reject(reason, row_as_json(batch_rows[number]))
                yield from self._block_of(framed, batch, partial(list, batch_rows))

    def _frame(self, batch: pa.RecordBatch) -> Iterator[FramedRows]:
        assert self.job.declared is not None  # by element_kind
        return frame_rows(batch, self.job.declared.to_schema(), self.job)

    def _block_of(
        self,
        framed: FramedRows,
        batch: pa.RecordBatch,
        rows_of: Callable[[], Sequence[Row]],
    ) -> Iterator[tuple[Block, RowsSummary]]:
        """Yields the block of a batch's records; rejects rows without a split.

        `rows_of` returns the batch's rows; it is called only if there are rejects.
        """
        if self._rule.column is None:
            yield from self._block(binary_payloads(framed.rows), None)
            return
        values = batch[self._rule.column].take(pa.array(framed.row_indices))
        groups = self._rule.splits_or_hashes(values)
        records = binary_payloads(framed.rows)
        if groups.null_count:
            rows = rows_of()
            for index in np.flatnonzero(groups.is_null().to_numpy(False)).tolist():
                raw = row_as_json(rows[int(framed.row_indices[index])])
                self._reject(self._rule.reason(values[index].as_py()), raw, "label")
            records = records.filter(groups.is_valid())
            groups = groups.drop_null()
        yield from self._block(records, groups.to_numpy())

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
        first, second = hashes.sum(axis=0, dtype=np.uint64).tolist()
        histogram = packed_histogram(
            keys, splits, planned_bytes, len(job.splits), self.bucket_bits
        )
        yield (
            Block(payload_rows(records), keys, splits, planned_bytes),
            RowsSummary(
                rows_read=len(records),
                digest=(first, second),
                histogram=histogram,
                observed=observed or ObservedFeatures(),
            ),
        )

    def _reject(self, reason: str, raw: bytes, code: RejectCode = "value") -> None:
        line = reject_line(Reject("", 0, reason, raw, code))
        first, second = np.frombuffer(sha256(line).digest(), "<u8", 2).tolist()
        self.rejects.append(((first, second), line))
        self.rows_rejected += 1
        limit = self.job.max_rejects.text
        # A relative limit can be checked only after the last row.
        if limit.isdigit() and self.rows_rejected > int(limit):
            raise reject_limit_error(f"{self.rows_rejected} rows or more", limit, line)
