"""Reads CIFAR-10 and CIFAR-100 binary files: records of one fixed length.

Their layout is in `layout`. All records have the same size, so rows can be exchanged by
reference: as positions in the input, where the shard's writer reads them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile, Seen
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.arrow import U8, binary_array
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Source,
    number_ranges,
)
from recordmill.transforms.sources.by_reference import REFERENCE
from recordmill.transforms.sources.cifar.layout import (
    CHANNELS,
    SIDE,
    Layout,
    data_files,
    find_layout,
    read_names,
    require_whole,
    split_of,
    understand,
)
from recordmill.transforms.sources.cifar.options import Variant
from recordmill.transforms.sources.cifar.read_records import (
    FoundRecords,
    read_records,
)
from recordmill.transforms.sources.cifar.record_columns import (
    framed_bytes,
    record_batch,
)
from recordmill.transforms.sources.cifar.scan_records import scan_records
from recordmill.transforms.sources.source_rows import ReferencedRows, Rows
from recordmill.transforms.sources.spread_ranges import spread_evenly
from recordmill.transforms.storage.free_memory import available_memory
from recordmill.transforms.storage.reading import is_local

MAX_REFERENCED_FILES = 10_000  # every worker knows all of them
PART_BYTES = 2 << 20  # of records that are laid out and encoded at once


@dataclass(frozen=True)
class CifarSource(Source):
    """CIFAR binary files.

    Attributes:
      variant: cifar10 or cifar100; auto: by file name and size.
      layout: of a record; None before `prepare`.
      class_names: those of each label.
      files: uri, first position, size and version of each file.
      told: what the input was taken for.
      names_read: the checksums of the files of class names.
      storage: options of the inputs' storage.
    """

    variant: Variant = "auto"
    layout: Layout | None = None
    class_names: tuple[tuple[str, ...], ...] = ()
    files: tuple[tuple[str, int, Seen], ...] = ()
    told: Understood = NOTHING
    names_read: tuple[FileChecksum, ...] = ()
    storage: StorageOptions = NO_OPTIONS

    supports_references = True
    tells_checksums = True
    handles_unreadable = True  # those that are no data are passed over
    read_rate = 250e6
    reference_rate = 2e9

    def prepare(self, files: Sequence[InputFile]) -> Self:
        require_whole(files)
        return self._prepare(files)

    def _prepare(self, files: Sequence[InputFile]) -> Self:
        data = data_files(files)
        if not data:
            raise InputError("no CIFAR data: none of the input files ends in .bin")
        layout = find_layout(data, self.variant)
        by_name = {PurePosixPath(file.path).name: file for file in files}
        names_read: list[FileChecksum] = []
        names = tuple(
            read_names(by_name.get(name_file), count, self.storage, names_read)
            for name_file, count in zip(
                layout.name_files, layout.num_classes, strict=True
            )
        )
        return replace(
            self,
            layout=layout,
            class_names=names,
            names_read=tuple(names_read),
            files=_first_positions(data),
            told=understand(files, layout),
        )

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        require_whole(new)
        whole = self._prepare([*kept, *new])
        return replace(
            whole,
            files=_first_positions(data_files(new)),
            told=understand(new, whole.known_layout),
        )

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.names_read

    def understood(self) -> Understood:
        return self.told

    @property
    def known_layout(self) -> Layout:
        """Returns the layout of a prepared source.

        Raises:
          ValueError: it is not prepared.
        """
        if self.layout is None:
            raise ValueError("the layout is unknown before prepare()")
        return self.layout

    def columns(self) -> pa.Schema:
        layout = self.known_layout
        return record_batch(np.empty((0, layout.record_bytes), np.uint8), layout).schema

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        size = self.known_layout.record_bytes
        step = RANGE_BYTES // size * size
        return number_ranges(
            [
                (file, start, min(start + step, file.size), split_of(file.path))
                for file in data_files(files)
                for start in range(0, file.size, step)
            ]
        )

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        return spread_evenly(ranges, 32, 32 * self.known_layout.record_bytes)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        layout = self.known_layout
        image = FeatureSpec(
            "image",
            Kind.BYTES,
            dtype="uint8",
            shape=(SIDE, SIDE, CHANNELS),
            content=Content.ARRAY,
        )
        sizes = [FeatureSpec(n, Kind.INT64) for n in ("height", "width", "depth")]
        labels = [
            FeatureSpec(name, Kind.INT64, class_names=names)
            for name, names in zip(layout.labels, self.class_names, strict=True)
        ]
        return Schema((image, *sizes, *labels))

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        for rows, records in self._scan(input_range):
            rows.batch = record_batch(records, self.known_layout)
            yield rows

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        """Reads the labels of a range, without laying out the pixels."""
        return self.list_references(input_range)

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Tells whether the page cache can hold the input.

        If so, reading rows in any order is cheaper than writing and reading them once
        more in between.
        """
        data = data_files(files)
        return (
            all(is_local(file.uri) for file in data)
            and len(data) <= MAX_REFERENCED_FILES
            and sum(file.size for file in data) <= available_memory() // 2
        )

    def list_references(self, input_range: InputRange) -> Iterator[Rows]:
        """Lists each row's position in the whole input; reads the range for its labels.

        A row whose position is 258 is the reference 02 01 00 00 00 00 00 00.
        """
        layout = self.known_layout
        for rows, records in self._scan(input_range):
            positions = (rows.positions + input_range.first_position).astype("<u8")
            offsets = np.arange(len(positions) + 1, dtype=np.int64) * 8
            columns = {REFERENCE: binary_array(offsets, positions.view(np.uint8))}
            for index, label in enumerate(layout.labels):
                columns[label] = pa.array(records[:, index].astype(np.int64))
            rows.batch = pa.RecordBatch.from_pydict(columns)
            rows.planned_bytes = np.full(len(positions), self._framed_bytes, np.int64)
            yield rows

    @cached_property
    def _framed_bytes(self) -> int:
        return framed_bytes(self.known_layout, self.schema())

    def _scan(self, input_range: InputRange) -> Iterator[tuple[Rows, U8]]:
        return scan_records(
            input_range, self.known_layout, self.class_names, self.storage
        )

    def read_references(self, references: pa.BinaryArray) -> ReferencedRows:
        return self._columns(self._find(references))

    def read_windows(
        self, windows: Iterable[pa.BinaryArray]
    ) -> Iterator[ReferencedRows]:
        """Reads the rows of windows; yields those of each in parts.

        What is made of a part fits the processor's cache: a quarter less time.
        """
        step = PART_BYTES // self.known_layout.record_bytes
        for window in windows:
            found = self._find(window)
            for start in range(0, len(window), step):
                yield self._columns(found.part(start, start + step))

    def _find(self, references: pa.BinaryArray) -> FoundRecords:
        return read_records(
            references,
            self.known_layout.record_bytes,
            self.class_names,
            self.files,
            self.storage,
        )

    def _columns(self, found: FoundRecords) -> ReferencedRows:
        kept = np.arange(len(found.records), dtype=np.int64)
        batch = record_batch(found.records, self.known_layout)
        return ReferencedRows(batch, kept, [], found.raw)


def _first_positions(data: Sequence[InputFile]) -> tuple[tuple[str, int, Seen], ...]:
    """Returns each file's uri, position in the whole input, and size and version."""
    starts = accumulate((file.size for file in data), initial=0)
    return tuple(
        (file.uri, start, file.seen) for file, start in zip(data, starts, strict=False)
    )
