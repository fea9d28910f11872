"""Publishing as the last step of a pipeline whose launcher does not wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.manifest import Manifest
from schemas.ranges import RangeResult
from schemas.shards import ShardResult
from transforms.run.context import RunContext
from transforms.run.publish import look_at_output, stage, switch
from transforms.stores.lease import LOCK_FOLDER, acquire


def publish_unattended(
    context: RunContext,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
    run_facts: bytes,
) -> Manifest:
    """Does what else the launcher does at the end; safe to repeat.

    Nobody held a lease while rows were converted, so another run may have published
    meanwhile. Runs of one job at the same time do no harm: they write the same bytes.

    Raises:
      OutputError: another run is publishing, or its dataset is here already and must
        not be replaced.
    """
    scratch, store = context.scratch, context.scratch.store
    with acquire(store, exclusive=store.preflight().exclusive):
        manifest = look_at_output(
            store,
            context.fingerprint,
            overwrite=context.overwrite,
            base=context.base,
        )
        if manifest is None:
            stage(context, ranges, shards, run_facts)
            manifest = switch(scratch)
        scratch.remove()
        scratch.remove_others(spare=LOCK_FOLDER)
    return manifest
