"""Workspaces of earlier tries: what of them a run goes on from."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from recordmill.schemas.ranges import InputRange, RangeResult, RowIssue
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks import workspace
from recordmill.transforms.tasks.convert_range import BoundaryScan
from recordmill.transforms.tasks.workspace import (
    Workspace,
    load_checkpoint,
    save_checkpoint,
)
from recordmill.transforms.tasks.write_shard import ShardCheckpoint


def workspace_with(tmp_path: Path, note: str) -> Workspace:
    """A workspace with a finished range and a finished shard, as an earlier try left it."""
    workspace = Workspace.for_run(LocalStore(str(tmp_path)), "0" * 32)
    workspace.create("scratch")
    for name in ("range-scratch-000000", "shard-train-00000"):
        workspace.write_file(f"facts/{name}.json", b"{}")
    if note:
        workspace.write_file("facts/exchange", note.encode())
    return workspace


@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("", {"range-scratch-000000.json", "shard-train-00000.json"}),
        ("scratch 3", {"range-scratch-000000.json", "shard-train-00000.json"}),
        ("scratch 2", set()),  # another layout
        ("reference 3", set()),
    ],
)
def test_what_another_exchange_left_is_removed(
    tmp_path: Path, note: str, kept: set[str]
) -> None:
    workspace = workspace_with(tmp_path, note)
    for _ in range(2):
        workspace.create("scratch")
        assert {*workspace.list_names("facts")} - {"exchange"} == kept


def test_a_checkpoint_with_other_keys_is_none(tmp_path: Path) -> None:
    """One of another version, whose issues would go unnoticed."""
    workspace = workspace_with(tmp_path, "")
    issues = (RowIssue("changed", "gif", 2, "a/b.gif", ("only the first frame",)),)
    result = RangeResult(InputRange(0, "a", "a", 0, 9, 0, 9), 3, 0, (), issues=issues)
    save_checkpoint(workspace, "range-0", result)
    assert load_checkpoint(workspace, "range-0", RangeResult) == result
    saved = workspace.read_file("facts/range-0.json")
    assert saved is not None
    workspace.write_file("facts/range-0.json", saved.replace(b'"issues"', b'"odd"'))
    assert load_checkpoint(workspace, "range-0", RangeResult) is None


def test_checkpoints_have_the_fields_of_their_layout() -> None:
    """A run resumes checkpoints of its own layout only.

    If a field is renamed and has a default, an older checkpoint would lose its count
    without an error: increment `_LAYOUT` then, and take the new digest.
    """
    fields: dict[str, list[str]] = {}
    for kind in (RangeResult, BoundaryScan, ShardCheckpoint):
        schema = TypeAdapter(kind).json_schema()
        for name, part in {kind.__name__: schema, **schema.get("$defs", {})}.items():
            fields[name] = sorted(part.get("properties", {}))
    digest = sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]
    assert (workspace._LAYOUT, digest) == (3, "0e74cee4")
