"""Writes sorted runs to scratch: the rows of one block, sorted by order key.

    STEM.records   payload of record 0 | payload of record 1 | ...
    STEM.index     keys, offsets and planned bytes (see sorted_run_index.py)

Records are sorted by split, within a split by order key. A payload is a framed record
or, in the exchange by reference, a reference to the row that becomes one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.ranges import SortedRunRef
from recordmill.transforms.arrow import I64, array_parts, offsets_of
from recordmill.transforms.exchange.block import Block, sort_order
from recordmill.transforms.exchange.sorted_run_index import pack_index
from recordmill.transforms.storage.atomic_files import temp_path, write_atomic
from recordmill.transforms.storage.direct_io import SCRATCH_SPEED, BlockWriter
from recordmill.transforms.tfrecord import crc32c

_WINDOW_BYTES = 4 << 20  # payloads that are sorted and written at once


def write_sorted_run(
    stem: Path,
    block: Block,
    num_splits: int,
) -> SortedRunRef:
    """Sorts a block by (split, order key) and writes it as a run.

    Args:
      stem: path without ending; both files appear whole or not at all.
      block: the rows.
      num_splits: number of splits of the job.
    """
    payloads, keys, splits, planned_bytes = (
        block.payloads,
        block.keys,
        block.splits,
        block.planned_bytes,
    )
    counts = np.bincount(splits, minlength=num_splits)
    order = sort_order(keys, splits, num_splits)
    offsets, _ = array_parts(payloads)
    lengths = np.diff(offsets)
    if order is not None:
        keys, planned_bytes, lengths = keys[order], planned_bytes[order], lengths[order]
    starts = offsets_of(lengths)
    index, index_crc = pack_index(keys, starts, planned_bytes, counts.tolist())
    path = stem.with_name(f"{stem.name}.records")
    payload_crc = _write_payload(path, _sorted_payloads(payloads, order, starts))
    write_atomic(stem.with_name(f"{stem.name}.index"), index)
    return SortedRunRef(
        stem=stem.name,
        counts=tuple(counts.tolist()),
        payload_bytes=int(starts[-1]),
        index_crc32c=index_crc,
        payload_crc32c=payload_crc,
    )


def _sorted_payloads(
    payloads: pa.BinaryArray, order: npt.NDArray[np.intp] | None, starts: I64
) -> Iterator[memoryview]:
    """Yields the payloads' bytes in the run's order, in windows to save memory."""
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


def _write_payload(path: Path, windows: Iterable[memoryview]) -> int:
    """Writes a run's payload like `write_atomic`, in the way that is faster here.

    Returns:
      The payload's CRC-32C.
    """
    temporary = temp_path(path)
    num_bytes = crc = 0
    seconds = 0.0
    try:
        with BlockWriter(temporary, direct=SCRATCH_SPEED.direct) as file:
            for body in windows:
                crc = crc32c(body, crc)
                num_bytes += len(body)
                start = time.perf_counter()
                file.write(body)
                seconds += time.perf_counter() - start
            file.finish(durable=False)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    SCRATCH_SPEED.note(num_bytes, seconds, direct=file.direct)
    return crc
