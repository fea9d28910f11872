"""Checks whether a run may write to an output, by what is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recordmill.schemas.errors import BusyError, OutputRefusedError
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import first_names, printable
from recordmill.transforms.commit.commit import has_own_journal, open_journals
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.store import WORK_FOLDER

if TYPE_CHECKING:
    from recordmill.transforms.dataset.verify import Problem

# Such a run writes the same dataset again, if any file of it is missing or changed. What
# is not the dataset's own, as a shard of another run beside it, is left alone.


def find_damage(store: Store, manifest: Manifest) -> list[Problem]:
    """Verifies a dataset fully, unless names and sizes alone show that it is damaged."""
    # Only here: "nothing to do" should not import all that decodes records.
    from recordmill.transforms.dataset.verify import verify_store

    for full in (False, True):
        found = verify_store(store, manifest, full=full, workers=os.cpu_count() or 1)
        if damage := [each for each in found.problems if each.kind == "damage"]:
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
    """Checks whether a run may write to the output; returns the manifest if there is nothing to do.

    With `take_over` it may go on where another job was killed in its commit. `base` is
    the fingerprint of the dataset to which it appends, or "". `is_same` tells whether a
    dataset is the one that is to be written (by default, whether the run's key is its
    fingerprint), `changes_since` how the run differs from another one. A damaged
    dataset may be overwritten by the same one.

    Raises:
      OutputError: the output holds another dataset (and not overwrite) or other files.
    """
    if isinstance(store, LocalStore) and Path(store.root).is_file():
        raise OutputRefusedError(
            f"{store.uri}: is a file; expected a folder for the dataset"
        )
    manifest = find_manifest(store)
    if manifest is not None:
        same = is_same or (lambda found: found.fingerprint == run_key)
        if same(manifest):
            if overwrite and find_damage(store, manifest):
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
    if has_own_journal(store, run_key):
        return None  # killed during its commit, which the launcher repeats
    if unfinished := open_journals(store):
        if overwrite or take_over:
            return None
        raise OutputRefusedError(
            f"{store.uri}: another job was killed while it published its dataset here "
            f"({unfinished[0]}); run its command again to finish it, replace it with "
            "`overwrite=true`, or choose another folder"
        )
    top_names = {name.split("/")[0] for name in store.list()}
    if foreign := sorted(top_names - {WORK_FOLDER}):
        raise OutputRefusedError(
            f"{store.uri}: is not empty ({first_names(foreign, 3)}) and does not hold a dataset; use "
            "another folder. Nothing was changed"
        )
    return None


def _another_dataset(store: Store, manifest: Manifest, changes: Sequence[str]) -> str:
    """Describes the dataset that is in the way, how it differs, and the ways out."""
    start = f"{store.uri}: holds another dataset ({manifest.name} {manifest.version}"
    ways = "append to it with `append=true`, " if manifest.appended else ""
    ways += "replace it with `overwrite=true`, or choose another folder"
    if not changes:
        return f"{start}, made from other inputs or with other options); {ways}"
    lines = "".join(f"\n  {printable(change)}" for change in changes)
    return f"{start}). It differs in:{lines}\nTo go on, {ways}"
