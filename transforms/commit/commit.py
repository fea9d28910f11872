"""Commits the staged files, which become the dataset in the output.

Readers trust manifest.json alone. The commit is one conditional put of the manifest. It
succeeds only if the old manifest is the one that the run was allowed to replace:

1. a record of the commit is written (`CommitRecord`);
2. the data files are moved to names that no other dataset in the folder has;
3. they are checked, and the manifest is swapped in;
4. the files with fixed names are swapped in, each in place of known bytes (`finish`);
5. files that are no longer needed are removed.

If a run is killed before step 3, readers see no change. If it is killed after step 3, the
next run finishes the commit. If another run commits meanwhile, step 3 fails without harm,
because names of data files are never reused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain

from recordmill.schemas.errors import (
    BusyError,
    MissingFileError,
    OutputError,
    OutputRefusedError,
)
from recordmill.schemas.manifest import (
    CARD_NAME,
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    ManifestShard,
)
from recordmill.schemas.names import (
    COMMIT_ID_PATTERN,
    INDEX_SUFFIX,
    REJECTS_NAME,
    inputs_file_name,
    inventory_file_name,
    is_shard_name,
    parse_commit_id,
    parse_generation,
    parse_rejects_commit_id,
    published_rejects_name,
    run_metadata_name,
    staged_file_name,
)
from recordmill.schemas.text import format_count
from recordmill.schemas.tfmd import SCHEMA_PBTXT_NAME
from recordmill.transforms.dataset import files
from recordmill.transforms.dataset.files import (
    find_manifest,
    matches_entry,
    rejects_files,
)
from recordmill.transforms.dataset.tfds import (
    DATASET_INFO_NAME,
    FEATURES_NAME,
    LABEL_MAP_NAME,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease import hold_for_publication
from recordmill.transforms.storage.store import WORK_FOLDER, Level
from recordmill.transforms.tasks.launches import find_launch, is_launch
from recordmill.transforms.tasks.workspace import RUN_PATTERN, Workspace

#     .recordmill/commit-g00001-12345678/manifest.json    the manifest to swap in
#     .recordmill/commit-g00001-12345678/replaced.json    the replaced manifest, if any
#     .recordmill/commit-g00001-12345678/files/...        copies of files with fixed names
#
# A record is written before the commit puts its first file into the dataset's folder, and
# is never changed. It lists the files of the commit. If the commit fails, a later run
# removes them. If it was killed right after its swap, a later run puts the files with
# fixed names in place. After that only the replaced manifest stays: it names the files
# that stay for the readers of the replaced dataset until the next run.

RECORD_PREFIX = f"{WORK_FOLDER}/commit-"
_RECORD = re.compile(
    rf"{re.escape(RECORD_PREFIX)}({COMMIT_ID_PATTERN})/(.+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The record of one commit."""

    store: Store
    commit_id: str
    names: tuple[str, ...] = ()  # the record's files, as they were listed

    @property
    def files(self) -> dict[str, str]:
        """Returns the names of the copies of files with fixed names, by fixed name."""
        start = files.fixed_copy_name(self.commit_id, "")
        return {n.removeprefix(start): n for n in self.names if n.startswith(start)}

    @property
    def manifest_name(self) -> str:
        return f"{RECORD_PREFIX}{self.commit_id}/{MANIFEST_NAME}"

    @property
    def replaced_name(self) -> str:
        return files.replaced_name(self.commit_id)

    def read_replaced_manifest(self) -> Manifest | None:
        """Reads the manifest that the commit replaces; None if there is none."""
        return find_manifest(self.store, self.replaced_name)

    def read_manifests(self) -> list[Manifest]:
        """Reads the manifest of the commit, and the manifest that it replaces."""
        names = [n for n in (self.manifest_name, self.replaced_name) if n in self.names]
        manifests = self.store.for_each(partial(find_manifest, self.store), names)
        return [manifest for manifest in manifests if manifest is not None]

    def write(
        self, manifest: bytes, replaced: bytes | None, fixed: dict[str, bytes]
    ) -> None:
        """Writes the record: first the manifests, which list the files of the commit."""
        self.store.put_bytes(manifest, self.manifest_name)
        if replaced is not None:
            self.store.put_bytes(replaced, self.replaced_name)
        mark = self.commit_id
        self.store.put_all({files.fixed_copy_name(mark, n): fixed[n] for n in fixed})


