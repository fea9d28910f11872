"""What a job would write, without running it: rows, records, shards, space and time.

Small input is read wholly, and then the shard plan is the one that the run will make.
Of large input parts spread over it are read and encoded as the run would; all else is
in proportion. Where the plan counts file sizes (pictures) it needs no reading at all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import InputError
from schemas.ranges import Bits, InputFile, InputRange, RangeResult, or_bits
from schemas.shards import ShardPlan
from transforms.plan import Histogram, plan_shards
from transforms.range_task import encode_and_frame, histogram_of, place_rows
from transforms.run_context import RunContext
from transforms.sources.base import REFERENCE, Rows
from transforms.tfrecord import array_parts
from transforms.wire import I64, U64
from transforms.write import GZIP_LEVEL

WHOLE_BYTES = 8 << 20  # input up to this is read wholly
INDEX_BYTES = 24  # of each record in a sorted run's index
_PACKED_BYTES = 4 << 20  # compressed to see how much that saves

# Bytes a second of one worker, measured on two cores and a local disk (tests/bench).
START_SECONDS = 1.2  # Python, Beam, the pipeline; publishing
READ_RATES = {"csv": 70e6, "cifar": 250e6, "images": 250e6}
REFER_RATES = {"csv": 70e6, "cifar": 2e9, "images": 20e9}
WRITE_RATE = 300e6


@dataclass(frozen=True, slots=True)
class SplitEstimate:
    """One split: records, bytes of its files, and their number."""

    name: str
    records: int
    bytes: int
    shards: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would do.

    Attributes:
      is_exact: whether the whole input was read, so that rows, records and shards are
        the run's, and bytes nearly so.
      rows: rows found, rejects included.
      rejected: rows left out.
      reason: why the first of them would be, or "".
      splits: in the order of the job.
      scratch_bytes: what lies in scratch before the first shard is written.
    """

    is_exact: bool
    rows: int
    rejected: int
    reason: str
    splits: tuple[SplitEstimate, ...]
    scratch_bytes: int

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits)

    @property
    def bytes(self) -> int:
        return sum(split.bytes for split in self.splits)

    @property
    def shards(self) -> int:
        return sum(split.shards for split in self.splits)


@dataclass(slots=True)
class _Sample:
    """What adds up over the parts that were read.

    Attributes:
      positions: how much of the input they are, in the ranges' unit.
      planned_bytes: of the rows as the plan counts them.
      reference_bytes: of the rows as they travel by reference.
      histogram: of all rows, if the whole input was read.
      packed, unpacked: bytes compressed, and what went in.
    """

    positions: int = 0
    rows: int = 0
    rejected: int = 0
    reason: str = ""
    records: int = 0
    framed_bytes: int = 0
    planned_bytes: int = 0
    reference_bytes: int = 0
    histogram: Histogram | None = None
    packed: int = 0
    unpacked: int = 0
    problems: list[InputError] = field(default_factory=list)

    @property
    def kept(self) -> float:
        """The share of rows that become records."""
        return self.records / self.rows if self.rows else 1.0


def estimate_run(
    context: RunContext, files: Sequence[InputFile], ranges: Sequence[InputRange]
) -> Estimate:
    """What a run would do; only reads.

    Args:
      context: the prepared run; none of its folders need be there.
      files: the inventory.
      ranges: the input ranges.

    Raises:
      InputError: the input cannot be read.
    """
    source = context.source
    whole = sum(file.size for file in files) <= WHOLE_BYTES
    sample = _look_at(context, _settled(context, ranges) if whole else [], whole=True)
    if not whole:
        sample = _look_at(context, source.excerpts(ranges), whole=False)
    if source.plans_unread:
        splits = _from_plan(context, _planned_unread(context, ranges), sample)
    elif sample.histogram is not None:
        splits = _from_plan(context, sample.histogram, sample)
    else:
        splits = _in_proportion(context, ranges, sample)
    positions = sum(spot.num_positions for spot in ranges)
    scale = positions / sample.positions if sample.positions else 1.0
    rows = round(sample.rows * scale)
    if context.exchange == "reference":
        in_scratch = sample.reference_bytes + INDEX_BYTES * sample.rows
    else:
        in_scratch = sample.framed_bytes + INDEX_BYTES * sample.records
    return Estimate(
        is_exact=whole and not (source.plans_unread and sample.rejected),
        rows=rows,
        rejected=round(sample.rejected * scale),
        reason=sample.reason,
        splits=splits,
        scratch_bytes=round(in_scratch * scale),
    )


def estimate_seconds(
    source: str,
    exchange: str,
    num_bytes: int,
    ranges: int,
    made: Estimate,
    workers: int,
) -> float:
    """How long the run would take on a machine like the one that was measured.

    Args:
      source: the kind of input.
      exchange: how rows reach their shards.
      num_bytes: of the input.
      ranges: how many there are.
      made: what is written.
      workers: threads of the embedded runner.
    """
    rates = REFER_RATES if exchange == "reference" else READ_RATES
    reading = num_bytes / rates[source] / max(1, min(workers, ranges))
    writing = made.bytes / WRITE_RATE / max(1, min(workers, made.shards))
    return START_SECONDS + reading + writing


def _settled(context: RunContext, ranges: Sequence[InputRange]) -> list[InputRange]:
    source = context.source
    if not source.needs_survey(ranges):
        return source.settle(ranges, [0] * len(ranges))
    return source.settle(ranges, [source.survey(spot) for spot in ranges])


