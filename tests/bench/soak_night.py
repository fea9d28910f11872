"""One night of tests/bench/soak.py: a run, what disturbs it, and what must stand then."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from job_tools import recordmill
from same_dataset import assert_readable, dataset_of

from recordmill.schemas.errors import BUSY, DATA, EXIT_STATUS, NO_ROOM, RecordmillError
from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.dataset.verify import verify_store
from recordmill.transforms.storage import LocalStore, Store, open_store
from recordmill.transforms.storage.store import WORK_FOLDER

Dataset = dict[str, Any] | None


class WrongError(Exception):
    """What must not be."""


@dataclass
class Site:
    """A place for a dataset, and the tables that it is made from.

    Attributes:
      name: for the table.
      folder: for the tables and copies.
      root: of the dataset.
      disk: a small disk, or None.
      direct: options that reach the store itself.
      options: options that reach it as the runs do.
      seconds: what an undisturbed run takes, about.
      run_options: what fixes the dataset's bytes; an append repeats it.
    """

    name: str
    folder: Path
    root: str
    disk: Path | None = None
    direct: StorageOptions = NO_OPTIONS
    options: StorageOptions = NO_OPTIONS
    seconds: float = 3.0
    run_options: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "tables").mkdir(parents=True)

    @property
    def store(self) -> Store:
        return open_store(self.root, self.direct)

    @property
    def tables(self) -> list[Path]:
        return sorted((self.folder / "tables").iterdir())

    def start_anew(self) -> None:
        """Removes the dataset, so that one mistake is counted once."""
        store = self.store
        store.delete([*store.list(), *store.list_temp_files()])
        for table in self.tables:
            table.unlink()

    def copy(self, name: str) -> Path:
        """Copies the dataset, with all that lies beside it, to a folder of this name."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        store = self.store
        for file in store.list():
            if not file.startswith(f"{WORK_FOLDER}/lock/"):
                path = folder / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(store.read(file))
        return folder


def dataset_in(folder: Path) -> Dataset:
    """What a folder holds, after a look at every byte of it.

    Raises:
      WrongError: it is not whole.
    """
    if not (folder / MANIFEST_NAME).exists():
        return None
    try:
        store = LocalStore(str(folder))
        manifest = read_manifest(store)
        problems = verify_store(store, manifest, full=True).problems
        shards = [each for each in problems if each.file in manifest.shard_files]
        if shards:
            raise WrongError(f"{shards[0].file}: {shards[0].message}")
        assert_readable(folder)
        return {"manifest": dataset_of(folder)["manifest"]}
    except (AssertionError, RecordmillError, OSError) as error:
        raise WrongError(f"not whole: {error}") from error


def missing_shard(root: Path) -> str | None:
    store = LocalStore(str(root))
    manifest = find_manifest(store)
    if manifest is None:
        return None
    missing = [file for file in manifest.shard_files if store.size(file) is None]
    now = find_manifest(store)
    if not missing or now is None or now.generation > manifest.generation + 1:
        return None  # the grace of a dataset ends with the next run but one
    return missing[0]


COMMAND = Path(sys.executable).with_name("recordmill")
LIMIT_SECONDS = 300
ROWS = 8_000  # of a table
MAX_TABLES = 5
# What may go wrong, and how the command may end then.
DISTURBANCES: dict[str, set[int]] = {
    "nothing": {0},
    "kill": {0, -signal.SIGKILL},
    "end": {0, -signal.SIGTERM, 128 + signal.SIGTERM},
    "pause": {0, EXIT_STATUS[BUSY]},
    "second run": {0, EXIT_STATUS[BUSY]},
    "clean": {0, EXIT_STATUS[BUSY]},
    "new input": {0, EXIT_STATUS[BUSY], EXIT_STATUS[DATA]},
    "full disk": {0, EXIT_STATUS[NO_ROOM]},
}


