"""Reads the CIFAR records that references stand for: their positions in the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import Seen
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64, U8, array_parts
from recordmill.transforms.reused_buffers import empty_bytes
from recordmill.transforms.sources.cifar.scan_records import has_wrong_label
from recordmill.transforms.storage.reading import read_rows


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Records from anywhere in the input.

    Attributes:
      records: one in each row.
      positions: of each in the whole input: all files, one behind the other.
      files: uri, first position, size and version of each file.
    """

    records: U8
    positions: I64
    files: Sequence[tuple[str, int, Seen]]

    def part(self, start: int, stop: int) -> FoundRecords:
        """Returns some that follow each other."""
        rows = slice(start, stop)
        return FoundRecords(self.records[rows], self.positions[rows], self.files)

    def raw(self, row: int) -> tuple[str, int, bytes]:
        """Returns the file of a record, its position there, and its bytes."""
        position = int(self.positions[row])
        uri, start, _ = self.files[
            _files_at(self.positions[row : row + 1], self.files)[0]
        ]
        return uri, position - start, self.records[row].tobytes()


def read_records(
    references: pa.BinaryArray,
    record_bytes: int,
    class_names: tuple[tuple[str, ...], ...],
    files: Sequence[tuple[str, int, Seen]],
    storage: StorageOptions,
) -> FoundRecords:
    """Reads records in the order of their references, from the front of files to the end.

    Args:
      references: positions in the whole input, as 8 bytes.
      record_bytes: of each record.
      class_names: those of each label.
      files: uri, first position, size and version of each file.
      storage: options of the input's storage.

    Raises:
      ChangedInputError: a file is another one by now.
      InputError: it cannot be read.
    """
    offsets, data = array_parts(references)
    positions = data[offsets[0] : offsets[-1]].view("<u8").astype(np.int64)
    records = empty_bytes(len(positions) * record_bytes).reshape(-1, record_bytes)
    order = np.argsort(positions)
    file_of = _files_at(positions[order], files)
    indices, firsts = np.unique(file_of, return_index=True)
    edges = pairwise([*firsts.tolist(), len(order)])
    for index, (first, end) in zip(indices.tolist(), edges, strict=True):
        rows = order[first:end]
        uri, start, seen = files[index]
        read_rows(uri, positions[rows] - start, records, rows, storage, seen)
    found = FoundRecords(records, positions, files)
    wrong = np.flatnonzero(has_wrong_label(records[:, : len(class_names)], class_names))
    if len(wrong):
        raise ChangedInputError(
            f"{found.raw(int(wrong[0]))[0]}: holds labels that were not there when it was "
            "read first. Run the same command again when nothing writes to the inputs"
        )
    return found


def _files_at(positions: I64, files: Sequence[tuple[str, int, Seen]]) -> I64:
    """Returns the index of the file at each position.

    Files that begin at positions 0 and 30,730: positions [0, 3,073, 30,730] lie in files
    [0, 0, 1].
    """
    starts = np.array([start for _, start, _ in files], np.int64)
    return np.searchsorted(starts, positions, side="right") - 1
