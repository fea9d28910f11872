"""Shows what `recordmill rejects` prints: counts by kind of reason, and single rows."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, TextIO

from recordmill.beam_jobs.report.text_tables import make_console, make_table
from recordmill.schemas.ranges import Reject
from recordmill.schemas.text import count, printable
from recordmill.transforms.tasks.rejects import (
    UNKNOWN_INPUT,
    RejectKind,
    RejectLocator,
    readable_raw,
)


def rejects_summary(
    kinds: Sequence[RejectKind],
    rows: Sequence[Reject],
    *,
    published: bool,
    locator: RejectLocator = UNKNOWN_INPUT,
) -> dict[str, Any]:
    """Returns the JSON object."""
    return {
        "published": published,
        "rows_rejected": sum(kind.rows for kind in kinds),
        "reasons": [
            {
                "reason": kind.kind,
                "rows": kind.rows,
                "first": _fields(kind.first, locator),
            }
            for kind in kinds
        ],
        "rows": [_fields(row, locator) for row in rows],
    }


def show_rejects(
    kinds: Sequence[RejectKind],
    rows: Sequence[Reject],
    *,
    published: bool,
    locator: RejectLocator = UNKNOWN_INPUT,
    stream: TextIO | None = None,
) -> None:
    """Prints the reasons with their counts, then single rows.

    Args:
      kinds: the reasons, the commonest first.
      rows: single rejects to show.
      published: whether they belong to a dataset, or to a run that did not finish.
      locator: finds their lines.
      stream: where to print; standard output by default.
    """
    console = make_console(stream)
    total = count(sum(kind.rows for kind in kinds), "row")
    which = "" if published else " by runs that published nothing"
    console.print(f"{total} rejected{which}")
    if not kinds:
        return
    table = make_table(
        ("rows", "right"), ("reason, as of the first", "left"), ("first", "left")
    )
    for kind in kinds:
        table.add_row(f"{kind.rows:,}", kind.example, locator.describe(kind.first))
    console.print(table)
    for row in rows:
        where = locator.describe(row)
        console.print(f"{where}: {printable(row.reason)}", soft_wrap=True)
        console.print(f"    {readable_raw(row.raw)}", soft_wrap=True)


def _fields(reject: Reject, locator: RejectLocator) -> dict[str, Any]:
    return {
        "uri": reject.path,
        "position": reject.position,
        "line": locator.line(reject),
        "reason": reject.reason,
        "raw": readable_raw(reject.raw),
        "raw_base64": base64.b64encode(reject.raw).decode(),
    }
