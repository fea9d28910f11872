"""Compares rows whose values may be arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def as_key(value: Any) -> Any:
    """Something equal for equal values, arrays among them, by which to sort."""
    if isinstance(value, Mapping):
        return sorted((name, as_key(inner)) for name, inner in value.items())
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes().hex())
    return repr(value)


def same_rows(
    found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]
) -> bool:
    """Whether both hold the same rows, as often, in whatever order."""
    return sorted(map(as_key, found)) == sorted(map(as_key, expected))


def keys_of(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Something equal for equal rows in the same order."""
    return list(map(as_key, rows))
