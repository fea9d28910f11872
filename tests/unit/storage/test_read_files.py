"""Whole files in order, several at once, within a bound of bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import FileStat
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms import native
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.storage import reading
from recordmill.transforms.storage import reading as module
from recordmill.transforms.storage.reading import REQUESTS, FileToRead, read_files

DATA = [bytes([number]) * (number * 7 % 50) for number in range(60)]


@pytest.fixture(params=["native", "numpy", "store"])
def files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[FileToRead]]:
    store = MemoryFileSystem()
    in_store = request.param == "store"
    root = "memory://read_files" if in_store else str(tmp_path)
    if request.param == "numpy":
        monkeypatch.setattr(native, "loops", numpy_loops)
    listed = []
    for number, data in enumerate(DATA):
        if in_store:
            store.pipe(f"/read_files/{number}", data)
        else:
            (tmp_path / str(number)).write_bytes(data)
        listed.append((f"{root}/{number}", FileStat(len(data), "")))
    yield listed
    if in_store:
        store.rm("/read_files", recursive=True)


@pytest.mark.parametrize("bytes_ahead", [0, 100, 1 << 20])
def test_all_in_order(
    files: list[FileToRead], bytes_ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_AHEAD", bytes_ahead)
    monkeypatch.setattr(reading, "TOGETHER_BYTES", bytes_ahead)
    assert list(read_files(iter(files), NO_OPTIONS)) == DATA
    assert list(read_files([], NO_OPTIONS)) == []


def test_an_error_comes_in_its_turn(files: list[FileToRead]) -> None:
    missing = (f"{files[0][0]}.missing", FileStat(3, ""))
    found = read_files([*files[:5], missing, *files], NO_OPTIONS)
    assert [next(found) for _ in range(5)] == DATA[:5]
    with pytest.raises(InputError, match=r"missing: cannot be read"):
        next(found)


@pytest.mark.parametrize("loops", [native.loops, numpy_loops], ids=["native", "numpy"])
@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (FileStat(3, ""), "has 4 bytes, but had 3"),
        (FileStat(5, ""), "has 4 bytes, but had 5"),
        (FileStat(4, "17"), "was written again"),
        (FileStat(4, "-1"), "was written again"),
        (FileStat(4, str(1 << 70)), "was written again"),
    ],
)
def test_another_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loops: ModuleType,
    seen: FileStat,
    message: str,
) -> None:
    monkeypatch.setattr(native, "loops", loops)
    files = []
    for name in "abcde":
        (tmp_path / name).write_bytes(b"1234")
        version = str((tmp_path / name).stat().st_mtime_ns)
        files.append((str(tmp_path / name), FileStat(4, version)))
    files[3] = (files[3][0], seen)
    found = read_files(files, NO_OPTIONS)
    assert [next(found) for _ in range(3)] == [b"1234"] * 3
    with pytest.raises(ChangedInputError, match=message):
        next(found)


def test_one_call_reads_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more at once than the bound, but for the last of them."""
    loops = Mock(wraps=native.loops, ANY_TIME=native.loops.ANY_TIME)
    monkeypatch.setattr(native, "loops", loops)
    monkeypatch.setattr(reading, "TOGETHER_BYTES", 30)
    (tmp_path / "a").write_bytes(bytes(12))
    files = [(f"file://{tmp_path}/a", FileStat(12, ""))] * 7
    assert list(read_files(files, NO_OPTIONS)) == [bytes(12)] * 7
    assert [len(call.args[0]) for call in loops.read_files.call_args_list] == [3, 3, 1]


def test_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as allowed, no more bytes than allowed, and none after the last one."""
    running: set[str] = set()
    most: list[int] = []
    full, lock = threading.Event(), threading.Lock()

    def read(uri: str, *_: object) -> bytes:
        with lock:
            running.add(uri)
            most.append(len(running))
            if len(running) == 5:
                full.set()
        full.wait(600)  # the first ones wait for each other
        with lock:
            running.discard(uri)
        return uri.encode()

    monkeypatch.setattr(module, "read_file", read)
    monkeypatch.setattr(module, "BYTES_AHEAD", 50)
    files = [(f"memory://a/{number}", FileStat(10, "")) for number in range(40)]
    found = read_files(files, NO_OPTIONS)
    assert list(found) == [uri.encode() for uri, _ in files]
    assert max(most) == 5
    most.clear()
    found = read_files(files, NO_OPTIONS)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert not running
    assert len(most) <= 6


def test_few_files_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small they are; and the next ones are read while the caller works."""
    asked: list[str] = []
    enough = threading.Event()

    def read(uri: str, *_: object) -> bytes:
        asked.append(uri)
        if len(asked) == 7:
            enough.set()
        return b""

    monkeypatch.setattr(module, "read_file", read)
    monkeypatch.setattr(module, "REQUESTS", 2)
    monkeypatch.setattr(module, "FILES_AHEAD", 7)
    found = read_files(
        [(f"memory://a/{n}", FileStat(0, "")) for n in range(40)], NO_OPTIONS
    )
    next(found)
    assert enough.wait(600)
    assert len(asked) <= 8
    assert len(list(found)) == 39


@contextmanager
def held_store(requests: int) -> Iterator[str]:
    """The address of a server of S3 that answers only to so many requests at once."""
    together = threading.Barrier(requests, timeout=600)

    class Held(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            together.wait()
            self.send_response(200)
            self.send_header("Content-Length", "1")
            self.send_header("ETag", '"a"')
            self.end_headers()
            self.wfile.write(b"x")

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = requests
        daemon_threads = True

    with Server(("127.0.0.1", 0), Held) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_all_requests_reach_s3_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's own limit of connections would let them wait for each other."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    files = [(f"s3://bucket/{number}", FileStat(1, "a")) for number in range(REQUESTS)]
    with held_store(REQUESTS) as address:
        options = StorageOptions.from_values({"endpoint_url": address, "anon": True})
        assert list(read_files(files, options)) == [b"x"] * REQUESTS
