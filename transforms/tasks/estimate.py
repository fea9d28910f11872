"""Estimates what a job would write: rows, records, shards and bytes.

Small input is read as a whole, and the shard plan is exactly that of the run. Of large
input some ranges, spread evenly, are read and encoded as the run would, and the rest is
extrapolated. Where the plan is made from file sizes (images), nothing has to be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.encode.waiting_rows import binary_payloads, lengths_of
from recordmill.transforms.exchange.plan import Histogram, plan_shards
from recordmill.transforms.sources.base import Findings, Rows, RowSink
from recordmill.transforms.storage.shard_file import gzip_packer
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import (
    keys_and_splits,
    listed_histogram,
    make_histogram,
    side_files_of,
)
from recordmill.transforms.tasks.frame_records import frame_rows

# The types of the columns are those that all sampled ranges need together. Where rows
# name files to read, only some rows are encoded, and the counts are scaled up.

WHOLE_BYTES = 8 << 20  # smaller input is read as a whole
FILE_ROWS = 512  # are encoded, where each row names a file to read
_COMPRESSED_BYTES = 4 << 20  # are compressed to measure the ratio


@dataclass(frozen=True, slots=True)
class SplitEstimate:
    """The estimated records, file bytes and shards of one split."""

    name: str
    records: int
    bytes: int
    shards: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of what a run would write."""

    # whether the whole input was read, so that rows, records and shards are those of
    # the run, and bytes nearly so
    is_exact: bool
    rows: int  # rows of the input, rejects included
    rejected: int  # rows that would be rejected
    reason: str  # why the first of them would be, or ""
    splits: tuple[SplitEstimate, ...]  # in the order of the job
    # records that wait for their shards, in memory or in scratch; references are small
    scratch_bytes: int
    # what the rows that were read had, if types are inferred
    found: Findings | None = None

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits)

    @property
    def bytes(self) -> int:
        return sum(split.bytes for split in self.splits)

    @property
    def shards(self) -> int:
        return sum(split.shards for split in self.splits)


def estimate_run(
    context: RunContext, files: Sequence[InputFile], ranges: Sequence[InputRange]
) -> Estimate:
    """Estimates what a prepared run would write; `files` has those that cells can name."""
    source = context.source
    whole = sum(file.size for file in files) <= WHOLE_BYTES
    if whole:
        input_ranges = source.input.surveyed(ranges)
    else:
        input_ranges = source.input.sample_ranges(ranges)
    sample = _Sample(context, input_ranges, whole=whole)
    if source.sizes_known_upfront:
        parts = (
            part
            for input_range in ranges
            for part in listed_histogram(context, input_range)
        )
        histogram = Histogram.sum_of(parts, context.num_splits, context.bucket_bits)
        splits = tuple(_from_plan(context, histogram, sample))
    elif sample.histogram is not None:
        splits = tuple(_from_plan(context, sample.histogram, sample))
    else:
        splits = tuple(_extrapolate(context, ranges, sample))
    positions = sum(input_range.num_positions for input_range in ranges)
    scale = positions / sample.positions if sample.positions else 1.0
    in_scratch = sample.framed_bytes if context.exchange == "scratch" else 0
    is_exact = whole and not (source.sizes_known_upfront and sample.rejected)
    return Estimate(
        is_exact=is_exact,
        rows=round(sample.rows * scale),
        rejected=round(sample.rejected * scale),
        reason=sample.reason,
        splits=splits,
        scratch_bytes=round(in_scratch * scale),
        found=sample.found,
    )