class Night:
    """One run that is disturbed, and the one in the morning.

    Attributes:
      disturbance: one of DISTURBANCES.
      reads: how often a reader looked while runs were at work.
      failed: whether the disturbed command failed.
    """

    def __init__(self, site: Site, draw: random.Random, number: int) -> None:
        self.site = site
        self.number = number
        self.reads = 0
        self.failed = False
        self._draw = draw
        possible = [*DISTURBANCES, "kill", "pause", "new input"]
        if site.disk is None:
            possible.remove("full disk")
        else:
            possible += ["full disk"] * 5
        self.disturbance = draw.choice(possible)
        tables = site.tables
        self.append = 0 < len(tables) < MAX_TABLES and draw.random() < 0.5
        self._torn = ""
        self._former: bytes | None = None  # of the table that was replaced

    def __str__(self) -> str:
        return f"{'append' if self.append else 'overwrite'}, {self.disturbance}"

    def run(self) -> str:
        """Runs and checks all; returns which dataset the disturbed run left."""
        old = self._there("old")
        self._renew_tables()
        allowed = [old, self._undisturbed()]
        with self._reader():
            self._disturbed()
            if self.disturbance == "new input":
                allowed.append(self._undisturbed())
            found = self._there("found")
            if found not in allowed:
                raise WrongError(
                    f"neither the old dataset nor the new one: {_name(found)}"
                )
            if found == allowed[1] != old and self._former is not None:
                # Published before it was replaced: an append wants its inputs as they were.
                self.site.tables[-1].write_bytes(self._former)
                allowed.append(found)
            begin = time.monotonic()
            output, status = self._end(self._start())
            if status:
                raise WrongError(f"in the morning: exit status {status}: {output}")
            self.site.seconds += 0.2 * (time.monotonic() - begin - self.site.seconds)
        if self._torn:
            raise WrongError(self._torn)
        morning = self._there("found")
        if morning != allowed[-1]:
            raise WrongError(f"in the morning: another dataset: {_name(morning)}")
        verified = recordmill("verify", self.site.folder / "found")
        if verified.status:
            raise WrongError(f"in the morning: {verified.out}{verified.err}")
        return "old" if found == old else "new"

    # --- what the dataset is ---

    def _there(self, name: str) -> Dataset:
        """What is published now; a copy of it has this name."""
        return dataset_in(self.site.copy(name))

    def _undisturbed(self) -> Dataset:
        """What the command makes of the old dataset and the tables as they are now."""
        folder = self.site.folder / "undisturbed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.site.folder / "old", folder)
        ran = recordmill(*self._command(str(folder)))
        if ran.status:
            raise WrongError(f"undisturbed, exit status {ran.status}: {ran.err}")
        return {"manifest": dataset_of(folder)["manifest"]}

    def _renew_tables(self) -> None:
        site = self.site
        if self.append:
            self._write_table(site.folder / "tables" / f"{len(site.tables)}.csv")
            return
        for table in site.tables:
            table.unlink()
        for number in range(2):
            self._write_table(site.folder / "tables" / f"{number}.csv")
        site.run_options = [
            "--shards",
            f"{self._draw.randint(2, 6)}",
            "--seed",
            f"{self.number}",
        ]

    def _write_table(self, path: Path) -> None:
        draw = random.Random(f"{self.number} {path.name} {self._draw.random()}")
        rows = (
            f"{n},{draw.getrandbits(60):x},{draw.random():.9f}\n" for n in range(ROWS)
        )
        path.write_text("id,name,x\n" + "".join(rows))

    # --- runs ---

    def _command(self, root: str) -> list[str]:
        how = "--append" if self.append else "--overwrite"
        tables = map(str, self.site.tables)
        return [
            "convert",
            "csv",
            *tables,
            root,
            *self.site.run_options,
            how,
            "--name",
            "rows",
        ]

    def _start(self, *command: str) -> subprocess.Popen[str]:
        """Starts this night's command, or another one on the same dataset."""
        reach = [
            part
            for name, value in self.site.options.to_dict().items()
            for part in ("--storage-option", f"output:{name}={value}")
        ]
        return subprocess.Popen(
            [COMMAND, *(command or self._command(self.site.root)), *reach],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(self.site.folder / "cache")},
            start_new_session=True,
        )

    def _end(self, process: subprocess.Popen[str]) -> tuple[str, int]:
        try:
            _, output = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired as error:
            _signal(process, signal.SIGKILL)
            process.communicate()
            raise WrongError(f"no end in {LIMIT_SECONDS} s") from error
        return output[-600:], process.returncode

    def _disturbed(self) -> None:
        with contextlib.ExitStack() as stack:
            if self.disturbance == "full disk":
                stack.enter_context(self._little_room())
            process = self._start()
            time.sleep(self._draw.random() * 1.1 * self.site.seconds)
            others = []
            if self.disturbance == "kill":
                _signal(process, signal.SIGKILL)
            elif self.disturbance == "end":
                _signal(process, signal.SIGTERM)
            elif self.disturbance == "pause":
                _signal(process, signal.SIGSTOP)
                if self._draw.random() < 0.5:
                    others.append(self._start())
                time.sleep(self._draw.random() * 2 * self.site.seconds)
                _signal(process, signal.SIGCONT)
            elif self.disturbance == "second run":
                others.append(self._start())
            elif self.disturbance == "clean":
                others.append(self._start("clean", self.site.root))
            elif self.disturbance == "new input":
                self._replace_table()
            ends = [self._end(each) for each in (process, *others)]
        self.failed = ends[0][1] != 0
        for output, status in ends:
            if status not in DISTURBANCES[self.disturbance]:
                raise WrongError(f"exit status {status}: {output}")

    def _replace_table(self) -> None:
        """Writes the newest table anew, in place or by a rename."""
        table = self.site.tables[-1]
        self._former = table.read_bytes()
        if self._draw.random() < 0.5:
            self._write_table(table)
            return
        new = self.site.folder / "new.csv"
        self._write_table(new)
        new.replace(table)

    @contextlib.contextmanager
    def _little_room(self) -> Iterator[None]:
        """Leaves some bytes of the small disk."""
        disk = self.site.disk
        assert disk is not None
        filler = disk / "filler"
        left = int(self._draw.random() * 3_000_000)
        filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - left)))
        try:
            yield
        finally:
            filler.unlink()

    @contextlib.contextmanager
    def _reader(self) -> Iterator[None]:
        """Looks all the time whether the shards of the manifest are there."""
        stop = threading.Event()

        def look() -> None:
            while not stop.wait(0.05):
                self.reads += 1
                if (missing := missing_shard(Path(self.site.root))) is not None:
                    self._torn = f"a reader found no {missing}"

        thread = threading.Thread(target=look)
        if "://" not in self.site.root:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if thread.is_alive():
                thread.join()


def _name(dataset: Dataset) -> str:
    return "none" if dataset is None else str(dataset["manifest"])[:300]


def _signal(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it had ended
        os.killpg(process.pid, number)
