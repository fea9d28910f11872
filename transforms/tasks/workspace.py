"""Defines the workspace of a run, the hidden folder for all files before publication.

    OUTPUT/.recordmill/FINGERPRINT/   (or SCRATCH/FINGERPRINT/ for runs/ and facts/)
        runs/       sorted runs
        facts/      checkpoints: one JSON file per finished range or shard
        rejects/    *.jsonl, one file per range or shard that rejected rows
        staging/    finished shards and metadata, under their final names
        errors/     one JSON file per error of a task
        inputs.arrow   the inventory of the run
        input.json  input root and format, to find the lines of rejects
        run.log

If OUTPUT is not a local folder, a shard is written to a local folder and copied to the
store when it is complete. On the embedded runner only staging/ is in the store, and the
other files are in a local folder. If workers run on other machines, all files except the
log are in the store (`shared`).
"""

from __future__ import annotations

import base64
import json
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, TypeVar

import pyarrow as pa

from recordmill.schemas.errors import OutputError
from recordmill.schemas.input_files import FileChecksum, TaskChecksums
from recordmill.schemas.names import REJECTS_NAME, check_file_name, rejects_prefix
from recordmill.schemas.ranges import (
    NO_REJECTS,
    RangeResult,
    Reject,
    RejectTotals,
    ShardResult,
)
from recordmill.transforms.exchange.sorted_runs import (
    NO_BUDGET,
    MemoryBudget,
    SortedRunFolder,
)
from recordmill.transforms.file_content import (
    CHECKSUMS,
    Checksums,
    checksums_in,
    parse_checksums,
)
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.store import WORK_FOLDER, parse_json, to_json
from recordmill.transforms.temporary import gather_batches

# The name of a run's folder: digits of a fingerprint, of a pipeline without a fingerprint
# yet, or of one launch of a detached job. The last two have a heartbeat (launches.py).
RUN_PATTERN = re.compile(r"[0-9a-f]{16}|rows-[0-9a-f]{11}|job-[0-9a-f]{12}")

