"""Records wait for their shard in memory, up to the budget; the bytes stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tools import convert

CIFAR = Path(__file__).parents[1] / "samples" / "cifar"  # two ranges: 492 and 123 kB


def test_where_records_wait_for_their_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recordmill.transforms.tasks.workspace.Workspace.remove", lambda workspace: None
    )
    shards = set()
    for memory, in_files in (("auto", 0), ("300kB", 1), ("0", 2)):
        output = tmp_path / memory / "digits"
        options = ["--exchange", "scratch", "--workers", "1", "--memory", memory]
        convert("cifar", CIFAR, output, *options)
        runs = [*output.glob(".recordmill/*/runs/*.records")]
        assert len(runs) == in_files, memory
        shards.add(
            tuple(path.read_bytes() for path in sorted(output.glob("*.tfrecord*")))
        )
    assert len(shards) == 1