def find_records(
    store: Store, listed: Iterable[str] | None = None
) -> list[CommitRecord]:
    """Finds the records of all commits that are unfinished or still in grace.

    `listed` are the names of all files, if known.
    """
    names: dict[str, list[str]] = {}
    if (
        listed is None
    ):  # not the whole work folder, in which a run has files for each range
        folders = store.list_level(WORK_FOLDER).folders
        of_commits = (folder for folder in folders if folder.startswith(RECORD_PREFIX))
        listed = chain.from_iterable(map(store.list, of_commits))
    for name in listed:
        if match := _RECORD.fullmatch(name):
            names.setdefault(match[1], []).append(name)
    return [CommitRecord(store, mark, tuple(names[mark])) for mark in sorted(names)]


def fixed_names(manifest: Manifest) -> list[str]:
    """Returns the files of a dataset whose names do not depend on the commit.

    The rejects and the manifest are not included.
    """
    labels = [f.labels_file for f in manifest.features if f.num_classes]
    descriptions = [DATASET_INFO_NAME, FEATURES_NAME, SCHEMA_PBTXT_NAME, *labels]
    parts = range(manifest.appended + 1)
    lists = [inputs_file_name(part) for part in parts]
    optional_names = [
        name for name in (LABEL_MAP_NAME, CARD_NAME) if name in manifest.files
    ]
    return [*descriptions, *optional_names, *lists, *unnamed_files(manifest)]


def unnamed_files(manifest: Manifest) -> list[str]:
    """Returns the files that the manifest does not list, as they differ in each run."""
    return [
        name(part)
        for part in range(manifest.appended + 1)
        for name in (inventory_file_name, run_metadata_name)
    ]


def unnamed_files_of_part(manifest: Manifest) -> list[str]:
    """Returns the unlisted files of the last part: no inventory without inputs."""
    part = manifest.appended
    inventory = (
        [inventory_file_name(part)] if inputs_file_name(part) in manifest.files else []
    )
    return [*inventory, run_metadata_name(part)]


def _data_names(*manifests: Manifest) -> set[str]:
    """Returns the names of all shards, and the commit ids of the files of rejects."""
    shards = {file for manifest in manifests for file in manifest.shard_files}
    rejects = [
        manifest.rejects for manifest in manifests if manifest.rejects is not None
    ]
    return shards.union(*(rejects_entry.marks for rejects_entry in rejects))


def _data_files(store: Store, names_in_use: set[str]) -> list[str]:
    """Returns the file names for `_data_names`: shards, possible index files and rejects.

    Only existing files of rejects are included.
    """
    shards = {name for name in names_in_use if is_shard_name(name)}
    indexes = (f"{shard}{INDEX_SUFFIX}" for shard in shards)
    rejects = store.list(REJECTS_NAME) if names_in_use > shards else {}
    matching_rejects = (
        name for name in rejects if parse_rejects_commit_id(name) in names_in_use
    )
    return [*sorted([*shards, *indexes]), *matching_rejects]


