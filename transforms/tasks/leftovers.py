"""Finds in an output what runs leave there, by names that only recordmill gives.

    .recordmill/0123456789abcdef/...          the workspace of a run
    .recordmill/rows-0123456789a/...          heartbeat and sorted runs of a pipeline
    .recordmill/job-0123456789ab/...          the workspace of a detached job
    .recordmill/probe-<32 hex digits>         a trial write
    .recordmill/manifest.json                 of a version that was being removed
    .recordmill/swap/.manifest.json.<32 hex>  of a swap on local disk, and its lock
    .recordmill/lock/...                      any file but the lease
    .recordmill/lock/.recordmill/swap/...     of a swap of the lease, or of a trial write
    .recordmill/commit-<mark>/.replaced.json.<32 hex>   a temporary file of a commit's record
    .manifest.json.<32 hex>                   a temporary file of the dataset, beside it
    rejects/.range-0.jsonl.<32 hex>           and of its rejects

    .recordmill/commit-<mark>/files           folders without a file, of a kill behind its end

Whatever else lies there, like .recordmill/notes or .secret.<32 hex>, is somebody's own.
Other folders are never looked into: another run may be at work in them. Nor is a
workspace removed that the heartbeat of a detached job or a pipeline keeps (launches.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from recordmill.schemas.names import CONTAINERS, MARK, REJECTS_NAME
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import LEASE_NAME, LOCK_FOLDER
from recordmill.transforms.storage.store import SWAP_FOLDER, WORK_FOLDER
from recordmill.transforms.tasks.launches import (
    SIGN_NAME,
    Launch,
    find_launch,
    is_launch,
    live_workspaces,
)
from recordmill.transforms.tasks.workspace import RUN_PATTERN

_HEX = r"[0-9a-f]{32}"
_IN_WORK = re.compile(rf"{re.escape(WORK_FOLDER)}/(probe-{_HEX}|manifest\.json)")
# Folders that hold no files but ours; the finished ones are others' to remove.
_OURS = re.compile(
    rf"{re.escape(WORK_FOLDER)}/(lock|swap|{re.escape(WORK_FOLDER)}|commit-{MARK})"
)
_TEMP = re.compile(rf"(?P<folder>(?:.*/)?)\.(?P<name>[^/]+)\.{_HEX}", re.DOTALL)
# The names of a dataset's files, of its rejects, and of the folder of its versions.
_OWN_FILE = re.compile(
    rf"{_IN_WORK.pattern}|{REJECTS_NAME}/[^/]+\.jsonl"
    r"|manifest\.json|latest\.json|run(-a\d{5})?\.json|inputs(-a\d{5})?\.jsonl\.gz"
    r"|dataset_info\.json|features\.json|schema\.pbtxt|[^/]+\.labels\.txt"
    rf"|\w+-[\w-]+?(\.{MARK})?[.-]((?:{'|'.join(CONTAINERS)})-)?(a\d{{5}}-)?\d{{5}}-of-\d{{5}}"
    r"(\.tfrecord\.gz|\.idx)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What runs left in an output."""

    runs: tuple[str, ...]  # the folders of their workspaces
    files: dict[str, int]  # names and sizes of all files; those in the folders, too
    # the signs of life in these folders, as they were when they were judged
    signs: dict[str, bytes] = field(default_factory=dict)
    # detached jobs and pipelines that may be at work, whose folders are not among them
    at_work: tuple[Launch, ...] = ()


def find_leftovers(
    store: Store,
    spare: str = "",
    *,
    detached: bool = False,
    clock: Callable[[], float] = time.time,
) -> Leftovers:
    """Finds what runs left in an output, but for the run `spare`; changes nothing.

    With `detached`, detached jobs and pipelines that may be at work are taken for ended.
    `clock` returns the time in Unix seconds.
    """
    levels = ("", WORK_FOLDER, REJECTS_NAME)
    top, work, rejects = store.for_each(store.list_level, levels)
    files = {
        name: size for name, size in work.files.items() if _IN_WORK.fullmatch(name)
    }
    for name, size in (top.unfinished | work.unfinished | rejects.unfinished).items():
        match = _TEMP.fullmatch(name)
        if match and _OWN_FILE.fullmatch(match["folder"] + match["name"]):
            files[name] = size
    runs, signs = list[str](), dict[str, bytes]()
    # Read after the listing: whatever a heartbeat keeps is named in it before it is created.
    launches = _launches(store, work.folders, spare, clock)
    at_work = [run for run in launches.values() if run.is_live and not detached]
    kept_runs = {name for launch in at_work for name in launch.workspaces}
    for folder in work.folders:
        run = folder.removeprefix(f"{WORK_FOLDER}/")
        if _OURS.fullmatch(folder):
            files |= store.unfinished(folder)
        if folder == LOCK_FOLDER:  # also what another version had for a lease
            found = store.list_level(folder).files.items()
            files |= {name: size for name, size in found if name != LEASE_NAME}
        if not RUN_PATTERN.fullmatch(run) or run == spare or run in kept_runs:
            continue
        if run in launches:
            signs[folder] = launches[run].data
        runs.append(folder)
        files |= store.list(folder) | store.unfinished(folder)
    return Leftovers(tuple(runs), dict(sorted(files.items())), signs, tuple(at_work))


def _launches(
    store: Store, folders: Iterable[str], spare: str, clock: Callable[[], float]
) -> dict[str, Launch]:
    """Returns the detached jobs and pipelines that have a heartbeat, by workspace."""
    names = (folder.removeprefix(f"{WORK_FOLDER}/") for folder in folders)
    launches = (
        find_launch(store, name, clock)
        for name in names
        if is_launch(name) and name != spare
    )
    return {launch.name: launch for launch in launches if launch is not None}


def remove_leftovers(store: Store, leftovers: Leftovers) -> None:
    """Removes what was found; only for the holder of the lease."""
    inside = tuple(f"{folder}/" for folder in leftovers.runs)
    store.delete(name for name in leftovers.files if not name.startswith(inside))
    for folder, sign in leftovers.signs.items():
        if store.discard(f"{folder}/{SIGN_NAME}", seen=sign):
            store.remove_tree(folder)  # else the job was renewed meanwhile: it works
    others = [folder for folder in leftovers.runs if folder not in leftovers.signs]
    # A pipeline may have taken one of them up meanwhile.
    kept_runs = live_workspaces(store) if others else frozenset[str]()
    for folder in others:
        if folder.removeprefix(f"{WORK_FOLDER}/") not in kept_runs:
            store.remove_tree(folder)
    remove_empty_folders(store)


def remove_empty_folders(store: Store) -> None:
    """Removes folders of a local output's commits, lease and swaps that hold nothing.

    A run that was killed behind the removal of their last file left them.
    """
    if not isinstance(store, LocalStore):
        return  # a store has no folders without files
    for folder in store.list_level(WORK_FOLDER).folders:
        if _OURS.fullmatch(folder):
            # To remove a file, here none, removes the folders above that hold nothing.
            inner = ("files", "swap", SWAP_FOLDER)
            store.delete(f"{folder}/{each}/none" for each in inner)


def has_traces(store: Store) -> bool:
    """Tells whether a run was ever at work in a folder, by its workspace or lock."""
    work = store.list_level(WORK_FOLDER)
    runs = (folder.removeprefix(f"{WORK_FOLDER}/") for folder in work.folders)
    return LOCK_FOLDER in work.folders or any(map(RUN_PATTERN.fullmatch, runs))
