"""What a job would write, without running it: rows, records, shards, space and time.

Small input is read wholly, and then the shard plan is the one that the run will make.
Of large input parts spread over it are read and encoded as the run would; all else is
in proportion. Where the plan counts file sizes (pictures) it needs no reading at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recordmill.schemas.ranges import InputFile, InputRange, RangeResult
from recordmill.transforms.exchange.plan import Histogram, plan_shards
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.sample_input import Sample, sample_input
from recordmill.transforms.tasks.sort_range import range_histogram

WHOLE_BYTES = 8 << 20  # input up to this is read wholly
INDEX_BYTES = 24  # of each record in a sorted run's index

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
      least: the share of all these bytes that is needed for sure, as far as the parts
        that were read tell: were the whole input like the lightest of them.
    """

    is_exact: bool
    rows: int
    rejected: int
    reason: str
    splits: tuple[SplitEstimate, ...]
    scratch_bytes: int
    least: float = 1.0

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
    """What a run would do; only reads.

    Args:
      context: the prepared run; none of its folders need be there.
      files: the inventory, files that cells may name too.
      ranges: the input ranges.

    Raises:
      InputError: the input cannot be read.
    """
    source = context.source
    whole = sum(file.size for file in files) <= WHOLE_BYTES
    input_ranges = _settled(context, ranges) if whole else source.sample_ranges(ranges)
    sample = sample_input(context, input_ranges, whole=whole)
    if source.sizes_known_upfront:
        splits = _from_plan(context, _histogram_from_sizes(context, ranges), sample)
    elif sample.histogram is not None:
        splits = _from_plan(context, sample.histogram, sample)
    else:
        splits = _in_proportion(context, ranges, sample)
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
        least=_least(context, sample, is_exact=is_exact),
    )


def _least(context: RunContext, sample: Sample, *, is_exact: bool) -> float:
    """The share of an estimate that is sure; see Estimate."""
    if is_exact:
        sure = 0.95
    elif context.source.sizes_known_upfront and not sample.rejected:
        sure = 0.9  # the sizes of all files are known; only rejects can make it less
    elif sample.framed_bytes:
        sure = 0.9 * min(1.0, sample.lightest * sample.positions / sample.framed_bytes)
    else:
        sure = 0.0
    # How far records shrink differs more from part to part than their size.
    return sure if context.job.compression == "none" else sure / 2


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
        return source.resolve_ranges(ranges, [0] * len(ranges))
    return source.resolve_ranges(
        ranges, [source.survey(input_range) for input_range in ranges]
    )


def _histogram_from_sizes(
    context: RunContext, ranges: Sequence[InputRange]
) -> Histogram:
    """The very histogram of the run, where file sizes are all that it counts."""
    histogram = Histogram.empty(context.num_splits, context.bucket_bits)
    for input_range in ranges:
        histogram += range_histogram(context, RangeResult(input_range, 0, 0, ()))
    return histogram


def _from_plan(
    context: RunContext, histogram: Histogram, sample: Sample
) -> tuple[SplitEstimate, ...]:
    """The splits as the run will plan them; what is planned unread grows by encoding."""
    plan = plan_shards(histogram, context.job.sharding, context.split_names)
    unread = context.source.sizes_known_upfront
    kept = sample.kept if unread else 1.0
    growth = sample.framed_bytes / sample.planned_bytes if sample.planned_bytes else 1.0
    made = []
    for split in plan.splits:
        num_bytes = sum(split.shard_bytes) * (growth if unread else 1.0)
        made.append(
            SplitEstimate(
                split.split,
                round(sum(split.shard_records) * kept),
                round(num_bytes * sample.packing),
                split.num_shards,
            )
        )
    return tuple(made)


def _in_proportion(
    context: RunContext, ranges: Sequence[InputRange], sample: Sample
) -> tuple[SplitEstimate, ...]:
    """Each split's share of what the sample tells of the whole."""
    made = []
    for name, positions in _positions(context, ranges):
        share = positions / sample.positions if sample.positions else 0.0
        records = round(sample.records * share)
        num_bytes = round(sample.framed_bytes * share)
        shards = context.job.sharding.shards_for(num_bytes, records)
        stored = round(num_bytes * sample.packing)
        made.append(SplitEstimate(name, records, stored, shards))
    return tuple(made)


def _positions(
    context: RunContext, ranges: Sequence[InputRange]
) -> Iterator[tuple[str, float]]:
    """How much of the input goes into each split, in the ranges' unit."""
    own = context.split_names[len(context.job.splits) :]  # the format's test files
    ours = sum(
        input_range.num_positions
        for input_range in ranges
        if input_range.split not in own
    )
    for split, fraction in zip(context.job.splits, context.fractions, strict=True):
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
