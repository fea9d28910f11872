"""Converts the statistics of features into cards: facts, charts and tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from recordmill.beam_jobs.report.tables import Table, in_all_splits, kind_text
from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count, human_bytes, printable
from recordmill.transforms.statistics.class_counts import LabelCounts
from recordmill.transforms.statistics.column_summary import (
    MAX_BYTES,
    SHOWN_VALUES,
    ColumnSummary,
    CommonValues,
    Histogram,
    NumberSummary,
)
from recordmill.transforms.tasks.rejects import readable_raw

_SHOWN_CHARACTERS = 100


class Fact(NamedTuple):
    """A statistic with its name, and a note on how to read it."""

    name: str
    value: str
    note: str = ""


class Chart(NamedTuple):
    """A histogram, with a table of its counts."""

    caption: str  # the quantity on the x axis
    # for each column its interval, its count as text, and its height from 0 to 1
    columns: Sequence[tuple[str, str, float]]
    told: str  # text alternative for screen readers
    table: Table  # the counts of the histogram
    note: str = ""  # a sentence about omitted or estimated parts


class Card(NamedTuple):
    """The statistics of one feature; a wide card has its parts side by side."""

    name: str
    kind: str
    facts: Sequence[Fact] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[tuple[str, Table]] = ()
    wide: bool = False


def number_text(number: float | None) -> str:
    """Returns a number with up to six digits; a whole number with all its digits.

    >>> number_text(1234567), number_text(0.1 + 0.2), number_text(1e-9), number_text(None)
    ('1,234,567', '0.3', '1e-09', '–')
    """
    if number is None:
        return "–"
    if isinstance(number, int):
        return f"{number:,}"
    if math.isfinite(number) and number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.6g}"


def percent(part: float, whole: float) -> str:
    """Returns a share in percent; no share is rounded to 0 % or 100 %.

    >>> percent(1, 3), percent(0, 5), percent(1, 10**6), percent(999_999, 10**6)
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


def counted(number: int, total: int) -> tuple[str, str]:
    """Returns a count and its share of the total, as texts."""
    return f"{number:,}", percent(number, total)


def shown(text: str) -> str:
    """Returns a name from the data without control characters, shortened if too long."""
    is_long = len(text) > _SHOWN_CHARACTERS
    return printable(f"{text[: _SHOWN_CHARACTERS - 1]}…" if is_long else text)


_FEW = 40  # up to this many different values, no chart of their sizes is drawn
_FLAT = 0.02  # if no value has a larger share, no value is common
_FEW_SHOWN = 5  # rows of the table of values if no value is common


def feature_card(summary: ColumnSummary) -> Card:
    """Returns the card of a feature that is not a label."""
    missing, charts, tables = sum(summary.missing), [], []
    facts = _fact_of("Missing", missing, missing + summary.rows)
    facts += _fact_of("Empty", summary.empty, summary.rows)
    images, numbers, common = summary.images, summary.numbers, summary.common
    if images is not None and images.bytes.values:
        facts.append(_range_fact("File size in bytes", images.bytes))
        if images.damaged:
            problem = f"such as: {shown(images.problem)}"
            facts.append(Fact("Not readable", f"{images.damaged:,}", problem))
        kinds, sizes = (
            common_values.commonest(SHOWN_VALUES)
            for common_values in (images.kinds, images.sizes)
        )
        tables += _value_tables("Formats and channels", kinds, "Format")
        tables += _value_tables("Most frequent sizes", sizes, "Width × height")
        charts += _number_charts("Width in pixels", images.widths)
        charts += _number_charts("Height in pixels", images.heights)
        charts += _number_charts("File size in bytes", images.bytes)
    if numbers is not None and numbers.values:
        facts += _number_facts(numbers)
        if summary.rows_seen < summary.rows:
            rows = count(summary.rows_seen, "row")
            of_all = f"of {summary.rows:,}, evenly spread"
            facts.append(Fact("Estimated from", rows, of_all))
        charts += _number_charts("Values", numbers)
    if common is not None and common.total:
        facts += _value_facts(common)
        tables += _value_tables("Most frequent values", common)
    if (lengths := summary.sizes) is not None and lengths.values:
        unit = "Characters" if summary.feature.dtype == "string" else "Bytes"
        facts.append(_range_fact(unit, lengths))
        if common is None or common.distinct > _FEW:
            charts += _number_charts(unit, lengths)
    if summary.lengths is not None:
        facts.append(_range_fact("Values per row", summary.lengths))
        charts += _number_charts("Values per row", summary.lengths)
    name, kind = shown(summary.feature.name), kind_text(summary.feature)
    return Card(name, kind, facts, charts, tables, wide=images is not None)


