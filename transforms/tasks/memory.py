"""Returns freed memory to the system between tasks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa


def release_memory() -> None:
    """Releases what Arrow and the C library have freed but still keep.

    Blocks that are freed one by one leave gaps: in a Flink worker, with pieces of 1 MiB
    and shards of 128 MiB, they added up to 200 MB (tests/bench/flink_memory.py).
    """
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)


def _find_trim() -> Callable[[int], int] | None:
    """Finds glibc's malloc_trim; other C libraries have none and keep less."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


_trim = _find_trim()
