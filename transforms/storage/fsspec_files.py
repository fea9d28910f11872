"""Reads, describes and renames single files of fsspec's file systems.

A name may be that of a folder, or lie below a file: either way it is not a file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from recordmill.transforms.storage.s3_requests import head_object, speaks_s3

NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def file_info(system: Any, path: str) -> dict[str, Any] | None:
    """Returns what a store tells of a file at this moment, or None if there is none."""
    system.invalidate_cache()
    describe = head_object if speaks_s3(system) else type(system).info
    try:
        info: dict[str, Any] = describe(system, path)
    except NO_FILE:
        return None
    return info if info["type"] == "file" else None


def read_whole(system: Any, path: str) -> bytes:
    """Returns a small file's bytes."""
    # Otherwise s3fs asks for the size first, to read parts side by side.
    options = {"max_concurrency": 1} if speaks_s3(system) else {}
    return bytes(system.cat_file(path, **options))


def read_between(system: Any, path: str, start: int, stop: int) -> bytes:
    """Returns the bytes of a file from start to stop; fewer if it ends before."""
    if speaks_s3(system) and start < stop:
        # Most ranges are within the file, so it is not asked for its size.
        with suppress(OSError):  # there is no such range; or what is raised below
            return bytes(system.cat_file(path, start=start, end=stop))
    info = system.info(path)
    if info["type"] != "file":
        raise FileNotFoundError(path)
    # Stores answer differently to a range after the end, so never ask for one.
    end = min(stop, int(info["size"]))
    return bytes(system.cat_file(path, start=start, end=end)) if start < end else b""


def put_and_rename(
    system: Any,
    path: str,
    temporary: str,
    put: Callable[[Any, str], object],
    size: int,
) -> None:
    """Writes a file under a temporary name and checks it, then renames it.

    Args:
      system: one that shows readers an unfinished file.
      path: the file's name in the end.
      temporary: its name until then.
      put: put(system, path) writes the file.
      size: in bytes, of the whole file.

    Raises:
      ConnectionError: the file is not whole.
    """
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    put(system, temporary)
    system.invalidate_cache()
    stored_size = int(system.info(temporary)["size"])
    if stored_size != size:
        raise ConnectionError(f"only {stored_size} of {size} bytes arrived")
    system.mv(temporary, path)


def rename(system: Any, source: str, path: str) -> None:
    """Renames a file, unless an earlier try did it and its answer was lost."""
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    with suppress(FileNotFoundError):
        system.mv(source, path)
