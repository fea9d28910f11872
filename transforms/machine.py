"""Finds the cores and the memory of the machine that this process may use.

A container has a share of a machine. Its limits are files of its control groups, which
may be nested:

    /proc/self/cgroup                     0::/jobs/a           (version 2: one group)
                                          4:cpu,cpuacct:/b     (version 1: one for each)
    /sys/fs/cgroup/jobs/a/cpu.max         "150000 100000": 1.5 cores; "max 100000": all
    /sys/fs/cgroup/cpu/b/cpu.cfs_quota_us  150000, of cpu.cfs_period_us; -1: all

In a container the path may be the path on the host, while the files are mounted at the
root. So limits are looked for in each folder from the group up to the root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Returns the cores that this process may use, at least one.

    The number is the smaller of two: the cores that the process is bound to (`taskset`),
    and the CPU quota of its control groups, rounded up.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # only available on Linux
        cores = os.cpu_count() or 1
    quotas = [text.split() for text in _limits(root, "cpu", "cpu.max")]
    for folder in _groups(root, "cpu"):
        with suppress(OSError):
            both = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quotas.append([Path(folder, name).read_text().strip() for name in both])
    for quota in quotas:
        with suppress(ValueError):  # "max"
            micros, period = map(int, quota)
            if micros > 0 < period:
                cores = min(cores, -(-micros // period))
    return max(1, cores)


def available_memory(root: Path = _ROOT) -> int:
    """Returns the memory available to the page cache in bytes; 0 if unknown."""
    available = 0
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(root, "proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        available = int(line.split()[1]) * 1024
    for name in ("memory.max", "memory.limit_in_bytes"):
        for limit in _limits(root, "memory", name):
            with suppress(ValueError):  # "max"
                available = min(available, int(limit))
    return available


def _limits(root: Path, controller: str, name: str) -> Iterator[str]:
    """Yields the text of a limit file in each control group of this process."""
    for folder in _groups(root, controller):
        with suppress(OSError):
            yield Path(folder, name).read_text()


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's control group and of its parent groups."""
    try:
        lines = Path(root, "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        group = Path(path.lstrip("/"))
        top = Path(root, "sys/fs/cgroup", controller if controllers else "")
        yield from (top / folder for folder in (group, *group.parents))