def _fact_of(name: str, number: int, total: int) -> list[Fact]:
    return [Fact(name, *counted(number, total))] if number else []


def _number_facts(numbers: NumberSummary) -> list[Fact]:
    facts: list[Fact] = []
    if numbers.histogram is not None and numbers.minimum == numbers.maximum:
        facts = [Fact("Always", number_text(numbers.minimum))]
    elif numbers.histogram is not None:
        facts = [
            Fact("Smallest", number_text(numbers.minimum)),
            Fact("Median", _about(numbers.median), _within(numbers)),
            Fact("Mean", _about(numbers.mean)),
            Fact("Largest", number_text(numbers.maximum)),
            Fact("Std. deviation", _about(numbers.deviation)),
        ]
    facts += _fact_of("NaN", numbers.nans, numbers.values)
    return facts + _fact_of("Infinite", numbers.infinities, numbers.values)


def _about(number: float | None) -> str:
    """Returns a computed number with four digits; a whole number with all its digits."""
    if isinstance(number, int) or number is None:
        return number_text(number)
    return number_text(float(f"{number:.4g}"))


def _within(numbers: NumberSummary) -> str:
    """Returns the error bound of the median, or "" if it does not affect its digits."""
    middle, error = numbers.median, numbers.median_within
    if middle is None or _about(middle - error) == _about(middle + error):
        return ""
    return f"± {error:.1g}"


def _range_fact(name: str, numbers: NumberSummary) -> Fact:
    low, high = numbers.minimum, numbers.maximum
    if low == high:
        return Fact(name, number_text(low))
    text = f"{number_text(low)} to {number_text(high)}"
    return Fact(name, text, f"mean {_about(numbers.mean)}")


def _number_charts(caption: str, numbers: NumberSummary) -> list[Chart]:
    histogram = numbers.histogram
    if histogram is None or numbers.minimum == numbers.maximum:
        return []
    below, above = histogram.below, histogram.above
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
        f"Histogram, {caption.lower()}: {count(total, 'value')} from "
        f"{number_text(numbers.minimum)} to {number_text(numbers.maximum)}, most of them "
        f"in {names[histogram.counts.index(largest)]}. The table below has its figures."
    )
    rows = tuple((name, *counted(number, total)) for name, number in bins)
    table = Table((caption, "Count", "Share"), rows)
    return [Chart(caption, columns, description, table, note)]


def _bin_labels(histogram: Histogram) -> list[str]:
    """Returns the name of each interval: "4", or "0.5 to 0.75"."""
    edges = histogram.edges
    if histogram.discrete:
        return [number_text(edge) for edge in edges[:-1]]
    return [
        f"{number_text(low)} to {number_text(high)}"
        for low, high in itertools.pairwise(edges)
    ]


def _value_facts(common: CommonValues) -> list[Fact]:
    more = "" if common.complete else "more than "
    facts = [Fact("Different values", f"{more}{common.distinct:,}")]
    if common.too_low and not _stands_out(common):
        most = count(common.at_most, "time")
        facts.append(Fact("The most frequent one", f"at most {most}"))
    if common.long:
        name = f"Above {MAX_BYTES} bytes"
        facts.append(Fact(name, f"{common.long:,}", "not counted one by one"))
    return facts


