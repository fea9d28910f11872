"""Turns the figures of features into cards: facts, charts and tables."""

from __future__ import annotations

from itertools import starmap

from recordmill.beam_jobs.report.page_charts import (
    Card,
    Chart,
    Fact,
    bar_chart,
    bin_labels,
    counted,
    counts_table,
    histogram_chart,
    number_text,
    percent,
    shown,
    stacked_rows,
)
from recordmill.beam_jobs.report.tables import Table, kind_text
from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count, human_bytes
from recordmill.transforms.statistics.class_counts import LabelCounts, in_all_splits
from recordmill.transforms.statistics.column_summary import (
    MAX_BYTES,
    MAX_SIZES,
    ColumnSummary,
    CommonValues,
    ImageSummary,
    NumberSummary,
)
from recordmill.transforms.tasks.rejects import readable_raw

_FEW = 40  # different values: their sizes tell nothing
_FLAT = 0.02  # of all values: no value is common
_FEW_SHOWN = 5


def value_card(summary: ColumnSummary) -> Card:
    """Returns the card of a feature that is not an image."""
    facts, charts, tables = _common_facts(summary), [], []
    numbers, common, sizes = summary.numbers, summary.common, summary.sizes
    if numbers is not None and numbers.values:
        facts += _number_facts(numbers)
        note = ""
        if summary.rows_seen < summary.rows:
            rows = count(summary.rows_seen, "row")
            facts.append(Fact("Estimated from", rows, f"of {summary.rows:,}"))
            all_rows = count(summary.rows, "row")
            note = f"Estimated: of {summary.rows_seen:,} of {all_rows}, evenly spread."
        charts += _number_charts("Values", numbers, note)
    if common is not None and common.total:
        facts += _value_facts(common)
        if _stands_out(common):
            tables.append(("Commonest values", _value_table(common)))
    if sizes is not None and sizes.values:
        unit = "Characters" if summary.feature.dtype == "string" else "Bytes"
        facts.append(_range_fact(unit, sizes))
        if common is None or common.distinct > _FEW:
            charts += _number_charts(unit, sizes)
    if summary.lengths is not None:
        facts.append(_range_fact("Values in a row", summary.lengths))
        charts += _number_charts("Values in a row", summary.lengths)
    name, kind = shown(summary.feature.name), kind_text(summary.feature)
    return Card(name, kind, facts, charts, tables)


def image_card(summary: ColumnSummary) -> Card:
    """Returns the card of a feature that holds image files."""
    images = summary.images
    assert images is not None
    facts, charts, tables = _common_facts(summary), [], []
    if images.bytes.values:
        facts.append(_range_fact("Bytes of a file", images.bytes))
        tables += _image_tables(images)
    for caption, numbers in (
        ("Width in pixels", images.widths),
        ("Height in pixels", images.heights),
        ("Bytes of a file", images.bytes),
    ):
        charts += _number_charts(caption, numbers) if numbers.values else []
    if images.damaged:
        problem = f"such as: {shown(images.problem)}"
        facts.append(Fact("Not readable", f"{images.damaged:,}", problem))
    name, kind = shown(summary.feature.name), kind_text(summary.feature)
    return Card(name, kind, facts, charts, tables, wide=True)


def _common_facts(summary: ColumnSummary) -> list[Fact]:
    missing = sum(summary.missing)
    return [
        *_fact_of("Missing", missing, missing + summary.rows),
        *_fact_of("Empty", summary.empty, summary.rows),
    ]


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
    """Returns a computed number with four digits; a whole one with all of them."""
    if isinstance(number, int) or number is None:
        return number_text(number)
    return number_text(float(f"{number:.4g}"))


def _within(numbers: NumberSummary) -> str:
    """Returns how far off the median may be, if that shows in its digits."""
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


def _number_charts(caption: str, numbers: NumberSummary, note: str = "") -> list[Chart]:
    histogram = numbers.histogram
    if histogram is None or numbers.minimum == numbers.maximum:
        return []
    below, above = histogram.below, histogram.above
    total = sum(histogram.counts) + below + above
    names = bin_labels(histogram)
    bins = [("below", below)] if below else []
    bins += zip(names, histogram.counts, strict=True)
    bins += [("above", above)] if above else []
    ends = [f"{n:,} {end}" for n, end in ((below, "below"), (above, "above")) if n]
    if ends:
        note = f"Not drawn: {' and '.join(ends)}. {note}".strip()
    peak = names[histogram.counts.index(max(histogram.counts))]
    description = (
        f"Histogram, {caption.lower()}: {count(total, 'value')} from "
        f"{number_text(numbers.minimum)} to {number_text(numbers.maximum)}, most of them "
        f"in {peak}. The table below has its figures."
    )
    rows = tuple((name, *counted(number, total)) for name, number in bins)
    table = Table((caption, "Count", "Share"), rows)
    return [Chart(caption, histogram_chart(histogram, description), table, note)]


def _value_facts(common: CommonValues) -> list[Fact]:
    more = "" if common.complete else "more than "
    facts = [Fact("Different values", f"{more}{common.distinct:,}")]
    if common.too_low and not _stands_out(common):
        most = count(common.at_most, "time")
        facts.append(Fact("The commonest one", f"at most {most}"))
    if common.long:
        name = f"Above {MAX_BYTES} bytes"
        facts.append(Fact(name, f"{common.long:,}", "not counted one by one"))
    return facts


def _stands_out(common: CommonValues) -> bool:
    """Tells whether the commonest values are known to be that."""
    return bool(common.values) and common.values[0][1] > common.too_low


