"""Reads a dataset in plain Python: batches for NumPy, rows for any loop.

    for row in read_rows("out/iris", "train"):
        print(row["species"], row["petal_length_cm"])

It imports neither Beam nor TensorFlow. Every checksum is verified on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.manifest import schema_of
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.dataset.reader import shards_to_read
from recordmill.transforms.rows.dicts import to_dicts
from recordmill.transforms.storage import open_store


def read_batches(
    dataset: str | PathLike[str],
    split: str | Sequence[str] | None = None,
    *,
    reader_index: int = 0,
    num_readers: int = 1,
    storage: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields Arrow batches of some thousand rows, a column for each feature.

    Of several readers, such as the workers of a data loader, each takes every
    num_readers-th shard. At most 8 MB of records, or one larger record, are in memory.

    Args:
      dataset: its folder, a path or a URL.
      split: name of a split, or several; by default all.
      reader_index: which reader this is, from 0.
      num_readers: how many readers share the shards.
      storage: non-secret options of the dataset's storage.

    Raises:
      UsageError: there is no such split or reader.
      OutputError: there is no finished dataset, or its files are not those of its
        manifest.
      CorruptRecordError: a damaged record.
    """
    for _, batch in _read(dataset, split, reader_index, num_readers, storage):
        yield batch


def read_rows(
    dataset: str | PathLike[str],
    split: str | Sequence[str] | None = None,
    *,
    reader_index: int = 0,
    num_readers: int = 1,
    storage: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields each row as {feature: value}.

    Values are numbers, text and bytes; with a shape, NumPy arrays; None where a value
    is missing. Arguments and errors are those of read_batches.
    """
    for schema, batch in _read(dataset, split, reader_index, num_readers, storage):
        yield from to_dicts(batch, schema)


def _read(
    dataset: str | PathLike[str],
    split: str | Sequence[str] | None,
    reader_index: int,
    num_readers: int,
    storage: Mapping[str, Any] | None,
) -> Iterator[tuple[Schema, pa.RecordBatch]]:
    """Yields the batches of one reader, each with the schema of the dataset."""
    if not 0 <= reader_index < num_readers:
        raise UsageError(
            f"reader_index={reader_index} of num_readers={num_readers}: expected an "
            "index from 0 to num_readers - 1"
        )
    store = open_store(fspath(dataset), StorageOptions.of(storage or {}))
    manifest = read_manifest(store)
    schema = schema_of(manifest)
    splits = (split,) if isinstance(split, str) else split
    for shard in shards_to_read(store, manifest, splits)[reader_index::num_readers]:
        for batch in shard.batches(schema, manifest.payload):
            yield schema, batch
