"""The cache of a store: limited, shared by processes, whole after a kill."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from example_counts import FACTOR, steps_to_kill_at, thinned
from flaky_store import Flaky
from job_tools import IRIS, recordmill
from row_keys import keys_of
from watched_tree import unchanged

from recordmill import open_dataset, read_rows
from recordmill.schemas.errors import CorruptRecordError, MissingFileError, UsageError
from recordmill.transforms.storage import RemoteStore, Store, open_store
from recordmill.transforms.storage.cache import PART_BYTES, with_cache
from recordmill.transforms.tfrecord import crc32c

NAMES = [f"shard-{n}" for n in range(6)]


def content(number: int) -> bytes:
    return random.Random(number).randbytes(3 * PART_BYTES + 1000)


@pytest.fixture
def shards(flaky: Flaky) -> Flaky:
    for number, name in enumerate(NAMES):
        flaky.direct.put_bytes(content(number), name)
    return flaky


def parts(folder: Path) -> list[Path]:
    return [p for p in folder.glob("recordmill-parts/*") if len(p.name) == 32]


def held(folder: Path) -> int:
    """Returns the bytes of the parts, also while readers remove some."""
    total = 0
    for path in parts(folder):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


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
    assert store.read_if_exists("nothing") is None
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
    """And takes nothing away from others that use the folder."""
    with_cache(shards.store, tmp_path, 1 << 30).read_range(NAMES[0], 0, 9)
    before = held(tmp_path)
    store = with_cache(shards.store, tmp_path, 1000)
    assert store.read_range(NAMES[1], 0, 2000) == content(1)[:2000]
    assert held(tmp_path) == before > PART_BYTES


def test_only_its_own_files_go(shards: Flaky, tmp_path: Path) -> None:
    """Of the folder that is named, and of its own one."""
    inner = tmp_path / "recordmill-parts"
    for folder in (tmp_path, inner):
        (folder / "lost+found").mkdir(parents=True)
        os.utime(folder / "lost+found", (1, 1))
        (folder / "thesis.docx").write_bytes(bytes(1000))
        os.utime(folder / "thesis.docx", (1, 1))
    store = with_cache(shards.store, tmp_path, 3 * PART_BYTES)
    for name in NAMES:
        store.read_range(name, 0, 2 * PART_BYTES)
    assert 0 < held(tmp_path) <= 3 * PART_BYTES
    for folder in (tmp_path, inner):
        assert (folder / "lost+found").is_dir()
        assert (folder / "thesis.docx").stat().st_size == 1000
    before = shards.proxy.requests
    store.read_range(NAMES[-1], PART_BYTES, 2 * PART_BYTES)
    assert shards.proxy.requests == before  # the last ones are kept


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def not_ours(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def read_only(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.parametrize(
    ("target", "fault", "warns"),
    [
        ("os.utime", not_ours, False),
        ("fcntl.flock", no_locks, False),
        ("pathlib.Path.write_bytes", no_room, True),
        ("os.mkdir", read_only, True),
        ("os.fdopen", not_ours, False),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_reading_continues_where_the_folder_fails(
    shards: Flaky,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    fault: Any,
    warns: bool,
    warm: bool,
) -> None:
    store = with_cache(shards.store, tmp_path, 1 << 30)
    if warm:
        store.read_range(NAMES[0], 0, 9)
    before = shards.proxy.requests
    monkeypatch.setattr(target, fault)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert store.read_range(NAMES[0], 0, 9) == content_of[0][:9]
    unread = "fdopen" in target
    assert shards.proxy.requests == before + (not warm or unread)
    told = [one for one in found if "cannot be cached" in str(one.message)]
    assert len(told) == (warns and not warm)


def test_a_folder_that_is_removed_or_cannot_be_made(
    shards: Flaky, tmp_path: Path
) -> None:
    store = with_cache(shards.store, tmp_path / "cache", 1 << 30)
    store.read_range(NAMES[0], 0, 9)
    shutil.rmtree(tmp_path / "cache")
    assert store.read_range(NAMES[0], 0, 9) == content(0)[:9]
    assert held(tmp_path / "cache") > PART_BYTES  # and goes on to keep
    (tmp_path / "file").touch()
    store = with_cache(shards.store, tmp_path / "file/cache", 1 << 30)
    with pytest.warns(UserWarning, match="File exists; reading .* another `cache`"):
        assert store.read_range(NAMES[0], 0, 9) == content(0)[:9]


@pytest.mark.parametrize("name", ["recordmill-parts", "total", "lock"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_link_in_the_folder_is_not_followed(
    shards: Flaky, tmp_path: Path, name: str, kind: str
) -> None:
    folder, mine = tmp_path / "cache", tmp_path / "mine"
    mine.mkdir()
    (mine / "total").write_text("5")
    (mine / ("0" * 32)).write_text("somebody's own")
    place = folder / "recordmill-parts" / name if name != "recordmill-parts" else None
    place = place or folder / name
    place.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to(mine if name == "recordmill-parts" else mine / "total")
    store = with_cache(shards.store, folder, 1 << 30)
    with unchanged(mine), pytest.warns(UserWarning, match="reading continues without"):
        assert store.read_range(NAMES[0], 0, 9) == content_of[0][:9]


def test_a_stopped_process_holds_up_others_once(
    shards: Flaky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_cache(shards.store, tmp_path, 1 << 30)
    store.read_range(NAMES[0], 0, 9)
    waits: list[float] = []
    monkeypatch.setattr("recordmill.transforms.storage.cache._LOCK_SECONDS", 0.0)
    monkeypatch.setattr("time.sleep", waits.append)
    with (tmp_path / "recordmill-parts/lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for name in NAMES[1:]:
            store.read_range(name, 0, 9)
            assert len(parts(tmp_path)) > 1
        tries = len(waits)
        store.read_range(NAMES[0], PART_BYTES, PART_BYTES + 9)
    assert len(waits) == tries
    assert len(parts(tmp_path)) == 7


@pytest.mark.parametrize(
    ("cache", "limit", "told"),
    [
        ("", 1, "cache='': expected the name of a local folder"),
        ("s3://bucket/cache", 1, "cache='s3://bucket/cache': expected the name of a"),
        (__file__, 1, "expected the name of a local folder"),
        ("here", -5, "cache_bytes=-5: expected a number of bytes, like 10737418240"),
        ("here", "10GB", "cache_bytes='10GB': expected a number"),
        ("here", None, "cache_bytes=None: expected a number"),
        ("here", 1.5, "cache_bytes=1.5: expected a number"),
    ],
)
def test_a_cache_that_is_none(
    cache: str, limit: Any, told: str, tmp_path: Path
) -> None:
    """Of a local dataset, too."""
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out")
    assert ran.status == 0, ran.err
    with pytest.raises(UsageError, match=told):
        open_dataset(tmp_path / "out", cache=cache, cache_bytes=limit)


def test_a_cache_in_the_home_folder(
    shards: Flaky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with_cache(shards.store, "~/cache", 1 << 30).read_range(NAMES[0], 0, 9)
    assert held(tmp_path / "cache") > PART_BYTES


@pytest.mark.parametrize("options", [[], ["--index"], ["--compression", "gzip"]])
@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_damage_that_was_mended_in_the_store(
    flaky: Flaky, tmp_path: Path, options: list[str], damage: str
) -> None:
    """What was kept of it is dropped, by each way to read."""
    place, storage = flaky.direct.url, flaky.direct.options.to_dict()
    given = [
        x for n, v in storage.items() for x in ("--storage-option", f"output:{n}={v}")
    ]
    ran = recordmill("convert", "csv", IRIS, place, "--shards", 1, *options, *given)
    assert ran.status == 0, ran.err
    expected = keys_of(read_rows(place, storage=storage))
    (name,) = (n for n in flaky.direct.list_tree("") if "-of-" in n and ".idx" not in n)
    good = flaky.direct.read(name)
    bad = bytearray(good)
    bad[len(good) // 2] ^= 1
    how = {"storage": storage, "cache": tmp_path / "cache"}

    def keep_damage() -> None:
        flaky.direct.put_bytes(bytes(bad), name)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        store = open_dataset(place, **how)._shards[0].store
        store.read_range(name, 0, len(good))
        flaky.direct.put_bytes(good, name)
        if damage == "cut":
            for part in parts(tmp_path / "cache"):
                cut = part.read_bytes()[: len(good) // 2]
                part.write_bytes(cut + crc32c(cut).to_bytes(4, "little"))

    keep_damage()
    assert keys_of(open_dataset(place, **how)) == expected
    keep_damage()
    assert sorted(keys_of(open_dataset(place, **how).stream(seed=1))) == sorted(
        expected
    )
    flaky.direct.put_bytes(bytes(bad), name)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(CorruptRecordError):
        keys_of(open_dataset(place, **how).stream(seed=1))


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_part_is_read_again(
    shards: Flaky, tmp_path: Path, damage: str
) -> None:
    store = with_cache(shards.store, tmp_path, 1 << 30)
    store.read_range(NAMES[0], 0, 9)
    (part,) = parts(tmp_path)
    data = part.read_bytes()
    changed = bytes([data[0] ^ 1]) + data[1:]
    part.write_bytes({"cut": data[:-9], "changed": changed, "empty": b""}[damage])
    part.with_name("total").write_text("")
    assert store.read_range(NAMES[0], 0, 9) == content(0)[:9]
    assert part.read_bytes() == data


def read_for_ever(store: Store, seed: int) -> None:
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
    for seed in range(30 if FACTOR > 1 else 12):
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
    assert not list(tmp_path.glob("recordmill-parts/.*"))


# What a process does with the files of a cache, each before it happens.
_OPERATIONS = ("open", "os.rename", "os.remove", "os.utime", "os.mkdir", "fcntl.flock")


def read_until(store: Store, seed: int, step: int) -> None:
    """Reads all shards once; this process is killed before one of its file operations."""
    operations = iter(range(step))

    def next_operation() -> None:
        if next(operations, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def write_in_halves(path: Path, data: bytes) -> int:
        with path.open("wb", buffering=0) as file:
            written = file.write(data[: len(data) // 2])
            next_operation()
            return written + file.write(data[len(data) // 2 :])

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        # Files are opened relative to their folder, or by a path through its descriptor.
        if event in _OPERATIONS:
            next_operation()

    Path.write_bytes = write_in_halves  # type: ignore[assignment,method-assign]
    sys.addaudithook(on_event)
    numbers = list(range(len(NAMES)))
    random.Random(seed).shuffle(numbers)
    for number in numbers:
        found = store.read_range(NAMES[number], 0, PART_BYTES + 9)
        assert found == content_of[number][: PART_BYTES + 9]


def test_a_kill_at_any_file_operation_leaves_a_whole_cache(tmp_path: Path) -> None:
    """Two processes fill one folder, and each is killed at a step of its own."""
    limit = 5 * PART_BYTES
    shards = open_store("memory://shards-of-killed-readers")  # forks have a copy
    for number, name in enumerate(NAMES):
        shards.put_bytes(content_of[number], name)
    store = with_cache(shards, tmp_path, limit)
    context = multiprocessing.get_context("fork")
    ends = Counter[int | None]()
    for step in thinned(steps_to_kill_at(160)):
        readers = [
            context.Process(target=read_until, args=(store, seed, step + 3 * seed))
            for seed in range(2)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(600)
            ends[reader.exitcode] += 1
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) <= limit + 100
    # What they read of the parts that others left was right, or they had ended with 1.
    assert set(ends) <= {0, -signal.SIGKILL}
    assert ends[-signal.SIGKILL]
    for number, name in enumerate(NAMES):
        assert store.read_range(name, 0, 1 << 30) == content_of[number]
    assert not list(tmp_path.glob("recordmill-parts/.*"))


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
