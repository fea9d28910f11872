"""Summarizes one feature, batch by batch: its missing values and its statistics."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, array_parts, value_lengths
from recordmill.transforms.cast.text_values import without_missing
from recordmill.transforms.images.header import ImageHeaderError, read_header
from recordmill.transforms.sources.text_columns import (
    TypeFlag,
    column_dtype,
    convert_columns,
    has_missing_words,
    is_text,
)

# A bin is 2**level wide and begins at a multiple of its width: bin 3 at level -1 has the
# numbers from 1.5 to below 2. If new numbers need too many bins, the level is raised and
# pairs of bins are joined. So every count is exact, in bounded memory:
#
#     [1, 2, 3] at level 0      bins 1, 2, 3: 1 each
#     and 9000                  level 2: bins of 4; 0: 3 numbers, 2250: 1 number

NUM_BINS = 1 << 14  # maximum
_EXACT_BITS = 53  # of a float64: the number of a bin must fit
_MAX_SHIFT = 63
_ZERO_EXPONENT = -1200
_FINEST = -1074  # every float64 is a multiple of 2**-1074, so no bin need be narrower

F64 = npt.NDArray[np.float64]


class NumberBins:
    """A histogram of finite numbers, with bins of width 2**level from `first` on."""

    def __init__(self, level: int) -> None:
        """Initializes without numbers; no bin will be narrower than at this level."""
        self.level = level
        self.first = 0
        self.counts: I64 = np.zeros(0, np.int64)

    def add(self, numbers: F64, low: float, high: float) -> None:
        """Adds finite numbers; `low` and `high` are the limits of all added numbers."""
        level = max(self.level, _level_of(low, high))
        bins = _bins_of(numbers, level)
        shift = min(level - self.level, _MAX_SHIFT)
        old_bins = (
            self.first + np.arange(len(self.counts))
        ) >> shift  # joined in pairs
        first = int(min([bins.min(), *old_bins[:1]]))
        stop = int(max([bins.max(), *old_bins[-1:]])) + 1
        counts = np.bincount(bins - first, minlength=stop - first)
        np.add.at(counts, old_bins - first, self.counts)
        self.level, self.first, self.counts = level, first, counts


def _level_of(low: float, high: float) -> int:
    """Returns the lowest level at which the bins from low to high are few enough."""
    magnitude = _exponent(max(abs(low), abs(high)))
    spread = _exponent(high / 2 - low / 2) + 1  # halves, as it may overflow
    level = max(magnitude - _EXACT_BITS, spread - NUM_BINS.bit_length())
    ends = np.array([low, high])
    while np.ptp(_bins_of(ends, level)) >= NUM_BINS:
        level += 1
    return level


def _exponent(number: float) -> int:
    """Returns the number of bits before the binary point; for 0, a very low number."""
    return math.frexp(number)[1] if number else _ZERO_EXPONENT


def _bins_of(numbers: F64, level: int) -> I64:
    """Returns the number of each number's bin: floor(number / 2**level), exactly."""
    scaled = np.ldexp(numbers, -level)
    bins = np.floor(scaled).astype(np.int64)
    # Negative numbers that underflow to 0 belong to the bin below 0.
    bins -= (scaled == 0) & (numbers < 0)
    return bins


SHOWN_BINS = 40  # maximum number of intervals in a histogram
_TAIL = 0.005  # share of numbers on each side that is left out if it hides the others
# leave the tails out if all others are in at most this share of the bins
_CROWDED_SHARE = 0.2