def stray_files(store: Store, manifest: Manifest) -> list[str]:
    """Returns data files of older commits of this dataset that the manifest lacks.

    An object store may finish a copy after the run that requested it was killed and
    after its commit record was removed. Each name of a data file belongs to one commit,
    so no newer manifest will name such files, and they can be removed.
    """
    names_in_use = _data_names(manifest)
    shards = {
        name: parse_commit_id(name)
        for name in store.list_level().files
        if name.startswith(f"{manifest.name}-")
        and name.removesuffix(INDEX_SUFFIX) not in names_in_use
    }
    rejects = {name: parse_rejects_commit_id(name) for name in store.list(REJECTS_NAME)}
    marks_by_name = {
        **shards,
        **{n: mark for n, mark in rejects.items() if mark not in names_in_use},
    }
    return [
        name
        for name, mark in marks_by_name.items()
        if mark and parse_generation(mark) <= manifest.generation
    ]


# The manifest defines the dataset. Some files next to it have names that foreign readers
# expect, such as dataset_info.json, so their names cannot contain a commit id. Each file
# is swapped in place of the bytes that were read before the manifest was read again. As
# long as the manifest is the one of the commit, no newer commit can have written the
# file. If the manifest changes later, the swap fails or is undone.
#
# A file is removed only if its name can never be used again: the manifest does not name
# it, and its generation is not newer than the manifest's. The files of the replaced
# dataset stay for its readers until the next run.

TFDS_FILES = (DATASET_INFO_NAME, FEATURES_NAME)  # only for a dataset in one part

_TRIES = 20  # each fails only if another run wrote in between


class _Superseded(Exception):  # noqa: N818  not an error: a newer commit continues
    """A signal that another run replaced the manifest or finished this commit."""


def finish_commit(
    store: Store, manifest_bytes: bytes | None = None, *, end_grace: bool = False
) -> bytes | None:
    """Finishes the last commit of any run; safe to repeat and to interrupt.

    Args:
      store: the output folder.
      manifest_bytes: the manifest, if just read.
      end_grace: also remove the files of the dataset that the commit replaced.

    Returns:
      The bytes of the manifest whose commit is finished; None if there is no manifest
        or if another run continues.
    """
    manifest_bytes = (
        store.read_if_exists(MANIFEST_NAME)
        if manifest_bytes is None
        else manifest_bytes
    )
    if manifest_bytes is None:
        return None
    manifest = Manifest.from_bytes(manifest_bytes, store.uri_of(MANIFEST_NAME))
    records = find_records(store)
    current_record = next(
        (record for record in records if record.commit_id == manifest.commit_id), None
    )
    try:
        if current_record is not None:
            _place_fixed_files(store, manifest_bytes, manifest, current_record)
    except _Superseded:
        return None
    store.delete(old_files(store, manifest, records, end_grace=end_grace))
    if (
        current_record is not None
        and not end_grace
        and _in_grace(manifest, current_record)
    ):
        spared = current_record.replaced_name
    else:
        spared = ""
    store.delete(name for name in old_records(manifest, records) if name != spared)
    return manifest_bytes


def discard_fixed(store: Store, manifest: bytes, names: Iterable[str]) -> None:
    """Removes files with fixed names while the manifest in the store is this one."""
    with suppress(_Superseded):
        for name in names:
            _replace_fixed_file(store, manifest, name)


def old_files(
    store: Store, manifest: Manifest, records: list[CommitRecord], *, end_grace: bool
) -> list[str]:
    """Returns the data files of commits that are no longer in use."""
    manifests_in_use, old_manifests = [manifest], list[Manifest]()
    for record in records:
        if parse_generation(record.commit_id) > manifest.generation:
            continue  # it may still be swapped in
        old_manifests += (record_manifests := record.read_manifests())
        if record.commit_id == manifest.commit_id and not end_grace:
            manifests_in_use += record_manifests
    return _data_files(
        store, _data_names(*old_manifests) - _data_names(*manifests_in_use)
    )


def old_records(manifest: Manifest, records: list[CommitRecord]) -> list[str]:
    """Returns the record files of finished or failed commits."""
    return [
        name
        for record in records
        if parse_generation(record.commit_id) <= manifest.generation
        for name in reversed(record.names)
    ]


