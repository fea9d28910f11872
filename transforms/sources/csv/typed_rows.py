"""Converts rows of text to the types that are expected, and says what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.ranges import OddRows, TypeFlags
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.sources.csv.missing_words import count_missing
from recordmill.transforms.sources.csv.split_cells import columns_of
from recordmill.transforms.sources.csv.text_rows import TextRows
from recordmill.transforms.sources.wide_columns import convert_columns


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Some rows with the types that their cells ask for.

    Attributes:
      batch: the columns.
      observed: their type flags; () if they stay text.
      nulls: missing values of each, or ().
      odd: cells that were taken for missing, by column.
    """

    batch: pa.RecordBatch
    observed: TypeFlags = ()
    nulls: tuple[int, ...] = ()
    odd: tuple[OddRows, ...] = ()


def typed_rows(
    rows: TextRows,
    names: Sequence[str],
    expected: TypeFlags,
    decimal: str = ".",
    *,
    as_text: bool,
) -> TypedRows:
    """Returns rows with typed columns.

    Args:
      rows: as text.
      names: of the columns.
      expected: type flags to assume.
      decimal: as in `Dialect`.
      as_text: whether all cells stay text.
    """
    cells = columns_of(rows.table, names)
    if as_text:
        return TypedRows(pa.RecordBatch.from_arrays(cells, names=list(names)))
    with_points = [swap_points(each) for each in cells] if decimal == "," else cells
    columns, observed = convert_columns(with_points, expected, rows.num_bytes)
    if decimal == ",":  # what is no number stays as it is written
        pairs = zip(cells, columns, strict=True)
        columns = [own if pt.is_string(to.type) else to for own, to in pairs]
    return TypedRows(
        batch=pa.RecordBatch.from_arrays(columns, names=list(names)),
        observed=tuple(observed),
        nulls=tuple(column.null_count for column in cells),
        odd=count_missing(names, cells, columns, tuple(observed)),
    )
