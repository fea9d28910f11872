"""Stores to try things on: each with a server of its own on this machine, if any.

Servers are found where `make test-integration` put them, listen on a free port of
127.0.0.1 and are stopped by their own process. One that is missing is an error.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.storage.clouds import filesystem_of

TOOLS = Path(__file__).parents[2] / ".tools"
READY_SECONDS = 240  # until a server is there, on a machine that does much else

# Planted: must never be seen in a pickle, a repr, an error or a file.
SECRET = "planted/0secret0key0that0nobody0should0see"
# Azurite's one account, the same everywhere, as its documentation says.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/"
    "KBHBeksoGMGw=="
)
PROTOCOLS = {"s3": "s3", "gcs": "gs", "azure": "az"}


@dataclass(frozen=True)
class Place:
    """An empty root: where it is, and the options to reach it."""

    kind: str
    root: str
    options: StorageOptions = NO_OPTIONS

    @property
    def store(self) -> Store:
        return open_store(self.root, self.options)


@dataclass(frozen=True)
class Server:
    """How to get places of one kind of store.

    Attributes:
      run: starts its server; gives its address.
      make_place: a new place, given that address and a folder for local files.
      environment: what the place needs of it, credentials above all, given the address.
    """

    run: Callable[[Path], AbstractContextManager[str]]
    make_place: Callable[[str, Path], Place]
    environment: Callable[[str], Mapping[str, str]] = lambda address: {}


def free_port() -> int:
    """A port that no program gets unasked: those begin at 32,768, on macOS higher.

    One of those may go to another program before a server that takes seconds to start
    has it; whoever waits for the server then finds that program.
    """
    while True:
        port = secrets.randbelow(12_768) + 20_000
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[str]:
    """A server's address, once it accepts connections; stopped in the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while process.poll() is None and not listens(port):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            if process.poll() is not None or not listens(port):
                raise RuntimeError(f"{command[0]}: no server: {log.read_text()}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def tool(pattern: str) -> str:
    """A program that `make test-integration` builds."""
    found = sorted(TOOLS.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{TOOLS}/{pattern}: run make test-integration")
    return str(found[-1])


@contextmanager
def nothing(folder: Path) -> Iterator[str]:
    yield ""


@contextmanager
def moto(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("s3_server.py"))]
    command += ["-H", "127.0.0.1", "-p", f"{port}"]
    with running(command, port, folder / "log") as address:
        yield address


@contextmanager
def fake_gcs(folder: Path) -> Iterator[str]:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [tool("fake-gcs-server-*/fake-gcs-server"), "-scheme", "http"]
    command += ["-host", "127.0.0.1", "-port", f"{port}", "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", address]
    with running(command, port, folder / "log"):
        yield address


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    port = free_port()
    node = shutil.which("node")
    if node is None:
        raise FileNotFoundError("node: needed to run azurite")
    script = tool("azurite-*/node_modules/azurite/dist/src/blob/main.js")
    command = [node, script, "--blobHost", "127.0.0.1", "--blobPort", f"{port}"]
    command += ["--location", str(folder), "--skipApiVersionCheck", "--silent"]
    command += ["--disableTelemetry"]
    with running(command, port, folder / "log") as address:
        yield address


class FoldersFileSystem(LocalFileSystem):
    """Stands for storage with folders that is not this machine's, such as sftp."""

    protocol = "folders"


fsspec.register_implementation("folders", FoldersFileSystem)


def bucket_place(kind: str, given: dict[str, str]) -> Place:
    options = StorageOptions.from_values(given)
    bucket = f"b{uuid.uuid4().hex}"
    root = f"{PROTOCOLS[kind]}://{bucket}"
    system, path = filesystem_of(root, options)
    system.mkdir(path)
    return Place(kind, f"{root}/some/out", options)


# The server wants a project for a bucket; gcsfs would have to look one up.
GCS_OPTIONS = {"token": "anon", "project": "tests"}


def s3_environment(address: str) -> dict[str, str]:
    # The region as a variable: as an option, us-east-1 would make bucket making fail.
    return {
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }


def azure_environment(address: str) -> dict[str, str]:
    account = f"AccountName=devstoreaccount1;AccountKey={AZURITE_KEY}"
    where = f"BlobEndpoint={address}/devstoreaccount1"
    text = f"DefaultEndpointsProtocol=http;{account};{where};"
    return {"AZURE_STORAGE_CONNECTION_STRING": text}


SERVERS = {
    "local": Server(nothing, lambda _, folder: Place("local", f"{folder}/out")),
    "folders": Server(
        nothing, lambda _, folder: Place("folders", f"folders://{folder}/out")
    ),
    "memory": Server(
        nothing, lambda _, folder: Place("memory", f"memory://{uuid.uuid4().hex}/out")
    ),
    "s3": Server(
        moto,
        lambda address, _: bucket_place("s3", {"endpoint_url": address}),
        s3_environment,
    ),
    "gcs": Server(
        fake_gcs,
        lambda address, _: bucket_place("gcs", {"endpoint_url": address} | GCS_OPTIONS),
    ),
    "azure": Server(
        azurite, lambda _, __: bucket_place("azure", {}), azure_environment
    ),
}


def display_path(
    kind: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Callable[[str], str],
) -> Place:
    """A new place of one kind, and the environment that it needs.

    Args:
      kind: of store.
      folder: for local files.
      monkeypatch: sets the environment.
      server: starts the server of a kind if need be; its address.
    """
    address = server(kind)
    for name, value in SERVERS[kind].environment(address).items():
        monkeypatch.setenv(name, value)
    return SERVERS[kind].make_place(address, folder)
