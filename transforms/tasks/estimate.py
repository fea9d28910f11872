"""Estimates the output of a job: rows, records, shards and bytes.

A small input is read as a whole, and the shard plan is the plan of the run. In a large
input, some evenly spread ranges are read and encoded as in the run, and the rest is
extrapolated. If the plan is made from file sizes (images), nothing has to be read.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.encode.waiting_rows import binary_payloads, lengths_of
from recordmill.transforms.exchange.plan import Histogram, plan_shards
from recordmill.transforms.exchange.sorted_runs import Block
from recordmill.transforms.sources.base import (
    InputFindings,
    RangeFindings,
    Rows,
    read_sample_ranges,
)
from recordmill.transforms.storage.shard_file import gzip_packer
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import (
    BLOCK_BYTES,
    RangeReader,
    histograms_from_sizes,
    list_rows,
    make_histogram,
)

# Each column gets the type that fits all sampled ranges. If rows name sidecar files, only
# some rows are encoded, and the counts are scaled up.

WHOLE_BYTES = 8 << 20  # a smaller input is read as a whole
FILE_ROWS = 512  # rows that are encoded if each row names a sidecar file
_COMPRESSED_BYTES = 4 << 20  # compressed to measure the ratio


@dataclass(frozen=True, slots=True)
class SplitEstimate:
    """The estimated records, file bytes and shards of one split."""

    name: str
    records: int
    bytes: int
    shards: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of the output of a run."""

    # whether the whole input was read, so that rows, records and shards are exact, and
    # bytes nearly so
    is_exact: bool
    rows: int  # rows of the input, rejects included
    num_rejects: int  # rows that would be rejected
    reason: str  # the reason of the first reject, or ""
    splits: tuple[SplitEstimate, ...]  # in the order of the job
    # size of deferred records, in memory or in scratch; references are small
    scratch_bytes: int
    # the findings about the sampled rows, if types are inferred
    range_findings: InputFindings | None = None

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
    context: RunContext, num_bytes: int, ranges: Sequence[InputRange]
) -> Estimate:
    """Estimates the output of a prepared run; `num_bytes` is the size of all inputs."""
    source, share, sampled = context.source, 1.0, context
    whole = num_bytes <= WHOLE_BYTES
    if whole:
        input_ranges = source.input_source.with_boundaries(ranges)
    else:
        input_ranges = source.input_source.sample_ranges(ranges)
        unsampled_source, share = (
            source.source_before_sampling()
        )  # sampling might drop all these rows
        sampled = replace(context, source=unsampled_source)
    sample = _Sample(sampled, input_ranges, whole=whole)
    histogram = sample.histogram
    if source.sizes_known_upfront:
        parts = chain.from_iterable(
            histograms_from_sizes(context, input_range) for input_range in ranges
        )
        histogram = Histogram.sum_of(parts, context.num_splits, context.bucket_bits)
    if histogram is not None:
        splits = _from_plan(context, histogram, sample)
    else:
        splits = _extrapolate(context, ranges, sample, share)
    positions = sum(input_range.num_positions for input_range in ranges)
    scale = positions / sample.positions if sample.positions else 1.0
    in_scratch = sample.framed_bytes if context.exchange == "scratch" else 0
    is_exact = whole and not (source.sizes_known_upfront and sample.rejected)
    return Estimate(
        is_exact=is_exact,
        rows=round(sample.rows * scale),
        num_rejects=round(sample.rejected * scale * share),
        reason=sample.reason,
        splits=tuple(splits),
        scratch_bytes=round(in_scratch * scale * share),
        range_findings=sample.range_findings,
    )


