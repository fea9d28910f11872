"""Combines the checksums of parts of files, and says what a file's content is.

The content of a file is a short text, the same wherever and whenever the file is read:

    crc32c:e3069283       of all of its bytes
    crc32c:e3069283/64    of the first 64 bytes, and no others were read
    ""                    nothing was read of it: what it holds does not matter
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from json.encoder import encode_basestring

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileChecksum
from recordmill.transforms.arrow import I64
from recordmill.transforms.inventory import BATCH_FILES
from recordmill.transforms.native.numpy_loops import combine

_PREFIX = "crc32c:"
_CONTENT = re.compile(_PREFIX + "[0-9a-f]{8}(?:/([0-9]{1,18}))?")


class Checksums:
    """Checksums as lines of JSON: 60 bytes for each, where tuples take 250."""

    def __init__(self, checksums: Iterable[FileChecksum] = ()) -> None:
        self.lines = bytearray()
        self.extend(checksums)

    def append(self, checksum: FileChecksum) -> None:
        """Adds one checksum."""
        path, start, stop, crc = checksum
        self.lines += f"[{encode_basestring(path)},{start},{stop},{crc}]\n".encode()

    def extend(self, checksums: Iterable[FileChecksum]) -> None:
        """Adds several."""
        for each in checksums:
            self.append(each)

    def __len__(self) -> int:
        return self.lines.count(b"\n")

    def __iter__(self) -> Iterator[FileChecksum]:
        return parse_checksums(self.lines)


def parse_checksums(lines: bytes | bytearray) -> Iterator[FileChecksum]:
    """Yields checksums of lines; raises ValueError or TypeError if these were cut short."""
    left = io.BytesIO(lines)
    while part := list(islice(left, BATCH_FILES)):
        yield from map(FileChecksum._make, json.loads(b"[%b]" % b",".join(part)))


_SCHEMA = pa.schema(
    {
        name: pa.string() if name == "path" else pa.int64()
        for name in FileChecksum._fields
    }
)


def table_of(checksums: Iterable[FileChecksum]) -> pa.Table:
    """Returns checksums as rows of a table."""
    left, batches = iter(checksums), []
    while part := list(islice(left, BATCH_FILES)):
        arrays = map(pa.array, zip(*part, strict=True), _SCHEMA.types)
        batches.append(pa.RecordBatch.from_arrays(list(arrays), schema=_SCHEMA))
    return pa.Table.from_batches(batches, _SCHEMA)


def contents(parts: pa.Table, paths: pa.ChunkedArray, sizes: I64) -> pa.Array:
    """Returns the content of each of some files; null where nothing was read of it.

    The parts are a table of `FileChecksum`. They may come in any order and several times, as
    long as they join; those of other files are left out.

    Raises:
      ChangedInputError: a part was read several times, and was not the same.
    """
    listed = pc.index_in(parts["path"], value_set=paths)
    if listed.null_count:  # else without a copy
        parts, listed = parts.filter(listed.is_valid()), listed.drop_null()
    listed = np.asarray(listed)
    start, stop, crcs = (parts[name].to_numpy() for name in ("start", "stop", "crc32c"))
    is_whole = (start == 0) & (stop == sizes[listed])  # most files are read at once
    whole, is_read = np.zeros(len(sizes), np.uint32), np.zeros(len(sizes), np.bool_)
    whole[listed[is_whole]] = crcs[is_whole]
    is_read[listed[is_whole]] = True
    digits = whole.byteswap().tobytes().hex().encode()
    offsets = pa.py_buffer(np.arange(0, len(digits) + 1, 8, dtype=np.int32))
    hexes = pa.StringArray.from_buffers(len(sizes), offsets, pa.py_buffer(digits))
    found = pc.binary_join_element_wise(_PREFIX, hexes, "")
    found = pc.if_else(pa.array(is_read), found, pa.scalar(None, pa.string()))
    others = np.flatnonzero(~is_whole | (crcs != whole[listed]))
    if not len(others):
        return found
    by_file = defaultdict[int, set[FileChecksum]](set)
    rows = parts.take(pa.array(others)).to_pylist()
    for index, row in zip(listed[others].tolist(), rows, strict=True):
        by_file[index].add(FileChecksum(**row))
    numbers = sorted(by_file)
    texts = []
    for index in numbers:
        own, size = by_file[index], int(sizes[index])
        path = next(iter(own)).path
        if is_read[index]:
            own.add(FileChecksum(path, 0, size, int(whole[index])))
        texts.append(content_of(path, own, size))
    mask = np.zeros(len(sizes), np.bool_)
    mask[numbers] = True
    return pc.replace_with_mask(found, pa.array(mask), pa.array(texts, pa.string()))


def content_of(path: str, checksums: Iterable[FileChecksum], size: int) -> str:
    """Returns the content of a file from checksums of its parts."""
    parts = sorted(set(checksums))
    for before, part in pairwise(parts):
        if before[1:3] == part[1:3]:
            raise ChangedInputError(
                f"{path}: bytes {part.start} to {part.stop} were read twice and were "
                "not the same. Run the job again, and do not write to its inputs "
                "meanwhile"
            )
    crcs = {0: 0}  # of all bytes up to here
    for part in parts:
        if part.start in crcs and part.stop not in crcs:
            length = part.stop - part.start
            crcs[part.stop] = combine(crcs[part.start], part.crc32c, length)
    stop = max(crcs)
    if stop == size:
        return f"{_PREFIX}{crcs[stop]:08x}"
    return f"{_PREFIX}{crcs[stop]:08x}/{stop}" if stop else ""


def bytes_of_content(content: str, size: int) -> int | None:
    """Returns how many bytes of a file its content speaks of; None if it is no content.

    >>> bytes_of_content("crc32c:e3069283", 9), bytes_of_content("crc32c:00000000/4", 9)
    (9, 4)
    >>> bytes_of_content("", 9), bytes_of_content("1700000000000000000", 9)
    (0, None)
    """
    if not content:
        return 0
    found = _CONTENT.fullmatch(content)
    if not found:
        return None
    if not found[1]:
        return size
    head = int(found[1])
    return head if 0 < head < size else None
