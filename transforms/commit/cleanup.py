"""Removes the leftovers of dead runs: sorted runs, staged and unfinished files."""

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
from recordmill.transforms.dataset.verify import PASSING, VerifyResult
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
    """Removes the leftovers of dead runs, in the output and on this machine.

    Files of the dataset and foreign files are never removed. A dry run only finds the
    leftovers. With `detached`, detached jobs and pipelines that may be running are ended.

    Returns:
      The leftovers that were removed, or that would be removed.

    Raises:
      BusyError: a run is writing to the output.
      OutputRefusedError: a run was killed during its commit. The commit must be finished
        first, because files of the dataset are among its leftovers.
    """
    if store.size(MANIFEST_NAME) is None and not has_traces(store):
        # Not a folder of recordmill: no file in it is touched, not even for a lease.
        return Leftovers((), clean_local(store, (), dry_run=dry_run))
    if dry_run:
        require_idle(store)
        return _add_local_leftovers(
            store, _find_leftovers(store, detached=detached), dry_run=True
        )
    with acquire(store) as lease:
        leftovers = clean_held(store, lease.require_held, detached=detached)
        return _add_local_leftovers(store, leftovers, dry_run=False)


def clean_held(
    store: Store, require_held: Callable[[], None], *, detached: bool
) -> Leftovers:
    """Removes the leftovers of dead runs for a holder of the lease; returns them."""
    initial_leftovers = leftovers = _find_leftovers(store, detached=detached)
    if store.size(MANIFEST_NAME) is not None:
        require_held()
        shut_out_commits(store)
        # A run may have published since the first listing. Leftovers of commits are
        # removed by then, except for late copies.
        manifest = clean_up(store)
        if manifest is None:
            raise BusyError(
                f"{store.uri}: another run is publishing; clean again later"
            )
        late = {
            n: initial_leftovers.files.get(n, 0) for n in stray_files(store, manifest)
        }
        leftovers = find_leftovers(store, detached=detached)
        leftovers = replace(leftovers, files=late | leftovers.files)
    require_held()
    remove_leftovers(store, leftovers)
    return replace(leftovers, files=initial_leftovers.files | leftovers.files)


def _find_leftovers(store: Store, *, detached: bool) -> Leftovers:
    """Finds the leftovers in an output; raises if a run was killed in its commit."""
    files_to_remove: dict[str, int] = {}
    journals = open_journals(store, store.list(WORK_FOLDER))
    if store.size(MANIFEST_NAME) is not None:
        for name in files_to_clean(store, read_manifest(store)):
            if (size := store.size(name)) is not None:
                files_to_remove[name] = size
    elif journals:
        raise OutputRefusedError(
            f"{store.uri}: a run was killed while it published its dataset here "
            f"({journals[0]}). Run its command again to finish it, or replace the "
            "dataset with `overwrite=true`. Nothing was removed"
        )
    leftovers = find_leftovers(store, detached=detached)
    return replace(leftovers, files=files_to_remove | leftovers.files)


def with_leftovers(store: Store, verified: VerifyResult) -> VerifyResult:
    """Returns a verification in which stray files that `clean` removes are leftovers.

    Raises:
      BusyError: a run is at work there, and all problems may be files of its commit.
    """
    if verified.problems and all(
        problem.kind in PASSING for problem in verified.problems
    ):
        require_idle(store)
    strays = {p.file for p in verified.problems if p.kind == "stray"}
    if not strays:
        return verified
    leftovers = strays.intersection(files_to_clean(store, read_manifest(store)))
    message = (
        "not in the manifest: left by a run that published nothing. Readers that match "
        "names by a pattern, like *.tfrecord*, also read it; `recordmill clean` "
        "removes it"
    )
    problems = tuple(
        replace(problem, message=message, kind="leftover")
        if problem.file in leftovers
        else problem
        for problem in verified.problems
    )
    return replace(verified, problems=problems)


def _add_local_leftovers(
    store: Store, leftovers: Leftovers, *, dry_run: bool
) -> Leftovers:
    kept_runs = {
        name for launch in leftovers.active_launches for name in launch.workspaces
    }
    local = clean_local(store, kept_runs, dry_run=dry_run)
    return replace(leftovers, files=leftovers.files | local)


def clean_local(
    store: Store, spare: Collection[str], *, dry_run: bool = False
) -> dict[str, int]:
    """Removes the local work files of runs for a store; returns their sizes by name.

    The workspaces in `spare` are kept.
    """
    names: dict[str, int] = {}
    if isinstance(store, LocalStore):
        return names
    local = LocalStore(work_folder_of(store.uri))
    for run in local.list_level().folders:
        if RUN_PATTERN.fullmatch(run) and run not in spare:
            files = local.list_tree(run)
            names |= {local.uri_of(name): size for name, size in files.items()}
            if not dry_run:
                local.remove_tree(run)
    if not dry_run:
        with suppress(OSError):  # missing or not empty
            Path(local.root).rmdir()
    return names
