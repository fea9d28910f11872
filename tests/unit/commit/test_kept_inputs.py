"""Which run made a dataset, and as what its inputs were listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from content_tools import dump_inputs, kept_files
from plain_manifests import plain_manifest

from recordmill.schemas.errors import OutputRefusedError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest, ManifestFile
from recordmill.transforms.commit.inputs import (
    ConvertedFile,
    PartInputs,
    dataset_changes,
    dump_part_inputs,
    is_of_run,
    parse_inputs,
    read_inputs,
    read_part,
    renew_inventories,
    run_key_of,
)
from recordmill.transforms.inventory import NO_FILES, Inventory
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.fingerprint import fixed_fields
from recordmill.transforms.tfrecord import crc32c

JOB = JobSpec(source="csv", name="d")
PARTS = ["", "-a00001", "-a00002"]
CONTENT = f"crc32c:{crc32c(b'x'):08x}"


def dataset(store: LocalStore, appended: int = 0) -> Manifest:
    """Writes a dataset of a file for each part, and both lists of each."""
    files: dict[str, ManifestFile] = {}
    for part in range(appended + 1):
        fingerprint = f"{part + 3}" * 32
        listed = [InputFile(f"{part}", f"/in/{part}", 1, CONTENT)]
        kept = parse_inputs(
            dump_inputs(fingerprint, JOB, Inventory.from_files(listed)), "x"
        )
        read = kept.files.with_column("content", pa.array([CONTENT]))
        by_content = dump_part_inputs(replace(kept, files=read, by_content=True))
        store.put_bytes(by_content, f"inputs{PARTS[part]}.jsonl.gz")
        entry = ManifestFile(bytes=len(by_content), crc32c=f"{crc32c(by_content):08x}")
        files[f"inputs{PARTS[part]}.jsonl.gz"] = entry
        inventory(store, part, fingerprint)
    manifest = plain_manifest(
        [], fingerprint=fingerprint, appended=appended, files=files
    )
    store.put_bytes(manifest.to_bytes(), "manifest.json")
    return manifest


def inventory(store: LocalStore, part: int, fingerprint: str, key: str = "k") -> None:
    listed = [InputFile(f"{part}", f"/in/{part}", 1, f"time {part}")]
    data = dump_inputs(fingerprint, JOB, Inventory.from_files(listed), run_key=key)
    store.put_bytes(data, f"inventory{PARTS[part]}.jsonl.gz")


def versions(store: LocalStore, manifest: Manifest) -> list[str | None]:
    kept = [read_part(store, manifest, part) for part in range(manifest.appended + 1)]
    return [file.version for each in kept for _, file in each.files]


@pytest.mark.parametrize("other", ["0" * 32, "f" * 32])
def test_an_inventory_of_another_dataset(tmp_path: Path, other: str) -> None:
    store = LocalStore(str(tmp_path))
    manifest = dataset(store)
    fingerprint = "".join(list(manifest.fingerprint))
    assert versions(store, manifest) == ["time 0"]
    assert run_key_of(store, manifest) == "k"
    assert is_of_run(store, manifest, "k")
    assert is_of_run(store, manifest, fingerprint)
    assert not is_of_run(store, manifest, other)
    inventory(store, 0, other)
    assert versions(store, manifest) == [None]
    assert run_key_of(store, manifest) == fingerprint
    inventory(store, 0, fingerprint, key="")
    assert versions(store, manifest) == ["time 0"]
    assert run_key_of(store, manifest) == fingerprint
    (tmp_path / "inventory.jsonl.gz").unlink()
    assert versions(store, manifest) == [None]
    assert run_key_of(store, manifest) == fingerprint


@pytest.mark.parametrize("appended", [0, 1, 2])
def test_new_times_are_noted(tmp_path: Path, appended: int) -> None:
    """Of all parts, by a run that found them the same; the key only of a whole run."""
    store = LocalStore(str(tmp_path))
    manifest = dataset(store, appended)
    renew_inventories(store, manifest, {"0": "new", "2": "newer"}, "m")
    assert versions(store, manifest) == ["new", "time 1", "newer"][: appended + 1]
    assert run_key_of(store, manifest) == ("k" if appended else "m")
    assert dict(read_inputs(store, manifest, JOB)) == {
        f"{part}": ConvertedFile(1, version, is_sidecar=False, content=CONTENT)
        for part, version in enumerate(versions(store, manifest))
    }
    other = manifest.model_copy(update={"seed": 5})
    renew_inventories(store, other, {"0": "later"}, "n")  # another run was faster
    assert versions(store, manifest)[0] == "new"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fingerprint": "0" * 32}, "belongs to another dataset (fingerprint 00000000"),
        ({"fingerprint": "f" * 32}, "belongs to another dataset (fingerprint ffffffff"),
        ({"format_version": 0}, "in another format (0, now"),
        ({"format_version": 99}, "in another format (99, now"),
    ],
)
def test_inputs_that_nothing_can_be_appended_to(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    store = LocalStore(str(tmp_path))
    manifest = plain_manifest([], fingerprint="5" * 32)
    fields = {"format_version": 1, "fingerprint": "5" * 32, "job": fixed_fields(JOB)}
    kept = parse_inputs(dump_inputs("5" * 32, JOB, NO_FILES), "x")
    assert {**fields, "format_version": kept.format_version} == {
        name: getattr(kept, name) for name in fields
    }
    facts = {**fields, "format_version": kept.format_version, **change}
    data = dump_part_inputs(PartInputs(**facts, files=kept_files({})))  # type: ignore[arg-type]
    store.put_bytes(data, "inputs.jsonl.gz")
    with pytest.raises(OutputRefusedError) as caught:
        read_inputs(store, manifest, JOB)
    assert told in str(caught.value)
    assert "convert all inputs again with `overwrite=true`" in str(caught.value)
    changes = dataset_changes(store, manifest, JOB, NO_FILES)
    number = change.get("format_version")
    assert changes == (
        []
        if number is None
        else [f"the format of the records: {number}, now {kept.format_version}"]
    )


def test_the_reading_of_folders_is_told_if_nothing_else_differs(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    job = JobSpec(source="images", name="d")
    files = Inventory.from_files(
        InputFile(f"{folder}/{name}/1.png", f"/in/{folder}/{name}/1.png", 1, "v")
        for folder in ("train", "test")
        for name in ("cat", "dog")
    )
    manifest = plain_manifest([], fingerprint="5" * 32)
    store.put_bytes(dump_inputs("5" * 32, job, files), "inputs.jsonl.gz")
    folders = ["which folders are read as splits and as classes"]
    assert dataset_changes(store, manifest, job, files) == folders
    other = job.model_copy(update={"seed": 1})
    seeds = ["`seed=0`, now `seed=1`"]
    assert dataset_changes(store, manifest, other, files) == seeds
    later = Inventory.from_files([files[0]._replace(size=2), *files[1:]])
    (told,) = dataset_changes(store, manifest, job, later)
    assert told == "input files: 1 changed (train/cat/1.png)"
