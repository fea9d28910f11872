"""Opens a dataset for training: rows by number, batches in any order, NumPy or Arrow.

    data = open_dataset("out/digits", "train")
    len(data), data[7]["label"]
    for batch in data.numpy_batches(64, seed=1, epoch=0):
        step(batch["image"], batch["label"])

It imports neither Beam nor TensorFlow. Every record that is read is verified.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.manifest import schema_of
from recordmill.schemas.options import Payload
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64, array_parts
from recordmill.transforms.dataset.files import class_names, read_manifest
from recordmill.transforms.dataset.reader import (
    ArrayRecordShard,
    OpenShard,
    ShardToRead,
    shards_to_read,
)
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.images.decode import pixels_of
from recordmill.transforms.parallel import ahead
from recordmill.transforms.rows.read_rows import (
    column_values,
    require_share,
    require_whole,
    to_dicts,
)
from recordmill.transforms.storage import LocalStore, open_store
from recordmill.transforms.tfrecord import crc32c

# feature's shape             array of a batch of n rows
# []                          (n,), of the feature's dtype; text and bytes: objects
# [3], [32, 32, 3]            (n, 3), (n, 32, 32, 3)
# all else                    (n,) of objects: what to_dicts gives for each row
#
# Where a value is missing, the column is one of objects, with None. All may be written to.

Column = npt.NDArray[Any]

_TEXT = ("string", "bytes")


def to_numpy(batch: pa.RecordBatch, schema: Schema) -> dict[str, Column]:
    """Returns an array for each feature of columns that were decoded."""
    return {
        feature.name: _column(batch[feature.name], feature)
        for feature in schema.features
    }


def _column(array: pa.Array, feature: FeatureSpec) -> Column:
    column = None
    shape = tuple(size for size in feature.shape if size is not None)
    open_shape = len(shape) < len(feature.shape)
    if not (array.null_count or feature.sequence or open_shape):
        if feature.content is Content.ARRAY:
            column = _of_bytes(array, feature.dtype, shape)
        elif feature.content is not Content.IMAGE and feature.dtype not in _TEXT:
            column = _of_values(array, feature.dtype, shape)
    return objects(column_values(array, feature)) if column is None else column


def _of_bytes(array: pa.Array, name: str, shape: tuple[int, ...]) -> Column | None:
    """Returns raw arrays of one size as one array; None if their sizes differ."""
    offsets, data = array_parts(array)
    dtype = np.dtype(name).newbyteorder("<")
    if not (np.diff(offsets) == math.prod(shape) * dtype.itemsize).all():
        return None
    flat = data[offsets[0] : offsets[-1]].view(dtype).astype(name, copy=False)
    return flat.reshape(len(array), *shape)


def _of_values(array: pa.Array, name: str, shape: tuple[int, ...]) -> Column | None:
    """Returns numbers, or lists of one length, as one array; None if lengths differ."""
    rows = len(array)
    if shape:
        if not (np.diff(array.offsets.to_numpy()) == math.prod(shape)).all():
            return None
        array = array.flatten()
    values: Column = array.to_numpy(zero_copy_only=False)
    # Arrow's own memory is read-only, and PyTorch warns of that.
    owned = np.require(values.astype(name, copy=False), requirements="W")
    return owned.reshape(rows, *shape)


def objects(values: Sequence[Any]) -> Column:
    """Returns an array of objects, one for each value."""
    # Assigned, as np.array would make a matrix of arrays of one shape.
    column = np.empty(len(values), object)
    for index, value in enumerate(values):
        column[index] = value
    return column


def decoded(image: bytes | None) -> Column | None:
    """Returns the pixels of an image, or None of one that is missing."""
    return None if image is None else pixels_of(image)


def stacked(images: list[Column | None]) -> Column:
    """Returns images of one shape as one array, others as one of objects."""
    kinds = {None if one is None else (one.shape, one.dtype) for one in images}
    if len(kinds) == 1 and None not in kinds:
        return np.stack([one for one in images if one is not None])
    return objects(images)


# Reading and decoding have a fixed price, so the rows of several batches are read at once:
#
#     batches   [5, 2], [7, 1], [3, 0]          numbers of rows, in an epoch's order
#     windows   [5, 2, 7, 1], [3, 0]            for windows of 4 rows
#     yielded   window 0 with 0, 2 and 2, 4;    what of a window is a batch
#               window 1 with 0, 2

# Measured on two cores: 360,000 rows a second with one, 369,000 with two, 350,000 with
# three or four: half of the work is Python's.
_THREADS = 2

Item = TypeVar("Item")
Read = TypeVar("Read")


def read_ahead(
    batches: Iterable[I64], begin: Callable[[I64], Callable[[], Read]], window_rows: int
) -> Iterator[tuple[Read, int, int]]:
    """Yields for each batch the window it is in, and where in it: first row and end.

    A window ends with the batch that reaches `window_rows`. `begin` is called with its
    rows, in the caller's thread; what it returns is called in another one, and reads
    them. Two windows are read, or being read, before they are asked for.
    """

    def windows() -> Iterator[tuple[list[int], Callable[[], Read]]]:
        left = iter(batches)
        for first in left:
            window, ends = [first], [0, len(first)]
            while ends[-1] < window_rows and (batch := next(left, None)) is not None:
                window.append(batch)
                ends.append(ends[-1] + len(batch))
            yield ends, begin(np.concatenate(window))

    found = ahead(windows(), lambda each: (each[0], each[1]()), _THREADS, most=_THREADS)
    for ends, read in found:
        for start, stop in pairwise(ends):
            yield read, start, stop


_SHARDS = 16  # of a store, opened or read at once
_OPEN_SHARDS = 256  # mapped at once; others are opened again when they are needed


def checked_numbers(numbers: I64, count: int) -> I64:
    """Returns numbers of rows, negative ones from the end, or raises IndexError."""
    wrong = (numbers < -count) | (numbers >= count)
    if wrong.any():
        raise IndexError(f"row {numbers[np.argmax(wrong)]} of {count}")
    return np.where(numbers < 0, numbers + count, numbers)


def _at_once(function: Callable[[Item], Read], items: Iterable[Item]) -> Iterator[Read]:
    return ahead(items, function, _SHARDS)


class RecordsByNumber:
    """The records of shards, numbered from 0 through all of them."""

    def __init__(self, shards: Sequence[ShardToRead]) -> None:
        self._shards = shards
        self._firsts = [0, *itertools.accumulate(s.entry.records for s in shards)]
        self._open: OrderedDict[int, OpenShard | ArrayRecordShard] = OrderedDict()
        self.is_local = all(isinstance(shard.store, LocalStore) for shard in shards)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what another process needs: all but the open files."""
        return {**self.__dict__, "_open": OrderedDict()}

    def __len__(self) -> int:
        return self._firsts[-1]

    def reader(self, numbers: I64) -> Callable[[], pa.BinaryArray]:
        """Opens the shards of some records; not by several threads at once.

        What it returns reads and verifies them, in any thread.
        """
        shard_of = np.searchsorted(self._firsts, numbers, side="right") - 1
        # In a store by place, so that neighbours come together, by one request.
        order = np.argsort(shard_of if self.is_local else numbers, kind="stable")
        needed, begins = np.unique(shard_of[order], return_index=True)
        sections = np.split(numbers[order], begins[1:])
        parts: list[tuple[OpenShard | ArrayRecordShard, I64]] = []
        for shard, opened, section in zip(
            needed.tolist(), self._opened(needed.tolist()), sections, strict=False
        ):
            positions = section - self._firsts[shard]
            of_shard = [positions] if self.is_local else opened.requests(positions)
            parts += [(opened, each) for each in of_shard]

        run = map if self.is_local else _at_once

        def read() -> pa.BinaryArray:
            found = [*run(lambda part: part[0].read(part[1]), parts)]
            if self.is_local and len(found) == 1:
                return found[0]
            back = np.argsort(order)
            return pa.concat_arrays([pa.array([], pa.binary()), *found]).take(back)

        return read

    def _opened(self, needed: Sequence[int]) -> list[OpenShard | ArrayRecordShard]:
        new = [shard for shard in needed if shard not in self._open]
        opened = _at_once(ShardToRead.open, [self._shards[n] for n in new])
        self._open.update(zip(new, opened, strict=True))
        for shard in needed:
            self._open.move_to_end(shard)
        found = [self._open[shard] for shard in needed]
        while len(self._open) > _OPEN_SHARDS:
            self._open.popitem(last=False)
        return found


