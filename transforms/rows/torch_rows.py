"""Offers the rows of a dataset as an IterableDataset of PyTorch.

    rows = TorchRows(open_dataset("out/digits", "train"), seed=1)
    for epoch in range(2):
        rows.set_epoch(epoch)
        for batch in DataLoader(rows, batch_size=32, num_workers=2):
            step(batch["image"], batch["label"])

A DataLoader also takes what open_dataset returns, and then asks for rows by number: with a
sampler of its own, and not of compressed shards.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import IterableDataset, get_worker_info

from recordmill.transforms.rows.open_dataset import Dataset, Row
from recordmill.transforms.rows.read_rows import require_share


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
    ) -> None:
        """Stores the arguments; nothing is read.

        Args:
          data: what open_dataset returns.
          seed: of the order; None reads the rows as they lie.
          buffer: rows of compressed shards that each worker mixes.
          rank: which process of a distributed run this is, from 0.
          num_ranks: how many there are; each reads its share of the rows.

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
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, before a loader begins it: each has another order.

        Workers that the loader keeps (`persistent_workers`) do not hear of it.
        """
        self._epoch = epoch

    def __iter__(self) -> Iterator[Row]:
        """Yields the rows of this process and this worker."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        return self._data.stream(
            seed=self._seed,
            epoch=self._epoch,
            buffer=self._buffer,
            worker=self._rank * workers + worker,
            num_workers=self._num_ranks * workers,
        )
