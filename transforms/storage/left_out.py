"""Tells which names below a folder are no input: hidden ones, and junk."""

from __future__ import annotations

import re

# What operating systems and network drives leave in folders; lower case.
_JUNK = (
    r"thumbs\.db",
    r"ehthumbs\.db",
    r"ehthumbs_vista\.db",
    r"desktop\.ini",
    "icon\r",
    "__macosx",
    "@eadir",
    r"\$recycle\.bin",
    "system volume information",
)
LEFT_OUT = rf"(?:^|/)(?:\.|(?:{'|'.join(_JUNK)})(?:/|$))"
"""Where it matches a path, whatever the case, the path is left out."""

_LEFT_OUT = re.compile(LEFT_OUT, re.IGNORECASE)


def is_left_out(path: str) -> bool:
    """Tells whether a path below a folder is hidden, or left by an operating system.

    >>> [is_left_out(p) for p in ("cat/.git/a", "cat/Thumbs.db", "__MACOSX/a.jpg")]
    [True, True, True]
    >>> [is_left_out(p) for p in ("cat/a.jpg", "my thumbs.db.jpg")]
    [False, False]
    """
    return _LEFT_OUT.search(path) is not None
