"""Finds the shards that an earlier try finished, by their checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recordmill.schemas.names import index_file_name
from recordmill.schemas.shards import ShardPlan, ShardResult, ShardTask
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.checkpoints import (
    CHECKPOINTS,
    keeps_rejects,
    load_checkpoint,
)
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.kept_checksums import keeps_checksums
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tfrecord import crc32c

_READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ShardCheckpoint:
    """The checkpoint of a finished shard.

    Attributes:
      task: which records it holds.
      result: what was written.
      seen: device, inode, mtime and ctime (ns) of its file after it was synced. While
        they are the same nobody has written to it, so its checksum still holds.
      index_seen: those of its index file, if it has one.
    """

    task: ShardTask
    result: ShardResult
    seen: tuple[int, ...] = ()
    index_seen: tuple[int, ...] = ()


def finished_shard(context: RunContext, task: ShardTask) -> ShardResult | None:
    """Returns the result of a shard that an earlier try finished, if still whole."""
    earlier = load_checkpoint(context.workspace, task_name(task), ShardCheckpoint)
    if earlier is None or earlier.task != task:
        return None
    result = earlier.result
    rejects_kept = keeps_rejects(
        context.workspace,
        task_name(task),
        result.rows_rejected,
        result.rejects,
        context.part,
    )
    checksums_kept = keeps_checksums(
        context.workspace, task_name(task), result.checksums
    )
    is_kept = rejects_kept and checksums_kept and _is_whole(context, earlier)
    return result if is_kept else None


def finished_shards(context: RunContext, plan: ShardPlan) -> frozenset[int]:
    """Returns the numbers of the shards that an earlier try finished."""
    checkpoints = set(context.workspace.names(CHECKPOINTS))
    tasks = enumerate(map(plan.task, range(plan.num_shards)))
    return frozenset(
        number
        for number, task in tasks
        if f"{task_name(task)}.json" in checkpoints and finished_shard(context, task)
    )


def task_name(task: ShardTask) -> str:
    """Returns the name of the task that writes a shard, for its checkpoint."""
    return f"shard-{task.split}-{task.shard_index:05d}"


def stat_signature(path: Path) -> tuple[int, ...]:
    """Returns (device, inode, mtime, ctime) of a file; () if it does not exist."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def _is_whole(context: RunContext, checkpoint: ShardCheckpoint) -> bool:
    """Returns whether the shard of a checkpoint is still in staging, unchanged."""
    workspace, shard = context.workspace, checkpoint.result
    if not _is_file(workspace, shard.file, shard.bytes, shard.crc32c, checkpoint.seen):
        return False
    if shard.index is None:
        return True
    name, index = index_file_name(shard.file), shard.index
    return _is_file(workspace, name, index.bytes, index.crc32c, checkpoint.index_seen)


def _is_file(
    workspace: Workspace, name: str, size: int, expected_crc: int, seen: tuple[int, ...]
) -> bool:
    """Returns whether a staged file is as it was written."""
    if not isinstance(workspace.store, LocalStore):
        name = workspace.store_name(f"staging/{name}")
        known = workspace.store.checksum(name)  # None: the store keeps none
        same = workspace.store.size(name) == size
        return same and known in (None, expected_crc)
    path = workspace.local_path(f"staging/{name}")
    try:
        if path.stat().st_size != size:
            return False
        if seen and stat_signature(path) == seen:
            return True
        crc = 0
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                crc = crc32c(block, crc)
    except OSError:
        return False
    return crc == expected_crc
