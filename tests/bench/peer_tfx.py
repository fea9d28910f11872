"""Peer: TFX' C++ encoder between Arrow's reader of CSV or Parquet and a writer.

    python tests/bench/peer_tfx.py csv|wide INPUT OUTPUT

Run by the environment of requirements-tfx.lock. What a TFX user could build by
hand: pyarrow, RecordBatchToExamplesEncoder, tf.io.TFRecordWriter; one file,
types known, nothing shuffled.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import tensorflow as tf
from columns import COLUMN_KINDS
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

ARROW_TYPES = {
    "int": pa.int64(),
    "decimal": pa.float32(),
    "text": pa.binary(),
    "bool": pa.bool_(),
}
# What the encoder takes in place of what it refuses.
TAKEN = {pa.bool_(): pa.int64(), pa.string(): pa.binary()}
BLOCK_BYTES = 8 << 20
BATCH_ROWS = 10_000


def as_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give each cell as a list of one value: the encoder takes list columns only."""
    offsets = pa.array(range(batch.num_rows + 1), pa.int32())
    columns = []
    for column in batch.columns:
        if pa.types.is_list(column.type):
            columns.append(column)
            continue
        cast = TAKEN.get(column.type)
        values = column.cast(cast) if cast else column
        columns.append(pa.ListArray.from_arrays(offsets, values))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def csv_batches(source: Path) -> Iterator[pa.RecordBatch]:
    """Read the CSV input with its types."""
    types = {n: ARROW_TYPES[k.partition(":")[0]] for n, k in COLUMN_KINDS.items()}
    return pa_csv.open_csv(
        source,
        read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
        convert_options=pa_csv.ConvertOptions(column_types=types),
    )


def wide_batches(source: Path) -> Iterator[pa.RecordBatch]:
    """Read the Parquet input."""
    return pq.ParquetFile(source).iter_batches(BATCH_ROWS)


def main(kind: str, source: str, output: str) -> None:
    """Convert one table into OUTPUT/rows.tfrecord."""
    Path(output).mkdir(parents=True)
    read = {"csv": csv_batches, "wide": wide_batches}[kind]
    encoder = RecordBatchToExamplesEncoder()
    with tf.io.TFRecordWriter(f"{output}/rows.tfrecord") as writer:
        for batch in read(Path(source)):
            for example in encoder.encode(as_lists(batch)):
                writer.write(example)


if __name__ == "__main__":
    main(*sys.argv[1:])
