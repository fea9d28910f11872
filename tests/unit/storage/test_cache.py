"""The cache of a store: limited, shared by processes, whole after a kill."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from flaky_store import Flaky
from job_tools import IRIS, recordmill
from row_keys import keys_of

from recordmill import open_dataset, read_rows
from recordmill.schemas.errors import MissingFileError
from recordmill.transforms.storage import RemoteStore
from recordmill.transforms.storage.cache import PART_BYTES, CachedStore, with_cache

NAMES = [f"shard-{n}" for n in range(6)]


def content(number: int) -> bytes:
    return random.Random(number).randbytes(3 * PART_BYTES + 1000)


@pytest.fixture
def shards(flaky: Flaky) -> Flaky:
    for number, name in enumerate(NAMES):
        flaky.direct.put_bytes(content(number), name)
    return flaky


def held(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.iterdir() if len(p.name) == 32)


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 10), (5, 5), (PART_BYTES - 3, PART_BYTES + 3), (0, 1 << 30), (100, 3 << 20)],
)
def test_it_reads_as_the_store_does(
    shards: Flaky, tmp_path: Path, start: int, stop: int
) -> None:
    store = with_cache(shards.store, tmp_path / "a/cache", 1 << 30)
    stop = min(stop, len(content(0)))
    for _ in range(2):
        assert store.read_range(NAMES[0], start, stop) == content(0)[start:stop]
    before = shards.proxy.requests
    assert store.read_range(NAMES[0], start, stop) == content(0)[start:stop]
    assert shards.proxy.requests == before
    assert store.find("nothing") is None
    with pytest.raises(MissingFileError):
        store.read("nothing")


def test_the_least_recently_used_parts_go_first(shards: Flaky, tmp_path: Path) -> None:
    limit = 10 * PART_BYTES
    store = with_cache(shards.store, tmp_path, limit)
    for name in NAMES[:3]:  # 9 MiB, and a little
        store.read_range(name, 0, 3 * PART_BYTES)
    time.sleep(0.01)
    store.read_range(NAMES[0], 0, 3 * PART_BYTES)  # used again
    time.sleep(0.01)
    store.read_range(NAMES[3], 0, 3 * PART_BYTES)
    assert held(tmp_path) <= limit
    before = shards.proxy.requests
    store.read_range(NAMES[0], 0, 3 * PART_BYTES)
    store.read_range(NAMES[3], 0, 3 * PART_BYTES)
    assert shards.proxy.requests == before
    store.read_range(NAMES[1], 0, 3 * PART_BYTES)
    assert shards.proxy.requests > before


def test_a_limit_below_one_part_keeps_nothing(shards: Flaky, tmp_path: Path) -> None:
    store = with_cache(shards.store, tmp_path, 1000)
    assert store.read_range(NAMES[1], 0, 2000) == content(1)[:2000]
    assert held(tmp_path) == 0


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_part_is_read_again(
    shards: Flaky, tmp_path: Path, damage: str
) -> None:
    store = with_cache(shards.store, tmp_path, 1 << 30)
    store.read_range(NAMES[0], 0, 9)
    (part,) = (p for p in tmp_path.iterdir() if len(p.name) == 32)
    data = part.read_bytes()
    changed = bytes([data[0] ^ 1]) + data[1:]
    part.write_bytes({"cut": data[:-9], "changed": changed, "empty": b""}[damage])
    (tmp_path / "total").write_text("")
    assert store.read_range(NAMES[0], 0, 9) == content(0)[:9]
    assert part.read_bytes() == data


def read_for_ever(store: CachedStore, seed: int) -> None:
    draw = random.Random(seed)
    while True:
        number, start = draw.randrange(len(NAMES)), draw.randrange(3 * PART_BYTES)
        found = store.read_range(NAMES[number], start, start + 1000)
        assert found == content_of[number][start : start + 1000]


content_of = [content(number) for number in range(len(NAMES))]


def test_processes_that_are_killed_leave_nothing_half(
    shards: Flaky, tmp_path: Path
) -> None:
    limit = 9 * PART_BYTES
    store = with_cache(shards.direct, tmp_path, limit)
    context = multiprocessing.get_context("fork")
    draw = random.Random(3)
    readers: list[Any] = []
    for seed in range(30):
        readers.append(context.Process(target=read_for_ever, args=(store, seed)))
        readers[-1].start()
        time.sleep(draw.uniform(0, 0.3))
        if len(readers) == 3:
            killed = readers.pop(draw.randrange(3))
            assert killed.is_alive()  # what it read was right
            os.kill(killed.pid, signal.SIGKILL)
            killed.join()
        assert held(tmp_path) <= limit
    for reader in readers:
        assert reader.is_alive()
        reader.kill()
        reader.join()
    for number, name in enumerate(NAMES):
        size = len(content_of[number])
        assert store.read_range(name, 0, size) == content_of[number]
    assert held(tmp_path) <= limit
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_part_is_read_once_by_many(shards: Flaky, tmp_path: Path) -> None:
    """Who needs a part that another one reads waits for it."""
    shards.proxy.judge = lambda number, line: "delay"
    store = with_cache(shards.store, tmp_path, 1 << 30)
    context = multiprocessing.get_context("fork")
    readers = [
        context.Process(target=store.read_range, args=(NAMES[0], 0, 1000))
        for _ in range(4)
    ]
    before = shards.proxy.requests
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [reader.exitcode for reader in readers] == [0] * 4
    assert shards.proxy.requests - before == 1


def test_a_dataset_is_read_from_its_cache(flaky: Flaky, tmp_path: Path) -> None:
    place, options = flaky.direct.url, flaky.direct.options.to_dict()
    given = [
        x for n, v in options.items() for x in ("--storage-option", f"output:{n}={v}")
    ]
    job = ["convert", "csv", IRIS, place, "--shards", 2, "--index", *given]
    ran = recordmill(*job)
    assert ran.status == 0, ran.err
    expected = sorted(keys_of(read_rows(place, storage=options)))
    plain = open_dataset(place, storage=options)
    order = keys_of(plain.stream(seed=1, epoch=1))
    requests = []
    for _ in range(2):
        before = flaky.proxy.requests
        data = open_dataset(
            place, storage=flaky.options.to_dict(), cache=tmp_path / "cache"
        )
        assert isinstance(data._shards[0].store, RemoteStore)
        assert keys_of(data.stream(seed=1, epoch=1)) == order
        assert sorted(order) == expected
        requests.append(flaky.proxy.requests - before)
    assert requests[1] == requests[0] - 4  # two shards and their indexes
