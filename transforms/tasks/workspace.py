"""Where a run keeps what is not published yet.

    OUTPUT/.recordmill/FINGERPRINT/   (or SCRATCH/FINGERPRINT/ for runs and facts)
        runs/       sorted runs
        facts/      one JSON file per finished range or shard
        rejects/    *.jsonl, one file per range or shard that rejected rows
        staging/    finished shards and metadata, under their final names
        errors/     what went wrong, one file per error
        run.log

Where OUTPUT is no local folder, a shard is made in a local folder and put into the
store when it is whole. There, on the embedded runner, only staging/ lies in the store;
where workers are other machines, everything does but the log (`shared`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

from recordmill.schemas.errors import MissingFileError
from recordmill.transforms.exchange.sorted_run_store import (
    LocalRuns,
    RunFolder,
    StoredRuns,
)
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.atomic_files import write_atomic
from recordmill.transforms.storage.store import WORK_FOLDER

_OF_SCRATCH = ("runs", "facts")  # in the scratch folder, where one is given
_EXCHANGE_NOTE = "facts/exchange"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one run; small and free of connections, for any worker.

    Attributes:
      store: of the output.
      name: of the run, the beginning of its fingerprint.
      root: local folder of rejects, errors, log, and of staging if it is local.
      scratch_root: local folder of sorted runs and facts.
      shared: whether all but the log lies in the store, for workers elsewhere.
    """

    store: Store
    name: str
    root: str
    scratch_root: str
    shared: bool = False

    @classmethod
    def of(
        cls, store: Store, fingerprint: str, scratch: str = "", *, remote: bool = False
    ) -> Workspace:
        """The folders of the run with that fingerprint; makes none of them.

        Args:
          store: of the output.
          fingerprint: of the run.
          scratch: folder for sorted runs and facts; with `remote`, one that all
            workers see, as they must see a local output.
          remote: whether workers may be on other machines.
        """
        name = fingerprint[:16]
        if isinstance(store, LocalStore):
            root = Path(store.root, WORK_FOLDER, name)
        else:
            root = Path(scratch or work_folder_of(store.uri)) / name
        scratch_root = Path(scratch) / name if scratch else root
        shared = remote and not scratch and not isinstance(store, LocalStore)
        return cls(store, name, str(root), str(scratch_root), shared)

    @property
    def runs(self) -> RunFolder:
        """Where sorted runs are written and read."""
        if self.shared:
            return StoredRuns(self.store, self.store_name("runs"))
        return LocalRuns(str(self.local_path("runs")))

    @property
    def log(self) -> Path:
        return Path(self.root, "run.log")

    def store_name(self, name: str) -> str:
        """The name in the store of one of this run's files, like staging/x."""
        return f"{WORK_FOLDER}/{self.name}/{name}"

    def local_path(self, name: str) -> Path:
        """Where one of this run's files is, unless it is in the store."""
        of_scratch = name.split("/")[0] in _OF_SCRATCH
        return Path(self.scratch_root if of_scratch else self.root, name)

    def display_path(self, name: str) -> str:
        """Where one of this run's files is, for people."""
        if self.shared:
            return self.store.uri_of(self.store_name(name))
        return str(self.local_path(name))

    def shared_location(self, name: str) -> tuple[Store, str]:
        """A store and a name in it for a file that every worker reads."""
        if self.shared:
            return self.store, self.store_name(name)
        return LocalStore(self.scratch_root), name

    def put(self, name: str, data: bytes) -> None:
        """Writes a small file of this run, whole or not at all."""
        if self.shared:
            self.store.put_bytes(data, self.store_name(name))
        else:
            write_atomic(self.local_path(name), data)

    def get(self, name: str) -> bytes | None:
        """A small file of this run, or None if there is none that can be read."""
        try:
            if self.shared:
                return self.store.read(self.store_name(name))
            return self.local_path(name).read_bytes()
        except (OSError, MissingFileError):
            return None

    def discard(self, name: str) -> None:
        """Removes a small file of this run, if it is there."""
        if self.shared:
            self.store.delete([self.store_name(name)])
        else:
            self.local_path(name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """The names, without the folder's, of the files in one of this run's folders."""
        if self.shared:
            inside = self.store_name(folder)
            return [name.removeprefix(f"{inside}/") for name in self.store.list(inside)]
        found = (entry.name for entry in self.local_path(folder).glob("*"))
        return sorted(name for name in found if not name.startswith("."))

    @contextmanager
    def shard_tempfile(self, file: str) -> Iterator[Path]:
        """A path for a finished shard; what lies there at the end is in staging then.

        `stage_shard` must be called inside.
        """
        if isinstance(self.store, LocalStore):
            yield self.local_path(f"staging/{file}")
            return
        # A folder for each try: another one of the same shard may be at work.
        near = None if self.shared else self.local_path("staging")
        with TemporaryDirectory(prefix="shard-", dir=near) as folder:
            yield Path(folder, file)

    def stage_shard(self, path: Path, crc32c: int) -> None:
        """Puts a finished file from its spool into the store's staging folder."""
        if not isinstance(self.store, LocalStore):  # else it lies there already
            name = self.store_name(f"staging/{path.name}")
            self.store.put_file(path, name, crc32c=crc32c)

    def create(self, exchange: str) -> None:
        """Makes the folders, or takes up those of an earlier try.

        Errors of that try are forgotten; all of it, if it used another exchange: facts
        and rejects of the two do not add up.
        """
        before = self.get(_EXCHANGE_NOTE)
        if before is not None and before.decode() != exchange:
            self.remove()
        if self.shared:
            self.store.delete(self.store.list(self.store_name("errors")))
        shutil.rmtree(self.local_path("errors"), ignore_errors=True)
        folders = ("runs", "facts", "rejects", "staging", "errors")
        for folder in ("",) if self.shared else folders:
            self.local_path(folder).mkdir(parents=True, exist_ok=True)
        if before is None or before.decode() != exchange:
            self.put(_EXCHANGE_NOTE, exchange.encode())

    def remove(self) -> None:
        """Removes everything of this run, and the outer folder if nothing else is."""
        for root in {self.root, self.scratch_root}:
            shutil.rmtree(root, ignore_errors=True)
        if not isinstance(self.store, LocalStore):
            self.store.delete(self.store.list(f"{WORK_FOLDER}/{self.name}"))
        outer = Path(self.root).parent
        if outer.is_dir() and not any(outer.iterdir()):
            outer.rmdir()

    def remove_others(self, *, spare: str) -> None:
        """Removes what other runs left below the output; for its lease's holder.

        Args:
          spare: the folder inside the work folder that stays: the locks.
        """
        store = self.store
        kept = (f"{WORK_FOLDER}/{self.name}", spare)
        if isinstance(store, LocalStore):
            for entry in Path(store.root, WORK_FOLDER).glob("*"):
                if f"{WORK_FOLDER}/{entry.name}" not in kept:
                    if entry.is_dir():
                        shutil.rmtree(entry, ignore_errors=True)
                    else:
                        entry.unlink(missing_ok=True)
        else:
            own = tuple(f"{name}/" for name in kept)
            found = store.list(WORK_FOLDER)
            store.delete(name for name in found if not name.startswith(own))
        store.delete(store.unfinished())


def work_folder_of(uri: str) -> str:
    """The local folder for the runs of an output that is elsewhere."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = blake2b(uri.encode(), digest_size=8).hexdigest()
    return str(Path(cache, "recordmill", name))
