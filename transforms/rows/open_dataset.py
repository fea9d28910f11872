"""Opens a dataset for training: rows by number, batches in any order, NumPy or Arrow.

    data = open_dataset("out/digits", "train")
    len(data), data[7]["label"]
    for batch in data.numpy_batches(64, seed=1, epoch=0):
        step(batch["image"], batch["label"])

It imports neither Beam nor TensorFlow. Every record that is read is verified.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.dataset.manifest import schema_of
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.features.feature import Content, Schema
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.transforms.arrow import I64
from recordmill.transforms.dataset.files import class_names, read_manifest
from recordmill.transforms.dataset.read_shards import ShardToRead, shards_to_read
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.rows.decoded_pictures import decoded, stacked
from recordmill.transforms.rows.dicts import to_dicts
from recordmill.transforms.rows.numpy_columns import Column, objects, to_numpy
from recordmill.transforms.rows.read_ahead import read_ahead
from recordmill.transforms.rows.records_by_number import Places, RecordsByNumber
from recordmill.transforms.rows.row_order import check_worker, mixed, row_order
from recordmill.transforms.storage import LocalStore, open_store

_WINDOW_BYTES = 4 << 20  # of records that are decoded at once: it has a fixed price
_STREAM_ROWS = 32  # of a stream, decoded at once, and what a worker is ahead of others

Row = dict[str, Any]
Read = TypeVar("Read")


def open_dataset(
    dataset: str | PathLike[str],
    split: str | Sequence[str] | None = None,
    *,
    decode: bool = False,
    storage: Mapping[str, Any] | None = None,
) -> Dataset:
    """Opens a finished dataset.

    Args:
      dataset: its folder, a path or a URL.
      split: name of a split, or several; by default all, in the manifest's order.
      decode: whether pictures that are kept as files become arrays of their pixels.
      storage: non-secret options of the dataset's storage.

    Raises:
      UsageError: there is no such split.
      OutputError: there is no finished dataset.
    """
    store = open_store(fspath(dataset), StorageOptions.of(storage or {}))
    manifest = read_manifest(store)
    splits = (split,) if isinstance(split, str) else split
    return Dataset(
        shards_to_read(store, manifest, splits),
        schema_of(manifest),
        manifest.payload,
        class_names(store, manifest),
        decode=decode,
    )


class Dataset(Sequence[Row]):
    """The rows of some splits, by number.

    It can be pickled, for the workers of a data loader, and has the methods that
    PyTorch's DataLoader and Grain ask of a data source. What an IterableDataset of PyTorch
    needs is in torch_rows.py.

    Attributes:
      schema: its features.
      class_names: names of the classes, by feature.
    """

    def __init__(
        self,
        shards: Sequence[ShardToRead],
        schema: Schema,
        payload: Any,
        class_names: Mapping[str, tuple[str, ...]],
        *,
        decode: bool = False,
    ) -> None:
        self.schema = schema
        self.class_names = dict(class_names)
        self._shards = list(shards)
        self._payload = payload
        self._pictures = [
            feature.name
            for feature in schema.features
            if decode and feature.content is Content.PICTURE
        ]
        self._records = RecordsByNumber(self._shards)
        num_bytes = sum(shard.entry.bytes for shard in self._shards)
        self._window_rows = _WINDOW_BYTES * len(self) // max(1, num_bytes)

    def __repr__(self) -> str:
        names = ", ".join(feature.name for feature in self.schema.features)
        return f"Dataset({len(self):,} rows: {names})"

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Row | list[Row]:
        """Returns one row as {feature: value}, or the list of a slice's rows.

        Values are as read_rows gives them.
        """
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__([index.__index__()])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Row]:
        """Returns the rows of these numbers; PyTorch's DataLoader asks for batches so."""
        return list(self._rows(self.take(indices)))

    def __iter__(self) -> Iterator[Row]:
        """Yields all rows in their order; of compressed shards, too."""
        for shard in self._shards:
            for batch in shard.batches(self.schema, self._payload):
                yield from self._rows(batch)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        for row in to_dicts(batch, self.schema):
            for name in self._pictures:
                row[name] = decoded(row[name])
            yield row

    def take(self, indices: Sequence[int] | npt.NDArray[np.integer]) -> pa.RecordBatch:
        """Returns the rows of these numbers, in this order, as a batch.

        Args:
          indices: numbers of rows; negative ones count from the end.

        Raises:
          IndexError: there is no such row.
          UsageError: the shards are compressed.
          CorruptRecordError: a record is damaged.
        """
        numbers = self._records.checked(np.asarray(indices, np.int64))
        return self._decoded(numbers, self._records.places(numbers))

    def _decoded(self, numbers: I64, places: Places) -> pa.RecordBatch:
        """Reads and decodes rows; several threads may be at it, as all files are open."""
        found = decode_payload(places.read(), self.schema, self._payload)
        for row, reason in found.row_errors:
            raise OutputError(
                f"row {numbers[row]} does not fit the dataset's schema: {reason}; run "
                "`recordmill verify --deep` to see all such"
            )
        return found.batch

    def batches(
        self,
        size: int,
        *,
        seed: int | None = None,
        epoch: int = 0,
        worker: int = 0,
        num_workers: int = 1,
        drop_last: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yields batches of rows, a column for each feature.

        Args:
          size: rows in a batch; the last one may have fewer.
          seed: of the order; None reads the rows as they lie.
          epoch: another one gives another order of the same seed.
          worker: which worker this is, from 0. Each takes its share of the batches.
          num_workers: how many share them.
          drop_last: whether to leave out a last batch that has fewer rows.

        Raises:
          UsageError: there is no such worker, or no row in a batch.
        """
        order = self._batches(size, seed, epoch, worker, num_workers, drop_last)
        for batch, start, stop in self._in_windows(order, lambda batch: batch):
            yield batch.slice(start, stop - start)

    def numpy_batches(
        self,
        size: int,
        *,
        seed: int | None = None,
        epoch: int = 0,
        worker: int = 0,
        num_workers: int = 1,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Column]]:
        """Yields batches as {feature: array}; arguments are those of `batches`.

        Values of one shape are stacked: CIFAR's images are (size, 32, 32, 3). Others
        make arrays of objects; see numpy_columns.py.
        """
        order = self._batches(size, seed, epoch, worker, num_workers, drop_last)
        for columns, start, stop in self._in_windows(order, self._numpy_columns):
            batch = {name: column[start:stop] for name, column in columns.items()}
            for name in self._pictures:
                batch[name] = stacked(batch[name].tolist())
            yield batch

    def _numpy_columns(self, batch: pa.RecordBatch) -> dict[str, Column]:
        columns = to_numpy(batch, self.schema)
        for name in self._pictures:
            columns[name] = objects([decoded(cell) for cell in columns[name]])
        return columns

    def _in_windows(
        self, order: Iterator[I64], convert: Callable[[pa.RecordBatch], Read]
    ) -> Iterator[tuple[Read, int, int]]:
        """Yields batches: a window that was read at once, and what of it is the batch."""

        def begin(numbers: I64) -> Callable[[], Read]:
            places = self._records.places(numbers)
            return lambda: convert(self._decoded(numbers, places))

        return read_ahead(order, begin, self._window_rows)

    def stream(
        self,
        *,
        seed: int | None = None,
        epoch: int = 0,
        buffer: int = 10_000,
        worker: int = 0,
        num_workers: int = 1,
    ) -> Iterator[Row]:
        """Yields each row once; of compressed shards, too.

        Rows of compressed shards come in the order of their shard, whole shards go to the
        workers, and the shards' order and a buffer shuffle them. All others are
        shuffled and shared as `batches` does it.

        Args:
          seed: of the order; None reads the rows as they lie.
          epoch: another one gives another order of the same seed.
          buffer: rows of compressed shards that wait in memory, to be mixed.
          worker: which worker this is, from 0.
          num_workers: how many share the rows.

        Raises:
          UsageError: there is no such worker, or no row in the buffer.
        """
        if buffer < 1:
            raise UsageError(f"buffer={buffer}: expected 1 row or more")
        if not any(shard.compression != "none" for shard in self._shards):
            order = self._batches(_STREAM_ROWS, seed, epoch, worker, num_workers, False)
            for numbers in order:
                yield from self._rows(self.take(numbers))
            return
        check_worker(worker, num_workers)
        shards = row_order(len(self._shards), seed, epoch, near=False)
        share = shards(0, len(self._shards))[worker::num_workers]
        rows = itertools.chain.from_iterable(
            self._rows(batch)
            for shard in share.tolist()
            for batch in self._shards[shard].batches(self.schema, self._payload)
        )
        yield from rows if seed is None else mixed(rows, seed, epoch, worker, buffer)

    def _batches(
        self,
        size: int,
        seed: int | None,
        epoch: int,
        worker: int,
        num_workers: int,
        drop_last: bool,
    ) -> Iterator[I64]:
        if size < 1:
            raise UsageError(f"batches of {size} rows: expected 1 row or more")
        check_worker(worker, num_workers)
        near = not all(isinstance(shard.store, LocalStore) for shard in self._shards)
        order = row_order(len(self), seed, epoch, near=near)
        for start in range(worker * size, len(self), num_workers * size):
            numbers = order(start, min(start + size, len(self)))
            if len(numbers) == size or not drop_last:
                yield numbers
