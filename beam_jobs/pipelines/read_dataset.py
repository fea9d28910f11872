"""Reads a dataset into any pipeline: the PTransform ReadDataset.

    with beam.Pipeline() as pipeline:
        pipeline | ReadDataset("out/words", "train", as_="dict") | beam.Map(print)

ReadDataset verifies the checksums of every record. It compares the record count, size and
checksum of every shard with the manifest. The first damaged record fails the pipeline.
See docs/pipelines.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PBegin, PCollection

from recordmill.beam_jobs.pipelines.lineage import report_lineage
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import Example, SequenceExample
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.dataset.reader import ReadableShard, shards_to_read
from recordmill.transforms.rows.read_rows import to_dicts
from recordmill.transforms.storage import Store, open_store

ElementType = Literal["bytes", "example", "dict", "batch"]

_ELEMENTS: dict[ElementType, type] = {
    "bytes": bytes,
    "example": object,
    "dict": dict[str, Any],
    "batch": pa.RecordBatch,
}
_MESSAGES: dict[Payload, type[Example | SequenceExample]] = {
    "example": Example,
    "sequence_example": SequenceExample,
}


class ReadDataset(beam.PTransform[PBegin, PCollection[Any]]):
    """Reads the records of a dataset, in any order.

    Elements are, by `as_`:

    - "bytes": the records as stored in the shards.
    - "example": tf.train.Example messages (recordmill.schemas.proto.example_pb2), or
      SequenceExample messages if that is the dataset's payload.
    - "dict": {feature: value}; values with a shape are NumPy arrays, a missing value is
      None (see recordmill.transforms.rows.read_rows).
    - "batch": pyarrow.RecordBatch of several thousand records, a column for each feature.

    Shards are read in parallel, each as a stream: a worker keeps about 8 MB of records
    in memory, or one larger record.
    """

    def __init__(
        self,
        dataset: str | PathLike[str],
        split: str | Sequence[str] | None = None,
        *,
        as_: ElementType = "bytes",
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        """Stores the arguments; the manifest is read when the pipeline runs.

        Args:
          dataset: path or URL of the dataset's folder or manifest.
          split: name of a split, or several names; by default all splits.
          as_: type of the elements.
          storage: options of the file system that holds `dataset`, without secrets.

        Raises:
          UsageError: an argument is not valid.
        """
        super().__init__()
        if as_ not in _ELEMENTS:
            raise UsageError(
                f"ReadDataset: as_={as_!r}: expected 'bytes', 'example', 'dict' or 'batch'"
            )
        folder = fspath(dataset).removesuffix(f"/{MANIFEST_NAME}")
        if folder == MANIFEST_NAME:
            folder = "."
        self._store = open_store(folder, StorageOptions.from_values(storage or {}))
        self._split = split
        self._element_type: ElementType = as_

    def expand(self, begin: PBegin) -> PCollection[Any]:
        return (
            begin
            | "Begin" >> beam.Create([None], reshuffle=False)
            | "ListShards"
            >> beam.FlatMap(_list_shards, self._store, self._split, self._element_type)
            | "SpreadShards" >> beam.Reshuffle()  # ReadableShard
            | "ReadShards"
            >> beam.FlatMap(read_shard, self._element_type).with_output_types(
                _ELEMENTS[self._element_type]
            )
        )


def _list_shards(
    _: None, store: Store, split: str | Sequence[str] | None, as_: ElementType
) -> list[ReadableShard]:
    manifest = read_manifest(store)
    report_lineage(sources=[store.uri])
    if as_ == "example" and manifest.payload not in _MESSAGES:
        raise UsageError(
            f"ReadDataset({store.uri!r}): its records have payload "
            f"{manifest.payload!r}, which does not contain examples. Use as_='bytes', "
            "'dict' or 'batch'"
        )
    return shards_to_read(store, manifest, split)


def read_shard(shard: ReadableShard, as_: ElementType) -> Iterator[Any]:
    """Yields the elements of one shard."""
    if as_ == "bytes":
        yield from shard.records()
    elif as_ == "example":
        parse = _MESSAGES[shard.payload].FromString
        yield from map(parse, shard.records())
    else:
        for batch in shard.batches():
            if as_ == "batch":
                yield batch
            else:
                yield from to_dicts(batch, shard.schema)
