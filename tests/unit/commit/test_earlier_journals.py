"""What earlier versions left half done: the files that go, and those that stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain_manifests import plain_manifest

from recordmill.schemas.errors import OutputRefusedError
from recordmill.transforms.commit.check_output import check_output
from recordmill.transforms.commit.cleanup import clean
from recordmill.transforms.commit.commit import clean_up, files_to_clean, is_clean
from recordmill.transforms.storage import LocalStore

RUN = "0123456789abcdef"
SHARDS = ["d-train.tfrecord-00000-of-00001"]
APPENDED = [*SHARDS, *(f"d-train.tfrecord-a0000{n}-00000-of-00001" for n in (1, 2, 3))]
PARTS = ["", *(f"a0000{part}-" for part in (1, 2, 3, 4))]
REJECTS = [f"rejects/{part}range-0.jsonl" for part in PARTS]
LISTS = [
    f"{name}{part and '-'}{part.rstrip('-')}{ending}"
    for part in PARTS
    for name, ending in {
        "inputs": ".jsonl.gz", "inventory": ".jsonl.gz", "run": ".json"
    }.items()
]  # fmt: skip
DESCRIPTIONS = ["dataset_info.json", "features.json", "schema.pbtxt"]
FILES = [*APPENDED, *REJECTS, *LISTS, *DESCRIPTIONS, "notes.txt"]


def left_by(store: LocalStore, journal: str, appended: int) -> str:
    """Leaves what a run was killed amid; returns the name of its journal."""
    for name in FILES:
        store.put_bytes(b"x", name)
    name = f".recordmill/{RUN}/{journal}"
    other = plain_manifest(APPENDED[: appended + 1], appended=appended)
    store.put_bytes(other.to_bytes(), name)
    return name


def of_part(names: list[str], part: int) -> set[str]:
    return {name for name in names if f"a0000{part}" in name}


@pytest.mark.parametrize("journal", ["replaced.json", "staging/manifest.json"])
@pytest.mark.parametrize(("before", "now"), [(0, 0), (3, 0), (3, 1), (3, 2), (1, 3)])
def test_beside_a_dataset(tmp_path: Path, journal: str, before: int, now: int) -> None:
    """What the other one had, of parts that this one does not have, goes."""
    store = LocalStore(str(tmp_path))
    name = left_by(store, journal, before)
    manifest = plain_manifest(APPENDED[: now + 1], appended=now)
    store.put_bytes(manifest.to_bytes(), "manifest.json")
    assert not is_clean(store, manifest)
    gone = {
        each for part in range(now + 1, before + 1) for each in of_part(FILES, part)
    }
    stale = {"dataset_info.json", "features.json"} if now else set()
    assert files_to_clean(store, manifest) == sorted(gone | stale)
    assert clean(store, dry_run=True).names.keys() >= gone | stale
    clean_up(store)
    left = set(store.list())
    assert left == {*FILES, "manifest.json"} - gone - stale
    assert name not in left
    assert is_clean(store, manifest)


@pytest.mark.parametrize("journal", ["replaced.json", "staging/manifest.json"])
def test_without_a_dataset(tmp_path: Path, journal: str) -> None:
    """All files of the other one go, and all rejects; its own job may go on."""
    store = LocalStore(str(tmp_path))
    name = left_by(store, journal, 1)
    for overwrite in (False, True):
        assert check_output(store, "".join([*RUN, *RUN]), overwrite=overwrite) is None
    with pytest.raises(OutputRefusedError, match=name):
        check_output(store, "f" * 32, overwrite=False)
    clean_up(store)
    gone = {*APPENDED[:2], *LISTS[:6], *DESCRIPTIONS, *REJECTS}
    assert set(store.list()) == {*FILES} - gone
