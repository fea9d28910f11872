"""Tells what a table is taken for: file, dialect, columns and their types."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.input_summary import Understood
from recordmill.schemas.text import printable
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.sources.csv.dialect import (
    RFC_4180,
    AskedDialect,
    Dialect,
    name_of,
)
from recordmill.transforms.sources.csv.range_rows import RangeRows
from recordmill.transforms.sources.csv.sniff import CANDIDATES

_SHOWN_COLUMNS = 10
_SHOWN_NAME = 40  # characters


def describe(
    rows: RangeRows,
    asked: AskedDialect,
    dtypes: Sequence[str],
    basis: str,
    warnings: Sequence[str],
) -> Understood:
    """Returns what an input is taken for.

    Args:
      rows: of the files.
      asked: what was said of their dialect.
      dtypes: their types, in the same order; () if they are declared.
      basis: what the types come from, in words.
      warnings: what looks wrong.
    """
    names, dialect = rows.names, rows.dialect
    columns = [
        " ".join((_short(name), *dtypes[at : at + 1]))
        for at, name in enumerate(names[:_SHOWN_COLUMNS])
    ]
    if more := len(names) - len(columns):
        columns.append(f"{more:,} more")
    unnamed = [name for at, name in enumerate(names) if name == f"column_{at}"]
    facts = [
        ("delimiter", name_of(dialect.delimiter)),
        ("header", _header_fact(dialect)),
        ("columns", f"{len(names):,} ({', '.join(columns)})"),
        ("types", basis),
    ]
    if dialect.delimiter != CANDIDATES[0] and not asked.delimiter:
        facts[0] = ("delimiter", f"{facts[0][1]}, found in the first rows")
    if dialect.quote != RFC_4180.quote:
        facts.insert(1, ("quote", dialect.quote.decode() or "none"))
    if dialect.escape:
        facts.insert(1, ("escape", dialect.escape.decode()))
    if dialect.comment:
        facts.insert(
            1, ("comments", f"lines that begin with {dialect.comment.decode()}")
        )
    if dialect.decimal == ",":
        facts.append(("decimals", "with a comma"))
    if dialect.null_values:
        facts.append(("null values", ", ".join(map(shown, dialect.null_values))))
    if not rows.packing.is_plain:
        facts.insert(0, ("file", rows.packing.described))
    if unnamed and dialect.has_header:
        named = ", ".join(unnamed[:_SHOWN_COLUMNS])
        facts.append(("columns without a name", f"{len(unnamed):,}, named {named}"))
    return Understood(tuple(facts), tuple(warnings))


def _header_fact(dialect: Dialect) -> str:
    if dialect.has_header:
        behind = ", comments not counted" if dialect.comment else ""
        return f"line {dialect.skip_rows + 1}{behind}"
    return "none, the columns are named by the job" if dialect.columns else "none"


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _SHOWN_NAME else f"{text[: _SHOWN_NAME - 3]}..."
