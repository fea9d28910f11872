"""One encoder alone, on the batches of an Arrow file.

    python tests/bench/encoder.py recordmill|tfx BATCHES.arrow [--repeat 5]

recordmill is run by its own python, tfx (TFX' C++ encoder) by the environment of
requirements-tfx.lock. Prints the seconds of each repetition as JSON; the first one, which
warms up, is not counted, nor is making the lists that TFX' encoder wants.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from columns import COLUMN_KINDS

Batches = list[pa.RecordBatch]
Encode = Callable[[pa.RecordBatch], object]


def for_recordmill(batches: Batches) -> tuple[Batches, Encode]:
    """Returns the batches, and recordmill's encoder of the 40 columns."""
    from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
    from recordmill.transforms.encode.examples import encode

    kinds = {"decimal": Kind.FLOAT, "text": Kind.BYTES}
    features = [
        FeatureSpec(name, kinds.get(kind.partition(":")[0], Kind.INT64))
        for name, kind in COLUMN_KINDS.items()
    ]
    schema = Schema(tuple(features))
    return batches, lambda batch: encode(batch, schema)


def for_tfx(batches: Batches) -> tuple[Batches, Encode]:
    """Returns the batches as lists, and TFX' encoder."""
    from peer_tfx import as_lists
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    return list(map(as_lists, batches)), RecordBatchToExamplesEncoder().encode


ENCODERS = {"recordmill": for_recordmill, "tfx": for_tfx}


def main(argv: list[str]) -> None:
    """Encodes all batches several times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder", choices=ENCODERS)
    parser.add_argument("batches", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args(argv)
    with pa.memory_map(str(arguments.batches)) as file:
        reader = pa.ipc.open_file(file)
        read = [reader.get_batch(n) for n in range(reader.num_record_batches)]
        batches, encode = ENCODERS[arguments.encoder](read)
        seconds = []
        for _ in range(arguments.repeat + 1):
            started = time.perf_counter()
            for batch in batches:
                encode(batch)
            seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds[1:]}))


if __name__ == "__main__":
    main(sys.argv[1:])
