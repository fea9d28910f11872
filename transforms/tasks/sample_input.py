"""Samples the input as a run would: reads, casts, encodes and counts some ranges.

The types of the columns are those that all sampled ranges need together. Where rows
name files to read, only some rows are encoded, and the counts are scaled up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.sources.by_reference import REFERENCE
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.storage.gzip_packer import gzip_packer
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.frame_records import frame_rows
from recordmill.transforms.tasks.read_range import keys_and_splits, side_files_of
from recordmill.transforms.tasks.sort_range import make_histogram

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


def sample_input(
    context: RunContext, input_ranges: Sequence[InputRange], *, whole: bool
) -> Sample:
    """Reads and encodes these ranges, with the types that they need together."""
    few = _reads_files(context) and not whole
    sample = Sample(max(1, FILE_ROWS // len(input_ranges)) if few else 1 << 62)
    if whole and not context.source.sizes_known_upfront:
        sample.histogram = Histogram.empty(context.num_splits, context.bucket_bits)
    final_types: TypeFlags = ()
    if context.source.infers_types:
        for _, batches in _read_ranges(context, input_ranges, final_types, whole=whole):
            for rows in batches:
                final_types = merge_type_flags(final_types, rows.observed)
    compressor = _SampleCompressor(context.job)
    for input_range, batches in _read_ranges(
        context, input_ranges, final_types, whole=whole
    ):
        sample.positions += input_range.num_positions
        before = sample.framed_bytes
        for rows in batches:
            for records in _add(context, input_range, rows, final_types, sample):
                compressor.add(records)
        if input_range.num_positions:
            density = (sample.framed_bytes - before) / input_range.num_positions
            sample.lowest_density = min(sample.lowest_density, density)
        if context.source.sizes_known_upfront or context.exchange == "reference":
            for rows in context.source.list_references(input_range):
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
) -> Iterator[tuple[InputRange, Iterable[Rows]]]:
    """Yields each range with its rows, those of a whole input batch by batch.

    Raises:
      InputError: the input cannot be read; of a sample, none of its ranges.
    """
    problem: InputError | None = None
    any_read = False
    for input_range in input_ranges:
        if whole:
            yield input_range, context.source.read(input_range, assumed_types)
            continue
        try:
            batches = list(context.source.read(input_range, assumed_types))
        except InputError as error:
            # A range can begin inside a quoted field, as a survey would have found:
            # the others are enough for a sample.
            problem = error
            continue
        any_read = True
        yield input_range, batches
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
    sample.rows += rows.num_read
    sample.reject(len(rows.rejects), [reject.reason for reject in rows.rejects])
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
        lengths = np.diff(array_parts(framed.records)[0])
        reasons = [reason for _, reason in framed.invalid_rows]
        sample.reject(round(len(reasons) * rows_each), reasons)
        sample.records += round(len(lengths) * rows_each)
        sample.framed_bytes += round(int(lengths.sum()) * rows_each)
        if sample.histogram is not None:
            kept = framed.kept
            sample.histogram.add_bytes(
                make_histogram(context, keys[kept], splits[kept], lengths)
            )
        yield framed.records


def _reads_files(context: RunContext) -> bool:
    declared = context.job.declared
    return declared is not None and any(
        feature.bytes_from for feature in declared.features.values()
    )
