"""Files that are read back: whatever they hold, they are read, or an error names them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_tools import manifest_of, recordmill
from mutated_json import mutated

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import RangeResult
from recordmill.transforms.commit.input_log import parse_inputs
from recordmill.transforms.commit.versions import read_latest
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease_holder import MAX_LEASE_SECONDS, Holder
from recordmill.transforms.tasks.checkpoints import (
    load_checkpoint,
    read_errors,
)
from recordmill.transforms.tasks.read_rejects import parse_reject
from recordmill.transforms.tasks.workspace import Workspace


@contextmanager
def suppress_naming(file: str) -> Iterator[None]:
    """Passes over an error, if it names the file in words of this project."""
    try:
        yield
    except RecordmillError as error:
        message = str(error)
    else:
        return
    assert file in message
    assert "Input should" not in message
    assert "pydantic" not in message
    assert len(message) < 1000


def check(read: Callable[[bytes, str], object], data: bytes) -> None:
    """Makes sure that a reader reads, or names the file."""
    with suppress_naming("some/file.json"):
        read(data, "some/file.json")


@pytest.fixture(scope="module")
def manifest(iris: Path) -> dict[str, Any]:
    return manifest_of(iris)


@given(st.data())
def test_manifest(manifest: dict[str, Any], data: st.DataObject) -> None:
    def read(content: bytes, uri: str) -> None:
        found = Manifest.from_bytes(content, uri)
        assert found.records >= 0
        assert found.num_bytes >= 0
        assert Manifest.from_bytes(found.to_bytes(), uri) == found

    check(read, data.draw(mutated(manifest)))


def test_inspect_and_verify_of_such_a_manifest(
    iris: Path, manifest: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("copy") / "iris"
    folder.mkdir()
    for file in iris.iterdir():
        if file.is_file() and file.name != "manifest.json":
            (folder / file.name).symlink_to(file)

    @given(mutated(manifest))
    def try_all(content: bytes) -> None:
        (folder / "manifest.json").write_bytes(content)
        for command in (["verify"], ["verify", "--quick"], ["inspect"]):
            ran = recordmill(*command, folder)
            assert ran.status in (0, 1, 65, 73), ran.err

    try_all()


HOLDER = json.loads(Holder.this_process(60.0).to_bytes())


@given(mutated(HOLDER))
def test_lock(data: bytes) -> None:
    holder = Holder.from_bytes(data)
    if holder is not None:
        assert 0 < holder.lease_seconds <= MAX_LEASE_SECONDS
        holder.is_on_this_machine()
        replace(holder, pid=holder.pid).is_running()


LINES: list[Any] = [
    {"recordmill": 7, "fingerprint": "ab" * 32, "job": {"source": "csv"}},
    ["a.csv", 12, "1"],
    ["b.png", 3, "2", "side"],
]


@given(st.data())
def test_inventory(data: st.DataObject) -> None:
    lines = [data.draw(mutated(line)) for line in LINES]
    check(parse_inputs, gzip.compress(b"".join(line + b"\n" for line in lines)))


@given(st.binary(max_size=60))
def test_inventory_that_is_no_gzip(data: bytes) -> None:
    check(parse_inputs, data)


REJECT = {
    "uri": "a.csv",
    "position": 3,
    "reason": "oh",
    "raw": base64.b64encode(b"x").decode(),
}


@given(mutated(REJECT))
def test_reject(data: bytes) -> None:
    check(lambda line, where: parse_reject(line, where), data)


@given(st.data())
def test_latest(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "latest"
    folder.mkdir(exist_ok=True)
    fields = {"version": "1.0.0", "path": "1.0.0", "fingerprint": "ab"}
    (folder / "latest.json").write_bytes(data.draw(mutated(fields)))
    named = f"{folder}/latest.json: "
    with suppress_naming(named):
        read_latest(LocalStore(str(folder)))


NOTE = {"expected": True, "kind": "X", "about": "data", "message": "m", "time": 1.0}


@given(st.data())
def test_checkpoints_and_notes_of_workers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A checkpoint that cannot be read is made again; a note is passed over."""
    root = tmp_path_factory.getbasetemp() / "workspace"
    workspace = Workspace.of(LocalStore(str(root)), "0123456789abcdef")
    for folder in ("facts", "errors"):
        workspace.local_path(folder).mkdir(parents=True, exist_ok=True)
    facts = {"range": {"uri": "a", "start": 0}, "rows_read": 3, "rows_rejected": 0}
    workspace.put("facts/range-0.json", data.draw(mutated(facts)))
    load_checkpoint(workspace, "range-0", RangeResult)
    workspace.put("errors/0.json", data.draw(mutated(NOTE)))
    for note in read_errors(workspace):
        assert isinstance(note["message"], str)
        assert isinstance(note["kind"], str)
