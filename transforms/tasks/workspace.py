"""Lays out the workspace of a run, the hidden folder of all that is not published yet.

    OUTPUT/.recordmill/FINGERPRINT/   (or SCRATCH/FINGERPRINT/ for runs/ and facts/)
        runs/       sorted runs
        facts/      checkpoints: one JSON file per finished range or shard
        rejects/    *.jsonl, one file per range or shard that rejected rows
        staging/    finished shards and metadata, under their final names
        errors/     one JSON file per error of a task
        inventory.jsonl.gz   what the run listed; in the store, like staging
        input.json  input root and format, to find the lines of rejects
        run.log

Where OUTPUT is not a local folder, a shard is written to a local folder and copied to
the store when it is complete. On the embedded runner only staging/ is in the store, all
else in a local folder; where workers are other machines, all but the log is (`shared`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

from recordmill.schemas.errors import MissingFileError
from recordmill.schemas.text import check_file_name
from recordmill.transforms.exchange.held_runs import NO_BUDGET, HoldBudget
from recordmill.transforms.exchange.sorted_run_store import (
    LocalSortedRuns,
    SortedRunFolder,
    StoredSortedRuns,
)
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.atomic_files import write_atomic
from recordmill.transforms.storage.store import WORK_FOLDER

# Name of a run's folder: digits of a fingerprint, or of a pipeline that has none yet, or
# of one launch of a detached job.
RUN_PATTERN = re.compile(r"[0-9a-f]{16}|rows-[0-9a-f]{11}|job-[0-9a-f]{12}")

_IN_SCRATCH = ("runs", "facts")  # in the scratch folder, if there is one
_EXCHANGE_FILE = "facts/exchange"

# Raise it when a range that is read again may be encoded in another way than before,
# while fingerprints stay. 2: whole numbers written as decimals are integers.
ENCODING_VERSION = 2


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one run; without open connections, so that it can be pickled.

    Attributes:
      store: of the output.
      name: of the run: the first 16 digits of its key.
      root: local folder of rejects, errors and log, and of staging in a local output.
      scratch_root: local folder of sorted runs and checkpoints.
      shared: whether all but the log is in the store, for workers on other machines.
      budget: of sorted runs that may be held in memory, where all workers are threads of
        this process.
    """

    store: Store
    name: str
    root: str
    scratch_root: str
    shared: bool = False
    budget: HoldBudget = NO_BUDGET

    @classmethod
    def of(
        cls, store: Store, run_key: str, scratch: str = "", *, remote: bool = False
    ) -> Workspace:
        """Names the workspace of a run; creates no folder.

        Args:
          store: of the output.
          run_key: of the run.
          scratch: local folder for sorted runs and checkpoints, or ""; with `remote`,
            one that all workers can reach, like a local output.
          remote: whether workers can be on other machines.
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
        """Returns the workspace of another run, in the same places."""
        name = run_key[:16]
        root, scratch = Path(self.root).parent, Path(self.scratch_root).parent
        return replace(
            self, name=name, root=str(root / name), scratch_root=str(scratch / name)
        )

    @property
    def runs(self) -> SortedRunFolder:
        """Returns the folder in which sorted runs are written and read."""
        if self.shared:
            return StoredSortedRuns(self.store, self.store_name("runs"))
        return LocalSortedRuns(str(self.local_path("runs")), self.budget)

    @property
    def log(self) -> Path:
        return Path(self.root, "run.log")

    def store_name(self, name: str) -> str:
        """Returns the name in the store of a file of this run, like "staging/x"."""
        return f"{WORK_FOLDER}/{self.name}/{name}"

    def local_path(self, name: str) -> Path:
        """Returns the path of a file of this run that is not in the store."""
        check_file_name(name, self.root)
        in_scratch = name.split("/")[0] in _IN_SCRATCH
        return Path(self.scratch_root if in_scratch else self.root, name)

    def display_path(self, name: str) -> str:
        """Returns the path or URL of a file of this run, for messages."""
        if self.shared:
            return self.store.uri_of(self.store_name(name))
        return str(self.local_path(name))

    def shared_location(self, name: str) -> tuple[Store, str]:
        """Returns (store, name) of a file that all workers can read."""
        if self.shared:
            return self.store, self.store_name(name)
        return LocalStore(self.scratch_root), name

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Writes a small file of this run, in one step.

        Args:
          name: like "rejects/x".
          data: the file's bytes.
          durable: whether to wait until they are on disk, as a store always does.
        """
        if self.shared:
            self.store.put_bytes(data, self.store_name(name))
        else:
            write_atomic(self.local_path(name), data, durable=durable)

    def get(self, name: str) -> bytes | None:
        """Reads a small file of this run; returns None if that is not possible."""
        try:
            if self.shared:
                return self.store.read(self.store_name(name))
            return self.local_path(name).read_bytes()
        except (OSError, MissingFileError):
            return None

    def discard(self, name: str) -> None:
        """Removes a small file of this run, if it exists."""
        if self.shared:
            self.store.delete([self.store_name(name)])
        else:
            self.local_path(name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """Lists the names of the files in one of this run's folders."""
        if self.shared:
            inside = self.store_name(folder)
            return [name.removeprefix(f"{inside}/") for name in self.store.list(inside)]
        found = (entry.name for entry in self.local_path(folder).glob("*"))
        return sorted(name for name in found if not name.startswith("."))

    @contextmanager
    def shard_tempfile(self, file: str) -> Iterator[Path]:
        """Yields a local path for a shard; call `stage_shard` inside the block."""
        if isinstance(self.store, LocalStore):
            yield self.local_path(f"staging/{file}")
            return
        # A folder for each try: another try may be writing the same shard now.
        near = None if self.shared else self.local_path("staging")
        with TemporaryDirectory(prefix="shard-", dir=near) as folder:
            yield Path(folder, file)

    def stage_shard(self, path: Path, crc32c: int) -> None:
        """Copies a finished shard into staging, where its path is not there already."""
        if not isinstance(self.store, LocalStore):
            name = self.store_name(f"staging/{path.name}")
            self.store.put_file(path, name, crc32c=crc32c)

    def create(self, exchange: str, cut: str = "") -> None:
        """Creates the folders, or continues with those of an earlier try.

        Errors of that try are removed. If it used another exchange, or was of a version
        that cut the input in another way, all of it is: the checkpoints and rejects of
        two exchanges or cuts cannot be combined. If it encoded in another way, its
        shards are written again: were one of its ranges to be read again, its column
        types might come out different.

        Args:
          exchange: of the run.
          cut: what `cut_of` says of its ranges.
        """
        note = " ".join(filter(None, (exchange, str(ENCODING_VERSION), cut)))
        before = (self.get(_EXCHANGE_FILE) or b"").decode()  # first it had no version
        other_exchange = before.partition(" ")[0] != exchange
        if before and (other_exchange or _cut_in(before) != cut):
            self.remove()
        elif before and before != note:
            self._discard_shards()
        if self.shared:
            self.store.delete(self.store.list(self.store_name("errors")))
        for folder in ("errors",) if self.shared else ("errors", "live"):
            shutil.rmtree(self.local_path(folder), ignore_errors=True)
        self.make_folders()
        if before != note:
            self.put(_EXCHANGE_FILE, note.encode(), durable=True)

    def make_folders(self) -> None:
        """Creates the folders of this run that are not in a store."""
        Path(self.root).mkdir(parents=True, exist_ok=True)
        folders = ("runs", "facts", "rejects", "staging", "errors", "live")
        for folder in () if self.shared else folders:
            self.local_path(folder).mkdir(parents=True, exist_ok=True)

    def _discard_shards(self) -> None:
        """Removes the checkpoints of finished shards."""
        for name in self.names("facts"):
            if name.startswith("shard-"):
                self.discard(f"facts/{name}")

    def remove(self) -> None:
        """Removes all files of this run, and the outer folder if it is empty then."""
        for root in {self.root, self.scratch_root}:
            shutil.rmtree(root, ignore_errors=True)
        if not isinstance(self.store, LocalStore):
            self.store.delete(self.store.list(f"{WORK_FOLDER}/{self.name}"))
        outer = Path(self.root).parent
        if outer.is_dir() and not any(outer.iterdir()):
            outer.rmdir()


def _cut_in(note: str) -> str:
    """Returns the cut that a note names, behind the exchange and the version."""
    return next(iter(note.split()[2:]), "")


def work_folder_of(uri: str) -> str:
    """Returns the local folder for workspaces of an output that is not local."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = blake2b(uri.encode(), digest_size=8).hexdigest()
    return str(Path(cache, "recordmill", name))
