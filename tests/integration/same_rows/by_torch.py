"""Read datasets with PyTorch's DataLoader, by number and as a stream.

python tests/integration/same_rows/by_torch.py CASES
"""

from collections.abc import Iterable, Iterator

import torch
from row_digest import Json, Row, cases, row_digest, told, unbatched
from torch.utils.data import DataLoader

from recordmill import TorchRows, open_dataset


def rows_of(data: object, workers: int) -> Iterator[Row]:
    """Yield rows as they are: a batch is a list of them."""
    loader: Iterable[list[Row]] = DataLoader(
        data, batch_size=7, num_workers=workers, collate_fn=list
    )
    for batch in loader:
        yield from batch


def shuffled(case: Json) -> Iterator[Row]:
    """Yield rows by PyTorch's own sampler."""
    loader: Iterable[list[Row]] = DataLoader(
        open_dataset(case["output"]), batch_size=7, shuffle=True, collate_fn=list
    )
    for batch in loader:
        yield from batch


def tensors(case: Json) -> Iterator[Row]:
    """Yield the rows of batches that PyTorch itself made of rows."""
    data = open_dataset(case["output"], decode=True)
    loader = DataLoader(data, batch_size=case["batch"], num_workers=2)
    for batch in loader:
        assert all(isinstance(value, torch.Tensor | list) for value in batch.values())
        yield from unbatched([batch])


def second_epoch(case: Json) -> Iterator[Row]:
    """Yield the rows of an epoch, in another order than in the one before."""
    rows = TorchRows(open_dataset(case["output"]), seed=1)
    first = [row_digest(row, case["features"]) for row in rows]
    rows.set_epoch(1)
    found = list(rows)
    assert [row_digest(row, case["features"]) for row in found] != first
    return iter(found)


def two_ranks(case: Json) -> Iterator[Row]:
    """Yield what two processes of a distributed run read, each with two workers."""
    data = open_dataset(case["output"])
    for rank in range(2):
        rows = TorchRows(data, seed=1, buffer=10, rank=rank, num_ranks=2)
        yield from rows_of(rows, 2)


for case in cases():
    data = open_dataset(case["output"])
    for workers in (0, 2):
        by_number = f"torch, by number, {workers} workers"
        told(case, by_number, lambda: rows_of(data, workers))  # noqa: B023
        rows = TorchRows(data, seed=1, buffer=10)
        stream = f"torch, stream, {workers} workers"
        told(case, stream, lambda: rows_of(rows, workers))  # noqa: B023
    told(case, "torch, shuffled", lambda: shuffled(case))  # noqa: B023
    told(case, "torch, second epoch", lambda: second_epoch(case))  # noqa: B023
    told(case, "torch, 2 ranks", lambda: two_ranks(case))  # noqa: B023
    if case["batch"]:
        told(case, "torch, tensors", lambda: tensors(case))  # noqa: B023
