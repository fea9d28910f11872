"""Converts the statistics of features into cards: facts, charts and tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.beam_jobs.report.tables import Table, describe_kind, sum_over_splits
from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import escape_unprintable, format_bytes, format_count
from recordmill.transforms.statistics.class_counts import LabelCounts
from recordmill.transforms.statistics.column_summary import (
    MAX_COUNTED_VALUE_BYTES,
    SHOWN_VALUES,
    ColumnSummary,
    CommonValues,
    Histogram,
    NumberSummary,
)
from recordmill.transforms.tasks.rejects import readable_raw

_SHOWN_CHARACTERS = 100


class Property(NamedTuple):
    """A statistic with its name, and a note on how to read it."""

    name: str
    text: str
    note: str = ""


class Chart(NamedTuple):
    """A histogram, with a table of its counts."""

    caption: str  # the quantity on the x axis
    # for each column its interval, its count as text, and its height from 0 to 1
    columns: Sequence[tuple[str, str, float]]
    alt_text: str  # text alternative for screen readers
    table: Table  # the counts of the histogram
    note: str = ""  # a sentence about omitted or estimated parts


class Card(NamedTuple):
    """The statistics of one feature; a wide card has its parts side by side."""

    name: str
    kind: str
    facts: Sequence[Property] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[tuple[str, Table]] = ()
    wide: bool = False


def format_number(number: float | None) -> str:
    """Returns a number with up to six digits; a whole number with all its digits.

    >>> format_number(1234567), format_number(0.1 + 0.2), format_number(1e-9), format_number(None)
    ('1,234,567', '0.3', '1e-09', '–')
    """
    if number is None:
        return "–"
    if isinstance(number, int):
        return f"{number:,}"
    if math.isfinite(number) and number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.6g}"


def format_share(part: float, whole: float) -> str:
    """Returns a share in percent; no share is rounded to 0 % or 100 %.

    >>> format_share(1, 3), format_share(0, 5), format_share(1, 10**6), format_share(999_999, 10**6)
    ('33.3 %', '0 %', '< 0.1 %', '> 99.9 %')
    """
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    if part == whole:
        return "100 %"
    if share < 0.1:
        return "< 0.1 %"
    if share > 99.9:
        return "> 99.9 %"
    return f"{share:.1f} %"


def format_count_and_share(number: int, total: int) -> tuple[str, str]:
    """Returns a count and its share of the total, as texts."""
    return f"{number:,}", format_share(number, total)


def format_name(text: str) -> str:
    """Returns a name from the data without control characters, shortened if too long."""
    is_long = len(text) > _SHOWN_CHARACTERS
    return escape_unprintable(f"{text[: _SHOWN_CHARACTERS - 1]}…" if is_long else text)


# up to this many different values, no chart of their sizes is drawn
_FEW_DISTINCT_VALUES = 40
_COMMON_SHARE = 0.02  # if no value has a larger share, no value is common
_NUM_RARE_VALUES_SHOWN = 5  # rows of the table of values if no value is common


def feature_card(summary: ColumnSummary) -> Card:
    """Returns the card of a feature that is not a label."""
    missing, charts, tables = sum(summary.num_missing), [], []
    facts = _count_properties("Missing", missing, missing + summary.num_rows)
    facts += _count_properties("Empty", summary.num_empty, summary.num_rows)
    images, numbers, common = summary.images, summary.numbers, summary.common_values
    if images is not None and images.bytes.num_values:
        facts.append(_range_property("File size in bytes", images.bytes))
        if images.num_damaged:
            problem = f"such as: {format_name(images.problem)}"
            facts.append(Property("Unreadable", f"{images.num_damaged:,}", problem))
        kinds, sizes = (
            common_values.commonest(SHOWN_VALUES)
            for common_values in (images.kinds, images.sizes)
        )
        tables += _value_tables("Formats and channels", kinds, "Format")
        tables += _value_tables("Most frequent sizes", sizes, "Width × height")
        charts += _number_charts("Width in pixels", images.widths)
        charts += _number_charts("Height in pixels", images.heights)
        charts += _number_charts("File size in bytes", images.bytes)
    if numbers is not None and numbers.num_values:
        facts += _number_properties(numbers)
        if summary.num_sampled_rows < summary.num_rows:
            rows = format_count(summary.num_sampled_rows, "row")
            of_all = f"of {summary.num_rows:,}, evenly sampled"
            facts.append(Property("Estimated from", rows, of_all))
        charts += _number_charts("Values", numbers)
    if common is not None and common.total:
        facts += _value_properties(common)
        tables += _value_tables("Most frequent values", common)
    if (lengths := summary.sizes) is not None and lengths.num_values:
        unit = "Characters" if summary.feature.dtype == "string" else "Bytes"
        facts.append(_range_property(unit, lengths))
        if common is None or common.num_distinct > _FEW_DISTINCT_VALUES:
            charts += _number_charts(unit, lengths)
    if summary.lengths is not None:
        facts.append(_range_property("Values per row", summary.lengths))
        charts += _number_charts("Values per row", summary.lengths)
    name, kind = format_name(summary.feature.name), describe_kind(summary.feature)
    return Card(name, kind, facts, charts, tables, wide=images is not None)


def _count_properties(name: str, number: int, total: int) -> list[Property]:
    return [Property(name, *format_count_and_share(number, total))] if number else []


def _number_properties(numbers: NumberSummary) -> list[Property]:
    facts: list[Property] = []
    if numbers.histogram is not None and numbers.minimum == numbers.maximum:
        facts = [Property("Always", format_number(numbers.minimum))]
    elif numbers.histogram is not None:
        facts = [
            Property("Smallest", format_number(numbers.minimum)),
            Property(
                "Median", _format_rounded(numbers.median), _format_median_error(numbers)
            ),
            Property("Mean", _format_rounded(numbers.mean)),
            Property("Largest", format_number(numbers.maximum)),
            Property("Std. deviation", _format_rounded(numbers.deviation)),
        ]
    facts += _count_properties("NaN", numbers.num_nans, numbers.num_values)
    return facts + _count_properties("Infinite", numbers.infinities, numbers.num_values)


def _format_rounded(number: float | None) -> str:
    """Returns a computed number with four digits; a whole number with all its digits."""
    if isinstance(number, int) or number is None:
        return format_number(number)
    return format_number(float(f"{number:.4g}"))


def _format_median_error(numbers: NumberSummary) -> str:
    """Returns the error bound of the median, or "" if it does not affect its digits."""
    middle, error = numbers.median, numbers.median_error
    if middle is None or _format_rounded(middle - error) == _format_rounded(
        middle + error
    ):
        return ""
    return f"± {error:.1g}"


def _range_property(name: str, numbers: NumberSummary) -> Property:
    low, high = numbers.minimum, numbers.maximum
    if low == high:
        return Property(name, format_number(low))
    text = f"{format_number(low)} to {format_number(high)}"
    return Property(name, text, f"mean {_format_rounded(numbers.mean)}")


def _number_charts(caption: str, numbers: NumberSummary) -> list[Chart]:
    histogram = numbers.histogram
    if histogram is None or numbers.minimum == numbers.maximum:
        return []
    below, above = histogram.num_below, histogram.num_above
    total = sum(histogram.counts) + below + above
    names = _bin_labels(histogram)
    bins = [("below", below)] if below else []
    bins += zip(names, histogram.counts, strict=True)
    bins += [("above", above)] if above else []
    ends = [f"{n:,} {end}" for n, end in ((below, "below"), (above, "above")) if n]
    note = f"Not drawn: {' and '.join(ends)}." if ends else ""
    largest = max(histogram.counts)
    columns = [
        (name, f"{number:,}", number / largest)
        for name, number in zip(names, histogram.counts, strict=True)
    ]
    description = (
        f"Histogram, {caption.lower()}: {format_count(total, 'value')} from "
        f"{format_number(numbers.minimum)} to {format_number(numbers.maximum)}, most "
        f"of them in {names[histogram.counts.index(largest)]}. The table below lists "
        "the counts."
    )
    rows = tuple(
        (name, *format_count_and_share(number, total)) for name, number in bins
    )
    table = Table((caption, "Count", "Share"), rows)
    return [Chart(caption, columns, description, table, note)]


def _bin_labels(histogram: Histogram) -> list[str]:
    """Returns the name of each interval: "4", or "0.5 to 0.75"."""
    edges = histogram.edges
    if histogram.is_discrete:
        return [format_number(edge) for edge in edges[:-1]]
    return [
        f"{format_number(low)} to {format_number(high)}"
        for low, high in itertools.pairwise(edges)
    ]


def _value_properties(common: CommonValues) -> list[Property]:
    more = "" if common.is_complete else "more than "
    facts = [Property("Different values", f"{more}{common.num_distinct:,}")]
    if common.max_error and not _has_certain_maximum(common):
        most = format_count(common.max_count, "time")
        facts.append(Property("Most frequent value", f"at most {most}"))
    if common.num_long:
        name = f"Above {MAX_COUNTED_VALUE_BYTES} bytes"
        facts.append(Property(name, f"{common.num_long:,}", "not counted individually"))
    return facts


def _has_certain_maximum(common: CommonValues) -> bool:
    """Tests whether the counts prove that the listed values are the commonest."""
    return bool(common.values) and common.values[0][1] > common.max_error


def _value_tables(
    title: str, common: CommonValues, heading: str = "Value"
) -> list[tuple[str, Table]]:
    if not _has_certain_maximum(common):
        return []
    bound = "≥ " if common.max_error else ""
    values = common.values
    stands_out = values[0][1] > max(1, _COMMON_SHARE * common.total)
    if not stands_out:
        values = values[:_NUM_RARE_VALUES_SHOWN]
    rows = tuple(
        (_value_text(value), f"{bound}{number:,}", format_share(number, common.total))
        for value, number in values
    )
    largest = values[0][1]
    shares = tuple((number / largest,) for _, number in values) if stands_out else ()
    notes = []
    if (more := common.num_distinct - len(values)) > 0 and common.is_complete:
        notes.append(f"{more:,} more.")
    if common.is_complete and largest == 1 and len(values) > 1:
        notes.append("All values are distinct.")
    if common.max_error:
        notes.append(
            f"Estimated: each count may be up to {common.max_error:,} too low."
        )
    table = Table((heading, "Count", "Share"), rows, shares, " ".join(notes))
    return [(title, table)]


def _value_text(value: str | bytes | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return readable_raw(value)
    return format_name(value) if value else "(empty)"


LISTED_CLASSES = 1_000
NUM_COLOURS = 8  # number of colours in the style sheet


def class_card(label: FeatureSpec, counts: LabelCounts) -> Card:
    """Returns the card of a label, with the rows of each class by split."""
    classes = label.num_classes or 0
    totals = sum_over_splits(counts)
    numbers = list(totals.values())
    present = [number for number in numbers[:classes] if number]
    facts = [Property("Classes", f"{classes:,}")]
    if present:
        facts.append(Property("Smallest class", f"{min(present):,}"))
        facts.append(Property("Largest class", f"{max(present):,}"))
    if empty := classes - len(present):
        facts.append(Property("Empty classes", format_count(empty, "class")))
    if outside := sum(numbers[classes:]):
        facts.append(Property("Outside the classes", f"{outside:,}"))
    tables = (
        [("Rows by class and split", _build_class_table(counts, totals))]
        if totals
        else []
    )
    return Card(format_name(label.name), "", facts, tables=tables, wide=True)


def _build_class_table(counts: LabelCounts, totals: dict[str, int]) -> Table:
    total, largest = sum(totals.values()), max(1, *totals.values())
    rows, shares = [], []
    for name in itertools.islice(totals, LISTED_CLASSES):
        numbers = [split_counts[name] for split_counts in counts.values()]
        figures = (
            *(f"{number:,}" for number in numbers),
            *format_count_and_share(totals[name], total),
        )
        rows.append((format_name(name), *figures))
        parts = numbers if len(numbers) <= NUM_COLOURS else [totals[name]]
        shares.append(tuple(number / largest for number in parts))
    more = len(totals) - len(rows)
    note = f"{more:,} more classes." if more else ""
    columns = ("Class", *map(format_name, counts), "All", "Share")
    return Table(columns, rows, tuple(shares), note)


LISTED_SHARDS = 500


def shards_table(manifest: Manifest) -> Table:
    """Returns a table with the rows and the size of each shard."""
    largest = max((shard.bytes for shard in manifest.shards), default=0)
    rows = [
        (
            format_name(shard.file),
            format_name(name),
            f"{shard.records:,}",
            format_bytes(shard.bytes),
        )
        for name, split in manifest.splits.items()
        for shard in split.shards
    ][:LISTED_SHARDS]
    sizes = [shard.bytes for shard in manifest.shards[:LISTED_SHARDS]]
    shares = tuple((size / max(1, largest),) for size in sizes)
    more = manifest.num_shards - len(rows)
    note = f"{more:,} more shards; manifest.json lists all of them." if more else ""
    return Table(("Shard", "=Split", "Rows", "Size"), rows, shares, note)
