"""Offers the rows of a dataset as an IterableDataset of PyTorch, which continues by a state.

    rows = TorchRows(open_dataset("out/digits", "train"), seed=1, batch_size=32)
    for epoch in range(2):
        rows.set_epoch(epoch)
        for batch in DataLoader(rows, batch_size=32, num_workers=2):
            step(batch["image"], batch["label"])

A DataLoader also takes what open_dataset returns, and then asks for rows by number: with a
sampler of its own, and not of compressed shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from recordmill.schemas.errors import UsageError
from recordmill.transforms.rows.open_dataset import STREAM_ROWS, Dataset, Row
from recordmill.transforms.rows.read_rows import require_share, require_whole

# Which worker of which rank reads batch 0, 1, 2, ... of an epoch; 2 ranks, 2 workers each:
#
#     batch       0   1   2   3   4   5
#     rank        0   1   0   1   0   1
#     worker      0   0   1   1   0   0
#
# A loader takes a batch from each of its workers in turn. So when each rank has consumed n
# batches, these are the first 2 n of the epoch, for any number of workers.


_NOBODY, _HERE, _OVER = -1, -2, -3  # who has taken a loaded state: else a pass's seed


class _Place(NamedTuple):
    """Where a pass begins."""

    epoch: int
    start: int = 0  # rows of the epoch that all had consumed when the loader began
    read: int = 0  # rows that this worker had consumed since


class TorchRows(IterableDataset):  # type: ignore[misc]  # torch is not installed here
    """The rows of a dataset, each once in an epoch, shared by the loader's workers."""

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
          data: what open_dataset or mix returns.
          seed: of the order; None reads the rows as they lie.
          buffer: rows of compressed shards that each worker mixes.
          rank: which process of a distributed run this is, from 0.
          num_ranks: how many there are; each reads its share of the rows.
          batch_size: that of the loader, so that its batches are the same for any number
            of workers; `state` needs it.

        Raises:
          UsageError: there is no such rank.
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
        self._loaded: _Place | None = None  # of a state, until a pass takes it
        self._taker: Any = None  # by whom; all copies of this share it
        self._begun: _Place | None = None  # by this copy, in its worker
        self._read = 0  # rows that it has given since the loader began

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, before a loader begins it: each has another order.

        The epoch of a loaded state continues where the state was made; another one begins
        at its first row. Workers that the loader keeps (`persistent_workers`) do not hear
        of it.
        """
        if self._loaded and epoch != self._loaded.epoch:
            self._loaded = None
        self._epoch, self._begun = epoch, None

    def __iter__(self) -> Iterator[Row]:
        """Returns the rows of this process and this worker."""
        # Begins at once, as a loader may drop an iterator before it asks for a row.
        self._begun = place = self._take_place()
        self._read = place.read
        rows = self._data.stream(seed=self._seed, **place._asdict(), **self._share())
        return self._counted(rows)

    def _counted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._read += 1
            yield row

    def _take_place(self) -> _Place:
        """Returns where a pass begins; only the first one begins at a loaded state.

        Its workers have copies of this, which a copy in the next pass must know of. All
        workers of a pass, and no others, have one seed.
        """
        place, self._loaded = self._loaded, None
        if place:
            info = get_worker_info()
            me = info.seed - info.id if info else _HERE
            if int(self._taker) not in (_NOBODY, me):
                me, place = _OVER, None
            self._taker.fill_(me)
        return place or _Place(self._epoch)

    def _place(self) -> _Place:
        """Returns where the pass of now began, or the next one will."""
        loaded = self._loaded if self._loaded and int(self._taker) != _OVER else None
        return self._begun or loaded or _Place(self._epoch)

    def state(self, rows_consumed: int) -> dict[str, int | None]:
        """Returns the state after some rows, with which any number of workers can continue.

        `batch_size` must be that of the loader. The state can be written as JSON.

        Args:
          rows_consumed: rows that the loader of this process gave since it began.

        Raises:
          UsageError: the shards are compressed; no batch size; the rows end amid a batch;
            or the loader began at a state of its own.
        """
        epoch, began, read = self._place()
        size, ranks, count = self._batch_size, self._num_ranks, len(self._data)
        require_whole(rows_consumed=rows_consumed)
        if size is None or read:
            raise UsageError(
                "state: this loader began at a state of StatefulDataLoader; ask it for the next"
                if read
                else "state: give TorchRows the `batch_size` of the loader"
            )
        place = began + -(-rows_consumed // size) * size * ranks
        if rows_consumed % size and place < count:
            raise UsageError(
                f"state after {rows_consumed} rows: expected whole batches of "
                f"`batch_size={size}` rows, that of the loader, from each rank"
            )
        return self._state(epoch, self._data._checked_start(min(place, count)))

    def state_dict(self) -> dict[str, int | None]:
        """Returns the state of this copy, in its worker; StatefulDataLoader asks for it."""
        epoch, start, _ = self._place()
        return {**self._state(epoch, start), **self._share(), "read": self._read}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at a state: the next pass of a loader begins there, and no other.

        Args:
          state: of `state`, for any number of workers; or of `state_dict`, for the same
            worker of as many.

        Raises:
          UsageError: the state is of another dataset, order or worker, or is none.
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
                    "open the same dataset, with the same seed, buffer, ranks and batch "
                    "size. Only what `state(rows_consumed)` returns is for any number of "
                    "workers"
                )
        place = _Place(state["epoch"], state["start"], state.get("read", 0))
        require_whole(**place._asdict())
        self._data._checked_start(place.start)
        self._loaded, self._begun, self._read = place, None, place.read
        self._taker = torch.full((), _NOBODY).share_memory_()

    def _state(self, epoch: int, start: int) -> dict[str, int | None]:
        return {
            "data": self._data._order_key(),
            "seed": self._seed,
            "epoch": epoch,
            "start": start,
        }

    def _share(self) -> dict[str, int]:
        """Returns the share of the loader's worker that calls this."""
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info else (0, 1)
        return {
            "worker": worker * self._num_ranks + self._rank,
            "num_workers": num_workers * self._num_ranks,
            "size": self._batch_size or STREAM_ROWS,
            "buffer": self._buffer,
        }
