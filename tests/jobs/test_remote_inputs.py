"""Inputs that lie in a store are converted by each exchange, as local ones are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from job_tools import convert, payloads, shards_of
from source_cases import make_cifar
from store_servers import display_path

from recordmill.transforms.sources.arrays import fixed_records


def test_rows_are_read_by_reference(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers of shards read them there, with the options of the inputs."""
    several = partial(fixed_records.CifarSource, range_bytes=7000)
    monkeypatch.setattr(fixed_records, "CifarSource", several)
    place = display_path("s3", tmp_path, monkeypatch, server)
    folder = tmp_path / "in"
    folder.mkdir()
    make_cifar(folder)
    for file in folder.iterdir():
        place.store.put_bytes(file.read_bytes(), f"in/{file.name}")
    address = place.options.to_dict()["endpoint_url"]
    job = ["--name", "same", "--exchange", "reference"]
    convert("cifar", folder, tmp_path / "local", *job)
    convert(
        *("cifar", f"{place.root}/in", tmp_path / "remote", *job),
        *("--storage-option", f"input:endpoint_url={address}"),
    )
    for split in ("train", "test"):
        found = shards_of(tmp_path / "remote", split)
        expected = shards_of(tmp_path / "local", split)
        assert [[*payloads(shard)] for shard in found] == [
            [*payloads(shard)] for shard in expected
        ]
