"""Peer of encoder.py: TFX' C++ encoder alone, on the batches of an Arrow file.

    python tests/bench/peer_tfx_encoder.py BATCHES.arrow [--repeat 5]

Run by the environment of requirements-tfx.lock. Prints the seconds of each repetition
as JSON; making the lists that the encoder wants is not counted.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from peer_tfx import as_lists
from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder


def main(argv: list[str]) -> int:
    """Encode all batches several times, the first time not counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("batches", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args(argv)
    with pa.memory_map(str(arguments.batches)) as file:
        reader = pa.ipc.open_file(file)
        batches = [
            as_lists(reader.get_batch(index))
            for index in range(reader.num_record_batches)
        ]
        encoder = RecordBatchToExamplesEncoder()
        seconds = []
        num_examples = 0
        for _ in range(arguments.repeat + 1):
            started = time.perf_counter()
            num_examples = 0
            for batch in batches:
                num_examples += len(encoder.encode(batch))
            seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds[1:], "examples": num_examples}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
