"""What a run notes when it begins, and looks at before it stages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plain_manifests import plain_context, plain_manifest

from recordmill.schemas.errors import BusyError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.schema_file import load_schema
from recordmill.transforms.commit.staging import (
    _with_base,
    description_files,
    keep_inventory,
)
from recordmill.transforms.inventory import NO_FILES
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.workspace import Workspace


def test_when_the_first_launch_listed_the_inputs(tmp_path: Path) -> None:
    """Later launches take up what it read. In a store nobody tells such times."""
    work = Workspace.for_run(LocalStore(str(tmp_path)), "0123456789abcdef")
    work.make_folders()
    remote = plain_context(work, inputs=("s3://b/in",), input_root="s3://b/in")
    keep_inventory(remote, NO_FILES, NO_FILES, 2.5)
    assert work.read_file("listed-at") is None
    local = plain_context(work, inputs=("in",), input_root=str(tmp_path))
    for listed_at in (3.5, 4.5):
        keep_inventory(local, NO_FILES, NO_FILES, listed_at)
        assert work.read_file("listed-at") == b"3.5"


@pytest.mark.parametrize("found", [None, "0" * 32, "f" * 32])
def test_an_append_to_another_dataset(tmp_path: Path, found: str | None) -> None:
    work = Workspace.for_run(LocalStore(str(tmp_path)), "0123456789abcdef")
    context = plain_context(work, base_fingerprint="5" * 32, part=1)
    base: Manifest | None = None
    if found is not None:
        base = plain_manifest([], fingerprint=found)
    with pytest.raises(BusyError) as caught:
        _with_base(context, base, plain_manifest([], appended=1))
    assert str(caught.value) == (
        f"{tmp_path}: the dataset changed since this run began to append to it "
        f"(fingerprint {found or 'none'}, was {'5' * 32}); run again"
    )


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({}, ["dataset_info.json", "features.json", "schema.pbtxt"]),
        ({"label": "b"}, ["dataset_info.json", "features.json", "schema.pbtxt"]),
        ({"compression": "gzip"}, ["schema.pbtxt"]),
        ({"payload": "json"}, ["schema.pbtxt"]),
    ],
)
def test_what_describes_the_records(options: dict[str, str], files: list[str]) -> None:
    """TFDS reads examples that are not packed, and knows the label of a table."""
    job = JobSpec(source="csv", name="d", **options)
    text = b"features:\n  a: {dtype: int64}\n  b: {dtype: int64}\n"
    made = description_files(job, load_schema(text, "s.yaml").to_schema(), [])
    assert sorted(made) == files
    if "dataset_info.json" in files:
        keys = json.loads(made["dataset_info.json"]).get("supervisedKeys")
        assert (keys is not None) is ("label" in options)
