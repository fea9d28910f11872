"""Keeps the inventory in a file that workers read by slices.

Millions of files are too many to send to each worker. The file has one Arrow record
batch for each slice, so that a slice is one read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from recordmill.schemas.input_files import InputFile
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.input_stream import InputStream

SLICE_FILES = 4096

_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "version": pa.string(),
        "problem": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The inventory of a run in a file that every worker can read."""

    store: Store  # that has the file
    name: str  # of the file
    root: str  # what every uri begins with, before the path

    def write(self, files: Sequence[InputFile], notes: pa.Table | None = None) -> None:
        """Writes the inventory; `notes` are more columns, with a row for each file."""
        sink = pa.BufferOutputStream()
        schema = _SCHEMA if notes is None else pa.schema([*_SCHEMA, *notes.schema])
        with pa.ipc.new_file(sink, schema) as out:
            for start in range(0, len(files), SLICE_FILES):
                part = files[start : start + SLICE_FILES]
                columns = [
                    pa.array([getattr(file, field.name) for file in part], field.type)
                    for field in _SCHEMA
                ]
                if notes is not None:
                    beside = notes.slice(start, len(part)).combine_chunks()
                    columns += [column.chunk(0) for column in beside.columns]
                out.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        self.store.put_bytes(sink.getvalue().to_pybytes(), self.name)

    def read(self, start: int, stop: int) -> list[InputFile]:
        """Reads the files from `start` to `stop`, exclusive."""
        return [
            InputFile(path, self.root + path, size, version, "", problem)
            for batch in self._batches(start, stop)
            for path, size, version, problem in zip(
                *(batch[name].to_pylist() for name in _SCHEMA.names), strict=True
            )
        ]

    def read_notes(self, start: int, stop: int) -> pa.Table:
        """Reads the columns beside the files from `start` to `stop`, exclusive."""
        return pa.Table.from_batches(list(self._batches(start, stop))).drop_columns(
            _SCHEMA.names
        )

    def _batches(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        with self._open() as source, pa.ipc.open_file(source) as reader:
            for number in range(start // SLICE_FILES, -(-stop // SLICE_FILES)):
                first = number * SLICE_FILES
                batch = reader.get_batch(number)
                low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                yield batch.slice(low, high - low)

    def _open(self) -> pa.NativeFile:
        if isinstance(self.store, LocalStore):
            return pa.OSFile(str(Path(self.store.root, self.name)), "rb")
        # Arrow reads its end and one slice.
        size = self.store.size(self.name) or 0
        file = InputStream(partial(self.store.read_range, self.name), size)
        return pa.PythonFile(file, "r")


def slices(files: Sequence[InputFile], most_files: int, most_bytes: int) -> list[int]:
    """Cuts an inventory into slices of at most so many files and bytes.

    Returns the index of each slice's first file, and the number of files: of 4, 4, 9 and
    1 bytes, with at most 8 bytes a slice, [0, 2, 3, 4]. A larger file is a slice alone.
    """
    ends = np.cumsum(np.array([file.size for file in files], np.int64))
    cuts = [0]
    while (start := cuts[-1]) < len(files):
        limit = most_bytes + (ends[start - 1] if start else 0)
        stop = int(np.searchsorted(ends, limit, side="right"))
        cuts.append(min(max(stop, start + 1), start + most_files))
    return cuts
