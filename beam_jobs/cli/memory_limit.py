"""Tells that memory is short: before the work where a limit says so, else when it ends.

Libraries fail in many ways where a process may not have the memory to load them: an
import error with words of the linker, an exit of OpenBLAS. The line before the work
explains those that nobody can catch.
"""

from __future__ import annotations

import errno
import resource

NEEDED_BYTES = 1 << 30  # to load all libraries with two cores; measured: 0.6 to 0.9 GB

_WORDS = ("failed to map segment", "annot allocate memory", "can't start new thread")
_WAY_OUT = "raise the limit (ulimit -v, or that of the container or service)"


def limit_warning() -> str:
    """Returns a warning if this process may have too little memory to start, or ""."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= NEEDED_BYTES:
        return ""
    return (
        f"this process may use {limit >> 20:,} MiB of memory, about "
        f"{NEEDED_BYTES >> 20:,} MiB are needed: {_WAY_OUT}"
    )


def shortage(error: BaseException, *, unexpected: bool = False) -> str:
    """Returns a message if an error says that memory is short, or "".

    Args:
      error: that ended the command.
      unexpected: whether it is none that people are told of. Under a low limit it
        counts as a shortage, whatever a library that was half loaded says.
    """
    is_short = (
        (unexpected and bool(limit_warning()))
        or isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    )
    if isinstance(error, ImportError | RuntimeError):
        is_short |= any(words in str(error) for words in _WORDS)
    if not is_short:
        return ""
    found = str(error).strip().rpartition("\n")[2] or type(error).__name__
    return f"memory is short ({found}): {_WAY_OUT}"
