"""Reads lists of files: a path in each line, one list for each split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c


@dataclass(frozen=True, slots=True)
class SplitList:
    """The paths of a list.

    Attributes:
      file: the list.
      split: that its pictures are in.
      paths: in its lines; null for a blank line.
      offsets: where each line begins.
      checksums: of the file.
    """

    file: InputFile
    split: str
    paths: pa.StringArray
    offsets: I64
    checksums: tuple[FileChecksum, ...]

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns where a line begins, and its bytes."""
        return int(self.offsets[row]), self.paths[row].as_py().encode()


def read_list(split: str, file: InputFile, storage: StorageOptions) -> SplitList:
    """Reads a list.

    Raises:
      InputError: it is not text, or is empty.
    """
    data = read_range(file.uri, 0, file.size, storage, file.seen)
    checksums = (FileChecksum(file.path, 0, len(data), crc32c(data)),)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.uri}: is not UTF-8 (byte {error.start}); expected a path in each line"
        ) from None
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")).astype(np.int64)
    starts = np.concatenate([[0], ends + 1]).astype(np.int64)
    # From the array's buffer: no object for each line.
    bounds = np.concatenate([starts, [len(data) + 1]]).astype(np.int64)
    whole = pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(bounds.tobytes()), pa.py_buffer(data + b"\n")
    )
    lines = pc.utf8_trim_whitespace(whole).cast(pa.string())
    paths = pc.if_else(pc.equal(pc.binary_length(lines), 0), None, lines)
    if paths.null_count == len(paths):
        raise InputError(f"{file.uri}: is empty; expected a path in each line")
    return SplitList(file, split, paths, starts, checksums)