def _value_table(common: CommonValues) -> Table:
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
    shares = tuple(number / largest for _, number in values) if stands_out else ()
    notes = []
    if (more := common.distinct - len(values)) > 0 and common.complete:
        notes.append(f"{more:,} more.")
    if common.complete and largest == 1 and len(values) > 1:
        notes.append("No value comes twice.")
    if common.too_low:
        notes.append(
            f"Estimated: a count may be too low by {common.too_low:,} at most."
        )
    return Table(("Value", "Count", "Share"), rows, shares, " ".join(notes))


def _value_text(value: str | bytes | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return readable_raw(value)
    return shown(value) if value else "(empty)"


def _image_tables(images: ImageSummary) -> list[tuple[str, Table]]:
    total = images.bytes.values
    note = f"More than {MAX_SIZES:,} sizes; the first {MAX_SIZES:,} are counted."
    if images.num_sizes is not None:
        more = images.num_sizes - len(images.sizes)
        note = f"{count(more, 'size')} more." if more else ""
    kinds = [((kind, f"{depth}"), number) for kind, depth, number in images.kinds]
    sizes = [((f"{w:,} × {h:,}",), number) for w, h, number in images.sizes]
    return [
        ("Formats and channels", counts_table(("Format", "Channels"), kinds, total)),
        ("Commonest sizes", counts_table(("Width × height",), sizes, total, note)),
    ]


DRAWN_CLASSES = 30  # by split
LISTED_CLASSES = 1_000
OPEN_ROWS = 30  # of a table beside its chart
_COLOURS = 8  # of the style sheet


def class_card(label: FeatureSpec, counts: LabelCounts) -> Card:
    """Returns the card of a label: its classes by split."""
    classes = label.num_classes or 0
    totals = in_all_splits(counts)
    numbers = list(totals.values())
    present = [number for number in numbers[:classes] if number]
    facts = {"Classes": f"{classes:,}"}
    if present:
        facts["Smallest class"] = f"{min(present):,}"
        facts["Largest class"] = f"{max(present):,}"
    if empty := classes - len(present):
        facts["Without a row"] = count(empty, "class")
    if outside := sum(numbers[classes:]):
        facts["Outside of the classes"] = f"{outside:,}"
    charts = (_by_split(label.name, counts, totals),) if present else ()
    return Card(
        shown(label.name), "", [*starmap(Fact, facts.items())], charts, wide=True
    )


def _by_split(label: str, counts: LabelCounts, totals: dict[str, int]) -> Chart:
    total, splits = sum(totals.values()), list(map(shown, counts))
    drawn, note = list(totals), ""
    if len(totals) > DRAWN_CLASSES:
        drawn = sorted(totals, key=lambda name: -totals[name])[:DRAWN_CLASSES]
        note = f"The {DRAWN_CLASSES} commonest of {len(totals):,} classes."
    series = [("all splits", [totals[name] for name in drawn])]
    if few := len(splits) <= _COLOURS:
        numbers = ([own[name] for name in drawn] for own in counts.values())
        series = list(zip(splits, numbers, strict=True))
    drawing = stacked_rows(
        list(map(shown, drawn)),
        series,
        f"Rows of {count(len(drawn), 'class')} of {shown(label)}, by split. "
        "The table below has the figures.",
    )
    listed = list(totals)[:LISTED_CLASSES]
    rows = tuple(
        (
            shown(name),
            *(f"{own[name]:,}" for own in counts.values()),
            *counted(totals[name], total),
        )
        for name in listed
    )
    is_short = len(rows) <= OPEN_ROWS  # it is beside the chart
    more = len(totals) - len(listed)
    largest = max(totals.values())
    table = Table(
        ("Class", *splits, "All", "Share"),
        rows,
        () if is_short else tuple(totals[name] / largest for name in listed),
        f"{more:,} more classes." if more else "",
    )
    key = tuple(splits) if few and len(splits) > 1 else ()
    return Chart("Rows by class and split", drawing, table, note, key, is_short)


BAR_SHARDS = 120  # one by one
LISTED_SHARDS = 500


def size_chart(manifest: Manifest) -> Chart | None:
    """Returns the chart of the sizes of all shards; None without two to compare."""
    shards, sizes = manifest.shards, [shard.bytes for shard in manifest.shards]
    if len(shards) < 2:
        return None
    rows = tuple(
        (shown(shard.file), shown(name), f"{shard.records:,}", human_bytes(shard.bytes))
        for name, split in manifest.splits.items()
        for shard in split.shards
    )[:LISTED_SHARDS]
    more = len(shards) - len(rows)
    table = Table(
        ("Shard", "=Split", "Rows", "Size"),
        rows,
        tuple(size / max(1, *sizes) for size in sizes[:LISTED_SHARDS]),
        f"{more:,} more shards; manifest.json has all." if more else "",
    )
    drawn = rows[:BAR_SHARDS]
    names, texts = [row[0] for row in drawn], [row[-1] for row in drawn]
    note = ""
    if len(shards) > BAR_SHARDS:
        note = f"The first {BAR_SHARDS} of {len(shards):,} shards are drawn."
    told = (
        f"Sizes of {count(len(sizes), 'shard')}, from {human_bytes(min(sizes))} to "
        f"{human_bytes(max(sizes))}. The table below has the figures."
    )
    drawing = bar_chart(names, sizes[:BAR_SHARDS], texts, told)
    return Chart("Bytes of each shard, in order", drawing, table, note)
