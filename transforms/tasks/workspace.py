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

from recordmill.schemas.text import check_file_name
from recordmill.transforms.exchange.sorted_runs import (
    NO_BUDGET,
    HoldBudget,
    LocalSortedRuns,
    SortedRunFolder,
    StoredSortedRuns,
)
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.store import WORK_FOLDER

# Name of a run's folder: digits of a fingerprint, or of a pipeline that has none yet, or
# of one launch of a detached job.
RUN_PATTERN = re.compile(r"[0-9a-f]{16}|rows-[0-9a-f]{11}|job-[0-9a-f]{12}")

# In the scratch folder, if there is one.
_IN_SCRATCH = ("runs", "facts", "inventory.arrow")
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
        return Path(self._local_root(name), name)

    def place(self, name: str) -> tuple[Store, str]:
        """Returns (store, name in it) of a file that is not staged."""
        if self.shared:
            return self.store, self.store_name(name)
        return LocalStore(self._local_root(name), synced=False), name

    def display_path(self, name: str) -> str:
        """Returns the path or URL of a file of this run, for messages."""
        store, name = self.place(name)
        return store.uri_of(name)

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Writes a small file of this run, in one step.

        Args:
          name: like "rejects/x".
          data: the file's bytes.
          durable: whether to wait until they are on disk, as an object store always does.
        """
        store, name = self.place(name)
        if durable and isinstance(store, LocalStore):
            store = LocalStore(store.root)
        store.put_bytes(data, name)

    def get(self, name: str) -> bytes | None:
        """Returns the bytes of a small file of this run, or None if there is none."""
        store, name = self.place(name)
        return store.find(name)

    def discard(self, name: str) -> None:
        """Removes a small file of this run, if it exists."""
        store, name = self.place(name)
        store.delete([name])

    def names(self, folder: str) -> list[str]:
        """Lists the names of the files in one of this run's folders."""
        store, folder = self.place(folder)
        return [name.removeprefix(f"{folder}/") for name in store.list(folder)]

    def _local_root(self, name: str) -> str:
        in_scratch = name.split("/")[0] in _IN_SCRATCH
        return self.scratch_root if in_scratch else self.root

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
        before = (self.get(_EXCHANGE_FILE) or b"").decode()
        other_exchange = before.partition(" ")[0] != exchange
        if before and (other_exchange or _cut_in(before) != cut):
            self.remove()
        elif before and before != note:
            for name in self.names("facts"):
                if name.startswith("shard-"):
                    self.discard(f"facts/{name}")
        for folder in ("errors", "live"):
            store, name = self.place(folder)
            store.remove_tree(name)
        self.make_folders()
        if before != note:
            self.put(_EXCHANGE_FILE, note.encode(), durable=True)

    def make_folders(self) -> None:
        """Creates the folders of this run that are not in a store."""
        Path(self.root).mkdir(parents=True, exist_ok=True)
        for folder in () if self.shared else ("runs", "staging", "live"):
            self.local_path(folder).mkdir(parents=True, exist_ok=True)

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
