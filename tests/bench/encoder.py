"""Measure the encoder alone: Arrow batches in memory to serialized examples.

    python tests/bench/encoder.py [--rows N] [--repeat 5] [--tfx-peers PYTHON]

Two tables: the 40 columns of the CSV input, and list columns. Run by recordmill's
own python. With --tfx-peers, TFX' C++ encoder gets the same batches in its own
environment (requirements-tfx.lock). Exit status as run.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from columns import COLUMN_KINDS
from inputs import SEED, csv_cells, text_pool

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms.encode.examples import encode

HERE = Path(__file__).resolve().parent
BATCH_ROWS = 11_000  # of the 40 columns about what a CSV range is read by
TFX_GOAL = 6.0  # times TFX' seconds
LISTS_GOAL = 0.5  # GB/s of examples

ARROW_TYPES = {
    "int": pa.int64(),
    "decimal": pa.float32(),
    "text": pa.binary(),
    "bool": pa.bool_(),
}
KINDS = {"int": Kind.INT64, "decimal": Kind.FLOAT, "text": Kind.BYTES}


def scalar_table(num_rows: int) -> tuple[list[pa.RecordBatch], Schema]:
    """Make the CSV input's 40 columns with their types, and their schema."""
    pools = {
        kind: text_pool(int(kind.removeprefix("text:")), index)
        for index, kind in enumerate(COLUMN_KINDS.values())
        if kind.startswith("text")
    }

    def make_batch(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
        columns = {}
        for name, kind in COLUMN_KINDS.items():
            arrow_type = ARROW_TYPES[kind.partition(":")[0]]
            columns[name] = csv_cells(rng, kind, rows, pools).cast(arrow_type)
        return pa.RecordBatch.from_pydict(columns)

    return in_batches(make_batch, num_rows), scalar_schema()


def list_table(num_rows: int) -> tuple[list[pa.RecordBatch], Schema]:
    """Make list columns as detection and text data sets have them, and their schema.

    About 1 kB a row: an embedding of 128 floats; 0 to 16 boxes of four floats with
    their labels; 0 to 128 token ids below 30,000; 0 to 16 words of 3 to 12 letters.
    """
    words = text_pool(20_000, 99)

    def make_batch(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
        boxes = rng.integers(0, 17, rows)
        tokens = rng.integers(0, 129, rows)
        tags = rng.integers(0, 17, rows)
        drawn = pa.array(rng.integers(0, len(words), int(tags.sum())))
        floats = rng.random(rows * 128, np.float32)
        corners = rng.random(int(boxes.sum()) * 4, np.float32)
        return pa.RecordBatch.from_pydict(
            {
                "embedding": in_lists(floats, np.full(rows, 128)),
                "boxes": in_lists(corners, boxes * 4),
                "labels": in_lists(rng.integers(0, 91, int(boxes.sum())), boxes),
                "tokens": in_lists(rng.integers(0, 30_000, int(tokens.sum())), tokens),
                "words": in_lists(words.take(drawn), tags),
            }
        )

    features = (
        FeatureSpec("embedding", Kind.FLOAT, shape=(128,)),
        FeatureSpec("boxes", Kind.FLOAT, shape=(None, 4)),
        FeatureSpec("labels", Kind.INT64, shape=(None,)),
        FeatureSpec("tokens", Kind.INT64, shape=(None,)),
        FeatureSpec("words", Kind.BYTES, dtype="string", shape=(None,)),
    )
    return in_batches(make_batch, num_rows), Schema(features)


def in_lists(values: np.ndarray | pa.Array, lengths: np.ndarray) -> pa.ListArray:
    """Cut values into lists of these lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def in_batches(
    make_batch: Callable[[np.random.Generator, int], pa.RecordBatch], num_rows: int
) -> list[pa.RecordBatch]:
    """Make batches of so many rows in all, the same for the same seed and size."""
    return [
        make_batch(
            np.random.default_rng((SEED, 5, start)), min(BATCH_ROWS, num_rows - start)
        )
        for start in range(0, num_rows, BATCH_ROWS)
    ]


def scalar_schema() -> Schema:
    """Give the schema of the 40 columns."""
    features = [
        FeatureSpec(name, KINDS.get(kind.partition(":")[0], Kind.INT64))
        for name, kind in COLUMN_KINDS.items()
    ]
    return Schema(tuple(features))


def measure_file(path: Path, repeat: int) -> list[float]:
    """Encode the batches of a file of the 40 columns; the seconds of each time."""
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        batches = [reader.get_batch(n) for n in range(reader.num_record_batches)]
        return times(batches, scalar_schema(), repeat)[0]


def measure(
    batches: list[pa.RecordBatch], schema: Schema, repeat: int
) -> tuple[float, int]:
    """Encode all batches several times; the median seconds and the examples' bytes."""
    seconds, num_bytes = times(batches, schema, repeat)
    return statistics.median(seconds), num_bytes


def times(
    batches: list[pa.RecordBatch], schema: Schema, repeat: int
) -> tuple[list[float], int]:
    """Encode all batches several times; the seconds and the examples' bytes."""
    seconds = []
    for _ in range(repeat + 1):
        started = time.perf_counter()
        num_bytes = 0
        for batch in batches:
            examples = encode(batch, schema)
            num_bytes += len(examples.buffers()[2])
        seconds.append(time.perf_counter() - started)
    return seconds[1:], num_bytes  # the first one warms up


def measure_tfx(python: Path, batches: list[pa.RecordBatch], repeat: int) -> float:
    """Give the same batches to TFX' encoder in its environment; median seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batches.arrow"
        with pa.ipc.new_file(path, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        command = [python, HERE / "peer_tfx_encoder.py", path, "--repeat", str(repeat)]
        quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        done = subprocess.run(
            list(map(str, command)),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=quiet,
        )
    answer = json.loads(done.stdout.splitlines()[-1])
    num_rows = sum(batch.num_rows for batch in batches)
    if answer["examples"] != num_rows:
        raise RuntimeError(f"TFX: {answer['examples']} examples of {num_rows} rows")
    return statistics.median(answer["seconds"])


def main(argv: list[str]) -> int:
    """Measure and print; 1: the peer failed, 3: a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=110_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tfx-peers", type=Path, help="python with tfx_bsl")
    parser.add_argument(
        "--batches", type=Path, help="of inputs.py: print seconds as JSON"
    )
    arguments = parser.parse_args(argv)
    if arguments.batches:
        print(
            json.dumps({"seconds": measure_file(arguments.batches, arguments.repeat)})
        )
        return 0
    met = True
    for name, table in (("40 columns", scalar_table), ("lists", list_table)):
        batches, schema = table(arguments.rows)
        seconds, num_bytes = measure(batches, schema, arguments.repeat)
        line = (
            f"{name}: {seconds:.3f} s, {arguments.rows / seconds:,.0f} rows/s, "
            f"{num_bytes / seconds / 1e9:.2f} GB/s of examples"
        )
        if table is list_table:
            reached = num_bytes / seconds / 1e9 >= LISTS_GOAL
            line += f" (goal >= {LISTS_GOAL}: {'met' if reached else 'NOT MET'})"
            met = met and reached
        elif arguments.tfx_peers:
            try:
                peer = measure_tfx(arguments.tfx_peers, batches, arguments.repeat)
            except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
                print(f"tfx: {error}", file=sys.stderr)
                return 1
            reached = peer / seconds >= TFX_GOAL
            line += (
                f"; tfx {peer:.3f} s, {peer / seconds:.2f}x "
                f"(goal >= {TFX_GOAL:g}x: {'met' if reached else 'NOT MET'})"
            )
            met = met and reached
        print(line)
    return 0 if met else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
