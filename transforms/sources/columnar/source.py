"""Reads Parquet and Arrow IPC files: types from the files, cut at groups of rows.

The unit of ranges and positions is the row of a file. A range is one or several whole
groups (row groups of Parquet, record batches of Arrow), and a row's origin is its file
and its number there, so it does not depend on the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.ranges import InputFile, InputRange, Reject, TypeFlags
from recordmill.schemas.text import count
from recordmill.schemas.understood import PassedOver, Understood
from recordmill.transforms.encode.arrow_types import is_list
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.base import RANGE_BYTES, Source, number_ranges
from recordmill.transforms.sources.columnar.cut_groups import (
    Cut,
    cut_groups,
    find_tables,
)
from recordmill.transforms.sources.columnar.flat_batches import flat_batch, row_as_json
from recordmill.transforms.sources.columnar.input_window import InputWindow, told_of
from recordmill.transforms.sources.columnar.table_files import (
    FileKind,
    Group,
    open_table,
)
from recordmill.transforms.sources.plain_types import (
    merged_columns,
    plain_columns,
    plain_schema,
)
from recordmill.transforms.sources.required_values import missing_required
from recordmill.transforms.sources.single_values import single_values
from recordmill.transforms.sources.source_rows import Rows

WHAT = {"parquet": "a Parquet file", "arrow": "an Arrow IPC file"}
_OPENED_AT_ONCE = 16  # files, whose ends are read before the run
_ENTRY_BYTES = 32  # of a feature in a record, beside its name and its value


@dataclass(frozen=True)
class ColumnarSource(Source):
    """Tables whose columns have types.

    Attributes:
      kind: of the files.
      as_declared: whether a declared schema says what becomes of the columns.
      fixed_schema: the schema of the dataset that rows are appended to, or None.
      range_bytes: of the groups of a range, in memory; a larger group is a range.
      types: the columns, once prepared.
      cuts: by path, where the ranges of each file with rows end.
      passed_over: names of files without a table, with the reason.
      unread: the checksums of files without rows.
      record_bytes: an estimate of the bytes of all records.
      storage: options of the inputs' storage.
    """

    kind: FileKind = "parquet"
    as_declared: bool = False
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES
    types: tuple[tuple[str, pa.DataType], ...] = ()
    cuts: tuple[tuple[str, tuple[Cut, ...]], ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    unread: tuple[FileChecksum, ...] = ()
    record_bytes: int = 0
    storage: StorageOptions = NO_OPTIONS

    tells_checksums = True
    read_rate = 70e6

    def prepare(self, files: Sequence[InputFile]) -> Self:
        tables, passed_over = find_tables(files)
        if not tables:
            raise InputError(
                f"none of {count(len(files), 'input file')} is {WHAT[self.kind]}: they "
                "are empty, or their names begin with '_' or '.'"
            )
        with ThreadPoolExecutor(min(_OPENED_AT_ONCE, len(tables))) as pool:
            found = list(pool.map(self._look_at, tables))
        types = merged_columns(
            [
                (file.uri, columns)
                for file, (columns, _) in zip(tables, found, strict=True)
            ]
        )
        cuts, unread = [], []
        num_bytes = 0
        for file, (_, groups) in zip(tables, found, strict=True):
            ends = cut_groups(groups, self.range_bytes)
            if ends:
                cuts.append((file.path, ends))
            else:
                window = InputWindow(file, self.storage)
                unread.append(window.checksum(0, file.size))
            num_bytes += sum(
                max(0, each.size)
                + each.rows * sum(len(n) + _ENTRY_BYTES for n in types)
                for each in groups
            )
        return replace(
            self,
            types=tuple(types.items()),
            cuts=tuple(cuts),
            passed_over=passed_over,
            unread=tuple(unread),
            record_bytes=num_bytes,
        )

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        source = replace(self.prepare(new), fixed_schema=schema)
        names = {name for name, _ in source.types}
        if schema and {feature.name for feature in schema.features} != names:
            raise SchemaError(
                f"the columns are {', '.join(sorted(names))}, but the dataset's features "
                f"are {', '.join(feature.name for feature in schema.features)}"
            )
        return source

    def _look_at(self, file: InputFile) -> tuple[dict[str, pa.DataType], list[Group]]:
        window = InputWindow(file, self.storage)
        with told_of(file.uri, WHAT[self.kind]):
            table = open_table(self.kind, window, file.size)
            groups = table.groups()
            columns = plain_columns(
                table.schema, file.uri, as_declared=self.as_declared
            )
        return columns, groups

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.unread

    def understood(self) -> Understood:
        facts = [("columns", ", ".join(f"{n} {t}" for n, t in self.types))]
        narrowed = [n for n, t in self.types if not self.as_declared and _is_wide(t)]
        if narrowed:
            facts.append(("stored as float32", ", ".join(narrowed)))
        return Understood(tuple(facts), (), self.passed_over)

    def columns(self) -> pa.Schema:
        return pa.schema(list(self.types))

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        cuts = dict(self.cuts)
        parts = []
        for file in files:
            start = 0
            for stop, _ in cuts.get(file.path, ()):
                parts.append((file, start, stop, ""))
                start = stop
        return number_ranges(parts)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        return self.fixed_schema or plain_schema(self.columns(), nulls)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return max(self.record_bytes, sum(file.size for file in files))

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        if input_range.seen is None:
            raise ValueError(f"{input_range.uri}: the range has no size of its file")
        size, version = input_range.seen
        file = InputFile(input_range.path, input_range.uri, size, version)
        window = InputWindow(file, self.storage)
        groups, part = self._part(input_range, size)
        if part == (0, size):
            window.hold()
        columns = self.columns()
        row = input_range.start
        checksums = [window.checksum(*part)]
        with told_of(file.uri, WHAT[self.kind]):
            batches = open_table(self.kind, window, size).batches(*groups)
        while row < input_range.stop:
            with told_of(file.uri, WHAT[self.kind]):
                found = next(batches, None)
                if found is None or row + found.num_rows > input_range.stop:
                    raise pa.ArrowInvalid(
                        "has not as many rows as its metadata says: "
                        f"{input_range.stop - input_range.start}"
                    )
                batch = flat_batch(found, columns)
            rows = self._rows(batch, input_range, row)
            rows.checksums, checksums = checksums, []
            yield rows
            row += found.num_rows

    def _part(
        self, input_range: InputRange, size: int
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the groups of a range, and bytes of the file whose checksum it tells."""
        cuts = dict(self.cuts)[input_range.path]
        first = 0
        for index, (stop, last) in enumerate(cuts):
            if stop == input_range.stop:
                start_byte = size * index // len(cuts)
                return (first, last), (start_byte, size * (index + 1) // len(cuts))
            first = last
        raise ValueError(f"{input_range.uri}: no range ends at row {input_range.stop}")

    def _rows(self, batch: pa.RecordBatch, input_range: InputRange, row: int) -> Rows:
        """Makes rows; those without a value that all of the dataset have are rejects."""
        numbers = np.arange(row, row + batch.num_rows, dtype=np.int64)
        rejects: list[Reject] = []
        if missing := missing_required(batch, self.fixed_schema):
            path = input_range.path
            rejects = [
                Reject(path, int(numbers[at]), reason, row_as_json(batch, at))
                for at, reason in missing.items()
            ]
            kept = np.delete(np.arange(batch.num_rows), list(missing))
            batch, numbers = batch.take(pa.array(kept)), numbers[kept]

        def raw(index: int) -> tuple[int, bytes]:
            return int(numbers[index]), row_as_json(batch, index)

        return Rows(
            batch=batch,
            origins=origins_in(input_range.path, 0, numbers),
            positions=numbers - input_range.start,
            raw=raw,
            rejects=rejects,
            nulls=tuple(column.null_count for column in batch.columns),
        )

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        return single_values(self.read(input_range, ()))


def _is_wide(arrow_type: pa.DataType) -> bool:
    while is_list(arrow_type):
        arrow_type = arrow_type.value_type
    return bool(pt.is_float64(arrow_type))
