"""Estimates what a job would write: rows, records, shards and bytes.

Small input is read as a whole, and the shard plan is exactly that of the run. Of large
input some ranges, spread evenly, are read and encoded as the run would, and the rest is
extrapolated. Where the plan is made from file sizes (images), nothing has to be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import (
    InputRange,
    RangeResult,
    TypeFlags,
    merge_type_flags,
)
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.encode.waiting_rows import binary_payloads, lengths_of
from recordmill.transforms.exchange.plan import Histogram, plan_shards
from recordmill.transforms.sources.base import REFERENCE, Rows, RowSink
from recordmill.transforms.storage.gzip_packer import gzip_packer
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import make_histogram, range_histogram
from recordmill.transforms.tasks.frame_records import frame_rows
from recordmill.transforms.tasks.read_range import keys_and_splits, side_files_of

# The types of the columns are those that all sampled ranges need together. Where rows
# name files to read, only some rows are encoded, and the counts are scaled up.

FILE_ROWS = 512  # are encoded, where each row names a file to read
_COMPRESSED_BYTES = 4 << 20  # are compressed to measure the ratio


@dataclass(slots=True)
class Sample:
    """The sums over the sampled ranges.

    Attributes:
      max_rows: how many rows of a batch are encoded.
      positions: positions of the sampled ranges, in the unit of the source.
      rows: rows read, rejects included.
      rejected: rows that became no record.
      reason: why the first of them did not, or "".
      records: records made.
      framed_bytes: of the records.
      planned_bytes: of the rows, as the plan counts them.
      reference_bytes: of the references to the rows.
      histogram: of all rows, if the whole input was read.
      compression_ratio: compressed bytes per byte of the records.
      lowest_density: framed bytes per position, of the range with the fewest.
    """

    max_rows: int
    positions: int = 0
    rows: int = 0
    rejected: int = 0
    reason: str = ""
    records: int = 0
    framed_bytes: int = 0
    planned_bytes: int = 0
    reference_bytes: int = 0
    histogram: Histogram | None = None
    compression_ratio: float = 1.0
    lowest_density: float = math.inf

    def reject(self, count: int, reasons: Sequence[str]) -> None:
        self.rejected += count
        self.reason = self.reason or next(iter(reasons), "")

    @property
    def kept_share(self) -> float:
        """Returns the share of rows that become records."""
        return self.records / self.rows if self.rows else 1.0


def _sample_input(
    context: RunContext, input_ranges: Sequence[InputRange], *, whole: bool
) -> Sample:
    """Reads and encodes these ranges, with the types that they need together."""
    few = _reads_files(context) and not whole
    sample = Sample(max(1, FILE_ROWS // len(input_ranges)) if few else 1 << 62)
    if whole and not context.source.sizes_known_upfront:
        sample.histogram = Histogram.empty(context.num_splits, context.bucket_bits)
    final_types: TypeFlags = ()
    if context.source.infers_types:
        for _, batches, sink in _read_ranges(
            context, input_ranges, final_types, whole=whole
        ):
            for _ in batches:
                pass
            final_types = merge_type_flags(final_types, sink.observed)
    compressor = _SampleCompressor(context.job)
    for input_range, batches, sink in _read_ranges(
        context, input_ranges, final_types, whole=whole
    ):
        sample.positions += input_range.num_positions
        before = sample.framed_bytes
        for rows in batches:
            sample.reject(0, [reject.reason for reject in sink.rejects[:1]])
            for records in _add(context, input_range, rows, final_types, sample):
                compressor.add(records)
        density = (sample.framed_bytes - before) / max(1, input_range.num_positions)
        sample.lowest_density = min(sample.lowest_density, density)
        sample.rows += len(sink.rejects) + sink.dropped - sink.added
        sample.reject(len(sink.rejects), [reject.reason for reject in sink.rejects])
        if context.source.sizes_known_upfront or context.exchange == "reference":
            for rows in context.source.list_references(input_range, RowSink()):
                assert (
                    rows.planned_bytes is not None
                )  # the source knows sizes before reading
                sample.planned_bytes += int(rows.planned_bytes.sum())
                offsets, _ = array_parts(rows.batch[REFERENCE])
                sample.reference_bytes += int(offsets[-1] - offsets[0])
    sample.compression_ratio = compressor.ratio()
    return sample


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
        found = context.source.read(input_range, assumed_types, sink)
        if whole:
            yield input_range, found, sink
            continue
        try:
            batches = list(found)
        except InputError as error:
            # A range can begin inside a quoted field, as a survey would have found:
            # the others are enough for a sample.
            problem = error
            continue
        any_read = True
        yield input_range, batches, sink
    if problem is not None and not any_read:
        raise problem


class _SampleCompressor:
    """A compressor of the first records, to measure the compression ratio."""

    def __init__(self, job: JobSpec) -> None:
        packs = job.compression == "gzip"
        self._compressor = gzip_packer(job.gzip_level) if packs else None
        self._compressed_bytes = self._bytes = 0

    def add(self, records: pa.BinaryArray) -> None:
        if self._compressor is not None and self._bytes < _COMPRESSED_BYTES:
            offsets, data = array_parts(records)
            body = data.data[offsets[0] : offsets[-1]]
            self._compressed_bytes += len(self._compressor.compress(body))
            self._bytes += len(body)

    def ratio(self) -> float:
        if self._compressor is None or not self._bytes:
            return 1.0
        return (self._compressed_bytes + len(self._compressor.flush())) / self._bytes


def _add(
    context: RunContext,
    input_range: InputRange,
    rows: Rows,
    final_types: TypeFlags,
    sample: Sample,
) -> Iterator[pa.BinaryArray]:
    """Adds a batch to the sample and yields its framed records."""
    num_rows = rows.batch.num_rows
    sample.rows += num_rows
    if num_rows == 0:
        return
    keys, splits = keys_and_splits(context, input_range, rows)
    num_encoded, batch = num_rows, rows.batch
    if sample.histogram is None and num_rows > sample.max_rows:
        num_encoded = sample.max_rows
        batch = batch.take(np.arange(num_encoded) * num_rows // num_encoded)
    rows_each = num_rows / num_encoded
    schema = context.schema(final_types)
    files = side_files_of(input_range, context.source)
    for framed in frame_rows(
        batch, schema, context.job, files=files, expected_schema=context.expected_schema
    ):
        lengths = lengths_of(framed.rows)
        reasons = [reason for _, reason in framed.invalid_rows]
        sample.reject(round(len(reasons) * rows_each), reasons)
        sample.records += round(len(lengths) * rows_each)
        sample.framed_bytes += round(int(lengths.sum()) * rows_each)
        if sample.histogram is not None:
            kept = framed.kept
            sample.histogram.add_bytes(
                make_histogram(context, keys[kept], splits[kept], lengths)
            )
        yield binary_payloads(framed.rows)


def _reads_files(context: RunContext) -> bool:
    declared = context.job.declared
    return declared is not None and any(
        feature.bytes_from for feature in declared.features.values()
    )


WHOLE_BYTES = 8 << 20  # smaller input is read as a whole
INDEX_BYTES = 24  # of each record in a sorted run's index


@dataclass(frozen=True, slots=True)
class SplitEstimate:
    """The estimated records, file bytes and shards of one split."""

    name: str
    records: int
    bytes: int
    shards: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of what a run would write.

    Attributes:
      is_exact: whether the whole input was read, so that rows, records and shards are
        those of the run, and bytes nearly so.
      rows: rows of the input, rejects included.
      rejected: rows that would be rejected.
      reason: why the first of them would be, or "".
      splits: in the order of the job.
      scratch_bytes: size of the scratch files when the first shard is written.
      certain_share: lower bound of the bytes, as a share of the estimate: what would be
        written if all of the input were like the sampled range with the fewest.
    """

    is_exact: bool
    rows: int
    rejected: int
    reason: str
    splits: tuple[SplitEstimate, ...]
    scratch_bytes: int
    certain_share: float

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
    """Estimates what a run would write; only reads.

    Args:
      context: the prepared run; its workspace need not exist.
      files: the inventory, with the files that cells can name.
      ranges: the input ranges.

    Raises:
      InputError: the input cannot be read.
    """
    source = context.source
    whole = sum(file.size for file in files) <= WHOLE_BYTES
    input_ranges = (
        _resolve_ranges(context, ranges)
        if whole
        else source.input.sample_ranges(ranges)
    )
    sample = _sample_input(context, input_ranges, whole=whole)
    if source.sizes_known_upfront:
        splits = _from_plan(context, _histogram_from_sizes(context, ranges), sample)
    elif sample.histogram is not None:
        splits = _from_plan(context, sample.histogram, sample)
    else:
        splits = _extrapolate(context, ranges, sample)
    positions = sum(input_range.num_positions for input_range in ranges)
    scale = positions / sample.positions if sample.positions else 1.0
    rows = round(sample.rows * scale)
    if context.exchange == "reference":
        in_scratch = sample.reference_bytes + INDEX_BYTES * sample.rows
    else:
        in_scratch = sample.framed_bytes + INDEX_BYTES * sample.records
    is_exact = whole and not (source.sizes_known_upfront and sample.rejected)
    return Estimate(
        is_exact=is_exact,
        rows=rows,
        rejected=round(sample.rejected * scale),
        reason=sample.reason,
        splits=splits,
        scratch_bytes=round(in_scratch * scale),
        certain_share=_certain_share(context, sample, is_exact=is_exact),
    )


