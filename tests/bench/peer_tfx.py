"""Peer without a goal: TFX' C++ encoder between Arrow's CSV reader and a writer.

    python tests/bench/peer_tfx.py csv INPUT OUTPUT

Run by the environment of requirements-tfx.lock. What a TFX user could build by
hand: pyarrow.csv, RecordBatchToExamplesEncoder, tf.io.TFRecordWriter; one file,
types known, nothing shuffled.
"""

import argparse
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import tensorflow as tf
from columns import COLUMN_KINDS
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

ARROW_TYPES = {
    "int": pa.int64(),
    "decimal": pa.float32(),
    "text": pa.binary(),
    "bool": pa.bool_(),
}
BLOCK_BYTES = 8 << 20


def as_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give each cell as a list of one value: the encoder takes list columns only."""
    offsets = pa.array(range(batch.num_rows + 1), pa.int32())
    columns = []
    for column in batch.columns:
        values = column.cast(pa.int64()) if column.type == pa.bool_() else column
        columns.append(pa.ListArray.from_arrays(offsets, values))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def main(argv: list[str]) -> int:
    """Convert one CSV file into OUTPUT/rows.tfrecord."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("csv",))
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True)
    types = {n: ARROW_TYPES[k.partition(":")[0]] for n, k in COLUMN_KINDS.items()}
    reader = pa_csv.open_csv(
        arguments.input,
        read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
        convert_options=pa_csv.ConvertOptions(column_types=types),
    )
    encoder = RecordBatchToExamplesEncoder()
    with tf.io.TFRecordWriter(str(arguments.output / "rows.tfrecord")) as writer:
        for batch in reader:
            for example in encoder.encode(as_lists(batch)):
                writer.write(example)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
