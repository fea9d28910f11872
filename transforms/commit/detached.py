"""Publishes a dataset as the last step of a pipeline that no launcher waits for.

While it converts, a detached job holds no lease; its sign of life keeps its workspace
(transforms/tasks/launches.py). Which manifest it may replace was decided at its launch. If
that is not there any more when it is to publish, another run came first, and this job is
over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from recordmill.schemas.errors import BusyError, OutputError
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.ranges import RangeResult
from recordmill.schemas.shards import ShardResult
from recordmill.transforms.commit.check_output import check_output
from recordmill.transforms.commit.commit import (
    clean_up,
    commit,
    is_staged,
    manifest_digest,
    require_stored,
    seen_manifest,
)
from recordmill.transforms.commit.inputs import is_of_run
from recordmill.transforms.commit.staging import stage
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease import Lease, acquire
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.launches import end_launch, keep_alive
from recordmill.transforms.tasks.leftovers import find_leftovers, remove_leftovers

LEASE_TRIES = 6
LEASE_PAUSE_SECONDS = 20.0  # during all tries together, a dead worker's lease expires


def publish_detached(
    context: RunContext,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
    run_metadata: bytes,
) -> Manifest:
    """Publishes as the launcher does at the end of an attended run; safe to repeat.

    Concurrent launches of one job do no harm: they write the same bytes.

    Raises:
      OutputError: another run is publishing, or published a dataset since the launch.
    """
    workspace, store = context.workspace, context.workspace.store
    with acquire_for_commit(store, exclusive=store.preflight()) as lease:
        manifest = publish(
            context, lambda allowed: stage(allowed, ranges, shards, run_metadata)
        )
        if lease.is_held():  # else another run may be at work there
            workspace.remove()
            remove_leftovers(store, find_leftovers(store, spare=workspace.name))
    return manifest


def publish(
    context: RunContext, put_into_staging: Callable[[RunContext], Manifest]
) -> Manifest:
    """Publishes unless an earlier try of this step did; call it with the lease held.

    `put_into_staging` stages the files, like `stage`, of the run as it may publish.

    Raises:
      BusyError: it is a detached job that was ended, or another run published since.
      OutputError: the output holds another dataset that must not be replaced.
    """
    keep_alive(context.workspace, now=True)
    store, replaces = context.workspace.store, context.publishing.replaces
    try:
        return _publish(context, put_into_staging)
    except OutputError as error:
        if replaces not in (None, seen_manifest(store)):
            # Trying again does not help.
            end_launch(context.workspace, str(error))
        raise


def _publish(
    context: RunContext, put_into_staging: Callable[[RunContext], Manifest]
) -> Manifest:
    store = context.workspace.store
    replaces = context.publishing.replaces
    if replaces is None:
        replaces = seen_manifest(store)
    else:
        _require_unreplaced(context, replaces)
    manifest = check_output(
        store,
        context.run_key,
        overwrite=context.publishing.overwrite,
        base=context.publishing.base,
        is_same=lambda found: is_of_run(store, found, context.run_key),
    )
    if manifest is not None:
        require_stored(store, manifest)
        clean_up(store)
        return manifest
    clean_up(store, end_grace=False)
    staged = None
    if not is_staged(context.workspace):
        staged = put_into_staging(context.publishing_with(replaces=replaces))
    manifest = commit(context.workspace, staged)
    if context.publishing.grace == "0":
        clean_up(store)
    return manifest


def _require_unreplaced(context: RunContext, replaces: str) -> None:
    """Checks that nobody else published since a run began."""
    store = context.workspace.store
    data = store.find(MANIFEST_NAME)
    if manifest_digest(data) == replaces:
        return
    if data is not None:
        found = Manifest.from_bytes(data, store.uri_of(MANIFEST_NAME))
        if is_of_run(store, found, context.run_key):
            return  # by an earlier try, or by another launch of the same job
    append = "append to it"
    way = append if context.publishing.base else "replace it with `overwrite=true`"
    raise BusyError(
        f"{store.uri}: the dataset changed since this job was launched, because another "
        "run published here. It was left as it is, and nothing of this job was "
        f"published. Submit the job again to {way}, or choose another folder"
    )


def acquire_for_commit(store: Store, *, exclusive: bool) -> Lease:
    """Acquires the output's lease; waits for that of a worker that died in this step.

    Raises:
      OutputError: a living run holds it.
    """
    for _ in range(LEASE_TRIES - 1):
        try:
            return acquire(store, exclusive=exclusive)
        except OutputError:
            time.sleep(LEASE_PAUSE_SECONDS)
    return acquire(store, exclusive=exclusive)
