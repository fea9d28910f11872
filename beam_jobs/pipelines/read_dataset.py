"""ReadDataset: a PTransform that reads a dataset into any pipeline.

    with beam.Pipeline() as pipeline:
        pipeline | ReadDataset("out/words", "train", as_="dict") | beam.Map(print)

Every record's checksums, and the number of records, size and checksum of every shard,
are verified against the manifest; the first damage ends the pipeline. See
docs/pipelines.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PBegin, PCollection

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, schema_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.proto.example_pb2 import Example, SequenceExample
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.dataset.read_shards import ShardToRead, shards_to_read
from recordmill.transforms.rows.dicts import to_dicts
from recordmill.transforms.storage import Store, open_store

As = Literal["bytes", "example", "dict", "batch"]

_ELEMENTS: dict[As, type] = {
    "bytes": bytes,
    "example": object,
    "dict": dict[str, Any],
    "batch": pa.RecordBatch,
}
_MESSAGES: dict[Payload, type[Example | SequenceExample]] = {
    "example": Example,
    "sequence_example": SequenceExample,
}


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """One shard of a dataset, and what its records hold."""

    shard: ShardToRead
    schema: Schema
    payload: Payload


class ReadDataset(beam.PTransform[PBegin, PCollection[Any]]):
    """Reads the records of a finished dataset, in no order.

    Elements are, by `as_`:

    - "bytes": the records as they lie in the shards.
    - "example": tf.train.Example messages (recordmill.schemas.proto.example_pb2), or
      SequenceExample, as the dataset's payload says.
    - "dict": {feature: value}; values with a shape are NumPy arrays, a missing one is
      None (see recordmill.transforms.rows.dicts).
    - "batch": pyarrow.RecordBatch of some thousand records, a column for each feature.

    The shards are read side by side, each as a stream: a worker holds a window of some
    8 MB of records, or one record that is larger.
    """

    def __init__(
        self,
        dataset: str | PathLike[str],
        split: str | Sequence[str] | None = None,
        *,
        as_: As = "bytes",
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        """Touches no storage: the manifest is read when the pipeline runs.

        Args:
          dataset: its folder or manifest, a path or a URL.
          split: name of a split, or several; by default all.
          as_: what each element is.
          storage: non-secret options of the dataset's storage.

        Raises:
          UsageError: an argument that cannot be.
        """
        super().__init__()
        if as_ not in _ELEMENTS:
            raise UsageError(
                f"ReadDataset: as_ is bytes, example, dict or batch, got {as_!r}"
            )
        folder = fspath(dataset).removesuffix(f"/{MANIFEST_NAME}")
        if folder == MANIFEST_NAME:
            folder = "."
        self._store = open_store(folder, StorageOptions.of(storage or {}))
        self._splits = (split,) if isinstance(split, str) else split
        self._as: As = as_

    def expand(self, begin: PBegin) -> PCollection[Any]:
        return (
            begin
            | "Begin" >> beam.Create([None], reshuffle=False)
            | "Shards" >> beam.FlatMap(_parts, self._store, self._splits, self._as)
            | "Spread" >> beam.Reshuffle()
            | "Read"
            >> beam.FlatMap(read_part, self._as).with_output_types(_ELEMENTS[self._as])
        )


def _parts(
    _: None, store: Store, splits: Sequence[str] | None, as_: As
) -> Iterator[DatasetPart]:
    manifest = read_manifest(store)
    if as_ == "example" and manifest.payload not in _MESSAGES:
        raise UsageError(
            f"{store.uri}: its records are {manifest.payload}, no examples: read them as "
            "bytes, dict or batch"
        )
    schema = schema_of(manifest)
    for shard in shards_to_read(store, manifest, splits):
        yield DatasetPart(shard, schema, manifest.payload)


def read_part(part: DatasetPart, as_: As) -> Iterator[Any]:
    """The elements of one shard, one after the other."""
    if as_ == "bytes":
        yield from map(bytes, part.shard.records())
    elif as_ == "example":
        parse = _MESSAGES[part.payload].FromString
        for record in part.shard.records():
            yield parse(bytes(record))
    else:
        for batch in part.shard.batches(part.schema, part.payload):
            if as_ == "batch":
                yield batch
            else:
                yield from to_dicts(batch, part.schema)
