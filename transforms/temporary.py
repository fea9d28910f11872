"""Temporary files without a name, for tables that do not fit in memory."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any
from weakref import ref

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import FULL_ERRNOS, InputError
from recordmill.transforms.native.numpy_loops import offsets_of

SPILL_BYTES = 64 << 20
"""Maximum size of a table in memory; a larger one is written to disk."""

BATCH_ROWS = 1 << 15
"""Rows that are processed together."""


class TemporaryFiles:
    """A factory of unnamed files in a configurable folder; no file outlives its use."""

    def __init__(self) -> None:
        self.folder = ""  # the folder of the files; "" for TMPDIR
        self._mapped = set[ref[mmap.mmap]]()

    def choose_folder(self, folder: str) -> None:
        """Sets the folder to use instead of TMPDIR, or its closest existing parent."""
        path = Path(folder).absolute()
        self.folder = str(
            next(ancestor for ancestor in (path, *path.parents) if ancestor.is_dir())
        )

    def usable_folder(self) -> str | None:
        """Returns the chosen folder if it is writable; None for TMPDIR."""
        can_write = self.folder and os.access(self.folder, os.W_OK)
        return self.folder if can_write else None

    @contextmanager
    def open_file(self, failure: str, way_out: str = "") -> Iterator[IO[bytes]]:
        """Yields a new file to write to; it stays open.

        Raises:
          InputError: `failure`, if the disk is full or the folder is not writable.
        """
        folder = self.usable_folder()
        codes = {*FULL_ERRNOS, errno.EROFS, errno.EACCES}
        try:
            with ExitStack() as failed:
                file = failed.enter_context(tempfile.TemporaryFile(dir=folder))
                codes = {
                    *FULL_ERRNOS
                }  # other errors may come from files read meanwhile
                yield file
                file.flush()
                failed.pop_all()
        except OSError as error:
            if error.errno not in codes:
                raise
            option = "`scratch`" if folder else "TMPDIR"  # also on workers of a cluster
            raise InputError(
                f"{failure} in {folder or tempfile.gettempdir()}: {error.strerror}. Free "
                f"some space, or set {option} to another folder{way_out}"
            ) from error

    def map(self, file: IO[bytes]) -> pa.Buffer:
        """Maps a file; the kernel drops the pages if memory is short.

        If the file system does not support mapping, the bytes are read.
        """
        try:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError:
            file.seek(0)
            return pa.py_buffer(file.read())
        self._mapped.add(ref(mapping, self._mapped.discard))
        return pa.py_buffer(mapping)

    def drop_pages(self) -> None:
        """Releases the pages of mapped files, which count as this process's memory.

        Later reads get the pages from the kernel's cache or from the disk.
        """
        for mapping_ref in tuple(
            self._mapped
        ):  # a copy, because other threads map files
            if mapping := mapping_ref():
                mapping.madvise(mmap.MADV_DONTNEED)


TEMPORARY = TemporaryFiles()


@contextmanager
def temporary_folders_in(folder: str) -> Iterator[None]:
    """Sets the folder in which libraries create temporary folders, within the block.

    It replaces TMPDIR, in which the folders of a killed process stay; "" changes nothing.
    The setting applies to the whole process.
    """
    previous_folder = tempfile.tempdir
    if folder:
        tempfile.tempdir = folder
    try:
        yield
    finally:
        tempfile.tempdir = previous_folder


def is_long(table: pa.Table) -> bool:
    """Checks whether a table is too large to be copied in memory."""
    return bool(table.nbytes > SPILL_BYTES)


def gather_batches(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    *,
    most_bytes: int | None = None,
) -> pa.Table:
    """Returns batches as a table; above `most_bytes` it is mapped from a file."""
    left, kept_batches, num_bytes = _joined(batches), list[pa.RecordBatch](), 0
    for batch in left:
        kept_batches.append(batch)
        num_bytes += batch.nbytes
        if num_bytes > (SPILL_BYTES if most_bytes is None else most_bytes):
            break
    else:
        return pa.Table.from_batches(kept_batches, schema)
    with (
        TEMPORARY.open_file("the list of input files cannot be written") as file,
        pa.ipc.new_stream(file, schema) as out,
    ):
        while kept_batches:
            out.write_batch(kept_batches.pop(0))
        for batch in left:
            out.write_batch(batch)
            TEMPORARY.drop_pages()
    with file:
        return pa.ipc.open_stream(TEMPORARY.map(file)).read_all()


def spill_bytes(parts: Iterable[bytes]) -> bytes | memoryview:
    """Returns the bytes of all parts; above SPILL_BYTES they are mapped from a file."""
    left, kept_parts = iter(parts), list[bytes]()
    while sum(map(len, kept_parts)) <= SPILL_BYTES:
        if (part := next(left, None)) is None:
            return b"".join(kept_parts)
        kept_parts.append(part)
    with TEMPORARY.open_file("the list of input files cannot be written") as file:
        file.writelines(chain(kept_parts, left))
    with file:
        return memoryview(TEMPORARY.map(file)).cast("B")


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows in larger batches, because each batch has a fixed cost."""
    small, num_rows = list[pa.RecordBatch](), 0
    for batch in batches:
        small.append(batch)
        num_rows += batch.num_rows
        if num_rows >= BATCH_ROWS // 2:
            yield pa.concat_batches(small) if len(small) > 1 else batch
            small, num_rows = [], 0
    if num_rows:
        yield pa.concat_batches(small) if len(small) > 1 else small[0]


def take_batches(table: pa.Table, positions: Any) -> Iterator[pa.RecordBatch]:
    """Yields the rows at some positions, in batches of at most BATCH_ROWS."""
    batches = table.to_batches()
    starts = offsets_of(np.array([batch.num_rows for batch in batches]))
    for at in range(0, len(positions), BATCH_ROWS):
        part = np.asarray(positions[at : at + BATCH_ROWS]).astype(np.int64)
        sources = np.searchsorted(starts, part, "right") - 1
        order = np.argsort(sources, kind="stable")
        first = np.flatnonzero(np.diff(sources[order], prepend=-1))
        groups = np.split(order, first[1:])
        grouped_rows = pa.concat_batches(
            batches[number].take(pa.array(part[group] - starts[number]))
            for number, group in zip(sources[order][first], groups, strict=True)
        )
        yield grouped_rows.take(pa.array(np.argsort(order)))
