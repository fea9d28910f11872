"""Stores long lists as Arrow files, which workers and later steps read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa

from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.local import LocalStore
from recordmill.transforms.storage.store import Store
from recordmill.transforms.temporary import (
    BATCH_ROWS,
    TEMPORARY,
    gather_batches,
    is_long,
)


def put_table(store: Store, name: str, table: pa.Table, rows: int = BATCH_ROWS) -> None:
    """Puts a table as an Arrow file, in batches of `rows` rows."""

    def write(range_findings: IO[bytes]) -> None:
        with pa.ipc.new_file(range_findings, table.schema) as out:
            for start in range(0, len(table), rows):
                out.write_table(table.slice(start, rows).combine_chunks())

    if not is_long(table):
        write(range_findings := io.BytesIO())
        store.put_bytes(range_findings.getvalue(), name)
        return
    with TEMPORARY.open_file("the list of input files cannot be written") as file:
        write(file)
    with file:
        file.seek(0)
        store.put_file(Path(f"/dev/fd/{file.fileno()}"), name)


@contextmanager
def open_table(store: Store, name: str) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """Opens an Arrow file; in a remote store, only its footer is read first.

    Raises:
      OutputError: the file is missing or damaged.
    """
    if (size := store.size(name)) is None:
        raise MissingFileError(f"{store.uri_of(name)}: is missing")
    if isinstance(store, LocalStore):
        source = pa.OSFile(str(Path(store.root, name)), "rb")
    else:
        file = InputStream(partial(store.read_range, name), size)
        source = pa.PythonFile(file, "r")
    with source:
        try:
            reader = pa.ipc.open_file(source)
        except pa.ArrowInvalid as error:
            raise OutputError(f"{store.uri_of(name)}: is damaged: {error}") from None
        with reader:
            yield reader


def read_table(store: Store, name: str) -> pa.Table:
    """Reads an Arrow file; a long table is memory-mapped."""
    with open_table(store, name) as reader:
        numbers = range(reader.num_record_batches)
        return gather_batches(map(reader.get_batch, numbers), reader.schema)
