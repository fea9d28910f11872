"""Reads a range of a table as rows with the types of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.ranges import (
    InputRange,
    OddRows,
    TypeFlags,
    merge_type_flags,
)
from recordmill.transforms.sources.csv.fixed_schema import fit_rows, fixed_columns
from recordmill.transforms.sources.csv.missing_words import count_long
from recordmill.transforms.sources.csv.number_marks import count_marked
from recordmill.transforms.sources.csv.range_rows import RangeRows
from recordmill.transforms.sources.csv.typed_rows import TypedRows, typed_rows
from recordmill.transforms.sources.source_rows import Rows


@dataclass(frozen=True, slots=True)
class TypedReader:
    """A reader of the ranges of a table.

    Attributes:
      rows: the same as text.
      as_text: whether every cell stays text.
      fixed_schema: the schema of the dataset that rows are appended to, or None.
      marked: columns of text that look like numbers with marks, which are counted.
    """

    rows: RangeRows
    as_text: bool
    fixed_schema: Schema | None
    marked: tuple[OddRows, ...]

    def columns(self) -> pa.Schema:
        """Returns the columns as text: types are known only once all cells were read."""
        if self.fixed_schema is not None:
            return fixed_columns(self.rows.names, self.fixed_schema)
        return pa.schema([(name, pa.string()) for name in self.rows.names])

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        """Yields the rows of a range, with the types of `Source.read`."""
        names, decimal = self.rows.names, self.rows.dialect.decimal
        for rows in self.rows.text_rows(input_range):
            marked: tuple[OddRows, ...] = ()
            if rows.is_nothing:
                none = pa.RecordBatch.from_pylist([], schema=self.columns())
                typed = TypedRows(none)
            elif self.fixed_schema is not None:
                rows, batch = fit_rows(
                    rows, names, self.fixed_schema, input_range, decimal
                )
                typed = TypedRows(batch)
            else:
                typed = typed_rows(rows, names, expected, decimal, as_text=self.as_text)
                expected = merge_type_flags(expected, typed.observed)
            long: tuple[OddRows, ...] = ()
            if not self.as_text and not rows.is_nothing:
                long = count_long(rows.table, typed.batch)
            if self.marked and not rows.is_nothing:
                marked = count_marked(rows.table, self.marked, decimal)
            yield Rows(
                batch=typed.batch,
                origins=rows.origins,
                positions=rows.positions,
                raw=rows.raw,
                paths=rows.paths,
                rejects=rows.rejects,
                observed=typed.observed,
                nulls=typed.nulls,
                odd=(*rows.odd, *typed.odd, *marked, *long),
                checksums=rows.checksums,
            )
