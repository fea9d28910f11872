"""Checksums that a store keeps are compared without reading; `--verify full` reads."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from job_tools import IRIS, Argument, assert_whole, contents, convert, recordmill

from recordmill.schemas.names import staged_file_name
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage import clouds, open_store
from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tfrecord import crc32c


class SumsFileSystem(MemoryFileSystem):
    """Stands for storage that keeps CRC-32C, as GCS does.

    GCS itself, by fake-gcs-server, is in tests/integration.
    """

    protocol = "sums"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.replace("sums://", "memory://"))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        facts: dict[str, Any] = super().info(path, **options)
        return self._with_sum(facts)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = super().ls(path, detail=detail, **options)
        return [self._with_sum(facts) for facts in found] if detail else found

    def _with_sum(self, facts: dict[str, Any]) -> dict[str, Any]:
        if facts["type"] != "file":
            return facts
        crc = crc32c(self.store[facts["name"]].getvalue())
        return {**facts, "crc32c": base64.b64encode(crc.to_bytes(4, "big")).decode()}


fsspec.register_implementation("sums", SumsFileSystem)

SHARD = "iris-train.tfrecord-00001-of-00002"


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(clouds._CLOUDS, "sums", clouds.Memory)
    return f"sums://{tmp_path.name}/iris"


def job(output: str, *options: Argument) -> list[Argument]:
    return ["convert", "csv", IRIS, output, "--shards", 2, *options]


def spoil(output: str, name: str) -> None:
    """Another file of the same size, as the store's own checksum tells."""
    store = open_store(output)
    data = bytearray(store.read(name))
    data[len(data) // 2] ^= 1
    store.put_bytes(bytes(data), name)


def test_quick_compares_what_the_store_keeps(output: str) -> None:
    assert recordmill(*job(output)).status == 0
    ran = recordmill("verify", output, "--quick")
    assert "all sizes and stored checksums are right" in ran.out
    facts = json.loads(recordmill("verify", output, "--quick", "--json").out)
    assert (facts["ok"], facts["stored_checksums"]) == (True, 2)
    shard = read_manifest(open_store(output)).shard_files[1]
    assert staged_file_name(shard) == SHARD
    spoil(output, shard)
    ran = recordmill("verify", output, "--quick", "--json")
    assert ran.status == 1
    (problem,) = json.loads(ran.out)["problems"]
    assert problem["file"] == shard
    assert problem["message"].startswith("the store has CRC-32C ")
    again = recordmill(*job(output))  # the same job: there already, but not whole
    assert again.status == 73
    assert "the store has CRC-32C" in again.err


def test_no_checksum_is_claimed_where_none_is_kept(iris: Path) -> None:
    ran = recordmill("verify", iris, "--quick")
    assert "all sizes are right" in ran.out
    facts = json.loads(recordmill("verify", iris, "--quick", "--json").out)
    assert facts["stored_checksums"] == 0


def test_a_wrong_shard_is_not_published(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spoiled between the put and the publishing; the next run makes it again."""
    from recordmill.transforms.commit import staging as publish

    def spoil_and_build(*arguments: Any) -> Any:
        (name,) = (name for name in open_store(output).list() if SHARD in name)
        spoil(output, name)
        return build(*arguments)

    build = publish.build_manifest
    with monkeypatch.context() as patch:
        patch.setattr(publish, "build_manifest", spoil_and_build)
        ran = recordmill(*job(output))
    assert ran.status == 1
    assert f"{SHARD}: the store has CRC-32C" in ran.err
    assert "The damaged files were removed; run again" in ran.err
    assert open_store(output).size("manifest.json") is None
    assert recordmill(*job(output)).status == 0
    assert recordmill("verify", output).status == 0


def flipping(path: Path, *arguments: Any) -> Any:
    """Writes a shard to a disk that changes a bit of it, and says nothing."""
    facts = write_records(path, *arguments)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return facts


@pytest.mark.parametrize("level", ["quick", "full"])
def test_full_reads_before_it_publishes(
    tmp_path: Path, iris: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    folder = tmp_path / "iris"
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.transforms.tasks.write_shard.write_records", flipping)
        ran = recordmill(*job(str(folder), "--verify", level))
    if level == "quick":  # no size has changed, and this store keeps no checksum
        assert ran.status == 0
        assert recordmill("verify", folder).status == 1
        return
    assert ran.status == 1
    assert "The damaged files were removed; run again" in ran.err
    assert re.search(r"staging/iris-train\S*: record \d+ at byte", ran.err)
    assert not (folder / "manifest.json").exists()
    convert("csv", IRIS, folder, "--shards", 2, "--verify", "full")
    assert_whole(folder)
    assert contents(folder) == contents(iris)


def test_full_verifies_in_a_store(output: str) -> None:
    assert recordmill(*job(output, "--verify", "full")).status == 0
    assert recordmill("verify", output).status == 0