def _certain_share(context: RunContext, sample: Sample, *, is_exact: bool) -> float:
    share = 0.95 if is_exact else 0.9
    sizes_are_known = context.source.sizes_known_upfront and not sample.rejected
    if not is_exact and not sizes_are_known:
        density = sample.framed_bytes / max(1, sample.positions)
        share *= min(1.0, sample.lowest_density / density) if density else 0.0
    # The compression ratio varies more between ranges than the size of records does.
    return share if context.job.compression == "none" else share / 2


def _resolve_ranges(
    context: RunContext, ranges: Sequence[InputRange]
) -> list[InputRange]:
    source = context.source
    if not source.input.needs_survey(ranges):
        return source.input.resolve_ranges(ranges, [0] * len(ranges))
    return source.input.resolve_ranges(
        ranges, [source.input.survey(input_range) for input_range in ranges]
    )


def _histogram_from_sizes(
    context: RunContext, ranges: Sequence[InputRange]
) -> Histogram:
    """Returns exactly the histogram of the run, where it is made from file sizes."""
    parts = (
        part
        for input_range in ranges
        for part in range_histogram(context, RangeResult(input_range, 0, 0, ()))
    )
    return Histogram.sum_of(parts, context.num_splits, context.bucket_bits)


def _from_plan(
    context: RunContext, histogram: Histogram, sample: Sample
) -> tuple[SplitEstimate, ...]:
    """Estimates the splits from the shard plan of the run.

    A plan that is made from sizes before reading is corrected by what encoding adds.
    """
    plan = plan_shards(histogram, context.job.sharding, context.split_names)
    from_sizes = context.source.sizes_known_upfront
    kept = sample.kept_share if from_sizes else 1.0
    growth = sample.framed_bytes / sample.planned_bytes if sample.planned_bytes else 1.0
    made = []
    for split in plan.splits:
        num_bytes = sum(split.shard_bytes) * (growth if from_sizes else 1.0)
        made.append(
            SplitEstimate(
                split.split,
                round(sum(split.shard_records) * kept),
                round(num_bytes * sample.compression_ratio),
                split.num_shards,
            )
        )
    return tuple(made)