Number = int | float


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram with exact counts of the numbers in each of its intervals."""

    edges: tuple[float, ...]  # starts of the intervals, and the end of the last one
    # numbers in each interval. An edge belongs to the interval that begins there; the
    # last edge belongs to the last interval.
    counts: tuple[int, ...]
    num_below: int = 0  # numbers below the first interval
    num_above: int = 0  # numbers above the last interval
    is_discrete: bool = False  # each interval is a single integer


@dataclass(slots=True)
class NumberSummary:
    """A summary of numbers; NaN and infinities are counted, but not summarized."""

    is_integer: bool  # all numbers are integers
    num_values: int = 0  # number of numbers, including NaN and infinities
    num_nans: int = 0
    infinities: int = 0
    minimum: Number | None = None  # of the finite numbers; None if there are none
    maximum: Number | None = None
    _num_finite: int = 0
    _mean: float = 0.0
    _squared_deviations: float = 0.0
    _bins: NumberBins = field(init=False)

    def __post_init__(self) -> None:
        self._bins = NumberBins(0 if self.is_integer else _FINEST)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Adds numbers of any dtype."""
        self.num_values += len(values)
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            if not finite.all():
                nans = int(np.isnan(values).sum())
                self.num_nans += nans
                values = values[finite]
                self.infinities += int((~finite).sum()) - nans
        if not len(values):
            return
        low, high = values.min().item(), values.max().item()
        self.minimum = low if self.minimum is None else min(self.minimum, low)
        self.maximum = high if self.maximum is None else max(self.maximum, high)
        numbers = values.astype(np.float64)
        self._bins.add(numbers, float(self.minimum), float(self.maximum))
        # Mean and squared deviations of two sets are joined as in Chan et al. (1979).
        count, old_count = len(numbers), self._num_finite
        self._num_finite += count
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(numbers.mean())
            squares = float(np.square(numbers - mean).sum())
        step, share = mean - self._mean, count / self._num_finite
        self._mean += step * share
        # A product that overflows is inf; a power would raise an error.
        self._squared_deviations += squares + step * step * old_count * share

    @property
    def mean(self) -> float | None:
        """Returns the mean; None if there is no finite number, or it overflows."""
        return self._mean if self._num_finite and math.isfinite(self._mean) else None

    @property
    def deviation(self) -> float | None:
        """Returns the standard deviation; None if it is undefined or overflows."""
        if not self._num_finite:
            return None
        deviation = (
            math.sqrt(self._squared_deviations / self._num_finite)
            if self._squared_deviations >= 0
            else 0
        )
        return deviation if math.isfinite(deviation) else None

    @property
    def median(self) -> float | None:
        """Returns the lower of two medians; None if there is no finite number."""
        if self.minimum is None or self.maximum is None:
            return None
        bins, middle = self._bins, (self._num_finite + 1) // 2
        number = bins.first + int(np.searchsorted(np.cumsum(bins.counts), middle))
        if self.is_integer and bins.level == 0:
            return number
        center = _edge(2 * number + 1, bins.level - 1)
        return min(max(center, self.minimum), self.maximum)

    @property
    def median_error(self) -> float:
        """Returns the maximum error of the median: half of a bin; 0 if it is exact."""
        level = self._bins.level
        is_exact = self.minimum == self.maximum or (self.is_integer and level == 0)
        return 0.0 if is_exact else _edge(1, level - 1)

    @property
    def histogram(self) -> Histogram | None:
        """Returns SHOWN_BINS intervals or fewer; leaves out tails that hide the bulk."""
        if not self._num_finite:
            return None
        bins = self._bins
        start, stop = 0, len(bins.counts)
        total = np.cumsum(bins.counts)
        low = int(np.searchsorted(total, _TAIL * self._num_finite, side="right"))
        high = int(np.searchsorted(total, (1 - _TAIL) * self._num_finite)) + 1
        if stop > SHOWN_BINS and high - low < _CROWDED_SHARE * stop:
            start, stop = low, high
        width = 1
        while _span(bins.first + start, bins.first + stop, width) > SHOWN_BINS:
            width *= 2
        first = (bins.first + start) // width
        span = _span(bins.first + start, bins.first + stop, width)
        counts = np.zeros(span, np.int64)
        np.add.at(
            counts,
            (bins.first + np.arange(start, stop)) // width - first,
            bins.counts[start:stop],
        )
        edges = [_edge((first + i) * width, bins.level) for i in range(span + 1)]
        discrete = self.is_integer and bins.level == 0 and width == 1
        above = self._num_finite - int(total[stop - 1])
        if not discrete and span > 1 and not above and edges[-2] == self.maximum:
            counts[-2] += counts[-1]  # only the maximum, which is the last edge
            counts, edges = counts[:-1], edges[:-1]
        below = int(total[start - 1]) if start else 0
        return Histogram(tuple(edges), tuple(counts.tolist()), below, above, discrete)


