"""Makes references to records of TFRecord files, and reads the records by them.

file u32 | frame bytes u32 | offset u64      16 bytes, little-endian
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.ranges import Seen
from recordmill.transforms.arrow import I64, array_parts, binary_array, offsets_of
from recordmill.transforms.storage.read_scattered import gather_parts
from recordmill.transforms.tfrecord import damaged_frame

_REFERENCE = np.dtype([("file", "<u4"), ("length", "<u4"), ("offset", "<u8")])


class ReferencedFile(NamedTuple):
    """A file that references name by its number.

    Attributes:
      path: relative to the input root.
      uri: where it is read from.
      seen: size and version.
    """

    path: str
    uri: str
    seen: Seen


def make_references(number: int, offsets: I64, lengths: I64) -> pa.BinaryArray:
    """Makes references to frames of one file.

    Args:
      number: of the file.
      offsets: where each frame begins.
      lengths: its bytes.
    """
    references = np.empty(len(offsets), _REFERENCE)
    references["file"] = number
    references["length"] = lengths
    references["offset"] = offsets
    ends = np.arange(len(offsets) + 1, dtype=np.int64) * _REFERENCE.itemsize
    return binary_array(ends, references.view(np.uint8))


class ReferencedFrames:
    """Frames that were read by references.

    Attributes:
      records: them, in the order of the references.
    """

    def __init__(
        self, references: pa.BinaryArray, files: Sequence[ReferencedFile]
    ) -> None:
        """Reads the frames.

        Raises:
          ChangedInputError: a file is another one by now.
          InputError: it cannot be read.
        """
        offsets, data = array_parts(references)
        self._found = data[offsets[0] : offsets[-1]].view(_REFERENCE)
        self._files = files
        edges = offsets_of(self._found["length"].astype(np.int64))
        buffer = np.empty(int(edges[-1]), np.uint8)
        # File by file, and forwards in each: the reads then lie nearer to each other.
        numbers, places = self._found["file"], self._found["offset"].astype(np.int64)
        # One number for both (10,000 files at most): a seventh of the time of lexsort.
        order = np.argsort(numbers.astype(np.int64) << 48 | places)
        edge = np.flatnonzero(np.diff(numbers[order].astype(np.int64))) + 1
        starts, lengths = edges[:-1], np.diff(edges)
        for rows in np.split(order, edge) if len(order) else ():
            file = files[int(numbers[rows[0]])]
            gather_parts(
                file.uri, places[rows], lengths[rows], buffer, starts[rows], file.seen
            )
        damaged = damaged_frame(buffer, edges[:-1], np.diff(edges))
        if damaged is not None:
            raise ChangedInputError(
                f"{files[int(self._found['file'][damaged])].uri}: the record at byte "
                f"{int(self._found['offset'][damaged]):,} was whole when it was read "
                "first. Run the same command again when nothing writes to the inputs"
            )
        self.records = binary_array(edges, buffer)

    def raw(self, row: int) -> tuple[str, int, bytes]:
        """Returns path, offset and bytes of a record."""
        path = self._files[int(self._found["file"][row])].path
        return path, int(self._found["offset"][row]), self.records[row].as_py()