def _in_grace(manifest: Manifest, record: CommitRecord) -> bool:
    """Checks whether the replaced dataset has files that the new one lacks.

    After an append it has none.
    """
    replaced = (
        record.read_replaced_manifest()
        if record.replaced_name in record.names
        else None
    )
    return replaced is not None and bool(_data_names(replaced) - _data_names(manifest))


def _place_fixed_files(
    store: Store, manifest_bytes: bytes, manifest: Manifest, record: CommitRecord
) -> None:
    """Puts the files with fixed names in place; removes obsolete ones."""
    current_names = {*manifest.files, *unnamed_files(manifest)}
    names = {name: copy for name, copy in record.files.items() if name in current_names}

    def put_copy(name: str) -> None:
        _replace_fixed_file(store, manifest_bytes, name, names[name])

    store.for_each(put_copy, names.keys() & {DATASET_INFO_NAME})
    store.for_each(put_copy, sorted(names.keys() - {DATASET_INFO_NAME}))
    for name in _obsolete_names(manifest, record):
        _replace_fixed_file(store, manifest_bytes, name)


def _obsolete_names(manifest: Manifest, record: CommitRecord) -> list[str]:
    """Returns the fixed names of the replaced dataset that the new one does not have."""
    if record.replaced_name not in record.names:
        return []
    if manifest.appended:
        # TFDS finds the shards of a split by one pattern that contains their number; the
        # shards of several parts cannot have such names.
        return [name for name in TFDS_FILES if name not in manifest.files]
    replaced = record.read_replaced_manifest()
    if replaced is None:
        return []
    current_names = {*manifest.files, *unnamed_files(manifest)}
    return [name for name in fixed_names(replaced) if name not in current_names]


def _replace_fixed_file(
    store: Store, manifest: bytes, name: str, copy: str = ""
) -> None:
    """Replaces a file with a fixed name by its copy, or removes it if there is none."""
    current_bytes, *copies = store.for_each(
        store.read_if_exists, (name, copy) if copy else (name,)
    )
    if copies == [None]:
        raise _Superseded  # another run has finished this commit
    new_bytes = copies[0] if copies else None
    for _ in range(_TRIES):
        if (previous_bytes := current_bytes) == new_bytes:
            return
        if store.read_if_exists(MANIFEST_NAME) != manifest:
            raise _Superseded
        is_swapped = _swap_or_remove(store, name, new_bytes, previous_bytes)
        # Checked after a swap as well, because the store may have lost it.
        newer, current_bytes = store.for_each(
            store.read_if_exists, (MANIFEST_NAME, name)
        )
        if is_swapped and newer != manifest:
            if newer is not None and _belongs_to_newer(
                store, newer, name, previous_bytes, new_bytes
            ):
                _swap_or_remove(store, name, previous_bytes, new_bytes)
            raise _Superseded
    raise OutputError(f"{store.uri_of(name)}: another program writes to it; run again")


def _belongs_to_newer(
    store: Store,
    newer: bytes,
    name: str,
    previous_bytes: bytes | None,
    new_bytes: bytes | None,
) -> bool:
    """Checks whether a newer dataset has the replaced file instead of the new one."""
    file_entry = Manifest.from_bytes(newer, store.uri_of(MANIFEST_NAME)).files.get(name)
    if file_entry is None:
        return False
    return matches_entry(previous_bytes, file_entry) and not matches_entry(
        new_bytes, file_entry
    )


def _swap_or_remove(
    store: Store, name: str, new_bytes: bytes | None, previous_bytes: bytes | None
) -> bool:
    if new_bytes is not None:
        return store.swap(new_bytes, name, expected_content=previous_bytes)
    return previous_bytes is None or store.discard(
        name, expected_content=previous_bytes
    )


