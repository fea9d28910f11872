"""Compares datasets of different commits: their names differ, what they hold must not."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from recordmill.schemas.names import parse_rejects_commit_id, staged_file_name
from recordmill.transforms.dataset.files import read_manifest, rejects_files
from recordmill.transforms.storage import LocalStore

_NOT_COMPARED = ("dataset_info.json", "run", "manifest.json")


def shard_names(folder: Path, split: str = "train") -> list[str]:
    """The names of a split's shards without the marks of their commits."""
    manifest = read_manifest(LocalStore(str(folder)))
    return [staged_file_name(shard.file) for shard in manifest.splits[split].shards]


def dataset_of(folder: Path) -> dict[str, Any]:
    """What a dataset holds, whatever commits it is of and whatever lies beside it."""
    store = LocalStore(str(folder))
    manifest = read_manifest(store)
    fields = manifest.model_dump(mode="json")
    fields.pop("generation", None)
    fields.get("files", {}).pop("dataset_info.json", None)
    if fields.get("rejects"):
        fields["rejects"].pop("marks")
    for split in fields["splits"].values():
        for shard in split["shards"]:
            shard["file"] = staged_file_name(shard["file"])
    found = {"manifest": json.dumps(fields, sort_keys=True)}
    for name in manifest.shard_files:
        found[staged_file_name(name)] = _digest(folder / name)
    for name in rejects_files(store, manifest):
        mark = parse_rejects_commit_id(name)
        found[name.replace(f"{mark}-", "", 1)] = _digest(folder / name)
    for path in folder.iterdir():
        own = path.is_file() and ".tfrecord" not in path.name
        if own and not path.name.startswith((".", *_NOT_COMPARED)):
            found[path.name] = _digest(path)
    return found


def assert_readable(folder: Path) -> None:
    """Makes sure that readers of the manifest, and of TFDS's files, find whole shards."""
    manifest = read_manifest(LocalStore(str(folder)))
    for split in manifest.splits.values():
        for shard in split.shards:
            assert (folder / shard.file).stat().st_size == shard.bytes
    info = folder / "dataset_info.json"
    if info.exists():
        for split in json.loads(info.read_bytes())["splits"]:
            counts = split["shardLengths"]
            for index in range(len(counts)):
                name = (
                    split["filepathTemplate"]
                    .replace("{DATASET}", manifest.name)
                    .replace("{SPLIT}", split["name"])
                    .replace("{FILEFORMAT}", "tfrecord")
                    .replace("{SHARD_X_OF_Y}", f"{index:05d}-of-{len(counts):05d}")
                )
                assert (folder / name).exists(), name


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes()).hexdigest()
