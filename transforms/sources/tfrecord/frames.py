"""Opens and cuts TFRecord files, and reads their frames by reference.

A reference has 16 bytes, little-endian:

    file u32 | frame bytes u32 | offset u64
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileStat, InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64, array_parts, binary_array, offsets_of
from recordmill.transforms.sources.base import FRAMED, ReferencedRows
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import (
    LocalInput,
    is_local,
    open_input,
    open_stream,
    read_range,
)
from recordmill.transforms.tfrecord import (
    HEAD_BYTES,
    damaged_frame,
    find_frames,
    frame_bytes,
    is_head,
)

_DETECTION_BYTES = (
    1 << 12
)  # bytes at the start of a file that determine its compression
_GZIP_OR_ZLIB = 47  # zlib's wbits value to detect gzip or zlib by the header


def open_range(input_range: InputRange, storage: StorageOptions) -> InputStream:
    """Opens a range; the first bytes of the file determine whether it is compressed."""
    part, kind = (input_range.start, input_range.stop), "plain"
    if input_range.start == 0:
        kind, _ = detect_compression(input_range.uri, storage, input_range.stat)
    compression = "" if kind == "plain" else "deflated"
    return open_stream(input_range, storage, part=part, compression=compression)


def detect_compression(
    uri: str, storage: StorageOptions, stat: FileStat | None
) -> tuple[str, bool]:
    """Returns "plain", "gzip" or "zlib", and whether the file begins with a record."""
    start = read_range(uri, 0, _DETECTION_BYTES, storage, stat)
    if not start or is_head(start[:HEAD_BYTES]):
        return "plain", True
    is_zlib = start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0
    for name, fits in (("gzip", start[:2] == b"\x1f\x8b"), ("zlib", is_zlib)):
        if not fits:
            continue
        unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            head = unpacker.decompress(start, HEAD_BYTES)
        except zlib.error:
            continue
        if is_head(head) or (unpacker.eof and not head):
            return name, True
        if name == "gzip":
            return name, False
    return "plain", False


WHOLE_BYTES = 256 << 20  # maximum size of a file that is one range
STEP_BYTES = 64 << 20  # approximate size of the ranges of a larger file
_READ_BYTES = 1 << 20  # read at once to find records
# with at most so many records in _READ_BYTES, only record heads are read
_FEW_RECORDS = 4


def cut_files(
    files: Sequence[InputFile],
    storage: StorageOptions,
    whole_bytes: int = WHOLE_BYTES,
    step_bytes: int = STEP_BYTES,
) -> list[tuple[InputFile, int, int]]:
    """Returns the ranges of files as (file, start, stop).

    Only local, uncompressed files of more than `whole_bytes` are cut, because the start
    of a record follows from the record before it. The cuts change no byte of the dataset.
    """
    parts = []
    for file in files:
        edges = [0, file.size]
        if file.size > whole_bytes and is_local(file.uri):
            edges = _find_edges(file, storage, step_bytes)
        parts += [(file, start, stop) for start, stop in pairwise(edges)]
    return parts


def _find_edges(file: InputFile, storage: StorageOptions, step_bytes: int) -> list[int]:
    """Returns the start of each range and the end of a file; no cuts after damage."""
    edges, at, look = [0], 0, _READ_BYTES
    if detect_compression(file.uri, storage, file.stat)[0] != "plain":
        return [0, file.size]
    read = open_input(file.uri, storage, file.stat).read
    while at < file.size:
        block = np.frombuffer(read(at, min(at + look, file.size)), np.uint8)
        ends = find_frames(block) + at
        look = _READ_BYTES if len(ends) > _FEW_RECORDS else HEAD_BYTES
        head = block[:HEAD_BYTES].data
        if len(ends) == 1 and is_head(head):  # the record is longer than the bytes read
            ends = np.append(ends, at + frame_bytes(head))
        if len(ends) == 1 or ends[-1] > file.size:
            break
        while edges[-1] + step_bytes <= ends[-1]:
            edges.append(int(ends[np.searchsorted(ends, edges[-1] + step_bytes)]))
        at = int(ends[-1])
    if edges[-1] != file.size:
        edges.append(file.size)
    return edges


_REFERENCE = np.dtype([("file", "<u4"), ("length", "<u4"), ("offset", "<u8")])


def create_references(number: int, offsets: I64, lengths: I64) -> pa.BinaryArray:
    """Returns references to frames of the file with this number."""
    references = np.empty(len(offsets), _REFERENCE)
    references["file"] = number
    references["length"] = lengths
    references["offset"] = offsets
    ends = np.arange(len(offsets) + 1, dtype=np.int64) * _REFERENCE.itemsize
    return binary_array(ends, references.view(np.uint8))


def read_references(
    references: pa.BinaryArray, files: Sequence[InputFile]
) -> ReferencedRows:
    """Reads the frames at the references.

    Raises:
      ChangedInputError: a file has changed since it was read first.
    """
    offsets, reference_bytes = array_parts(references)
    frame_references = reference_bytes[offsets[0] : offsets[-1]].view(_REFERENCE)
    numbers = frame_references["file"].astype(np.int64)
    places = frame_references["offset"].astype(np.int64)
    edges = offsets_of(frame_references["length"].astype(np.int64))
    starts, lengths = edges[:-1], np.diff(edges)
    buffer = np.empty(int(edges[-1]), np.uint8)
    # Read file by file and by rising offset, so that consecutive reads are close to each
    # other. One sort key for both (at most 10,000 files) takes a seventh of the time of
    # lexsort.
    order = np.argsort(numbers << 48 | places)
    edge = np.flatnonzero(np.diff(numbers[order])) + 1
    for rows in np.split(order, edge) if len(order) else ():
        file = files[int(numbers[rows[0]])]
        LocalInput(file.uri, file.stat).gather(
            places[rows], lengths[rows], buffer, starts[rows]
        )
    damaged = damaged_frame(buffer, starts, lengths)
    if damaged is not None:
        raise ChangedInputError(
            f"{files[int(numbers[damaged])].uri}: the record at byte "
            f"{int(places[damaged]):,} was whole when it was read "
            "first. Run the same command again when nothing writes to the inputs"
        )
    frames = binary_array(edges, buffer)

    def raw(row: int) -> tuple[str, int, bytes]:
        return files[int(numbers[row])].path, int(places[row]), frames[row].as_py()

    batch = pa.record_batch([frames], [FRAMED])
    return ReferencedRows(batch, np.arange(len(frames), dtype=np.int64), raw)
