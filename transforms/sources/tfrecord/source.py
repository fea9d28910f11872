"""Reads TFRecord files: keeps their records byte for byte, or decodes them to columns.

Records that are kept are not parsed: their frames are checked and written again as they
are. What features they have is known from files beside them, from a schema, or inferred
from a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.archive_member import member_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.job_spec import JobSpec, Payload
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.ranges import InputFile, InputRange, TypeFlags
from recordmill.schemas.understood import NOTHING, Understood
from recordmill.transforms.decode.decode_batch import Unknown
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.sources.base import FRAMED, Source, number_ranges
from recordmill.transforms.sources.by_reference import REFERENCE
from recordmill.transforms.sources.required_values import missing_required
from recordmill.transforms.sources.single_values import single_values
from recordmill.transforms.sources.source_rows import ReferencedRows, Rows
from recordmill.transforms.sources.tfrecord.choose_features import Wanted
from recordmill.transforms.sources.tfrecord.cut_files import (
    STEP_BYTES,
    WHOLE_BYTES,
    cut_files,
)
from recordmill.transforms.sources.tfrecord.file_bytes import open_range
from recordmill.transforms.sources.tfrecord.know_input import KnownInput, know_input
from recordmill.transforms.sources.tfrecord.options import Records, SplitFrom
from recordmill.transforms.sources.tfrecord.read_frames import (
    WINDOW_BYTES,
    FrameWindow,
    read_frames,
)
from recordmill.transforms.sources.tfrecord.references import (
    ReferencedFile,
    ReferencedFrames,
    make_references,
)
from recordmill.transforms.sources.tfrecord.window_rows import (
    rows_of,
    without_frames,
    without_rejects,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.free_memory import available_memory
from recordmill.transforms.storage.reading import is_local

MAX_REFERENCED_FILES = 10_000  # every worker knows all of them
REFERENCED_BYTES = 1_000  # of a record; to read a smaller one by itself takes longer
_UNPACKED = 8  # times as large as a compressed file, at most about
_SAMPLED_BYTES = 1 << 20


@dataclass(frozen=True)
class TfrecordSource(Source):
    """TFRecord files.

    Attributes:
      records: whether records are kept as they are, or decoded.
      split_from: whether names of files tell splits.
      declared: the schema of the job, or None.
      payload: what the job's records hold.
      whole_bytes, step_bytes: how files are cut (see cut_files).
      window_bytes: read at once.
      known: what is known of the input, once prepared.
      is_appended: whether the features are those of the dataset that is there.
      storage: options of the inputs' storage.
    """

    records: Records = "keep"
    split_from: SplitFrom = "auto"
    declared: DeclaredSchema | None = None
    payload: Payload = "example"
    whole_bytes: int = WHOLE_BYTES
    step_bytes: int = STEP_BYTES
    window_bytes: int = WINDOW_BYTES
    known: KnownInput | None = None
    is_appended: bool = False
    storage: StorageOptions = NO_OPTIONS

    handles_unreadable = True  # those that are no data are passed over
    tells_checksums = True
    read_rate = 400e6
    reference_rate = 800e6

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        """Tells whether records can be read again where they lie."""
        return (
            self.records == "keep"
            and (self.known is None or self.known.all_plain)
            and len(self._files) <= MAX_REFERENCED_FILES
            and all(
                is_local(file.uri) and member_of(file.seen.version) is None
                for file in self._files
            )
        )

    @property
    def _files(self) -> Sequence[ReferencedFile]:
        return self.known.files if self.known is not None else ()

    @property
    def _input(self) -> KnownInput:
        if self.known is None:
            raise ValueError("the input is unknown before prepare()")
        return self.known

    def making(self, job: JobSpec) -> Self:
        roles = ("label", "split_column", "split_by", "split_by_time", "stratify_by")
        for option in roles if self.records == "keep" else ():
            if (column := getattr(job, option)) is not None:
                raise UsageError(
                    f"`{option}` {column}: the records are kept as they are, unread: use "
                    "`records=decode`"
                )
        if self.records == "keep" and job.map is not None:
            raise UsageError(
                f"`map` {job.map.label}: the records are kept as they are, unread, so "
                "there are no columns: use `records=decode`"
            )
        return replace(self, declared=job.declared, payload=job.payload)

    def prepare(self, files: Sequence[InputFile]) -> Self:
        return self._prepare(files, None)

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        return replace(self._prepare(new, schema), is_appended=schema is not None)

    def _prepare(self, files: Sequence[InputFile], schema: Schema | None) -> Self:
        wanted = Wanted(
            records=self.records,
            declared=self.declared,
            payload=self.payload,
            fixed_schema=schema,
            use_splits=self.split_from == "auto",
        )
        return replace(self, known=know_input(files, wanted, self.storage))

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self._input.checksums

    def understood(self) -> Understood:
        return self.known.told if self.known is not None else NOTHING

    def own_splits(self) -> tuple[str, ...]:
        found = dict.fromkeys(self._input.splits)
        return () if "" in found else tuple(found)

    @cached_property
    def _decoded_types(self) -> pa.Schema:
        none = pa.array([], pa.binary())
        known = self._input
        return decode_payload(none, known.schema, known.payload).batch.schema

    def columns(self) -> pa.Schema:
        if self.records == "keep":
            return pa.schema([(FRAMED, pa.binary())])
        return self._decoded_types

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        schema = self._input.schema
        if self.is_appended or not nulls:
            return schema
        return Schema(
            tuple(
                replace(feature, optional=feature.optional or missing > 0)
                for feature, missing in zip(schema.features, nulls, strict=True)
            )
        )

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        known = self._input
        splits = dict(zip((f.path for f in known.files), known.splits, strict=True))
        data = [file for file in files if file.path in splits]
        cut = cut_files(
            data,
            self.storage,
            whole_bytes=self.whole_bytes,
            step_bytes=self.step_bytes,
        )
        return number_ranges(
            [(file, start, stop, splits[file.path]) for file, start, stop in cut]
        )

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        """Returns the first bytes of some ranges: only there a record's start is known."""
        chosen = ranges[:: -(-len(ranges) // 32)]
        return [
            replace(part, stop=min(part.stop, part.start + _SAMPLED_BYTES))
            for part in chosen
        ]

    def spill_inventory(self, store: Store, name: str) -> Self:
        known = self._input
        if self.supports_references:  # workers need the files, which are not too many
            return replace(self, known=replace(known, splits=(), told=NOTHING))
        without = replace(
            known, files=(), splits=(), told=NOTHING, checksums=(), all_plain=False
        )
        return replace(self, known=without)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        size = sum(file.size for file in files)
        return size if self._input.all_plain else _UNPACKED * size

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        if self.records == "keep":
            yield from self._read_kept(input_range)
        else:
            yield from self._read_decoded(input_range)

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        return single_values(self._read_decoded(input_range))

    def _windows(self, input_range: InputRange) -> Iterator[tuple[FrameWindow, Rows]]:
        """Yields windows, and their rows, whose batch is to be set.

        At last an empty window with the checksum of the range.
        """
        file = open_range(input_range, self.storage)
        stop = None if file.is_packed else input_range.stop
        before = file.consumed
        for window in read_frames(file, input_range.start, stop, self.window_bytes):
            yield window, rows_of(window, input_range, file, before)
            before = file.consumed
        nothing = np.zeros(0, np.int64)
        last = FrameWindow(0, np.zeros(0, np.uint8), nothing, nothing)
        rows = rows_of(last, input_range, file, before)
        rows.checksums = [file.checksum()]
        yield last, rows

    def _read_kept(self, input_range: InputRange) -> Iterator[Rows]:
        for window, rows in self._windows(input_range):
            rows.batch = pa.record_batch([window.records()], [FRAMED])
            yield rows

    def _read_decoded(self, input_range: InputRange) -> Iterator[Rows]:
        known = self._input
        unknown: Unknown = "error" if self.declared is None else "ignore"
        for window, rows in self._windows(input_range):
            records = without_frames(window)
            decoded = decode_payload(
                records, known.schema, known.payload, unknown=unknown
            )
            reasons = dict(decoded.row_errors)
            if self.is_appended:
                reasons = missing_required(decoded.batch, known.schema) | reasons
            rows.batch = decoded.batch
            yield without_rejects(rows, reasons, window, input_range.path)

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Tells whether the page cache can hold the input, and records are not tiny."""
        known = self._input
        return (
            self.supports_references
            and known.record_bytes >= REFERENCED_BYTES
            and sum(file.seen.size for file in known.files) <= available_memory() // 2
        )

    def list_references(self, input_range: InputRange) -> Iterator[Rows]:
        """Lists where each record lies; reads the range to check them."""
        number = self._input.number_of(input_range.path)
        for window, rows in self._windows(input_range):
            references = make_references(number, window.offsets, window.lengths)
            rows.batch = pa.record_batch([references], [REFERENCE])
            rows.planned_bytes = window.lengths
            yield rows

    def read_references(self, references: pa.BinaryArray) -> ReferencedRows:
        found = ReferencedFrames(references, self._files)
        batch = pa.record_batch([found.records], [FRAMED])
        return ReferencedRows(
            batch, np.arange(len(references), dtype=np.int64), [], found.raw
        )
