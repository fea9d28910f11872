"""Makes rows of lines of JSON; lines that do not fit the columns are rejects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.features.feature import Schema
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.schemas.text import count
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.jsonl.json_values import (
    Row,
    column_of,
    fits,
    parse_line,
)
from recordmill.transforms.sources.jsonl.read_lines import Line
from recordmill.transforms.sources.required_values import missing_required
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.sources.unpack import StreamPositions


@dataclass(frozen=True, slots=True)
class LineColumns:
    """The columns that lines are read as.

    Attributes:
      types: by name.
      as_declared: whether other keys are passed over, as a schema is declared.
      sampled_rows: how many rows told the columns.
      fixed_schema: the schema of the dataset that rows are appended to, or None.
    """

    types: Mapping[str, pa.DataType]
    as_declared: bool
    sampled_rows: int
    fixed_schema: Schema | None

    def rows_of(
        self,
        lines: list[Line],
        input_range: InputRange,
        positions: StreamPositions | None = None,
    ) -> Rows:
        """Makes rows of lines.

        Args:
          lines: of the range.
          input_range: the range.
          positions: of its text in a compressed file.
        """
        reasons: dict[int, str] = {}
        found: list[Row] = []
        kept: list[int] = []
        for index, (_, line) in enumerate(lines):
            row = parse_line(line)
            if isinstance(row, str):
                reasons[index] = row
            elif not self.as_declared and not row.keys() <= self.types.keys():
                reasons[index] = self._unknown(row)
            else:
                found.append(row)
                kept.append(index)
        batch = self._batch(found)
        if batch is None:
            fitting = []
            for at, row in enumerate(found):
                reason = self._misfit(row)
                if reason:
                    reasons[kept[at]] = reason
                else:
                    fitting.append(at)
            kept = [kept[at] for at in fitting]
            batch = self._batch([found[at] for at in fitting])
            if batch is None:
                raise ValueError(f"{input_range.uri}: values fit one by one only")
        if missing := missing_required(batch, self.fixed_schema):
            reasons |= {kept[at]: reason for at, reason in missing.items()}
            whole = [at for at in range(len(kept)) if at not in missing]
            batch = batch.take(pa.array(whole, pa.int64()))
            kept = [kept[at] for at in whole]
        offsets = np.array([lines[index][0] for index in kept], np.int64)
        return Rows(
            batch=batch,
            origins=origins_in(input_range.path, 0, offsets),
            positions=positions.of(offsets)
            if positions
            else offsets - input_range.start,
            raw=lambda row: lines[kept[row]],
            rejects=[
                Reject(
                    input_range.path, lines[index][0], reasons[index], lines[index][1]
                )
                for index in sorted(reasons)
            ],
            nulls=tuple(column.null_count for column in batch.columns),
        )

    def _batch(self, rows: list[Row]) -> pa.RecordBatch | None:
        """Returns rows as columns, or None if a value does not fit."""
        arrays = []
        for name, wanted in self.types.items():
            column = column_of([row.get(name) for row in rows], wanted)
            if column is None:
                return None
            arrays.append(column)
        schema = pa.schema(list(self.types.items()))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _unknown(self, row: Row) -> str:
        name = next(name for name in row if name not in self.types)
        if self.fixed_schema is not None:
            return f"{shown(name)}: is no feature of the dataset"
        return (
            f"{shown(name)}: is no key of the {count(self.sampled_rows, 'row')} that were "
            "looked at for columns; a schema file says which to use (`schema`)"
        )

    def _misfit(self, row: Row) -> str:
        for name, wanted in self.types.items():
            value = row.get(name)
            if not fits(value, wanted):
                whose = "in the dataset" if self.fixed_schema else "in most rows"
                return f"{name}: {shown(value)} is not {wanted}, its type {whose}"
        return ""