def _edge(number: int, level: int) -> float:
    """Returns the start of a bin, at most the largest float."""
    try:
        return math.ldexp(number, level)
    except OverflowError:
        return math.copysign(sys.float_info.max, number)


def _span(start: int, stop: int, width: int) -> int:
    """Returns the number of intervals of a width that cover bins start to stop."""
    return (stop - 1) // width - start // width + 1


# A limited number of distinct values is counted. If there are more, the rarest are
# dropped as in Misra and Gries (1982): the count of the first excess value is subtracted
# from all counts. A count is then too low by at most the sum of these deductions, so the
# commonest values stay, and their counts are lower bounds.

MAX_COUNTED_VALUES = 10_000  # maximum number of distinct values that are counted
MAX_COUNTED_BYTES = 1 << 20  # maximum size of these values together
# maximum size of a counted value; longer values are counted together
MAX_COUNTED_VALUE_BYTES = 256
_PENDING = 4  # counts are joined once there are this many times the maximum

Value = str | bytes | bool


@dataclass(frozen=True, slots=True)
class CommonValues:
    """The commonest values."""

    # (value, count) pairs, the commonest first; equal counts in order of the values
    values: tuple[tuple[Value, int], ...] = ()
    # number of all values, including values that are not counted separately
    total: int = 0
    # number of distinct counted values; of all values if `complete`
    num_distinct: int = 0
    max_error: int = 0  # maximum error of a count, which is never too high
    num_long: int = 0  # values above MAX_BYTES, which are not counted separately

    @property
    def max_count(self) -> int:
        """Returns an upper bound of the count of any counted value."""
        return self.max_error + (self.values[0][1] if self.values else 0)

    @property
    def is_complete(self) -> bool:
        """Returns True if every distinct value is counted."""
        return not (self.max_error or self.num_long)


class ValueCounts:
    """A counter of distinct values, with bounded memory."""

    def __init__(
        self, max_values: int = MAX_COUNTED_VALUES, max_bytes: int = MAX_COUNTED_BYTES
    ) -> None:
        self._max_values, self._max_bytes = max_values, max_bytes
        self._pending: list[pa.Table] = []
        self._num_pending = self._pending_bytes = 0
        self._total = self._max_error = self._num_long = 0

    def add(self, values: pa.Array) -> None:
        """Adds non-null values of text, bytes or bool."""
        self._total += len(values)
        if not pa.types.is_boolean(values.type):
            short = pc.less_equal(pc.binary_length(values), MAX_COUNTED_VALUE_BYTES)
            short_values = values.filter(short)
            self._num_long += len(values) - len(short_values)
            values = short_values
        counted = pc.value_counts(values)
        self._append(
            pa.table([counted.field("values"), counted.field("counts")], ["v", "n"])
        )
        full = self._num_pending > _PENDING * self._max_values
        if full or self._pending_bytes > _PENDING * self._max_bytes:
            pruned = self._prune_counts(self._join_counts())
            self._pending, self._num_pending, self._pending_bytes = [], 0, 0
            self._append(pruned)

    def _append(self, counts: pa.Table) -> None:
        self._pending.append(counts)
        self._num_pending += len(counts)
        self._pending_bytes += int(_lengths(counts).sum())

    def _join_counts(self) -> pa.Table:
        """Returns the counts of all pending values, the commonest first."""
        grouped = (
            pa.concat_tables(self._pending).group_by("v").aggregate([("n", "sum")])
        )
        joined = pa.table([grouped["v"], grouped["n_sum"]], ["v", "n"])
        return joined.sort_by([("n", "descending"), ("v", "ascending")])

    def _prune_counts(self, joined: pa.Table) -> pa.Table:
        """Returns the counts without the rarest values."""
        fitting = np.searchsorted(np.cumsum(_lengths(joined)), self._max_bytes, "right")
        num_kept = min(self._max_values, int(fitting))
        if len(joined) <= num_kept:
            return joined
        deduction = joined["n"][num_kept].as_py()
        self._max_error += deduction
        joined = joined[:num_kept]
        joined = joined.set_column(1, "n", pc.subtract(joined["n"], deduction))
        return joined.filter(pc.greater(joined["n"], 0))

    def commonest(self, limit: int) -> CommonValues:
        """Returns the commonest values, at most `limit`."""
        if not self._pending:
            return CommonValues()
        joined = self._join_counts()
        first = joined[:limit]
        return CommonValues(
            values=tuple(
                zip(first["v"].to_pylist(), first["n"].to_pylist(), strict=True)
            ),
            total=self._total,
            num_distinct=len(joined),
            max_error=self._max_error,
            num_long=self._num_long,
        )