#     .recordmill/RUN/staging/manifest.json     other files of the run are staged or moved
#     .recordmill/commit-MARK/manifest.json     its data files may be next to the dataset
#
# These two are the journals. If the output holds a dataset, it is complete, and the files
# that a journal lists are put in place or removed (`finish`). If the output holds none,
# only the job that left a journal, or a run with overwrite, may continue.

REPLACED_DIGEST_NAME = "seen"  # the digest of the manifest that the staged one replaces
STAGED_MANIFEST = f"staging/{MANIFEST_NAME}"


def open_journals(store: Store, listed: Collection[str]) -> list[str]:
    """Returns the journals of all runs that were killed during their commit.

    `listed` are the names of all files.
    """
    records = find_records(store, listed)
    return [
        *(name for _, name in _run_journals(listed)),
        *(r.manifest_name for r in records if r.manifest_name in r.names),
    ]


def has_journal_of_run(store: Store, run_key: str, listed: Collection[str]) -> bool:
    """Checks whether this run, or a launch of its job, was killed during its commit."""
    return any(
        _is_workspace_of(store, run, run_key) for run, _ in _run_journals(listed)
    )


def is_clean(store: Store, manifest: Manifest) -> bool:
    """Checks that a dataset has no commit to finish and no leftovers to remove."""
    listed = store.list(WORK_FOLDER)
    records = find_records(store, listed)
    return not (
        any(parse_generation(r.commit_id) <= manifest.generation for r in records)
        or _run_journals(listed)
        or _stale_files(store, manifest)
    )


def clean_up(store: Store, *, end_grace: bool = True) -> Manifest | None:
    """Finishes the last commit and removes leftovers; the caller holds the lease.

    With `end_grace`, the files of a replaced dataset are removed as well. Returns the
    manifest; None as in `finish`.
    """
    manifest_bytes = finish_commit(store, end_grace=end_grace)
    if manifest_bytes is None:
        return None
    manifest = Manifest.from_bytes(manifest_bytes, store.uri_of(MANIFEST_NAME))
    # Detached jobs publish without a lease: remove only while the manifest is this one.
    discard_fixed(store, manifest_bytes, _stale_files(store, manifest))
    return manifest


def shut_out_commits(store: Store) -> None:
    """Makes all unfinished commits fail; the caller holds the lease.

    A run that lost its lease may continue at any time. So the manifest gets a newer
    generation than all commits. Then none of their manifests can be swapped in, and their
    leftovers can be removed.
    """
    if store.read_if_exists(MANIFEST_NAME) is None:
        return
    manifest_bytes = finish_commit(store, end_grace=True)
    if manifest_bytes is None:
        raise BusyError(f"{store.uri}: another run is publishing; clean again later")
    manifest = Manifest.from_bytes(manifest_bytes, store.uri_of(MANIFEST_NAME))
    newer = _raise_generation(store, manifest)
    if newer != manifest and not store.swap(
        newer.to_bytes(), MANIFEST_NAME, expected_content=manifest_bytes
    ):
        raise BusyError(f"{store.uri}: another run has just published; clean again")


def _raise_generation(store: Store, manifest: Manifest) -> Manifest:
    """Returns the manifest with a generation that is higher than that of any commit."""
    generations = [parse_generation(record.commit_id) for record in find_records(store)]
    newest = max(generations, default=0)
    if newest <= manifest.generation:
        return manifest
    # One higher, so that no commit record matches the manifest.
    return manifest.model_copy(update={"generation": newest + 1})


def files_to_clean(store: Store, manifest: Manifest) -> list[str]:
    """Returns the files next to a dataset that cleaning up would remove, for reports.

    The list includes files of commits that must be shut out first. Until then such a
    commit may succeed, so no file is removed by this list.
    """
    manifest = _raise_generation(store, manifest)
    records = find_records(store)
    names = {
        *old_files(store, manifest, records, end_grace=True),
        *old_records(manifest, records),
    }
    return sorted(
        {*names, *_stale_files(store, manifest), *stray_files(store, manifest)}
    )


