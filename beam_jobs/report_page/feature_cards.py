"""Turns the figures of features into cards: facts, charts and tables."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.beam_jobs.report_page.charts import bin_labels, histogram_chart
from recordmill.beam_jobs.report_page.page_numbers import number_text, percent
from recordmill.beam_jobs.report_page.page_parts import Card, Chart, Fact, Table, shown
from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.text import count
from recordmill.transforms.figures.feature_sketch import FeatureFigures
from recordmill.transforms.figures.number_figures import NumberFigures
from recordmill.transforms.figures.picture_figures import MAX_SIZES, PictureFigures
from recordmill.transforms.figures.value_counts import MAX_BYTES, CommonValues
from recordmill.transforms.tasks.read_rejects import readable_raw

_FEW = 40  # different values: their sizes tell nothing
_FLAT = 0.02  # of all values: no value is common
_FEW_SHOWN = 5
_SPLITS = 3  # that a table has room for


def value_card(figures: FeatureFigures, splits: Sequence[str] = ()) -> Card:
    """Returns the card of a feature that is not a picture; `splits` are all names."""
    facts, charts, tables = _common_facts(figures), [], []
    if figures.numbers is not None and figures.numbers.values:
        facts += _number_facts(figures.numbers)
        if figures.rows_seen < figures.rows:
            rows = count(figures.rows_seen, "row")
            facts.append(Fact("Estimated from", rows, f"of {figures.rows:,}"))
        charts += _number_charts("Values", figures.numbers, _seen(figures))
    if figures.common is not None and figures.common.total:
        facts += _value_facts(figures.common)
        if _stands_out(figures.common):
            tables.append(("Commonest values", _value_table(figures.common, splits)))
    if figures.sizes is not None and figures.sizes.values:
        unit = "Characters" if figures.feature.dtype == "string" else "Bytes"
        facts.append(_range_fact(unit, figures.sizes))
        if figures.common is None or figures.common.distinct > _FEW:
            charts += _number_charts(unit, figures.sizes)
    if figures.lengths is not None:
        facts.append(_range_fact("Values in a row", figures.lengths))
        charts += _number_charts("Values in a row", figures.lengths)
    kind = kind_text(figures.feature)
    return Card(
        shown(figures.feature.name), kind, tuple(facts), tuple(charts), tuple(tables)
    )


def picture_card(figures: FeatureFigures) -> Card:
    """Returns the card of a feature that holds picture files."""
    pictures = figures.pictures
    assert pictures is not None
    facts = _common_facts(figures)
    total = pictures.bytes.values
    tables, charts = [], []
    if total:
        facts.append(_range_fact("Bytes of a file", pictures.bytes))
        tables.append(("Formats and channels", _kinds_table(pictures, total)))
        tables.append(("Commonest sizes", _sizes_table(pictures, total)))
    for caption, numbers in (
        ("Width in pixels", pictures.widths),
        ("Height in pixels", pictures.heights),
        ("Bytes of a file", pictures.bytes),
    ):
        if numbers.values and numbers.minimum != numbers.maximum:
            charts += _number_charts(caption, numbers)
    if pictures.damaged:
        problem = f"such as: {shown(pictures.problem)}"
        facts.append(Fact("Not readable", f"{pictures.damaged:,}", problem))
    kind = kind_text(figures.feature)
    return Card(
        shown(figures.feature.name),
        kind,
        tuple(facts),
        tuple(charts),
        tuple(tables),
        wide=True,
    )


def kind_text(feature: FeatureSpec) -> str:
    """Describes what a feature holds: "uint8 array, 32 × 32 × 3"."""
    what = feature.dtype
    if feature.content is Content.PICTURE:
        what = "pictures"
    elif feature.content is not Content.VALUES:
        what += f" {feature.content}"
    if feature.num_classes is not None:
        what += f", {count(feature.num_classes, 'class')}"
    if feature.shape and feature.content is not Content.PICTURE:
        sides = ("any" if side is None else f"{side:,}" for side in feature.shape)
        what += f", {' × '.join(sides)}"
    if feature.sequence:
        what = f"steps of {what}"
    return f"{what}, optional" if feature.optional else what


def _common_facts(figures: FeatureFigures) -> list[Fact]:
    facts = []
    if missing := sum(figures.missing):
        share = percent(missing, missing + figures.rows)
        facts.append(Fact("Missing", f"{missing:,}", share))
    if figures.empty:
        facts.append(
            Fact("Empty", f"{figures.empty:,}", percent(figures.empty, figures.rows))
        )
    return facts


def _number_facts(numbers: NumberFigures) -> list[Fact]:
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


def _within(numbers: NumberFigures) -> str:
    """Returns how far off the median may be, if that shows in its digits."""
    middle, error = numbers.median, numbers.median_within
    if middle is None or _about(middle - error) == _about(middle + error):
        return ""
    return f"± {error:.1g}"


def _range_fact(name: str, numbers: NumberFigures) -> Fact:
    low, high = numbers.minimum, numbers.maximum
    if low == high:
        return Fact(name, number_text(low))
    text = f"{number_text(low)} to {number_text(high)}"
    return Fact(name, text, f"mean {_about(numbers.mean)}")


def _seen(figures: FeatureFigures) -> str:
    """Tells which rows the numbers are of, if not of all."""
    if figures.rows_seen >= figures.rows:
        return ""
    return (
        f"Estimated: of {figures.rows_seen:,} of {count(figures.rows, 'row')}, evenly "
        "spread."
    )


def _number_charts(caption: str, numbers: NumberFigures, note: str = "") -> list[Chart]:
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


def _kinds_table(pictures: PictureFigures, total: int) -> Table:
    return Table(
        ("Format", "Channels", "Count", "Share"),
        tuple(
            (kind, f"{depth}", f"{number:,}", percent(number, total))
            for kind, depth, number in pictures.kinds
        ),
        tuple(number / total for _, _, number in pictures.kinds),
    )


def _sizes_table(pictures: PictureFigures, total: int) -> Table:
    if pictures.num_sizes is None:
        note = f"More than {MAX_SIZES:,} sizes; the first {MAX_SIZES:,} are counted."
    else:
        more = pictures.num_sizes - len(pictures.sizes)
        note = f"{count(more, 'size')} more." if more else ""
    return Table(
        ("Width × height", "Count", "Share"),
        tuple(
            (f"{width:,} × {height:,}", f"{number:,}", percent(number, total))
            for width, height, number in pictures.sizes
        ),
        tuple(number / total for _, _, number in pictures.sizes),
        note,
    )
