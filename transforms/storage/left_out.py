"""Recognizes hidden files and junk in input folders, which are not converted."""

from __future__ import annotations

import re

# Names that operating systems and network drives leave in folders; lower case.
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
SKIPPED_PATH_PATTERN = rf"(?:^|/)(?:\.|(?:{'|'.join(_JUNK)})(?:/|$))"
"""The regular expression of skipped paths; matched case-insensitively."""

_LEFT_OUT = re.compile(SKIPPED_PATH_PATTERN, re.IGNORECASE)


def is_skipped(path: str) -> bool:
    """Returns whether a path below a folder is hidden, or junk of an operating system.

    >>> [is_skipped(p) for p in ("cat/.git/a", "cat/Thumbs.db", "__MACOSX/a.jpg")]
    [True, True, True]
    >>> [is_skipped(p) for p in ("cat/a.jpg", "my thumbs.db.jpg")]
    [False, False]
    """
    return _LEFT_OUT.search(path) is not None