INPUTS_NAME = "inputs.arrow"  # the list of inputs, for the end of the run
# Files in the scratch folder, if there is one.
_IN_SCRATCH = ("runs", "facts", "inventory.arrow", INPUTS_NAME)
_EXCHANGE_FILE = "facts/exchange"
# Increment it when inputs are cut into other ranges, workspaces contain other files, or
# checkpoints have other fields: a field with a default would lose its count.
_LAYOUT = 3
_LOG_NAME = "run.log"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one run; without open connections, so that it can be pickled."""

    store: Store  # the store of the output
    name: str  # name of the run: the first 16 digits of its key
    # local folder of rejects, errors and log, and of staging in a local output
    root: str
    scratch_root: str  # local folder of sorted runs and checkpoints
    # whether all files except the log are in the store, for workers on other machines
    is_in_store: bool = False
    # budget for sorted runs in memory, if all workers are threads of this process
    budget: MemoryBudget = NO_BUDGET
    # name of the workspace whose heartbeat protects this one; "" if it is this one itself
    heartbeat_run: str = ""

    @classmethod
    def for_run(
        cls, store: Store, run_key: str, scratch: str = "", *, remote: bool = False
    ) -> Workspace:
        """Returns the workspace of a run; creates no folder.

        `scratch` is a local folder for sorted runs and checkpoints, or "". With `remote`,
        workers run on other machines: all of them must be able to access the scratch
        folder and a local output.
        """
        name = run_key[:16]
        if isinstance(store, LocalStore):
            root = Path(store.root, WORK_FOLDER, name)
        else:
            root = Path(scratch or work_folder_of(store.uri)) / name
        scratch_root = Path(scratch) / name if scratch else root
        shared = remote and not scratch and not isinstance(store, LocalStore)
        return cls(store, name, str(root), str(scratch_root), shared)

    def sibling(self, run_key: str) -> Workspace:
        """Returns another workspace of this run, in the same parent folders."""
        name = run_key[:16]
        root, scratch = Path(self.root).parent, Path(self.scratch_root).parent
        return replace(
            self,
            name=name,
            root=str(root / name),
            scratch_root=str(scratch / name),
            heartbeat_run=self.heartbeat_run or self.name,
        )

    @property
    def sorted_run_folder(self) -> SortedRunFolder:
        """Returns the folder in which sorted runs are written and read."""
        if self.is_in_store:
            return SortedRunFolder(self.store_name("runs"), store=self.store)
        anchor = self.local_store("runs").anchor
        return SortedRunFolder(str(self.local_path("runs")), self.budget, anchor=anchor)

    @property
    def log(self) -> Path:
        return Path(self.root, _LOG_NAME)

    def open_log(self) -> IO[bytes]:
        """Opens the log of the run for appending."""
        with self.local_store().open_to_write() as folder:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
            return os.fdopen(folder.open(_LOG_NAME, flags), "ab")

    def store_name(self, name: str) -> str:
        """Returns the name in the store of a file of this run, like "staging/x"."""
        return f"{WORK_FOLDER}/{self.name}/{name}"

    def local_path(self, name: str) -> Path:
        """Returns the path of a file of this run that is not in the store."""
        check_file_name(name, self.root)
        return Path(self._local_root(name), name)

    def store_and_name(self, name: str, *, durable: bool = False) -> tuple[Store, str]:
        """Returns the store of a file that is not staged, and the name in this store."""
        if self.is_in_store:
            return self.store, self.store_name(name)
        return self.local_store(name, durable=durable), name

    def local_store(self, name: str = "", *, durable: bool = False) -> LocalStore:
        """Returns the store of the local folder of this run that contains a file.

        The store follows no links below the output, or below the scratch folder that a
        person named.
        """
        root, store = self._local_root(name), self.store
        if isinstance(store, LocalStore) and Path(root).is_relative_to(store.root):
            anchor = store.anchor or store.root
        else:
            anchor = str(Path(root).parent)
        return LocalStore(root, is_durable=durable, anchor=anchor, follows_links=False)

    def display_path(self, name: str) -> str:
        """Returns the path or URL of a file of this run, for messages."""
        store, name = self.store_and_name(name)
        return store.uri_of(name)

    def write_file(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Writes a small file of this run, in one step.

        If `durable`, its bytes are on disk at return, as they always are in an object
        store.
        """
        store, name = self.store_and_name(name, durable=durable)
        store.put_bytes(data, name)

    def read_file(self, name: str) -> bytes | None:
        """Returns the bytes of a small file of this run, or None if it is missing."""
        store, name = self.store_and_name(name)
        return store.read_if_exists(name)

    def discard(self, name: str) -> None:
        """Removes a small file of this run, if it exists."""
        store, name = self.store_and_name(name)
        store.delete([name])

    def list_names(self, folder: str) -> list[str]:
        """Returns the names of the files in one of this run's folders."""
        store, folder = self.store_and_name(folder)
        return [name.removeprefix(f"{folder}/") for name in store.list(folder)]

    def _local_root(self, name: str) -> str:
        in_scratch = name.split("/")[0] in _IN_SCRATCH
        return self.scratch_root if in_scratch else self.root

    @contextmanager
    def shard_tempfile(self, file: str) -> Iterator[Path]:
        """Yields a local path for a shard; call `stage_shard` inside the block."""
        if isinstance(self.store, LocalStore):
            with self.local_store().open_to_write("staging") as folder:
                yield folder.path_of(file)
            return
        # A separate folder per try: another try may be writing the same shard now.
        near = None if self.is_in_store else self.local_path("staging")
        with TemporaryDirectory(prefix="shard-", dir=near) as folder:
            yield Path(folder, file)

    def stage_shard(self, path: Path, crc32c: int) -> None:
        """Copies a finished shard into staging, if the staging folder is in a store."""
        if not isinstance(self.store, LocalStore):
            name = self.store_name(f"staging/{path.name}")
            self.store.put_file(path, name, crc32c=crc32c)

    def create(self, exchange: str) -> None:
        """Creates the folders, or continues with the folders of an earlier try.

        Errors of the earlier try are removed. If it used another exchange, or a version
        of recordmill that cuts inputs differently, all its files are removed: checkpoints
        and rejects of different layouts cannot be combined.
        """
        note = f"{exchange} {_LAYOUT}"
        note_before = (self.read_file(_EXCHANGE_FILE) or b"").decode()
        if note_before not in ("", note):
            self.remove()
        for folder in ("errors", "live"):
            store, name = self.store_and_name(folder)
            store.remove_tree(name)
        self.make_folders()
        if note_before != note:
            self.write_file(_EXCHANGE_FILE, note.encode(), durable=True)

    def make_folders(self) -> None:
        """Creates the local folders of this run."""
        self.local_store().make_folder()
        for folder in () if self.is_in_store else ("runs", "staging", LIVE):
            self.local_store(folder).make_folder(folder)

    def remove(self) -> None:
        """Removes all files of this run, and the parent folder if it is then empty."""
        with suppress(OutputError):
            self.local_store().remove_root()
        self.remove_scratch()
        if not isinstance(self.store, LocalStore):
            self.store.delete(self.store.list(f"{WORK_FOLDER}/{self.name}"))
        with suppress(OSError):  # not empty
            Path(self.root).parent.rmdir()

    def remove_scratch(self) -> None:
        """Removes the sorted runs and checkpoints of this run."""
        with suppress(OutputError):
            self.local_store("runs").remove_root()


