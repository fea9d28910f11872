"""Reads Parquet and Arrow IPC files and streams: what is in them, and rows of some of their groups.

A group is what a file is written in: a row group of Parquet, a record batch of Arrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.transforms.sources.columnar.input_window import InputWindow

FileKind = Literal["parquet", "arrow"]
BATCH_BYTES = 4 << 20  # of rows that are read and encoded at once, about
BATCH_ROWS = 1 << 16
_CONTINUED = b"\xff" * 4  # before each message of a stream
_STREAM_END = _CONTINUED + bytes(4)
_READ_BYTES = 1 << 20  # of a column, at once


@dataclass(frozen=True, slots=True)
class Group:
    """A group of rows.

    Attributes:
      rows: how many.
      size: about the bytes that they take in memory.
    """

    rows: int
    size: int


class TableFile(ABC):
    """An open file. Its methods raise Arrow's exceptions and OSError."""

    schema: pa.Schema

    @abstractmethod
    def groups(self) -> list[Group]:
        """Returns its groups, in order."""

    @abstractmethod
    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows of some groups, in order."""


def open_table(kind: FileKind, window: InputWindow, size: int) -> TableFile:
    """Opens a file.

    Raises:
      pa.ArrowException, OSError: it is not of this kind.
    """
    file = pa.PythonFile(window, mode="r")
    if kind == "parquet":
        return _Parquet(file)
    head = window.read(2 * len(_CONTINUED))
    window.seek(0)
    # A stream before Arrow 0.15 begins with a length, as any file may.
    is_stream = head.startswith(_CONTINUED)
    return _ArrowStream(file, window, size) if is_stream else _Arrow(file, size)


class _Parquet(TableFile):
    def __init__(self, file: pa.NativeFile) -> None:
        # With a buffer of its own each column is read in parts.
        self._file = pq.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False)
        self.schema = self._file.schema_arrow

    def groups(self) -> list[Group]:
        metadata = self._file.metadata
        found = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        groups = [Group(each.num_rows, each.total_byte_size) for each in found]
        if any(each.rows < 0 for each in groups):
            raise pa.ArrowInvalid("a row group has fewer than 0 rows")
        return groups

    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        groups = self.groups()[first:stop]
        rows = sum(each.rows for each in groups)
        size = sum(max(0, each.size) for each in groups)
        yield from self._file.iter_batches(
            batch_size=_batch_rows(rows, size),
            row_groups=list(range(first, stop)),
            use_threads=False,
        )


class _Arrow(TableFile):
    def __init__(self, file: pa.NativeFile, size: int) -> None:
        self._source = file
        self._size = size
        self._file = pa.ipc.open_file(file)
        self.schema = self._file.schema

    def groups(self) -> list[Group]:
        # One column is enough to count rows; the others are not read.
        options = pa.ipc.IpcReadOptions(included_fields=[0] if len(self.schema) else [])
        file = pa.ipc.open_file(self._source, options=options)
        rows = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
        total = max(1, sum(rows))
        return [Group(each, self._size * each // total) for each in rows]

    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        for index in range(first, stop):
            yield from _in_steps(self._file.get_batch(index))


class _ArrowStream(TableFile):
    """A stream has no table of its batches: all of it is one group."""

    def __init__(self, file: pa.NativeFile, window: InputWindow, size: int) -> None:
        self._source = file
        self._size = size
        window.seek(max(0, size - len(_STREAM_END)))
        if window.read(len(_STREAM_END)) != _STREAM_END:
            raise pa.ArrowInvalid(
                "the stream has no mark of its end: it is cut short, or its writer was "
                "not closed"
            )
        self.schema = self._open().schema

    def _open(self) -> pa.ipc.RecordBatchStreamReader:
        self._source.seek(0)
        return pa.ipc.open_stream(self._source)

    def groups(self) -> list[Group]:
        rows = sum(batch.num_rows for batch in self._open())
        return [Group(rows, self._size)] if rows else []

    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        if first < stop:
            for batch in self._open():
                yield from _in_steps(batch)


def _in_steps(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a batch, few at once."""
    _require_sound(batch)
    step = _batch_rows(batch.num_rows, batch.nbytes)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _require_sound(batch: pa.RecordBatch) -> None:
    """Checks that no offset or index of a batch points outside its buffers.

    Raises:
      pa.ArrowInvalid: one does.
    """
    batch.validate()
    for column in batch.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            # Text is checked cell by cell when it is encoded.
            if "UTF8" not in str(error):
                raise


def _batch_rows(rows: int, size: int) -> int:
    """Returns how many rows to read at once."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(1, size)))
