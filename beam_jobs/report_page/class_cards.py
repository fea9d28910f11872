"""Turns counts of classes into charts: by split, and by shard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recordmill.beam_jobs.report_page.charts import stacked_columns, stacked_rows
from recordmill.beam_jobs.report_page.page_numbers import percent
from recordmill.beam_jobs.report_page.page_parts import Card, Chart, Fact, Table, shown
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count
from recordmill.transforms.figures.class_figures import ClassFigures

DRAWN_CLASSES = 30  # by split
MIXED_CLASSES = 7  # by shard; the others are one more
DRAWN_SHARDS = 80
LISTED_CLASSES = 1_000
OPEN_ROWS = 30  # of a table beside its chart
_COLOURS = 8  # of the style sheet


def class_card(figures: ClassFigures, splits: Sequence[str]) -> Card:
    """Returns the card of a label: its classes by split."""
    totals = figures.totals
    names = [shown(name) for name in figures.names]
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
    if figures.outside:
        facts.append(Fact("Outside of the classes", f"{figures.outside:,}"))
    charts: tuple[Chart, ...] = ()
    if total:
        charts = (_by_split(figures, splits, names, drawn),)
    return Card(shown(figures.feature), "", tuple(facts), charts, wide=True)


def _by_split(
    figures: ClassFigures,
    splits: Sequence[str],
    names: Sequence[str],
    drawn: Sequence[int],
) -> Chart:
    totals, total = figures.totals, sum(figures.totals)
    few = len(splits) <= _COLOURS
    series = (
        [
            (shown(split), [figures.by_split[number][index] for index in drawn])
            for number, split in enumerate(splits)
        ]
        if few
        else [("all splits", [totals[index] for index in drawn])]
    )
    drawing = stacked_rows(
        [names[index] for index in drawn],
        series,
        f"Rows of {count(len(drawn), 'class')} of {shown(figures.feature)}, by split. "
        "The table below has the figures.",
    )
    listed = range(min(len(names), LISTED_CLASSES))
    rows = tuple(
        (
            names[index],
            *(f"{split[index]:,}" for split in figures.by_split),
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


def mix_chart(figures: ClassFigures, manifest: Manifest) -> Chart | None:
    """Returns the chart of the class mix by shard; None without two shards to compare."""
    files = manifest.shard_files
    if len(files) < 2 or not figures.by_shard or not sum(figures.totals):
        return None
    counts = np.array(figures.by_shard, np.float64)
    rows = counts.sum(axis=1, keepdims=True)
    shares = np.divide(100 * counts, rows, out=np.zeros_like(counts), where=rows > 0)
    commonest = np.argsort(-counts.sum(axis=0), kind="stable")
    drawn = commonest[:MIXED_CLASSES].tolist()
    names = [shown(figures.names[index]) for index in drawn]
    columns = [shares[:, index] for index in drawn]
    if len(commonest) > len(drawn):
        names.append("others")
        columns.append(shares[:, commonest[MIXED_CLASSES:]].sum(axis=1))
    some = slice(0, DRAWN_SHARDS)
    labels = [shown(file) for file in files]
    drawing = stacked_columns(
        labels[some],
        [
            (name, np.round(column[some], 2).tolist())
            for name, column in zip(names, columns, strict=True)
        ],
        f"Share of the classes of {shown(figures.feature)} in each shard. The table below "
        "has the figures.",
    )
    table = Table(
        ("Shard", *names),
        tuple(
            (label, *(f"{column[index]:.1f} %" for column in columns))
            for index, label in enumerate(labels[some])
        ),
    )
    note = _largest_difference(figures, manifest, shares)
    if len(files) > DRAWN_SHARDS:
        note = f"The first {DRAWN_SHARDS} of {len(files):,} shards are drawn. {note}"
    caption = f"Class mix by shard: {shown(figures.feature)}"
    return Chart(caption, drawing, table, note, tuple(names))


def _largest_difference(
    figures: ClassFigures,
    manifest: Manifest,
    shares: npt.NDArray[np.float64],
) -> str:
    """Describes where a shard differs most from its split."""
    worst, found = -1.0, ""
    first = 0
    for split_index, split in enumerate(manifest.splits.values()):
        stop = first + len(split.shards)
        own = np.array(figures.by_split[split_index], np.float64)
        if own.sum():
            expected = 100 * own / own.sum()
            filled = [s for s in range(first, stop) if sum(figures.by_shard[s])]
            off = np.abs(shares[filled] - expected)
            row, index = np.unravel_index(int(off.argmax()), off.shape)
            if off[row, index] > worst:
                worst = float(off[row, index])
                file = manifest.shard_files[filled[int(row)]]
                found = (
                    f"Largest difference from a split: {shown(figures.names[int(index)])} "
                    f"is {shares[filled[int(row)], index]:.1f} % of {shown(file)}, and "
                    f"{expected[index]:.1f} % of its split."
                )
        first = stop
    return found
