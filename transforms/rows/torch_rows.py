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
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from recordmill.schemas.errors import UsageError
from recordmill.transforms.rows.open_dataset import STREAM_ROWS, Dataset, Row
from recordmill.transforms.rows.read_rows import require_share

# Which worker of which rank reads batch 0, 1, 2, ... of an epoch; 2 ranks, 2 workers each:
#
#     batch       0   1   2   3   4   5
#     rank        0   1   0   1   0   1
#     worker      0   0   1   1   0   0
#
# A loader takes a batch from each of its workers in turn. So when each rank has consumed n
# batches, these are the first 2 n of the epoch, for any number of workers.


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
        batch_size: int = STREAM_ROWS,
    ) -> None:
        """Stores the arguments; nothing is read.

        Args:
          data: what open_dataset or mix returns.
          seed: of the order; None reads the rows as they lie.
          buffer: rows of compressed shards that each worker mixes.
          rank: which process of a distributed run this is, from 0.
          num_ranks: how many there are; each reads its share of the rows.
          batch_size: that of the loader, so that its batches are the same for any number
            of workers.

        Raises:
          UsageError: there is no such rank.
        """
        super().__init__()
        require_share("rank", rank, "num_ranks", num_ranks)
        self._data = data
        self._seed = seed
        self._buffer = buffer
        self._rank = rank
        self._num_ranks = num_ranks
        self._batch_size = batch_size
        self._epoch = 0
        self._start = 0  # rows of the epoch that all had consumed when the loader began
        self._read = 0  # rows that this copy, in its worker, has given since
        self._to_skip = 0  # of its share, when it begins

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, before a loader begins it: each has another order.

        The epoch of a loaded state continues where the state was made; another one begins
        at its first row. Workers that the loader keeps (`persistent_workers`) do not hear
        of it.
        """
        if epoch != self._epoch:
            self._epoch, self._start, self._to_skip = epoch, 0, 0

    def __iter__(self) -> Iterator[Row]:
        """Yields the rows of this process and this worker."""
        self._read, self._to_skip = self._to_skip, 0
        rows = self._data.stream(
            seed=self._seed,
            epoch=self._epoch,
            buffer=self._buffer,
            start=self._start,
            read=self._read,
            **self._share(),
        )
        for row in rows:
            self._read += 1
            yield row

    def state(self, rows_consumed: int) -> dict[str, int | None]:
        """Returns the state after some rows, with which any number of workers can continue.

        With several workers, `batch_size` must be that of the loader. It can be written as
        JSON.

        Args:
          rows_consumed: rows that the loader of this process gave since it began.

        Raises:
          UsageError: the shards are compressed; or of several ranks, the rows end amid a
            batch, so that the others must have stopped elsewhere.
        """
        size, ranks, count = self._batch_size, self._num_ranks, len(self._data)
        place = self._start + rows_consumed
        if ranks > 1:
            place = self._start + -(-rows_consumed // size) * size * ranks
            if rows_consumed % size and place < count:
                raise UsageError(
                    f"state after {rows_consumed} rows: expected whole batches of "
                    f"`batch_size={size}` rows, as num_ranks={ranks}"
                )
        return self._state(self._data.checked_start(min(place, count)))

    def state_dict(self) -> dict[str, int | None]:
        """Returns the state of this copy, in its worker; StatefulDataLoader asks for it."""
        return {**self._state(self._start), **self._share(), "read": self._read}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at a state: the epoch's next loader begins there.

        Args:
          state: of `state`, for any number of workers; or of `state_dict`, for the same
            worker of as many.

        Raises:
          UsageError: the state is of another dataset, order or worker.
        """
        expected = self._state(0) | (self._share() if "read" in state else {})
        for name in expected.keys() - {"epoch", "start"}:
            if state.get(name) != expected[name]:
                raise UsageError(
                    f"state: {name!r} is {state.get(name)}, expected {expected[name]}; "
                    "open the same dataset, with the same seed, ranks and batch size. "
                    "Only what `state(rows_consumed)` returns is for any number of workers"
                )
        self._epoch, self._start = state["epoch"], state["start"]
        self._to_skip = self._read = state.get("read", 0)

    def _state(self, start: int) -> dict[str, int | None]:
        return {
            "data": self._data.order_key(),
            "seed": self._seed,
            "epoch": self._epoch,
            "start": start,
        }

    def _share(self) -> dict[str, int]:
        """Returns the share of the loader's worker that calls this."""
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info else (0, 1)
        return {
            "worker": worker * self._num_ranks + self._rank,
            "num_workers": num_workers * self._num_ranks,
            "size": self._batch_size,
        }