def _stands_out(common: CommonValues) -> bool:
    """Tests whether the counts prove that the listed values are the commonest."""
    return bool(common.values) and common.values[0][1] > common.too_low


def _value_tables(
    title: str, common: CommonValues, heading: str = "Value"
) -> list[tuple[str, Table]]:
    if not _stands_out(common):
        return []
    bound = "≥ " if common.too_low else ""
    values = common.values
    stands_out = values[0][1] > max(1, _FLAT * common.total)
    if not stands_out:
        values = values[:_FEW_SHOWN]
    rows = tuple(
        (_value_text(value), f"{bound}{number:,}", percent(number, common.total))
        for value, number in values
    )
    largest = values[0][1]
    shares = tuple((number / largest,) for _, number in values) if stands_out else ()
    notes = []
    if (more := common.distinct - len(values)) > 0 and common.complete:
        notes.append(f"{more:,} more.")
    if common.complete and largest == 1 and len(values) > 1:
        notes.append("No value comes twice.")
    if common.too_low:
        notes.append(
            f"Estimated: a count may be too low by {common.too_low:,} at most."
        )
    table = Table((heading, "Count", "Share"), rows, shares, " ".join(notes))
    return [(title, table)]


def _value_text(value: str | bytes | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return readable_raw(value)
    return shown(value) if value else "(empty)"


LISTED_CLASSES = 1_000
COLOURS = 8  # number of colours in the style sheet


def class_card(label: FeatureSpec, counts: LabelCounts) -> Card:
    """Returns the card of a label, with the rows of each class by split."""
    classes = label.num_classes or 0
    totals = in_all_splits(counts)
    numbers = list(totals.values())
    present = [number for number in numbers[:classes] if number]
    facts = [Fact("Classes", f"{classes:,}")]
    if present:
        facts.append(Fact("Smallest class", f"{min(present):,}"))
        facts.append(Fact("Largest class", f"{max(present):,}"))
    if empty := classes - len(present):
        facts.append(Fact("Without a row", count(empty, "class")))
    if outside := sum(numbers[classes:]):
        facts.append(Fact("Outside the classes", f"{outside:,}"))
    tables = [("Rows by class and split", _by_split(counts, totals))] if totals else []
    return Card(shown(label.name), "", facts, tables=tables, wide=True)


def _by_split(counts: LabelCounts, totals: dict[str, int]) -> Table:
    total, largest = sum(totals.values()), max(1, *totals.values())
    rows, shares = [], []
    for name in itertools.islice(totals, LISTED_CLASSES):
        numbers = [split_counts[name] for split_counts in counts.values()]
        figures = *(f"{number:,}" for number in numbers), *counted(totals[name], total)
        rows.append((shown(name), *figures))
        parts = numbers if len(numbers) <= COLOURS else [totals[name]]
        shares.append(tuple(number / largest for number in parts))
    more = len(totals) - len(rows)
    note = f"{more:,} more classes." if more else ""
    columns = ("Class", *map(shown, counts), "All", "Share")
    return Table(columns, rows, tuple(shares), note)


LISTED_SHARDS = 500


def shards_table(manifest: Manifest) -> Table:
    """Returns a table with the rows and the size of each shard."""
    largest = max((shard.bytes for shard in manifest.shards), default=0)
    rows = [
        (shown(shard.file), shown(name), f"{shard.records:,}", human_bytes(shard.bytes))
        for name, split in manifest.splits.items()
        for shard in split.shards
    ][:LISTED_SHARDS]
    sizes = [shard.bytes for shard in manifest.shards[:LISTED_SHARDS]]
    shares = tuple((size / max(1, largest),) for size in sizes)
    more = manifest.num_shards - len(rows)
    note = f"{more:,} more shards; manifest.json has all." if more else ""
    return Table(("Shard", "=Split", "Rows", "Size"), rows, shares, note)
