"""A person's function for tests that gives back other rows than it got."""

# Drops, multiplies and refuses rows, by the position of a row's own text or file.
UNEVEN = """
import numpy as np
import pyarrow as pa
import zlib

def uneven(batch):
    name = "filename" if "filename" in batch.schema.names else "t"
    texts = [value.encode() if isinstance(value, str) else value
             for value in batch[name].to_pylist()]
    kinds = [zlib.crc32(b"a" + text) % 5 for text in texts]
    if 4 in kinds:
        raise ValueError("a row of kind 4")
    rows = np.repeat(np.arange(len(kinds)), kinds)
    return batch.take(pa.array(rows)), rows
"""
