"""Cores and memory as the control groups of a container allow them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.transforms.machine import available_memory, usable_cores

MINE = len(os.sched_getaffinity(0))
ONE = {"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000"}


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("", {}, 64),
        ("0::/", {"cpu.max": "max 100000"}, 64),
        ("0::/", {"cpu.max": "250000 100000"}, 3),
        ("0::/", {"cpu.max": "1000 100000"}, 1),
        # The smallest on the way up holds; a path of the machine is not there.
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4),
        ("0::/docker/0123", {"cpu.max": "200000 100000"}, 2),
        (
            "4:cpu,cpuacct:/b\n0::/",
            {"cpu/b/cpu.cfs_quota_us": "150000", "cpu/b/cpu.cfs_period_us": "50000"},
            3,
        ),
        (
            "2:cpuacct:/\n1:cpu:/",
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            64,
        ),
        ("1:cpu:/docker/0123", {f"cpu/{name}": ONE[name] for name in ONE}, 1),
        ("1:cpuset:/", {f"cpu/{name}": ONE[name] for name in ONE}, 64),
        ("0::/", {"cpu.max": "unreadable"}, 64),
    ],
)
def test_quotas_of_control_groups(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: str,
    files: dict[str, str],
    cores: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    write_tree(tmp_path, {"proc/self/cgroup": groups})
    write_tree(tmp_path / "sys/fs/cgroup", files)
    assert usable_cores(tmp_path) == cores


def test_cores_that_a_process_is_bound_to() -> None:
    code = (
        "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]);"
        "from recordmill.transforms.machine import usable_cores; print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stdout) == 1
    assert 1 <= usable_cores() <= MINE


@pytest.mark.parametrize(
    ("groups", "files", "megabytes"),
    [
        ("0::/", {"memory.max": "max"}, 8192),
        ("0::/a", {"a/memory.max": f"{64 << 20}", "memory.max": "max"}, 64),
        ("4:memory:/x", {"memory/memory.limit_in_bytes": f"{32 << 20}"}, 32),
    ],
)
def test_memory_of_control_groups(
    tmp_path: Path, groups: str, files: dict[str, str], megabytes: int
) -> None:
    write_tree(
        tmp_path,
        {"proc/self/cgroup": groups, "proc/meminfo": "MemAvailable:  8388608 kB"},
    )
    write_tree(tmp_path / "sys/fs/cgroup", files)
    assert available_memory(tmp_path) == megabytes << 20
