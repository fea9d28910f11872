"""Tells how much memory is free for the page cache."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def available_memory() -> int:
    """Returns the bytes of memory that are free for the page cache; 0 if unknown."""
    available = 0
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        available = int(line.split()[1]) * 1024
    # In a container the limit of its control group applies.
    with suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        available = min(available, limit)
    return available