class _Sample:
    """The sums over sampled ranges, with the types that they need together.

    Bytes are those of framed records, and those that the plan counts. There is a
    histogram if the whole input was read.
    """

    def __init__(
        self, context: RunContext, input_ranges: Sequence[InputRange], *, whole: bool
    ) -> None:
        source = context.source
        self._context = context
        self._max_rows = 1 << 62  # of a batch, that are encoded
        if not whole and context.reads_files:
            self._max_rows = max(1, FILE_ROWS // len(input_ranges))
        self._head = bytearray()  # of the records, to measure the compression
        self.positions = self.rows = self.rejected = self.records = 0
        self.framed_bytes = self.planned_bytes = 0
        self.reason = ""
        self.histogram: Histogram | None = None
        if whole and not source.sizes_known_upfront:
            self.histogram = Histogram.empty(context.num_splits, context.bucket_bits)
        self.found: Findings | None = None
        issues: tuple[RowIssue, ...] = ()
        final_types: TypeFlags = ()
        if source.infers_types:
            total, rows = RowSink(), 0
            for _, batches, sink in _read_ranges(
                context, input_ranges, final_types, whole=whole
            ):
                rows += sum(each.batch.num_rows for each in batches)
                issues = sink.issues
                total.add(observed=sink.observed, nulls=sink.nulls, issues=issues)
            self.found = context.findings(
                total.observed, total.nulls, total.issues, rows, is_all=whole
            )
            if whole:
                context.require(self.found)
            final_types = source.input.settle_types(self.found)
        for input_range, batches, sink in _read_ranges(
            context, input_ranges, final_types, whole=whole
        ):
            self._add_range(input_range, batches, sink, final_types)
            issues += sink.issues
        if whole and not source.infers_types:
            rows = self.rows - self.rejected
            found = context.findings((), (), RowIssue.merged([issues]), rows)
            if problem := source.input.issue_problem(found):
                raise SchemaError(problem)
        self.compression_ratio = 1.0
        if head := bytes(self._head):
            packer = gzip_packer(context.job.gzip_level)
            packed = packer.compress(head) + packer.flush()
            self.compression_ratio = len(packed) / len(head)

    def _add_range(
        self,
        input_range: InputRange,
        batches: Iterable[Rows],
        sink: RowSink,
        final_types: TypeFlags,
    ) -> None:
        source = self._context.source
        self.positions += input_range.num_positions
        for rows in batches:
            self._reject(0, [reject.reason for reject in sink.rejects[:1]])
            self.rows += rows.batch.num_rows
            if rows.batch.num_rows:
                self._add_batch(input_range, rows, final_types)
        self.rows += len(sink.rejects) + sink.dropped - sink.added
        self._reject(len(sink.rejects), [reject.reason for reject in sink.rejects])
        if source.sizes_known_upfront:
            for rows in source.list_references(input_range, RowSink()):
                assert rows.planned_bytes is not None  # known before reading
                self.planned_bytes += int(rows.planned_bytes.sum())

    def _add_batch(
        self, input_range: InputRange, rows: Rows, final_types: TypeFlags
    ) -> None:
        context, batch = self._context, rows.batch
        keys, splits = keys_and_splits(context, input_range, rows)
        num_encoded = num_rows = batch.num_rows
        if self.histogram is None and num_rows > self._max_rows:
            num_encoded = self._max_rows
            batch = batch.take(np.arange(num_encoded) * num_rows // num_encoded)
        rows_each = num_rows / num_encoded
        for framed in frame_rows(
            batch,
            context.schema(final_types),
            context.job,
            files=side_files_of(context, input_range),
            expected_schema=context.expected_schema,
        ):
            lengths = lengths_of(framed.rows)
            reasons = [reason for _, reason in framed.invalid_rows]
            self._reject(round(len(reasons) * rows_each), reasons)
            self.records += round(len(lengths) * rows_each)
            self.framed_bytes += round(int(lengths.sum()) * rows_each)
            if self.histogram is not None:
                kept = framed.kept
                self.histogram.add(
                    make_histogram(context, keys[kept], splits[kept], lengths)
                )
            is_packed = context.job.compression == "gzip"
            if is_packed and len(self._head) < _COMPRESSED_BYTES:
                offsets, data = array_parts(binary_payloads(framed.rows))
                self._head += data.data[offsets[0] : offsets[-1]]

    def _reject(self, count: int, reasons: Sequence[str]) -> None:
        self.rejected += count
        self.reason = self.reason or next(iter(reasons), "")


def _read_ranges(
    context: RunContext,
    input_ranges: Sequence[InputRange],
    assumed_types: TypeFlags,
    *,
    whole: bool,
) -> Iterator[tuple[InputRange, Iterable[Rows], RowSink]]:
    """Yields each range with its rows, those of a whole input batch by batch."""
    problem: InputError | None = None
    any_read = False
    for input_range in input_ranges:
        sink = RowSink()
        found: Iterable[Rows] = context.source.read(input_range, assumed_types, sink)
        if not whole:
            try:
                found = list(found)
            except InputError as error:
                # A range can begin inside a quoted field, as a boundary scan would have
                # found: the others are enough for a sample.
                problem = error
                continue
        any_read = True
        yield input_range, found, sink
    if problem is not None and not any_read:
        raise problem


def _from_plan(
    context: RunContext, histogram: Histogram, sample: _Sample
) -> Iterator[SplitEstimate]:
    """Estimates the splits from the shard plan of the run.

    A plan that is made from sizes before reading is corrected by what encoding adds.
    """
    kept = growth = 1.0
    if context.source.sizes_known_upfront:
        kept = sample.records / sample.rows if sample.rows else 1.0
        if sample.planned_bytes:
            growth = sample.framed_bytes / sample.planned_bytes
    plan = plan_shards(histogram, context.job.sharding, context.split_names)
    for split in plan.splits:
        num_bytes = sum(split.shard_bytes) * growth * sample.compression_ratio
        records = round(sum(split.shard_records) * kept)
        yield SplitEstimate(split.split, records, round(num_bytes), split.num_shards)


def _extrapolate(
    context: RunContext, ranges: Sequence[InputRange], sample: _Sample
) -> Iterator[SplitEstimate]:
    """Estimates the splits from the sample, by their share of the input."""
    for name, positions in _positions(context, ranges):
        share = positions / sample.positions if sample.positions else 0.0
        records = round(sample.records * share)
        num_bytes = round(sample.framed_bytes * share)
        shards = context.job.sharding.shards_for(num_bytes, records)
        stored = round(num_bytes * sample.compression_ratio)
        yield SplitEstimate(name, records, stored, shards)


def _positions(
    context: RunContext, ranges: Sequence[InputRange]
) -> Iterator[tuple[str, float]]:
    """Yields each split with the positions of the input that go into it."""
    by_split = Counter[str]()
    for input_range in ranges:
        by_split[input_range.split] += input_range.num_positions
    if rows := context.source.own_split_rows():
        for name, own_rows in zip(context.split_names, rows, strict=True):
            yield name, by_split.total() * own_rows / sum(rows)
        return
    ours = by_split.total() - sum(by_split[name] for name in context.own_splits)
    for split, fraction in zip(context.job.splits, context.fractions, strict=True):
        # Not the default, where the input has splits of its own.
        if split.name in context.split_names:
            yield split.name, ours * float(fraction)
    for name in context.own_splits:
        yield name, by_split[name]
