"""Selects the native extension or its replacement in NumPy.

`loops` is the extension in C if it was built, otherwise the module numpy_loops.py, which
documents the functions. Both produce the same results, the extension in less time, so
workers with and without it can share a job. Set the environment variable
RECORDMILL_COMPILED=no to turn the extension off. See docs/decisions/0009.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recordmill.transforms.native import numpy_loops

_TURNED_OFF = os.environ.get("RECORDMILL_COMPILED", "").lower() in {"0", "no", "off"}


def _load() -> Any:
    if not _TURNED_OFF:
        try:
            module = import_module("recordmill.transforms.native._loops")
        except ImportError:
            return numpy_loops
        # In a checkout the extension may be outdated, and is then ignored.
        if all(hasattr(module, name) for name in numpy_loops.IN_EXTENSION):
            return module
    return numpy_loops


if TYPE_CHECKING:
    loops = numpy_loops
else:
    loops = _load()


def describe() -> str:
    """Returns a line about the use of the native extension, and how to build it."""
    if loops.CRC32C != "package":
        return f"native extension: yes (CRC-32C by {loops.CRC32C})"
    if _TURNED_OFF:
        return "native extension: no (RECORDMILL_COMPILED turns it off)"
    return (
        "native extension: no, it was not built (same results, but slower). Install a "
        "C compiler, then reinstall recordmill from its source"
    )
