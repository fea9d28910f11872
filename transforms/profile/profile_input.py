"""Infers the schema of raw data: reads the whole input once, by threads, without Beam.

    inventory -> input ranges -> statistics of each -> merged -> schema and comments

Ranges are cut and surveyed as by a conversion, and types follow the same rules, so the
schema is the one that a conversion without a schema would find.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from recordmill.schemas.declared import DeclaredSchema, declare_schema
from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.profile.column_stats import ColumnStats, column_stats
from recordmill.transforms.profile.in_threads import in_threads, surveyed
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.single_values import single_values
from recordmill.transforms.sources.text_types import TypeFlag, cells_of

MAX_REJECTS = 5  # rejected rows that are kept

_NO_STATS = ColumnStats()


@dataclass(frozen=True, slots=True, order=True)
class RejectedRow:
    """A row that cannot be read.

    Attributes:
      range_index: of its input range; gives the order of the input.
      byte: offset of the row in its file.
      path: of the file, relative to the input root.
      reason: what was found and what was expected.
    """

    range_index: int
    byte: int
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class TableStats:
    """Statistics of all columns, over some ranges; the default is that of no row.

    Attributes:
      rows: rows that could be read.
      rejected: rows that could not.
      columns: statistics by column name.
      rejects: the first MAX_REJECTS rejected rows, in input order.
      nulls: missing values of each column, where the source counts them.
    """

    rows: int = 0
    rejected: int = 0
    columns: Mapping[str, ColumnStats] = field(default_factory=dict)
    rejects: tuple[RejectedRow, ...] = ()
    nulls: tuple[int, ...] = ()

    def column(self, name: str) -> ColumnStats:
        """Returns the statistics of a column; those of no row if it was not read."""
        return self.columns.get(name, _NO_STATS)

    def merge(self, other: TableStats) -> TableStats:
        """Returns the statistics of both, which have no row in common."""
        columns = dict(self.columns)
        for name, stats in other.columns.items():
            columns[name] = self.column(name).merge(stats)
        return TableStats(
            rows=self.rows + other.rows,
            rejected=self.rejected + other.rejected,
            columns=columns,
            rejects=tuple(sorted(self.rejects + other.rejects)[:MAX_REJECTS]),
            nulls=_add_nulls(self.nulls, other.nulls),
        )


@dataclass(frozen=True, slots=True)
class Inferred:
    """The statistics of a whole input, and the schema that follows.

    Attributes:
      source: prepared.
      stats: of all its rows.
    """

    source: Source
    stats: TableStats

    @property
    def schema(self) -> Schema:
        """Returns the features that a conversion without a schema would make."""
        if not self.source.infers_types:
            return self.source.schema((), self.stats.nulls)
        columns = [self.stats.column(name) for name in self.source.columns().names]
        return self.source.schema(
            tuple(int(stats.flags) for stats in columns),
            tuple(stats.nulls for stats in columns),
        )

    @property
    def declared(self) -> DeclaredSchema:
        """Returns the same as a schema file; inferred columns in the input's order."""
        declared = declare_schema(self.schema)
        if not self.source.infers_types:
            return declared
        names = self.source.columns().names
        features = {name: declared.features[name] for name in names}
        if self.source.decimal_comma:
            for name, feature in features.items():
                if feature.dtype.startswith("float"):
                    update = {"decimal": "comma"}
                    features[name] = feature.model_copy(update=update)
        return DeclaredSchema(features=features)


def infer(
    source: Source,
    files: Sequence[InputFile],
    workers: int = 0,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Inferred:
    """Infers the schema of an input from all its rows.

    Args:
      source: not yet prepared.
      files: the inventory.
      workers: threads; 0 means all cores.
      on_progress: called with the ranges done and all ranges, in the caller's thread.

    Raises:
      InputError: the input is not of the source's format, or cannot be read.
    """
    source = source.prepare(files)
    ranges = source.cut(files)
    if not ranges:
        raise InputError("the input files are empty: there is nothing to infer from")
    workers = workers or os.cpu_count() or 1
    ranges = surveyed(source, ranges, workers)
    total, known = TableStats(), _sample_types(source, ranges[0])

    def read(input_range: InputRange) -> TableStats:
        return range_stats(source, input_range, known)  # whatever is known by then

    on_progress(0, len(ranges))
    for done, found in enumerate(in_threads(read, ranges, workers), 1):
        total = known = total.merge(found)
        on_progress(done, len(ranges))
    return Inferred(source, total)


def _sample_types(source: Source, input_range: InputRange) -> TableStats:
    """Returns the types in a few rows, so that not every cell is tried as every type."""
    if not source.infers_types:
        return TableStats()
    names, flags = source.columns().names, source.sample(input_range)
    return TableStats(
        columns={
            name: ColumnStats(flags=TypeFlag(each))
            for name, each in zip(names, flags, strict=True)
        }
    )


def range_stats(
    source: Source, input_range: InputRange, known: TableStats
) -> TableStats:
    """Returns the statistics of one input range.

    Args:
      source: prepared.
      input_range: the range.
      known: statistics of other ranges; they only save work.
    """
    batches = []
    rejected = 0
    rejects: list[RejectedRow] = []
    nulls: tuple[int, ...] = ()
    # Not pictures, nor lists of labels, boxes, frames or pixels.
    for rows in single_values(source.read_for_statistics(input_range)):
        batches.append(rows.batch)
        rejected += len(rows.rejects)
        nulls = _add_nulls(nulls, rows.nulls)
        rejects += [
            RejectedRow(input_range.index, each.position, each.path, each.reason)
            for each in rows.rejects[: MAX_REJECTS - len(rejects)]
        ]
    if not batches:
        return TableStats()
    columns = {}
    table = pa.Table.from_batches(batches)
    for name in table.column_names:
        # All batches at once: values are counted once.
        cells = cells_of(table, name).cast(pa.string())
        before = known.column(name)
        counted = before.values is not None
        columns[name] = column_stats(cells, before.flags, counted)
    return TableStats(table.num_rows, rejected, columns, tuple(rejects), nulls)


def _add_nulls(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if not one or not other:
        return one or other
    return tuple(a + b for a, b in zip(one, other, strict=True))
