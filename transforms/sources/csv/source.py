"""Reads CSV files with a header: cut at row ends, typed as their whole content asks.

A file is cut into blocks of constant size. The quotes of each block are surveyed first
(`survey`), so every range knows whether its block begins inside a quoted field; a
range then runs from the first row that starts in its block to the first that starts
in the next. Types are guessed from a sample and verified while converting; a range that
was encoded for too narrow a type is encoded again (see text_types).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.feature_spec import Schema, usual_kind
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import (
    InputRange,
    OddRows,
    Reject,
    TypeFlags,
    merge_type_flags,
)
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.cast.text_values import shown, swap_in_numbers, swap_points
from recordmill.transforms.sources.base import RANGE_BYTES, Source
from recordmill.transforms.sources.csv.cells import columns_of, comment_fact
from recordmill.transforms.sources.csv.dialect import (
    ASK_NOTHING,
    RFC_4180,
    AskedDialect,
    Dialect,
)
from recordmill.transforms.sources.csv.inspect import (
    LOOKED_AT,
    FirstRows,
    UnderstoodTable,
    count_long,
    count_marked,
    count_missing,
    exact_problem,
    find_rows,
    given_twice,
    header_doubts,
    headerless,
    infer_schema,
    long_warnings,
    look_at,
    marked_columns,
    not_empty,
    sample_types,
)
from recordmill.transforms.sources.csv.ranges import (
    cut_tables,
    resolve_file,
    sampled_ranges,
    survey_block,
)
from recordmill.transforms.sources.csv.rows import RangeRows, TextRows
from recordmill.transforms.sources.packing import (
    FIND_PACKING,
    PLAIN,
    UNPACKED_TIMES,
    AskedPacking,
    Packing,
)
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.sources.text_types import (
    ARROW_TYPES,
    TypeFlag,
    cells_of,
    column_dtype,
    convert_columns,
    convert_to_dtype,
)

# Whatever types the new cells would have by themselves, a row has to fit the features
# that all other records have; one that does not is a reject.


def fixed_columns(names: Sequence[str], schema: Schema) -> pa.Schema:
    """Returns the columns as the dataset's features have them.

    Raises:
      SchemaError: columns and features are not the same.
    """
    dtypes = _dtypes(names, schema)
    return pa.schema([(name, ARROW_TYPES[dtype]) for name, dtype in dtypes.items()])


def fit_rows(
    rows: TextRows,
    names: Sequence[str],
    schema: Schema,
    input_range: InputRange,
    decimal: str = ".",
) -> tuple[TextRows, pa.RecordBatch]:
    """Returns the rows that fit a dataset's schema, and their typed columns.

    Args:
      rows: as text.
      names: the columns.
      schema: the dataset's.
      input_range: the range that the rows come from.
      decimal: as in `Dialect`.

    Returns:
      The rows without those that do not fit, which are among the rejects now.
    """
    columns = []
    reasons: dict[int, str] = {}
    for name, dtype in _dtypes(names, schema).items():
        cells = cells_of(rows.table, name)
        with_points = cells
        if decimal == "," and dtype != "string":
            with_points = swap_points(cells)
        column, wrong = convert_to_dtype(with_points, dtype)
        columns.append(column)
        for row in np.flatnonzero(wrong).tolist():
            value = shown(cells[row].as_py())
            reason = f"{name}: {value} is not a valid {dtype}, its type in the dataset"
            reasons.setdefault(row, reason)
        if column.null_count and not schema[name].optional:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(missing & ~wrong).tolist():
                reason = f"{name}: missing; every record of the dataset has it"
                reasons.setdefault(row, reason)
    batch = pa.RecordBatch.from_arrays(columns, names=list(names))
    if not reasons:
        return rows, batch
    rejects = [
        Reject(rows.paths[row] if rows.paths else input_range.path, at, reason, raw)
        for row, reason in reasons.items()
        for at, raw in [rows.raw(row)]
    ]
    files = {file.path: index for index, file in enumerate(input_range.files)}
    rejects = sorted(
        [*rows.rejects, *rejects], key=lambda r: (files.get(r.path, 0), r.position)
    )
    kept = np.delete(np.arange(batch.num_rows), list(reasons))
    fitting = replace(rows.select(kept), rejects=rejects)
    return fitting, batch.take(pa.array(kept))


def _dtypes(names: Sequence[str], schema: Schema) -> dict[str, str]:
    """Returns the dtype that each column's cells are converted to."""
    features = {feature.name: feature for feature in schema.features}
    if features.keys() != set(names):
        raise SchemaError(
            f"the columns are {', '.join(sorted(names))}, but the dataset's features "
            f"are {', '.join(sorted(features))}"
        )
    for feature in features.values():
        dtype = feature.dtype
        if dtype not in ARROW_TYPES or feature.kind is not usual_kind(dtype):
            raise SchemaError(
                f"feature {feature.name!r} of the dataset is {dtype} in "
                f"{feature.kind}; without a declared schema no CSV column becomes that"
            )
    return {name: features[name].dtype for name in names}


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


