"""Checks before a commit that no input changed since the run began.

A file that is replaced while it is read gives rows of both: 234,101 of the old and
65,899 of the new one in a measured run. When all inputs have been read, size and
version (modification time, or the store's etag) of each are compared with the
inventory; if one differs, nothing is published.

A local file can be replaced by one of the same size and time: by a copy that keeps times,
or from an archive whose files all have one. The system notes when it was put there, so a
file that was touched in any way since the run began is read again and compared with what
was read of it.
"""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from recordmill.schemas.archive_member import member_of
from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile, Seen
from recordmill.schemas.text import count
from recordmill.transforms.commit.input_log import KeptFile
from recordmill.transforms.file_content import bytes_of_content, contents
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage.file_status import file_status
from recordmill.transforms.storage.reading import is_local, local_path, read_range
from recordmill.transforms.tfrecord import crc32c

_SHOWN = 3  # files in the error message
_READ_BYTES = 8 << 20
_CLOCK_SECONDS = 0.001  # what was touched so shortly before is looked at closely


def require_same_inputs(
    files: Mapping[str, KeptFile],
    root: str,
    inputs: Sequence[str],
    storage: StorageOptions,
    converted: Mapping[str, str] | None = None,
    since: float | None = None,
) -> None:
    """Checks that no input changed since the inventory was taken.

    Files that only cells name are left out: most of them may not be read at all.

    Args:
      files: the inventory, by path below the root.
      root: of the inputs.
      inputs: files, folders or globs as the job has them.
      storage: options of the inputs' storage.
      converted: the content of what was read of each file, by path; None if unknown.
      since: when the run began, in Unix seconds; None if unknown.

    Raises:
      InputError: an input changed or is missing.
    """
    listed = {
        path: file
        for path, file in files.items()
        if not file.is_side and not file.is_unreadable
    }
    if is_local(root):
        known = converted or {} if since is not None else {}
        folder = str(local_path(root))
        began = since or 0.0
        unsure = _maybe_changed(listed, folder, began if known else math.inf)
        found_changes = _changed_locally(unsure, folder, known, began)
    else:
        found = {
            file.uri: file
            for file in list_inputs(
                inputs, storage, keep_unreadable=True, open_archives=False
            )[1]
        }
        found_changes = _changed_in_store(listed, root, found)
    changed = list(dict.fromkeys(found_changes))  # an archive has many members
    if changed:
        more = len(changed) - _SHOWN
        raise ChangedInputError(
            f"{count(len(changed), 'input file')} changed while the run read them:\n"
            + "\n".join(f"  {change}" for change in changed[:_SHOWN])
            + (f"\n  and {count(more, 'other file')}" if more > 0 else "")
            + "\nRun the same command again when nothing writes to the inputs"
        )


def _maybe_changed(
    files: Mapping[str, KeptFile], folder: str, since: float
) -> dict[str, KeptFile]:
    """Returns the files that are not surely as they were, and the members of archives.

    Args:
      files: the inventory, by path.
      folder: the input root.
      since: when the run began, in Unix seconds: what was touched later is unsure.
    """
    above = f"{folder.rstrip('/')}/"
    now = file_status([above + path for path in files])
    times = zip(now.modified.tolist(), (now.changed / 1e9).tolist(), strict=True)
    limit = since - _CLOCK_SECONDS
    return {
        path: file
        for (path, file), size, (modified, touched) in zip(
            files.items(), now.sizes.tolist(), times, strict=True
        )
        if size != file.size or str(modified) != file.version or touched > limit
    }


def _changed_locally(
    files: Mapping[str, KeptFile], folder: str, known: Mapping[str, str], since: float
) -> Iterator[str]:
    above = f"{folder.rstrip('/')}/"
    # The members of an archive are as it is, so it is asked once for all of them.
    status = lru_cache(maxsize=16)(os.stat)
    for path, file in files.items():
        name, seen = _file_of(above + path, file)
        try:
            now = status(name)
        except OSError as error:
            yield f"{name}: {error.strerror}"
            continue
        difference = _difference(name, seen, now.st_size, str(now.st_mtime_ns))
        if difference:
            yield difference
        elif now.st_ctime > since and not _is_as_read(
            above + path, known.get(path, ""), file
        ):
            yield f"{name}: was replaced by another file of the same size and time"


def _is_as_read(name: str, content: str, file: KeptFile) -> bool:
    """Tells whether a local file holds what was read of it; True if nothing was."""
    size = bytes_of_content(content, file.size)
    if not size:
        return True
    parts = (
        FileChecksum(name, start, start + len(data), crc32c(data))
        for start in range(0, size, _READ_BYTES)
        if (data := _read(name, start, min(start + _READ_BYTES, size), file))
    )
    return contents(parts, {name: file.size}).get(name) == content


def _read(name: str, start: int, stop: int, file: KeptFile) -> bytes:
    version = file.version or ""
    seen = Seen(file.size, version) if member_of(version) else None
    try:
        return read_range(name, start, stop, seen=seen)
    except InputError:
        return b""  # of an archive that is another one


def _file_of(name: str, file: KeptFile) -> tuple[str, Seen]:
    """Returns the name of a file, or of the archive that it is in, and what it was."""
    member = member_of(file.version or "")
    if member is None:
        return name, Seen(file.size, file.version or "")
    return member.archive_uri(name), member.archive


def _changed_in_store(
    files: Mapping[str, KeptFile], root: str, found: Mapping[str, InputFile]
) -> Iterator[str]:
    for path, file in files.items():
        uri, seen = _file_of(posixpath.join(root, path), file)
        if uri not in found:
            yield f"{uri}: is missing"
            continue
        now = found[uri]
        if difference := _difference(uri, seen, now.size, now.version):
            yield difference


def _difference(name: str, file: Seen, size: int, version: str) -> str:
    """Returns how a file differs from that of the inventory, or ""."""
    if size != file.size:
        return f"{name}: {size:,} bytes, was {file.size:,} when the run began"
    if version != file.version:
        return f"{name}: was written again (with {size:,} bytes as before)"
    return ""
