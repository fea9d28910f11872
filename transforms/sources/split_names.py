"""Knows the names of folders that are taken for splits."""

from __future__ import annotations

SPLIT_NAMES = frozenset(
    {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
)


def is_split_name(name: str) -> bool:
    """Tells whether a folder of this name may be a split."""
    return name.casefold() in SPLIT_NAMES
