"""Reads what a command wrote to a terminal."""

from __future__ import annotations

import os
import select


def shown_on(ours: int) -> str:
    """All that was written and flushed; a terminal gives a part with each reading."""
    parts = []
    while select.select([ours], [], [], 0)[0]:
        try:
            parts.append(os.read(ours, 1 << 16))
        except OSError:  # its other end was closed, and all was read
            break
    return b"".join(parts).decode()
