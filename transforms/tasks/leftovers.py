"""Finds leftover files of runs in an output, by names that only recordmill uses.

    .recordmill/0123456789abcdef/...          the workspace of a run
    .recordmill/rows-0123456789a/...          heartbeat and sorted runs of a pipeline
    .recordmill/job-0123456789ab/...          the workspace of a detached job
    .recordmill/probe-<32 hex digits>         a trial write
    .recordmill/manifest.json                 manifest of a version during its removal
    .recordmill/swap/.manifest.json.<32 hex>  file of a swap on local disk, and its lock
    .recordmill/lock/...                      any file except the lease
    .recordmill/lock/.recordmill/swap/...     file of a swap of the lease or a trial write
    .recordmill/commit-<mark>/.replaced.json.<32 hex>   temporary file of a commit's
    record .manifest.json.<32 hex>                   temporary file of the dataset
    rejects/.range-0.jsonl.<32 hex>           temporary file of its rejects

    .recordmill/commit-<mark>/files           empty folder of a run killed at the end

All other files, like .recordmill/notes or .secret.<32 hex>, belong to the user. Other
folders are never listed, because another run may be active in them. A workspace is not
removed if the heartbeat of a detached job or a pipeline protects it (launches.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from recordmill.schemas.names import COMMIT_ID_PATTERN, CONTAINERS, REJECTS_NAME
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import LEASE_NAME, LOCK_FOLDER
from recordmill.transforms.storage.store import SWAP_FOLDER, WORK_FOLDER
from recordmill.transforms.tasks.launches import (
    HEARTBEAT_NAME,
    Launch,
    find_launch,
    is_launch,
    live_workspaces,
)
from recordmill.transforms.tasks.workspace import RUN_PATTERN

_HEX = r"[0-9a-f]{32}"
_IN_WORK = re.compile(rf"{re.escape(WORK_FOLDER)}/(probe-{_HEX}|manifest\.json)")
# Folders that contain only files of recordmill; other code removes their finished files.
_RECORDMILL_FOLDER = re.compile(
    rf"{re.escape(WORK_FOLDER)}/(lock|swap|{re.escape(WORK_FOLDER)}|commit-{COMMIT_ID_PATTERN})"
)
_TEMP_FILE = re.compile(rf"(?P<folder>(?:.*/)?)\.(?P<name>[^/]+)\.{_HEX}", re.DOTALL)
# The names of a dataset's files, of its rejects, and of the folder of its versions.
_OWN_FILE = re.compile(
    rf"{_IN_WORK.pattern}|{REJECTS_NAME}/[^/]+\.jsonl"
    r"|manifest\.json|latest\.json|run(-a\d{5})?\.json|inputs(-a\d{5})?\.jsonl\.gz"
    r"|dataset_info\.json|features\.json|schema\.pbtxt|[^/]+\.labels\.txt"
    rf"|\w+-[\w-]+?(\.{COMMIT_ID_PATTERN})?[.-]((?:{'|'.join(CONTAINERS)})-)?(a\d{{5}}-)?\d{{5}}-of-\d{{5}}"
    r"(\.tfrecord\.gz|\.idx)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The leftovers of runs in an output."""

    run_folders: tuple[str, ...]  # the folders of their workspaces
    files: dict[str, int]  # names and sizes of all files, including files in `runs`
    # the heartbeats in these folders, with their content at the time of the check
    heartbeats: dict[str, bytes] = field(default_factory=dict)
    # detached jobs and pipelines that may be active; their folders are not in `runs`
    active_launches: tuple[Launch, ...] = ()


