"""What a store does when things break: nothing half is seen, faults are borne."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import doomed
import pytest
from flaky_store import Flaky
from store_servers import SECRET

from recordmill.schemas.errors import InputError, OutputError
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import LocalStore, RemoteStore, open_store
from recordmill.transforms.storage.clouds import RemoteFile
from recordmill.transforms.storage.errors import (
    DEFAULT_RETRIES,
    RetryPolicy,
    describe_failure,
    is_transient,
    with_retries,
)
from recordmill.transforms.storage.reading import read_file, read_range

BRIEF = RetryPolicy(tries=2, first_seconds=0.05, limit_seconds=60.0)
BIG = 40 << 20  # three parts


def big_file(folder: Path) -> Path:
    path = folder / "big"
    path.write_bytes(bytes(range(256)) * (BIG >> 8))
    return path


def test_a_put_that_breaks_leaves_nothing(flaky: Flaky, tmp_path: Path) -> None:
    flaky.direct.put_bytes(b"old", "shard")
    flaky.proxy.bytes_per_connection = 5 << 20  # no part gets through, all else does
    store = replace(flaky.store, retry_policy=BRIEF)
    with pytest.raises(OutputError) as error:
        store.put_file(big_file(tmp_path), "shard")
    assert f"{store.url}/shard: cannot be written: " in str(error.value)
    assert "(tried 2 times in " in str(error.value)
    assert "the network or the store is down or slow" in str(error.value)
    assert flaky.proxy.spoiled > 0
    assert flaky.direct.read("shard") == b"old"
    assert flaky.direct.list() == {"shard": 3}
    assert flaky.open_uploads() == []


def test_a_store_that_goes_away_is_one_error(flaky: Flaky) -> None:
    flaky.store.put_bytes(b"x", "a")
    flaky.proxy.judge = lambda number, line: "cut"
    store = replace(flaky.store, retry_policy=BRIEF)
    acts: tuple[Callable[[], object], ...] = (
        lambda: store.put_bytes(b"y", "b"),
        lambda: store.swap(b"y", "b", expected_content=None),
        lambda: store.read("a"),
        lambda: store.list(),
    )
    with ThreadPoolExecutor(len(acts)) as pool:  # each waits for seconds
        for ended in [pool.submit(act) for act in acts]:
            with pytest.raises(OutputError, match="run again later"):
                ended.result()
    assert flaky.direct.list() == {"a": 1}


def exercise(flaky: Flaky, tmp_path: Path) -> None:
    """Does everything there is, and looks at the outcome past the proxy."""
    store, expected = flaky.store, {}
    for number in range(12):
        data = os.urandom(2000)
        store.put_bytes(data, f"staging/{number}")
        expected[f"{number}"] = data
    assert store.swap(b"mine", "lock", expected_content=None)
    assert not store.swap(b"theirs", "lock", expected_content=None)
    for number in range(12):
        assert store.size(f"staging/{number}") == 2000
        assert store.read_range(f"staging/{number}", 5, 9) == expected[f"{number}"][5:9]
        store.move_all([(f"staging/{number}", f"{number}")])
        assert store.read(f"{number}") == expected[f"{number}"]
    store.delete(["lock"])
    store.put_file(big_file(tmp_path), "big")
    assert flaky.direct.list() == {**dict.fromkeys(expected, 2000), "big": BIG}
    assert {name: flaky.direct.read(name) for name in expected} == expected
    assert flaky.direct.read("big") == (tmp_path / "big").read_bytes()
    assert flaky.proxy.requests > 100
    assert flaky.proxy.spoiled >= flaky.proxy.requests // 12


@pytest.mark.parametrize("fault", ["cut", "mute", "delay"])
def test_a_tenth_of_the_requests_fails(
    flaky: Flaky, tmp_path: Path, fault: str
) -> None:
    flaky.proxy.judge = lambda number, line: "" if number % 10 else fault
    exercise(flaky, tmp_path)


def test_answers_that_are_lost(flaky: Flaky) -> None:
    """Done, but nobody heard: so it is done again, and comes to the same."""
    lost: set[bytes] = set()

    def lose_once(number: int, line: bytes) -> str:
        if line in lost:
            return ""
        lost.add(line)
        return "mute"

    store = flaky.store
    flaky.proxy.judge = lose_once
    store.put_bytes(b"1", "a")
    assert store.swap(b"2", "b", expected_content=None)
    store.move_all([("a", "c")])
    store.delete(["c"])
    assert flaky.direct.list() == {"b": 1}
    assert flaky.direct.read("b") == b"2"
    assert store.swap(b"1", "m", expected_content=None)
    lost.clear()
    assert store.swap(b"2", "m", expected_content=b"1")
    lost.clear()
    assert not store.swap(b"3", "m", expected_content=b"1")
    assert flaky.direct.read("m") == b"2"


def test_inputs_through_a_bad_network(flaky: Flaky) -> None:
    flaky.direct.put_bytes(b"0123456789", "in/a.csv")
    flaky.proxy.judge = lambda number, line: "cut" if number % 2 else ""
    uri = f"{flaky.store.url}/in/a.csv"
    _, (file,) = list_inputs([f"{flaky.store.url}/in"], flaky.options)
    assert (file.uri, file.size) == (uri, 10)
    assert read_range(uri, 3, 5, flaky.options) == b"34"
    assert read_file(uri, flaky.options) == b"0123456789"


def test_a_writer_killed_in_its_put_leaves_nothing(
    flaky: Flaky, tmp_path: Path
) -> None:
    flaky.direct.put_bytes(b"old", "shard")
    flaky.proxy.bytes_per_second = 20 << 20
    work = (flaky.store.url, flaky.options, big_file(tmp_path))
    child = doomed.start("put_slowly", *work)
    deadline = time.monotonic() + 600
    while flaky.proxy.sent < 10 << 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert flaky.proxy.sent < BIG
    assert flaky.direct.list() == {"shard": 3}
    assert flaky.direct.read("shard") == b"old"


def test_a_local_writer_killed_in_its_put_leaves_nothing_visible(
    tmp_path: Path,
) -> None:
    store = LocalStore(str(tmp_path / "out"))
    store.put_bytes(b"old", "shard")
    source = big_file(tmp_path)
    child = doomed.start("put_and_wait", store.root, source)
    deadline = time.monotonic() + 600
    while BIG not in store.list_temp_files().values() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert store.list() == {"shard": 3}
    assert store.read("shard") == b"old"
    assert list(store.list_temp_files().values()) == [BIG]
    store.delete(store.list_temp_files())
    assert store.list_temp_files() == {}


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path / "out"))
    store.put_bytes(b"old", "a")

    def fill(_descriptor: int, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("recordmill.transforms.storage.local.sync", fill)
    with pytest.raises(OutputError, match="the disk is full or the quota is used up"):
        store.put_file(big_file(tmp_path), "a")
    assert store.read("a") == b"old"
    assert store.list_temp_files() == {}


class UnavailableError(Exception):
    """As azure's errors are: no OSError, and with a status."""

    status_code = 503


