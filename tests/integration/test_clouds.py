"""What the packages of the clouds do by themselves, and must not do to us."""

from __future__ import annotations

import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from job_tools import IRIS, recordmill
from store_servers import AZURITE_KEY, SERVERS, Place
from tcp_proxy import proxy_to

from recordmill.schemas.errors import OutputError
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import RemoteStore, open_store
from recordmill.transforms.storage.clouds import S3, Azure, Gcs
from recordmill.transforms.tfrecord import crc32c

CLOUDS = {"s3": S3, "gcs": Gcs, "azure": Azure}
BIG = 20 << 20  # more than one part everywhere


def make(
    kind: str, address: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    for name, value in SERVERS[kind].environment(address).items():
        monkeypatch.setenv(name, value)
    return SERVERS[kind].make_place(address, folder)


def big_file(folder: Path) -> Path:
    path = folder / "big"
    path.write_bytes(bytes(range(256)) * (BIG >> 8))
    return path


def test_gcsfs_does_not_ask_for_the_type_of_a_bucket() -> None:
    """It would do so by gRPC, and wait a minute where that is blocked."""
    code = (
        "from recordmill.transforms.storage.clouds import filesystem_of; "
        "from recordmill.schemas.storage_options import StorageOptions; "
        "system, _ = filesystem_of('gs://b/x', StorageOptions.from_values({'token': 'anon'})); "
        "import gcsfs.core; assert type(system) is gcsfs.core.GCSFileSystem, type(system)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_put_to_gcs_that_breaks_leaves_nothing(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumable upload: what was sent of it is no object."""
    place = make("gcs", server("gcs"), tmp_path, monkeypatch)
    direct = place.store
    direct.put_bytes(b"old", "shard")
    with proxy_to(server("gcs")) as proxy:
        options = {**place.options.to_dict(), "endpoint_url": proxy.address}
        store = open_store(
            place.root, StorageOptions.from_values(options)
        ).with_short_retries()
        # The server tells its own address for the upload: back to the proxy with it.
        lead_uploads_to(proxy.address, server("gcs"), monkeypatch)
        proxy.bytes_per_connection = 1 << 20
        monkeypatch.setattr("gcsfs.retry.asyncio.sleep", hurried())
        with pytest.raises(OutputError, match="cannot be written"):
            store.put_file(big_file(tmp_path), "shard")
        assert proxy.spoiled > 0
    assert direct.list() == {"shard": 3}
    assert direct.read("shard") == b"old"


def test_a_wrong_object_of_the_right_size_is_told_by_gcs(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GCS keeps CRC-32C of every object, and tells them in listings."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = make("gcs", server("gcs"), tmp_path, monkeypatch)
    reach = [
        part
        for name, value in place.options.to_dict().items()
        for part in ("--storage-option", f"output:{name}={value}")
    ]
    job = ["convert", "csv", IRIS, place.root, "--name", "iris", "--shards", 2]
    ran = recordmill(*job, *reach)
    assert ran.status == 0, ran.err
    quick = recordmill("verify", place.root, "--quick", *reach)
    assert "all sizes and stored checksums are right" in quick.out
    name = read_manifest(place.store).splits["train"].shards[1].file
    data = bytearray(place.store.read(name))
    data[len(data) // 2] ^= 1
    place.store.put_bytes(bytes(data), name)
    ran = recordmill("verify", place.root, "--quick", *reach)
    assert ran.status == 1
    assert "the store has CRC-32C" in " ".join(ran.out.split())
    again = recordmill(*job, *reach)
    assert again.status == 73
    assert f"{name}: the store has CRC-32C" in again.err


def lead_uploads_to(proxy: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import gcsfs.core

    upload = gcsfs.core.upload_chunk

    async def through_proxy(fs: object, location: str, *rest: object) -> object:
        return await upload(fs, location.replace(address, proxy), *rest)

    monkeypatch.setattr(gcsfs.core, "upload_chunk", through_proxy)


def hurried() -> Callable[[float], object]:
    import asyncio

    sleep = asyncio.sleep

    async def briefly(seconds: float) -> None:
        await sleep(min(seconds, 0.05))

    return briefly


def test_a_put_to_azure_that_breaks_leaves_nothing(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that were staged are no blob until they are committed."""
    place = make("azure", server("azure"), tmp_path, monkeypatch)
    direct = place.store
    direct.put_bytes(b"old", "shard")
    with proxy_to(server("azure")) as proxy:
        text = SERVERS["azure"].environment(proxy.address)
        for name, value in text.items():
            monkeypatch.setenv(name, value)
        # Another timeout is another file system, which takes the address anew.
        store = RemoteStore(
            place.root, StorageOptions.from_values({"read_timeout": 9})
        ).with_short_retries()
        assert store.size("shard") == 3
        assert proxy.requests > 0
        proxy.bytes_per_connection = 1 << 20
        # Its own pauses, of 15 s and more, are inside each of our tries.
        retries = "azure.storage.blob._shared.policies_async.ExponentialRetry"
        monkeypatch.setattr(f"{retries}.get_backoff_time", lambda *given: 0.05)
        began = time.monotonic()
        with pytest.raises(OutputError, match="cannot be written") as error:
            store.put_file(big_file(tmp_path), "shard")
        assert time.monotonic() - began < 60
        assert proxy.spoiled > 0
    assert AZURITE_KEY not in "".join(traceback.format_exception(error.value))
    assert direct.list() == {"shard": 3}
    assert direct.read("shard") == b"old"


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_an_upload_whose_answers_are_lost(
    kind: str,
    server: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = make(kind, server(kind), tmp_path, monkeypatch)
    with proxy_to(server(kind)) as proxy:
        lost: set[bytes] = set()

        def lose_once(number: int, line: bytes) -> str:
            if line in lost:
                return ""
            lost.add(line)
            return "mute"

        if kind == "gcs":
            options = {**place.options.to_dict(), "endpoint_url": proxy.address}
        else:
            options = {"read_timeout": 8}
            for name, value in SERVERS[kind].environment(proxy.address).items():
                monkeypatch.setenv(name, value)
        store = open_store(place.root, StorageOptions.from_values(options))
        proxy.judge = lose_once
        assert store.swap(b"mine", "lock", expected_content=None)
        store.put_bytes(b"1", "a")
        store.move_all([("a", "b")])
        proxy.judge = lambda number, line: ""
        assert not store.swap(b"theirs", "lock", expected_content=None)
        store.delete(["lock"])
        assert proxy.spoiled > 0
    assert place.store.list() == {"b": 1}
    assert place.store.read("b") == b"1"


@pytest.mark.parametrize(
    ("root", "options", "message"),
    [
        (
            "gs://no-such-bucket-here/out",
            "gcs",
            "does it exist? recordmill does not create a bucket",
        ),
        (
            "az://no-such-container-here/out",
            "azure",
            "does it exist? recordmill does not create a container",
        ),
    ],
)
def test_preflight_says_what_to_do(
    root: str,
    options: str,
    message: str,
    server: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = make(options, server(options), tmp_path, monkeypatch)
    with pytest.raises(OutputError) as error:
        open_store(root, place.options).preflight()
    assert message in str(error.value)


def test_azure_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    options = StorageOptions.from_values(
        {"read_timeout": 7}
    )  # not one that is connected
    with pytest.raises(OutputError, match="no valid credentials: set AZURE_STORAGE_"):
        open_store("az://container/out", options).preflight()


def test_gcs_compares_the_checksum_it_keeps(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make("gcs", server("gcs"), tmp_path, monkeypatch).store
    source = big_file(tmp_path)
    store.put_file(source, "a", crc32c=crc32c(source.read_bytes()))
    store.move_all([("a", "b")])
    assert store.checksum("b") == crc32c(source.read_bytes())


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_a_small_input_takes_one_request(
    server: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Whatever its folders; and what lies below a key is taken before the key's object."""
    place = make(kind, server(kind), tmp_path, monkeypatch)
    for name in ("in.d/b/2", "in.d/a/1", "in.d/a.txt", "in.d/.x/3", "in.d", "c"):
        place.store.put_bytes(b"x", name)
    options = place.options.to_dict()
    with proxy_to(server(kind)) as proxy:
        if kind == "azure":
            text = SERVERS["azure"].environment(proxy.address)
            monkeypatch.setenv(*text.popitem())
            options = {"account_name": "devstoreaccount1", "retry_total": 1}
        else:
            options = {**options, "endpoint_url": proxy.address}
        reach = StorageOptions.from_values(options)
        found = list_inputs([f"{place.root}/in.d"], reach)[1]
        assert found.paths.to_pylist() == ["a/1", "a.txt", "b/2"]
        before = proxy.requests
        list_inputs([f"{place.root}/in.d"], reach)
        assert proxy.requests - before == 1
        assert list_inputs([f"{place.root}/c"], reach)[1].paths.to_pylist() == ["c"]
        monkeypatch.setattr(CLOUDS[kind], "flat_names", 2)
        found = list_inputs([f"{place.root}/in.d"], reach)[1]
        assert found.paths.to_pylist() == ["a/1", "a.txt", "b/2"]
