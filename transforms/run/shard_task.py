"""One shard: gather its pieces, write its file into staging, report the facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.ranges import Reject, RunRef
from schemas.shards import ShardResult, ShardTask, shard_file_name
from transforms.exchange.gather import gather
from transforms.run.context import RunContext
from transforms.run.records import frame_rows
from transforms.run.scratch import load_fact, save_fact, save_rejects
from transforms.stores import LocalStore
from transforms.tfrecord import check_frames, crc32c
from transforms.write import write_records


@dataclass(frozen=True, slots=True)
class _ShardFact:
    """A finished shard and the task it answered."""

    task: ShardTask
    result: ShardResult


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
        job.name,
        task.split,
        task.shard_index,
        task.num_shards,
        job.compression,
        context.part,
    )
    rejects: list[Reject] = []
    windows: Iterator[pa.BinaryArray] = gather(context.scratch.runs, runs, task)
    if context.exchange == "reference":
        windows = _fetched(context, windows, rejects)
    else:
        windows = _checked(windows, f"{name}, a window")
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
    save_fact(context.scratch, name, _ShardFact(task, result))
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


def _checked(windows: Iterator[pa.BinaryArray], where: str) -> Iterator[pa.BinaryArray]:
    """From scratch: verifies every record before it gets into a shard."""
    for window in windows:
        check_frames(window, where)
        yield window


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
        crc = 0
        with path.open("rb") as file:
            while block := file.read(8 << 20):
                crc = crc32c(block, crc)
    except OSError:
        return False
    return crc == wanted.crc32c
