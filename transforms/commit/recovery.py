"""Finds and finishes what runs left that were killed during their commit.

    .recordmill/RUN/staging/manifest.json       all else of the run is staged or moved
    .recordmill/commit-MARK/manifest.json       its data files may be beside the dataset

These two are the journals. If the output holds a dataset, that is complete, and what a
journal names beside it is finished or removed (finish.py). While it holds none, only
the job that left a journal, or a run with overwrite, may continue.

Earlier versions moved files to names that datasets share, after they had removed the
old dataset, whose manifest they kept in `.recordmill/RUN/replaced.json`. What they left
half done is removed, and the same job makes it anew.
"""

from __future__ import annotations

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import (
    REJECTS_NAME,
    generation_of,
    rejects_prefix,
)
from recordmill.schemas.errors import BusyError
from recordmill.transforms.commit.finish import (
    TFDS_FILES,
    discard_fixed,
    finish,
    old_files,
    old_records,
)
from recordmill.transforms.commit.records import (
    find_records,
    fixed_names,
    is_marked,
    stray_files,
)
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.launches import find_launch, is_launch
from recordmill.transforms.tasks.workspace import RUN_PATTERN

SEEN_NAME = "seen.json"  # the manifest that the staged one replaces
STAGED_MANIFEST = f"staging/{MANIFEST_NAME}"

_EARLIER_REPLACED = "replaced.json"


def open_journals(store: Store) -> list[str]:
    """Returns the journals of all runs that were killed during their commit."""
    records = find_records(store)
    return [
        *(name for _, name in _run_journals(store)),
        *(r.manifest_name for r in records if r.manifest_name in r.names),
    ]


def has_own_journal(store: Store, run_key: str) -> bool:
    """Tells whether this run, or a launch of its job, was killed during its commit."""
    return any(_is_of(store, run, run_key) for run, _ in _run_journals(store))


def is_clean(store: Store, manifest: Manifest) -> bool:
    """Tells whether nothing is to be finished or removed beside a dataset."""
    records = find_records(store)
    return not (
        any(generation_of(r.mark) <= manifest.generation for r in records)
        or any(True for _ in _run_journals(store))
        or _stale_files(store, manifest)
    )


def clean_up(store: Store, *, end_grace: bool = True) -> None:
    """Finishes and removes what commits left; call it with the lease held.

    Args:
      store: of the dataset, if there is one.
      end_grace: whether the files of a replaced dataset go, too.
    """
    _discard_earlier(store)
    data = finish(store, end_grace=end_grace)
    if data is not None:
        manifest = Manifest.from_bytes(data, store.uri_of(MANIFEST_NAME))
        # Detached jobs publish without a lease: only while the manifest is this one.
        discard_fixed(store, data, _stale_files(store, manifest))


def shut_out_commits(store: Store) -> None:
    """Makes all commits fail that are not done; call it with the lease held.

    Whose lease was lost may go on at any time. So the manifest gets a generation that
    is newer than theirs: then none of them can be swapped in, and what they left can be
    removed.

    Raises:
      BusyError: another run published just now.
    """
    if store.find(MANIFEST_NAME) is None:
        return
    data = finish(store, end_grace=True)
    if data is None:
        raise BusyError(f"{store.uri}: another run publishes just now; clean again")
    manifest = Manifest.from_bytes(data, store.uri_of(MANIFEST_NAME))
    newer = _above_all(store, manifest)
    if newer != manifest and not store.swap(newer.to_bytes(), MANIFEST_NAME, seen=data):
        raise BusyError(f"{store.uri}: another run published just now; clean again")


def _above_all(store: Store, manifest: Manifest) -> Manifest:
    """Returns a manifest with a generation above those of all commits."""
    generations = [generation_of(record.mark) for record in find_records(store)]
    newest = max(generations, default=0)
    if newest <= manifest.generation:
        return manifest
    # One more, so that no record is taken for its own.
    return manifest.model_copy(update={"generation": newest + 1})


def files_to_clean(store: Store, manifest: Manifest) -> list[str]:
    """Returns the files beside a dataset that cleaning up removes, to tell of them.

    Among them are those of commits that are to be shut out first. Until then such a
    commit may be done, so nothing is removed by this list.

    Args:
      store: of the dataset, which is complete.
      manifest: its manifest.
    """
    manifest = _above_all(store, manifest)
    records = find_records(store)
    names = {
        *old_files(store, manifest, records, end_grace=True),
        *old_records(manifest, records),
    }
    for journal in _earlier_journals(store):
        names |= _files_of_earlier(store, read_manifest(store, journal), manifest)
    return sorted(
        {*names, *_stale_files(store, manifest), *stray_files(store, manifest)}
    )


def _is_of(store: Store, run: str, run_key: str) -> bool:
    """Tells whether the workspace of that name belongs to a run with this key."""
    if not is_launch(run):
        return run == run_key[:16]
    launch = find_launch(store, run)
    return launch is not None and launch.is_of(run_key)


def _run_journals(store: Store) -> list[tuple[str, str]]:
    """Returns the journals in the workspaces of runs: (run, name)."""
    names = store.list(WORK_FOLDER)
    return [
        (run, journal)
        for run in sorted({name.split("/")[1] for name in names})
        if RUN_PATTERN.fullmatch(run)
        for journal in (
            f"{WORK_FOLDER}/{run}/{_EARLIER_REPLACED}",
            f"{WORK_FOLDER}/{run}/{STAGED_MANIFEST}",
        )
        if journal in names
    ]


def _earlier_journals(store: Store) -> list[str]:
    """Returns the journals of runs of earlier versions."""
    return [
        name
        for _, name in _run_journals(store)
        if name.endswith(f"/{_EARLIER_REPLACED}")
        or not is_marked(read_manifest(store, name))
    ]


def _discard_earlier(store: Store) -> None:
    """Removes what runs of earlier versions had moved or not yet removed."""
    for journal in _earlier_journals(store):
        names = _files_of_earlier(
            store, read_manifest(store, journal), find_manifest(store)
        )
        store.delete(sorted(names))
        store.delete([journal])


def _files_of_earlier(
    store: Store, other: Manifest, current: Manifest | None
) -> set[str]:
    names = {*other.shard_files, *fixed_names(other)}
    rejects = store.list(REJECTS_NAME)
    if current is None:
        return names | set(rejects)
    for part in range(current.appended + 1, other.appended + 1):
        prefix = f"{REJECTS_NAME}/{rejects_prefix(part)}"
        names |= {name for name in rejects if name.startswith(prefix)}
    return names - {*current.shard_files, *fixed_names(current)}


def _stale_files(store: Store, manifest: Manifest) -> list[str]:
    """Returns TFDS's files if they describe only the first of several parts."""
    if not manifest.appended or find_records(store):
        return []  # a commit that is not finished removes them itself
    return [name for name in TFDS_FILES if store.size(name) is not None]
