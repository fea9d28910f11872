"""Peer: Beam's own WriteToTFRecord on the embedded runner, four files.

    python tests/bench/peer_beam.py csv|cifar INPUT OUTPUT

The same examples as peer_loop.py, made in a Map.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from columns import COLUMN_KINDS
from peer_loop import cifar_example, csv_example


def csv_row(line: str) -> dict[str, str]:
    """Parse one line; a field with a newline would need another reader."""
    return dict(zip(COLUMN_KINDS, next(csv.reader([line])), strict=True))


def cifar_records(path: str) -> Iterator[bytes]:
    """Yield the 3,073-byte records of one file."""
    with Path(path).open("rb") as file:
        while record := file.read(3073):
            yield record


def csv_examples(pipeline: beam.Pipeline, source: Path) -> beam.PCollection:
    """Read one CSV file into serialized examples."""
    return (
        pipeline
        | "ReadLines" >> beam.io.ReadFromText(str(source), skip_header_lines=1)
        | "ParseLine" >> beam.Map(csv_row)
        | "MakeExample" >> beam.Map(csv_example)
    )


def cifar_examples(pipeline: beam.Pipeline, source: Path) -> beam.PCollection:
    """Read a folder of CIFAR-10 files into serialized examples."""
    files = sorted(str(path) for path in source.glob("data_batch_*.bin"))
    return (
        pipeline
        | "ListFiles" >> beam.Create(files)
        | "ReadRecords" >> beam.FlatMap(cifar_records)
        | "MakeExample" >> beam.Map(cifar_example)
    )


def main(kind: str, source: str, output: str) -> None:
    """Convert one input into OUTPUT/rows-0000K-of-00004.tfrecord."""
    Path(output).mkdir(parents=True)
    options = PipelineOptions(
        ["--runner=FnApiRunner", "--direct_running_mode=in_memory"]
    )
    read = {"csv": csv_examples, "cifar": cifar_examples}[kind]
    with beam.Pipeline(options=options) as pipeline:
        _ = read(pipeline, Path(source)) | beam.io.WriteToTFRecord(
            f"{output}/rows", file_name_suffix=".tfrecord", num_shards=4
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
