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

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.ranges import (
    InputFile,
    InputRange,
    OddRows,
    TypeFlags,
    merge_type_flags,
)
from recordmill.schemas.rounded import Rounded, exact_error, rounded_warnings
from recordmill.schemas.text import count
from recordmill.schemas.understood import Understood
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Rows,
    Source,
    number_ranges,
    spread_evenly,
)
from recordmill.transforms.sources.csv.block_states import resolve_file, survey_block
from recordmill.transforms.sources.csv.column_types import (
    SAMPLE_BYTES,
    infer_schema,
    sample_types,
)
from recordmill.transforms.sources.csv.first_rows import (
    LOOKED_AT,
    FirstRows,
    describe,
    huge_warnings,
)
from recordmill.transforms.sources.csv.fixed_schema import fit_rows, fixed_columns
from recordmill.transforms.sources.csv.guess_states import guess_states
from recordmill.transforms.sources.csv.range_rows import RangeRows, columns_differ
from recordmill.transforms.sources.csv.row_bounds import (
    BOM,
    read_header,
)
from recordmill.transforms.sources.csv.small_files import join_small_files
from recordmill.transforms.sources.csv.split_cells import columns_of
from recordmill.transforms.sources.csv.text_rows import TextRows
from recordmill.transforms.sources.float_columns import rounded_in
from recordmill.transforms.sources.text_types import (
    TypeFlag,
    column_dtype,
    is_huge,
)
from recordmill.transforms.sources.wide_columns import (
    convert_columns,
)

SAMPLED_RANGES = 32
SAMPLED_RANGE_BYTES = 1 << 18
ENTRY_BYTES = 24  # what a feature's map entry costs beside its name and value


