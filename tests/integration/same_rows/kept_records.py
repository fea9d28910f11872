"""Keeps what a pipeline finds, in a module: Beam would copy what is in the main one."""

from collections import defaultdict

FOUND: dict[str, list[bytes]] = defaultdict(list)  # threads of this process fill it


def keep(record: bytes, name: str) -> None:
    """Keep a record of a dataset."""
    FOUND[name].append(record)
