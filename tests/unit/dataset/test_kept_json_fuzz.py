"""A damaged manifest, checkpoint or note: the commands live with it (see tests/fuzz, too)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_tools import manifest_of, recordmill
from mutations import mutated

from recordmill.schemas.ranges import RangeResult
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.launches import read_errors
from recordmill.transforms.tasks.workspace import Workspace, load_checkpoint


@pytest.fixture(scope="module")
def manifest(iris: Path) -> dict[str, Any]:
    return manifest_of(iris)


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


NOTE = {"expected": True, "kind": "X", "about": "data", "message": "m", "time": 1.0}


@given(st.data())
def test_checkpoints_and_notes_of_workers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A checkpoint that cannot be read is made again; a note is passed over."""
    root = tmp_path_factory.getbasetemp() / "workspace"
    workspace = Workspace.for_run(LocalStore(str(root)), "0123456789abcdef")
    for folder in ("facts", "errors"):
        workspace.local_path(folder).mkdir(parents=True, exist_ok=True)
    facts = {"range": {"uri": "a", "start": 0}, "rows_read": 3, "rows_rejected": 0}
    workspace.write_file("facts/range-0.json", data.draw(mutated(facts)))
    load_checkpoint(workspace, "range-0", RangeResult)
    workspace.write_file("errors/0.json", data.draw(mutated(NOTE)))
    for note in read_errors(workspace):
        assert isinstance(note.message, str)
        assert isinstance(note.kind, str)
