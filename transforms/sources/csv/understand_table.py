"""Tells what a table was taken for, before its rows are read and once all were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import OddRows, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms.sources.csv.dialect import AskedDialect
from recordmill.transforms.sources.csv.first_rows import huge_warnings
from recordmill.transforms.sources.csv.leave_out import comment_fact
from recordmill.transforms.sources.csv.missing_words import long_warnings, missing_fact
from recordmill.transforms.sources.csv.number_marks import marked_warnings
from recordmill.transforms.sources.csv.range_rows import RangeRows
from recordmill.transforms.sources.csv.table_facts import describe
from recordmill.transforms.sources.type_flags import column_dtype, is_huge


@dataclass(frozen=True, slots=True)
class UnderstoodTable:
    """What is told of a table.

    Attributes:
      rows: of its files.
      asked: what was said of their dialect.
      warnings: what looks wrong in the first rows.
    """

    rows: RangeRows
    asked: AskedDialect
    warnings: tuple[str, ...]

    def of_dataset(self, schema: Schema) -> Understood:
        """Returns what is told of rows that are appended to those of a schema."""
        return self._describe(self._dtypes(schema), "of the dataset", self.warnings)

    def declared(self) -> Understood:
        """Returns what is told where a schema file gives the types."""
        return self._describe((), "declared", self.warnings)

    def so_far(
        self, sampled_rows: int, types: TypeFlags, marked: Sequence[OddRows]
    ) -> Understood:
        """Returns what is told before the run.

        Args:
          sampled_rows: how many of the first rows were looked at.
          types: their type flags.
          marked: columns of text in them that look like numbers with marks.
        """
        dtypes = [column_dtype(flags) if flags else "empty" for flags in types]
        basis = f"so far, by the first {count(sampled_rows, 'row')}"
        warnings = marked_warnings(marked, self.rows.dialect.decimal)
        return self._describe(dtypes, basis, (*self.warnings, *warnings))

    def of_all_rows(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...],
        observed: TypeFlags,
    ) -> Understood:
        """Returns what is told once all rows were read.

        Args:
          schema: the features of the records.
          odd: rows that the end of the run tells of.
          observed: the type flags of all rows.
        """
        names = self.rows.names
        huge = [n for n, flags in zip(names, observed, strict=False) if is_huge(flags)]
        warnings = (
            *self.warnings,
            *huge_warnings(huge),
            *long_warnings(odd, names),
            *marked_warnings(odd, self.rows.dialect.decimal),
        )
        found = self._describe(self._dtypes(schema), "of all rows", warnings)
        told = (*missing_fact(odd, schema), *comment_fact(odd))
        return replace(found, facts=(*found.facts, *told))

    def _dtypes(self, schema: Schema) -> list[str]:
        by_name = {feature.name: feature.dtype for feature in schema.features}
        return [by_name[name] for name in self.rows.names]

    def _describe(
        self, dtypes: Sequence[str], basis: str, warnings: Sequence[str]
    ) -> Understood:
        return describe(self.rows, self.asked, dtypes, basis, warnings)
