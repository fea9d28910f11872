"""Makes the manifest that a commit publishes: with its names, and joined to the base's."""

from __future__ import annotations

from collections.abc import Collection

from recordmill.schemas.dataset.manifest import (
    Manifest,
    MapEntry,
    RejectsEntry,
    SplitEntry,
)
from recordmill.schemas.dataset.parts import commit_mark
from recordmill.schemas.dataset.shards import marked_file_name
from recordmill.schemas.reject_totals import NO_REJECTS


def publish_as(staged: Manifest, generation: int) -> Manifest:
    """Returns the manifest of a staged part under the names of its commit.

    Args:
      staged: the part's manifest, whose shards have the names they are staged under.
      generation: how many commits there were before in its folder.
    """
    mark = commit_mark(staged.fingerprint, generation)
    splits = {}
    for name, split in staged.splits.items():
        shards = tuple(
            shard.model_copy(update={"file": marked_file_name(shard.file, mark)})
            for shard in split.shards
        )
        splits[name] = split.model_copy(update={"shards": shards})
    rejects = staged.rejects
    if rejects is not None:
        rejects = rejects.model_copy(update={"marks": (mark,)})
    update = {"generation": generation, "splits": splits, "rejects": rejects}
    return staged.model_copy(update=update)


def join_manifests(
    base: Manifest, more: Manifest, stale_files: Collection[str] = ()
) -> Manifest:
    """Returns the manifest of a dataset with what was appended to it.

    Args:
      base: of the dataset before.
      more: of the appended part alone; its fingerprint is that of the whole.
      stale_files: metadata files that do not describe the whole and are removed.

    Raises:
      ValueError: the two are not of one job and schema, which is a bug of the caller.
    """
    same = {"name", "version", "seed", "shuffle", "compression", "container"}
    same |= {"payload", "features"}
    if base.model_dump(include=same) != more.model_dump(include=same):
        raise ValueError(f"{more.name}: cannot be appended to another job's dataset")
    nothing = SplitEntry(records=0, bytes=0, shards=())
    splits = {}
    for name in (
        *base.splits,
        *(name for name in more.splits if name not in base.splits),
    ):
        old, new = base.splits.get(name, nothing), more.splits.get(name, nothing)
        splits[name] = SplitEntry(
            records=old.records + new.records,
            bytes=old.bytes + new.bytes,
            shards=(*old.shards, *new.shards),
        )
    files = {**base.files, **more.files}
    return base.model_copy(
        update={
            "fingerprint": more.fingerprint,
            "rows_read": base.rows_read + more.rows_read,
            "rows_rejected": base.rows_rejected + more.rows_rejected,
            "generation": more.generation,
            "appended": base.appended + 1,
            "files": {n: files[n] for n in sorted(files) if n not in stale_files},
            "rejects": _join_rejects(base, more),
            "map": _join_maps(base, more),
            "splits": splits,
        }
    )


def _join_maps(base: Manifest, more: Manifest) -> MapEntry | None:
    """Returns what a function made for both, of rows with the features of the first."""
    if base.map is None or more.map is None:
        return base.map
    return MapEntry(
        rows_dropped=base.map.rows_dropped + more.map.rows_dropped,
        rows_added=base.map.rows_added + more.map.rows_added,
        features=base.map.features,
    )


def _join_rejects(base: Manifest, more: Manifest) -> RejectsEntry | None:
    """Returns the entry of both; None if one is unknown, as in earlier versions."""
    totals, marks = NO_REJECTS, list[str]()
    for manifest in (base, more):
        if manifest.rejects is not None:
            totals += manifest.rejects.totals
            marks += manifest.rejects.marks or [""]
        elif manifest.rows_rejected:
            return None
    return RejectsEntry.of(totals, tuple(marks))
