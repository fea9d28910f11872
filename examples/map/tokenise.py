"""Gives each review the numbers of its words, by a list of the words that are known.

recordmill convert csv examples/map/reviews.csv out/reviews --map examples/map/tokenise.py:tokenise
"""

import pyarrow as pa
import pyarrow.compute as pc

VOCABULARY = pa.array(["the", "was", "and", "good", "cold", "slow", "soup", "service"])
UNKNOWN = len(VOCABULARY)


def tokenise(batch: pa.RecordBatch) -> pa.RecordBatch:
    text = pc.fill_null(batch["text"], "")
    words = pc.split_pattern_regex(pc.ascii_lower(text), "[^a-zA-Z]+")
    numbers = pc.fill_null(pc.index_in(words.flatten(), VOCABULARY), UNKNOWN)
    ids = pa.ListArray.from_arrays(words.offsets, numbers)
    return batch.append_column("ids", ids)
