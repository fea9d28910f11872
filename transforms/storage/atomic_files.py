"""Writes small local files so that readers see the whole file or none."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def temp_path(path: Path) -> Path:
    """Returns a hidden name beside `path` that no other writer uses."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def write_atomic(
    path: Path, data: bytes | memoryview, *, durable: bool = False
) -> None:
    """Writes a small file under a temporary name, then renames it.

    Args:
      path: final name.
      data: the file's bytes.
      durable: whether to wait until the bytes are on disk. The folder is not synced;
        see sync_folder.
    """
    temporary = temp_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Makes the renames in a folder durable (fsync)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
