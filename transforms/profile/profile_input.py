"""The schema of raw data: the whole input looked at once, by threads, without Beam.

    inventory -> input ranges -> facts of each range -> merged -> schema and comments

Ranges are cut, surveyed and settled as the pipeline does it, and types follow the same
rules, so the schema is the one that a conversion without a schema would find.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeVar

import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import InputError
from recordmill.schemas.features.declare import declare_schema
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.ranges import InputFile, InputRange
from recordmill.transforms.profile.column_stats import ColumnStats, sample_input
from recordmill.transforms.sources.base import Rows, Source
from recordmill.transforms.sources.cifar.source import FixedLengthSource
from recordmill.transforms.sources.csv.column_types import TypeFlag
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.csv.split_cells import cells_of

NUM_PLACES = 5  # rows that cannot be read: so many are named
_TASKS_AHEAD = 2  # per worker: none waits, and few have facts that wait to be merged

_In = TypeVar("_In")
_Out = TypeVar("_Out")


_NO_FACTS = ColumnStats()


@dataclass(frozen=True, slots=True, order=True)
class Place:
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
    """Facts of all columns, over some ranges; the default is that of no row.

    Attributes:
      rows: rows that could be read.
      rejected: rows that could not.
      columns: facts by column name.
      places: the first NUM_PLACES rejected rows, in input order.
    """

    rows: int = 0
    rejected: int = 0
    columns: Mapping[str, ColumnStats] = field(default_factory=dict)
    places: tuple[Place, ...] = ()

    def column(self, name: str) -> ColumnStats:
        """The facts of a column; none if no row was looked at."""
        return self.columns.get(name, _NO_FACTS)

    def merge(self, other: TableStats) -> TableStats:
        """The facts of both, which have no row in common."""
        columns = dict(self.columns)
        for name, facts in other.columns.items():
            columns[name] = self.column(name).merge(facts)
        return TableStats(
            rows=self.rows + other.rows,
            rejected=self.rejected + other.rejected,
            columns=columns,
            places=tuple(sorted(self.places + other.places)[:NUM_PLACES]),
        )


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a look at the whole input found.

    Attributes:
      source: prepared.
      facts: of all its rows.
    """

    source: Source
    facts: TableStats

    @property
    def schema(self) -> Schema:
        """The features that a conversion without a declared schema would make."""
        if not isinstance(self.source, CsvSource):
            return self.source.schema()
        columns = [self.facts.columns.get(n, ColumnStats()) for n in self.source.names]
        return self.source.schema(
            tuple(int(facts.holds) for facts in columns),
            tuple(facts.nulls for facts in columns),
        )

    @property
    def declared(self) -> DeclaredSchema:
        """The same, as a schema file says it; CSV columns in the file's order."""
        declared = declare_schema(self.schema)
        if not isinstance(self.source, CsvSource):
            return declared
        return DeclaredSchema(
            features={name: declared.features[name] for name in self.source.names}
        )


def infer(
    source: Source,
    files: Sequence[InputFile],
    workers: int = 0,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Inferred:
    """Looks at every row of the input.

    Args:
      source: not yet prepared.
      files: the inventory.
      workers: threads; 0 means all cores.
      on_progress: is told the ranges done and all ranges, from the caller's thread.

    Raises:
      InputError: the input is not of the source's format, or cannot be read.
    """
    source = source.prepare(files)
    ranges = source.cut(files)
    if not ranges:
        raise InputError("the input files are empty: there is nothing to look at")
    workers = workers or os.cpu_count() or 1
    if source.needs_survey(ranges):
        surveys = dict(_in_threads(partial(_survey, source), ranges, workers))
        ranges = source.resolve_ranges(
            ranges, [surveys[input_range.index] for input_range in ranges]
        )
    total, known = TableStats(), _guess(source, ranges[0])

    def look(input_range: InputRange) -> TableStats:
        return look_at_range(source, input_range, known)  # whatever is known by then

    on_progress(0, len(ranges))
    for done, found in enumerate(_in_threads(look, ranges, workers), 1):
        total = known = total.merge(found)
        on_progress(done, len(ranges))
    return Inferred(source, total)


def _survey(source: Source, input_range: InputRange) -> tuple[int, int]:
    return input_range.index, source.survey(input_range)


def _guess(source: Source, input_range: InputRange) -> TableStats:
    """What a few rows tell about the types, so that not every cell is tried as all."""
    if not isinstance(source, CsvSource):
        return TableStats()
    bits = source.sample(input_range)
    return TableStats(
        columns={
            name: ColumnStats(holds=TypeFlag(holds))
            for name, holds in zip(source.names, bits, strict=True)
        }
    )


def look_at_range(
    source: Source, input_range: InputRange, known: TableStats
) -> TableStats:
    """The facts of one input range.

    Args:
      source: prepared.
      input_range: the range.
      known: facts of other ranges; they only save work.
    """
    batches = []
    rejected = 0
    places: list[Place] = []
    for rows in _read(source, input_range):
        names = [f.name for f in rows.batch.schema if not pt.is_binary(f.type)]
        batches.append(rows.batch.select(names))  # not pictures, nor references
        rejected += len(rows.rejects)
        for reject in rows.rejects[: NUM_PLACES - len(places)]:
            place = Place(
                input_range.index, reject.position, reject.path, reject.reason
            )
            places.append(place)
    if not batches:
        return TableStats()
    columns = {}
    table = pa.Table.from_batches(batches)
    for name in table.column_names:
        # One look at a column for all batches: values are counted once.
        cells = cells_of(table, name).cast(pa.string())
        before = known.column(name)
        counted = before.values is not None
        columns[name] = sample_input(cells, before.holds, counted)
    return TableStats(table.num_rows, rejected, columns, tuple(places))


def _read(source: Source, input_range: InputRange) -> Iterator[Rows]:
    """The rows of a range with what their facts need; CSV cells stay text."""
    if isinstance(source, CsvSource):
        return source.read(input_range, (int(TypeFlag.TEXT),) * len(source.names))
    if isinstance(source, FixedLengthSource):
        return source.list_references(
            input_range
        )  # labels, without laying out the pixels
    return source.read(input_range, ())


def _in_threads(
    function: Callable[[_In], _Out], items: Iterable[_In], workers: int
) -> Iterator[_Out]:
    """The function's results as they come, in any order; few are ever held."""
    todo = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        running = {
            pool.submit(function, item) for item in islice(todo, workers * _TASKS_AHEAD)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
            running |= {pool.submit(function, item) for item in islice(todo, len(done))}
