"""Reads JSON Lines: cut at line ends, columns and types by the first rows of each file.

A key is a column, and one of a nested object the column `a/b`. What most values of a
column are in the rows that `prepare` reads is its type; a line that does not fit is a
reject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputSummary, SkippedFiles
from recordmill.schemas.ranges import InputRange, Reject, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Append,
    Rows,
    RowSink,
    Source,
    number_ranges,
)
from recordmill.transforms.sources.jsonl.lines import (
    Line,
    ObservedColumn,
    Row,
    build_rows,
    column_of,
    is_text,
    parse_line,
    read_lines,
)
from recordmill.transforms.sources.packing import (
    MARK_BYTES,
    UNPACKED_TIMES,
    compression_of,
    other_compression,
)
from recordmill.transforms.sources.plain_types import types_to_append
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import open_stream, read_range

SAMPLE_BYTES = 64 << 20  # of all files, whose rows tell columns and types
_LEAST_BYTES = 1 << 16  # of a file that is looked at


def find_columns(
    files: Sequence[InputFile],
    first_lines: Callable[[InputFile, int], Iterator[list[Line]]],
    wanted: Sequence[str] | None,
    *,
    is_packed: bool,
) -> tuple[tuple[tuple[str, pa.DataType], ...], int, bool]:
    """Returns columns by the first rows of files, how many rows, and if there are more.

    No file is empty. `first_lines` yields the lines of that many bytes at the start of a
    file, all lines of a compressed one. The columns are those wanted; None for all.

    Raises:
      InputError: no line is an object, or a column can be no feature.
    """
    observed: dict[str, ObservedColumn] = {}
    share = max(_LEAST_BYTES, SAMPLE_BYTES // len(files))
    chosen = files[:: -(-len(files) * _LEAST_BYTES // SAMPLE_BYTES)]
    rows, problem, is_sampled = 0, "", len(chosen) < len(files)
    if not is_packed:
        is_sampled = is_sampled or max(file.size for file in files) > share
    for file in chosen:
        for lines in first_lines(file, share):
            parsed = [parse_line(line) for _, line in lines]
            found = [row for row in parsed if not isinstance(row, str)]
            wrong = [row for row in parsed if isinstance(row, str)]
            problem = problem or (f"{file.uri}: {wrong[0]}" if wrong else "")
            rows += len(found)
            for name in dict.fromkeys(chain.from_iterable(found)):
                column = observed.setdefault(name, ObservedColumn())
                column.add([row.get(name) for row in found])
            if is_packed and lines and lines[-1][0] >= share:
                is_sampled = True
                break
    if not rows:
        problem = problem or f"{files[0].uri}: only blank lines"
        raise InputError(
            f"no line of {count(len(files), 'input file')} is a JSON object: {problem}"
        )
    types = _types(observed, files[0].uri, wanted)
    return tuple(types.items()), rows, is_sampled


def _types(
    observed: Mapping[str, ObservedColumn], uri: str, wanted: Sequence[str] | None
) -> dict[str, pa.DataType]:
    types, problems = {}, []
    for name, column in observed.items():
        if wanted is not None and name not in wanted:
            continue
        found = column.arrow_type
        if found is None:
            problems.append(name)
        elif name and is_text(name):  # rows with any other are rejects
            types[name] = found
    if problems:
        raise InputError(
            f"{uri}: {', '.join(map(repr, problems))}: lists of objects, or of "
            "values of several types, can be no feature. Declare the other columns "
            "in a schema file (`schema`)"
        )
    if not types and wanted is None:
        raise InputError(f"{uri}: its objects have no keys")
    return types


BATCH_BYTES = 1 << 20  # read and encoded at once; as Python objects ten times as large
_ENTRY_BYTES = 24  # of a feature in a record, beside its name and its value


@dataclass(frozen=True)
class JsonLinesSource(Source):
    """Lines that are JSON objects.

    Attributes:
      as_declared: whether a declared schema says what becomes of the columns.
      wanted: columns that it uses.
      fixed_schema: the schema of the dataset that rows are appended to, or None.
      range_bytes: size of the blocks that ranges are cut from.
      types: the columns, once prepared.
      sampled_rows: how many rows told them.
      is_sampled: whether there are more.
      passed_over: empty files.
      compression: of all files, as in `Packing`.
      storage: options of the inputs' storage.
    """

    as_declared: bool = False
    wanted: tuple[str, ...] = ()
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES
    types: tuple[tuple[str, pa.DataType], ...] = ()
    sampled_rows: int = 0
    is_sampled: bool = False
    passed_over: tuple[SkippedFiles, ...] = ()
    compression: str = ""
    storage: StorageOptions = NO_OPTIONS

    tells_checksums = True

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        full = [file for file in files if file.size]
        if not full:
            raise InputError(
                "every input file is empty; expected JSON objects in lines"
            )
        head = read_range(full[0].uri, 0, MARK_BYTES, self.storage, full[0].seen)
        source = replace(self, compression=compression_of(head))
        source = source._look_at(full, [file.path for file in files if not file.size])
        if append is None or append.schema is None:
            return source
        fixed = types_to_append(append.schema, dict(source.types))
        types = tuple(fixed.items())
        return replace(source, types=types, fixed_schema=append.schema)

    def _look_at(self, full: Sequence[InputFile], empty: Sequence[str]) -> Self:
        """Returns the source with the columns of the first rows of its files."""
        types, rows, is_sampled = find_columns(
            full,
            self._first_lines,
            self.wanted if self.as_declared else None,
            is_packed=bool(self.compression),
        )
        return replace(
            self,
            types=types,
            sampled_rows=rows,
            is_sampled=is_sampled,
            passed_over=SkippedFiles.counted(("empty", path) for path in empty),
        )

    def understood(self) -> InputSummary:
        columns = ", ".join(f"{name} {found}" for name, found in self.types)
        basis = f"the first {count(self.sampled_rows, 'row')}"
        if not self.is_sampled:
            basis = f"all {count(self.sampled_rows, 'row')}"
        file = [("file", self.compression)] if self.compression else []
        facts = (*file, ("columns", columns), ("types", f"by {basis}"))
        return InputSummary(facts, (), self.passed_over)

    def columns(self) -> pa.Schema:
        return pa.schema(list(self.types))

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        # A compressed file can be read only from its start.
        return number_ranges(
            [
                (file, start, min(start + step, file.size), "")
                for file in files
                for step in (file.size if self.compression else self.range_bytes,)
                for start in range(0, file.size, max(1, step))
            ]
        )

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # A key is in each line, too; short values become longer.
        unpacked = UNPACKED_TIMES if self.compression else 1
        growth = 2 * unpacked * sum(file.size for file in files)
        return growth + _ENTRY_BYTES * len(self.types)

    def _open(self, file: InputFile | InputRange, part: tuple[int, int]) -> InputStream:
        """Opens the lines that begin in a part of a file; all of a compressed one."""
        if self.compression:
            stream = open_stream(file, self.storage, compression=self.compression)
            head = read_range(file.uri, 0, MARK_BYTES, self.storage, file.seen)
        else:  # at once: for the checksum and for the lines, by one request
            window = part[1] - part[0] + 1
            stream = open_stream(file, self.storage, part=part, window_bytes=window)
            head = stream.part(0, MARK_BYTES) if part[0] == 0 else b""
        if (found := compression_of(head)) != self.compression:
            raise InputError(other_compression(file.uri, found, self.compression))
        return stream

    def _first_lines(self, file: InputFile, size: int) -> Iterator[list[Line]]:
        """Yields the lines at the start of a file; all of a compressed one."""
        return read_lines(self._open(file, (0, min(size, file.size))), BATCH_BYTES)

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        part = input_range.start, input_range.stop
        stream = self._open(input_range, part)
        sink.add(nulls=(0,) * len(self.types))
        for lines in read_lines(stream, BATCH_BYTES):
            yield self._rows(lines, input_range, stream, sink)
        sink.checksums.append(FileChecksum(input_range.path, *part, stream.drain()))

    def _rows(
        self,
        lines: list[Line],
        input_range: InputRange,
        stream: InputStream,
        sink: RowSink,
    ) -> Rows:
        """Makes rows of lines; those that do not fit the columns are rejects."""
        batch, values, reasons = build_rows(
            lines, self._parse, self._batch, self._misfit, self.fixed_schema
        )
        sink.rejects += [
            Reject(input_range.path, lines[index][0], reasons[index], lines[index][1])
            for index in sorted(reasons)
        ]
        sink.add(nulls=[column.null_count for column in batch.columns])
        kept = [*values]
        offsets = np.array([lines[index][0] for index in kept], np.int64)
        positions = offsets - input_range.start
        if stream.is_packed:
            positions = stream.positions.of(offsets)
        return Rows(
            batch=batch,
            origins=origins_in(input_range.path, 0, offsets),
            positions=positions,
            raw=lambda row: lines[kept[row]],
        )

    def _parse(self, line: Line) -> Row | str:
        row = parse_line(line[1])
        if isinstance(row, str) or self.as_declared or row.keys() <= self._names:
            return row
        return self._unknown(next(name for name in row if name not in self._names))

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch | None:
        """Returns rows as columns, or None if a value does not fit."""
        arrays = []
        for name, wanted in self.types:
            column = column_of([row.get(name) for row in rows], wanted)
            if column is None:
                return None
            arrays.append(column)
        schema = self.columns()
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.types)

    def _unknown(self, name: str) -> str:
        if self.fixed_schema is not None:
            return f"{shown(name)}: is no feature of the dataset"
        return (
            f"{shown(name)}: is no key of the {count(self.sampled_rows, 'row')} that were "
            "looked at for columns; a schema file says which to use (`schema`)"
        )

    def _misfit(self, row: Row) -> str:
        for name, wanted in self.types:
            value = row.get(name)
            if column_of([value], wanted) is None:
                whose = "in the dataset" if self.fixed_schema else "in most rows"
                return f"{name}: {shown(value)} is not {wanted}, its type {whose}"
        return ""
