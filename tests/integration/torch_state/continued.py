"""Continue the rows of a dataset at every batch, by both kinds of state.

python continued.py PLAIN GZIP

Prints a line of JSON for each way: the rows before the state, behind it, and all of them.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from recordmill import TorchRows, open_dataset
from recordmill.schemas.errors import UsageError

SIZE = 16
plain, zipped = map(open_dataset, sys.argv[1:])


def new_rows(data: Any, **how: int) -> TorchRows:
    rows = TorchRows(data, seed=3, batch_size=SIZE, **how)
    rows.set_epoch(2)
    return rows


def numbers(batches: Iterable[Any]) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def told(way: str, stop: int, *parts: list[list[int]]) -> None:
    flat = [[*chain.from_iterable(part)] for part in parts]
    print(json.dumps([way, stop, *flat]))


def refusal(call: Any) -> str:
    try:
        call()
    except UsageError as error:
        return str(error)
    return ""


def stateful(data: Any, workers: int, size: int) -> StatefulDataLoader:
    return StatefulDataLoader(new_rows(data), size, num_workers=workers)


for name, data in (("plain", plain), ("gzip", zipped)):
    for workers, size in ((0, SIZE), (2, SIZE), (2, 10)):
        whole = numbers(stateful(data, workers, size))
        for stop in range(1, len(whole), 2):
            loader = stateful(data, workers, size)
            before = numbers(islice(loader, stop))
            again = stateful(data, workers, size)
            again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            way = f"stateful, {name}, {workers} workers, batches of {size}"
            told(way, stop, before, numbers(again), whole)

whole = numbers(DataLoader(new_rows(plain), SIZE))
for stop in range(len(whole) + 1):
    before = numbers(islice(DataLoader(new_rows(plain), SIZE, num_workers=2), stop))
    for workers in (0, 1, 3):
        rows = new_rows(plain)
        rows.load_state_dict(new_rows(plain).state(sum(map(len, before))))
        rows.set_epoch(2)  # the loop of a program sets it in any case
        after = numbers(DataLoader(rows, SIZE, num_workers=workers))
        told(f"state, {workers} workers", stop, before, after, whole)


def in_turn(parts: list[list[list[int]]]) -> Iterator[list[int]]:
    """Yield a batch of each rank, and again."""
    for n in range(max(map(len, parts))):
        yield from (part[n] for part in parts if n < len(part))


before_ranks = [
    numbers(
        islice(DataLoader(new_rows(plain, rank=k, num_ranks=2), SIZE, num_workers=2), 3)
    )
    for k in range(2)
]
state = new_rows(plain, rank=1, num_ranks=2).state(3 * SIZE)
after_ranks = []
for k in range(3):
    rows = new_rows(plain, rank=k, num_ranks=3)
    rows.load_state_dict(state)
    after_ranks.append(numbers(DataLoader(rows, SIZE, num_workers=k)))
told("2 ranks, then 3", 3, [*in_turn(before_ranks)], [*in_turn(after_ranks)], whole)

rows = new_rows(plain)
rows.load_state_dict(rows.state(96))
rows.set_epoch(3)
fresh = TorchRows(plain, seed=3, batch_size=SIZE)
fresh.set_epoch(3)
third = numbers(DataLoader(fresh, SIZE))
told("the next epoch is whole", 0, [], numbers(DataLoader(rows, SIZE)), third)

# What a loaded state does to the passes that follow, without set_epoch in between.
whole = numbers(DataLoader(TorchRows(plain, seed=3, batch_size=SIZE), SIZE))
for workers, persistent in ((0, False), (2, False), (2, True)):
    rows = TorchRows(plain, seed=3, batch_size=SIZE)
    rows.load_state_dict(rows.state(96))
    passes = DataLoader(rows, SIZE, num_workers=workers, persistent_workers=persistent)
    way = f"the pass after, {workers} workers, {persistent}"
    told(way, 6, whole[:6], numbers(passes), whole)
    told(way, 6, [], numbers(passes), whole)
    if workers == 2 and not persistent:
        assert rows.state(16) == TorchRows(plain, seed=3, batch_size=SIZE).state(16)
for workers in (0, 2):
    for data in (plain, zipped):
        rows = TorchRows(data, seed=3, batch_size=SIZE)
        loader = StatefulDataLoader(rows, SIZE, num_workers=workers)
        numbers(loader)
        state = json.loads(json.dumps(loader.state_dict()))
        rows.set_epoch(1)
        whole = numbers(loader)
        rows = TorchRows(data, seed=3, batch_size=SIZE)
        loader = StatefulDataLoader(rows, SIZE, num_workers=workers)
        loader.load_state_dict(state)
        rows.set_epoch(1)
        told("after the end of an epoch", workers, [], numbers(loader), whole)

restored = new_rows(plain)
restored.load_state_dict(new_rows(plain).state_dict() | {"read": 16})
other_seed = TorchRows(plain, seed=4, batch_size=10).state(10)
of_two = next(iter(StatefulDataLoader(new_rows(plain), SIZE, num_workers=0)))
loader = stateful(plain, 0, SIZE)
next(iter(loader))
worker_state = new_rows(plain).state_dict() | {"num_workers": 2}
print(
    json.dumps(
        [
            refusal(lambda: new_rows(plain).load_state_dict(other_seed)),
            refusal(lambda: new_rows(plain).load_state_dict(worker_state)),
            refusal(
                lambda: new_rows(zipped).load_state_dict(new_rows(plain).state(16))
            ),
            refusal(lambda: new_rows(zipped).state(16)),
            refusal(lambda: new_rows(plain, num_ranks=2).state(9)),
            refusal(lambda: new_rows(plain).state(9)),
            refusal(lambda: new_rows(plain).state(-9)),
            refusal(lambda: TorchRows(plain).state(32)),
            refusal(lambda: new_rows(plain).load_state_dict({})),
            refusal(
                lambda: TorchRows(
                    zipped, seed=3, batch_size=SIZE, buffer=7
                ).load_state_dict(new_rows(zipped).state_dict())
            ),
            refusal(lambda: restored.state(16)),
        ]
    )
)