def _lengths(counts: pa.Table) -> I64:
    """Returns the size of each value in bytes."""
    values = counts["v"]
    if pa.types.is_boolean(values.type):
        return np.ones(len(values), np.int64)
    lengths: I64 = pc.binary_length(values).to_numpy().astype(np.int64)
    return lengths


SHOWN_VALUES = 10
_REASON_CHARACTERS = 200


@dataclass(slots=True)
class ImageSummary:
    """A summary of image files."""

    widths: NumberSummary = field(
        default_factory=partial(NumberSummary, is_integer=True)
    )
    heights: NumberSummary = field(
        default_factory=partial(NumberSummary, is_integer=True)
    )
    # sizes of the files
    bytes: NumberSummary = field(
        default_factory=partial(NumberSummary, is_integer=True)
    )
    num_damaged: int = 0  # number of files without a readable header
    problem: str = ""  # of the first damaged file
    kinds: ValueCounts = field(default_factory=ValueCounts)  # "png, 3 channels"
    sizes: ValueCounts = field(default_factory=ValueCounts)  # "640 × 480"

    def add(self, files: pa.BinaryArray) -> None:
        """Adds non-null image files."""
        self.bytes.add(value_lengths(files))
        headers = []
        # One Python call per image, 13 us for a JPEG: its header is read byte by byte.
        for file in files:
            try:
                headers.append(read_header(file.as_py()))
            except ImageHeaderError as error:
                self.num_damaged += 1
                self.problem = self.problem or str(error)[:_REASON_CHARACTERS]
        kinds = [
            f"{header.kind}, {format_count(header.depth, 'channel')}"
            for header in headers
        ]
        sizes = [f"{header.width:,} × {header.height:,}" for header in headers]
        self.kinds.add(pa.array(kinds, pa.string()))
        self.sizes.add(pa.array(sizes, pa.string()))
        self.widths.add(np.array([header.width for header in headers], np.int64))
        self.heights.add(np.array([header.height for header in headers], np.int64))


TEXT_BYTES = 16 << 20  # maximum size of the counted values of all features
BATCH_NUMBERS = 1 << 18  # numbers of a batch that are read, for arrays and long lists


