"""Shows how many rows have which class: a table, or a line for each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recordmill.beam_jobs.report.text_tables import make_table, print_table
from recordmill.schemas.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from recordmill.transforms.dataset.count_classes import LabelCounts

_ROWS = 40  # classes in a table
_IN_LINE = 10  # classes in a line
_LINES = 5


def print_classes(console: Console, counts: Sequence[LabelCounts]) -> None:
    """Prints a table for each label: its classes, and a column for each split."""
    for label in counts:
        totals = label.totals()
        splits = list(label.by_split)
        columns = [(split, "right") for split in map(printable, splits)]
        if len(splits) > 1:
            columns.append(("all", "right"))
        table = make_table(("class", "left"), *columns)
        for name, total in list(totals.items())[:_ROWS]:
            numbers = [label.by_split[split][name] for split in splits]
            if len(splits) > 1:
                numbers.append(total)
            table.add_row(printable(name), *(f"{number:,}" for number in numbers))
        print_table(console, f"classes of {printable(label.feature)}", table)
        if len(totals) > _ROWS:
            console.print(f"... {len(totals):,} classes in all; --json has them")


def class_lines(counts: Sequence[LabelCounts]) -> list[str]:
    """Returns a line for each label, with its first classes."""
    lines = []
    for label in counts[:_LINES]:
        totals = label.totals()
        first = [f"{printable(n)} {count:,}" for n, count in totals.items()][:_IN_LINE]
        more = f", ... {len(totals):,} in all" if len(totals) > len(first) else ""
        lines.append(f"classes of {printable(label.feature)}: {', '.join(first)}{more}")
    return lines
