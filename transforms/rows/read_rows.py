"""Reads a dataset in plain Python: batches for NumPy, rows for any loop.

    for row in read_rows("out/iris", "train"):
        print(row["species"], row["petal_length_cm"])

It imports neither Beam nor TensorFlow. Every checksum is verified on the way.

    feature's shape                   value
    []                                bool, int, float, str or bytes
    [3], [null], [28, 28, 1]          NumPy array of the dtype and shape; of text and
                                      bytes nested lists
    several unknown dimensions        nested lists
    image                             the bytes of its file
    missing                           None
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Integral
from os import PathLike, fspath
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.dataset.reader import ShardToRead, shards_to_read
from recordmill.transforms.storage import open_store

_Shape = tuple[int | None, ...]


def to_dicts(batch: pa.RecordBatch, schema: Schema) -> Iterator[dict[str, Any]]:
    """Yields a dict for each row of columns that were decoded; others are left out."""
    columns = {
        feature.name: column_values(batch[feature.name], feature)
        for feature in schema.features
        if feature.name in batch.schema.names
    }
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def require_whole(**numbers: Any) -> None:
    """Refuses a number that is not 0, 1, 2..."""
    for name, number in numbers.items():
        if not isinstance(number, Integral) or number < 0:
            raise UsageError(f"{name}={number!r}: expected a whole number, 0 or more")


def require_share(name: str, number: int, of: str, total: int) -> None:
    """Refuses the number of a reader, worker or process that there is not."""
    require_whole(**{name: number, of: total})
    if not 0 <= number < total:
        raise UsageError(
            f"{name}={number} of {of}={total}: expected a {name} from 0 to {of} - 1"
        )


def column_values(array: pa.Array, feature: FeatureSpec) -> list[Any]:
    """Returns the value of each row, as the table at the top says."""
    if feature.sequence:
        steps = column_values(array.values, replace(feature, sequence=False))
        return [span and steps[span] for span in _spans(array)]
    shape, whole = feature.shape, feature.content is Content.ARRAY
    plain = feature.content is Content.IMAGE or not (shape or whole)
    if plain or (shape.count(None) > 1 and not whole):
        return list(array.to_pylist())
    if whole:
        dtype = np.dtype(feature.dtype).newbyteorder("<")
        return [
            None
            if cell is None
            else _shaped(np.frombuffer(cell, dtype).astype(feature.dtype), shape)
            for cell in array.to_pylist()
        ]
    if feature.dtype in ("string", "bytes"):
        return [
            None if cell is None else _shaped(np.array(cell, object), shape).tolist()
            for cell in array.to_pylist()
        ]
    values = array.values.to_numpy(zero_copy_only=False)
    return [
        # A copy: a view would keep the whole batch in memory as long as the row.
        span and _shaped(values[span].astype(feature.dtype), shape)
        for span in _spans(array)
    ]


def _spans(array: pa.ListArray) -> list[slice | None]:
    """Returns where the values of each row are; None where they are missing."""
    bounds = pairwise(array.offsets.to_pylist())
    valid = array.is_valid().to_pylist()
    return [
        slice(*b) if there else None for b, there in zip(bounds, valid, strict=True)
    ]


def _shaped(values: np.ndarray[Any, Any], shape: _Shape) -> np.ndarray[Any, Any]:
    """Returns values in a shape; a side that cannot be computed is 0."""
    known = math.prod(size for size in shape if size is not None)
    open_side = len(values) // known if known else 0
    return values.reshape([open_side if size is None else size for size in shape])


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
    for shard in _shards(dataset, split, reader_index, num_readers, storage):
        yield from shard.batches()


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
    for shard in _shards(dataset, split, reader_index, num_readers, storage):
        for batch in shard.batches():
            yield from to_dicts(batch, shard.schema)


def _shards(
    dataset: str | PathLike[str],
    split: str | Sequence[str] | None,
    reader_index: int,
    num_readers: int,
    storage: Mapping[str, Any] | None,
) -> list[ShardToRead]:
    """Returns the shards of one reader."""
    require_share("reader_index", reader_index, "num_readers", num_readers)
    store = open_store(fspath(dataset), StorageOptions.of(storage or {}))
    shards = shards_to_read(store, read_manifest(store), split)
    return shards[reader_index::num_readers]
