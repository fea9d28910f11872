"""Measure shuffled epochs of a dataset: local, and in a store that takes 50 ms a request.

    python tests/bench/store_reading.py DATASET [--decode] [--rounds 3] [--cache FOLDER]

Prints of each the median of the rounds: rows a second, their share of the local rate, and
processor time a row of the reader, without that of the server.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from recordmill import Dataset, open_dataset

SECONDS = 0.05


def rate(data: Dataset, epoch: int) -> tuple[float, float]:
    """Returns rows a second, and processor seconds a row."""
    started, used = time.perf_counter(), time.process_time()
    rows = sum(
        len(next(iter(batch.values())))
        for batch in data.numpy_batches(64, seed=1, epoch=epoch)
    )
    seconds = time.process_time() - used
    return rows / (time.perf_counter() - started), seconds / rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    folder = given.dataset.absolute()
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    server = Path(__file__).with_name("slow_store.py")
    command = [sys.executable, str(server), str(folder.parents[1]), str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout
        address = f"http://127.0.0.1:{int(serving.stdout.readline())}"
        how: dict[str, Any] = {"decode": given.decode}
        url = f"s3://{folder.parent.name}/{folder.name}"
        remote = {"storage": {"endpoint_url": address}, **how}
        readers = {"local": open_dataset(folder, **how)}
        readers["store"] = open_dataset(url, **remote)
        if given.cache:
            readers["cache"] = open_dataset(url, cache=given.cache, **remote)
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in readers}
        for epoch in range(given.rounds):
            for name, data in readers.items():
                rates[name].append(rate(data, epoch))
        serving.terminate()
    middle = {
        name: [statistics.median(values) for values in zip(*found, strict=True)]
        for name, found in rates.items()
    }
    for name, (rows, seconds) in middle.items():
        share = rows / middle["local"][0]
        print(
            f"{name}: {rows:,.0f} rows/s, {share:.0%} of local; {seconds * 1e6:,.0f} us/row"
        )


if __name__ == "__main__":
    main()