class ColumnSummary:
    """A summary of the values of a feature; parts that do not apply to it are None."""

    def __init__(
        self, feature: FeatureSpec, num_splits: int, num_features: int = 1
    ) -> None:
        """Initializes without rows; `num_features` features share the memory."""
        self.feature = feature
        self.num_missing = [0] * num_splits  # rows without a value, for each split
        self.num_rows = 0  # rows with a value
        self.num_empty = 0  # rows whose text or list is empty
        # rows whose numbers were read; fewer than `rows` if rows have many numbers
        self.num_sampled_rows = 0
        is_image = feature.content is Content.IMAGE
        in_bytes = is_image or feature.content is Content.ARRAY
        is_text = feature.dtype in ("string", "bytes") and not in_bytes
        is_counted = is_text or (feature.dtype == "bool" and not in_bytes)
        is_number = not (is_image or is_counted) and feature.num_classes is None
        whole = not feature.dtype.startswith("float")
        kept_bytes = min(MAX_COUNTED_BYTES, TEXT_BYTES // num_features)
        counts = ValueCounts(max_bytes=kept_bytes)
        self._lengths = NumberSummary(is_integer=True)
        self._counts = counts if is_counted else None
        # of all values in the rows that were read
        self.numbers = NumberSummary(is_integer=whole) if is_number else None
        # sizes of texts in characters, of bytes and serialized values in bytes
        self.sizes = NumberSummary(is_integer=True) if is_text else None
        self.images = ImageSummary() if is_image else None

    @property
    def lengths(self) -> NumberSummary | None:
        """Returns a summary of the number of values per row; None if it is constant."""
        lengths = self._lengths
        return lengths if lengths.minimum != lengths.maximum else None

    @cached_property
    def common_values(self) -> CommonValues | None:
        """Returns the commonest values of text, bytes and bools; call it after `add`."""
        return None if self._counts is None else self._counts.commonest(SHOWN_VALUES)

    def add(self, column: pa.Array, split: int) -> None:
        """Adds the column of a batch whose rows are all in one split."""
        self.num_missing[split] += column.null_count
        present = column.drop_null() if column.null_count else column
        self.num_rows += len(present)
        if pt.is_list(present.type):
            lengths = pc.list_value_length(present).to_numpy(zero_copy_only=False)
            self._lengths.add(lengths)
            self.num_empty += int((lengths == 0).sum())
        if self.images is not None:
            self.images.add(values_of(present))
        if self._counts is not None:
            values = values_of(present)
            self._counts.add(values)
            if self.sizes is not None:
                is_string = pt.is_string(values.type)
                measure = pc.utf8_length if is_string else pc.binary_length
                sizes = measure(values).to_numpy(zero_copy_only=False)
                self.sizes.add(sizes)
                if not pt.is_list(present.type):
                    self.num_empty += int((sizes == 0).sum())
        if self.numbers is not None:
            numbers = numbers_of(present, self.feature)
            # From a batch with very many numbers, evenly spaced rows are read.
            step = -(-len(numbers) // BATCH_NUMBERS)
            if step > 1 and len(present) > 1:
                present = present.take(pa.array(np.arange(0, len(present), step)))
                numbers = numbers_of(present, self.feature)
            self.num_sampled_rows += len(present)
            self.numbers.add(numbers)


def values_of(column: pa.Array) -> pa.Array:
    """Returns all values of a column; lists of any depth are flattened."""
    while pt.is_list(column.type):
        column = column.flatten()
    return column.drop_null() if column.null_count else column


def numbers_of(column: pa.Array, feature: FeatureSpec) -> npt.NDArray[Any]:
    """Returns all numbers of a column; arrays are read from their bytes."""
    values = values_of(column)
    if feature.content is not Content.ARRAY:
        numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return numbers
    offsets, data = array_parts(values)
    used = data[offsets[0] : offsets[-1]] if len(values) else data[:0]
    return used.view(np.dtype(feature.dtype).newbyteorder("<"))


#     ["1", "", "3"]   INTEGER            3 rows, 1 null, 1 to 3,  values {"1": 1, "3": 1}
#     ["2.5"]          DECIMAL            1 row,  0 null, 2.5,     values {"2.5": 1}
#     merged           INTEGER | DECIMAL  4 rows, 1 null, 1 to 3,  3 distinct values
#
# The statistics of other ranges save work: text is not parsed as numbers again, and
# values above the limit are not counted. So the statistics of a range may depend on other
# ranges, but the statistics of the whole column (such as `dtype` and `limits`) do not.

MAX_DISTINCT = 1000  # maximum number of distinct values that are counted
MAX_VALUE_BYTES = 64  # maximum size of a stored value; a longer one has a digest
_FIRST_ROWS = 2 * MAX_DISTINCT  # enough to detect most columns with too many values
_DIGEST = b"\xff"  # prefix of a digest: this byte is not used in UTF-8


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of a column, or of some of its rows; the default describes no rows."""

    # type flags of its cells; for a text column they may be incomplete
    flags: TypeFlag = TypeFlag.NOTHING
    num_rows: int = 0  # cells, including missing ones
    num_nulls: int = 0  # missing cells
    # cells like NA, which are missing if the column becomes numbers
    num_missing_words: int = 0
    # lowest and highest number (without NaN), None if there is none; meaningless if the
    # column's final type is not a number
    numbers: tuple[Number, Number] | None = None
    # UTF-8 bytes of the shortest and the longest text of a cell, None if there is none
    lengths: tuple[int, int] | None = None
    # rows of each distinct text, as UTF-8 (a digest of a long text); None if there are
    # more than MAX_DISTINCT
    values: Mapping[bytes, int] | None = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Returns the dtype that the column is converted to."""
        return column_dtype(self.flags)

    @property
    def missing(self) -> int:
        """Returns the number of missing values of the column."""
        return self.num_nulls + (
            self.num_missing_words if has_missing_words(self.flags) else 0
        )

    @property
    def limits(self) -> tuple[Number, Number] | None:
        """Returns the lowest and highest value of a column of numbers, else None."""
        if self.numbers is None or self.dtype == "int64":
            return self.numbers
        if self.dtype == "float32":
            # Convert integers from before the first decimal; and no -0.0.
            low, high = self.numbers
            return float(low) + 0.0, float(high) + 0.0
        return None

    @property
    def num_distinct(self) -> int | None:
        """Returns the number of distinct cells as text; None if above MAX_DISTINCT."""
        return None if self.values is None else len(self.values)

    def texts(self) -> dict[str, int] | None:
        """Returns the rows of each text; None if some texts are not stored."""
        if self.values is None or any(key[:1] == _DIGEST for key in self.values):
            return None
        return {key.decode(): count for key, count in self.values.items()}

    def merge(self, other: ColumnStats) -> ColumnStats:
        """Returns the statistics of both sets of rows, which must not overlap."""
        # None stays None, so the order of merging does not matter.
        values: Counter[bytes] | None = None
        if self.values is not None and other.values is not None:
            values = Counter(self.values)
            values.update(other.values)
        return ColumnStats(
            flags=self.flags | other.flags,
            num_rows=self.num_rows + other.num_rows,
            num_nulls=self.num_nulls + other.num_nulls,
            num_missing_words=self.num_missing_words + other.num_missing_words,
            numbers=_merge_limits(self.numbers, other.numbers),
            lengths=_merge_limits(self.lengths, other.lengths),
            values=values if values is None or len(values) <= MAX_DISTINCT else None,
        )


def column_stats(
    cells: pa.StringArray, expected: int = TypeFlag.NOTHING, counted: bool = True
) -> ColumnStats:
    """Returns the statistics of some cells.

    Args:
      cells: text; null for an empty cell.
      expected: type flags that the column is known to have; saves work.
      counted: count values; False if other ranges already have too many.
    """
    (converted,), (observed_flags,) = convert_columns([cells], [expected])
    flags = TypeFlag(observed_flags)
    words = 0
    if flags & TypeFlag.MISSING and not is_text(flags):
        words = without_missing(cells).null_count - cells.null_count
    is_number = pt.is_integer(converted.type) or pt.is_floating(converted.type)
    return ColumnStats(
        flags=flags,
        num_rows=len(cells),
        num_nulls=cells.null_count,
        num_missing_words=words,
        numbers=_limits_of(converted) if is_number else None,
        lengths=_limits_of(pc.binary_length(cells)),
        values=_count(cells) if counted else None,
    )


def _count(cells: pa.StringArray) -> dict[bytes, int] | None:
    if len(pc.unique(cells[:_FIRST_ROWS])) > MAX_DISTINCT + 1:  # null may be one
        return None
    counted = pc.value_counts(cells.drop_null())
    if len(counted) > MAX_DISTINCT:
        return None
    keys = counted.field("values").cast(pa.binary()).to_pylist()
    counts = counted.field("counts").to_pylist()
    # A Python loop over distinct values: at most MAX_DISTINCT in ten thousand rows.
    return {
        key
        if len(key) <= MAX_VALUE_BYTES
        else _DIGEST + blake2b(key, digest_size=16).digest(): count
        for key, count in zip(keys, counts, strict=True)
    }


def _limits_of(values: pa.Array) -> tuple[Any, Any] | None:
    low, high = pc.min_max(values).as_py().values()  # ignores NaN among others
    return None if low is None or math.isnan(low) else (low, high)


_Ends = TypeVar("_Ends", tuple[int, int] | None, tuple[Number, Number] | None)


def _merge_limits(left: _Ends, right: _Ends) -> _Ends:
    if left is None or right is None:
        return left or right
    return min(left[0], right[0]), max(left[1], right[1])
