"""Infers the schema of raw data: reads the whole input once, in threads, without Beam.

    inventory -> input ranges -> statistics of each -> merged -> schema and comments

Ranges are cut and scanned for boundaries as in a conversion, and types follow the same
rules, so the schema is the one that a conversion without a schema would infer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, zip_longest
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.declared import DeclaredSchema, declare_schema
from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange, Reject, RowIssue, TypeFlags
from recordmill.transforms.arrow import U64
from recordmill.transforms.cast.typed_values import NO_LABEL
from recordmill.transforms.encode.columns import is_list
from recordmill.transforms.exchange.exact_splits import RankSketch, SmallestKeys
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.base import (
    InputFindings,
    RangeFindings,
    Rows,
    RowSource,
    Source,
)
from recordmill.transforms.sources.label_split import find_distinct_texts
from recordmill.transforms.sources.text_columns import TypeFlag, is_mixed
from recordmill.transforms.statistics.column_summary import (
    MAX_DISTINCT,
    ColumnStats,
    Number,
    column_stats,
)

_TASKS_AHEAD = 2  # per worker: no worker waits, and few results wait to be merged

_Out = TypeVar("_Out")


def _map_in_threads(
    function: Callable[[InputRange], _Out], ranges: Sequence[InputRange], workers: int
) -> Iterator[_Out]:
    """Yields a function's result for each range; only a few are in memory."""
    return map_ahead(ranges, function, workers, most=workers * _TASKS_AHEAD)


MAX_REJECTS = 5  # rejected rows that are stored

_NO_STATS = ColumnStats()


@dataclass(frozen=True, slots=True)
class TableStats:
    """Statistics of all columns over some ranges; the default describes no rows."""

    num_rows: int = 0  # rows that could be read
    num_rejected: int = 0  # rows that could not be read
    # statistics by column name
    columns: Mapping[str, ColumnStats] = field(default_factory=dict)
    # the first MAX_REJECTS rejected rows, in input order
    rejects: tuple[Reject, ...] = ()
    # missing values of each column, if the source counts them
    nulls: tuple[int, ...] = ()

    def column(self, name: str) -> ColumnStats:
        """Returns the statistics of a column; the default if it was not read."""
        return self.columns.get(name, _NO_STATS)

    def merge(self, other: TableStats) -> TableStats:
        """Returns the statistics of these rows and of the rows that follow them."""
        columns = dict(self.columns)
        for name, stats in other.columns.items():
            columns[name] = self.column(name).merge(stats)
        return TableStats(
            num_rows=self.num_rows + other.num_rows,
            num_rejected=self.num_rejected + other.num_rejected,
            columns=columns,
            rejects=(self.rejects + other.rejects)[:MAX_REJECTS],
            nulls=tuple(map(sum, zip_longest(self.nulls, other.nulls, fillvalue=0))),
        )


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """The statistics of a whole input, and the schema that follows."""

    source: Source  # prepared
    stats: TableStats  # of all its rows
    # findings of the ranges, if a text column has some cells of another type
    range_findings: InputFindings | None = None

    @property
    def schema(self) -> Schema:
        """Returns the features that a conversion without a schema would write."""
        if not self.source.infers_types:
            return self.source.schema((), self.stats.nulls)
        columns = [self.stats.column(name) for name in self.source.columns().names]
        return self.source.schema(
            tuple(int(stats.flags) for stats in columns),
            tuple(stats.num_nulls for stats in columns),
        )

    @property
    def declared(self) -> DeclaredSchema:
        """Returns the schema as in a schema file; inferred columns in input order."""
        declared = declare_schema(self.schema)
        for name, feature in declared.features.items():
            limits = self.stats.column(feature.column or name).limits
            if feature.classes and limits and limits[0] == NO_LABEL:
                lowest = feature.model_copy(update={"min": NO_LABEL})
                declared.features[name] = lowest
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


