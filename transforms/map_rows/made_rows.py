"""Makes rows of what a person's function returned: origins, rejects, plain columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.arrow import I64
from recordmill.transforms.exchange.keys import copy_origins
from recordmill.transforms.map_rows.call_function import MappedBatch, different_types
from recordmill.transforms.map_rows.try_function import Tried
from recordmill.transforms.sources.plain_types import merged_type, plain_columns
from recordmill.transforms.sources.required_values import missing_required
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.sources.tables import flat_batch


@dataclass(frozen=True, slots=True)
class RowMaker:
    """A maker of rows from what a function returned.

    Attributes:
      label: the function's name, for messages.
      tried: the columns that it made of the first rows.
      as_declared: whether a declared schema says what becomes of the columns.
    """

    label: str
    tried: Tried
    as_declared: bool

    def without_rows(self, rows: Rows) -> Rows:
        """Returns rows of which there are none."""
        tried = self.tried
        none = pa.RecordBatch.from_pylist([], schema=tried.arrow_schema())
        nulls = () if self.as_declared else (0,) * len(tried.columns)
        return replace(rows, batch=none, nulls=nulls, planned_bytes=None)

    def rows_made(
        self,
        rows: Rows,
        made: MappedBatch,
        input_range: InputRange,
        required: Schema | None,
    ) -> Rows:
        """Returns the rows that a function made of others.

        Args:
          rows: the others.
          made: what the function made of their batch.
          input_range: where they are.
          required: features of a dataset that rows are appended to, or None.

        Raises:
          SchemaError: they have other columns than the first rows, or other types.
        """

        def reject(row: int, reason: str) -> Reject:
            path = rows.paths[row] if rows.paths else input_range.path
            position, raw = rows.raw(row)
            return Reject(path, position, reason, raw)

        rejects = [*rows.rejects, *(reject(*each) for each in made.invalid_rows)]
        dropped = made.dropped(rows.batch.num_rows)
        added = made.added
        if not made.batch.num_columns:
            none = replace(rows, rejects=rejects, dropped=dropped)
            none.origins, none.positions = rows.origins[:0], rows.positions[:0]
            return self.without_rows(none)
        batch, source_rows = self._flat(made.batch, input_range), made.rows
        if missing := missing_required(batch, required):
            rejects += [
                reject(int(source_rows[row]), reason) for row, reason in missing.items()
            ]
            left = np.delete(np.arange(batch.num_rows), list(missing))
            batch, source_rows = batch.take(pa.array(left)), source_rows[left]
        origins = rows.origins[source_rows]
        return replace(
            rows,
            batch=batch,
            origins=copy_origins(origins, _copies(source_rows)) if added else origins,
            groups=origins if added else None,
            positions=rows.positions[source_rows],
            raw=lambda row: rows.raw(int(source_rows[row])),
            paths=[rows.paths[row] for row in source_rows] if rows.paths else (),
            planned_bytes=None,
            rejects=rejects,
            nulls=()
            if self.as_declared
            else tuple(column.null_count for column in batch.columns),
            dropped=dropped,
            added=added,
        )

    def _flat(self, batch: pa.RecordBatch, input_range: InputRange) -> pa.RecordBatch:
        """Returns a batch with plain columns, those of the first rows.

        Raises:
          SchemaError: it has other columns, or other types.
        """
        label, tried = self.label, self.tried
        try:
            found = plain_columns(
                batch.schema, f"`map` {label}", as_declared=self.as_declared
            )
            if self.as_declared:
                return flat_batch(batch, pa.schema(list(found.items())))
        except InputError as error:
            raise SchemaError(str(error)) from error
        expected = dict(tried.columns)
        if differ := sorted(found.keys() ^ expected.keys()):
            raise SchemaError(
                f"{input_range.where}: `map` {label}: the function returned the columns "
                f"{', '.join(found)}, but {', '.join(expected)} for the first rows; they "
                f"differ in {', '.join(differ)}. It has to return the same columns for "
                "all rows"
            )
        for name, kind in found.items():
            merged = merged_type(kind, expected[name])
            if merged is None or not merged.equals(expected[name]):
                text = different_types(label, name, str(expected[name]), str(kind))
                raise SchemaError(f"{input_range.where}: {text}")
        return flat_batch(batch, tried.arrow_schema())


def _copies(rows: I64) -> I64:
    """Numbers the rows that come from one row.

    >>> _copies(np.array([3, 3, 5])).tolist()
    [0, 1, 0]
    """
    _, starts, counts = np.unique(rows, return_index=True, return_counts=True)
    return np.arange(len(rows), dtype=np.int64) - np.repeat(starts, counts)
