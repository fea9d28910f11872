"""Facts of the machine: figures of two machines are not comparable."""

from __future__ import annotations

import mmap
import os
import platform
import time
from pathlib import Path
from typing import Any

BLOCK = 4 << 20
DISK_BYTES = 512 << 20


def machine() -> dict[str, Any]:
    """Describes the machine, by what does not change from run to run."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def disk_speed(folder: Path, scale: float) -> dict[str, float]:
    """Measures megabytes a second of one file: written and synced, and read past caches.

    A file system without direct I/O gives no speed of reading.
    """
    path = folder / "disk-speed"
    num_bytes = max(1, round(DISK_BYTES * min(1, scale) / BLOCK)) * BLOCK
    block = os.urandom(BLOCK)
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(num_bytes // BLOCK):
            file.write(block)
        os.fsync(file.fileno())
    found = {"write_mb_per_s": num_bytes / 1e6 / (time.perf_counter() - started)}
    try:
        found["read_mb_per_s"] = num_bytes / 1e6 / _read_direct(path)
    except OSError:
        pass  # tmpfs, for one
    finally:
        path.unlink()
    return {name: round(speed) for name, speed in found.items()}


def _read_direct(path: Path) -> float:
    """Reads a file past the page cache; returns the seconds."""
    started = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, BLOCK) as aligned:
            while os.readv(descriptor, [aligned]):
                pass
    finally:
        os.close(descriptor)
    return time.perf_counter() - started
