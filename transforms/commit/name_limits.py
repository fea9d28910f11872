"""Checks before any work that the output's file system takes the names of all files.

The longest names are those of temporary files of shards: `.NAME-SPLIT...` and 33 more
characters. They are counted as if the dataset were appended to, so that this does not
fail later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.names import (
    MAX_APPENDS,
    commit_mark,
    index_file_name,
    labels_file_name,
    shard_file_name,
)
from recordmill.schemas.text import count, escaped
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.atomic_files import temp_path
from recordmill.transforms.storage.local import nearest_folder
from recordmill.transforms.tasks.workspace import Workspace

KEY_BYTES = 1024  # of an object's key: S3, Google Cloud Storage, Azure
_NAME_BYTES = 255  # of a file's name: most file systems, and where shards are made
_PATH_BYTES = 4096  # of a path with its closing zero: Linux
_MOST = 99_999  # shards, and commits
_VERSION = "10.10.10"  # the folder of a version that is chosen later
_SHOWN = 40


def check_names(
    job: JobSpec,
    store: Store,
    splits: Iterable[str] = (),
    *,
    auto_version: bool = False,
) -> None:
    """Checks that the files of a dataset can have the names that they will get.

    `splits` are those that the input has by itself; with `auto_version` the dataset gets a
    folder of its own in the store.

    Raises:
      UsageError: a name is too long, or not UTF-8.
    """
    try:
        store.uri.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{escaped(store.uri)}: the output folder's name is not UTF-8, as names in "
            "datasets must be; choose another one"
        ) from error
    limit = _name_limit(store)
    own = [split.name for split in job.splits]
    longest = max((*own, *splits), key=len)
    mark = commit_mark("0" * 8, _MOST)
    of_shard = job.name, longest, _MOST, _MOST, job.compression, MAX_APPENDS, mark
    shard = shard_file_name(*of_shard, container=job.container)
    temporary = temp_path(Path(index_file_name(shard) if job.index else shard)).name
    if (excess := len(os.fsencode(temporary)) - limit) > 0:
        if len(longest) <= len(job.name):
            what = f"`name` {_shown(job.name)}"
        elif longest in own:
            what = f"`splits`: split {_shown(longest)}"
        else:
            what = f"split {_shown(longest)} of the input"
        raise UsageError(
            f"{what}: names of shard files would have up to {limit + excess:,} bytes "
            f"while they are written, {store.uri} takes {limit:,}. Choose a name "
            f"shorter by {count(excess, 'character')}"
        )
    _check_path(store.below(_VERSION) if auto_version else store, temporary)
    for feature, declared in job.declared.features.items() if job.declared else ():
        labels = temp_path(Path(labels_file_name(feature))).name
        excess = len(os.fsencode(labels)) - limit
        if declared.classes and excess > 0:
            raise UsageError(
                f"`schema`: feature {_shown(feature)}: the name of its labels file would "
                f"have {limit + excess:,} bytes while it is written, {store.uri} takes "
                f"{limit:,}. Choose a name shorter by {count(excess, 'byte')}"
            )


def _check_path(store: Store, temporary: str) -> None:
    """Refuses an output folder in which a shard's path or key would be too long."""
    below = Workspace.of(store, "0" * 16).store_name(f"staging/{temporary}")
    if isinstance(store, LocalStore):
        size, limit = len(os.fsencode(f"{store.root}/{below}")) + 1, _PATH_BYTES
        what = "paths"
    else:
        folder = store.uri.partition("://")[2].partition("/")[2]
        size, limit = len(f"{folder}/{below}".encode()), KEY_BYTES
        what = "keys"
    if size > limit:
        raise UsageError(
            f"{_shown(store.uri)}: {what} of files in this output folder would have up to "
            f"{size:,} bytes, the limit is {limit:,}. Choose an output folder or a `name` "
            f"shorter by {count(size - limit, 'byte')}"
        )


def _name_limit(store: Store) -> int:
    if not isinstance(store, LocalStore):
        return _NAME_BYTES
    try:
        folder = nearest_folder(Path(store.root))
        return min(_NAME_BYTES, os.pathconf(folder, "PC_NAME_MAX"))
    except OSError:
        return _NAME_BYTES


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
