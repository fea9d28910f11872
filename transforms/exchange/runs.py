"""Sorted runs in scratch: the records of one batch, ordered by order key.

    STEM.records   payload of record 0 | payload of record 1 | ...
    STEM.index     "recmill1" | u64 records | u64 splits | u64 count per split
                   | u64 order keys | u64 offsets (records + 1) | u64 planned bytes

All little-endian; records are split after split, within a split by order key. A
payload is a framed record, or by reference the path of the file that becomes one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import RecordmillError
from schemas.ranges import RunRef
from transforms.encode.wire import I64, U64, offsets_of
from transforms.exchange.block_io import SCRATCH_SPEED, BlockWriter
from transforms.tfrecord import array_parts, crc32c
from transforms.write import aside_of, write_whole

_MAGIC = b"recmill1"
_WINDOW_BYTES = 4 << 20  # sorted and written at once


@dataclass(frozen=True, slots=True)
class RunIndex:
    """The index of one run: keys, offsets (records + 1), weights, counts by split."""

    keys: U64
    offsets: U64
    weights: U64
    counts: tuple[int, ...]

    def slice_of(self, split_index: int, low: int, high: int) -> tuple[int, int]:
        """The records of a split with low <= key < high: first and end."""
        start = sum(self.counts[:split_index])
        keys = self.keys[start : start + self.counts[split_index]]
        first = int(np.searchsorted(keys, np.uint64(low)))
        end = len(keys)
        if high < 1 << 64:
            end = int(np.searchsorted(keys, np.uint64(high)))
        return start + first, start + end


def write_run(
    stem: Path,
    payloads: pa.BinaryArray,
    keys: U64,
    splits: npt.NDArray[np.uint8],
    weights: I64,
    num_splits: int,
) -> RunRef:
    """Sorts a batch by (split, order key) and writes it as a run.

    Args:
      stem: path without ending; both files appear whole or not at all.
      payloads: one payload per row.
      keys: order key of each row.
      splits: split index of each row.
      weights: planned bytes of each row.
      num_splits: how many splits the job has.
    """
    counts = np.bincount(splits, minlength=num_splits)
    order = _order_of(keys, splits, num_splits)
    offsets, _ = array_parts(payloads)
    lengths = np.diff(offsets)
    if order is not None:
        keys, weights, lengths = keys[order], weights[order], lengths[order]
    starts = offsets_of(lengths)
    head = np.array([len(keys), num_splits, *counts], "<u8")
    index = b"".join(
        [
            _MAGIC,
            head.tobytes(),
            keys.astype("<u8").tobytes(),
            starts.astype("<u8").tobytes(),
            weights.astype("<u8").tobytes(),
        ]
    )
    path = stem.with_name(f"{stem.name}.records")
    payload_crc = _write_payload(path, _in_order(payloads, order, starts))
    write_whole(stem.with_name(f"{stem.name}.index"), index)
    return RunRef(
        stem=stem.name,
        counts=tuple(counts.tolist()),
        payload_bytes=int(starts[-1]),
        index_crc32c=crc32c(index),
        payload_crc32c=payload_crc,
    )


def _in_order(
    payloads: pa.BinaryArray, order: npt.NDArray[np.intp] | None, starts: I64
) -> Iterator[memoryview]:
    """The payloads' bytes in the run's order, a window at a time to spare memory."""
    num_windows = max(1, int(starts[-1]) // _WINDOW_BYTES)
    targets = np.linspace(0, starts[-1], num_windows + 1)[1:-1]
    edges = [0, *np.searchsorted(starts, targets).tolist(), len(payloads)]
    for first, end in pairwise(edges):
        if order is None:
            window = payloads.slice(first, end - first)
        else:
            window = payloads.take(pa.array(order[first:end]))
        offsets, data = array_parts(window)
        yield data.data[offsets[0] : offsets[-1]]


def _order_of(
    keys: U64, splits: npt.NDArray[np.uint8], num_splits: int
) -> npt.NDArray[np.intp] | None:
    """The stable order by (split, key), or None if the rows already are in it."""
    if num_splits == 1:
        if bool(np.all(keys[:-1] <= keys[1:])):
            return None
        return np.argsort(keys, kind="stable")
    return np.lexsort((keys, splits))


def _write_payload(path: Path, windows: Iterable[memoryview]) -> int:
    """Writes a run's payload as `write_whole` does, the faster way for large files.

    Returns:
      The payload's CRC-32C.
    """
    aside = aside_of(path)
    num_bytes = crc = 0
    seconds = 0.0
    try:
        with BlockWriter(aside, direct=SCRATCH_SPEED.direct) as file:
            for body in windows:
                crc = crc32c(body, crc)
                num_bytes += len(body)
                start = time.perf_counter()
                file.write(body)
                seconds += time.perf_counter() - start
            file.finish(durable=False)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    SCRATCH_SPEED.note(num_bytes, seconds, direct=file.direct)
    return crc


def read_index(folder: Path, run: RunRef) -> RunIndex:
    """Reads a run's index and checks it.

    Raises:
      RecordmillError: the file is not what the run's facts say.
    """
    path = folder / f"{run.stem}.index"
    data = path.read_bytes()
    if crc32c(data) != run.index_crc32c or not data.startswith(_MAGIC):
        raise RecordmillError(f"{path}: the scratch file was changed or is damaged")
    num_splits = len(run.counts)
    num_records = sum(run.counts)
    words = np.frombuffer(data, "<u8", offset=len(_MAGIC) + 8 * (2 + num_splits))
    return RunIndex(
        keys=words[:num_records],
        offsets=words[num_records : 2 * num_records + 1],
        weights=words[2 * num_records + 1 :],
        counts=run.counts,
    )


def run_is_there(folder: Path, run: RunRef) -> bool:
    """Whether a run's files have the right sizes, and its index the right checksum.

    The payload is not read: framed records have checksums of their own, which whoever
    gathers them compares.
    """
    try:
        index = (folder / f"{run.stem}.index").read_bytes()
        size = (folder / f"{run.stem}.records").stat().st_size
    except OSError:
        return False
    return size == run.payload_bytes and crc32c(index) == run.index_crc32c


def run_is_whole(folder: Path, run: RunRef) -> bool:
    """Whether both files of a run are there with the right size and checksum."""
    if not run_is_there(folder, run):
        return False
    try:
        payload = (folder / f"{run.stem}.records").read_bytes()
    except OSError:
        return False
    return crc32c(payload) == run.payload_crc32c
