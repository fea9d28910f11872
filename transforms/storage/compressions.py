"""Tells the compression of a file by its first bytes."""

from __future__ import annotations

COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def compression_of(start: bytes) -> str:
    """Returns the compression of a file by its first bytes, or ""."""
    found = (name for mark, name in COMPRESSIONS.items() if start.startswith(mark))
    return next(found, "")
