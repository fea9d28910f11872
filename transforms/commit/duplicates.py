"""Looks for equal content in several splits before a dataset is published."""

from __future__ import annotations

import json

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import InputError
from recordmill.schemas.text import json_bytes
from recordmill.schemas.understood import DUPLICATES, Understood
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.live_counts import counting


def check_duplicates(
    context: RunContext, own: Manifest, base: Manifest | None, run_metadata: bytes
) -> bytes:
    """Compares the staged records, and those they are appended to, between splits.

    Args:
      context: the run.
      own: the manifest of what is staged.
      base: that of the dataset that it is appended to, or None.
      run_metadata: of the run.

    Returns:
      The run's metadata, with what was found; a warning if that is anything.

    Raises:
      InputError: there is equal content, and `duplicates=fail`.
    """
    if context.duplicates == "ignore":
        return run_metadata
    # Only here: it imports all that reads records.
    from recordmill.transforms.dataset.read_shards import shard_to_read
    from recordmill.transforms.dataset.split_overlap import find_overlap

    workspace = context.workspace
    staged = workspace.store.below(workspace.store_name("staging"))
    shards = []
    if context.part and base is not None:
        shards += [
            (split, shard_to_read(workspace.store, base, shard))
            for split, entry in base.splits.items()
            for shard in entry.shards
        ]
    shards += [
        (split, shard_to_read(staged, own, shard))
        for split, entry in own.splits.items()
        for shard in entry.shards
    ]
    with counting(workspace, "publish-duplicates") as live:
        found = find_overlap(own, shards, live.note_bytes)
    told = found.lines()
    if told and context.duplicates == "fail":
        raise InputError(
            f"{told[0]}. Remove the copies from the inputs, or use `duplicates=report`"
        )
    later = Understood(((DUPLICATES, found.summary()),), tuple(told))
    metadata = json.loads(run_metadata)
    before = Understood.from_dict(metadata.get("understood", {}))
    metadata["understood"] = before.updated(later).to_dict()
    return json_bytes(metadata)