@dataclass(frozen=True)
class CsvSource(Source):
    """Comma-separated values.

    Attributes:
      as_text: whether every cell stays text, because a declared schema converts it.
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
      names_files: whether cells name files that are read for their rows.
    """

    as_text: bool = False
    exact: bool = False
    names: tuple[str, ...] = ()
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES
    storage: StorageOptions = NO_OPTIONS
    files_root: str = ""
    sampled_rows: int = 0
    sampled_types: TypeFlags = ()
    warnings: tuple[str, ...] = ()
    names_files: bool = False

    tells_checksums = True
    read_rate = 70e6

    @property
    def _rows(self) -> RangeRows:
        return RangeRows(self.names, self.storage)

    @property
    def infers_types(self) -> bool:
        """Tells whether types follow from the cells: no schema gives them."""
        return not self.as_text and self.fixed_schema is None

    def columns(self) -> pa.Schema:
        """Returns the columns as text: types are known only once all cells were read."""
        if self.fixed_schema is not None:
            return fixed_columns(self.names, self.fixed_schema)
        return pa.schema([(name, pa.string()) for name in self.names])

    def naming_files(self) -> Self:
        return replace(self, names_files=True)

    def prepare(self, files: Sequence[InputFile]) -> Self:
        source = self._with_names(files)
        first = source._first_look(_not_empty(files)[0])
        found = first.one_column(is_declared=self.as_text)
        if found and not self.as_text:
            raise InputError(found)
        return source._having_seen(first)

    def _with_names(self, files: Sequence[InputFile]) -> Self:
        names: tuple[str, ...] = ()
        for file in _not_empty(files):
            own, _ = read_header(self._rows.of_file(file), file.uri)
            names = names or own
            if set(own) != set(names):
                raise InputError(columns_differ(file.uri, own, names))
        if not names:
            raise InputError(
                "every input file is empty; expected a header and rows of values"
            )
        return replace(self, names=names)

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        # The columns of one file are those of all that were converted.
        files = _not_empty([*_not_empty(kept)[:1], *new])
        source = replace(self._with_names(files), fixed_schema=schema)
        return source._having_seen(source._first_look(files[0]))

    def _first_look(self, file: InputFile) -> FirstRows:
        """Reads the header and the first rows of a file."""
        size = file.size
        whole = InputRange(0, file.path, file.uri, 0, size, 0, size, seen=file.seen)
        names, header_end = read_header(self._rows.of_file(file), file.uri)
        header = self._rows.of_file(file)(0, header_end).removeprefix(BOM).strip()
        parsed = self._rows.sample(whole, SAMPLE_BYTES)
        if parsed is None:
            nothing = pa.table({name: pa.array([], pa.string()) for name in names})
            return FirstRows(file.uri, header, names, (), nothing)
        rows = [parsed.body[slice(*span)] for span in parsed.spans[:LOOKED_AT]]
        return FirstRows(file.uri, header, names, rows, parsed.table)

    def _having_seen(self, first: FirstRows) -> Self:
        warnings = [first.one_column(is_declared=True)]
        if self.infers_types:
            warnings.append(first.headerless())
        types = dict(zip(first.names, first.flags, strict=True))
        return replace(
            self,
            sampled_rows=min(first.cells.num_rows, LOOKED_AT),
            sampled_types=tuple(types[name] for name in self.names),
            warnings=tuple(filter(None, warnings)),
        )

    def understood(self) -> Understood:
        if self.fixed_schema is not None:
            dtypes = _dtypes(self.fixed_schema, self.names)
            return describe(self.names, dtypes, "of the dataset", self.warnings)
        if self.as_text:
            return describe(self.names, (), "declared", self.warnings)
        dtypes = [
            column_dtype(flags) if flags else "empty" for flags in self.sampled_types
        ]
        basis = f"so far, by the first {count(self.sampled_rows, 'row')}"
        return describe(self.names, dtypes, basis, self.warnings)

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: TypeFlags = (),
        rounded: Sequence[Rounded] = (),
    ) -> Understood:
        lost = rounded_warnings(rounded)
        if not self.infers_types:
            return self.understood().with_warnings(lost)
        dtypes = _dtypes(schema, self.names)
        huge = [
            n for n, flags in zip(self.names, observed, strict=False) if is_huge(flags)
        ]
        warnings = (*self.warnings, *huge_warnings(huge), *lost)
        return describe(self.names, dtypes, "of all rows", warnings)

    def rounding_problem(self, rounded: Sequence[Rounded]) -> str:
        return exact_error(rounded) if self.exact and rounded else ""

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        ranges = number_ranges(
            [
                (file, start, min(start + self.range_bytes, file.size), "")
                for file in _not_empty(files)
                for start in range(0, file.size, self.range_bytes)
            ]
        )
        # A row that names a file can be of any size: its table is no small one.
        return (
            ranges if self.names_files else join_small_files(ranges, self.range_bytes)
        )

    def needs_survey(self, ranges: Sequence[InputRange]) -> bool:
        return any(input_range.start for input_range in ranges)

    def survey(self, input_range: InputRange) -> int:
        """Returns the transition map of a block (see quote_states)."""
        if input_range.files:
            return 0  # nothing is before their rows
        return survey_block(self._rows.of_file(input_range), input_range)

    def resolve_ranges(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """Notes with every range in which states of the quotes it begins and ends."""
        resolved: list[InputRange] = []
        by_file = groupby(zip(ranges, surveys, strict=True), lambda pair: pair[0].uri)
        for _, found in by_file:
            pairs = list(found)
            read = self._rows.of_file(pairs[0][0])
            resolved += resolve_file(read, *zip(*pairs, strict=True))
        return resolved

    def sample(self, input_range: InputRange) -> TypeFlags:
        return sample_types(self._rows, input_range)

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        files = [each for input_range in ranges for each in input_range.by_file()]
        chosen = spread_evenly(files, SAMPLED_RANGES, SAMPLED_RANGE_BYTES)
        return [
            guess_states(self._rows, input_range, self.survey(input_range))
            for input_range in chosen
        ]

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
        for rows in self._rows.text_rows(input_range):
            observed: TypeFlags = ()
            nulls: tuple[int, ...] = ()
            rounded: tuple[Rounded, ...] = ()
            if rows.is_nothing:
                batch = pa.RecordBatch.from_pylist([], schema=self.columns())
            elif self.fixed_schema is not None:
                rows, batch = fit_rows(rows, self.names, self.fixed_schema, input_range)
            else:
                batch, observed, nulls = self._convert(rows, expected)
                expected = merge_type_flags(expected, observed)
            if not self.as_text and not rows.is_nothing:
                rounded = rounded_in(rows.table, batch)
            yield Rows(
                batch=batch,
                origins=rows.origins,
                positions=rows.positions,
                raw=rows.raw,
                paths=rows.paths,
                rejects=rows.rejects,
                observed=observed,
                nulls=nulls,
                rounded=rounded,
                checksums=rows.checksums,
            )

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        """Reads a range with all cells as text."""
        return self.read(input_range, (int(TypeFlag.TEXT),) * len(self.names))

    def _convert(
        self, rows: TextRows, expected: TypeFlags
    ) -> tuple[pa.RecordBatch, TypeFlags, tuple[int, ...]]:
        """Returns the typed columns, their type flags and their missing values."""
        if self.as_text:
            cells = columns_of(rows.table, self.names)
            return pa.RecordBatch.from_arrays(cells, names=list(self.names)), (), ()
        cells = columns_of(rows.table, self.names)
        columns, observed = convert_columns(cells, expected, rows.num_bytes)
        batch = pa.RecordBatch.from_arrays(columns, names=list(self.names))
        return batch, tuple(observed), tuple(column.null_count for column in cells)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # A short cell ("1,") becomes an entry with the column's name.
        names = sum(len(name.encode()) + ENTRY_BYTES for name in self.names)
        growth = 1 + names // (4 * len(self.names))
        return sum(file.size for file in files) * min(growth, 16)


def _dtypes(schema: Schema, names: Sequence[str]) -> list[str]:
    by_name = {feature.name: feature.dtype for feature in schema.features}
    return [by_name[name] for name in names]


def _not_empty(files: Sequence[InputFile]) -> list[InputFile]:
    return [file for file in files if file.size]
