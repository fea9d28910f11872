"""Estimates what a job would write: rows, records, shards, disk space and time.

Small input is read as a whole, and the shard plan is exactly that of the run. Of large
input some ranges, spread evenly, are read and encoded as the run would, and the rest is
extrapolated. Where the plan is made from file sizes (images), nothing has to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange, RangeResult
from recordmill.transforms.exchange.plan import Histogram, plan_shards
from recordmill.transforms.sources.base import Source
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.sample_input import Sample, sample_input
from recordmill.transforms.tasks.sort_range import range_histogram

WHOLE_BYTES = 8 << 20  # smaller input is read as a whole
INDEX_BYTES = 24  # of each record in a sorted run's index

# Bytes a second of one worker, measured on two cores and a local disk (tests/bench).
START_SECONDS = 1.2  # Python, Beam, the pipeline; publishing
WRITE_RATE = 300e6


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
        written if the whole input were like the sampled range with the smallest
        records.
    """

    is_exact: bool
    rows: int
    rejected: int
    reason: str
    splits: tuple[SplitEstimate, ...]
    scratch_bytes: int
    certain_share: float = 1.0

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
        _resolve_ranges(context, ranges) if whole else source.sample_ranges(ranges)
    )
    sample = sample_input(context, input_ranges, whole=whole)
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
    """Returns the lower bound of the bytes, as a share of the estimate."""
    if is_exact:
        share = 0.95
    elif context.source.sizes_known_upfront and not sample.rejected:
        share = 0.9  # all file sizes are known; only rejects can make it less
    elif sample.framed_bytes:
        share = 0.9 * min(
            1.0, sample.lowest_density * sample.positions / sample.framed_bytes
        )
    else:
        share = 0.0
    # The compression ratio varies more between ranges than the size of records does.
    return share if context.job.compression == "none" else share / 2


def estimate_seconds(
    source: Source,
    exchange: str,
    num_bytes: int,
    ranges: int,
    made: Estimate,
    workers: int,
) -> float:
    """Estimates the seconds of a run on a machine like the one that was measured.

    Args:
      source: of the input; it has the rates.
      exchange: how records reach their shards.
      num_bytes: of the input.
      ranges: number of input ranges.
      made: the estimate of what is written.
      workers: threads of the embedded runner.
    """
    by_reference = exchange == "reference"
    rate = source.reference_rate if by_reference else source.read_rate
    reading = num_bytes / rate / max(1, min(workers, ranges))
    writing = made.bytes / WRITE_RATE / max(1, min(workers, made.shards))
    return START_SECONDS + reading + writing


def _resolve_ranges(
    context: RunContext, ranges: Sequence[InputRange]
) -> list[InputRange]:
    source = context.source
    if not source.needs_survey(ranges):
        return source.resolve_ranges(ranges, [0] * len(ranges))
    return source.resolve_ranges(
        ranges, [source.survey(input_range) for input_range in ranges]
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
