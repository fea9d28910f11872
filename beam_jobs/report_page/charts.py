"""Draws charts as SVG, by pygal; the page's style sheet gives them their colours.

What pygal adds for pages of its own is taken out: scripts, styles and comments. A page may
hold many charts, so nothing in them has an id. What a bar stands for is its title, which
browsers show where the mouse points. Beside each chart the page has a table of its figures.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pygal
from markupsafe import Markup
from pygal.etree import etree
from pygal.style import Style

from recordmill.beam_jobs.report_page.page_numbers import number_text, short_number
from recordmill.transforms.figures.number_figures import Histogram

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
_LONG_NUMBER = re.compile(r"(\d+\.\d)\d+")


def histogram_chart(histogram: Histogram, description: str) -> Markup:
    """Draws a histogram.

    Args:
      histogram: of equally wide intervals.
      description: what it shows, in a sentence, for those who do not see it.
    """
    chart = _chart(pygal.Histogram, _HEIGHT)
    # Drawn by the numbers of the intervals: pygal adds steps to floats until they are
    # reached, which large ones never are.
    chart.add(
        "",
        [
            {"value": (count, index, index + 1), "label": f"{label}: {count:,}"}
            for index, (count, label) in enumerate(
                zip(histogram.counts, bin_labels(histogram), strict=True)
            )
        ],
    )
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
    """Draws a bar for each of many things in order, such as shards.

    Args:
      names: of the things.
      values: how long each bar is.
      texts: the values as people read them.
      description: what the chart shows.
    """
    chart = _chart(pygal.Bar, _HEIGHT)
    chart.add(
        "",
        [
            {"value": value, "label": f"{name}: {text}"}
            for name, value, text in zip(names, values, texts, strict=True)
        ],
    )
    return _drawn(chart, description)


def stacked_rows(
    names: Sequence[str],
    series: Sequence[tuple[str, Sequence[int]]],
    description: str,
) -> Markup:
    """Draws a horizontal bar for each of a few things, divided by series.

    Args:
      names: of the things, from top to bottom.
      series: name and one value for each thing.
      description: what the chart shows.
    """
    chart = _chart(pygal.HorizontalStackedBar, _ROW * len(names) + 40)
    chart.x_labels = [_shortened(name) for name in reversed(names)]
    chart.y_labels = whole_steps(
        max(map(sum, zip(*(v for _, v in series), strict=True)))
    )
    for title, values in series:
        chart.add(title, _labelled(reversed(names), title, reversed(values)))
    return _drawn(chart, description)


def stacked_columns(
    names: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    description: str,
) -> Markup:
    """Draws a column for each of many things, divided by series; for shares of 100."""
    chart = _chart(pygal.StackedBar, _HEIGHT + 30)
    chart.range = (0, 100)
    chart.value_formatter = lambda value: f"{value:.0f} %"
    for title, values in series:
        chart.add(title, _labelled(names, title, values))
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


def _labelled(names: Any, title: str, values: Any) -> list[dict[str, Any]]:
    return [
        {
            "value": value,
            "label": f"{name}, {title}: {number_text(value)}"
            if isinstance(value, int)
            else f"{name}, {title}: {value:.1f} %",
        }
        for name, value in zip(names, values, strict=True)
    ]


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
            if _is_kept(child):
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


def _is_kept(element: Any) -> bool:
    """Tells whether an element is part of the drawing."""
    if not isinstance(element.tag, str):
        return False  # a comment
    if element.tag in ("defs", "desc", "title"):
        return False
    return "tooltip-overlay" not in element.get("class", "").split()


def _spread(spots: int) -> list[int]:
    """Returns some of the numbers below `spots`, evenly spread."""
    if spots <= _LABELS + 3:
        return list(range(spots))
    step = -(-(spots - 1) // (_LABELS - 1))
    return list(range(0, spots, step))


def _shortened(name: str) -> str:
    if len(name) <= _NAME_CHARACTERS:
        return name
    return f"{name[: _NAME_CHARACTERS - 1]}…"
