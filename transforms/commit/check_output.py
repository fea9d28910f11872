"""Checks whether a run may write to an output, given the files that it contains."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recordmill.schemas.errors import BusyError, OutputRefusedError, UsageError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import (
    MAX_APPENDS,
    format_commit_id,
    index_file_name,
    shard_file_name,
)
from recordmill.schemas.text import (
    escape_surrogates,
    escape_unprintable,
    format_count,
    format_names,
)
from recordmill.transforms.commit.commit import has_journal_of_run, open_journals
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.local import temp_path
from recordmill.transforms.storage.local_folder import nearest_folder
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import Workspace

if TYPE_CHECKING:
    from recordmill.transforms.dataset.verify import Problem


# A run with overwrite writes the same dataset again if any file of it is missing or
# changed. Other files, such as a shard of another run, do not count as damage.


def find_damage_problems(store: Store, manifest: Manifest) -> list[Problem]:
    """Finds the damage of a dataset; reads its files only if names and sizes match."""
    # A local import: "nothing to do" should not import the modules that decode records.
    from recordmill.transforms.dataset.verify import verify_store

    for full in (False, True):
        verify_result = verify_store(store, manifest, full=full, workers=usable_cores())
        if damage := [
            problem for problem in verify_result.problems if problem.kind == "damage"
        ]:
            return damage
    return []


def check_output(
    store: Store,
    run_key: str,
    *,
    overwrite: bool,
    take_over: bool = False,
    base: str = "",
    is_same: Callable[[Manifest], bool] | None = None,
    changes_since: Callable[[Manifest], Sequence[str]] = lambda _: (),
) -> Manifest | None:
    """Checks whether a run may write to the output.

    A damaged dataset may be overwritten by the same one.

    Args:
      store: the output folder.
      run_key: the key of the run.
      overwrite: the run may replace another dataset.
      take_over: the run may replace the output of a job that was killed in its commit.
      base: the fingerprint of the dataset to which the run appends, or "".
      is_same: checks whether a dataset is the one that the run would write; by default,
        if its fingerprint is the run's key.
      changes_since: returns the differences between the run and another dataset.

    Returns:
      The manifest if the output already holds the dataset, else None.

    Raises:
      OutputError: the output holds another dataset (and not overwrite) or other files.
    """
    if isinstance(store, LocalStore) and Path(store.root).is_file():
        raise OutputRefusedError(
            f"{store.uri}: is a file; expected a folder for the dataset"
        )
    manifest = find_manifest(store)
    if manifest is not None:
        same = is_same or (
            lambda dataset_manifest: dataset_manifest.fingerprint == run_key
        )
        if same(manifest):
            if overwrite and find_damage_problems(store, manifest):
                return None
            return manifest
        if base and manifest.fingerprint == base:
            return None
        if base:
            raise BusyError(
                f"{store.uri}: the dataset changed while the append was prepared; run "
                "again"
            )
        if not overwrite:
            raise OutputRefusedError(
                _another_dataset(store, manifest, changes_since(manifest))
            )
        return None
    listed = store.list()
    if has_journal_of_run(store, run_key, listed):
        return None  # the run was killed during its commit, which the launcher repeats
    if unfinished := open_journals(store, listed):
        if overwrite or take_over:
            return None
        raise OutputRefusedError(
            f"{store.uri}: another job was killed while it published its dataset here "
            f"({unfinished[0]}); run its command again to finish it, replace it with "
            "`overwrite=true`, or choose another folder"
        )
    top_names = {name.split("/")[0] for name in listed}
    if foreign := sorted(top_names - {WORK_FOLDER}):
        raise OutputRefusedError(
            f"{store.uri}: is not empty ({format_names(foreign, 3)}) and does not "
            "contain a dataset; use another folder. Nothing was changed"
        )
    return None


def _another_dataset(store: Store, manifest: Manifest, changes: Sequence[str]) -> str:
    """Returns a message about the other dataset, its differences and the ways out."""
    start = f"{store.uri}: contains another dataset ({manifest.name} {manifest.version}"
    ways = "append to it with `append=true`, " if manifest.appended else ""
    ways += "replace it with `overwrite=true`, or choose another folder"
    if not changes:
        return f"{start}, made from other inputs or with other options); {ways}"
    lines = "".join(f"\n  {escape_unprintable(change)}" for change in changes)
    return f"{start}). It differs in:{lines}\nTo continue, {ways}"


# The longest names are the names of temporary files of shards: `.NAME-SPLIT...` and 33
# more characters. The check includes the suffix of appended parts, so that a later append
# does not fail.

KEY_BYTES = 1024  # limit of an object's key: S3, Google Cloud Storage, Azure
_NAME_BYTES = 255  # limit of a file name in most file systems, and for temporary shards
_PATH_BYTES = 4096  # limit of a path with its closing zero on Linux
_MAX_SHARDS = 99_999  # maximum number of shards, and of commits
_VERSION = "10.10.10"  # the folder of a version that is chosen later
_MAX_SHOWN_CHARACTERS = 40


def check_names(
    job: JobSpec,
    store: Store,
    splits: Iterable[str] = (),
    *,
    auto_version: bool = False,
) -> None:
    """Checks that the file names of a dataset will not be too long for the store.

    `splits` are the splits that the input defines. With `auto_version`, the dataset gets
    a subfolder of the store.

    Raises:
      UsageError: a name is too long, or not UTF-8.
    """
    try:
        store.uri.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{escape_surrogates(store.uri)}: the output folder's name is not UTF-8, as names in "
            "datasets must be; choose another one"
        ) from error
    limit = _name_limit(store)
    declared_splits = [split.name for split in job.splits]
    longest = max((*declared_splits, *splits), key=len)
    mark = format_commit_id("0" * 8, _MAX_SHARDS)
    of_shard = (
        job.name,
        longest,
        _MAX_SHARDS,
        _MAX_SHARDS,
        job.compression,
        MAX_APPENDS,
        mark,
    )
    shard = shard_file_name(*of_shard, container=job.container)
    temporary = temp_path(Path(index_file_name(shard) if job.index else shard)).name
    if (excess := len(os.fsencode(temporary)) - limit) > 0:
        if len(longest) <= len(job.name):
            subject = f"`name` {_shorten_name(job.name)}"
        elif longest in declared_splits:
            subject = f"`splits`: split {_shorten_name(longest)}"
        else:
            subject = f"split {_shorten_name(longest)} of the input"
        raise UsageError(
            f"{subject}: the names of shard files would have up to {limit + excess:,} "
            f"bytes while they are written; the limit of {store.uri} is {limit:,}. "
            f"Choose a name shorter by {format_count(excess, 'character')}"
        )
    _check_path(store.subfolder_store(_VERSION) if auto_version else store, temporary)
    for feature, declared in job.declared.features.items() if job.declared else ():
        labels = temp_path(Path(declared.to_spec(feature).labels_file)).name
        excess = len(os.fsencode(labels)) - limit
        if declared.classes and excess > 0:
            raise UsageError(
                f"`schema`: feature {_shorten_name(feature)}: the name of its labels file "
                f"would have {limit + excess:,} bytes while it is written; the limit "
                f"of {store.uri} is {limit:,}. Choose a name shorter by "
                f"{format_count(excess, 'byte')}"
            )


def _check_path(store: Store, temporary: str) -> None:
    """Raises UsageError if the path or key of a shard in the output would be too long."""
    below = Workspace.for_run(store, "0" * 16).store_name(f"staging/{temporary}")
    if isinstance(store, LocalStore):
        size, limit = len(os.fsencode(f"{store.root}/{below}")) + 1, _PATH_BYTES
        noun = "paths"
    else:
        folder = store.uri.partition("://")[2].partition("/")[2]
        size, limit = len(f"{folder}/{below}".encode()), KEY_BYTES
        noun = "keys"
    if size > limit:
        raise UsageError(
            f"{_shorten_name(store.uri)}: {noun} of files in this output folder would have up to "
            f"{size:,} bytes, the limit is {limit:,}. Choose an output folder or a `name` "
            f"shorter by {format_count(size - limit, 'byte')}"
        )


def _name_limit(store: Store) -> int:
    if not isinstance(store, LocalStore):
        return _NAME_BYTES
    try:
        folder = nearest_folder(Path(store.root))
        return min(_NAME_BYTES, os.pathconf(folder, "PC_NAME_MAX"))
    except OSError:
        return _NAME_BYTES


def _shorten_name(text: str) -> str:
    return (
        text
        if len(text) <= _MAX_SHOWN_CHARACTERS
        else f"{text[:_MAX_SHOWN_CHARACTERS]}..."
    )
