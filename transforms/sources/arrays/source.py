"""Reads rows that stand side by side in arrays of files, whatever their format.

A format says which arrays there are (`Finder`); all else is the same: rows are cut by
constants, read as matrices of bytes, and become columns without a loop over rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.ranges import InputRange, Reject, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count, first_names
from recordmill.transforms.sources.arrays.file_roles import require_same_columns
from recordmill.transforms.sources.arrays.part_rows import part_batch, part_rows
from recordmill.transforms.sources.arrays.range_bytes import (
    PartIndex,
    RangeChecksums,
    checksum_of,
    rows_of,
)
from recordmill.transforms.sources.arrays.read_rows_of import matrices
from recordmill.transforms.sources.arrays.row_arrays import (
    Finder,
    Part,
    feature_of,
)
from recordmill.transforms.sources.base import RANGE_BYTES, Source, number_ranges
from recordmill.transforms.sources.single_values import single_values
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.sources.spread_ranges import spread_evenly

BATCH_BYTES = 4 << 20  # rows read and encoded at once: fits the processor's cache
_ENTRY_BYTES = 40  # of a feature in a record, beside its value


@dataclass(frozen=True)
class ArraysSource(Source):
    """Rows of equal size in arrays.

    Attributes:
      finder: finds the arrays of a format.
      range_bytes: of the rows of a range.
      parts: the arrays that belong together, once prepared.
      class_names: of each column that is a class label.
      uses_splits: whether names of files tell splits.
      told: what the input was taken for.
      names_read: the checksums of files that hold no rows.
      tail_reason: what a tail of a file is.
      storage: options of the inputs' storage.
    """

    finder: Finder
    range_bytes: int = RANGE_BYTES
    parts: tuple[Part, ...] = ()
    class_names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    uses_splits: bool = True
    told: Understood = NOTHING
    names_read: tuple[FileChecksum, ...] = ()
    tail_reason: str = ""
    storage: StorageOptions = NO_OPTIONS

    tells_checksums = True
    read_rate = 250e6

    def prepare(self, files: Sequence[InputFile]) -> Self:
        found = self.finder.find(files, self.storage)
        parts = tuple(
            part if self.uses_splits else replace(part, split="")
            for part in found.parts
            if part.num_rows or part.tail
        )
        if not parts:
            raise InputError(
                f"{count(len(files), 'input file')}: none holds a row of an array"
            )
        require_same_columns(parts, [name for name, _ in found.class_names])
        empty = {
            array.file.path: array.file
            for part in found.parts
            if not part.num_rows + part.tail
            for array in part.arrays
        }
        used = {array.file.path for part in parts for array in part.arrays}
        unread = [file for path, file in empty.items() if path not in used]
        return replace(
            self,
            parts=parts,
            class_names=found.class_names,
            told=found.told,
            names_read=(
                *found.read,
                *(checksum_of(f, 0, f.size, self.storage) for f in unread),
            ),
            tail_reason=found.tail_reason,
        )

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        whole = self.prepare([*kept, *new])
        names = {file.path for file in new}
        parts = []
        for part in whole.parts:
            files = [array.file for array in part.arrays]
            are_new = [file.path in names for file in files]
            if any(are_new) and not all(are_new):
                old = files[are_new.index(False)]
                raise InputError(
                    f"{files[are_new.index(True)].uri}: belongs to the rows of {old.uri}, "
                    "which were converted before: give it another name or folder, or "
                    "convert all files into another dataset"
                )
            if all(are_new):
                parts.append(part)
        if not parts:
            raise InputError(f"{count(len(new), 'new file')}: none holds a row")
        return replace(whole, parts=tuple(parts))

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.names_read

    def understood(self) -> Understood:
        rows: dict[str, int] = {}
        names: dict[str, list[str]] = {}
        for part in self.parts:
            rows[part.split] = rows.get(part.split, 0) + part.num_rows
            found = names.setdefault(part.split, [])
            found += [array.file.path for array in part.arrays]
        narrowed = dict.fromkeys(
            field.name
            for part in self.parts
            for field in part.fields
            if field.dtype[1:] == "f8"
        )
        facts = [
            ("columns", ", ".join(self._described())),
            *(
                (
                    f"split {split} by file names" if split else "rows of no split",
                    f"{count(rows[split], 'row')} of "
                    f"{first_names(list(dict.fromkeys(found)), 4)}",
                )
                for split, found in sorted(names.items())
            ),
        ]
        labels = {name for name, _ in self.class_names}
        if stored := [name for name in narrowed if name not in labels]:
            facts.append(("stored as float32", ", ".join(stored)))
        return self.told.updated(Understood(tuple(facts)))

    def _described(self) -> Iterator[str]:
        classes = dict(self.class_names)
        for field in self.parts[0].fields:
            names = classes.get(field.name, ())
            told = f" ({count(len(names), 'class')})" if names else ""
            yield field.described + told

    def own_splits(self) -> tuple[str, ...]:
        splits = dict.fromkeys(part.split for part in self.parts)
        return () if "" in splits else tuple(splits)

    def columns(self) -> pa.Schema:
        part = self.parts[0]
        rows = [np.empty((0, array.row_bytes), np.uint8) for array in part.arrays]
        batch, _ = part_batch(part, rows, self.class_names)
        return batch.schema

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        names = dict(self.class_names)
        part = self.parts[0]
        features = [feature_of(f, names.get(f.name, ())) for f in part.fields]
        features += [
            FeatureSpec(name, Kind.INT64, class_names=names.get(name, ()))
            for name, _ in part.constants
        ]
        return Schema(tuple(features))

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        paths = {file.path for file in files}
        cuts = []
        for part in self.parts:
            if part.file.path not in paths:
                continue
            step = part.scale * max(1, self.range_bytes // part.row_bytes)
            stops = [*range(part.first + step, part.stop - part.tail, step), part.stop]
            if part.is_packed:
                stops = [part.stop]
            start = part.start
            for stop in stops:
                cuts.append((part.file, start, stop, part.split))
                start = stop
        return number_ranges(cuts)

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        plain = []
        for each in ranges:
            part = self._index.part_of(each)
            if part.is_packed:
                continue
            skipped = max(0, part.first - each.start)  # before the first row
            first = each.first_position + skipped
            start, stop = each.start + skipped, max(each.start + skipped, each.stop)
            plain.append(replace(each, start=start, stop=stop, first_position=first))
        if not plain:
            return list(ranges[:1])
        part = self._index.part_of(plain[0])
        return spread_evenly(plain, 32, 32 * part.scale)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        paths = {file.path for file in files}
        rows = 0
        for part in self.parts:
            if part.file.path in paths:
                entries = len(part.fields) + len(part.constants)
                rows += part.num_rows * (2 * part.row_bytes + entries * _ENTRY_BYTES)
        return max(rows, sum(file.size for file in files))

    @cached_property
    def _index(self) -> PartIndex:
        return PartIndex(self.parts)

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        part = self._index.part_of(input_range)
        first, last = rows_of(part, input_range)
        step = max(1, BATCH_BYTES // part.row_bytes)
        if any(array.transposed for array in part.arrays):
            # Its pieces are short as it is: as many rows as a range has.
            step = max(step, self.range_bytes // part.row_bytes)
        readers = [
            matrices(array, part.num_rows, (first, last), step, self.storage)
            for array in part.arrays
        ]
        checksums = RangeChecksums(self._index, part, input_range, self.storage)
        start = first
        for found in zip(*readers, strict=True):
            checksums.add(found)
            yield part_rows(part, input_range, start, found, self.class_names)
            start += len(found[0])
        none = [np.empty((0, array.row_bytes), np.uint8) for array in part.arrays]
        rows = part_rows(part, input_range, last, none, self.class_names)
        rows.checksums = list(checksums.finish())
        if part.tail and input_range.stop == part.stop:
            position = part.first + part.num_rows * part.scale
            reason = f"{count(part.tail, 'byte')} at the end of the file, "
            reason += self.tail_reason
            rows.rejects = [Reject(part.file.path, position, reason, checksums.tail)]
        yield rows

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        return single_values(self.read(input_range, ()))