# Of a dataset in a store, rows that follow each other are read together, as a request takes
# 50 ms, and 3 ms of the processor: blocks of 2 MiB are drawn, and 16 are read at once, mixed.
_BLOCK_BYTES = 2 << 20
_BUFFER = 16

_DRAWS = 1 << 10  # random places at once: one by one they would take longer than a row

Order = Callable[[int, int], I64]  # order(start, stop): numbers of these rows


def generator(seed: int, epoch: int, *more: int) -> np.random.Generator:
    """Returns random numbers that depend on the arguments alone."""
    require_whole(epoch=epoch)
    if not isinstance(seed, SupportsIndex):
        raise UsageError(f"seed={seed!r}: expected a whole number")
    return np.random.default_rng([int(seed) % (1 << 64), epoch, *more])


def row_order(count: int, seed: int | None, epoch: int, *, block: int) -> Order:
    """Returns a function from places in an epoch to the numbers of rows.

    Every row comes once. The order depends on nothing but the arguments; without a seed
    it is that in which the rows lie. With a `block` of rows that should be read together,
    blocks are drawn, and the rows of some blocks are mixed; 0 draws rows.
    """
    if seed is None:
        return np.arange
    random = generator(seed, epoch)
    if block:
        rows = shuffled_blocks(count, random, block)
        for start in range(0, count, block * _BUFFER):
            random.shuffle(rows[start : start + block * _BUFFER])
    else:
        rows = random.permutation(count)
    return lambda start, stop: rows[start:stop]


