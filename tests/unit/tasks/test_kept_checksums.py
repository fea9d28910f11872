"""Checksums of tasks: few pass through the runner, many wait in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.schemas.input_files import FileChecksum, TaskChecksums
from recordmill.schemas.ranges import InputRange, RangeResult
from recordmill.transforms.file_content import checksums_in
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.workspace import (
    MOST_IN_RESULT,
    PREPARE,
    Workspace,
    has_task_files,
    load_checksums,
    save_checksums,
)

FEW = [FileChecksum("a \u00e4\n.csv", 0, 9, 1 << 31)]
MANY = [FileChecksum(f"{number}.jpg", 0, 9, number) for number in range(100)]


def result_of(checksums: TaskChecksums) -> RangeResult:
    everything = InputRange(0, "", "", 0, 0, 0, 0)
    return RangeResult(everything, 0, 0, (), checksums=checksums)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace.for_run(LocalStore(str(tmp_path)), "0" * 32)
    made.create("scratch")
    return made


def test_kept_and_loaded(workspace: Workspace) -> None:
    few = save_checksums(workspace, "range-0", FEW)
    many = save_checksums(workspace, "range-1", MANY)
    save_checksums(workspace, PREPARE, FEW[:0])
    assert (few, many) == (TaskChecksums(tuple(FEW)), TaskChecksums(num_in_file=100))
    assert len(MANY[:MOST_IN_RESULT]) == MOST_IN_RESULT
    assert has_task_files(workspace, "range-0", result_of(few), 0)
    assert has_task_files(workspace, "range-1", result_of(many), 0)
    found = load_checksums(workspace, [few, many])
    assert found is not None
    assert list(checksums_in(found.to_batches())) == FEW + MANY


@pytest.mark.parametrize("left", [0, 3, 2000, "zeros", None])
def test_a_file_that_power_loss_cut(
    workspace: Workspace, left: int | str | None
) -> None:
    """The task is repeated; if it is too late for that, the content is unknown."""
    many = save_checksums(workspace, "range-1", MANY)
    path = workspace.local_path("facts/range-1.checksums")
    data = path.read_bytes()
    path.unlink()
    if left == "zeros":
        path.write_bytes(data[:2000] + bytes(len(data) - 2000))
    elif left is not None:
        path.write_bytes(data[:left])
    assert not has_task_files(workspace, "range-1", result_of(many), 0)
    assert load_checksums(workspace, [many]) is None