def _is_workspace_of(store: Store, run: str, run_key: str) -> bool:
    """Checks whether the workspace of that name belongs to a run with this key."""
    if not is_launch(run):
        return run == run_key[:16]
    launch = find_launch(store, run)
    return launch is not None and launch.is_of(run_key)


def _run_journals(listed: Collection[str]) -> list[tuple[str, str]]:
    """Returns the journals in the workspaces of runs: (run, name)."""
    start = f"{WORK_FOLDER}/"
    return [
        (run, journal)
        for run in sorted({n.split("/")[1] for n in listed if n.startswith(start)})
        if RUN_PATTERN.fullmatch(run)
        if (journal := f"{start}{run}/{STAGED_MANIFEST}") in listed
    ]


def _stale_files(store: Store, manifest: Manifest) -> list[str]:
    """Returns the TFDS files if they describe only the first of several parts."""
    if not manifest.appended or find_records(store):
        return []  # an unfinished commit removes them itself
    return [name for name in TFDS_FILES if store.size(name) is not None]


# Two runs of one job share a workspace, so a run that slept may have removed files that
# another run staged. The next run writes them again if it detects that they are missing.

RUN_AGAIN = "Another run of the same job was active, or cleaned up; run again"


def is_whole(workspace: Workspace, manifest: Manifest) -> bool:
    """Checks by a listing whether all files of a staged dataset exist.

    Files that a killed commit moved to the output count as well.
    """
    store = workspace.store
    staged = store.list_level(workspace.store_name("staging"))
    placed = store.list_level()
    for file, file_entry in data_entries(manifest).items():
        if parse_commit_id(file) != manifest.commit_id:
            continue  # the file belongs to an earlier part
        name = workspace.store_name(f"staging/{staged_file_name(file)}")
        level, name = (staged, name) if name in staged.files else (placed, file)
        if _difference(level, name, file_entry):
            return False
    if wrong_files(store, manifest, staged_metadata(workspace)):
        return False
    if manifest.rejects is None:
        return True
    folder = workspace.store_name(f"staging/{REJECTS_NAME}")
    rejects = store.list(folder), rejects_files(store, manifest)
    return sum(sum(files.values()) for files in rejects) >= manifest.rejects.bytes


def data_entries(manifest: Manifest) -> dict[str, ManifestShard | ManifestFile]:
    """Returns the manifest's entry of each shard and index file, by name."""
    return {**manifest.index_files, **{shard.file: shard for shard in manifest.shards}}


def staged_metadata(workspace: Workspace) -> dict[str, bytes]:
    """Reads the staged files that get a fixed name; returns their bytes by name."""
    store, folder = workspace.store, workspace.store_name("staging")
    names = [
        name
        for name in store.list_level(folder).files
        if name != workspace.store_name(STAGED_MANIFEST) and not is_shard_name(name)
    ]
    named_contents = zip(
        names, store.for_each(store.read_if_exists, names), strict=True
    )
    return {
        n.removeprefix(f"{folder}/"): content
        for n, content in named_contents
        if content is not None
    }


def wrong_files(
    store: Store, manifest: Manifest, staged: dict[str, bytes]
) -> list[str]:
    """Returns the metadata files of a dataset that are missing or have other bytes.

    An append leaves the metadata files of earlier parts in place.
    """
    wrong = [
        name
        for name, file_entry in manifest.files.items()
        if not matches_entry(
            staged[name] if name in staged else store.read_if_exists(name), file_entry
        )
    ]
    return wrong + [n for n in unnamed_files_of_part(manifest) if n not in staged]


DAMAGED_ADVICE = (
    "The dataset is damaged: convert again with `overwrite=true`, or remove its folder "
    "and convert again"
)


def manifest_digest(manifest_bytes: bytes | None) -> str:
    """Returns a digest of the bytes of a manifest; "" if there is none."""
    return (
        ""
        if manifest_bytes is None
        else blake2b(manifest_bytes, digest_size=16).hexdigest()
    )