def shuffled_blocks(count: int, random: np.random.Generator, block: int) -> I64:
    """Returns the numbers of rows, in blocks whose order is drawn."""
    blocks = random.permutation(-(-count // block)) * block
    rows = (blocks[:, None] + np.arange(block)).ravel()
    return rows[rows < count]


def share_of(
    count: int,
    size: int,
    *,
    start: int = 0,
    worker: int = 0,
    num_workers: int = 1,
    read: int = 0,
) -> Iterator[tuple[int, int]]:
    """Yields which places of an epoch a worker reads next, batch by batch: first and end.

    The batches go to the workers in turn, so together they are the same for any number
    of workers. 10 rows by 3, 2 workers:

        start=0            worker 0: 0-3, 6-9      worker 1: 3-6, 9-10
        start=3            worker 0: 3-6, 9-10     worker 1: 6-9
        start=0, read=4    worker 0: 7-9           worker 1: none

    Args:
      count: rows of the epoch.
      size: rows of a batch.
      start: rows that all workers together had consumed when these began.
      worker: which worker this is, from 0.
      num_workers: how many share the rows.
      read: rows of its share that this worker has consumed since.
    """
    first = start + (worker + read // size * num_workers) * size
    skipped = read % size
    for begin in range(first, count, num_workers * size):
        end = min(begin + size, count)
        if begin + skipped < end:
            yield begin + skipped, end
        skipped = 0


def mixed(
    rows: Iterable[Item], seed: int, epoch: int, worker: int, buffer: int
) -> Iterator[Item]:
    """Yields rows in another order: the next one is any of those that wait."""
    random = generator(seed, epoch, worker)
    draws = (random.integers(buffer, size=_DRAWS).tolist() for _ in itertools.count())
    places = itertools.chain.from_iterable(draws)
    waiting: list[Item] = []
    for row in rows:
        if len(waiting) < buffer:
            waiting.append(row)
            continue
        place = next(places)
        yield waiting[place]
        waiting[place] = row
    for place in random.permutation(len(waiting)).tolist():
        yield waiting[place]


_WINDOW_BYTES = 4 << 20  # of records that are decoded at once: it has a fixed price
STREAM_ROWS = 32  # of a stream, in turn to each worker

Row = dict[str, Any]


def open_dataset(
    dataset: str | PathLike[str],
    split: str | Sequence[str] | None = None,
    *,
    decode: bool = False,
    fill: Mapping[str, Any] = MappingProxyType({}),
    storage: Mapping[str, Any] | None = None,
    cache: str | PathLike[str] | None = None,
    cache_bytes: int = 10 << 30,
) -> Dataset:
    """Opens a finished dataset.

    Args:
      dataset: its folder, a path or a URL.
      split: name of a split, or several; by default all, in the manifest's order.
      decode: whether images that are kept as files become arrays of their pixels.
      fill: what stands for missing values, by feature, like {"age": -1}.
      storage: non-secret options of the dataset's storage.
      cache: a local folder that keeps what is read of shards in a store, for all
        processes and datasets that name it. Local datasets need none.
      cache_bytes: limit of that folder; parts least recently used go first.

    Raises:
      UsageError: there is no such split, no such feature to fill, or no such cache.
      OutputError: there is no finished dataset.
    """
    store = open_store(fspath(dataset), StorageOptions.of(storage or {}))
    manifest = read_manifest(store)
    shard_store = store
    if cache is not None:
        from recordmill.transforms.storage.cache import with_cache

        shard_store = with_cache(store, cache, cache_bytes)
    return Dataset(
        shards_to_read(shard_store, manifest, split),
        schema_of(manifest),
        manifest.payload,
        class_names(store, manifest),
        decode=decode,
        fill=fill,
    )


def padded(values: Sequence[Any]) -> Sequence[Any]:
    """Returns arrays padded with zeros behind their values, so that they have one shape.

    Other values stay as they are, and so do arrays that differ in their number of axes.
    """
    shapes = {np.shape(value) for value in values if isinstance(value, np.ndarray)}
    if len(shapes) < 2 or len({len(shape) for shape in shapes}) > 1:
        return values
    largest = np.max(list(shapes), axis=0)
    ends = [largest - np.shape(value) for value in values]
    return [
        np.pad(value, [(0, end) for end in each])
        for value, each in zip(values, ends, strict=True)
    ]


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
        payload: Payload,
        class_names: Mapping[str, tuple[str, ...]],
        *,
        decode: bool = False,
        fill: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        names = [feature.name for feature in schema.features]
        if unknown := [name for name in fill if name not in names]:
            raise UsageError(
                f"fill: no feature {unknown[0]!r}; the features are {', '.join(names)}"
            )
        self.schema, self._fill = schema, dict(fill)
        self.class_names = dict(class_names)
        self._shards, self._payload = list(shards), payload
        self._images = [
            feature.name
            for feature in schema.features
            if decode and feature.content is Content.IMAGE
        ]
        self._records = RecordsByNumber(self._shards)
        self._is_packed = any(shard.compression != "none" for shard in self._shards)
        num_bytes = sum(shard.entry.bytes for shard in self._shards)
        self._window_rows = _WINDOW_BYTES * len(self._records) // max(1, num_bytes)
        self._block = 0
        if not self._records.is_local:
            rows = _BLOCK_BYTES * len(self._records) // max(1, num_bytes)
            self._block = 1 << max(0, rows.bit_length() - 1)  # so that batches fit in
            self._window_rows = self._block * _BUFFER

    def __repr__(self) -> str:
        names = ", ".join(feature.name for feature in self.schema.features)
        return f"{type(self).__name__}({len(self):,} rows: {names})"

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
            for batch in shard.batches():
                yield from self._rows(self._filled(batch))

    def collate(self, rows: Sequence[Row]) -> Any:
        """Makes a batch of rows: DataLoader(data, 32, collate_fn=data.collate).

        Arrays of several shapes, such as images, are padded with zeros. All else is done
        by PyTorch's default_collate.
        """
        from torch.utils.data import default_collate

        batch = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if any(value is None for value in values):
                raise UsageError(
                    f"feature {name!r} has missing values, which make no batch; open the "
                    f"dataset with fill={{{name!r}: ...}}"
                )
            batch[name] = default_collate(padded(values))
        return batch

    def _filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self._fill.items():
            index = batch.schema.get_field_index(name)
            try:
                scalar = pa.scalar(value, batch.schema.field(index).type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UsageError(
                    f"fill: {name!r} cannot have {value!r}: {error}"
                ) from error
            filled = pc.coalesce(batch.column(index), scalar)
            batch = batch.set_column(index, name, filled)
        return batch

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        for row in to_dicts(batch, self.schema):
            for name in self._images:
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
        numbers = np.asarray(indices, np.int64)
        return self._reader(checked_numbers(numbers, len(self._records)))()

    def _reader(self, numbers: I64) -> Callable[[], pa.RecordBatch]:
        """Opens shards; what it returns reads and decodes rows, in any thread."""
        read = self._records.reader(numbers)

        def decode() -> pa.RecordBatch:
            found = decode_payload(read(), self.schema, self._payload)
            for row, reason in found.row_errors:
                raise OutputError(
                    f"row {numbers[row]} does not fit the dataset's schema: {reason}; "
                    "run `recordmill verify --deep` to see all such"
                )
            return self._filled(found.batch)

        return decode

    def batches(
        self,
        size: int,
        *,
        seed: int | None = None,
        epoch: int = 0,
        worker: int = 0,
        num_workers: int = 1,
        drop_last: bool = False,
        start: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Yields batches of rows, a column for each feature.

        Args:
          size: rows in a batch; the last one may have fewer.
          seed: of the order; None reads the rows as they lie.
          epoch: another one gives another order of the same seed.
          worker: which worker this is, from 0. Each takes its share of the batches.
          num_workers: how many share them.
          drop_last: whether to leave out a last batch that has fewer rows.
          start: rows of the epoch that were consumed before, by any number of workers.

        Raises:
          UsageError: there is no such worker, or no row in a batch.
        """
        share = self._share(size, start, worker, num_workers)
        order = self._batches(size, seed, epoch, share, drop_last)
        window = self._window_rows // num_workers
        for batch, begin, end in read_ahead(order, self._reader, window):
            yield batch.slice(begin, end - begin)

    def numpy_batches(
        self,
        size: int,
        *,
        seed: int | None = None,
        epoch: int = 0,
        worker: int = 0,
        num_workers: int = 1,
        drop_last: bool = False,
        start: int = 0,
    ) -> Iterator[dict[str, Column]]:
        """Yields batches as {feature: array}; arguments are those of `batches`.

        Values of one shape are stacked: CIFAR's images are (size, 32, 32, 3). Others
        make arrays of objects; see `to_numpy`.
        """

        def begin(numbers: I64) -> Callable[[], dict[str, Column]]:
            read = self._reader(numbers)
            return lambda: to_numpy(read(), self.schema)

        def with_pixels(batch: dict[str, Column]) -> dict[str, Column]:
            pixels = {
                name: stacked([decoded(cell) for cell in batch[name]])
                for name in self._images
            }
            return batch | pixels

        share = self._share(size, start, worker, num_workers)
        order = self._batches(size, seed, epoch, share, drop_last)
        window = self._window_rows // num_workers
        batches = (
            {name: column[first:end] for name, column in columns.items()}
            for columns, first, end in read_ahead(order, begin, window)
        )
        if self._images:  # apart from reading, which may wait for a store
            yield from ahead(batches, with_pixels, _THREADS, most=_THREADS)
        else:
            yield from batches

    def stream(
        self,
        *,
        seed: int | None = None,
        epoch: int = 0,
        buffer: int = 10_000,
        worker: int = 0,
        num_workers: int = 1,
        size: int = STREAM_ROWS,
        start: int = 0,
        read: int = 0,
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
          size: rows that go to each worker in turn.
          start: rows of the epoch that were consumed before, by any number of workers;
            not of compressed shards.
          read: rows of its share that this worker consumed since.

        Raises:
          UsageError: there is no such worker, or no row in the buffer.
        """
        require_whole(buffer=buffer)
        if buffer < 1:
            raise UsageError(f"buffer={buffer}: expected 1 row or more")
        share = self._share(size, start, worker, num_workers, read)
        if not self._is_packed:
            order = self._batches(size, seed, epoch, share, False)
            window = self._window_rows // num_workers
            for batch, first, _ in read_ahead(order, self._reader, window):
                if first == 0:  # of each window
                    yield from self._rows(batch)
            return
        shards = row_order(len(self._shards), seed, epoch, block=0)
        mine = shards(0, len(self._shards))[worker::num_workers]
        rows: Iterator[Row] = itertools.chain.from_iterable(
            self._rows(self._filled(batch))
            for shard in mine.tolist()
            for batch in self._shards[shard].batches()
        )
        if seed is not None:
            rows = mixed(rows, seed, epoch, worker, buffer)
        yield from itertools.islice(rows, read, None)

    def _order_key(self) -> int:
        """Returns a checksum of all that an order depends on beside seed and epoch."""
        shards = [
            (s.entry.records, s.entry.bytes, s.entry.crc32c) for s in self._shards
        ]
        return crc32c(repr((self._block, shards)).encode())

    def _checked_start(self, start: int) -> int:
        """Returns a number of rows after which an epoch can continue, or raises UsageError."""
        if not isinstance(start, SupportsIndex) or not 0 <= start <= len(self):
            raise UsageError(
                f"start={start!r}: expected from 0 to the {len(self):,} rows of an epoch"
            )
        if start and self._is_packed:
            raise UsageError(
                f"start={start}: compressed shards go to workers as a whole, so an epoch "
                "cannot continue at a row. Use StatefulDataLoader of torchdata, or convert "
                "with `compression=none`"
            )
        return start

    def _order(self, seed: int | None, epoch: int) -> Order:
        return row_order(len(self), seed, epoch, block=self._block)

    def _share(
        self, size: int, start: int, worker: int, num_workers: int, read: int = 0
    ) -> Iterator[tuple[int, int]]:
        require_whole(size=size, read=read)
        if size < 1:
            raise UsageError(f"batches of {size} rows: expected 1 row or more")
        require_share("worker", worker, "num_workers", num_workers)
        self._checked_start(start)
        how = {"start": start, "worker": worker, "num_workers": num_workers}
        return share_of(len(self), size, **how, read=read)

    def _batches(
        self,
        size: int,
        seed: int | None,
        epoch: int,
        share: Iterator[tuple[int, int]],
        drop_last: bool,
    ) -> Iterator[I64]:
        order = self._order(seed, epoch)
        for begin, end in share:
            if end - begin == size or not drop_last:
                yield order(begin, end)
