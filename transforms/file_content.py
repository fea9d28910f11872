"""Combines the checksums of parts of a file into a text that identifies its content.

The content text of a file does not depend on the place or time of the reading:

    crc32c:e3069283       checksum of all bytes
    crc32c:e3069283/64    checksum of the first 64 bytes; no other byte was read
    ""                    no byte was read: the bytes of the file do not matter
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileChecksum
from recordmill.transforms.native.numpy_loops import combine_crcs
from recordmill.transforms.tfrecord import crc32c

_PREFIX = "crc32c:"
_CONTENT = re.compile(_PREFIX + "[0-9a-f]{8}(?:/([0-9]{1,18}))?")


CHECKSUMS = pa.schema(
    {
        name: pa.string() if name == "path" else pa.int64()
        for name in FileChecksum._fields
    }
)
"""The columns of checksums."""

_CHECKSUMS_IN_BATCH = 4096


class Checksums:
    """Checksums in columns: 60 bytes per checksum, compared with 250 for a tuple."""

    def __init__(self, checksums: Iterable[FileChecksum] = ()) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._pending: list[FileChecksum] = []  # not yet in columns
        self.extend(checksums)

    def append(self, checksum: FileChecksum) -> None:
        """Adds one checksum."""
        self._pending.append(checksum)
        if len(self._pending) == _CHECKSUMS_IN_BATCH:
            self._batches = self.batches
            self._pending = []

    def extend(self, checksums: Iterable[FileChecksum]) -> None:
        """Adds several checksums."""
        for checksum in checksums:
            self.append(checksum)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """Returns all checksums, in columns."""
        if not self._pending:
            return self._batches
        columns = map(pa.array, zip(*self._pending, strict=True), CHECKSUMS.types)
        last = pa.RecordBatch.from_arrays(list(columns), schema=CHECKSUMS)
        return [*self._batches, last]

    def dump(self) -> bytes:
        """Returns the checksums as the bytes of a file, which begins with its CRC-32C."""
        range_findings = io.BytesIO()
        with pa.ipc.new_stream(range_findings, CHECKSUMS) as out:
            for batch in self.batches:
                out.write_batch(batch)
        return crc32c(range_findings.getvalue()).to_bytes(4) + range_findings.getvalue()

    def __len__(self) -> int:
        return sum(map(len, self._batches)) + len(self._pending)

    def __iter__(self) -> Iterator[FileChecksum]:
        return chain(checksums_in(self._batches), self._pending)


def parse_checksums(file_bytes: bytes) -> list[pa.RecordBatch]:
    """Reads the checksums of a file, in columns; none if it is damaged or missing."""
    if len(file_bytes) < 4 or crc32c(file_bytes[4:]).to_bytes(4) != file_bytes[:4]:
        return []  # truncated by a power failure
    return list(pa.ipc.open_stream(file_bytes[4:]))


def checksums_in(batches: Iterable[pa.RecordBatch]) -> Iterator[FileChecksum]:
    """Yields the checksums of batches as tuples."""
    for batch in batches:
        columns = (batch[name].to_pylist() for name in CHECKSUMS.names)
        yield from map(FileChecksum, *columns)


def compute_contents(files: pa.Table, parts: pa.Table) -> pa.Array:
    """Returns the content text of each file; null for a file of which nothing was read.

    `parts` are checksums, in any order and possibly repeated. Checksums of other files
    are ignored.

    Raises:
      ChangedInputError: a part was read several times with different checksums.
    """
    sizes = np.asarray(files["size"])
    listed = pc.index_in(parts["path"], value_set=files["path"])
    if listed.null_count:  # avoids a copy otherwise
        parts, listed = parts.filter(listed.is_valid()), listed.drop_null()
    listed = np.asarray(listed)
    start, stop, crcs = (parts[name].to_numpy() for name in ("start", "stop", "crc32c"))
    is_whole = (start == 0) & (stop == sizes[listed])  # most files are one part
    whole, is_read = np.zeros(len(sizes), np.uint32), np.zeros(len(sizes), np.bool_)
    whole[listed[is_whole]] = crcs[is_whole]
    is_read[listed[is_whole]] = True
    digits = whole.byteswap().tobytes().hex().encode()
    offsets = pa.py_buffer(np.arange(0, len(digits) + 1, 8, dtype=np.int32))
    hexes = pa.StringArray.from_buffers(len(sizes), offsets, pa.py_buffer(digits))
    texts_of_whole_files = pc.binary_join_element_wise(_PREFIX, hexes, "")
    texts_of_whole_files = pc.if_else(
        pa.array(is_read), texts_of_whole_files, pa.scalar(None, pa.string())
    )
    partial_indices = np.flatnonzero(~is_whole | (crcs != whole[listed]))
    if not len(partial_indices):
        return texts_of_whole_files
    by_file = defaultdict[int, set[FileChecksum]](set)
    rows = checksums_in(parts.take(pa.array(partial_indices)).to_batches())
    for index, row in zip(listed[partial_indices].tolist(), rows, strict=True):
        by_file[index].add(row)
    numbers = sorted(by_file)
    texts = []
    for index in numbers:
        file_checksums, size = by_file[index], int(sizes[index])
        path = next(iter(file_checksums)).path
        if is_read[index]:
            file_checksums.add(FileChecksum(path, 0, size, int(whole[index])))
        texts.append(combine_checksums(path, file_checksums, size))
    mask = np.zeros(len(sizes), np.bool_)
    mask[numbers] = True
    return pc.replace_with_mask(
        texts_of_whole_files, pa.array(mask), pa.array(texts, pa.string())
    )


def combine_checksums(path: str, checksums: Iterable[FileChecksum], size: int) -> str:
    """Returns the content text of a file, from the checksums of its parts.

    Raises:
      ChangedInputError: a part was read twice with different checksums.
    """
    parts = sorted(set(checksums))
    for previous_part, part in pairwise(parts):
        if previous_part[1:3] == part[1:3]:
            raise ChangedInputError(
                f"{path}: bytes {part.start} to {part.stop} differed between two "
                "reads. Run the job again when nothing writes to its inputs"
            )
    crcs = {0: 0}  # offset to the checksum of all bytes before it
    for part in parts:
        if part.start in crcs and part.stop not in crcs:
            length = part.stop - part.start
            crcs[part.stop] = combine_crcs(crcs[part.start], part.crc32c, length)
    stop = max(crcs)
    if stop == size:
        return f"{_PREFIX}{crcs[stop]:08x}"
    return f"{_PREFIX}{crcs[stop]:08x}/{stop}" if stop else ""


def bytes_of_content(content: str, size: int) -> int | None:
    """Returns the number of bytes that a content text covers; None if it is malformed.

    >>> bytes_of_content("crc32c:e3069283", 9), bytes_of_content("crc32c:00000000/4", 9)
    (9, 4)
    >>> bytes_of_content("", 9), bytes_of_content("1700000000000000000", 9)
    (0, None)
    """
    if not content:
        return 0
    match = _CONTENT.fullmatch(content)
    if not match:
        return None
    if not match[1]:
        return size
    head = int(match[1])
    return head if 0 < head < size else None