def current_manifest_digest(store: Store) -> str:
    """Returns the digest of the current manifest, which a run reads when it begins."""
    return manifest_digest(store.read_if_exists(MANIFEST_NAME))


def is_staged(workspace: Workspace) -> bool:
    """Checks whether an earlier try staged all files, so that only the commit is left.

    If another dataset was published meanwhile, the staged files get new names. Removed
    files are written again.
    """
    store = workspace.store
    manifest = find_manifest(store, workspace.store_name(STAGED_MANIFEST))
    if manifest is None:
        return False
    expected = store.read_if_exists(workspace.store_name(REPLACED_DIGEST_NAME)) or b""
    return expected == current_manifest_digest(store).encode() and is_whole(
        workspace, manifest
    )


def commit(
    workspace: Workspace, staged: Manifest | None = None, lease: str = ""
) -> Manifest:
    """Moves the staged files to the output and swaps the manifest in. Safe to repeat.

    A run that is being ended waits for the swap and the puts after it.

    Args:
      workspace: the workspace of the run.
      staged: the staged manifest, if this run staged it.
      lease: the nonce of the run's lease, if the launcher holds it.

    Returns:
      The manifest of the dataset in the output.

    Raises:
      BusyError: another run published meanwhile, or removed staged files, or the run has
        ended. The output is unharmed, and the next run writes the files again.
      OutputError: a file of the dataset is missing, or a storage request failed.
    """
    store = workspace.store
    staged_names = (
        workspace.store_name(name) for name in (STAGED_MANIFEST, REPLACED_DIGEST_NAME)
    )
    staged_bytes, expected, published_bytes = store.for_each(
        store.read_if_exists, (*staged_names, MANIFEST_NAME)
    )
    if staged_bytes is None:  # an earlier try of this task committed
        current = find_manifest(store)
        if current is None:
            raise BusyError(f"{store.uri}: there is no {MANIFEST_NAME}. {RUN_AGAIN}")
        if staged is not None and current.fingerprint != staged.fingerprint:
            raise _changed_output_error(store)
        finish_commit(store)
        return current
    manifest = Manifest.from_bytes(staged_bytes, store.uri_of(STAGED_MANIFEST))
    if published_bytes != staged_bytes:
        if manifest_digest(published_bytes).encode() != (expected or b""):
            raise _abandon_commit(store, manifest)
        fixed = staged_metadata(workspace)
        if wrong := wrong_files(store, manifest, fixed):
            raise BusyError(
                f"{store.uri_of(wrong[0])}: not the file that this run staged. {RUN_AGAIN}"
            )
        CommitRecord(store, manifest.commit_id).write(
            staged_bytes, published_bytes, fixed
        )
        del fixed  # the lists of inputs may be long
        placed = _place_data(workspace, manifest)
        require_stored(store, manifest, own_mark=manifest.commit_id)
        _require_rejects(store, manifest, placed)
    with hold_for_publication(lease) as held_lease:
        if published_bytes != staged_bytes:
            _swap_in(store, manifest, staged_bytes, published_bytes)
        if held_lease is not None:
            held_lease.published_manifest = staged_bytes
        finish_commit(store, staged_bytes)
    return manifest


def _swap_in(
    store: Store,
    manifest: Manifest,
    manifest_bytes: bytes,
    previous_bytes: bytes | None,
) -> None:
    """Writes the manifest by a swap; repeats it if the store accepted but lost it."""
    for _ in range(_TRIES):
        if not store.swap(
            manifest_bytes, MANIFEST_NAME, expected_content=previous_bytes
        ):
            raise _abandon_commit(store, manifest)
        if store.read_if_exists(MANIFEST_NAME) != previous_bytes:
            return
    uri = store.uri_of(MANIFEST_NAME)
    raise OutputError(
        f"{uri}: the storage accepted the file but did not keep it: choose another "
        "storage"
    )


