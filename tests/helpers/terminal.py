"""Reads what a command wrote to a terminal."""

from __future__ import annotations

import os
import re
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


def plain_text(ours: int) -> str:
    """All that is written until the other end is closed, without control sequences."""
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            while block := terminal.read(4096):
                shown += block
        except OSError:
            pass  # the other side is closed
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