ENTRY_BYTES = 24  # what a feature's map entry costs beside its name and value


@dataclass(frozen=True)
class CsvSource(Source):
    """Tables of text: a row a line, with a delimiter between cells.

    Attributes:
      as_text: whether every cell stays text, because a declared schema converts it.
      asked: what is said of the dialect.
      dialect: that of the files, once prepared.
      asked_packing: what is said of the files' compression and encoding.
      packing: that of the files, once prepared.
      wanted: columns that a declared schema uses, or () if it is not known.
      exact: whether a decimal that loses digits as float32 ends the run.
      names: the columns of the first file's header.
      fixed_schema: the schema of the dataset that rows are appended to: its types are
        not inferred any more, and a row that does not fit is a reject. None else.
      range_bytes: size of the blocks that ranges are cut from.
      storage: options of the inputs' storage.
      files_root: see `Source`.
      sampled_rows: how many of the first rows were looked at.
      sampled_types: their type flags.
      warnings: what looks wrong in them.
      has_quotes: whether there are quotes in them.
      marked: columns of text in them that look like numbers with marks.
      names_files: whether cells name files that are read for their rows.
    """

    as_text: bool = False
    asked: AskedDialect = ASK_NOTHING
    dialect: Dialect = RFC_4180
    asked_packing: AskedPacking = FIND_PACKING
    packing: Packing = PLAIN
    wanted: tuple[str, ...] = ()
    exact: bool = False
    names: tuple[str, ...] = ()
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES
    storage: StorageOptions = NO_OPTIONS
    files_root: str = ""
    sampled_rows: int = 0
    sampled_types: TypeFlags = ()
    warnings: tuple[str, ...] = ()
    has_quotes: bool = False
    marked: tuple[OddRows, ...] = ()
    names_files: bool = False

    tells_checksums = True
    read_rate = 70e6

    @property
    def _rows(self) -> RangeRows:
        return RangeRows(self.names, self.storage, self.dialect, self.packing)

    @property
    def infers_types(self) -> bool:
        """Tells whether types follow from the cells: no schema gives them."""
        return not self.as_text and self.fixed_schema is None

    @property
    def _guesses_header(self) -> bool:
        return self.infers_types and self.asked.header == "auto"

    @property
    def _reader(self) -> TypedReader:
        return TypedReader(self._rows, self.as_text, self.fixed_schema, self.marked)

    def columns(self) -> pa.Schema:
        return self._reader.columns()

    def naming_files(self) -> Self:
        return replace(self, names_files=True)

    def expecting(self, columns: Sequence[str]) -> Self:
        return replace(self, wanted=tuple(columns))

    def prepare(self, files: Sequence[InputFile]) -> Self:
        source = self._of_files(files)
        first = look_at(source._rows, not_empty(files)[0])
        guesses = self._guesses_header
        if problem := given_twice(first) or (guesses and headerless(first)):
            raise InputError(problem)
        return source._having_seen(first)

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        # The columns of one file are those of all that were converted.
        files = not_empty([*not_empty(kept)[:1], *new])
        names = [feature.name for feature in schema.features] if schema else self.wanted
        source = replace(self.expecting(names)._of_files(files), fixed_schema=schema)
        return source._having_seen(look_at(source._rows, files[0]))

    def _of_files(self, files: Sequence[InputFile]) -> Self:
        """Returns the source with the dialect and the columns of its files."""
        asked, packing = self.asked, self.asked_packing
        found = find_rows(files, asked, packing, self.wanted, self.storage)
        return replace(
            self, names=found.names, dialect=found.dialect, packing=found.packing
        )

    def _having_seen(self, first: FirstRows) -> Self:
        types = dict(zip(first.names, first.flags, strict=True))
        return replace(
            self,
            sampled_rows=min(first.cells.num_rows, LOOKED_AT),
            sampled_types=tuple(types[name] for name in self.names),
            warnings=header_doubts(first, is_guessed=self._guesses_header),
            has_quotes=bool(self.dialect.quote) and self.dialect.quote in first.text,
            marked=marked_columns(first) if self.infers_types else (),
        )

    @property
    def _table(self) -> UnderstoodTable:
        return UnderstoodTable(self._rows, self.asked, self.warnings)

    def understood(self) -> Understood:
        if self.fixed_schema is not None:
            return self._table.of_dataset(self.fixed_schema)
        if self.as_text:
            return self._table.declared()
        return self._table.so_far(self.sampled_rows, self.sampled_types, self.marked)

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: TypeFlags = (),
    ) -> Understood:
        if not self.infers_types:
            found = self.understood().with_warnings(long_warnings(odd, self.names))
            return replace(found, facts=(*found.facts, *comment_fact(odd)))
        return self._table.of_all_rows(schema, odd, observed)

    def odd_problem(self, odd: Sequence[OddRows]) -> str:
        return exact_problem(odd, self.names) if self.exact else ""

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        # A row that names a file can be of any size: its table is no small one.
        return cut_tables(
            not_empty(files),
            self.range_bytes,
            is_plain=self.packing.is_plain,
            is_joined=not self.names_files,
        )

    def needs_survey(self, ranges: Sequence[InputRange]) -> bool:
        return any(input_range.start for input_range in ranges)

    def survey(self, input_range: InputRange) -> int:
        """Returns the transition map of a block (see quote_states)."""
        if input_range.files:
            return 0  # nothing is before their rows
        read = self._rows.of_file(input_range)
        # Without a quote the last byte tells the state.
        tail_first = self.has_quotes or not self.dialect.quote
        return survey_block(read, input_range, self.dialect, tail_first=tail_first)

    def resolve_ranges(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """Notes with every range in which states of the quotes it begins and ends."""
        resolved: list[InputRange] = []
        by_file = groupby(zip(ranges, surveys, strict=True), lambda pair: pair[0].uri)
        for _, found in by_file:
            pairs = list(found)
            read = self._rows.of_file(pairs[0][0])
            own, numbers = zip(*pairs, strict=True)
            resolved += resolve_file(read, own, numbers, self.dialect)
        return resolved

    def sample(self, input_range: InputRange) -> TypeFlags:
        return sample_types(self._rows, input_range)

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        return sampled_ranges(self._rows, ranges)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        if self.fixed_schema is not None:
            return self.fixed_schema
        observed = observed or (int(TypeFlag.NOTHING),) * len(self.names)
        return infer_schema(self.names, observed, nulls or (0,) * len(self.names))

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        if not observed:
            return False  # no row starts in this range
        # A column without a value in this range has put nothing into its records.
        return any(
            seen and column_dtype(taken) != column_dtype(wanted)
            for seen, taken, wanted in zip(observed, used, final, strict=True)
        )

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        expected = expected or (int(TypeFlag.NOTHING),) * len(self.names)
        return self._reader.read(input_range, expected)

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        """Reads a range with all cells as text, numbers with a point."""
        text = (int(TypeFlag.TEXT),) * len(self.names)
        for rows in self.read(input_range, text):
            if self.decimal_comma:
                columns = [swap_in_numbers(column) for column in rows.batch.columns]
                rows.batch = pa.RecordBatch.from_arrays(
                    columns, schema=rows.batch.schema
                )
            yield rows

    @property
    def decimal_comma(self) -> bool:
        return self.dialect.decimal == ","

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # A short cell ("1,") becomes an entry with the column's name.
        names = sum(len(name.encode()) + ENTRY_BYTES for name in self.names)
        growth = 1 + names // (4 * len(self.names))
        unpacked = UNPACKED_TIMES if self.packing.compression else 1
        return sum(file.size for file in files) * min(growth, 16) * unpacked
