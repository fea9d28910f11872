"""Turns the shards of a manifest into a chart and a table of their balance."""

from __future__ import annotations

import numpy as np

from recordmill.beam_jobs.report_page.charts import (
    bar_chart,
    bin_labels,
    histogram_chart,
)
from recordmill.beam_jobs.report_page.page_parts import Chart, Table, shown
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count, human_bytes
from recordmill.transforms.figures.number_figures import NumberSketch

DRAWN_SHARDS = 120  # one by one
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
    if len(shards) <= DRAWN_SHARDS:
        names = [shown(shard.file) for _, shard in shards]
        drawing = bar_chart(names, sizes, [human_bytes(size) for size in sizes], told)
        return Chart("Bytes of each shard, in order", drawing, table)
    sketch = NumberSketch(whole=True)
    sketch.add(np.array(sizes, np.int64))
    histogram = sketch.figures().histogram
    assert histogram is not None
    peak = bin_labels(histogram)[int(np.argmax(histogram.counts))]
    drawing = histogram_chart(histogram, f"{told} Most have {peak} bytes.")
    return Chart("Shards by their bytes", drawing, table)