def _extrapolate(
    context: RunContext, ranges: Sequence[InputRange], sample: Sample
) -> tuple[SplitEstimate, ...]:
    """Estimates the splits from the sample, by their share of the input."""
    made = []
    for name, positions in _positions(context, ranges):
        share = positions / sample.positions if sample.positions else 0.0
        records = round(sample.records * share)
        num_bytes = round(sample.framed_bytes * share)
        shards = context.job.sharding.shards_for(num_bytes, records)
        stored = round(num_bytes * sample.compression_ratio)
        made.append(SplitEstimate(name, records, stored, shards))
    return tuple(made)


def _positions(
    context: RunContext, ranges: Sequence[InputRange]
) -> Iterator[tuple[str, float]]:
    """Yields each split with the positions of the input that go into it."""
    if rows := context.source.own_split_rows():
        positions = sum(input_range.num_positions for input_range in ranges)
        for name, own_rows in zip(context.split_names, rows, strict=True):
            yield name, positions * own_rows / sum(rows)
        return
    own = context.own_splits
    ours = sum(
        input_range.num_positions
        for input_range in ranges
        if input_range.split not in own
    )
    for split, fraction in zip(context.job.splits, context.fractions, strict=True):
        if split.name not in context.split_names:
            continue  # the default, where the input has splits of its own
        yield split.name, ours * float(fraction)
    for name in own:
        yield (
            name,
            sum(
                input_range.num_positions
                for input_range in ranges
                if input_range.split == name
            ),
        )
