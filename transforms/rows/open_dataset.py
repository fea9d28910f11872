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
    ReadableShard,
    shards_to_read,
)
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.images.decode import pixels_of
from recordmill.transforms.parallel import map_ahead
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
# all else                    (n,) of objects: the values of to_dicts for each row
#
# A column with missing values is an array of objects, with None. All arrays are writable.

Column = npt.NDArray[Any]

_TEXT = ("string", "bytes")


def to_numpy(batch: pa.RecordBatch, schema: Schema) -> dict[str, Column]:
    """Returns an array for each feature of a decoded batch."""
    return {
        feature.name: _column(batch[feature.name], feature)
        for feature in schema.features
    }


def _column(array: pa.Array, feature: FeatureSpec) -> Column:
    column = None
    shape = tuple(size for size in feature.shape if size is not None)
    open_shape = len(shape) < len(feature.shape)
    if not (array.null_count or feature.is_sequence or open_shape):
        if feature.content is Content.ARRAY:
            column = _of_bytes(array, feature.dtype, shape)
        elif feature.content is not Content.IMAGE and feature.dtype not in _TEXT:
            column = _of_values(array, feature.dtype, shape)
    return object_array(column_values(array, feature)) if column is None else column


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
    # Arrow's memory is read-only, about which PyTorch warns.
    owned = np.require(values.astype(name, copy=False), requirements="W")
    return owned.reshape(rows, *shape)


def object_array(values: Sequence[Any]) -> Column:
    """Returns an array of objects, one for each value."""
    # Assigned one by one: np.array would stack arrays of one shape.
    column = np.empty(len(values), object)
    for index, value in enumerate(values):
        column[index] = value
    return column


def decode_pixels(image: bytes | None) -> Column | None:
    """Returns the pixels of an image; None if the image is missing."""
    return None if image is None else pixels_of(image)


def stack_images(images: list[Column | None]) -> Column:
    """Returns images of one shape as one array, other images as an array of objects."""
    kinds = {None if image is None else (image.shape, image.dtype) for image in images}
    if len(kinds) == 1 and None not in kinds:
        return np.stack([image for image in images if image is not None])
    return object_array(images)


# Reading and decoding have a fixed cost, so the rows of several batches are read at once:
#
#     batches   [5, 2], [7, 1], [3, 0]          numbers of rows, in an epoch's order
#     windows   [5, 2, 7, 1], [3, 0]            for windows of 4 rows
#     yielded   window 0 with 0, 2 and 2, 4;    start and end of each batch in its window
#               window 1 with 0, 2

# Measured on two cores: 360,000 rows a second with one thread, 369,000 with two, 350,000
# with three or four: half of the work holds the interpreter lock.
_THREADS = 2

Element = TypeVar("Element")
Read = TypeVar("Read")


def read_ahead(
    batches: Iterable[I64], begin: Callable[[I64], Callable[[], Read]], window_rows: int
) -> Iterator[tuple[Read, int, int]]:
    """Yields the window of each batch, and the batch's first row and end in it.

    A window ends with the batch that reaches `window_rows`. `begin` is called with the
    window's row numbers in the caller's thread. The function that it returns is called in
    another thread, and reads the rows. Two windows are read ahead.
    """

    def windows() -> Iterator[tuple[list[int], Callable[[], Read]]]:
        remaining_batches = iter(batches)
        for first in remaining_batches:
            window, ends = [first], [0, len(first)]
            while (
                ends[-1] < window_rows
                and (batch := next(remaining_batches, None)) is not None
            ):
                window.append(batch)
                ends.append(ends[-1] + len(batch))
            yield ends, begin(np.concatenate(window))

    read_windows = map_ahead(
        windows(), lambda window: (window[0], window[1]()), _THREADS, most=_THREADS
    )
    for ends, read in read_windows:
        for start, stop in pairwise(ends):
            yield read, start, stop


_SHARDS = 16  # shards of a store that are opened or read at once
_OPEN_SHARDS = 256  # most mapped shards; others are opened again when they are needed


def check_row_numbers(numbers: I64, count: int) -> I64:
    """Returns row numbers with negative ones resolved; raises IndexError."""
    wrong = (numbers < -count) | (numbers >= count)
    if wrong.any():
        raise IndexError(f"row {numbers[np.argmax(wrong)]} of {count}")
    return np.where(numbers < 0, numbers + count, numbers)


def _map_parallel(
    function: Callable[[Element], Read], arguments: Iterable[Element]
) -> Iterator[Read]:
    return map_ahead(arguments, function, _SHARDS)


