"""Removes what dead runs left: sorted runs, staged and unfinished files."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from recordmill.schemas.errors import BusyError, OutputRefusedError
from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.transforms.commit.commit import (
    clean_up,
    files_to_clean,
    open_journals,
    shut_out_commits,
    stray_files,
)
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.dataset.verify import VerifyResult
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import acquire, require_idle
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.leftovers import (
    Leftovers,
    find_leftovers,
    has_traces,
    remove_leftovers,
)
from recordmill.transforms.tasks.workspace import RUN_PATTERN, work_folder_of


def clean(store: Store, *, dry_run: bool = False, detached: bool = False) -> Leftovers:
    """Removes what dead runs left, never a dataset's own files or anybody else's.

    A dry run only finds it. With `detached`, detached jobs and pipelines that may be at
    work are ended.
    Returns what was removed, or would be, on this machine, too.

    Raises:
      BusyError: a run is at work here.
      OutputRefusedError: a run was killed during its commit: that must be finished
        first, as files of the dataset are among those that it left.
    """
    if store.size(MANIFEST_NAME) is None and not has_traces(store):
        # No folder of recordmill's: nothing is touched in it, not even for a lease.
        return Leftovers((), clean_local(store, (), dry_run=dry_run))
    if dry_run:
        require_idle(store)
        return _and_local(store, _found(store, detached=detached), dry_run=True)
    with acquire(store) as lease:
        found = clean_held(store, lease.require_held, detached=detached)
        return _and_local(store, found, dry_run=False)


def clean_held(
    store: Store, require_held: Callable[[], None], *, detached: bool
) -> Leftovers:
    """Removes what dead runs left, for a holder of the lease; returns what it was."""
    told = found = _found(store, detached=detached)
    if store.size(MANIFEST_NAME) is not None:
        require_held()
        shut_out_commits(store)
        # A run may have published since the first look. What commits left is gone by
        # then, but for late copies.
        manifest = clean_up(store)
        if manifest is None:
            raise BusyError(f"{store.uri}: another run publishes just now; clean again")
        late = {n: told.files.get(n, 0) for n in stray_files(store, manifest)}
        found = find_leftovers(store, detached=detached)
        found = replace(found, files=late | found.files)
    require_held()
    remove_leftovers(store, found)
    return replace(found, files=told.files | found.files)


def _found(store: Store, *, detached: bool) -> Leftovers:
    """Finds what dead runs left in an output; raises if one was killed in its commit."""
    beside: dict[str, int] = {}
    journals = open_journals(store, store.list(WORK_FOLDER))
    if store.size(MANIFEST_NAME) is not None:
        for name in files_to_clean(store, read_manifest(store)):
            if (size := store.size(name)) is not None:
                beside[name] = size
    elif journals:
        raise OutputRefusedError(
            f"{store.uri}: a run was killed while it published its dataset here "
            f"({journals[0]}). Run its command again to finish it, or replace the "
            "dataset with `overwrite=true`. Nothing was removed"
        )
    found = find_leftovers(store, detached=detached)
    return replace(found, files=beside | found.files)


def with_leftovers(store: Store, verified: VerifyResult) -> VerifyResult:
    """Returns a verification whose strays are leftovers if `clean` removes them."""
    strays = {p.file for p in verified.problems if p.kind == "stray"}
    if not strays:
        return verified
    leftovers = strays.intersection(files_to_clean(store, read_manifest(store)))
    message = (
        "not in the manifest: a run that published nothing left it. Readers that take "
        "names by a pattern, like *.tfrecord*, read it too; `recordmill clean` removes it"
    )
    problems = tuple(
        replace(problem, message=message, kind="leftover")
        if problem.file in leftovers
        else problem
        for problem in verified.problems
    )
    return replace(verified, problems=problems)


def _and_local(store: Store, found: Leftovers, *, dry_run: bool) -> Leftovers:
    kept_runs = {name for launch in found.at_work for name in launch.workspaces}
    local = clean_local(store, kept_runs, dry_run=dry_run)
    return replace(found, files=found.files | local)


def clean_local(
    store: Store, spare: Collection[str], *, dry_run: bool = False
) -> dict[str, int]:
    """Removes what runs for a store left on this machine, but for some; returns it."""
    names: dict[str, int] = {}
    if isinstance(store, LocalStore):
        return names
    local = LocalStore(work_folder_of(store.uri))
    for run in local.list_level().folders:
        if RUN_PATTERN.fullmatch(run) and run not in spare:
            files = local.all_files(run)
            names |= {local.uri_of(name): size for name, size in files.items()}
            if not dry_run:
                local.remove_tree(run)
    if not dry_run:
        with suppress(OSError):  # not there, or it holds something
            Path(local.root).rmdir()
    return names
