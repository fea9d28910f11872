"""Reads a dataset in plain Python: batches for NumPy, rows for any loop.

    for row in read_rows("out/iris", "train"):
        print(row["species"], row["petal_length_cm"])

This module imports neither Beam nor TensorFlow. Every checksum is verified during
reading.

    feature's shape                   value
    []                                bool, int, float, str or bytes
    [3], [null], [28, 28, 1]          NumPy array of the dtype and shape; nested lists
                                      for text and bytes
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
from recordmill.transforms.dataset.reader import ReadableShard, shards_to_read
from recordmill.transforms.storage import open_store

_Shape = tuple[int | None, ...]


def to_dicts(batch: pa.RecordBatch, schema: Schema) -> Iterator[dict[str, Any]]:
    """Yields a dict for each row of a decoded batch; missing columns are omitted."""
    columns = {
        feature.name: column_values(batch[feature.name], feature)
        for feature in schema.features
        if feature.name in batch.schema.names
    }
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def require_whole(**numbers: Any) -> None:
    """Raises UsageError for numbers that are not 0, 1, 2..."""
    for name, number in numbers.items():
        if not isinstance(number, Integral) or number < 0:
            raise UsageError(f"{name}={number!r}: expected a whole number, 0 or more")


def require_share(name: str, number: int, of: str, total: int) -> None:
    """Raises UsageError for an index of a reader, worker or process out of range."""
    require_whole(**{name: number, of: total})
    if not 0 <= number < total:
        raise UsageError(
            f"{name}={number} of {of}={total}: expected a {name} from 0 to {of} - 1"
        )


def column_values(array: pa.Array, feature: FeatureSpec) -> list[Any]:
    """Returns the value of each row, as in the table at the top of this module."""
    if feature.is_sequence:
        steps = column_values(array.values, replace(feature, is_sequence=False))
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
            else _reshape(np.frombuffer(cell, dtype).astype(feature.dtype), shape)
            for cell in array.to_pylist()
        ]
    if feature.dtype in ("string", "bytes"):
        return [
            None if cell is None else _reshape(np.array(cell, object), shape).tolist()
            for cell in array.to_pylist()
        ]
    values = array.values.to_numpy(zero_copy_only=False)
    return [
        # A copy, because a view of a row would keep the whole batch in memory.
        span and _reshape(values[span].astype(feature.dtype), shape)
        for span in _spans(array)
    ]


def _spans(array: pa.ListArray) -> list[slice | None]:
    """Returns the slice of each row's values; None for missing values."""
    bounds = pairwise(array.offsets.to_pylist())
    valid = array.is_valid().to_pylist()
    return [
        slice(*b) if is_present else None
        for b, is_present in zip(bounds, valid, strict=True)
    ]


def _reshape(values: np.ndarray[Any, Any], shape: _Shape) -> np.ndarray[Any, Any]:
    """Returns values reshaped to a shape; an unknown side that is undefined is 0."""
    known_size = math.prod(size for size in shape if size is not None)
    open_side = len(values) // known_size if known_size else 0
    return values.reshape([open_side if size is None else size for size in shape])


def read_batches(
    dataset: str | PathLike[str],
    split: str | Sequence[str] | None = None,
    *,
    reader_index: int = 0,
    num_readers: int = 1,
    storage: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields Arrow batches of some thousand rows with a column for each feature.

    With several readers, such as the workers of a data loader, each reads every
    num_readers-th shard. At most 8 MB of records, or one larger record, are in memory.

    Args:
      dataset: path or URL of its folder.
      split: name of a split, or several names; by default all splits.
      reader_index: index of this reader, from 0.
      num_readers: number of readers that share the shards.
      storage: non-secret options of the dataset's storage.

    Raises:
      UsageError: a split does not exist, or the reader index is out of range.
      OutputError: there is no finished dataset, or its files differ from its manifest.
      CorruptRecordError: a record is damaged.
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

    Values are numbers, text and bytes, or NumPy arrays if they have a shape. A missing
    value is None. For arguments and errors see `read_batches`.
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
) -> list[ReadableShard]:
    """Returns the shards that a reader reads."""
    require_share("reader_index", reader_index, "num_readers", num_readers)
    store = open_store(fspath(dataset), StorageOptions.from_values(storage or {}))
    shards = shards_to_read(store, read_manifest(store), split)
    return shards[reader_index::num_readers]
