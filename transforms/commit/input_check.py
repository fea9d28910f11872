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

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.transforms.commit.input_log import KeptFile
from recordmill.transforms.file_content import bytes_of_content, contents
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage.reading import is_local, local_path, read_range
from recordmill.transforms.tfrecord import crc32c

_SHOWN = 3  # files in the error message
_READ_BYTES = 8 << 20


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
        changed = list(
            _changed_locally(listed, str(local_path(root)), known, since or 0.0)
        )
    else:
        found = {
            file.uri: file
            for file in list_inputs(inputs, storage, keep_unreadable=True)[1]
        }
        changed = list(_changed_in_store(listed, root, found))
    if changed:
        more = len(changed) - _SHOWN
        raise ChangedInputError(
            f"{count(len(changed), 'input file')} changed while the run read them:\n"
            + "\n".join(f"  {change}" for change in changed[:_SHOWN])
            + (f"\n  and {count(more, 'other file')}" if more > 0 else "")
            + "\nRun the same command again when nothing writes to the inputs"
        )


def _changed_locally(
    files: Mapping[str, KeptFile], folder: str, known: Mapping[str, str], since: float
) -> Iterator[str]:
    above = f"{folder.rstrip('/')}/"
    for path, file in files.items():
        name = above + path
        try:
            now = os.stat(name)  # noqa: PTH116 (a million files take a second or two)
        except OSError as error:
            yield f"{name}: {error.strerror}"
            continue
        difference = _difference(name, file, now.st_size, str(now.st_mtime_ns))
        if difference:
            yield difference
        elif now.st_ctime > since and not _is_as_read(name, known.get(path, ""), file):
            yield f"{name}: was replaced by another file of the same size and time"


def _is_as_read(name: str, content: str, file: KeptFile) -> bool:
    """Tells whether a local file holds what was read of it; True if nothing was."""
    size = bytes_of_content(content, file.size)
    if not size:
        return True
    parts = (
        FileChecksum(name, start, start + len(data), crc32c(data))
        for start in range(0, size, _READ_BYTES)
        if (data := read_range(name, start, min(start + _READ_BYTES, size)))
    )
    return contents(parts, {name: file.size}).get(name) == content


def _changed_in_store(
    files: Mapping[str, KeptFile], root: str, found: Mapping[str, InputFile]
) -> Iterator[str]:
    for path, file in files.items():
        uri = posixpath.join(root, path)
        if uri not in found:
            yield f"{uri}: is missing"
            continue
        now = found[uri]
        if difference := _difference(uri, file, now.size, now.version):
            yield difference


def _difference(name: str, file: KeptFile, size: int, version: str) -> str:
    """Returns how a file differs from that of the inventory, or ""."""
    if size != file.size:
        return f"{name}: {size:,} bytes, was {file.size:,} when the run began"
    if version != file.version:
        return f"{name}: was written again (with {size:,} bytes as before)"
    return ""
