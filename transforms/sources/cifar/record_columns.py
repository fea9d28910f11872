"""Lays out CIFAR records as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.transforms import native
from recordmill.transforms.arrow import U8, binary_array
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.reused_buffers import empty_bytes
from recordmill.transforms.sources.cifar.layout import (
    CHANNELS,
    IMAGE_BYTES,
    PIXELS,
    SIDE,
    Layout,
)
from recordmill.transforms.tfrecord import FRAME_BYTES


def record_batch(records: U8, layout: Layout) -> pa.RecordBatch:
    """Returns the columns of records, their pixels interleaved as rows x columns x RGB.

    The first bytes of a CIFAR-10 record, label r0 r1 ... g0 g1 ... b0 b1 ..., become
    label and image r0 g0 b0 r1 g1 b1 ...
    """
    num_rows, num_labels = len(records), len(layout.labels)
    image = empty_bytes(num_rows * IMAGE_BYTES).reshape(num_rows, PIXELS, CHANNELS)
    native.loops.interleave(np.ascontiguousarray(records), num_labels, num_rows, image)
    offsets = np.arange(num_rows + 1, dtype=np.int64) * IMAGE_BYTES
    columns = {"image": binary_array(offsets, image.reshape(-1))}
    for index, label in enumerate(layout.labels):
        columns[label] = pa.array(records[:, index].astype(np.int64))
    sizes = {"height": SIDE, "width": SIDE, "depth": CHANNELS}
    for name, value in sizes.items():
        columns[name] = pa.array(np.full(num_rows, value, np.int64))
    return pa.RecordBatch.from_pydict(columns)


def framed_bytes(layout: Layout, schema: Schema) -> int:
    """Returns the size of every record: all labels take one byte, being below 128."""
    row = np.zeros((1, layout.record_bytes), np.uint8)
    return len(encode(record_batch(row, layout), schema)[0].as_py()) + FRAME_BYTES
