"""Draws charts as SVG, by pygal; the page's style sheet gives them their colours.

What pygal adds for pages of its own is taken out: scripts, styles and comments. A page may
hold many charts, so nothing in them has an id. What a bar stands for is its title, which
browsers show where the mouse points. Beside each chart the page has a table of its figures.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pygal
from markupsafe import Markup
from pygal.etree import etree
from pygal.style import Style

from recordmill.beam_jobs.report.tables import Table
from recordmill.schemas.text import printable
from recordmill.transforms.statistics.column_summary import Histogram

_SUFFIXES = ("", "k", "M", "G", "T", "P")


def number_text(number: float | None) -> str:
    """Returns a number with up to six digits; whole ones with all of theirs.

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


def short_number(number: float) -> str:
    """Returns a number for an axis: three digits and a suffix.

    >>> short_number(1500), short_number(2_000_000), short_number(0.125), short_number(1e30)
    ('1.5k', '2M', '0.125', '1e+30')
    """
    size = abs(number)
    if size and not 1e-4 <= size < 1e18:
        return f"{number:.3g}"
    power = 0
    while size >= 999.5:
        size /= 1000
        power += 1
    return f"{'-' if number < 0 else ''}{size:.3g}{_SUFFIXES[power]}"


def percent(part: float, whole: float) -> str:
    """Returns a share; the smallest ones and those just below all are not rounded away.

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
    """Returns a count and its share."""
    return f"{number:,}", percent(number, total)


def counts_table(
    columns: tuple[str, ...],
    rows: Sequence[tuple[tuple[str, ...], int]],
    total: int,
    note: str = "",
) -> Table:
    """Returns a table of things with their counts and shares, the latter drawn, too."""
    cells = tuple((*texts, *counted(number, total)) for texts, number in rows)
    shares = tuple(number / total for _, number in rows)
    return Table((*columns, "Count", "Share"), cells, shares, note)


WIDTH = 400  # units; a page draws them at about a pixel
_HEIGHT = 170
_ROW = 26  # units of a horizontal bar
_LABELS = 5  # on a horizontal axis
_FONT = 11
_NAME_CHARACTERS = 18
_STYLE = Style(
    label_font_size=_FONT,
    major_label_font_size=_FONT,
    value_font_size=_FONT,
    title_font_size=_FONT,
    font_family="system-ui, sans-serif",
)
_COORDINATES = {"x", "y", "width", "height", "d", "transform"}
_NOT_DRAWN = ("defs", "desc", "title")  # nor are comments, whose tag is no text
_LONG_NUMBER = re.compile(r"(\d+\.\d)\d+")


def histogram_chart(histogram: Histogram, description: str) -> Markup:
    """Draws a histogram; the description is for those who do not see it."""
    chart = _chart(pygal.Histogram, _HEIGHT)
    # Drawn by the numbers of the intervals: pygal adds steps to floats until they are
    # reached, which large ones never are.
    bins = enumerate(zip(histogram.counts, bin_labels(histogram), strict=True))
    bars = [
        {"value": (count, index, index + 1), "label": f"{label}: {count:,}"}
        for index, (count, label) in bins
    ]
    chart.add("", bars)
    chart.y_labels = whole_steps(max(histogram.counts, default=0))
    shift = 0.5 if histogram.discrete else 0
    spots = len(histogram.counts) + (0 if histogram.discrete else 1)
    chart.x_labels = [
        {"value": index + shift, "label": short_number(histogram.edges[index])}
        for index in _spread(spots)
    ]
    return _drawn(chart, description)


def bin_labels(histogram: Histogram) -> list[str]:
    """Returns the name of each interval: "4", or "0.5 to 0.75"."""
    edges = histogram.edges
    if histogram.discrete:
        return [number_text(edge) for edge in edges[:-1]]
    return [
        f"{number_text(low)} to {number_text(high)}"
        for low, high in itertools.pairwise(edges)
    ]


def bar_chart(
    names: Sequence[str], values: Sequence[int], texts: Sequence[str], description: str
) -> Markup:
    """Draws a bar for each of many things in order, such as shards."""
    chart, bars = _chart(pygal.Bar, _HEIGHT), zip(names, values, texts, strict=True)
    chart.add("", [{"value": n, "label": f"{name}: {text}"} for name, n, text in bars])
    return _drawn(chart, description)


def stacked_rows(
    names: Sequence[str], series: Sequence[tuple[str, Sequence[int]]], description: str
) -> Markup:
    """Draws a horizontal bar for each of a few things, divided by series."""
    chart = _chart(pygal.HorizontalStackedBar, _ROW * len(names) + 40)
    chart.x_labels = [shown(name, _NAME_CHARACTERS) for name in reversed(names)]
    chart.y_labels = whole_steps(
        max(map(sum, zip(*(v for _, v in series), strict=True)))
    )
    for title, values in series:
        bars = [
            {"value": number, "label": f"{name}, {title}: {number:,}"}
            for name, number in zip(names, values, strict=True)
        ]
        chart.add(title, bars[::-1])
    return _drawn(chart, description)


def whole_steps(largest: int) -> list[int]:
    """Returns some counts from 0 to the largest one, for an axis.

    >>> whole_steps(3), whole_steps(70), whole_steps(1_000), whole_steps(0)
    ([0, 1, 2, 3], [0, 20, 40, 60], [0, 500, 1000], [0])
    """
    step = 1
    while largest // step >= _LABELS:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, largest + 1, step))


def _chart(kind: Any, height: int) -> Any:
    return kind(
        style=_STYLE,
        width=WIDTH,
        height=height,
        margin=4,
        margin_right=18,
        spacing=6,
        min_scale=2,
        max_scale=4,
        show_legend=False,
        no_prefix=True,
        js=[],
        css=[],
        value_formatter=short_number,
        no_data_text="",
    )


def _drawn(chart: Any, description: str) -> Markup:
    root = chart.render_tree()
    for parent in list(root.iter()):
        label = None
        for child in list(parent):
            if isinstance(child.tag, str) and child.tag not in _NOT_DRAWN:
                if "tooltip-overlay" not in child.get("class", "").split():
                    continue
            if child.tag == "desc" and child.get("class") == "label":
                label = child.text
            parent.remove(child)
        if label is not None:
            title = etree.Element("title")
            title.text = label
            parent.insert(0, title)
    for element in root.iter():
        element.attrib.pop("id", None)
        for name in _COORDINATES & set(element.keys()):
            element.set(name, _LONG_NUMBER.sub(r"\1", element.get(name)))
    root.set("role", "img")
    root.set("class", "chart")
    root.set("aria-label", description)
    return Markup(etree.tostring(root, encoding="unicode"))


def _spread(spots: int) -> list[int]:
    """Returns some of the numbers below `spots`, evenly spread."""
    if spots <= _LABELS + 3:
        return list(range(spots))
    step = -(-(spots - 1) // (_LABELS - 1))
    return list(range(0, spots, step))


_SHOWN_CHARACTERS = 100


class Fact(NamedTuple):
    """A figure with its name, and what must be known of it."""

    name: str
    value: str
    note: str = ""


class Chart(NamedTuple):
    """A chart with the figures behind it."""

    caption: str  # what it shows
    drawing: Markup  # SVG
    table: Table  # its figures
    note: str = ""  # what is not drawn, or estimated
    # names of its colours, in their order; empty if there is one
    key: tuple[str, ...] = ()
    open: bool = False  # whether the figures are shown from the start


class Card(NamedTuple):
    """What is known of one feature; a wide one has its parts side by side."""

    name: str
    kind: str
    facts: Sequence[Fact] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[tuple[str, Table]] = ()
    wide: bool = False


def shown(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Returns a name from the data: without control characters, and not too long."""
    return printable(f"{text[: most - 1]}…" if len(text) > most else text)