def _place_data(workspace: Workspace, manifest: Manifest) -> set[str]:
    """Moves staged files to their names in the dataset; returns the names of rejects."""
    store, folder = workspace.store, workspace.store_name("staging")
    mark = manifest.commit_id
    staged = store.list_level(folder).files
    pairs = [
        (source, file)
        for file in (*manifest.shard_files, *manifest.index_files)
        if parse_commit_id(file) == mark
        and (source := f"{folder}/{staged_file_name(file)}") in staged
    ]
    staged_rejects = store.list(f"{folder}/{REJECTS_NAME}") if manifest.rejects else ()
    rejects = {
        n: published_rejects_name(n.removeprefix(f"{folder}/"), mark)
        for n in staged_rejects
    }
    try:
        store.move_all([*pairs, *rejects.items()])
    except MissingFileError as error:
        raise BusyError(f"{error}. {RUN_AGAIN}") from error
    return set(rejects.values())


def _require_rejects(store: Store, manifest: Manifest, placed: set[str]) -> None:
    """Checks the total size of the kept rejects.

    Files with the same commit id that are not in `placed` come from an earlier try. With
    another exchange they hold the same rejects in other files, so they are removed.
    """
    if manifest.rejects is None:
        return
    files = rejects_files(store, manifest)
    if sum(files.values()) > manifest.rejects.bytes:
        mark = manifest.commit_id
        earlier_files = [
            n for n in files if n not in placed and parse_rejects_commit_id(n) == mark
        ]
        store.delete(earlier_files)
        files = rejects_files(store, manifest)
    num_bytes = sum(files.values())
    if num_bytes != manifest.rejects.bytes:
        raise BusyError(
            f"{store.uri_of(REJECTS_NAME)}: {format_count(num_bytes, 'byte')}, expected "
            f"{manifest.rejects.bytes:,}. {RUN_AGAIN}"
        )


def _abandon_commit(store: Store, manifest: Manifest) -> BusyError:
    """Removes the files of this commit from the output of another run."""
    # The other run may have removed the record before the last file was moved.
    CommitRecord(store, manifest.commit_id).write(manifest.to_bytes(), None, {})
    finish_commit(store)
    return _changed_output_error(store)


def _changed_output_error(store: Store) -> BusyError:
    return BusyError(
        f"{store.uri}: another run published a dataset here in the meantime, which was "
        "not changed; run again"
    )


def require_stored(store: Store, manifest: Manifest, *, own_mark: str = "") -> None:
    """Checks the sizes, and the checksums kept by the store, of all shards.

    Index files that were written with the shards are checked as well. No file is read.
    `own_mark` is the commit id of files that an unpublished commit just moved, or "".

    Raises:
      BusyError: a file of that commit is missing or has another size or checksum.
      OutputRefusedError: another file is missing or has another size or checksum.
    """
    level = store.list_level()
    for file, file_entry in data_entries(manifest).items():
        if problem := _difference(level, file, file_entry):
            if own_mark and parse_commit_id(file) == own_mark:
                raise BusyError(f"{store.uri_of(file)}: {problem}. {RUN_AGAIN}")
            raise OutputRefusedError(
                f"{store.uri_of(file)}: {problem}. {DAMAGED_ADVICE}"
            )


def _difference(
    level: Level, name: str, file_entry: ManifestShard | ManifestFile
) -> str:
    """Returns the difference between a listed file and its manifest entry, or ""."""
    size, crc = level.files.get(name), level.checksums.get(name)
    if size != file_entry.bytes:
        actual = "is missing" if size is None else f"has {size} bytes"
        return f"{actual}, the manifest records {file_entry.bytes} bytes"
    if crc is not None and f"{crc:08x}" != file_entry.crc32c:
        return (
            f"the store has CRC-32C {crc:08x}, the manifest records {file_entry.crc32c}"
        )
    return ""