def test_only_faults_that_pass_are_tried_again() -> None:
    calls: list[int] = []

    def fail(error: Exception) -> None:
        calls.append(1)
        raise error

    for passing in (
        TimeoutError(),
        ConnectionResetError(),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        UnavailableError(),
    ):
        calls.clear()
        with pytest.raises(type(passing)):
            with_retries(lambda error=passing: fail(error), BRIEF)  # type: ignore[misc]
        assert len(calls) == 2
        assert passing.__notes__[0].startswith("tried 2 times in 0 s")
    for lasting in (FileNotFoundError(), PermissionError(), ValueError("no")):
        calls.clear()
        with pytest.raises(type(lasting)):
            with_retries(lambda error=lasting: fail(error), BRIEF)  # type: ignore[misc]
        assert len(calls) == 1


class Clock:
    """A clock that only pauses move."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_time_for_trying_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("recordmill.transforms.storage.errors.time", clock)

    def fail() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        with_retries(
            fail, RetryPolicy(tries=1000, first_seconds=0.1, limit_seconds=1.0)
        )
    # Pauses of 0.1, 0.2, 0.4 ... seconds, each times 0.3 to 1: three fit in any case.
    assert 0.3 * (0.1 + 0.2 + 0.4) <= clock.now <= 1.0


def test_a_cause_counts() -> None:
    """s3fs raises an OSError without meaning from botocore's error with a status."""
    outer = OSError(errno.EIO, "something")
    assert not is_transient(outer)
    outer.__cause__ = UnavailableError()
    assert is_transient(outer)


def test_a_bug_is_no_fault_of_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr("recordmill.transforms.storage.clouds.filesystem_of", wrong)
    with pytest.raises(TypeError, match="a bug"):
        RemoteStore("memory://x").read("a")


def test_storage_that_is_for_reading_alone() -> None:
    assert describe_failure(NotImplementedError(), "http://x/y").endswith(
        "this kind of storage cannot be written to"
    )


