"""Writes one shard from its sorted runs or pieces into a file in staging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from recordmill.schemas.errors import DamagedScratchError, RecordmillError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.names import index_file_name, shard_file_name
from recordmill.schemas.ranges import (
    IndexResult,
    Reject,
    ShardPlan,
    ShardResult,
    ShardTask,
    SortedRunRef,
    unpack_list,
)
from recordmill.schemas.source_options import PIPELINE_ROWS
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, offsets_of, without_views
from recordmill.transforms.dataset.record_index import index_text
from recordmill.transforms.encode.waiting_rows import RecordWindow, binary_payloads
from recordmill.transforms.exchange.pieces import ShardPieces
from recordmill.transforms.exchange.sorted_runs import SortedRunFolder, merge_shard_rows
from recordmill.transforms.sources.base import RangeFindings
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.local import blocks_of, write_windows
from recordmill.transforms.storage.local_folder import sync_folder
from recordmill.transforms.storage.shard_file import (
    WrittenFile,
    write_array_records,
    write_records,
)
from recordmill.transforms.tasks.context import RunContext, ShardsToWrite
from recordmill.transforms.tasks.frame_records import frame_around, frame_rows
from recordmill.transforms.tasks.workspace import (
    CHECKPOINT_FOLDER,
    LiveCounts,
    Workspace,
    discard_checkpoint,
    has_task_files,
    load_checkpoint,
    save_checkpoint,
    save_checksums,
    save_rejects,
    write_live_counts,
)
from recordmill.transforms.tfrecord import check_frames, crc32c


@dataclass(frozen=True, slots=True)
class ShardCheckpoint:
    """The checkpoint of a finished shard."""

    task: ShardTask  # the records that belong to the shard
    result: ShardResult  # the file that was written
    # device, inode, mtime and ctime (ns) of its file after it was synced. While they are
    # unchanged, nothing has written to the file, so its checksum is still valid.
    signature: tuple[int, ...] = ()
    index_signature: tuple[int, ...] = ()  # the same of its index file, if it has one


def finished_shard(context: RunContext, task: ShardTask) -> ShardResult | None:
    """Returns the result of a shard that an earlier try finished, if it is unchanged."""
    workspace, name = context.workspace, task_name(task)
    checkpoint = load_checkpoint(workspace, name, ShardCheckpoint)
    if checkpoint is None or checkpoint.task != task:
        return None
    is_kept = has_task_files(workspace, name, checkpoint.result, context.part)
    return (
        checkpoint.result
        if is_kept and _is_unchanged_shard(context, checkpoint)
        else None
    )


def finished_shards(context: RunContext, plan: ShardPlan) -> frozenset[int]:
    """Returns the numbers of the shards that an earlier try finished."""
    checkpoints = set(context.workspace.list_names(CHECKPOINT_FOLDER))
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


def _is_unchanged_shard(context: RunContext, checkpoint: ShardCheckpoint) -> bool:
    """Returns whether the shard of a checkpoint is still in staging, unchanged."""
    workspace, shard = context.workspace, checkpoint.result
    if not _is_unchanged_file(
        workspace, shard.file, shard.bytes, shard.crc32c, checkpoint.signature
    ):
        return False
    if shard.index is None:
        return True
    name, index = index_file_name(shard.file), shard.index
    return _is_unchanged_file(
        workspace, name, index.bytes, index.crc32c, checkpoint.index_signature
    )


def _is_unchanged_file(
    workspace: Workspace,
    name: str,
    size: int,
    expected_crc: int,
    signature: tuple[int, ...],
) -> bool:
    """Returns whether a staged file is unchanged; `signature` is its last signature."""
    if not isinstance(workspace.store, LocalStore):
        name = workspace.store_name(f"staging/{name}")
        stored_crc = workspace.store.checksum(
            name
        )  # None if the store keeps no checksum
        has_same_size = workspace.store.size(name) == size
        return has_same_size and stored_crc in (None, expected_crc)
    path = workspace.local_path(f"staging/{name}")
    try:
        if path.stat().st_size != size:
            return False
        if signature and stat_signature(path) == signature:
            return True
        crc = 0
        for block in blocks_of(path):
            crc = crc32c(block, crc)
    except OSError:
        return False
    return crc == expected_crc


def write_shard(
    context: RunContext,
    task: ShardTask,
    runs: Sequence[SortedRunRef] | bytes,
    *,
    folder: SortedRunFolder | None = None,
) -> ShardResult:
    """Writes a shard from sorted runs, or returns the result of an earlier try.

    `runs` are all sorted runs of the job, in range order, possibly packed by `pack_list`.
    Damaged runs in the run's own folder are created again; damaged runs in another
    `folder` are not.
    """
    if isinstance(runs, bytes):
        runs = _unpack_runs(runs)
    earlier_result = finished_shard(context, task)
    if earlier_result is not None:
        return earlier_result
    range_findings = RangeFindings()
    run_folder = folder or context.workspace.sorted_run_folder
    windows = merge_shard_rows(
        run_folder,
        runs,
        task,
        break_ties_by_content=context.job.source == PIPELINE_ROWS,
    )
    if folder is not None:
        windows = _verified_windows(windows, f"{task_name(task)}, a window")
    elif context.exchange == "reference":
        windows = _encode_references(context, windows, range_findings)
    else:
        windows = _verified_run_windows(
            context, runs, windows, f"{task_name(task)}, a window"
        )
    return _store_shard(context, task, windows, range_findings)


# All shards of a job have the same table.
@lru_cache(maxsize=1)
def _unpack_runs(packed: bytes) -> list[SortedRunRef]:
    return list(unpack_list(packed))


def write_shard_from_pieces(
    to_write: ShardsToWrite, number: int, pieces: ShardPieces
) -> ShardResult:
    """Writes the shard of that number from all its pieces, received through the engine.

    If the shard was finished when the run began, no piece was sent.
    """
    context, task = to_write.context, to_write.plan.task(number)
    earlier_result = finished_shard(context, task)
    if earlier_result is not None:
        return earlier_result
    if number in to_write.finished_shards:
        raise RecordmillError(
            f"{task_name(task)}: the shard was finished when the run began, but now it "
            "is missing or was changed: did another run clean up? Run the job again"
        )
    if pieces.planned_rows < (rows := to_write.plan.num_rows_of(number)):
        raise RecordmillError(
            f"{task_name(task)}: the runner gave {pieces.planned_rows:,} of "
            f"{format_count(rows, 'row')} in one bundle, but exchange engine requires all "
            "rows of a shard. Use `exchange=scratch`"
        )
    range_findings = RangeFindings()
    piece_windows = pieces.windows(
        break_ties_by_content=context.job.source == PIPELINE_ROWS
    )
    if context.sends_references:
        windows = _encode_references(context, piece_windows, range_findings)
    else:
        windows = _verified_windows(piece_windows, f"{task_name(task)}, a window")
    return _store_shard(context, task, windows, range_findings)


def _store_shard(
    context: RunContext,
    task: ShardTask,
    windows: Iterable[pa.BinaryArray | RecordWindow],
    range_findings: RangeFindings,
) -> ShardResult:
    """Writes a shard into staging, and its checkpoint.

    Reading the windows adds findings to `sink`.
    """
    job, workspace, name = context.job, context.workspace, task_name(task)
    file = shard_file_name(
        *(job.name, task.split, task.shard_index, task.num_shards),
        *(job.compression, context.part),
        container=job.container,
    )
    with (
        write_live_counts(workspace, name) as live,
        workspace.shard_tempfile(file) as path,
    ):
        card = context.publishing.description.has_card
        written, index = _write_files(path, windows, job, live, card=card)
        signature = index_signature = tuple[int, ...]()
        if isinstance(workspace.store, LocalStore):
            signature = stat_signature(path)
            index_signature = stat_signature(_index_path(path))
        workspace.stage_shard(path, written.crc32c)
        if index is not None:
            workspace.stage_shard(_index_path(path), index.crc32c)
        result = ShardResult(
            split=task.split,
            shard_index=task.shard_index,
            file=file,
            records=written.records,
            bytes=written.bytes,
            example_bytes=written.example_bytes,
            crc32c=written.crc32c,
            rejects=save_rejects(workspace, name, range_findings.rejects),
            observed_types=range_findings.type_flags,
            issues=range_findings.issues,
            checksums=save_checksums(workspace, name, range_findings.checksums),
            index=index,
            sha256=written.sha256,
        )
        save_checkpoint(
            workspace, name, ShardCheckpoint(task, result, signature, index_signature)
        )
    return result


def _write_files(
    path: Path,
    windows: Iterable[pa.BinaryArray | RecordWindow],
    job: JobSpec,
    live: LiveCounts,
    *,
    card: bool,
) -> tuple[WrittenFile, IndexResult | None]:
    """Writes a shard, and its index file if the job requests it."""
    lengths: list[I64] = []

    def counted() -> Iterator[RecordWindow]:
        for window in map(RecordWindow.from_records, windows):
            yield window
            window_lengths = window.lengths
            live.add_written(int(window_lengths.sum()), len(window_lengths))
            if job.index:
                lengths.append(window_lengths)

    if job.container == "array_record":
        return write_array_records(path, counted(), with_sha256=card), None
    compression_options = job.compression, job.gzip_level
    written = write_records(path, counted(), *compression_options, with_sha256=card)
    if not job.index:
        return written, None
    index = write_windows(_index_path(path), iterate_index_parts(lengths), durable=True)
    sync_folder(path.parent)
    return written, IndexResult(*index)


def iterate_index_parts(lengths: Iterable[I64]) -> Iterator[bytes]:
    """Yields the parts of a shard's index from the lengths of its records."""
    end = 0
    for window_lengths in lengths:
        offsets = end + offsets_of(window_lengths)
        yield index_text(offsets)
        end = int(offsets[-1])


