"""Finds how much memory a run may hold, and returns freed memory to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa

from recordmill.schemas.sizes import parse_memory
from recordmill.transforms.exchange.held_runs import HoldBudget
from recordmill.transforms.storage.free_memory import available_memory

_MOST_BYTES = 1 << 30  # held by default
_SHARE = 4  # of what is free, by default
_MOST_SECONDS = 30.0  # of the work of one worker, by default


def memory_budget(asked: str) -> HoldBudget:
    """Returns what sorted runs may be held in memory.

    Args:
      asked: a size, 0, or auto (see `parse_memory`).
    """
    size = parse_memory(asked)
    if size is None:
        most = min(_MOST_BYTES, available_memory() // _SHARE)
        return HoldBudget(most, _MOST_SECONDS)
    return HoldBudget(size)


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