def everything_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


@pytest.mark.parametrize(
    ("root", "options", "environment", "message"),
    [
        (
            "s3://no-such-bucket-here/out",
            {},
            {},
            "does it exist? recordmill does not create a bucket",
        ),
        (
            "s3://bucket/out",
            {"endpoint_url": "http://127.0.0.1:1"},
            {},
            "the network or the store is down",
        ),
        (
            "s3://bucket/out",
            {},
            {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
            "no valid credentials: set AWS_ACCESS_KEY_ID",
        ),
        ("s3://bucket/out", {"profile": "nobody"}, {}, "no valid credentials"),
        ("nonsense://x/out", {}, {}, "use a folder, s3://, gs://, az://"),
        ("smb://host/share", {}, {}, "install its package with pip"),
    ],
)
def test_preflight_says_what_to_do(
    flaky: Flaky,
    root: str,
    options: dict[str, str],
    environment: dict[str, str | None],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in environment.items():
        assert value is None
        monkeypatch.delenv(name)
    # No credentials of the machine's own.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    if root.startswith("s3"):
        options = {"endpoint_url": flaky.proxy.address, **options}
    store = open_store(root, StorageOptions.from_values(options))
    began = time.monotonic()
    with pytest.raises(OutputError) as error:
        store.preflight()
    assert time.monotonic() - began < DEFAULT_RETRIES.limit_seconds
    assert str(error.value).startswith(f"{root}/.recordmill/probe-")
    assert message in str(error.value)
    assert SECRET not in everything_of(error.value)


@pytest.mark.parametrize(
    ("root", "extra"), [("s3://b/o", "s3"), ("gs://b/o", "gcs"), ("az://c/o", "azure")]
)
def test_a_package_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, root: str, extra: str
) -> None:
    for package in ("s3fs", "gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, package, None)
    for name in ("s3", "gs", "az"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, name, False)
    with pytest.raises(OutputError, match=rf"pip install '\.\[{extra}\]'"):
        open_store(root).preflight()
    with pytest.raises(InputError, match=rf"pip install '\.\[{extra}\]'"):
        list_inputs([root])


def test_a_folder_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(
        OutputError, match=r"Permission denied.*a permission is missing"
    ):
        LocalStore(str(tmp_path / "out")).preflight()


def test_preflight_where_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"file/out/.*cannot be written"):
        LocalStore(str(tmp_path / "file" / "out")).preflight()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("passed_over", ["If-None-Match", "If-Match"])
def test_a_store_that_knows_no_conditions_is_found_out(
    monkeypatch: pytest.MonkeyPatch, flaky: Flaky, passed_over: str
) -> None:
    """Some S3-compatible servers pass over conditions and overwrite."""
    real = RemoteFile._put_over

    def put_over(self: RemoteFile, info: Any, data: bytes) -> bool:
        if passed_over == ("If-Match" if info else "If-None-Match"):
            self.put(data)
            return True
        return real(self, info, data)

    assert flaky.direct.preflight()
    monkeypatch.setattr(RemoteFile, "_put_over", put_over)
    assert flaky.direct.swaps_exclusively
    assert not flaky.direct.preflight()
    assert flaky.direct.list() == {}


def test_secrets_are_not_in_errors(
    monkeypatch: pytest.MonkeyPatch, flaky: Flaky
) -> None:
    """Whatever a library says: here it says all it knows."""

    class Talkative:
        def cat_file(self, path: str, *data: bytes, **options: object) -> bytes:
            raise OSError(f"GET {path}?sig=abc%2Fdef&x=1 with {SECRET} failed")

        call_s3 = pipe_file = cat_file

        def split_path(self, path: str) -> tuple[str, str, None]:
            return "b", path, None

        def invalidate_cache(self) -> None: ...

    def talkative(url: str, options: StorageOptions) -> tuple[object, str]:
        return Talkative(), url

    monkeypatch.setattr("recordmill.transforms.storage.clouds.filesystem_of", talkative)
    for act, kind in (
        (lambda: flaky.store.read("a"), OutputError),
        (lambda: flaky.store.list(), OutputError),
        (lambda: flaky.store.put_bytes(b"", "a"), OutputError),
        (lambda: read_file("s3://b/a"), InputError),
    ):
        with pytest.raises(kind, match=r"sig=\*\*\*&x=1 with \*\*\* failed") as error:
            act()
        assert SECRET not in everything_of(error.value)
        assert "abc%2Fdef" not in everything_of(error.value)