class RecordsByNumber:
    """The records of shards, numbered from 0 through all of them."""

    def __init__(self, shards: Sequence[ReadableShard]) -> None:
        self._shards = shards
        self._firsts = [0, *itertools.accumulate(s.entry.records for s in shards)]
        self._open_shards: OrderedDict[int, OpenShard | ArrayRecordShard] = (
            OrderedDict()
        )
        self.is_local = all(isinstance(shard.store, LocalStore) for shard in shards)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for another process: all attributes except the open files."""
        return {**self.__dict__, "_open_shards": OrderedDict()}

    def __len__(self) -> int:
        return self._firsts[-1]

    def reader(self, numbers: I64) -> Callable[[], pa.BinaryArray]:
        """Opens the shards of some records; not thread-safe.

        Returns a function that reads and verifies the records, in any thread.
        """
        shard_of = np.searchsorted(self._firsts, numbers, side="right") - 1
        # In a store by position, so that one request reads neighbouring records.
        order = np.argsort(shard_of if self.is_local else numbers, kind="stable")
        needed, begins = np.unique(shard_of[order], return_index=True)
        sections = np.split(numbers[order], begins[1:])
        parts: list[tuple[OpenShard | ArrayRecordShard, I64]] = []
        for shard, opened, section in zip(
            needed.tolist(),
            self._open_needed_shards(needed.tolist()),
            sections,
            strict=False,
        ):
            positions = section - self._firsts[shard]
            of_shard = (
                [positions] if self.is_local else opened.group_positions(positions)
            )
            parts += [(opened, request) for request in of_shard]

        run = map if self.is_local else _map_parallel

        def read() -> pa.BinaryArray:
            arrays = [*run(lambda part: part[0].read(part[1]), parts)]
            if self.is_local and len(arrays) == 1:
                return arrays[0]
            back = np.argsort(order)
            return pa.concat_arrays([pa.array([], pa.binary()), *arrays]).take(back)

        return read

    def _open_needed_shards(
        self, needed: Sequence[int]
    ) -> list[OpenShard | ArrayRecordShard]:
        new = [shard for shard in needed if shard not in self._open_shards]
        opened = _map_parallel(ReadableShard.open, [self._shards[n] for n in new])
        self._open_shards.update(zip(new, opened, strict=True))
        for shard in needed:
            self._open_shards.move_to_end(shard)
        shards = [self._open_shards[shard] for shard in needed]
        while len(self._open_shards) > _OPEN_SHARDS:
            self._open_shards.popitem(last=False)
        return shards


# In a dataset in a store, consecutive rows are read together, because a request takes 50
# ms, and 3 ms of processor time: blocks of 2 MiB are shuffled, and 16 of them are read at
# once and mixed.
_BLOCK_BYTES = 2 << 20
_BUFFER = 16

_DRAWS = 1 << 10  # random positions computed at once: single ones are slower than a row

Order = Callable[[int, int], I64]  # order(start, stop): numbers of these rows


def generator(seed: int, epoch: int, *seeds: int) -> np.random.Generator:
    """Returns a random generator whose numbers depend only on the arguments."""
    require_whole(epoch=epoch)
    if not isinstance(seed, SupportsIndex):
        raise UsageError(f"seed={seed!r}: expected a whole number")
    return np.random.default_rng([int(seed) % (1 << 64), epoch, *seeds])


def row_order(count: int, seed: int | None, epoch: int, *, block: int) -> Order:
    """Returns a function from positions in an epoch to row numbers.

    Every row occurs once. The order depends only on the arguments; without a seed it is
    the stored order. `block` is the number of rows that should be read together: blocks
    are shuffled, and the rows of some consecutive blocks are mixed. With 0, rows are
    shuffled.
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
    """Returns row numbers in blocks of consecutive rows, with shuffled blocks."""
    blocks = random.permutation(-(-count // block)) * block
    rows = (blocks[:, None] + np.arange(block)).ravel()
    return rows[rows < count]


def worker_batches(
    count: int,
    size: int,
    *,
    start: int = 0,
    worker: int = 0,
    num_workers: int = 1,
    read: int = 0,
) -> Iterator[tuple[int, int]]:
    """Yields the first position and the end of each batch of a worker in an epoch.

    The batches are assigned to the workers in turn, so that all workers together read the
    same batches for any number of workers. 10 rows in batches of 3, 2 workers:

        start=0            worker 0: 0-3, 6-9      worker 1: 3-6, 9-10
        start=3            worker 0: 3-6, 9-10     worker 1: 6-9
        start=0, read=4    worker 0: 7-9           worker 1: none

    Args:
      count: number of rows of the epoch.
      size: number of rows of a batch.
      start: number of rows that all workers together had consumed at the start.
      worker: index of this worker, from 0.
      num_workers: number of workers that share the rows.
      read: number of rows of its share that this worker has consumed since the start.
    """
    first = start + (worker + read // size * num_workers) * size
    skipped = read % size
    for begin in range(first, count, num_workers * size):
        end = min(begin + size, count)
        if begin + skipped < end:
            yield begin + skipped, end
        skipped = 0


def mix_rows(
    rows: Iterable[Element], seed: int, epoch: int, worker: int, buffer: int
) -> Iterator[Element]:
    """Yields rows in random order, by choosing each from a buffer of rows."""
    random = generator(seed, epoch, worker)
    draws = (random.integers(buffer, size=_DRAWS).tolist() for _ in itertools.count())
    places = itertools.chain.from_iterable(draws)
    buffered_rows: list[Element] = []
    for row in rows:
        if len(buffered_rows) < buffer:
            buffered_rows.append(row)
            continue
        place = next(places)
        yield buffered_rows[place]
        buffered_rows[place] = row
    for place in random.permutation(len(buffered_rows)).tolist():
        yield buffered_rows[place]


_WINDOW_BYTES = 4 << 20  # size of the records that are decoded at once
STREAM_ROWS = 32  # rows of a stream that each worker reads in turn

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
      dataset: path or URL of its folder.
      split: name of a split, or several names; by default all splits, in the manifest's
        order.
      decode: whether images that are stored as files are decoded to arrays of pixels.
      fill: replacements for missing values, by feature, like {"age": -1}.
      storage: non-secret options of the dataset's storage.
      cache: a local folder that caches parts of remote shards, shared by all processes
        and datasets that name it. Local datasets need none.
      cache_bytes: size limit of that folder; the least recently used parts are removed
        first.

    Raises:
      UsageError: a split, a feature in `fill` or the cache folder does not exist.
      OutputError: there is no finished dataset.
    """
    store = open_store(fspath(dataset), StorageOptions.from_values(storage or {}))
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


def pad_arrays(values: Sequence[Any]) -> Sequence[Any]:
    """Returns arrays padded with zeros at their ends, so that all have one shape.

    Other values, and arrays with different numbers of axes, are returned unchanged.
    """
    shapes = {np.shape(value) for value in values if isinstance(value, np.ndarray)}
    if len(shapes) < 2 or len({len(shape) for shape in shapes}) > 1:
        return values
    largest = np.max(list(shapes), axis=0)
    ends = [largest - np.shape(value) for value in values]
    return [
        np.pad(value, [(0, end) for end in paddings])
        for value, paddings in zip(values, ends, strict=True)
    ]


class Dataset(Sequence[Row]):
    """The rows of some splits, with access by number.

    It can be pickled for the workers of a data loader, and has the methods of a data
    source for PyTorch's DataLoader and Grain. An IterableDataset of PyTorch is in
    torch_rows.py.

    Attributes:
      schema: schema of the rows.
      class_names: names of the classes, by feature.
    """

    def __init__(
        self,
        shards: Sequence[ReadableShard],
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
        self.schema, self._fill_values = schema, dict(fill)
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
        self._block_rows = 0
        if not self._records.is_local:
            rows = _BLOCK_BYTES * len(self._records) // max(1, num_bytes)
            self._block_rows = 1 << max(
                0, rows.bit_length() - 1
            )  # aligned with batches
            self._window_rows = self._block_rows * _BUFFER

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

        The values are those of `read_rows`.
        """
        if isinstance(index, slice):
            return self.__getitems__(range(*index.indices(len(self))))
        return self.__getitems__([index.__index__()])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Row]:
        """Returns the rows of these numbers; PyTorch's DataLoader calls it per batch."""
        return list(self._rows(self.take(indices)))

    def __iter__(self) -> Iterator[Row]:
        """Yields all rows in their order; also supports compressed shards."""
        for shard in self._shards:
            for batch in shard.batches():
                yield from self._rows(self._fill_missing(batch))

    def collate(self, rows: Sequence[Row]) -> Any:
        """Returns a batch of rows: DataLoader(data, 32, collate_fn=data.collate).

        Arrays of different shapes, such as images, are padded with zeros. PyTorch's
        default_collate does the rest.
        """
        from torch.utils.data import default_collate

        batch = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if any(value is None for value in values):
                raise UsageError(
                    f"feature {name!r} has missing values, which cannot be batched; "
                    f"open the dataset with fill={{{name!r}: ...}}"
                )
            batch[name] = default_collate(pad_arrays(values))
        return batch

    def _fill_missing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self._fill_values.items():
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
                row[name] = decode_pixels(row[name])
            yield row

    def take(self, indices: Sequence[int] | npt.NDArray[np.integer]) -> pa.RecordBatch:
        """Returns the rows of these numbers, in this order, as a batch.

        Args:
          indices: numbers of rows; negative numbers count from the end.

        Raises:
          IndexError: a row does not exist.
          UsageError: the shards are compressed.
          CorruptRecordError: a record is damaged.
        """
        numbers = np.asarray(indices, np.int64)
        return self._reader(check_row_numbers(numbers, len(self._records)))()

    def _reader(self, numbers: I64) -> Callable[[], pa.RecordBatch]:
        """Opens shards; returns a function that reads and decodes rows, in any thread."""
        read = self._records.reader(numbers)

        def decode() -> pa.RecordBatch:
            decoded_payload = decode_payload(read(), self.schema, self._payload)
            for row, reason in decoded_payload.row_errors:
                raise OutputError(
                    f"row {numbers[row]} does not fit the dataset's schema: {reason}; "
                    "run `recordmill verify --deep` to list all such records"
                )
            return self._fill_missing(decoded_payload.batch)

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
        """Yields batches of rows with a column for each feature.

        Args:
          size: number of rows per batch; the last batch may have fewer.
          seed: seed of the order; None keeps the stored order.
          epoch: number of the epoch; each epoch has another order.
          worker: index of this worker, from 0; it gets its share of the batches.
          num_workers: number of workers that share the batches.
          drop_last: whether to omit a last batch with fewer rows.
          start: number of rows of the epoch that any number of workers consumed before.

        Raises:
          UsageError: the worker index or the batch size is out of range.
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
        """Yields batches as {feature: array}; for the arguments see `batches`.

        Values of one shape are stacked: CIFAR's images are (size, 32, 32, 3). Other
        values become arrays of objects; see `to_numpy`.
        """

        def begin(numbers: I64) -> Callable[[], dict[str, Column]]:
            read = self._reader(numbers)
            return lambda: to_numpy(read(), self.schema)

        def with_pixels(batch: dict[str, Column]) -> dict[str, Column]:
            pixels = {
                name: stack_images([decode_pixels(cell) for cell in batch[name]])
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
        if self._images:  # decoded separately, as reading may wait for a store
            yield from map_ahead(batches, with_pixels, _THREADS, most=_THREADS)
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
        """Yields each row once; also supports compressed shards.

        Each compressed shard is read by one worker from start to end. The order of the
        shards is shuffled, and a buffer mixes their rows. Rows of other shards are
        shuffled and shared as in `batches`.

        Args:
          seed: seed of the order; None keeps the stored order.
          epoch: number of the epoch; each epoch has another order.
          buffer: number of rows of compressed shards in the buffer in memory.
          worker: index of this worker, from 0.
          num_workers: number of workers that share the rows.
          size: number of rows that each worker reads in turn.
          start: number of rows of the epoch that any number of workers consumed before;
            not supported for compressed shards.
          read: number of rows of its share that this worker has consumed since.

        Raises:
          UsageError: the worker index or the buffer size is out of range.
        """
        require_whole(buffer=buffer)
        if buffer < 1:
            raise UsageError(f"buffer={buffer}: expected 1 row or more")
        share = self._share(size, start, worker, num_workers, read)
        if not self._is_packed:
            order = self._batches(size, seed, epoch, share, False)
            window = self._window_rows // num_workers
            for batch, first, _ in read_ahead(order, self._reader, window):
                if first == 0:  # once per window
                    yield from self._rows(batch)
            return
        shards = row_order(len(self._shards), seed, epoch, block=0)
        worker_shards = shards(0, len(self._shards))[worker::num_workers]
        rows: Iterator[Row] = itertools.chain.from_iterable(
            self._rows(self._fill_missing(batch))
            for shard in worker_shards.tolist()
            for batch in self._shards[shard].batches()
        )
        if seed is not None:
            rows = mix_rows(rows, seed, epoch, worker, buffer)
        yield from itertools.islice(rows, read, None)

    def _order_key(self) -> int:
        """Returns a checksum of all that determines orders besides seed and epoch."""
        shards = [
            (s.entry.records, s.entry.bytes, s.entry.crc32c) for s in self._shards
        ]
        return crc32c(repr((self._block_rows, shards)).encode())

    def _checked_start(self, start: int) -> int:
        """Returns `start`; raises UsageError if an epoch cannot continue there."""
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
        return row_order(len(self), seed, epoch, block=self._block_rows)

    def _share(
        self, size: int, start: int, worker: int, num_workers: int, read: int = 0
    ) -> Iterator[tuple[int, int]]:
        require_whole(size=size, read=read)
        if size < 1:
            raise UsageError(f"batches of {size} rows: expected 1 row or more")
        require_share("worker", worker, "num_workers", num_workers)
        self._checked_start(start)
        share_options = {"start": start, "worker": worker, "num_workers": num_workers}
        return worker_batches(len(self), size, **share_options, read=read)

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
