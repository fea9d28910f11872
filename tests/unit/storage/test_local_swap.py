"""Swaps on local disk whose holder is killed, paused, or loses its lock."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from recordmill.schemas.errors import BusyError, OutputRefusedError
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage import local as local_swap
from recordmill.transforms.storage.local_folder import LocalFolder
from recordmill.transforms.storage.store import SWAP_FOLDER, Data


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(str(tmp_path / "out"))
    store.put_bytes(b"old", "m")
    return store


def files(store: LocalStore) -> dict[str, bytes]:
    """Every file there is, hidden ones too."""
    root = Path(store.root)
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def swap_and_stop(store: LocalStore) -> None:
    holds = local_swap._has_content

    def stop(folder: LocalFolder, name: str, data: Data | None) -> bool:
        found = holds(folder, name, data)
        local_swap._has_content = holds  # once
        os.kill(os.getpid(), signal.SIGSTOP)
        return found

    local_swap._has_content = stop
    assert store.swap(b"theirs", "m", expected_content=b"old")


def stopped_amid_a_swap(store: LocalStore) -> BaseProcess:
    context = multiprocessing.get_context("fork")
    child = context.Process(target=swap_and_stop, args=(store,))
    child.start()
    assert child.pid is not None
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return child


def test_others_wait_for_a_paused_holder(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_swap, "LOCK_SECONDS", 0.1)
    child = stopped_amid_a_swap(store)
    assert child.pid is not None
    with pytest.raises(BusyError, match="may be paused: let it continue, or end it"):
        store.swap(b"ours", "m", expected_content=b"old")
    assert store.read("m") == b"old"
    os.kill(child.pid, signal.SIGCONT)
    child.join(600)
    assert child.exitcode == 0
    assert not store.swap(b"ours", "m", expected_content=b"old")
    assert files(store) == {"m": b"theirs"}


def test_a_killed_holder_keeps_nobody_out(store: LocalStore) -> None:
    child = stopped_amid_a_swap(store)
    child.kill()
    child.join(600)
    assert len(files(store)) == 3  # the lock, and what was to be renamed
    assert store.list() == {"m": 3}
    assert store.swap(b"ours", "m", expected_content=b"old")
    assert files(store) == {"m": b"ours"}
    assert not Path(store.root, ".recordmill").exists()


def test_a_paused_holder_whose_swap_was_cleaned_away_begins_anew(
    store: LocalStore,
) -> None:
    child = stopped_amid_a_swap(store)
    assert child.pid is not None
    shutil.rmtree(Path(store.root, ".recordmill"))
    assert store.swap(b"ours", "m", expected_content=b"old")
    os.kill(child.pid, signal.SIGCONT)
    child.join(600)
    assert child.exitcode == 1  # its swap was refused
    assert files(store) == {"m": b"ours"}


def lose_lock(folder: Path) -> None:
    next(folder.glob(".lock.*")).unlink()


@pytest.mark.parametrize("lose", [lose_lock, shutil.rmtree])
@pytest.mark.parametrize("seen", [b"old", None])
def test_a_holder_that_lost_its_lock_does_not_overwrite(
    store: LocalStore,
    lose: Callable[[Path], None],
    seen: bytes | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a network mount: another swap begins and ends while it is paused."""
    if seen is None:
        store.delete(["m"])
    holds, paused = local_swap._has_content, []

    def pause(folder: LocalFolder, name: str, data: Data | None) -> bool:
        found = holds(folder, name, data)
        if not paused:
            paused.append(name)
            lose(Path(store.root, SWAP_FOLDER))
            assert store.swap(b"theirs", "m", expected_content=seen)
        return found

    monkeypatch.setattr(local_swap, "_has_content", pause)
    assert not store.swap(b"ours", "m", expected_content=seen)
    assert paused
    assert files(store) == {"m": b"theirs"}


def test_contents_are_compared_by_blocks(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_swap, "_READ_BYTES", 2)
    for other in (b"", b"abcd", b"abcdef", b"xbcde", b"abxde", b"abcdx"):
        store.put_bytes(b"abcde", "m")
        assert not store.swap(memoryview(b"ours"), "m", expected_content=other)
        assert not store.discard("m", expected_content=other)
        assert store.swap(memoryview(b"abcde"), "m", expected_content=other)
        assert store.swap(memoryview(other), "m", expected_content=b"abcde")
        assert store.read("m") == other
    assert store.discard("m", expected_content=other)


@pytest.mark.parametrize("missing", ["locks", "links"])
def test_file_systems_without_locks_or_links(
    store: LocalStore, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    if missing == "locks":
        monkeypatch.setattr(fcntl, "flock", refuse)
    else:
        monkeypatch.setattr(os, "link", refuse)
    assert store.swap(b"new", "m", expected_content=b"old")
    assert not store.swap(b"newer", "m", expected_content=b"old")
    assert store.swap(b"first", "n", expected_content=None)
    assert not store.swap(b"second", "n", expected_content=None)
    assert files(store) == {"m": b"new", "n": b"first"}


def test_nobody_elses_file_is_removed(store: LocalStore) -> None:
    store.put_bytes(b"mine", f"{SWAP_FOLDER}/notes")
    assert store.swap(b"new", "m", expected_content=b"old")
    assert files(store) == {"m": b"new", f"{SWAP_FOLDER}/notes": b"mine"}


FOLDERS = [".recordmill", ".recordmill/swap", "deep", "deep/er"]


def swap(store: LocalStore) -> None:
    assert store.swap(b"new", "m", expected_content=b"old")


def put(store: LocalStore) -> None:
    store.put_bytes(b"new", "deep/er/m")


@pytest.mark.parametrize("write", [swap, put])
def test_folders_that_others_make_and_remove_are_no_error(
    store: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[LocalStore], None],
) -> None:
    """Another process makes each folder just before, and removes it just after."""
    make = os.mkdir
    met = []

    def make_late(last: str, *, dir_fd: int) -> None:
        path = Path(f"/proc/self/fd/{dir_fd}").readlink() / last
        name = str(path.relative_to(store.root))
        if name in met:
            return make(path)
        met.append(name)
        make(path)
        try:
            return make(path)
        finally:
            path.rmdir()

    monkeypatch.setattr(os, "mkdir", make_late)
    write(store)
    monkeypatch.undo()
    assert met == (FOLDERS[:2] if write is swap else FOLDERS[2:])
    assert b"new" in files(store).values()
    assert len(files(store)) == (1 if write is swap else 2)


def test_a_file_where_a_folder_must_be_is_an_error(store: LocalStore) -> None:
    Path(store.root, ".recordmill").write_bytes(b"a file")
    with pytest.raises(
        OutputRefusedError, match=r"m: cannot be written: .*Not a directory"
    ):
        store.swap(b"new", "m", expected_content=b"old")
    with pytest.raises(
        OutputRefusedError, match=r"m/b: cannot be written: .*Not a directory"
    ):
        store.put_bytes(b"new", "m/b")
    assert files(store) == {".recordmill": b"a file", "m": b"old"}