def find_leftovers(
    store: Store,
    spare: str = "",
    *,
    detached: bool = False,
    clock: Callable[[], float] = time.time,
) -> Leftovers:
    """Returns the leftovers of runs in an output, except the run `spare`.

    With `detached`, detached jobs and pipelines that may be active are treated as ended.
    `clock` returns the time in Unix seconds.
    """
    levels = ("", WORK_FOLDER, REJECTS_NAME)
    top, work, rejects = store.for_each(store.list_level, levels)
    files = {
        name: size for name, size in work.files.items() if _IN_WORK.fullmatch(name)
    }
    for name, size in (top.unfinished | work.unfinished | rejects.unfinished).items():
        match = _TEMP_FILE.fullmatch(name)
        if match and _OWN_FILE.fullmatch(match["folder"] + match["name"]):
            files[name] = size
    runs, signs = list[str](), dict[str, bytes]()
    # Read after the listing: a heartbeat names each workspace before it is created.
    launches = _launches(store, work.folders, spare, clock)
    at_work = [run for run in launches.values() if run.is_live and not detached]
    kept_runs = {name for launch in at_work for name in launch.workspaces}
    for folder in work.folders:
        run = folder.removeprefix(f"{WORK_FOLDER}/")
        if _RECORDMILL_FOLDER.fullmatch(folder):
            files |= store.list_temp_files(folder)
        if folder == LOCK_FOLDER:  # also lease files of another version of recordmill
            lock_files = store.list_level(folder).files.items()
            files |= {name: size for name, size in lock_files if name != LEASE_NAME}
        if not RUN_PATTERN.fullmatch(run) or run == spare or run in kept_runs:
            continue
        if run in launches:
            signs[folder] = launches[run].heartbeat_bytes
        runs.append(folder)
        files |= store.list(folder) | store.list_temp_files(folder)
    return Leftovers(tuple(runs), dict(sorted(files.items())), signs, tuple(at_work))


def _launches(
    store: Store, folders: Iterable[str], spare: str, clock: Callable[[], float]
) -> dict[str, Launch]:
    """Returns the detached jobs and pipelines with a heartbeat, by workspace."""
    names = (folder.removeprefix(f"{WORK_FOLDER}/") for folder in folders)
    launches = (
        find_launch(store, name, clock)
        for name in names
        if is_launch(name) and name != spare
    )
    return {launch.name: launch for launch in launches if launch is not None}


def remove_leftovers(store: Store, leftovers: Leftovers) -> None:
    """Removes leftovers; only for the holder of the lease."""
    inside = tuple(f"{folder}/" for folder in leftovers.run_folders)
    store.delete(name for name in leftovers.files if not name.startswith(inside))
    for folder, sign in leftovers.heartbeats.items():
        if store.discard(f"{folder}/{HEARTBEAT_NAME}", expected_content=sign):
            store.remove_tree(folder)  # otherwise the job was renewed: it is active
    runs_without_heartbeat = [
        folder for folder in leftovers.run_folders if folder not in leftovers.heartbeats
    ]
    # A pipeline may have started to use one of them meanwhile.
    kept_runs = live_workspaces(store) if runs_without_heartbeat else frozenset[str]()
    for folder in runs_without_heartbeat:
        if folder.removeprefix(f"{WORK_FOLDER}/") not in kept_runs:
            store.remove_tree(folder)
    remove_empty_folders(store)


def remove_empty_folders(store: Store) -> None:
    """Removes empty folders of commits, lease and swaps in a local output.

    They were left by a run that was killed after removing their last file.
    """
    if not isinstance(store, LocalStore):
        return  # a store has no folders without files
    for folder in store.list_level(WORK_FOLDER).folders:
        if _RECORDMILL_FOLDER.fullmatch(folder):
            # Deleting a file, here a missing one, also removes its empty parent folders.
            inner = ("files", "swap", SWAP_FOLDER)
            store.delete(f"{folder}/{subfolder}/none" for subfolder in inner)


def has_traces(store: Store) -> bool:
    """Returns whether a folder has a workspace or a lock of a run."""
    work = store.list_level(WORK_FOLDER)
    runs = (folder.removeprefix(f"{WORK_FOLDER}/") for folder in work.folders)
    return LOCK_FOLDER in work.folders or any(map(RUN_PATTERN.fullmatch, runs))