def _index_path(path: Path) -> Path:
    return path.with_name(index_file_name(path.name))


def _encode_references(
    context: RunContext,
    windows: Iterator[pa.BinaryArray],
    range_findings: RangeFindings,
) -> Iterator[pa.BinaryArray | RecordWindow]:
    """Yields the encoded rows for windows of references to unread rows."""
    schema = context.schema()
    for rows in context.source.read_windows(windows, range_findings):
        if not rows.batch.num_rows:
            continue
        window = frame_around(
            rows.batch,
            schema,
            context.job,
            crcs=rows.view_crcs,
            values=rows.view_values,
            expected_schema=context.expected_schema,
        )
        if window is not None:
            yield window
            continue
        for framed in frame_rows(
            without_views(rows.batch),
            schema,
            context.job,
            expected_schema=context.expected_schema,
        ):
            for row, reason in framed.invalid_rows:
                path, position, raw = rows.raw_row(row)
                range_findings.rejects.append(
                    Reject(path, position, reason, raw, "value")
                )
            yield binary_payloads(framed.rows)


def _verified_windows(
    windows: Iterable[pa.BinaryArray], location: str
) -> Iterator[pa.BinaryArray]:
    """Yields windows after verifying their records; `location` is for messages."""
    for window in windows:
        check_frames(window, location)
        yield window


def _verified_run_windows(
    context: RunContext,
    runs: Sequence[SortedRunRef],
    windows: Iterator[pa.BinaryArray],
    location: str,
) -> Iterator[pa.BinaryArray]:
    """Yields windows from sorted runs after verifying their records.

    Raises:
      DamagedScratchError: a run is damaged; its checkpoint was removed, to repeat its
        task.
    """
    try:
        yield from _verified_windows(windows, location)
    except (RecordmillError, OSError) as error:
        folder = context.workspace.sorted_run_folder
        damaged = [run for run in runs if not folder.is_whole(run)]
        if not damaged:
            raise
        for run in damaged:
            discard_checkpoint(context.workspace, run.stem.rpartition("-")[0])
        path = context.workspace.display_path(f"runs/{damaged[0].stem}.records")
        raise DamagedScratchError(
            f"{path}: the sorted run is damaged ({error}); it will be written again"
        ) from error
