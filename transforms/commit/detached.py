"""Publishing as the last step of a pipeline whose launcher does not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.shards import ShardResult
from recordmill.schemas.errors import OutputError
from recordmill.schemas.ranges import RangeResult
from recordmill.transforms.commit.commit import (
    check_output,
    commit,
    is_staged,
    require_stored,
)
from recordmill.transforms.commit.staging import stage
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease import Lease, acquire
from recordmill.transforms.storage.lock_files import LOCK_FOLDER
from recordmill.transforms.tasks.context import RunContext

LEASE_TRIES = 6
LEASE_PAUSE_SECONDS = 20.0  # a dead worker's lease expires within these together


def publish_detached(
    context: RunContext,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
    run_metadata: bytes,
) -> Manifest:
    """Does what else the launcher does at the end; safe to repeat.

    Nobody held a lease while rows were converted, so another run may have published
    meanwhile. Runs of one job at the same time do no harm: they write the same bytes.

    Raises:
      OutputError: another run is publishing, or its dataset is here already and must
        not be replaced.
    """
    workspace, store = context.workspace, context.workspace.store
    with lease_of_last_step(store, exclusive=store.preflight().exclusive):
        manifest = publish_once(
            context, lambda: stage(context, ranges, shards, run_metadata)
        )
        workspace.remove()
        workspace.remove_others(spare=LOCK_FOLDER)
    return manifest


def publish_once(
    context: RunContext, put_into_staging: Callable[[], object]
) -> Manifest:
    """Publishes unless an earlier try of the same step did; for the lease's holder.

    Args:
      context: the run.
      put_into_staging: does what `stage` does.

    Raises:
      OutputError: another dataset is here and must not be replaced.
    """
    store = context.workspace.store
    manifest = check_output(
        store, context.fingerprint, overwrite=context.overwrite, base=context.base
    )
    if manifest is not None:
        require_stored(store, manifest)
        return manifest
    if not is_staged(context.workspace):
        put_into_staging()
    return commit(context.workspace)


def lease_of_last_step(store: Store, *, exclusive: bool) -> Lease:
    """The output's lease; waits for that of a worker that died at this very step.

    Raises:
      OutputError: a living run holds it.
    """
    for _ in range(LEASE_TRIES - 1):
        try:
            return acquire(store, exclusive=exclusive)
        except OutputError:
            time.sleep(LEASE_PAUSE_SECONDS)
    return acquire(store, exclusive=exclusive)
