"""Looking at parts of the input as a run would: read, conform, encode, count.

The types of the columns are those that all the parts together ask for. Where rows pull
files in, only some of them are encoded, and stand for the others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.exchange.plan import Histogram
from recordmill.transforms.sources.base import REFERENCE, Rows
from recordmill.transforms.storage.shard_file import GZIP_LEVEL
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.frame_records import frame_rows
from recordmill.transforms.tasks.read_range import keys_and_splits, side_files_beside
from recordmill.transforms.tasks.sort_range import make_histogram

FILE_ROWS = 512  # looked at where each row pulls in a file
_PACKED_BYTES = 4 << 20  # compressed to see how much that saves


@dataclass(slots=True)
class Sample:
    """What adds up over the parts that were read.

    Attributes:
      positions: how much of the input they are, in the ranges' unit.
      planned_bytes: of the rows as the plan counts them.
      reference_bytes: of the rows as they travel by reference.
      rows_of_a_part: how many of each are looked at.
      histogram: of all rows, if the whole input was read.
      packing: what compression leaves of the bytes.
      lightest: framed bytes by position of the part that has least of them.
    """

    rows_of_a_part: int
    positions: int = 0
    rows: int = 0
    rejected: int = 0
    reason: str = ""
    records: int = 0
    framed_bytes: int = 0
    planned_bytes: int = 0
    reference_bytes: int = 0
    histogram: Histogram | None = None
    packing: float = 1.0
    lightest: float = math.inf

    def reject(self, count: int, reasons: Sequence[str]) -> None:
        self.rejected += count
        self.reason = self.reason or next(iter(reasons), "")

    @property
    def kept(self) -> float:
        """The share of rows that become records."""
        return self.records / self.rows if self.rows else 1.0


def sample_input(
    context: RunContext, input_ranges: Sequence[InputRange], *, whole: bool
) -> Sample:
    """Reads and encodes these parts of the input, typed as all of them together ask."""
    few = _pulls_files(context) and not whole
    sample = Sample(max(1, FILE_ROWS // len(input_ranges)) if few else 1 << 62)
    if whole and not context.source.sizes_known_upfront:
        sample.histogram = Histogram.empty(context.num_splits, context.bucket_bits)
    final: TypeFlags = ()
    if context.source.infers_types:
        for _, batches in _read_parts(context, input_ranges, final, whole=whole):
            for rows in batches:
                final = merge_type_flags(final, rows.observed)
    packer = _Packer(context.job.compression)
    for input_range, batches in _read_parts(context, input_ranges, final, whole=whole):
        sample.positions += input_range.num_positions
        before = sample.framed_bytes
        for rows in batches:
            for records in _add(context, input_range, rows, final, sample):
                packer.add(records)
        if input_range.num_positions:
            density = (sample.framed_bytes - before) / input_range.num_positions
            sample.lightest = min(sample.lightest, density)
        if context.source.sizes_known_upfront or context.exchange == "reference":
            for rows in context.source.list_references(input_range):
                assert rows.planned_bytes is not None  # known unread
                sample.planned_bytes += int(rows.planned_bytes.sum())
                offsets, _ = array_parts(rows.batch[REFERENCE])
                sample.reference_bytes += int(offsets[-1] - offsets[0])
    sample.packing = packer.share()
    return sample


def _read_parts(
    context: RunContext,
    input_ranges: Sequence[InputRange],
    expected: TypeFlags,
    *,
    whole: bool,
) -> Iterator[tuple[InputRange, list[Rows]]]:
    """The rows of each part, a part at a time.

    Raises:
      InputError: the input cannot be read; of many parts, none of them.
    """
    problem: InputError | None = None
    any_read = False
    for input_range in input_ranges:
        try:
            batches = list(context.source.read(input_range, expected))
        except InputError as error:
            if whole:
                raise
            # A part may begin where no row does, as it seems: the others tell enough.
            problem = error
            continue
        any_read = True
        yield input_range, batches
    if problem is not None and not any_read:
        raise problem


class _Packer:
    """Compresses some records to see what share of their bytes is left."""

    def __init__(self, compression: str) -> None:
        self._packer = zlib.compressobj(GZIP_LEVEL) if compression == "gzip" else None
        self._packed = self._given = 0

    def add(self, records: pa.BinaryArray) -> None:
        if self._packer is not None and self._given < _PACKED_BYTES:
            offsets, data = array_parts(records)
            body = data.data[offsets[0] : offsets[-1]]
            self._packed += len(self._packer.compress(body))
            self._given += len(body)

    def share(self) -> float:
        if self._packer is None or not self._given:
            return 1.0
        return (self._packed + len(self._packer.flush())) / self._given


def _add(
    context: RunContext,
    input_range: InputRange,
    rows: Rows,
    final: TypeFlags,
    sample: Sample,
) -> Iterator[pa.BinaryArray]:
    """Adds a batch to the sample; gives its framed records."""
    num_rows = rows.batch.num_rows
    sample.rows += num_rows + len(rows.rejects)
    sample.reject(len(rows.rejects), [reject.reason for reject in rows.rejects])
    if num_rows == 0:
        return
    keys, splits = keys_and_splits(context, input_range, rows)
    looked_at, batch = num_rows, rows.batch
    if sample.histogram is None and num_rows > sample.rows_of_a_part:
        looked_at = sample.rows_of_a_part
        batch = batch.take(np.arange(looked_at) * num_rows // looked_at)
    stands_for = num_rows / looked_at
    schema = context.schema(final)
    files = side_files_beside(input_range)
    for framed in frame_rows(
        batch, schema, context.job, files=files, expected=context.expected
    ):
        lengths = np.diff(array_parts(framed.records)[0])
        refused = [reason for _, reason in framed.refused]
        sample.reject(round(len(refused) * stands_for), refused)
        sample.records += round(len(lengths) * stands_for)
        sample.framed_bytes += round(int(lengths.sum()) * stands_for)
        if sample.histogram is not None:
            kept = framed.kept
            sample.histogram += make_histogram(
                context, keys[kept], splits[kept], lengths
            )
        yield framed.records


def _pulls_files(context: RunContext) -> bool:
    declared = context.job.declared
    return declared is not None and any(
        feature.bytes_from for feature in declared.features.values()
    )
