"""Reads rows from arrays in files, for all formats of arrays.

A format only finds its arrays (`Finder`). The other steps are shared: ranges are cut by
constants, rows are read as matrices of bytes and converted to columns without a loop over
rows. If all records have the same size, rows can be exchanged by reference: as positions
in the input, from which the writer of a shard reads the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputReport, SkippedFiles
from recordmill.schemas.ranges import InputRange, Reject, TypeFlags
from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.arrow import (
    I64,
    U8,
    U64,
    array_parts,
    binary_array,
    empty_bytes,
)
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.machine import available_memory
from recordmill.transforms.sources.arrays.array_parts import (
    NO_ARRAYS,
    ArrayGroup,
    ArrayInput,
    Field,
    FindArrays,
    require_same_columns,
)
from recordmill.transforms.sources.arrays.rows import (
    ArrayRows,
    compute_checksum,
    create_batch,
)
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    REFERENCE,
    Append,
    InputFindings,
    RangeFindings,
    ReferencedRows,
    Rows,
    Source,
    number_ranges,
    spread_evenly,
)
from recordmill.transforms.sources.file_splits import AUTO, FileSplits
from recordmill.transforms.sources.registry import FilesOptions
from recordmill.transforms.storage.reading import is_local, open_input
from recordmill.transforms.tfrecord import FRAME_BYTES

BATCH_BYTES = 4 << 20  # rows read and encoded at once: fits the processor's cache
WINDOW_BYTES = 2 << 20  # of rows by reference that are converted and encoded at once
MAX_REFERENCED_FILES = 10_000  # every worker holds the list of all files
_FEATURE_BYTES = 40  # size of a feature in a record, without its value


@dataclass(frozen=True)
class ArraysSource(Source):
    """A source of rows of equal size in arrays."""

    find: FindArrays  # finds the arrays of the format
    options: SourceOptions  # options of the format
    range_bytes: int = RANGE_BYTES  # size of the rows of a range
    # the arrays of the input, after `prepare`; only parts with rows
    array_input: ArrayInput = NO_ARRAYS
    splits: FileSplits = FileSplits(AUTO)  # noqa: RUF009 (a frozen value)
    storage: StorageOptions = NO_OPTIONS  # options of the storage of the inputs

    reports_checksums = True
    has_fixed_roles = False

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        if append is not None:
            return self._prepare_append(append.existing_inventory, files, append.schema)
        return self._prepare_whole(files)

    def _prepare_whole(
        self, files: Sequence[InputFile], existing_paths: frozenset[str] = frozenset()
    ) -> Self:
        """Prepares all files; the dataset has the files at `existing_paths` already."""
        array_input = self.find(self.options, files, self.storage)
        parts = [
            part
            for part in array_input.array_groups
            if part.num_rows or part.tail_bytes
        ]
        if not parts:
            raise InputError(
                f"{format_count(len(files), 'input file')}: no file contains a row of an array"
            )
        require_same_columns(parts, array_input.class_names)
        used_paths = {array.file.path for part in parts for array in part.arrays}
        arrays = (array for part in array_input.array_groups for array in part.arrays)
        unread_files = {
            a.file.path: a.file for a in arrays if a.file.path not in used_paths
        }
        checksums = [
            compute_checksum(f, 0, f.size, self.storage) for f in unread_files.values()
        ]
        if isinstance(self.options, FilesOptions):
            old_parts = [part for part in parts if part.file.path in existing_paths]
            new_parts = [part for part in parts if part.file.path not in existing_paths]
            rule = self.splits.find_rule(
                [part.file for part in new_parts],
                [part.file for part in old_parts],
                name_splits=[part.split for part in (*old_parts, *new_parts)],
            )
            parts = [replace(p, split=rule.split_of(p.file, p.split)) for p in parts]
        prepared_input = array_input._replace(
            array_groups=tuple(parts),
            other_checksums=(*array_input.other_checksums, *checksums),
        )
        return replace(self, array_input=prepared_input)

    def _prepare_append(
        self,
        existing_files: Sequence[InputFile],
        new_files: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        prepared_source = self._prepare_whole(
            [*existing_files, *new_files], frozenset(f.path for f in existing_files)
        )
        names, parts = {file.path for file in new_files}, []
        for part in prepared_source.array_input.array_groups:
            files = {
                array.file.path in names: array.file for array in part.arrays[::-1]
            }
            if len(files) > 1:
                raise InputError(
                    f"{files[True].uri}: belongs to the rows of {files[False].uri}, "
                    "which were converted before: rename or move it, or convert all "
                    "files into another dataset"
                )
            if True in files:
                parts.append(part)
        if not parts:
            features = schema.features if schema else ()
            known_classes = [feature.class_names for feature in features]
            if known_classes and any(
                class_names not in known_classes
                for _, class_names in prepared_source.array_input.class_names
            ):
                return prepared_source  # the error about changed classes is clearer
            raise InputError(
                f"{format_count(len(new_files), 'new file')}: no file contains a row"
            )
        skipped = [
            skipped_file
            for skipped_file in prepared_source.array_input.skipped_files
            if skipped_file[1] in names
        ]
        array_input = prepared_source.array_input._replace(
            array_groups=tuple(parts), skipped_files=skipped
        )
        return replace(prepared_source, array_input=array_input)

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.array_input.other_checksums

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        facts = (
            [("records", self.array_input.record_description)]
            if self.array_input.record_description
            else []
        )
        classes = dict(self.array_input.class_names)
        described = []
        for field in self.array_input.array_groups[0].fields:
            if field.constant_value is None:
                names = classes.get(field.name, ())
                class_count = f" ({format_count(len(names), 'class')})" if names else ""
                described.append(field.description + class_count)
        facts.append(("columns", ", ".join(described)))
        for split in sorted({part.split for part in self.array_input.array_groups}):
            parts = [
                part for part in self.array_input.array_groups if part.split == split
            ]
            rows = format_count(sum(part.num_rows for part in parts), "row")
            paths = dict.fromkeys(a.file.path for part in parts for a in part.arrays)
            name = f"split {split} by file" if split else "rows of no split"
            facts.append((name, f"{rows} of {format_names(list(paths), 4)}"))
        fields = (
            field for part in self.array_input.array_groups for field in part.fields
        )
        narrowed = dict.fromkeys(f.name for f in fields if f.dtype[1:] == "f8")
        if narrowed_names := ", ".join(
            name for name in narrowed if name not in classes
        ):
            facts.append(("stored as float32", narrowed_names))
        skipped = SkippedFiles.count_by_reason(self.array_input.skipped_files)
        return InputReport(tuple(facts), (), skipped)

    def input_splits(self) -> tuple[str, ...]:
        splits = dict.fromkeys(part.split for part in self.array_input.array_groups)
        return () if "" in splits else tuple(splits)

    def columns(self) -> pa.Schema:
        part = self.array_input.array_groups[0]
        return create_batch(part, _zero_rows(part, 0), self.array_input.class_names)[
            0
        ].schema

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        names = dict(self.array_input.class_names)
        fields = self.array_input.array_groups[0].fields
        return Schema(tuple(f.to_feature(names.get(f.name, ())) for f in fields))

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        paths = {file.path for file in files}
        cuts = []
        for part in self.array_input.array_groups:
            if part.file.path not in paths:
                continue
            step = part.positions_per_row * max(1, self.range_bytes // part.row_bytes)
            stops = [
                *range(part.first_position + step, part.stop - part.tail_bytes, step),
                part.stop,
            ]
            if part.is_compressed:
                stops = [part.stop]
            for start, stop in pairwise([part.start, *stops]):
                cuts.append((part.file, start, stop, part.split))
        return number_ranges(cuts)

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        plain = []
        for input_range in ranges:
            part = self._part_of(input_range)
            if part.is_compressed:
                continue
            skipped = max(
                0, part.first_position - input_range.start
            )  # before the first row
            first = input_range.first_position + skipped
            start, stop = (
                input_range.start + skipped,
                max(input_range.start + skipped, input_range.stop),
            )
            plain.append(
                replace(input_range, start=start, stop=stop, first_position=first)
            )
        if not plain:
            return list(ranges[:1])
        part = self._part_of(plain[0])
        return spread_evenly(plain, 32, 32 * part.positions_per_row)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        paths = {file.path for file in files}
        rows = sum(
            part.num_rows * (2 * part.row_bytes + len(part.fields) * _FEATURE_BYTES)
            for part in self.array_input.array_groups
            if part.file.path in paths
        )
        return max(rows, sum(file.size for file in files))

    def _part_of(self, input_range: InputRange) -> ArrayGroup:
        parts = self._parts_by_path[input_range.path]
        return next(part for part in parts if part.stop >= input_range.stop)

    @cached_property
    def _parts_by_path(self) -> dict[str, list[ArrayGroup]]:
        parts_by_path: dict[str, list[ArrayGroup]] = {}
        for part in self.array_input.array_groups:
            parts_by_path.setdefault(part.file.path, []).append(part)
        return parts_by_path

    @cached_property
    def _covered_bytes(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Returns the bytes that each array covers, by its file and its first byte."""
        by_path: dict[str, list[tuple[int, int]]] = {}
        sizes = {}
        for part in self.array_input.array_groups:
            for array in part.arrays:
                path, sizes[array.file.path] = array.file.path, array.file.size
                by_path.setdefault(path, []).append(array.byte_span)
        bounds_by_array = {}
        for path, spans in by_path.items():
            edges = [0, *(stop for _, stop in sorted(spans))]
            edges[-1] = sizes[path]
            for (start, _), bounds in zip(sorted(spans), pairwise(edges), strict=True):
                bounds_by_array[path, start] = bounds
        return bounds_by_array

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        return self._read_fields(input_range, lambda _: True, range_findings)

    def _read_fields(
        self,
        input_range: InputRange,
        is_wanted: Callable[[Field], bool],
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        """Reads the selected fields of a range, and rejects rows with invalid labels."""
        part = self._part_of(input_range)
        start = (
            max(0, input_range.start - part.first_position) // part.positions_per_row
        )
        stop = min(
            part.num_rows,
            (input_range.stop - part.first_position) // part.positions_per_row,
        )
        stop = max(start, stop)
        step = max(1, BATCH_BYTES // part.row_bytes)
        if any(array.fortran_value_bytes for array in part.arrays):
            # The pieces in the file are short, so all rows of a range are read at once.
            step = max(step, self.range_bytes // part.row_bytes)
        arrays = [
            ArrayRows(
                array,
                (start, stop),
                self._covered_bytes[array.file.path, array.byte_span[0]],
                self.storage,
            )
            for array in part.arrays
        ]

        def rows_of(matrices: Sequence[U8]) -> Rows:
            batch, reasons = create_batch(
                part, matrices, self.array_input.class_names, is_wanted
            )
            ordinals: I64 = np.arange(start, start + len(matrices[0]), dtype=np.int64)
            positions = part.first_position + ordinals * part.positions_per_row
            rows = Rows(
                batch=batch,
                origins=self._origins(part, input_range, positions),
                positions=positions - input_range.start,
                raw_row=partial(_raw_row, matrices, positions),
            )
            return range_findings.reject_rows(rows, reasons, input_range)

        for matrices in zip(
            *(array_rows.read_matrices(step) for array_rows in arrays), strict=True
        ):
            yield rows_of(matrices)
            start += len(matrices[0])
        if part.tail_bytes and input_range.stop == part.stop:
            position = part.first_position + part.num_rows * part.positions_per_row
            reason = f"{format_count(part.tail_bytes, 'byte')} at the end of the file, "
            reason += self.array_input.tail_reason
            raw = arrays[0].read_tail(part.tail_bytes)
            range_findings.rejects.append(Reject(part.file.path, position, reason, raw))
        for array_rows in arrays:
            range_findings.checksums.extend(array_rows.read_checksums())

    def _origins(
        self, part: ArrayGroup, input_range: InputRange, positions: I64
    ) -> U64:
        return origins_in(part.file.path, 0, positions)

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        """Returns whether records have one size and each row can be read alone."""
        parts, classes = (
            self.array_input.array_groups,
            dict(self.array_input.class_names),
        )
        return bool(parts) and all(
            array.is_sequential
            and array.fields == first.fields
            and array.row_bytes == first.row_bytes
            and all(
                f.has_fixed_size(len(classes.get(f.name, ()))) for f in array.fields
            )
            for part in parts
            for array, first in zip(part.arrays, parts[0].arrays, strict=True)
        )

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Returns whether the page cache can hold the input.

        If so, reading the rows in any order costs less than writing them to scratch and
        reading them from there.
        """
        paths = {a.file for part in self.array_input.array_groups for a in part.arrays}
        return (
            self.supports_references
            and all(is_local(file.uri) for file in paths)
            and len(paths) <= MAX_REFERENCED_FILES
            and sum(file.size for file in paths) <= available_memory() // 2
        )

    def is_listed_field(self, field: Field) -> bool:
        """Returns whether the batches of references include the column of a field."""
        return True

    def list_references(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Yields the rows of a range with a reference column: positions in the input.

        The range is read because batches include the labels. The row at position 258 has
        the reference 02 01 00 00 00 00 00 00.
        """
        for rows in self._read_fields(
            input_range, self.is_listed_field, range_findings
        ):
            positions = (rows.positions + input_range.first_position).astype("<u8")
            offsets = np.arange(len(positions) + 1, dtype=np.int64) * 8
            references = binary_array(offsets, positions.view(np.uint8))
            rows.batch = rows.batch.add_column(0, REFERENCE, references)
            rows.planned_bytes = np.full(len(positions), self._record_bytes, np.int64)
            yield rows

    @cached_property
    def _record_bytes(self) -> int:
        part = self.array_input.array_groups[0]
        batch, _ = create_batch(part, _zero_rows(part, 1), self.array_input.class_names)
        return len(encode(batch, self.schema())[0].as_py()) + FRAME_BYTES

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], range_findings: RangeFindings
    ) -> Iterator[ReferencedRows]:
        """Reads the rows of each window, and yields them in batches of WINDOW_BYTES.

        The arrays of such a batch fit the processor's cache, which saves a quarter of the
        time.
        """
        step = max(1, WINDOW_BYTES // self.array_input.array_groups[0].row_bytes)
        for window in windows:
            yield from self._read_referenced(window, step)

    @cached_property
    def _group_starts(self) -> I64:
        """Returns the first position of each part, and one after the last position."""
        sizes = (part.stop - part.start for part in self.array_input.array_groups)
        return np.array(list(accumulate(sizes, initial=0)), np.int64)

    def _read_referenced(
        self, references: pa.BinaryArray, step: int
    ) -> Iterator[ReferencedRows]:
        """Reads rows in file order, and yields them in the order of the references."""
        parts = self.array_input.array_groups
        ends, reference_bytes = array_parts(references)
        positions = reference_bytes[ends[0] : ends[-1]].view("<u8").astype(np.int64)
        order = np.argsort(positions)
        part_of = np.searchsorted(self._group_starts, positions, side="right") - 1
        matrices = [
            empty_bytes(len(positions) * array.row_bytes).reshape(-1, array.row_bytes)
            for array in parts[0].arrays
        ]
        part_indices, firsts = np.unique(part_of[order], return_index=True)
        edges = pairwise([*firsts.tolist(), len(order)])
        for index, (first, end) in zip(part_indices.tolist(), edges, strict=True):
            part, rows = parts[index], order[first:end]
            inside = (
                positions[rows]
                - self._group_starts[index]
                + part.start
                - part.first_position
            )
            for array, target in zip(part.arrays, matrices, strict=True):
                offsets = (
                    array.start + inside // part.positions_per_row * array.row_bytes
                )
                file = open_input(array.file.uri, self.storage, array.file.stat)
                file.read_rows(offsets, target, rows)

        def raw_of(first: int, row: int) -> tuple[str, int, bytes]:
            index = part_of[first + row]
            position, raw = _raw_row(matrices, positions, first + row)
            inside = position - int(self._group_starts[index])
            return parts[index].file.uri, inside + parts[index].start, raw

        for start in range(0, len(positions) or 1, step):
            step_matrices = [records[start : start + step] for records in matrices]
            batch, row_reasons = create_batch(
                parts[0], step_matrices, self.array_input.class_names
            )
            if row_reasons:
                raise ChangedInputError(
                    f"{raw_of(start, min(row_reasons))[0]}: contains labels that it did not "
                    "have when it was read first. Run the same command again when "
                    "nothing writes to the inputs"
                )
            kept_rows = np.arange(len(step_matrices[0]), dtype=np.int64)
            yield ReferencedRows(batch, kept_rows, partial(raw_of, start))


def _raw_row(matrices: Sequence[U8], positions: I64, row: int) -> tuple[int, bytes]:
    raw = b"".join(records[row].tobytes() for records in matrices)
    return int(positions[row]), raw


def _zero_rows(part: ArrayGroup, num_rows: int) -> list[U8]:
    return [np.zeros((num_rows, array.row_bytes), np.uint8) for array in part.arrays]
