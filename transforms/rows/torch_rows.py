"""Provides a resumable IterableDataset of PyTorch for the rows of a dataset.

    rows = TorchRows(open_dataset("out/digits", "train"), seed=1, batch_size=32)
    for epoch in range(2):
        rows.set_epoch(epoch)
        for batch in DataLoader(rows, batch_size=32, num_workers=2):
            step(batch["image"], batch["label"])

A DataLoader also accepts a Dataset from open_dataset. It then requests rows by number,
with its own sampler, which does not work with compressed shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from recordmill.schemas.errors import UsageError
from recordmill.transforms.rows.open_dataset import STREAM_ROWS, Dataset, Row
from recordmill.transforms.rows.read_rows import require_share, require_whole

# The rank and the worker that read each batch of an epoch; 2 ranks with 2 workers each:
#
#     batch       0   1   2   3   4   5
#     rank        0   1   0   1   0   1
#     worker      0   0   1   1   0   0
#
# A loader takes a batch from each of its workers in turn. So after each rank has consumed
# n batches, the first 2 n batches of the epoch are consumed, for any number of workers.


_NOT_TAKEN, _MAIN_PROCESS, _EXPIRED = (
    -1,
    -2,
    -3,
)  # taker of a loaded state, or the seed of a pass


class _PassStart(NamedTuple):
    """The position at which a pass begins."""

    epoch: int
    start: int = 0  # rows of the epoch that all workers had consumed at the start
    read: int = 0  # rows that this worker had consumed since


class TorchRows(IterableDataset):  # type: ignore[misc]  # torch is not installed here
    """The rows of a dataset, each once per epoch, shared by the loader's workers."""

    def __init__(
        self,
        data: Dataset,
        *,
        seed: int | None = None,
        buffer: int = 10_000,
        rank: int = 0,
        num_ranks: int = 1,
        batch_size: int | None = None,
    ) -> None:
        """Stores the arguments; nothing is read.

        Args:
          data: a dataset from open_dataset or mix.
          seed: seed of the order; None keeps the stored order.
          buffer: number of rows of compressed shards that each worker mixes.
          rank: index of this process in a distributed run, from 0.
          num_ranks: number of processes; each reads its share of the rows.
          batch_size: batch size of the loader, so that its batches are the same for any
            number of workers; required for `state`.

        Raises:
          UsageError: the rank is out of range.
        """
        super().__init__()
        require_share("rank", rank, "num_ranks", num_ranks)
        require_whole(batch_size=batch_size or 0, buffer=buffer)
        self._data = data
        self._seed = seed
        self._buffer = buffer
        self._rank = rank
        self._num_ranks = num_ranks
        self._batch_size = batch_size
        self._epoch = 0
        # from a state, until a pass takes it
        self._loaded_start: _PassStart | None = None
        self._taker_seed: Any = None  # the pass that took it; shared by all copies
        # start of this copy's pass, in its worker
        self._pass_start: _PassStart | None = None
        # rows that this copy has yielded since the loader's start
        self._num_rows_read = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, before a loader begins it; each epoch has another order.

        The epoch of a loaded state continues at the state's position; another epoch
        begins at its first row. It has no effect in workers that the loader keeps
        (`persistent_workers`).
        """
        if self._loaded_start and epoch != self._loaded_start.epoch:
            self._loaded_start = None
        self._epoch, self._pass_start = epoch, None

    def __iter__(self) -> Iterator[Row]:
        """Returns the rows of this process and this worker."""
        # Begins immediately, as a loader may drop an iterator before it requests a row.
        self._pass_start = place = self._take_place()
        self._num_rows_read = place.read
        rows = self._data.stream(seed=self._seed, **place._asdict(), **self._share())
        return self._count_rows(rows)

    def _count_rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._num_rows_read += 1
            yield row

    def _take_place(self) -> _PassStart:
        """Returns the start of a pass; only the first pass begins at a loaded state.

        Each worker has a copy of this object. A copy in the next pass must know that the
        state was taken. All workers of a pass, and no others, have the same seed.
        """
        place, self._loaded_start = self._loaded_start, None
        if place:
            worker_info = get_worker_info()
            me = worker_info.seed - worker_info.id if worker_info else _MAIN_PROCESS
            if int(self._taker_seed) not in (_NOT_TAKEN, me):
                me, place = _EXPIRED, None
            self._taker_seed.fill_(me)
        return place or _PassStart(self._epoch)

    def _place(self) -> _PassStart:
        """Returns the start of the current pass, or of the next one."""
        loaded = (
            self._loaded_start
            if self._loaded_start and int(self._taker_seed) != _EXPIRED
            else None
        )
        return self._pass_start or loaded or _PassStart(self._epoch)

    def state(self, rows_consumed: int) -> dict[str, int | None]:
        """Returns the state after some rows, with which any number of workers can continue.

        `batch_size` must be the batch size of the loader. The state can be written as
        JSON.

        Args:
          rows_consumed: number of rows from the loader of this process since its start.

        Raises:
          UsageError: the shards are compressed; the batch size is missing; the rows end
            within a batch; or the loader began at a state of `state_dict`.
        """
        epoch, began, read = self._place()
        size, ranks, count = self._batch_size, self._num_ranks, len(self._data)
        require_whole(rows_consumed=rows_consumed)
        if size is None or read:
            raise UsageError(
                "state: this loader started from a state of StatefulDataLoader; get the next state from StatefulDataLoader"
                if read
                else "state: pass the `batch_size` of the loader to TorchRows"
            )
        place = began + -(-rows_consumed // size) * size * ranks
        if rows_consumed % size and place < count:
            raise UsageError(
                f"state after {rows_consumed} rows: expected whole batches of "
                f"`batch_size={size}` rows, as in the loader, from each rank"
            )
        return self._state(epoch, self._data._checked_start(min(place, count)))

    def state_dict(self) -> dict[str, int | None]:
        """Returns the state of this copy, in its worker, for StatefulDataLoader."""
        epoch, start, _ = self._place()
        return {
            **self._state(epoch, start),
            **self._share(),
            "read": self._num_rows_read,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads a state: only the next pass of a loader begins there.

        Args:
          state: from `state`, for any number of workers; or from `state_dict`, for the
            same worker among the same number of workers.

        Raises:
          UsageError: the state belongs to another dataset, order or worker, or is
            invalid.
        """
        lacks = [name for name in self._state(0, 0) if name not in state]
        if lacks:
            raise UsageError(
                f"state: lacks {', '.join(map(repr, lacks))}; expected what "
                "`state(rows_consumed)` returned"
            )
        expected = self._state(0, 0) | (self._share() if "read" in state else {})
        for name in expected.keys() - {"epoch", "start"}:
            if state.get(name) != expected[name]:
                raise UsageError(
                    f"state: {name!r} is {state.get(name)}, expected {expected[name]}; "
                    "open the same dataset, with the same seed, buffer, ranks and "
                    "batch size. Only the result of `state(rows_consumed)` works with "
                    "any number of workers"
                )
        place = _PassStart(state["epoch"], state["start"], state.get("read", 0))
        require_whole(**place._asdict())
        self._data._checked_start(place.start)
        self._loaded_start, self._pass_start, self._num_rows_read = (
            place,
            None,
            place.read,
        )
        self._taker_seed = torch.full((), _NOT_TAKEN).share_memory_()

    def _state(self, epoch: int, start: int) -> dict[str, int | None]:
        return {
            "data": self._data._order_key(),
            "seed": self._seed,
            "epoch": epoch,
            "start": start,
        }

    def _share(self) -> dict[str, int]:
        """Returns the share of rows of the current worker of the loader."""
        worker_info = get_worker_info()
        worker, num_workers = (
            (worker_info.id, worker_info.num_workers) if worker_info else (0, 1)
        )
        return {
            "worker": worker * self._num_ranks + self._rank,
            "num_workers": num_workers * self._num_ranks,
            "size": self._batch_size or STREAM_ROWS,
            "buffer": self._buffer,
        }