class _Sample:
    """The totals of the sampled ranges, with the types that fit all of them.

    `framed_bytes` counts framed records, and `planned_bytes` counts as the plan does. The
    histogram exists if the whole input was read.
    """

    def __init__(
        self, context: RunContext, input_ranges: Sequence[InputRange], *, whole: bool
    ) -> None:
        source = context.source
        self._context = context
        self._max_rows = sys.maxsize
        if not whole and context.job.reads_files:
            self._max_rows = max(1, FILE_ROWS // len(input_ranges))
        self._head = bytearray()  # first records, to measure the compression
        self.positions = self.rows = self.rejected = self.records = (
            self.num_left_out
        ) = 0
        self.framed_bytes = self.planned_bytes = 0
        self.reason = ""
        self.histogram: Histogram | None = None
        if whole and not source.sizes_known_upfront:
            self.histogram = Histogram.empty(context.num_splits, context.bucket_bits)
        self.range_findings: InputFindings | None = None
        map_function: Any = map if whole else read_sample_ranges
        total, final_types, rows = RangeFindings(), tuple[int, ...](), 0
        if source.infers_types:
            for batches, sink in map_function(self._read_for_types, input_ranges):
                rows += sum(batch_rows.batch.num_rows for batch_rows in batches)
                issues, nulls = sink.issues, sink.null_counts
                total.add_batch_findings(
                    observed=sink.type_flags, nulls=nulls, issues=issues
                )
            self.range_findings = context.findings(
                total.type_flags, total.null_counts, total.issues, rows, is_all=whole
            )
            if whole:
                context.require_acceptable_rows(self.range_findings)
            final_types = source.input_source.final_type_flags(self.range_findings)
        encoded = partial(self._encode_range, final_types)
        for reader, blocks in map_function(encoded, input_ranges):
            self._add(reader, blocks)
            total.add_batch_findings(issues=reader.range_findings.issues)
        if whole and not source.infers_types:
            rows = self.rows - self.rejected
            range_findings = context.findings((), (), total.issues, rows)
            if problem := source.input_source.issue_problem(range_findings):
                raise SchemaError(problem)
        self.compression_ratio = 1.0
        if head := bytes(self._head):
            packer = gzip_packer(context.job.gzip_level)
            packed = packer.compress(head) + packer.flush()
            self.compression_ratio = len(packed) / len(head)

    def _read_for_types(
        self, input_range: InputRange
    ) -> tuple[list[Rows], RangeFindings]:
        """Reads the rows of a range, to infer the types of their columns."""
        range_findings = RangeFindings()
        return list(
            self._context.source.read(input_range, (), range_findings)
        ), range_findings

    def _encode_range(
        self, types: TypeFlags, input_range: InputRange
    ) -> tuple[RangeReader, list[Block]]:
        """Reads and encodes the rows of a range, as in the run."""
        reader = RangeReader(
            self._context, input_range, by_reference=False, max_rows=self._max_rows
        )
        lists = map(list, reader.blocks(types, BLOCK_BYTES))
        return reader, [block for blocks in lists for block in blocks]

    def _add(self, reader: RangeReader, blocks: Sequence[Block]) -> None:
        context, rejects = self._context, reader.range_findings.rejects
        records = sum(len(block.keys) for block in blocks)
        encoded = records + reader.num_invalid_rows
        rows_each = reader.num_source_rows / encoded if encoded else 1.0
        lengths = [lengths_of(block.rows) for block in blocks]
        framed_bytes = sum(int(block_lengths.sum()) for block_lengths in lengths)
        self.positions += reader.input_range.num_positions
        self.rows += reader.rows_read
        self.num_left_out += (
            reader.range_findings.num_sampled_out_rows
            - reader.range_findings.num_copied_rows
        )
        self.records += round(records * rows_each)
        self.framed_bytes += round(framed_bytes * rows_each)
        self.rejected += len(rejects) + round(reader.num_invalid_rows * (rows_each - 1))
        self.reason = self.reason or next((reject.reason for reject in rejects), "")
        for block, block_lengths in zip(blocks, lengths, strict=True):
            if self.histogram is not None:
                self.histogram.add(
                    make_histogram(context, block.keys, block.splits, block_lengths)
                )
            is_packed = context.job.compression == "gzip"
            if is_packed and len(self._head) < _COMPRESSED_BYTES:
                offsets, data = array_parts(binary_payloads(block.rows))
                self._head += data.data[offsets[0] : offsets[-1]]
        if context.source.sizes_known_upfront:
            for rows in list_rows(context, reader.input_range, RangeFindings()):
                assert rows.planned_bytes is not None  # known before reading
                self.planned_bytes += int(rows.planned_bytes.sum())


def _from_plan(
    context: RunContext, histogram: Histogram, sample: _Sample
) -> Iterator[SplitEstimate]:
    """Estimates the splits from the shard plan of the run.

    A plan computed from sizes before reading is corrected by the growth during encoding.
    """
    record_share = growth = 1.0
    if context.source.sizes_known_upfront:
        rows = sample.rows - sample.num_left_out
        record_share = sample.records / rows if rows else 1.0
        if sample.planned_bytes:
            growth = sample.framed_bytes / sample.planned_bytes
    plan = plan_shards(histogram, context.job.sharding, context.split_names)
    for split in plan.splits:
        num_bytes = sum(split.shard_bytes) * growth * sample.compression_ratio
        records = round(sum(split.shard_records) * record_share)
        yield SplitEstimate(split.split, records, round(num_bytes), split.num_shards)


def _extrapolate(
    context: RunContext,
    ranges: Sequence[InputRange],
    sample: _Sample,
    sampled_share: float,
) -> Iterator[SplitEstimate]:
    """Estimates the splits from the sample, by their share of the positions.

    `sampled_share` is the share of rows that sampling keeps.
    """
    for name, positions in _positions(context, ranges):
        share = (
            sampled_share * positions / sample.positions if sample.positions else 0.0
        )
        records = round(sample.records * share)
        num_bytes = round(sample.framed_bytes * share)
        shards = context.job.sharding.count_shards(num_bytes, records)
        stored = round(num_bytes * sample.compression_ratio)
        yield SplitEstimate(name, records, stored, shards)


def _positions(
    context: RunContext, ranges: Sequence[InputRange]
) -> Iterator[tuple[str, float]]:
    """Yields each split with its expected number of input positions."""
    by_split = Counter[str]()
    for input_range in ranges:
        by_split[input_range.split] += input_range.num_positions
    if rows := context.source.input_split_rows():
        for name, own_rows in zip(context.split_names, rows, strict=True):
            yield name, by_split.total() * own_rows / sum(rows)
        return
    divided_positions = by_split.total() - sum(
        by_split[name] for name in context.input_splits
    )
    for split, fraction in zip(context.job.splits, context.fractions, strict=True):
        # Without the default split if the input has splits.
        if split.name in context.split_names:
            yield split.name, divided_positions * float(fraction)
    for name in context.input_splits:
        yield name, by_split[name]
