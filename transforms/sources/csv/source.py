"""Reads CSV files: cuts them at row ends, and infers types from their whole content.

A file is cut into blocks of constant size. A boundary scan first finds the quotes of each
block (`survey`), so every range knows whether its block begins inside a quoted field. A
range then extends from the first row that starts in its block to the first row that
starts in the next block. Types are inferred from a sample and checked during the
conversion; a range that was encoded with a too narrow type is encoded again (see
text_columns).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import groupby, pairwise, repeat
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, SchemaError, UsageError
from recordmill.schemas.feature_spec import Schema, usual_kind
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputReport, SkippedFiles
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags, merge_type_flags
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms.cast.text_values import shorten_cell, swap_in_numbers
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Append,
    InputFindings,
    RangeFindings,
    Rows,
    Source,
    cut_blocks,
    missing_required,
    spread_evenly,
)
from recordmill.transforms.sources.csv import inspect
from recordmill.transforms.sources.csv.header import (
    find_header,
    parse_dialect,
    parse_packing,
)
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    FIELD_START,
    FIND_DIALECT,
    QUOTED,
    RFC_4180,
    ROW_START,
    UNCLOSED_BYTES,
    UNQUOTED,
    Dialect,
    QuoteState,
    Reader,
    TransitionMap,
    compose_maps,
    compute_transition_map,
    count_lines,
    create_masked_reader,
    find_unclosed_quote,
    is_open,
    pack_map,
    report_comments,
    unpack_map,
)
from recordmill.transforms.sources.csv.rows import RangeRows
from recordmill.transforms.sources.file_splits import NO_SPLITS, FileSplits
from recordmill.transforms.sources.plain_types import (
    report_left_out_columns,
    require_features,
)
from recordmill.transforms.sources.registry import CsvOptions, OddCells, SourceRequest
from recordmill.transforms.sources.text_columns import (
    ARROW_TYPES,
    OddColumn,
    TypeFlag,
    classify_columns,
    column_dtype,
    columns_with_examples,
    convert_columns,
    count_classes,
    count_issues,
    exact_problem,
    find_invalid_cells,
    flags_without_odd_cells,
    format_row_location,
    format_sortable_example,
    infer_schema,
    is_mixed,
    long_warnings,
    marked_warnings,
    odd_columns,
    odd_problem,
    odd_warnings,
    report_missing_cells,
    report_odd_cells,
    with_decimal_points,
)
from recordmill.transforms.storage.input_stream import (
    DETECT_PACKING,
    UNPACKED_TIMES,
    RequestedPacking,
)
from recordmill.transforms.storage.reading import full_uri

# Many small tables share one range, because each range costs some milliseconds in every
# step of a run.

FILES_PER_RANGE = 256
MIN_RANGES = 64  # files are joined only if at least so many ranges remain for workers
SMALL_SHARE = 16  # a file is small if so many files of its size fit into a range
TAIL_BYTES = 1 << 16  # end of a block, which usually determines the state after it


def scan_block(
    read: Reader,
    block: InputRange,
    dialect: Dialect = RFC_4180,
    *,
    tail_first: bool = False,
) -> int:
    """Returns the packed transition map of a block.

    With `tail_first`, only the end of the block is read if it determines the state. It
    never does in a block without quotes.
    """
    start = block.start
    # The first field starts after the skipped lines or the byte order mark.
    if dialect.skip_rows:
        start = max(start, find_header(read, block.uri, dialect))
    elif 0 < start < len(BOM) and read(0, len(BOM)) == BOM:
        start = len(BOM)
    start = min(start, block.stop)
    tail = max(start, block.stop - TAIL_BYTES) if tail_first else start
    ends = _read_transition_map(read, tail, block.stop, dialect)
    if tail > start and len(set(ends)) > 1:
        ends = compose_maps(_read_transition_map(read, start, tail, dialect), ends)
    return pack_map(ends)


def _read_transition_map(
    read: Reader, start: int, stop: int, dialect: Dialect
) -> TransitionMap:
    text = read(start, stop)
    is_marked = start == 0 and not dialect.skip_rows and text.startswith(BOM)
    return compute_transition_map(text, len(BOM) if is_marked else 0, dialect=dialect)


def _apply_file_boundaries(
    read: Reader,
    ranges: Sequence[InputRange],
    surveys: Sequence[int],
    dialect: Dialect = RFC_4180,
) -> list[InputRange]:
    """Returns the ranges of a file with the quote states at their start and end.

    If a large field is still open at the end of the file, its quote is masked, so that
    only the row in which it begins is rejected.
    """
    if len(ranges) == 1:
        return list(ranges)  # the state at the start of a file is known
    states = _end_states(surveys)
    if is_open(states[-1]):
        size = ranges[-1].stop
        quote = find_unclosed_quote(read, size, dialect)
        if size - quote > UNCLOSED_BYTES:
            maps = list(surveys)
            for range_index, input_range in enumerate(ranges):
                if input_range.start <= quote < input_range.stop:
                    maps[range_index] = scan_block(
                        create_masked_reader(read, quote, dialect), input_range, dialect
                    )
            ranges = [
                replace(input_range, unclosed_quote=quote) for input_range in ranges
            ]
            states = _end_states(maps)
    cuts = [0, *(int(state) for state in states[:-1]), 0]
    return [
        replace(input_range, quote_states=ends)
        for input_range, ends in zip(ranges, pairwise(cuts), strict=True)
    ]


def _end_states(maps: Sequence[int]) -> list[QuoteState]:
    states: list[QuoteState] = [ROW_START]
    for number in maps:
        states.append(unpack_map(number)[states[-1] - FIELD_START])
    return states[1:]


LOOKED_AT_BYTES = 1 << 18


def _guess_states(rows: RangeRows, input_range: InputRange) -> InputRange:
    """Returns the range with the quote states that lead to the fewest rejects.

    Knowing the states would require reading the file from its start.
    """
    start = input_range.start
    read = rows.reader(input_range)
    ends = unpack_map(scan_block(read, input_range, rows.dialect))
    if start == 0:
        return replace(
            input_range, quote_states=(0, int(ends[ROW_START - FIELD_START]))
        )
    preceding_byte = read(start - 1, start)
    state = FIELD_START if preceding_byte in rows.dialect.field_ends else UNQUOTED
    if preceding_byte in (b"\r", b"\n"):
        state = ROW_START
    guesses = [
        replace(input_range, quote_states=(int(state), int(ends[state - FIELD_START])))
        for state in (state, QUOTED)
    ]

    def share_rejected(guess: InputRange) -> float:
        parsed = rows.sample_rows(guess, LOOKED_AT_BYTES)
        if parsed is None or not parsed.num_rows:
            return 0.5  # no row starts in the sample, for example inside a long text
        return len(parsed.rejects) / parsed.num_rows

    return min(guesses, key=share_rejected)


SAMPLED_RANGES = 32
SAMPLED_RANGE_BYTES = 1 << 18
_SAMPLED_FILES = 8  # maximum number of sampled files in a range of small files


def join_small_files(
    ranges: Sequence[InputRange], range_bytes: int
) -> list[InputRange]:
    """Returns the ranges of an input, with the ranges of small files joined."""
    are_small = [
        input_range.stat is not None
        and input_range.num_positions == input_range.stat.size
        and input_range.stat.size * SMALL_SHARE <= range_bytes
        for input_range in ranges
    ]
    max_files = min(FILES_PER_RANGE, max(1, sum(are_small) // MIN_RANGES))
    groups: list[list[InputRange]] = []
    remaining_bytes = files = 0  # bytes and files that the last group can still take
    for input_range, small in zip(ranges, are_small, strict=True):
        same = bool(groups) and groups[-1][0].split == input_range.split
        if small and files and same and input_range.stop <= remaining_bytes:
            groups[-1].append(input_range)
            remaining_bytes, files = remaining_bytes - input_range.stop, files - 1
        else:
            groups.append([input_range])
            remaining_bytes, files = (
                range_bytes - input_range.stop,
                (max_files - 1) * small,
            )
    return [_joined(index, group) for index, group in enumerate(groups)]


def _joined(index: int, group: Sequence[InputRange]) -> InputRange:
    if len(group) == 1:
        return replace(group[0], index=index)
    files = tuple(
        InputFile(file_range.path, file_range.uri, *file_range.stat)
        for file_range in group
        if file_range.stat
    )
    stop = sum(file.size for file in files)
    return replace(group[0], index=index, stop=stop, stat=None, files=files)


def _convert_types(
    text: pa.RecordBatch, expected: TypeFlags, dialect: Dialect
) -> tuple[pa.RecordBatch, TypeFlags]:
    """Converts text columns to the types of their cells; returns them and type flags."""
    cells = text.columns
    columns, observed = convert_columns(
        with_decimal_points(cells, dialect.decimal), expected
    )
    if dialect.decimal == ",":  # text columns keep their original commas
        pairs = zip(cells, columns, strict=True)
        columns = [
            text_column if pt.is_string(typed_column.type) else typed_column
            for text_column, typed_column in pairs
        ]
    batch = pa.RecordBatch.from_arrays(columns, names=text.schema.names)
    return batch, tuple(observed)


_DECIDED_FLAG = int(
    TypeFlag.DECIDED
)  # an int, because flag operations take microseconds
_FLAGS_BY_DTYPE = {
    "bool": TypeFlag.BOOLEAN,
    "int64": TypeFlag.INTEGER,
    "float32": TypeFlag.DECIMAL,
    "string": TypeFlag.TEXT,
}


_FOLDER_FLAGS = {
    pa.int64(): TypeFlag.INTEGER,
    pa.float64(): TypeFlag.DECIMAL,
    pa.string(): TypeFlag.TEXT,
}
# maximum number of columns with odd cells in the message of a changed schema
_MAX_NOTES = 5
FEATURE_BYTES = 24  # size of a feature's map entry without its name and value


def _create_example(
    rows: Rows,
    column: pa.StringArray,
    input_range: InputRange,
    line_of_row: Callable[[int], str],
    chosen: Sequence[int],
) -> str:
    """Returns the chosen cells of a column as the example of an issue."""
    cells = (f"{line_of_row(row)}: {shorten_cell(column, row)}" for row in chosen)
    position = input_range.first_position + int(rows.positions[chosen[0]])
    return format_sortable_example(position, ", ".join(cells))


def _no_example(_: Sequence[int]) -> str:
    return ""


_UNPREPARED_ROWS = RangeRows()
_NO_FINDINGS = inspect.FirstRowFindings()


@dataclass(frozen=True)
class CsvSource(Source):
    """A source of text tables: one row per line, with a delimiter between cells."""

    # whether all cells stay text, because a declared schema converts them
    as_text: bool = False
    requested_dialect: Dialect = FIND_DIALECT  # the dialect that the options request
    # the compression and encoding that the options request
    requested_packing: RequestedPacking = DETECT_PACKING
    # columns of the schema, or () if the schema is not known
    requested_columns: tuple[str, ...] = ()
    # whether a decimal that loses digits as float32 ends the run
    requires_exact: bool = False
    odd_cells: OddCells = "refuse"  # treatment of the few cells of another type
    names_files: bool = False  # whether cells name sidecar files
    files_roots: tuple[str, ...] = ()  # see `Source`
    # for an append, the schema of the dataset: types are not inferred, and a row that
    # does not fit is rejected; otherwise None
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES  # size of the blocks that ranges are cut from
    splits: FileSplits = NO_SPLITS
    # storage; after `prepare`, also columns and dialect
    rows: RangeRows = _UNPREPARED_ROWS
    # types and warnings of the first rows
    first_row_findings: inspect.FirstRowFindings = _NO_FINDINGS
    skipped_files: tuple[SkippedFiles, ...] = ()  # files without rows
    left_out_columns: tuple[str, ...] = ()  # columns that become no feature

    reports_checksums = True

    @property
    def storage(self) -> StorageOptions:  # type: ignore[override]
        return self.rows.storage

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the columns in the first file's header, then columns from folders."""
        return self.rows.names + self.rows.partitions.keys

    @property
    def infers_types(self) -> bool:  # type: ignore[override]
        return not self.as_text and self.fixed_schema is None

    @property
    def decimal_comma(self) -> bool:  # type: ignore[override]
        return self.rows.dialect.decimal == ","

    def columns(self) -> pa.Schema:
        # Text, unless the types are fixed: others are known after all cells are read.
        types = self._fixed_types or (int(TypeFlag.TEXT),) * len(self.names)
        arrow_types = map(ARROW_TYPES.__getitem__, map(column_dtype, types))
        return pa.schema(list(zip(self.names, arrow_types, strict=True)))

    @cached_property
    def _fixed_types(self) -> TypeFlags:
        """Returns the type flags of `fixed_schema`, or () if it is None."""
        if (schema := self.fixed_schema) is None:
            return ()
        require_features(self.names, schema, folders=self.rows.partitions.keys)
        flags = {}
        for feature in schema.features:
            dtype = feature.dtype
            if dtype not in _FLAGS_BY_DTYPE or feature.kind is not usual_kind(dtype):
                raise SchemaError(
                    f"feature {feature.name!r} of the dataset is {dtype} in "
                    f"{feature.kind}; without a declared schema, CSV columns never get "
                    "this type"
                )
            flags[feature.name] = int(_FLAGS_BY_DTYPE[dtype]) | _DECIDED_FLAG
        return tuple(flags[name] for name in self.names)

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        requested_columns, empty_paths = (
            self.requested_columns,
            [file.path for file in files if not file.size],
        )
        files = [file for file in files if file.size]
        schema = append.schema if append is not None else None
        existing_files = (
            [file for file in append.existing_inventory if file.size] if append else []
        )
        splits = self.splits.find_rule(files, existing_files)
        partitions = self.rows.partitions.find_columns(files, splits, existing_files)
        if append is not None:
            # One converted file is enough, because all have the same columns.
            files = [*existing_files[:1], *files]
        if schema is not None:
            requested_columns = tuple(feature.name for feature in schema.features)
        leaves_out, unwanted = self.rows.ignores_extra_columns, set[str]()
        if requested_columns and (self.as_text or leaves_out):
            partitions, unwanted = partitions.select(requested_columns)
        requested_columns = tuple(
            name for name in requested_columns if name not in partitions.keys
        )
        rows, without_rows, left_out = inspect.detect_rows(
            *(
                files,
                self.requested_dialect,
                self.requested_packing,
                requested_columns,
                self.storage,
            ),
            leaves_out=leaves_out,
            partitions=partitions,
        )
        first, problem = inspect.inspect_first_rows(
            rows,
            files[0],
            is_guessed=self.infers_types and self.requested_dialect.header == "auto",
            infers_types=self.infers_types and schema is None,
        )
        if append is None and problem:
            raise InputError(problem)
        if first.types:
            folder_types = (int(_FOLDER_FLAGS[kind]) for _, kind in partitions.types)
            first = replace(first, types=(*first.types, *folder_types))
        skipped = [
            *zip(repeat("empty"), empty_paths),
            *zip(repeat("no rows"), without_rows),
        ]
        return replace(
            self,
            splits=splits,
            rows=replace(rows, partitions=partitions),
            first_row_findings=first,
            requested_columns=requested_columns,
            fixed_schema=schema,
            skipped_files=SkippedFiles.count_by_reason(skipped),
            left_out_columns=(*left_out, *unwanted)
            if self.as_text or leaves_out
            else (),
        )

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        issues = (
            input_findings.issues
            if input_findings is not None
            else self.first_row_findings.marked_issues
        )
        schema, warnings = self.fixed_schema, [*self.first_row_findings.warnings]
        facts: tuple[tuple[str, str], ...] = ()
        basis = "of the dataset" if schema is not None else "declared"
        types = {}
        if self.infers_types:
            basis = f"so far, by the first {format_count(self.first_row_findings.num_rows, 'row')}"
            first = zip(self.names, self.first_row_findings.types, strict=False)
            types = {name: column_dtype(f) if f else "empty" for name, f in first}
        if self.infers_types and input_findings is not None:
            schema, odd = input_findings.schema, self._odd_columns(input_findings)
            basis = f"so far, by {format_count(input_findings.num_rows, 'row')}"
            basis = "of all rows" if input_findings.is_complete else basis
            warnings += odd_warnings(odd)
            facts = (*report_missing_cells(issues, schema), *report_odd_cells(odd))
        warnings += long_warnings(issues, self.names)
        warnings += marked_warnings(issues, self.rows.dialect.decimal)
        if schema is not None:
            types = {feature.name: feature.dtype for feature in schema.features}
        dtypes = [types[name] for name in self.names] if types else ()
        names = self.names  # plus the columns that a schema leaves out
        if not self.rows.ignores_extra_columns:
            names = tuple(dict.fromkeys((*names, *sorted(self.left_out_columns))))
        rows = replace(self.rows, names=names)
        input_report = inspect.create_input_report(
            rows, self.requested_dialect, dtypes, basis, warnings
        )
        facts = (
            *report_left_out_columns(self.left_out_columns),
            *facts,
            *report_comments(issues),
        )
        facts = (
            *input_report.fields,
            *facts,
            *self.splits.report_lines,
            *rows.partitions.report_lines,
        )
        return replace(input_report, fields=facts, skipped_files=self.skipped_files)

    def issue_problem(self, input_findings: InputFindings) -> str:
        problem = ""
        if self.odd_cells == "refuse":
            problem = odd_problem(self._odd_columns(input_findings))
        if self.requires_exact:
            problem = problem or exact_problem(input_findings.issues, self.names)
        return problem

    def type_notes(self, input_findings: InputFindings) -> list[str]:
        return [
            odd.description for odd in self._odd_columns(input_findings)[:_MAX_NOTES]
        ]

    def final_type_flags(self, input_findings: InputFindings) -> TypeFlags:
        if self.odd_cells != "reject":
            return input_findings.type_flags
        types = dict(zip(self.names, input_findings.type_flags, strict=True))
        for odd in self._odd_columns(input_findings):
            if odd.is_few:
                types[odd.name] = odd.flags_without_odd_cells(types[odd.name])
        return tuple(types.values())

    def _odd_columns(self, input_findings: InputFindings) -> list[OddColumn]:
        # Null counts of columns that a function (`map`) creates do not apply.
        is_own = len(input_findings.null_counts) == len(self.names)
        nulls = (
            dict(zip(self.names, input_findings.null_counts, strict=True))
            if is_own
            else {}
        )
        cells = {
            name: input_findings.num_rows - nulls.get(name, 0) for name in self.names
        }
        return odd_columns(input_findings.issues, cells)

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        is_plain = self.rows.packing.is_plain  # others can only be read from the start
        size = self.range_bytes if is_plain else None
        ranges = cut_blocks(files, size, self.splits)
        # A row that names a sidecar file can have any size, so its table is never small.
        if is_plain and not self.names_files:
            return join_small_files(ranges, self.range_bytes)
        return ranges

    def needs_boundary_scan(self, ranges: Sequence[InputRange]) -> bool:
        return any(input_range.start for input_range in ranges)

    def scan_boundaries(self, input_range: InputRange) -> int:
        if input_range.files:
            return 0  # each file of the range begins at a row
        # If the dialect has no quote, the last byte determines the state.
        tail_first = self.first_row_findings.has_quotes or not self.rows.dialect.quote
        read = self.rows.reader(input_range)
        return scan_block(read, input_range, self.rows.dialect, tail_first=tail_first)

    def apply_boundaries(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        resolved: list[InputRange] = []
        by_file = groupby(zip(ranges, surveys, strict=True), lambda pair: pair[0].uri)
        for _, pairs in by_file:
            file_ranges, numbers = zip(*pairs, strict=True)
            read = self.rows.reader(file_ranges[0])
            resolved += _apply_file_boundaries(
                read, file_ranges, numbers, self.rows.dialect
            )
        return resolved

    def sample_type_flags(self, input_range: InputRange) -> TypeFlags:
        flags: TypeFlags = (int(TypeFlag.NOTHING),) * len(self.names)
        files = input_range.split_by_file()
        chosen = files[:: -(-len(files) // _SAMPLED_FILES)]
        for file_range in chosen:
            parsed = self.rows.sample_rows(
                file_range, inspect.TYPED_BYTES // len(chosen)
            )
            if parsed is not None and parsed.batch.num_rows:
                columns = self.rows.complete_columns(
                    parsed.batch, [file_range.path]
                ).columns
                columns = with_decimal_points(columns, self.rows.dialect.decimal)
                column_flags = map(int, classify_columns(columns))
                file_flags = tuple(map(flags_without_odd_cells, column_flags, columns))
                flags = merge_type_flags(flags, file_flags)
        return self._with_text_folders(flags)

    def _with_text_folders(self, flags: TypeFlags) -> TypeFlags:
        """Returns the flags with TEXT for folder columns of text, even for folder 12."""
        texts = [kind == pa.string() for _, kind in self.rows.partitions.types]
        typed_flags = zip(flags[len(self.rows.names) :], texts, strict=True)
        folder_flags = (
            int(TypeFlag.TEXT) if is_text else flag for flag, is_text in typed_flags
        )
        return (*flags[: len(self.rows.names)], *folder_flags)

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        files = [
            file_range
            for input_range in ranges
            for file_range in input_range.split_by_file()
        ]
        if not self.rows.packing.is_plain:
            return [
                replace(file_range, stop=min(file_range.stop, SAMPLED_RANGE_BYTES))
                for file_range in files[:: -(-len(files) // SAMPLED_RANGES)]
            ]
        chosen = spread_evenly(files, SAMPLED_RANGES, SAMPLED_RANGE_BYTES)
        return [_guess_states(self.rows, file_range) for file_range in chosen]

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        if self.fixed_schema is not None:
            return self.fixed_schema
        nothing = (int(TypeFlag.NOTHING),) * len(self.names)
        return infer_schema(self.names, observed or nothing, nulls or nothing)

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        # A column without values in this range added nothing to its records. If no row
        # starts in the range, there are no observed types.
        return bool(observed) and any(
            observed_flags and column_dtype(used_flags) != column_dtype(final_flags)
            for observed_flags, used_flags, final_flags in zip(
                observed, used, final, strict=True
            )
        )

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        nothing = (int(TypeFlag.NOTHING),) * len(self.names)
        expected = self._fixed_types or self._with_text_folders(expected or nothing)
        if self.infers_types:
            range_findings.add_batch_findings(observed=nothing, nulls=nothing)
        files = {file.path: index for index, file in enumerate(input_range.files)}
        first = len(range_findings.rejects)
        for rows in self.rows.text_rows(input_range, range_findings):
            if not rows.batch.num_rows:
                continue  # its rejects are sorted together with the next batch
            if not self.as_text:
                rows, typed, observed = self._reject_misfits(
                    rows, expected, input_range, range_findings
                )
                text = rows.batch
                if self.infers_types:
                    nulls = [column.null_count for column in text.columns]
                    expected = merge_type_flags(expected, observed)
                    mixed, expected = self._count_odd_cells(
                        rows, expected, input_range, range_findings
                    )
                    range_findings.add_batch_findings(
                        observed=merge_type_flags(observed, mixed), nulls=nulls
                    )
                range_findings.rejects[first:] = sorted(
                    range_findings.rejects[first:],
                    key=lambda reject: (files.get(reject.path, 0), reject.position),
                )
                rows.batch = typed
                reported_flags = observed if self.infers_types else ()
                marked, decimal = (
                    self.first_row_findings.marked_issues,
                    self.rows.dialect.decimal,
                )
                issues = count_issues(text, typed, reported_flags, marked, decimal)
                range_findings.add_batch_findings(issues=issues)
            yield rows
            first = len(range_findings.rejects)  # the caller may have added its own

    def _reject_misfits(
        self,
        rows: Rows,
        types: TypeFlags,
        input_range: InputRange,
        range_findings: RangeFindings,
    ) -> tuple[Rows, pa.RecordBatch, TypeFlags]:
        """Rejects the rows that do not fit the columns whose type is decided.

        Returns:
          The other rows as text, the same rows with types, and the type flags of their
            columns.
        """
        schema, dialect = self.fixed_schema, self.rows.dialect
        type_origin = "as all but a few cells of the column are"
        if schema is not None:
            type_origin = "its type in the dataset"
        while True:
            typed, observed = _convert_types(rows.batch, types, dialect)
            reasons: dict[int, str] = {}
            for at, flags in enumerate(types):
                dtype = column_dtype(flags) if flags & _DECIDED_FLAG else ""
                if dtype and column_dtype(observed[at]) != dtype:
                    name, cells = self.names[at], rows.batch.column(at)
                    [pointed_cells] = with_decimal_points([cells], dialect.decimal)
                    for row in np.flatnonzero(
                        find_invalid_cells(pointed_cells, dtype)
                    ).tolist():
                        reason = f"{shorten_cell(cells, row)} is not a valid {dtype}"
                        reasons.setdefault(row, f"{name}: {reason}, {type_origin}")
            reasons = reasons or missing_required(typed, schema)
            if not reasons:
                return rows, typed, observed
            rows = range_findings.reject_rows(rows, reasons, input_range)

    def _count_odd_cells(
        self,
        rows: Rows,
        types: TypeFlags,
        input_range: InputRange,
        range_findings: RangeFindings,
    ) -> tuple[TypeFlags, TypeFlags]:
        """Counts the cells of columns with mixed types by class.

        Returns:
          The type flags of the mixed columns (0 for others), and the expected type
            flags of all columns.
        """
        decimal = self.rows.dialect.decimal
        mixed, expected = [0] * len(types), list(types)
        named_columns = columns_with_examples(range_findings.issues)
        # Cached, because counting lines is slow and a row can have several odd cells.
        line_of_row = cache(partial(self._describe_location, rows, input_range))
        issues: list[RowIssue] = []
        for at, flags in enumerate(types):
            if is_mixed(flags):
                name, column = self.names[at], rows.batch.column(at)
                example = _no_example
                if name not in named_columns:
                    example = partial(
                        _create_example, rows, column, input_range, line_of_row
                    )
                [pointed_column] = with_decimal_points([column], decimal)
                column_issues, column_flags, is_text = count_classes(
                    name, pointed_column, example
                )
                issues += column_issues
                mixed[at] = expected[at] = flags | column_flags
                if is_text:
                    expected[at] = int(TypeFlag.TEXT)
        range_findings.add_batch_findings(issues=issues)
        return tuple(mixed), tuple(expected)

    def _describe_location(self, rows: Rows, input_range: InputRange, row: int) -> str:
        """Returns the location of a row as text: path and line."""
        offset, _ = rows.raw_row(row)
        path = rows.paths[row] if rows.paths else input_range.path
        [file_range] = [
            file_range
            for file_range in input_range.split_by_file()
            if file_range.path == path
        ]
        return format_row_location(
            path, offset, lambda: count_lines(self.rows.reader(file_range), offset)
        )

    def read_for_statistics(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Reads a range with all cells as text and points in decimal numbers."""
        text = (int(TypeFlag.TEXT),) * len(self.names)
        for rows in self.read(input_range, text, range_findings):
            if self.decimal_comma:
                columns = [swap_in_numbers(column) for column in rows.batch.columns]
                rows.batch = pa.RecordBatch.from_arrays(
                    columns, schema=rows.batch.schema
                )
            yield rows

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # A short cell ("1,") becomes a map entry with the name of the column.
        names = sum(len(name.encode()) + FEATURE_BYTES for name in self.names)
        growth = 1 + names // (4 * len(self.names))
        unpacked = UNPACKED_TIMES if self.rows.packing.compression else 1
        return sum(file.size for file in files) * min(growth, 16) * unpacked


def make_source(options: CsvOptions, request: SourceRequest) -> CsvSource:
    """Creates the source of CSV files, which infers types without a declared schema.

    Raises:
      UsageError: options cannot be combined.
    """
    as_text = request.as_text
    if options.exact and as_text:
        raise UsageError(
            "`exact` and `schema` cannot be combined: a declared float32 rounds. Leave "
            "out `exact`, and declare float64 if digits matter"
        )
    if options.decimal == "comma" and as_text:
        raise UsageError(
            "`decimal` and `schema` cannot be combined: declare `decimal: comma` for "
            "each such feature in the schema file, and leave out `decimal`"
        )
    if options.files_root and not as_text:
        raise UsageError(
            "`files_root` needs `schema`: declare which column names files, for example "
            "{features: {image: {column: path, bytes_from: path}}}"
        )
    return CsvSource(
        as_text=as_text,
        requested_dialect=parse_dialect(options),
        requested_packing=parse_packing(options),
        requires_exact=options.exact,
        odd_cells=options.odd_cells,
        splits=request.file_splits(options.split_from),
        requested_columns=request.columns,
        names_files=request.job is not None and request.job.reads_files,
        rows=RangeRows(
            storage=request.storage,
            ignores_extra_columns=options.extra_columns == "ignore",
            partitions=request.partitions(options.partitions),
        ),
        files_roots=tuple(map(full_uri, filter(None, options.files_root.split(",")))),
    )
