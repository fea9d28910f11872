"""One shard: gather its pieces, write its file into staging, report the facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from schemas.errors import DamagedScratchError, RecordmillError
from schemas.ranges import Reject, RunRef
from schemas.shards import ShardResult, ShardTask, shard_file_name
from transforms.exchange.gather import gather
from transforms.exchange.runs import run_is_whole
from transforms.run.context import RunContext
from transforms.run.records import frame_rows
from transforms.run.scratch import forget_fact, load_fact, save_fact, save_rejects
from transforms.stores import LocalStore
from transforms.tfrecord import check_frames, crc32c
from transforms.write import write_records


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
    context: RunContext, task: ShardTask, runs: Sequence[RunRef]
) -> ShardResult:
    """Writes a shard, or takes up what an earlier try finished.

    Args:
      context: the run.
      task: which records the shard holds.
      runs: all sorted runs of the job, in range order.
    """
    name = f"shard-{task.split}-{task.shard_index:05d}"
    earlier = load_fact(context.scratch, name, _ShardFact)
    if earlier is not None and earlier.task == task and _is_whole(context, earlier):
        return earlier.result
    job = context.job
    file = shard_file_name(
        job.name, task.split, task.shard_index, task.num_shards, job.compression
    )
    rejects: list[Reject] = []
    windows: Iterator[pa.BinaryArray] = gather(context.scratch.runs, runs, task)
    if context.exchange == "reference":
        windows = _fetched(context, windows, rejects)
    else:
        windows = _checked(context, runs, windows, f"{name}, a window")
    facts = write_records(context.scratch.staging / file, windows, job.compression)
    context.scratch.deliver(file, facts.crc32c)
    result = ShardResult(
        split=task.split,
        shard_index=task.shard_index,
        file=file,
        records=facts.records,
        bytes=facts.bytes,
        example_bytes=facts.example_bytes,
        crc32c=facts.crc32c,
        rows_rejected=save_rejects(context.scratch, name, rejects),
    )
    seen = _look(context.scratch.staging / file)
    save_fact(context.scratch, name, _ShardFact(task, result, seen))
    return result


def _fetched(
    context: RunContext, windows: Iterator[pa.BinaryArray], rejects: list[Reject]
) -> Iterator[pa.BinaryArray]:
    """By reference: reads the rows that a window refers to, and encodes them."""
    schema = context.schema()
    for window in windows:
        fetched = context.source.fetch(window)
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


def _checked(
    context: RunContext,
    runs: Sequence[RunRef],
    windows: Iterator[pa.BinaryArray],
    where: str,
) -> Iterator[pa.BinaryArray]:
    """From scratch: verifies every record before it gets into a shard.

    Raises:
      DamagedScratchError: what was damaged is forgotten, so the next try makes it again.
    """
    try:
        for window in windows:
            check_frames(window, where)
            yield window
    except (RecordmillError, OSError) as error:
        folder = context.scratch.runs
        damaged = [run for run in runs if not run_is_whole(folder, run)]
        if not damaged:
            raise
        for run in damaged:
            forget_fact(context.scratch, run.stem.rpartition("-")[0])
        raise DamagedScratchError(
            f"{folder / damaged[0].stem}.records: the sorted run was damaged ({error}); "
            "it is made again"
        ) from error


def _is_whole(context: RunContext, fact: _ShardFact) -> bool:
    """Whether a shard that an earlier try finished still lies in staging as it was."""
    scratch, wanted = context.scratch, fact.result
    if not isinstance(scratch.store, LocalStore):
        name = scratch.in_store(f"staging/{wanted.file}")
        known = scratch.store.checksum(name)  # None: the store keeps none
        same = scratch.store.size(name) == wanted.bytes
        return same and known in (None, wanted.crc32c)
    path = scratch.staging / wanted.file
    try:
        if path.stat().st_size != wanted.bytes:
            return False
        if fact.seen and _look(path) == fact.seen:
            return True
        crc = 0
        with path.open("rb") as file:
            while block := file.read(8 << 20):
                crc = crc32c(block, crc)
    except OSError:
        return False
    return crc == wanted.crc32c


def _look(path: Path) -> tuple[int, ...]:
    """How a file looks from outside; () where it is not (a store has it)."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return ()
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns
