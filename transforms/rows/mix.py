"""Samples rows from several datasets, in proportion to weights.

    photos, drawings = open_dataset("out/photos"), open_dataset("out/drawings")
    both = mix({photos: 0.7, drawings: 0.3}, seed=1)
    for batch in both.numpy_batches(64, epoch=0):
        step(batch["image"], batch["label"])

The dataset of each row, and the row's number in it, depend only on the seed and the
epoch. So workers can share a mix, and it can continue at a row, like a dataset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import compare_schemas
from recordmill.transforms.arrow import I64
from recordmill.transforms.rows.open_dataset import (
    Dataset,
    Order,
    Row,
    check_row_numbers,
    generator,
    row_order,
    shuffled_blocks,
)
from recordmill.transforms.tfrecord import crc32c

_RING_BLOCK = 128  # rows per block in the ring of a local dataset
_MOST_ROWS = 1 << 32  # most rows of an epoch, whose numbers are in memory

StoppingStrategy = Literal["first_exhausted", "all_exhausted"]


def mix(
    weights: Mapping[Dataset, float],
    *,
    seed: int,
    stopping_strategy: StoppingStrategy = "first_exhausted",
) -> Mix:
    """Returns a dataset that samples rows from several datasets.

    Args:
      weights: datasets with their weights, any positive numbers. The datasets must have
        the same features.
      seed: seed of the samples and of each dataset's order; a reader can override it.
      stopping_strategy: the end of an epoch. "first_exhausted": the epoch ends with the
        last row of the first exhausted dataset, so no row is repeated. The next epoch
        continues with the following rows of the other datasets. "all_exhausted": the
        epoch ends with the last row of the last exhausted dataset; the other datasets
        start over meanwhile.

    Raises:
      UsageError: a weight is not positive; a dataset has no rows, other features or other
        options than the first dataset, or is compressed; or the strategy is unknown.
    """
    if stopping_strategy not in get_args(StoppingStrategy):
        raise UsageError(
            f"stopping_strategy={stopping_strategy!r}: expected one of "
            f"{', '.join(get_args(StoppingStrategy))}"
        )
    if not isinstance(weights, Mapping) or not weights:
        raise UsageError(
            "mix: expected one dataset or more, like {data: 0.7, other: 0.3}"
        )
    generator(seed, 0)
    first = next(iter(weights))
    for number, (data, weight) in enumerate(weights.items(), 1):
        if problem := _problem(first, data, weight):
            raise UsageError(f"mix: dataset {number} of {len(weights)}: {problem}")
    sizes = np.array([*map(len, weights)])
    shares = np.array([*weights.values()], np.float64)
    ends_first = stopping_strategy == "first_exhausted"
    with np.errstate(over="ignore"):  # tiny weights are refused below
        epoch_sizes = sizes / shares
        exact = shares * (epoch_sizes.min() if ends_first else epoch_sizes.max())
    if not (exact.min() >= 0.5 and exact.sum() <= _MOST_ROWS):
        raise UsageError(
            f"mix: weights from {shares.min():g} to {shares.max():g} draw "
            f"{exact.min():g} rows of a dataset in an epoch of {exact.sum():g}; "
            f"expected at least 0.5 of at most {_MOST_ROWS:g}. Use weights that differ "
            "less"
        )
    draws = np.rint(exact)
    draws = np.maximum(1, np.minimum(draws, sizes) if ends_first else draws)
    return Mix(tuple(weights), draws.astype(np.int64).tolist(), seed)


def _problem(first: Dataset, data: Dataset, weight: float) -> str:
    """Returns the reason why a dataset cannot be mixed with the first one, or ""."""
    if not isinstance(data, Dataset):
        return f"is {data!r}; expected what open_dataset returns"
    if not isinstance(weight, Real) or not 0 < weight < math.inf:
        return f"has the weight {weight!r}; expected a positive number"
    if not len(data):
        return "has no rows; leave it out"
    if isinstance(data, Mix):
        return "is a mix; pass the datasets in it, each with a weight"
    if data._is_packed:
        return (
            "its shards are compressed, so single rows cannot be read; convert it with "
            "`compression=none`"
        )
    if changes := compare_schemas(first.schema, data.schema):
        return (
            f"differs from the first one: {'; '.join(changes)}. Convert both with one "
            "`schema`"
        )
    compared = {
        "class_names": (data.class_names, first.class_names),
        "payload": (data._payload, first._payload),
        "images": (data._images, first._images),
        "fill": (data._fill_values, first._fill_values),
    }
    if different := [name for name, (own, others) in compared.items() if own != others]:
        return (
            f"differs from the first one in {different[0]}; convert both with one "
            "`schema`, and open both with the same `decode` and `fill`"
        )
    return ""


class Mix(Dataset):
    """A dataset of the rows that an epoch samples from several datasets.

    Its length is the number of rows of an epoch. Row numbers refer to epoch 0.
    """

    def __init__(
        self, members: Sequence[Dataset], draws: Sequence[int], seed: int
    ) -> None:
        """Stores the datasets, and the number of rows that an epoch samples from each."""
        first = members[0]
        super().__init__(
            [shard for member in members for shard in member._shards],
            first.schema,
            first._payload,
            first.class_names,
            decode=bool(first._images),
            fill=first._fill_values,
        )
        self._members, self._rows_per_epoch, self._seed = members, draws, seed
        # The size of a window depends on the sampled rows, not on the stored rows.
        mean = [sum(s.entry.bytes for s in m._shards) / len(m) for m in members]
        stored = np.average(mean, weights=[*map(len, members)])
        drawn = np.average(mean, weights=draws)
        self._window_rows = int(self._window_rows * stored / drawn)
        self._first_epoch: I64 | None = None

    def __len__(self) -> int:
        return sum(self._rows_per_epoch)

    def __iter__(self) -> Iterator[Row]:
        """Yields the rows of epoch 0."""
        return self.stream()

    def take(self, indices: Sequence[int] | npt.NDArray[np.integer]) -> pa.RecordBatch:
        """Returns the rows at these positions in epoch 0; see `Dataset.take`."""
        if self._first_epoch is None:
            self._first_epoch = self._order(None, 0)(0, len(self))
        places = check_row_numbers(np.asarray(indices, np.int64), len(self))
        return super().take(self._first_epoch[places])

    def _order_key(self) -> int:
        keys = [member._order_key() for member in self._members]
        return crc32c(repr((keys, self._rows_per_epoch, self._seed)).encode())

    def _order(self, seed: int | None, epoch: int) -> Order:
        """Returns the order of an epoch, as numbers of records.

        A dataset of 5 rows, of which an epoch samples 3, is a ring. An epoch takes the
        rows that follow the rows of the previous epoch, in its own order:

            ring       3 0 4 1 2
            epoch 0    0 4 3        epoch 1    3 1 2        epoch 2    4 1 0
        """
        seed = self._seed if seed is None else seed
        drawn = np.repeat(np.arange(len(self._rows_per_epoch)), self._rows_per_epoch)
        random = generator(seed, epoch, len(drawn))
        random.shuffle(drawn)
        numbers = np.empty(len(drawn), np.int64)
        first = 0
        for member_index, (data, count) in enumerate(
            zip(self._members, self._rows_per_epoch, strict=True)
        ):
            places = row_order(
                count, seed + member_index, epoch, block=data._block_rows
            )(0, count)
            fixed = np.random.default_rng(self._seed % (1 << 64))
            ring = shuffled_blocks(len(data), fixed, data._block_rows or _RING_BLOCK)
            numbers[drawn == member_index] = (
                first + ring[(epoch * count + places) % len(data)]
            )
            first += len(data)
        return lambda start, stop: numbers[start:stop]