def _look_at(
    context: RunContext, spots: Sequence[InputRange], *, whole: bool
) -> _Sample:
    """Reads and encodes these parts of the input, typed as all of them together ask."""
    sample = _Sample()
    if whole and not context.source.plans_unread:
        sample.histogram = Histogram.empty(context.num_splits, context.bits)
    read: list[tuple[InputRange, list[Rows]]] = []
    final: Bits = ()
    for spot in spots:
        try:
            batches = list(context.source.read(spot, ()))
        except InputError as error:
            if whole:
                raise
            # A part may begin where no row does, as it seems: the others tell enough.
            sample.problems.append(error)
            continue
        read.append((spot, batches))
        for rows in batches:
            final = or_bits(final, rows.observed)
    if sample.problems and not read:
        raise sample.problems[0]
    packer = zlib.compressobj(GZIP_LEVEL)
    for spot, batches in read:
        sample.positions += spot.num_positions
        if any(context.source.touched(final, rows.observed, final) for rows in batches):
            batches = list(context.source.read(spot, final))
        for rows in batches:
            framed = _add(context, spot, rows, final, sample)
            if context.job.compression == "gzip" and sample.unpacked < _PACKED_BYTES:
                offsets, data = array_parts(framed)
                body = data.data[offsets[0] : offsets[-1]]
                sample.packed += len(packer.compress(body))
                sample.unpacked += len(body)
        if context.source.plans_unread or context.exchange == "reference":
            for rows in context.source.refer(spot):
                assert rows.weights is not None  # known unread
                sample.planned_bytes += int(rows.weights.sum())
                offsets, _ = array_parts(rows.batch[REFERENCE])
                sample.reference_bytes += int(offsets[-1] - offsets[0])
    sample.packed += len(packer.flush())
    return sample


def _add(
    context: RunContext, spot: InputRange, rows: Rows, final: Bits, sample: _Sample
) -> pa.BinaryArray:
    """Adds a batch to the sample; gives its framed records."""
    schema = context.source.schema(final)
    framed, kept, refused = encode_and_frame(rows.batch, schema)
    lengths = np.diff(array_parts(framed)[0])
    reasons = [reject.reason for reject in rows.rejects] + [why for _, why in refused]
    sample.rows += rows.batch.num_rows + len(rows.rejects)
    sample.rejected += len(reasons)
    sample.reason = sample.reason or next(iter(reasons), "")
    sample.records += len(framed)
    sample.framed_bytes += int(lengths.sum())
    if sample.histogram is not None and rows.batch.num_rows:
        keys, splits = place_rows(context, spot, rows)
        sample.histogram += _counted(context, keys[kept], splits[kept], lengths)
    return framed


def _counted(
    context: RunContext, keys: U64, splits: npt.NDArray[np.uint8], weights: I64
) -> Histogram:
    order = np.argsort(splits, kind="stable")
    counts = np.bincount(splits, minlength=context.num_splits)
    return Histogram.of(keys[order], weights[order], counts.tolist(), context.bits)


def _planned_unread(context: RunContext, ranges: Sequence[InputRange]) -> Histogram:
    """The very histogram of the run, where file sizes are all that it counts."""
    histogram = Histogram.empty(context.num_splits, context.bits)
    for spot in ranges:
        histogram += histogram_of(context, RangeResult(spot, 0, 0, ()))
    return histogram


def _from_plan(
    context: RunContext, histogram: Histogram, sample: _Sample
) -> tuple[SplitEstimate, ...]:
    """The splits as the run will plan them; what is planned unread grows by encoding."""
    plan: ShardPlan = plan_shards(histogram, context.job.sharding, context.split_names)
    unread = context.source.plans_unread
    kept = sample.kept if unread else 1.0
    growth = sample.framed_bytes / sample.planned_bytes if sample.planned_bytes else 1.0
    made = []
    for split in plan.splits:
        num_bytes = sum(split.shard_bytes) * (growth if unread else 1.0)
        made.append(
            SplitEstimate(
                split.split,
                round(sum(split.shard_records) * kept),
                round(num_bytes * _packing(sample)),
                split.num_shards,
            )
        )
    return tuple(made)


def _in_proportion(
    context: RunContext, ranges: Sequence[InputRange], sample: _Sample
) -> tuple[SplitEstimate, ...]:
    """Each split's share of what the sample tells of the whole."""
    made = []
    for name, positions in _positions(context, ranges):
        share = positions / sample.positions if sample.positions else 0.0
        records = round(sample.records * share)
        num_bytes = round(sample.framed_bytes * share)
        shards = context.job.sharding.shards_for(num_bytes, records)
        stored = round(num_bytes * _packing(sample))
        made.append(SplitEstimate(name, records, stored, shards))
    return tuple(made)


def _positions(
    context: RunContext, ranges: Sequence[InputRange]
) -> Iterator[tuple[str, float]]:
    """How much of the input goes into each split, in the ranges' unit."""
    own = context.split_names[len(context.job.splits) :]  # the format's test files
    ours = sum(spot.num_positions for spot in ranges if spot.split not in own)
    for split, fraction in zip(context.job.splits, context.fractions, strict=True):
        yield split.name, ours * float(fraction)
    for name in own:
        yield name, sum(spot.num_positions for spot in ranges if spot.split == name)


def _packing(sample: _Sample) -> float:
    return sample.packed / sample.unpacked if sample.unpacked else 1.0