def work_folder_of(uri: str) -> str:
    """Returns the local folder for workspaces of a remote output."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = blake2b(uri.encode(), digest_size=8).hexdigest()
    return str(Path(cache, "recordmill", name))


# A checkpoint is written after the files that it describes, and in one step, so an
# existing checkpoint is valid. A killed run is resumed from its checkpoints.

CHECKPOINT_FOLDER = "facts"  # the folder

_Checkpoint = TypeVar("_Checkpoint")


def save_checkpoint(workspace: Workspace, name: str, checkpoint: object) -> None:
    """Writes the checkpoint of a finished task, a dataclass instance, as JSON."""
    workspace.write_file(f"{CHECKPOINT_FOLDER}/{name}.json", to_json(checkpoint))


def load_checkpoint(
    workspace: Workspace, name: str, kind: type[_Checkpoint]
) -> _Checkpoint | None:
    """Returns the checkpoint of a task that an earlier try finished, or None."""
    data = workspace.read_file(f"{CHECKPOINT_FOLDER}/{name}.json")
    return None if data is None else parse_json(data, kind, strict=False)


def discard_checkpoint(workspace: Workspace, name: str) -> None:
    """Removes a checkpoint whose files are damaged, so that the task is repeated."""
    workspace.discard(f"{CHECKPOINT_FOLDER}/{name}.json")


def reject_line(reject: Reject) -> bytes:
    """Returns a line of a rejects file; rows of pipelines have no URI and position."""
    fields = {
        "uri": reject.path or None,
        "position": reject.position if reject.path else None,
        "code": reject.code,
        "reason": reject.reason,
        "raw": base64.b64encode(reject.raw).decode(),
    }
    return json.dumps(fields, ensure_ascii=False).encode(errors="backslashreplace")


def save_rejects(
    workspace: Workspace, name: str, rejects: Iterable[Reject]
) -> RejectTotals:
    """Writes the rejects of one task as JSON lines; returns their totals."""
    file = f"{REJECTS_NAME}/{name}.jsonl"
    data = b"".join(reject_line(reject) + b"\n" for reject in rejects)
    if not data:
        workspace.discard(file)  # left by an earlier try with other types
        return NO_REJECTS
    workspace.write_file(file, data, durable=True)
    return RejectTotals.from_content(data)


# The checksums of the inputs are kept until the dataset is staged. A few checksums are
# part of a task's result. More of them, for example for 4,096 images, would be too large
# to pass through the runner: they are in a file next to the task's checkpoint.

MOST_IN_RESULT = 8
PREPARE = "prepare"  # the only task without a result
_ENDING = ".checksums"


def save_checksums(
    workspace: Workspace, name: str, checksums: Iterable[FileChecksum]
) -> TaskChecksums:
    """Saves the checksums of the input files that a task read."""
    task_checksums = (
        checksums if isinstance(checksums, Checksums) else Checksums(checksums)
    )
    number = len(task_checksums)
    if number <= MOST_IN_RESULT and name != PREPARE:
        return TaskChecksums(tuple(task_checksums))
    workspace.write_file(f"{CHECKPOINT_FOLDER}/{name}{_ENDING}", task_checksums.dump())
    return TaskChecksums(num_in_file=number)


def checksums_of(
    workspace: Workspace, name: str, checksums: TaskChecksums
) -> Sequence[FileChecksum]:
    """Returns the checksums of a task that `save_checksums` saved and still exist."""
    if checksums.num_in_file:
        return list(checksums_in(_load_checksum_batches(workspace, f"{name}{_ENDING}")))
    return checksums.checksums


def load_checksums(
    workspace: Workspace, results: Iterable[TaskChecksums]
) -> pa.Table | None:
    """Returns the checksums of all inputs that a run read; None if some were lost."""
    num_missing = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal num_missing
        few = Checksums()
        for result in results:
            few.extend(result.checksums)
            num_missing += result.num_in_file
        yield from few.batches
        for name in workspace.list_names(CHECKPOINT_FOLDER):
            for batch in (
                _load_checksum_batches(workspace, name)
                if name.endswith(_ENDING)
                else ()
            ):
                num_missing -= len(batch) if name != f"{PREPARE}{_ENDING}" else 0
                yield batch

    table = gather_batches(batches(), CHECKSUMS)
    # There may be more checksums if a task was repeated with other types.
    return None if num_missing > 0 else table


def _load_checksum_batches(workspace: Workspace, file: str) -> list[pa.RecordBatch]:
    return parse_checksums(workspace.read_file(f"{CHECKPOINT_FOLDER}/{file}") or b"")


def has_task_files(
    workspace: Workspace, name: str, result: RangeResult | ShardResult, part: int
) -> bool:
    """Returns whether the files of a finished task still exist, unchanged.

    `part` is the number of the part that the run writes.
    """
    rejects, checksums = result.rejects, result.checksums
    saved_checksums = checksums_of(workspace, name, checksums)
    if checksums.num_in_file and len(saved_checksums) != checksums.num_in_file:
        return False
    if not rejects.rows:
        return True
    data = workspace.read_file(f"{REJECTS_NAME}/{name}.jsonl")
    if data is None:  # a run that was killed during staging has moved the rejects
        staged = f"staging/{REJECTS_NAME}/{rejects_prefix(part)}{name}.jsonl"
        try:
            data = workspace.store.read(workspace.store_name(staged))
        except OutputError:
            return False
    return RejectTotals.from_content(data) == rejects


# A task has a checkpoint only when it is finished. Until then its counts are in a file of
# the workspace that the task rewrites every half second, so that threads, processes and
# the launcher share only a folder. A task whose folder is not on this machine is counted
# only when it is finished.

LIVE = "live"  # the folder
SECONDS_BETWEEN_NOTES = 0.5
_COUNTS_FORMAT = struct.Struct("<4Q")


class Counts(NamedTuple):
    """The counts of tasks: positions of the input, rows, rejects, bytes of records.

    For a range, `rows` includes rejects; for a shard, it is the number of written
    records.
    """

    positions: int = 0
    rows: int = 0
    rejected: int = 0
    bytes: int = 0

    def plus(self, other: Counts) -> Counts:
        """Returns the sum of two counts."""
        return Counts(*map(sum, zip(self, other, strict=True)))


class LiveCounts:
    """A writer of the counts of one unfinished task; writes nothing without a store."""

    def __init__(
        self,
        store: LocalStore | None,
        task: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._task = store, task
        self._clock = clock
        self._next = clock() + SECONDS_BETWEEN_NOTES  # a short task needs no file
        self._written = Counts()

    def write_counts(self, counts: Counts) -> None:
        """Writes the counts, at most every half second."""
        if self._store is None or (current_time := self._clock()) < self._next:
            return
        self._next = current_time + SECONDS_BETWEEN_NOTES
        try:
            with self._store.open_to_write(LIVE) as folder:
                # In place: a reader could see a truncated file as empty.
                flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
                file = folder.open(self._task, flags)
                try:
                    os.pwrite(file, _COUNTS_FORMAT.pack(*counts), 0)
                finally:
                    os.close(file)
        except (OSError, OutputError):
            self._store = None  # no such folder here: progress must not raise an error

    def add_written(self, num_bytes: int, records: int = 0) -> None:
        """Adds to the counts of written or checked bytes and records."""
        self._written = self._written.plus(Counts(rows=records, bytes=num_bytes))
        self.write_counts(self._written)

    def close(self) -> None:
        """Removes the file: the task has written its checkpoint, or failed."""
        if self._store is not None:
            with suppress(OutputError):
                self._store.delete([f"{LIVE}/{self._task}"])


NO_COUNTS = LiveCounts(None)


@contextmanager
def write_live_counts(workspace: Workspace, task: str) -> Iterator[LiveCounts]:
    """Yields the live counts of a task, which the launcher of the run can read."""
    live = LiveCounts(
        None if workspace.is_in_store else workspace.local_store(LIVE), task
    )
    try:
        yield live
    finally:
        live.close()


def read_live_counts(workspace: Workspace) -> dict[str, Counts]:
    """Returns the counts of the unfinished tasks, by name."""
    counts_by_task: dict[str, Counts] = {}
    if workspace.is_in_store:
        return counts_by_task
    store = workspace.local_store(LIVE)
    for name in store.list(LIVE):
        with suppress(OutputError, struct.error):  # finished, or incompletely written
            counts = Counts(*_COUNTS_FORMAT.unpack(store.read(name)))
            counts_by_task[name.removeprefix(f"{LIVE}/")] = counts
    return counts_by_task
