"""Read with a DataLoader that is killed again and again, and continue by its state.

python killed_reader.py DATASET DATASET FOLDER KILLS

Prints the numbers of the rows that were read, and those of a reader that nobody killed.
"""

import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from torch.utils.data import DataLoader

from recordmill import TorchRows, mix, open_dataset

SIZE = 8
one, other, folder, kills = sys.argv[1:]
log, note = Path(folder, "log"), Path(folder, "state.json")


def new_rows() -> TorchRows:
    data = mix({open_dataset(one): 2, open_dataset(other): 1}, seed=1)
    return TorchRows(data, seed=5, batch_size=SIZE)


def read(num_workers: int) -> None:
    """Read on and on: as a training loop, whose model is the log."""
    rows, length = new_rows(), 0
    first = 0
    if note.exists():
        found = json.loads(note.read_text())
        rows.load_state_dict(found["state"])
        first, length = found["state"]["epoch"], found["length"]
    with log.open("r+b") as file:
        file.truncate(length)
        file.seek(length)
        for epoch in count(first):
            rows.set_epoch(epoch)
            consumed = 0
            for batch in DataLoader(rows, SIZE, num_workers=num_workers):
                file.write("".join(f"{n}\n" for n in batch["id"].tolist()).encode())
                file.flush()
                consumed += len(batch["id"])
                state = {"state": rows.state(consumed), "length": file.tell()}
                note.with_suffix(".new").write_text(json.dumps(state))
                note.with_suffix(".new").replace(note)
                time.sleep(0.005)


log.touch()
draw = random.Random(7)
for _ in range(int(kills)):
    child = os.fork()
    if child == 0:
        os.setsid()
        read(draw.randrange(4))
    draw.randrange(4)  # what the child has drawn
    time.sleep(draw.uniform(0.05, 0.5))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # workers of its loader

found = json.loads(note.read_text())
seen = [int(line) for line in log.read_bytes()[: found["length"]].split()]
expected: list[int] = []
rows = new_rows()
for epoch in range(found["state"]["epoch"] + 1):
    rows.set_epoch(epoch)
    expected += [n for batch in DataLoader(rows, SIZE) for n in batch["id"].tolist()]
print(json.dumps({"seen": seen, "expected": expected}))
