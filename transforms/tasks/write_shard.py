"""One shard: gather its pieces, write its file into staging, report the facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from recordmill.schemas.dataset.shards import (
    ShardPlan,
    ShardResult,
    ShardTask,
    shard_file_name,
)
from recordmill.schemas.errors import DamagedScratchError, RecordmillError
from recordmill.schemas.job.job_spec import PIPELINE_ROWS
from recordmill.schemas.ranges import Reject, RunRef
from recordmill.transforms.exchange.gather import gather
from recordmill.transforms.exchange.messages import gather_inline
from recordmill.transforms.exchange.sorted_run_store import RunFolder
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tasks.checkpoints import (
    discard_checkpoint,
    load_checkpoint,
    save_checkpoint,
    save_rejects,
)
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.frame_records import frame_rows
from recordmill.transforms.tfrecord import check_frames, crc32c


@dataclass(frozen=True, slots=True)
class _ShardFact:
    """A finished shard and the task it answered.

    Attributes:
      task: which records it holds.
      result: what was written.
      seen: how its file looked when it was on disk: device, inode, mtime and ctime (ns).
        As long as it looks the same nobody has written to it since, and its checksum
        is that of the bytes which were synced.
    """

    task: ShardTask
    result: ShardResult
    seen: tuple[int, ...] = ()


def write_shard(
    context: RunContext,
    task: ShardTask,
    runs: Sequence[RunRef],
    *,
    folder: RunFolder | None = None,
) -> ShardResult:
    """Writes a shard from sorted runs, or takes up what an earlier try finished.

    Args:
      context: the run.
      task: which records the shard holds.
      runs: all sorted runs of the job, in range order.
      folder: where they lie, if that is not the run's own scratch, from whose facts
        damaged ones are made again.
    """
    earlier = finished_shard(context, task)
    if earlier is not None:
        return earlier
    rejects: list[Reject] = []
    lying = folder or context.workspace.runs
    windows = gather(lying, runs, task, break_ties_by_content=_by_content(context))
    if folder is not None:
        windows = _checked(windows, f"{_name_of(task)}, a window")
    elif context.exchange == "reference":
        windows = _fetched(context, windows, rejects)
    else:
        windows = _from_scratch(context, runs, windows, f"{_name_of(task)}, a window")
    return _store_shard(context, task, windows, rejects)


def write_inline(
    context: RunContext,
    task: ShardTask,
    pieces: Iterable[bytes],
    *,
    already_written: bool = False,
) -> ShardResult:
    """Writes a shard from pieces that came through the engine.

    Args:
      context: the run.
      task: which records the shard holds.
      pieces: all of the shard's (see recordmill.transforms.exchange.messages), in any order.
      already_written: whether the shard was finished before, so that nothing was sent.

    Raises:
      RecordmillError: it is no longer there.
    """
    earlier = finished_shard(context, task)
    if earlier is not None:
        return earlier
    if already_written:
        raise RecordmillError(
            f"{_name_of(task)}: was finished when the run began, and is gone now or "
            "was changed: did another run clean up? Run the job again"
        )
    windows = gather_inline(pieces, break_ties_by_content=_by_content(context))
    windows = _checked(windows, f"{_name_of(task)}, a window")
    return _store_shard(context, task, windows, [])


def finished_shard(context: RunContext, task: ShardTask) -> ShardResult | None:
    """The facts of a shard that an earlier try finished and that is still whole."""
    earlier = load_checkpoint(context.workspace, _name_of(task), _ShardFact)
    if earlier is not None and earlier.task == task and _is_whole(context, earlier):
        return earlier.result
    return None


def finished_shards(context: RunContext, plan: ShardPlan) -> frozenset[int]:
    """The numbers of the shards that an earlier try finished."""
    facts = set(context.workspace.names("facts"))
    tasks = enumerate(map(plan.task, range(plan.num_shards)))
    return frozenset(
        number
        for number, task in tasks
        if f"{_name_of(task)}.json" in facts and finished_shard(context, task)
    )


def _by_content(context: RunContext) -> bool:
    """Whether ties go by content, because rows have no place in an input."""
    return context.job.source == PIPELINE_ROWS


def _name_of(task: ShardTask) -> str:
    return f"shard-{task.split}-{task.shard_index:05d}"


def _store_shard(
    context: RunContext,
    task: ShardTask,
    windows: Iterable[pa.BinaryArray],
    rejects: list[Reject],
) -> ShardResult:
    """Writes a shard into staging; `rejects` fill up while the windows are read."""
    job, name = context.job, _name_of(task)
    file = shard_file_name(
        job.name,
        task.split,
        task.shard_index,
        task.num_shards,
        job.compression,
        context.part,
    )
    with context.workspace.shard_tempfile(file) as path:
        facts = write_records(path, windows, job.compression)
        context.workspace.stage_shard(path, facts.crc32c)
        seen = (
            _stat_signature(path)
            if isinstance(context.workspace.store, LocalStore)
            else ()
        )
    result = ShardResult(
        split=task.split,
        shard_index=task.shard_index,
        file=file,
        records=facts.records,
        bytes=facts.bytes,
        example_bytes=facts.example_bytes,
        crc32c=facts.crc32c,
        rows_rejected=save_rejects(context.workspace, name, rejects),
    )
    save_checkpoint(context.workspace, name, _ShardFact(task, result, seen))
    return result


def _fetched(
    context: RunContext, windows: Iterator[pa.BinaryArray], rejects: list[Reject]
) -> Iterator[pa.BinaryArray]:
    """By reference: reads the rows that a window refers to, and encodes them."""
    schema = context.schema()
    for window in windows:
        fetched = context.source.read_references(window)
        rejects += fetched.rejects
        if not fetched.batch.num_rows:
            continue
        for framed in frame_rows(
            fetched.batch, schema, context.job, expected=context.expected
        ):
            for row, reason in framed.refused:
                path, position, raw = fetched.raw(row)
                rejects.append(Reject(path, position, reason, raw))
            yield framed.records


def _checked(windows: Iterable[pa.BinaryArray], where: str) -> Iterator[pa.BinaryArray]:
    """Verifies every record before it gets into a shard."""
    for window in windows:
        check_frames(window, where)
        yield window


def _from_scratch(
    context: RunContext,
    runs: Sequence[RunRef],
    windows: Iterator[pa.BinaryArray],
    where: str,
) -> Iterator[pa.BinaryArray]:
    """As `_checked`, where the records come from sorted runs.

    Raises:
      DamagedScratchError: what was damaged is forgotten, so the next try makes it again.
    """
    try:
        yield from _checked(windows, where)
    except (RecordmillError, OSError) as error:
        folder = context.workspace.runs
        damaged = [run for run in runs if not folder.is_whole(run)]
        if not damaged:
            raise
        for run in damaged:
            discard_checkpoint(context.workspace, run.stem.rpartition("-")[0])
        place = context.workspace.display_path(f"runs/{damaged[0].stem}.records")
        raise DamagedScratchError(
            f"{place}: the sorted run was damaged ({error}); it is made again"
        ) from error


def _is_whole(context: RunContext, fact: _ShardFact) -> bool:
    """Whether a shard that an earlier try finished still lies in staging as it was."""
    workspace, wanted = context.workspace, fact.result
    if not isinstance(workspace.store, LocalStore):
        name = workspace.store_name(f"staging/{wanted.file}")
        known = workspace.store.checksum(name)  # None: the store keeps none
        same = workspace.store.size(name) == wanted.bytes
        return same and known in (None, wanted.crc32c)
    path = workspace.local_path(f"staging/{wanted.file}")
    try:
        if path.stat().st_size != wanted.bytes:
            return False
        if fact.seen and _stat_signature(path) == fact.seen:
            return True
        crc = 0
        with path.open("rb") as file:
            while block := file.read(8 << 20):
                crc = crc32c(block, crc)
    except OSError:
        return False
    return crc == wanted.crc32c


def _stat_signature(path: Path) -> tuple[int, ...]:
    """How a file looks from outside; () where it is not (a store has it)."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return ()
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns
