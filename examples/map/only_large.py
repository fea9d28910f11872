"""Leaves out images that are smaller than 128 x 128 pixels.

recordmill convert images tests/samples/images out/large --map examples/map/only_large.py:only_large
"""

import pyarrow as pa
import pyarrow.compute as pc


def only_large(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    smaller_side = pc.min_element_wise(batch["height"], batch["width"])
    rows = pc.indices_nonzero(pc.greater_equal(smaller_side, 128))
    return batch.take(rows), rows