def infer_schema(
    source: Source,
    files: Sequence[InputFile],
    workers: int = 0,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> InferredSchema:
    """Infers the schema of the files of an inventory from all their rows.

    `on_progress` is called with (ranges done, total ranges) in the caller's thread.
    `workers` is the number of threads; 0 means all cores.

    Raises:
      InputError: the input is not of the source's format, or cannot be read.
      SchemaError: a few odd cells would turn a column into text, as in a run.
    """
    source = source.prepare(files)
    ranges = source.cut_ranges(files)
    if not ranges:
        raise InputError("the input files are empty: nothing to infer")
    workers = workers or usable_cores()
    ranges = source.with_boundaries(ranges, partial(_map_in_threads, workers=workers))
    total = known_stats = TableStats()
    if source.infers_types:
        # The types in a few rows, so that cells are not parsed as every type.
        sampled = zip(
            source.columns().names, source.sample_type_flags(ranges[0]), strict=True
        )
        sampled_columns = {
            name: ColumnStats(flags=TypeFlag(type_flag)) for name, type_flag in sampled
        }
        known_stats = TableStats(columns=sampled_columns)

    def read(input_range: InputRange) -> TableStats:
        return _range_stats(
            source, input_range, known_stats
        )  # of the ranges merged by now

    on_progress(0, len(ranges))
    for done, stats in enumerate(_map_in_threads(read, ranges, workers), 1):
        total = known_stats = total.merge(stats)
        on_progress(done, len(ranges))
    names = source.columns().names if source.infers_types else ()
    flags = tuple(int(total.column(name).flags) for name in names)
    if not any(map(is_mixed, flags)):
        return InferredSchema(source, total)
    # The types are known now, so odd cells can be found as in a run.
    issues = _map_in_threads(partial(_issues_of, source, flags), ranges, workers)
    nulls = tuple(total.column(name).num_nulls for name in names)
    schema = source.schema(flags, nulls)
    range_findings = InputFindings(
        schema, RowIssue.merge_issues(issues), flags, nulls, total.num_rows
    )
    if problem := source.issue_problem(range_findings):
        raise SchemaError(problem)
    settled = zip(names, source.final_type_flags(range_findings), strict=True)
    columns = {
        name: replace(total.column(name), flags=TypeFlag(type_flag))
        for name, type_flag in settled
    }
    return InferredSchema(source, replace(total, columns=columns), range_findings)


def _issues_of(
    source: Source, types: TypeFlags, input_range: InputRange
) -> tuple[RowIssue, ...]:
    range_findings = RangeFindings()
    for _ in source.read(input_range, types, range_findings):
        pass
    return range_findings.issues


def _single_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns of single values: no images and no lists."""
    kinds = batch.schema.types
    is_single = [not is_list(kind) and not pt.is_binary(kind) for kind in kinds]
    return batch.select(list(compress(batch.schema.names, is_single)))


def _range_stats(
    source: Source, input_range: InputRange, known_stats: TableStats
) -> TableStats:
    """Returns the statistics of one input range."""
    range_findings = RangeFindings()
    range_rows = source.read_for_statistics(input_range, range_findings)
    batches = [_single_values(rows.batch) for rows in range_rows]
    columns = {}
    table = pa.Table.from_batches(batches) if batches else pa.table({})
    for name in table.column_names:
        # All batches together, so that values are counted only once.
        cells = table.column(name).combine_chunks().cast(pa.string())
        known_column = known_stats.column(name)
        counted = known_column.values is not None
        columns[name] = column_stats(cells, known_column.flags, counted)
    rejects = tuple(range_findings.rejects[:MAX_REJECTS])
    return TableStats(
        table.num_rows,
        len(range_findings.rejects),
        columns,
        rejects,
        range_findings.null_counts,
    )


MAX_PROPOSED = 100  # maximum number of texts in a column that may be classes
MAX_LISTED = 20  # maximum number of values whose counts are listed
_SIZES = ("height", "width", "depth")


def header_lines(inferred: InferredSchema) -> list[str]:
    """Returns comment lines about the whole input."""
    rows = f"Inferred from the whole input; rows: {inferred.stats.num_rows:,}"
    return [rows, *reject_lines(inferred.stats)]


def reject_lines(stats: TableStats) -> list[str]:
    """Returns lines with the number of unreadable rows, and the first of them."""
    if not stats.num_rejected:
        return []
    lines = [f"Rows that cannot be read (convert rejects them): {stats.num_rejected:,}"]
    lines += [
        f"  {reject.path}, byte {reject.position}: {reject.reason}"
        for reject in stats.rejects
    ]
    if more := stats.num_rejected - len(stats.rejects):
        lines.append(f"  and {more:,} more")
    return lines


def feature_comments(inferred: InferredSchema) -> dict[str, list[str]]:
    """Returns comment lines about each feature, by its name."""
    return {
        spec.name: lines
        for spec in inferred.schema.features
        if (lines := _feature_lines(inferred, spec))
    }


def _feature_lines(inferred: InferredSchema, spec: FeatureSpec) -> list[str]:
    stats = inferred.stats.column(spec.column)
    if spec.content is Content.IMAGE:
        return _image_lines(inferred.stats)
    if not stats.num_rows:
        return []
    if spec.class_names:
        return [_class_counts(spec.class_names, stats)]
    lines = [_values_line(stats)]
    if stats.missing:
        share = f"{100 * stats.missing / stats.num_rows:.1f}"
        if share == "0.0":
            share = "under 0.1"
        if share == "100.0" and stats.missing < stats.num_rows:
            share = "over 99.9"
        rows = f"{stats.missing:,} of {stats.num_rows:,} rows ({share} %)"
        lines.append(f"missing in {rows}")
    texts = _few_texts(stats)
    if (
        inferred.source.infers_types
        and stats.dtype == "string"
        and len(texts) > 1  # few texts, in many rows
        and stats.num_rows - stats.missing >= 2 * len(texts)
    ):
        lines.append(f"perhaps classes: {_format_yaml(sorted(texts))}")
        if len(texts) <= MAX_LISTED:
            lines.append(f"rows of each: {_counts(texts)}")
    return lines


def _values_line(stats: ColumnStats) -> str:
    if stats.lengths is None:
        return "no value in any row, so its type is unknown"
    words = []
    if stats.limits:
        words.append(_span(*stats.limits))
    if stats.dtype == "string":
        words.append(f"{_span(*stats.lengths)} bytes")
    if stats.dtype == "bool":
        counts = sorted((stats.texts() or {}).items())
        words += [f"{text}: {count}" for text, count in counts]
    else:
        more = f"more than {MAX_DISTINCT:,}"
        number = more if stats.num_distinct is None else f"{stats.num_distinct:,}"
        words.append(f"{number} distinct")
    return ", ".join(words)


def _few_texts(stats: ColumnStats) -> Mapping[str, int]:
    texts = stats.texts() or {}
    return texts if len(texts) <= MAX_PROPOSED else {}


def _class_counts(names: Sequence[str], stats: ColumnStats) -> str:
    """Returns a line with the rows of each class, from the statistics of indices."""
    texts = stats.texts()
    if texts is None:
        return f"more than {MAX_DISTINCT:,} classes have rows"
    counts = {name: texts.get(str(index), 0) for index, name in enumerate(names)}
    if len(counts) <= MAX_LISTED:
        return f"rows of each: {_counts(counts)}"
    rows = _span(min(counts.values()), max(counts.values()))
    return f"{len(names):,} classes of {rows} rows"


def _image_lines(stats: TableStats) -> list[str]:
    formats = stats.column("format").texts()
    if not formats:
        return []
    lines = [f"images of each format: {_counts(formats)}"]
    sides = [stats.column(name).limits or (0, 0) for name in _SIZES]
    spans = [f"{n} {_span(*s)}" for n, s in zip(_SIZES, sides, strict=True)]
    lines.append(", ".join(spans))
    if all(low == high for low, high in sides):
        keys = ("height", "width", "channels")
        rule = {key: low for key, (low, _) in zip(keys, sides, strict=True)}
        lines.append(f"to reject other sizes: `picture: {_format_yaml(rule)}`")
    return lines


def _span(low: Number, high: Number) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _counts(counts: Mapping[str, int]) -> str:
    return _format_yaml(dict(sorted(counts.items())))


def _format_yaml(value: Any) -> str:
    """Returns a value as one line of YAML."""
    from recordmill.schemas.yaml_lines import write_yaml  # and yaml, for this alone

    return write_yaml(value, flow=True).rstrip("\n")


def stats_json(inferred: InferredSchema) -> dict[str, Any]:
    """Returns the statistics and the schema as an object for JSON."""
    stats = inferred.stats
    return {
        "rows": stats.num_rows,
        "rows_rejected": stats.num_rejected,
        "first_rejects": [
            {"uri": reject.path, "position": reject.position, "reason": reject.reason}
            for reject in stats.rejects
        ],
        "columns": {name: _column_json(stats.columns[name]) for name in stats.columns},
        "schema": inferred.declared.model_dump(mode="json", exclude_defaults=True),
    }


def _column_json(stats: ColumnStats) -> dict[str, Any]:
    # Infinity as text: JSON has no literal for it.
    low, high = (
        str(number) if number is not None and math.isinf(number) else number
        for number in stats.limits or (None, None)
    )
    shortest, longest = stats.lengths or (None, None)
    return {
        "dtype": stats.dtype,
        "rows": stats.num_rows,
        "nulls": stats.missing,
        "min": low,
        "max": high,
        "shortest_bytes": shortest,
        "longest_bytes": longest,
        "distinct": stats.num_distinct,
        "values": dict(sorted(_few_texts(stats).items())),
    }


# Names of classes and limits of exact splits are determined before rows are converted.

MAX_CLASSES = 10_000
Sketches = Mapping[str | None, RankSketch]
"""The rows of each value (None if missing); without a column, one entry for all rows."""
_Sketch = TypeVar("_Sketch", RankSketch, SmallestKeys)


class _SketchesByValue(dict[str | None, _Sketch]):
    """A dictionary of sketches by value, which creates missing ones by a function."""

    def __init__(self, make: Callable[[str | None], _Sketch]) -> None:
        super().__init__()
        self._make: Callable[[str | None], _Sketch] = make

    def __missing__(self, value: str | None) -> _Sketch:
        self[value] = sketch = self._make(value)
        return sketch


def _all_rows(_: InputRange, rows: Rows) -> tuple[Rows, U64]:
    return rows, rows.origins


def count_rows(
    source: RowSource,
    ranges: Sequence[InputRange],
    column: str | None,
    too_many: str,
    *,
    workers: int,
    sketch: Callable[[str | None], _Sketch] = lambda _: RankSketch(),  # type: ignore[assignment,return-value]
    draws_of: Callable[[InputRange, Rows], tuple[Rows, U64]] = _all_rows,
    values_of: Callable[
        [pa.Array], tuple[Sequence[str | None], np.ndarray]
    ] = find_distinct_texts,
) -> Mapping[str | None, _Sketch]:
    """Reads all rows of some ranges, and counts the rows of each value of a column.

    Args:
      source: reads the rows.
      ranges: the input ranges.
      column: the column; None counts all rows together.
      too_many: the error message if the column has too many values.
      workers: number of threads.
      sketch: creates the sketch of a value.
      draws_of: returns the rows to count, and their split hashes to add to a sketch.
      values_of: returns the distinct values of a column, and the index of each row's.
    """
    total = _SketchesByValue(sketch)

    def read(input_range: InputRange) -> dict[str | None, _Sketch]:
        sketches = _SketchesByValue(sketch)
        for all_rows in _read(source, input_range, column):
            rows, draws = draws_of(input_range, all_rows)
            if not len(draws):
                continue
            texts: Sequence[str | None] = [None]
            indices = np.zeros(len(draws), np.int64)
            if column is not None:
                texts, indices = values_of(rows.batch.column(column))
            order = np.argsort(indices, kind="stable")
            bounds = np.cumsum(np.bincount(indices, minlength=len(texts)))[:-1]
            for text, value_draws in zip(
                texts, np.split(draws[order], bounds), strict=True
            ):
                sketches[text].add(value_draws)
            _limit_sketches(sketches, too_many)
        return sketches

    ranges = source.input_source.with_boundaries(
        ranges, partial(_map_in_threads, workers=workers)
    )
    for range_sketches in _map_in_threads(read, ranges, workers):
        for text, range_sketch in range_sketches.items():
            total[text].merge(range_sketch)
        _limit_sketches(total, too_many)
    return total


def _limit_sketches(sketches: Mapping[str | None, object], too_many: str) -> None:
    if len(sketches) > MAX_CLASSES:
        raise InputError(too_many)


def _read(
    source: RowSource, input_range: InputRange, column: str | None
) -> Iterator[Rows]:
    """Reads rows; lists them without reading their content if that has the column."""
    if source.supports_references or source.lists_rows:
        listed = source.list_references(input_range, RangeFindings())
        for rows in listed:
            if column is not None and column not in rows.batch.schema.names:
                break
            yield rows
        else:
            return
    yield from source.read_as_text(input_range)
