"""Reads ranges of CIFAR files, and rejects records with labels that are no class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileChecksum
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64, U8
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.reused_buffers import empty_bytes
from recordmill.transforms.sources.cifar.layout import CHANNELS, SIDE, Layout
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.storage.reading import read_into
from recordmill.transforms.tfrecord import crc32c

READ_BYTES = 4 << 20  # rows read and encoded at once: fits the processor's cache


def scan_records(
    input_range: InputRange,
    layout: Layout,
    class_names: tuple[tuple[str, ...], ...],
    storage: StorageOptions,
) -> Iterator[tuple[Rows, U8]]:
    """Reads a range in parts; yields rows with valid labels, and their bytes.

    Args:
      input_range: the range; it begins with a record.
      layout: of a record.
      class_names: those of each label.
      storage: options of the input's storage.

    Yields:
      Rows whose batch is still to be set, and an array of shape (rows, bytes of one).

    Raises:
      ChangedInputError: the file is shorter by now, or another one.
      InputError: it cannot be read.
    """
    size = layout.record_bytes
    step = READ_BYTES // size * size
    crc = 0
    for start in range(input_range.start, input_range.stop, step):
        stop = min(start + step, input_range.stop)
        data = empty_bytes(stop - start)
        data = data[
            : read_into(input_range.uri, start, data, storage, input_range.seen)
        ]
        if len(data) < stop - start:
            raise ChangedInputError(
                f"{input_range.uri}: ends at byte {start + len(data)}, but had "
                f"{input_range.stop} bytes when the run began; did it change meanwhile?"
            )
        crc = crc32c(data.data, crc)
        num_rows = len(data) // size
        rest = data[num_rows * size :]
        records = data[: num_rows * size].reshape(num_rows, size)
        good, rejects = _check_labels(
            records, layout, class_names, input_range.path, start
        )
        if len(rest):
            rejects.append(
                Reject(
                    input_range.path,
                    start + num_rows * size,
                    f"{count(len(rest), 'byte')} at the end of the file, expected a whole "
                    f"{layout.variant} record of {size} ({len(layout.labels)} "
                    f"label + {SIDE} x {SIDE} x {CHANNELS}): the file is cut short",
                    rest.tobytes(),
                )
            )
        if len(good) < num_rows:
            records = records[good]
        ordinals = good + (start - input_range.start) // size
        rows = _rows(input_range, ordinals, size, records, rejects)
        if stop == input_range.stop:
            rows.checksums = [
                FileChecksum(input_range.path, input_range.start, stop, crc)
            ]
        yield rows, records


def _rows(
    input_range: InputRange,
    ordinals: I64,
    size: int,
    records: U8,
    rejects: list[Reject],
) -> Rows:
    """Makes rows whose batch is set later."""

    def raw(row: int) -> tuple[int, bytes]:
        return input_range.start + int(ordinals[row]) * size, records[row].tobytes()

    return Rows(
        batch=pa.RecordBatch.from_pydict({}),
        origins=origins_in(input_range.path, input_range.start, ordinals),
        positions=ordinals * size,
        raw=raw,
        rejects=rejects,
    )


def _check_labels(
    records: U8,
    layout: Layout,
    class_names: tuple[tuple[str, ...], ...],
    path: str,
    start: int,
) -> tuple[I64, list[Reject]]:
    """Returns the indices of rows with valid labels, and rejects for the others."""
    counts = np.array([len(names) for names in class_names])
    wrong = has_wrong_label(records, class_names)
    rejects = [
        Reject(
            path,
            start + row * layout.record_bytes,
            f"labels {records[row, : len(counts)].tolist()} for "
            f"{', '.join(layout.labels)}, expected below {counts.tolist()}",
            records[row].tobytes(),
        )
        for row in np.flatnonzero(wrong).tolist()
    ]
    return np.flatnonzero(~wrong), rejects


def has_wrong_label(
    records: U8, class_names: tuple[tuple[str, ...], ...]
) -> npt.NDArray[np.bool_]:
    """Tells which records have a label beyond the classes."""
    counts = np.array([len(names) for names in class_names])
    return np.asarray((records[:, : len(counts)] >= counts).any(axis=1), np.bool_)
