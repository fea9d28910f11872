"""Writes a dataset from a Beam pipeline and reads it back in another one.

python examples/pipeline.py out/words
"""

import sys

import apache_beam as beam

from recordmill import ReadDataset, WriteDataset

SCHEMA = {"text": "string", "length": "int64"}
WORDS = ["apple", "pear", "plum", "cherry", "quince"] * 20


def main():
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = (
            pipeline
            | beam.Create(WORDS)
            | beam.Map(lambda word: {"text": word, "length": len(word)})
        )
        rows | WriteDataset(sys.argv[1], SCHEMA, shards=2)
    with beam.Pipeline("FnApiRunner") as pipeline:
        (
            pipeline
            | ReadDataset(sys.argv[1], as_="dict")
            | beam.Map(lambda row: row["length"])
            | beam.CombineGlobally(sum)
            | beam.Map(lambda total: print(f"{total} letters"))
        )


if __name__ == "__main__":
    main()
