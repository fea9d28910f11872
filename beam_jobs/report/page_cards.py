"""Turns the figures of features into cards: facts, charts and tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recordmill.beam_jobs.report.page_charts import (
    Card,
    Chart,
    Fact,
    bar_chart,
    bin_labels,
    histogram_chart,
    number_text,
    percent,
    shown,
    stacked_columns,
    stacked_rows,
)
from recordmill.beam_jobs.report.tables import Table
from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count, human_bytes
from recordmill.transforms.statistics.class_counts import ClassCounts
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
_SPLITS = 3  # that a table has room for


def value_card(summary: ColumnSummary, splits: Sequence[str] = ()) -> Card:
    """Returns the card of a feature that is not an image; `splits` are all names."""
    facts, charts, tables = _common_facts(summary), [], []
    if summary.numbers is not None and summary.numbers.values:
        facts += _number_facts(summary.numbers)
        if summary.rows_seen < summary.rows:
            rows = count(summary.rows_seen, "row")
            facts.append(Fact("Estimated from", rows, f"of {summary.rows:,}"))
        charts += _number_charts("Values", summary.numbers, _seen(summary))
    if summary.common is not None and summary.common.total:
        facts += _value_facts(summary.common)
        if _stands_out(summary.common):
            tables.append(("Commonest values", _value_table(summary.common, splits)))
    if summary.sizes is not None and summary.sizes.values:
        unit = "Characters" if summary.feature.dtype == "string" else "Bytes"
        facts.append(_range_fact(unit, summary.sizes))
        if summary.common is None or summary.common.distinct > _FEW:
            charts += _number_charts(unit, summary.sizes)
    if summary.lengths is not None:
        facts.append(_range_fact("Values in a row", summary.lengths))
        charts += _number_charts("Values in a row", summary.lengths)
    kind = kind_text(summary.feature)
    return Card(
        shown(summary.feature.name), kind, tuple(facts), tuple(charts), tuple(tables)
    )


def image_card(summary: ColumnSummary) -> Card:
    """Returns the card of a feature that holds image files."""
    images = summary.images
    assert images is not None
    facts = _common_facts(summary)
    total = images.bytes.values
    tables, charts = [], []
    if total:
        facts.append(_range_fact("Bytes of a file", images.bytes))
        tables.append(("Formats and channels", _kinds_table(images, total)))
        tables.append(("Commonest sizes", _sizes_table(images, total)))
    for caption, numbers in (
        ("Width in pixels", images.widths),
        ("Height in pixels", images.heights),
        ("Bytes of a file", images.bytes),
    ):
        if numbers.values and numbers.minimum != numbers.maximum:
            charts += _number_charts(caption, numbers)
    if images.damaged:
        problem = f"such as: {shown(images.problem)}"
        facts.append(Fact("Not readable", f"{images.damaged:,}", problem))
    kind = kind_text(summary.feature)
    return Card(
        shown(summary.feature.name),
        kind,
        tuple(facts),
        tuple(charts),
        tuple(tables),
        wide=True,
    )


def kind_text(feature: FeatureSpec) -> str:
    """Describes what a feature holds: "uint8 array, 32 × 32 × 3"."""
    what = feature.dtype
    if feature.content is Content.IMAGE:
        what = "images"
    elif feature.content is not Content.VALUES:
        what += f" {feature.content}"
    if feature.num_classes is not None:
        what += f", {count(feature.num_classes, 'class')}"
    if feature.shape and feature.content is not Content.IMAGE:
        sides = ("any" if side is None else f"{side:,}" for side in feature.shape)
        what += f", {' × '.join(sides)}"
    if feature.sequence:
        what = f"steps of {what}"
    return f"{what}, optional" if feature.optional else what


def _common_facts(summary: ColumnSummary) -> list[Fact]:
    facts = []
    if missing := sum(summary.missing):
        share = percent(missing, missing + summary.rows)
        facts.append(Fact("Missing", f"{missing:,}", share))
    if summary.empty:
        facts.append(
            Fact("Empty", f"{summary.empty:,}", percent(summary.empty, summary.rows))
        )
    return facts


def _number_facts(numbers: NumberSummary) -> list[Fact]:
    if numbers.histogram is None:
        facts = []
    elif numbers.minimum == numbers.maximum:
        facts = [Fact("Always", number_text(numbers.minimum))]
    else:
        facts = [
            Fact("Smallest", number_text(numbers.minimum)),
            Fact("Median", _about(numbers.median), _within(numbers)),
            Fact("Mean", _about(numbers.mean)),
            Fact("Largest", number_text(numbers.maximum)),
            Fact("Std. deviation", _about(numbers.deviation)),
        ]
    if numbers.nans:
        share = percent(numbers.nans, numbers.values)
        facts.append(Fact("NaN", f"{numbers.nans:,}", share))
    if numbers.infinities:
        share = percent(numbers.infinities, numbers.values)
        facts.append(Fact("Infinite", f"{numbers.infinities:,}", share))
    return facts


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


def _seen(summary: ColumnSummary) -> str:
    """Tells which rows the numbers are of, if not of all."""
    if summary.rows_seen >= summary.rows:
        return ""
    return (
        f"Estimated: of {summary.rows_seen:,} of {count(summary.rows, 'row')}, evenly "
        "spread."
    )


def _number_charts(caption: str, numbers: NumberSummary, note: str = "") -> list[Chart]:
    histogram = numbers.histogram
    if histogram is None or numbers.minimum == numbers.maximum:
        return []
    total = sum(histogram.counts) + histogram.below + histogram.above
    names = bin_labels(histogram)
    rows = [
        (name, f"{number:,}", percent(number, total))
        for name, number in zip(names, histogram.counts, strict=True)
    ]
    left_out = []
    if histogram.below:
        rows.insert(
            0, ("below", f"{histogram.below:,}", percent(histogram.below, total))
        )
        left_out.append(f"{histogram.below:,} below")
    if histogram.above:
        rows.append(("above", f"{histogram.above:,}", percent(histogram.above, total)))
        left_out.append(f"{histogram.above:,} above")
    if left_out:
        note = f"Not drawn: {' and '.join(left_out)}. {note}".strip()
    peak = names[max(range(len(names)), key=lambda index: histogram.counts[index])]
    description = (
        f"Histogram, {caption.lower()}: {count(total, 'value')} from "
        f"{number_text(numbers.minimum)} to {number_text(numbers.maximum)}, most of them "
        f"in {peak}. The table below has its figures."
    )
    table = Table((caption, "Count", "Share"), tuple(rows))
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


def _value_table(common: CommonValues, splits: Sequence[str]) -> Table:
    bound = "≥ " if common.too_low else ""
    values = common.values
    stands_out = values[0][1] > max(1, _FLAT * common.total)
    if not stands_out:
        values = values[:_FEW_SHOWN]
    names = splits if 1 < len(splits) <= _SPLITS and common.by_split else ()
    rows = tuple(
        (
            _value_text(value),
            *(f"{n:,}" for n in (common.by_split[index] if names else ())),
            f"{bound}{number:,}",
            percent(number, common.total),
        )
        for index, (value, number) in enumerate(values)
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
    columns = ("Value", *map(shown, names), "All" if names else "Count", "Share")
    return Table(columns, rows, shares, " ".join(notes))


def _value_text(value: str | bytes | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return readable_raw(value)
    return shown(value) if value else "(empty)"


def _kinds_table(images: ImageSummary, total: int) -> Table:
    return Table(
        ("Format", "Channels", "Count", "Share"),
        tuple(
            (kind, f"{depth}", f"{number:,}", percent(number, total))
            for kind, depth, number in images.kinds
        ),
        tuple(number / total for _, _, number in images.kinds),
    )


def _sizes_table(images: ImageSummary, total: int) -> Table:
    if images.num_sizes is None:
        note = f"More than {MAX_SIZES:,} sizes; the first {MAX_SIZES:,} are counted."
    else:
        more = images.num_sizes - len(images.sizes)
        note = f"{count(more, 'size')} more." if more else ""
    return Table(
        ("Width × height", "Count", "Share"),
        tuple(
            (f"{width:,} × {height:,}", f"{number:,}", percent(number, total))
            for width, height, number in images.sizes
        ),
        tuple(number / total for _, _, number in images.sizes),
        note,
    )


DRAWN_CLASSES = 30  # by split
MIXED_CLASSES = 7  # by shard; the others are one more
MIXED_SHARDS = 80
LISTED_CLASSES = 1_000
OPEN_ROWS = 30  # of a table beside its chart
_COLOURS = 8  # of the style sheet


def class_card(classes: ClassCounts, splits: Sequence[str]) -> Card:
    """Returns the card of a label: its classes by split."""
    totals = classes.totals
    names = [shown(name) for name in classes.names]
    total = sum(totals)
    drawn = list(range(len(names)))
    if len(names) > DRAWN_CLASSES:
        drawn = sorted(drawn, key=lambda index: -totals[index])[:DRAWN_CLASSES]
    facts = [Fact("Classes", f"{len(names):,}")]
    present = [number for number in totals if number]
    if present:
        facts.append(Fact("Smallest class", f"{min(present):,}"))
        facts.append(Fact("Largest class", f"{max(present):,}"))
    if empty := len(totals) - len(present):
        facts.append(Fact("Without a row", count(empty, "class")))
    if classes.outside:
        facts.append(Fact("Outside of the classes", f"{classes.outside:,}"))
    charts: tuple[Chart, ...] = ()
    if total:
        charts = (_by_split(classes, splits, names, drawn),)
    return Card(shown(classes.feature), "", tuple(facts), charts, wide=True)


def _by_split(
    classes: ClassCounts,
    splits: Sequence[str],
    names: Sequence[str],
    drawn: Sequence[int],
) -> Chart:
    totals, total = classes.totals, sum(classes.totals)
    few = len(splits) <= _COLOURS
    series = (
        [
            (shown(split), classes.by_split[number, drawn].tolist())
            for number, split in enumerate(splits)
        ]
        if few
        else [("all splits", [totals[index] for index in drawn])]
    )
    drawing = stacked_rows(
        [names[index] for index in drawn],
        series,
        f"Rows of {count(len(drawn), 'class')} of {shown(classes.feature)}, by split. "
        "The table below has the figures.",
    )
    listed = range(min(len(names), LISTED_CLASSES))
    rows = tuple(
        (
            names[index],
            *(f"{number:,}" for number in classes.by_split[:, index].tolist()),
            f"{totals[index]:,}",
            percent(totals[index], total),
        )
        for index in listed
    )
    is_short = len(rows) <= OPEN_ROWS  # it is beside the chart
    more = len(names) - len(listed)
    table = Table(
        ("Class", *map(shown, splits), "All", "Share"),
        rows,
        () if is_short else tuple(totals[index] / max(totals) for index in listed),
        f"{more:,} more classes." if more else "",
    )
    left_out = len(names) - len(drawn)
    note = f"The {len(drawn)} commonest of {len(names):,} classes." if left_out else ""
    key = tuple(shown(split) for split in splits) if few and len(splits) > 1 else ()
    return Chart("Rows by class and split", drawing, table, note, key, is_short)


def mix_chart(classes: ClassCounts, manifest: Manifest) -> Chart | None:
    """Returns the chart of the class mix by shard; None without two shards to compare."""
    files = manifest.shard_files
    if len(files) < 2 or not len(classes.by_shard) or not sum(classes.totals):
        return None
    counts = classes.by_shard.astype(np.float64)
    rows = counts.sum(axis=1, keepdims=True)
    shares = np.divide(100 * counts, rows, out=np.zeros_like(counts), where=rows > 0)
    commonest = np.argsort(-counts.sum(axis=0), kind="stable")
    drawn = commonest[:MIXED_CLASSES].tolist()
    names = [shown(classes.names[index]) for index in drawn]
    columns = [shares[:, index] for index in drawn]
    if len(commonest) > len(drawn):
        names.append("others")
        columns.append(shares[:, commonest[MIXED_CLASSES:]].sum(axis=1))
    some = slice(0, MIXED_SHARDS)
    labels = [shown(file) for file in files]
    drawing = stacked_columns(
        labels[some],
        [
            (name, np.round(column[some], 2).tolist())
            for name, column in zip(names, columns, strict=True)
        ],
        f"Share of the classes of {shown(classes.feature)} in each shard. The table below "
        "has the figures.",
    )
    table = Table(
        ("Shard", *names),
        tuple(
            (label, *(f"{column[index]:.1f} %" for column in columns))
            for index, label in enumerate(labels[some])
        ),
    )
    note = _largest_difference(classes, manifest, shares)
    if len(files) > MIXED_SHARDS:
        note = f"The first {MIXED_SHARDS} of {len(files):,} shards are drawn. {note}"
    caption = f"Class mix by shard: {shown(classes.feature)}"
    return Chart(caption, drawing, table, note, tuple(names))


def _largest_difference(
    classes: ClassCounts,
    manifest: Manifest,
    shares: npt.NDArray[np.float64],
) -> str:
    """Describes where a shard differs most from its split."""
    worst, found = -1.0, ""
    first = 0
    for split_index, split in enumerate(manifest.splits.values()):
        stop = first + len(split.shards)
        own = classes.by_split[split_index].astype(np.float64)
        if own.sum():
            expected = 100 * own / own.sum()
            filled = [s for s in range(first, stop) if classes.by_shard[s].any()]
            off = np.abs(shares[filled] - expected)
            row, index = np.unravel_index(int(off.argmax()), off.shape)
            if off[row, index] > worst:
                worst = float(off[row, index])
                file = manifest.shard_files[filled[int(row)]]
                found = (
                    f"Largest difference from a split: {shown(classes.names[int(index)])} "
                    f"is {shares[filled[int(row)], index]:.1f} % of {shown(file)}, and "
                    f"{expected[index]:.1f} % of its split."
                )
        first = stop
    return found


BAR_SHARDS = 120  # one by one
LISTED_SHARDS = 500


def balance_table(manifest: Manifest) -> Table:
    """Returns the sizes of the shards of each split."""
    rows = []
    for name, split in manifest.splits.items():
        sizes = [shard.bytes for shard in split.shards]
        if not sizes:
            rows.append((shown(name), "0", "–", "–", "–", "–"))
            continue
        mean = sum(sizes) / len(sizes)
        rows.append(
            (
                shown(name),
                f"{len(sizes):,}",
                human_bytes(min(sizes)),
                human_bytes(mean),
                human_bytes(max(sizes)),
                f"{max(sizes) / mean:.3f}" if mean else "–",
            )
        )
    columns = ("Split", "Shards", "Smallest", "Mean", "Largest", "Largest / mean")
    return Table(columns, tuple(rows))


def size_chart(manifest: Manifest) -> Chart | None:
    """Returns the chart of the sizes of all shards; None without two to compare."""
    shards = [
        (name, shard)
        for name, split in manifest.splits.items()
        for shard in split.shards
    ]
    if len(shards) < 2:
        return None
    sizes = [shard.bytes for _, shard in shards]
    rows = tuple(
        (shown(shard.file), shown(name), f"{shard.records:,}", human_bytes(shard.bytes))
        for name, shard in shards[:LISTED_SHARDS]
    )
    more = len(shards) - len(rows)
    table = Table(
        ("Shard", "=Split", "Rows", "Size"),
        rows,
        tuple(size / max(1, *sizes) for size in sizes[:LISTED_SHARDS]),
        f"{more:,} more shards; manifest.json has all." if more else "",
    )
    told = (
        f"Sizes of {count(len(sizes), 'shard')}, from {human_bytes(min(sizes))} to "
        f"{human_bytes(max(sizes))}. The table below has the figures."
    )
    if len(shards) <= BAR_SHARDS:
        names = [shown(shard.file) for _, shard in shards]
        drawing = bar_chart(names, sizes, [human_bytes(size) for size in sizes], told)
        return Chart("Bytes of each shard, in order", drawing, table)
    sketch = NumberSummary(whole=True)
    sketch.add(np.array(sizes, np.int64))
    histogram = sketch.histogram
    assert histogram is not None
    peak = bin_labels(histogram)[int(np.argmax(histogram.counts))]
    drawing = histogram_chart(histogram, f"{told} Most have {peak} bytes.")
    return Chart("Shards by their bytes", drawing, table)
