"""Where a run keeps what is not published yet, and the facts it can resume from.

    OUTPUT/.recordmill/FINGERPRINT/   (or SCRATCH/FINGERPRINT/ for runs and facts)
        runs/       sorted runs
        facts/      one JSON file per finished range or shard
        rejects/    *.jsonl, one file per range or shard that rejected rows
        staging/    finished shards and metadata, under their final names
        errors/     what went wrong, one file per error
        run.log

Where OUTPUT is no local folder, only staging/ lies there: a shard is made in a local
folder and put into the store when it is whole. A fact is written after what it tells of
and renamed into place, so a fact that exists is true; a killed run is taken up from its
facts.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import traceback
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from schemas.errors import RecordmillError
from schemas.ranges import Reject
from transforms.stores import LocalStore, Store
from transforms.stores.base import WORK_FOLDER
from transforms.write import write_whole

_Fact = TypeVar("_Fact")


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folders of one run; small and free of connections, for any worker.

    Attributes:
      store: of the output.
      name: of the run, the beginning of its fingerprint.
      work_root: local folder of rejects, errors, log, and of staging if it is local.
      scratch_root: local folder of sorted runs and facts.
    """

    store: Store
    name: str
    work_root: str
    scratch_root: str

    @classmethod
    def of(cls, store: Store, fingerprint: str, scratch: str = "") -> Scratch:
        """The folders of the run with that fingerprint; makes none of them."""
        name = fingerprint[:16]
        if isinstance(store, LocalStore):
            work_root = Path(store.root, WORK_FOLDER, name)
        else:
            work_root = Path(scratch or work_folder_of(store.uri)) / name
        scratch_root = Path(scratch) / name if scratch else work_root
        return cls(store, name, str(work_root), str(scratch_root))

    @property
    def runs(self) -> Path:
        return Path(self.scratch_root, "runs")

    @property
    def facts(self) -> Path:
        return Path(self.scratch_root, "facts")

    @property
    def rejects(self) -> Path:
        return Path(self.work_root, "rejects")

    @property
    def staging(self) -> Path:
        return Path(self.work_root, "staging")

    @property
    def errors(self) -> Path:
        return Path(self.work_root, "errors")

    @property
    def log(self) -> Path:
        return Path(self.work_root, "run.log")

    def in_store(self, name: str) -> str:
        """The name in the store of one of this run's files, like staging/x."""
        return f"{WORK_FOLDER}/{self.name}/{name}"

    def deliver(self, file: str, crc32c: int) -> None:
        """Puts a finished file of the local staging folder into the store."""
        if not isinstance(self.store, LocalStore):  # else it lies there already
            path = self.staging / file
            self.store.put_file(path, self.in_store(f"staging/{file}"), crc32c=crc32c)
            path.unlink()

    def create(self, exchange: str) -> None:
        """Makes the folders, or takes up those of an earlier try.

        Errors of that try are forgotten; all of it, if it used another exchange: facts
        and rejects of the two do not add up.
        """
        note = Path(self.scratch_root, "exchange")
        if note.is_file() and note.read_text() != exchange:
            self.remove()
        shutil.rmtree(self.errors, ignore_errors=True)
        for folder in (
            self.runs,
            self.facts,
            self.rejects,
            self.staging,
            self.errors,
        ):
            folder.mkdir(parents=True, exist_ok=True)
        write_whole(note, exchange.encode())

    def remove(self) -> None:
        """Removes everything of this run, and the outer folder if nothing else is."""
        for root in {self.work_root, self.scratch_root}:
            shutil.rmtree(root, ignore_errors=True)
        if not isinstance(self.store, LocalStore):
            self.store.delete(self.store.list(f"{WORK_FOLDER}/{self.name}"))
        outer = Path(self.work_root).parent
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


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)  # takes milliseconds to build
    return _ADAPTERS[kind]


def save_fact(scratch: Scratch, name: str, fact: object) -> None:
    """Writes the fact of a finished task."""
    data = _adapter(type(fact)).dump_json(fact)
    write_whole(scratch.facts / f"{name}.json", data)


def load_fact(scratch: Scratch, name: str, kind: type[_Fact]) -> _Fact | None:
    """The fact of a task finished by an earlier try, or None."""
    try:
        data = (scratch.facts / f"{name}.json").read_bytes()
        fact: _Fact = _adapter(kind).validate_json(data)
        return fact
    except (OSError, ValidationError):
        return None


def forget_fact(scratch: Scratch, name: str) -> None:
    """Makes a task be done again, because what its fact tells of is damaged."""
    (scratch.facts / f"{name}.json").unlink(missing_ok=True)


def save_rejects(scratch: Scratch, name: str, rejects: Iterable[Reject]) -> int:
    """Writes the rejects of one task as JSON lines; returns how many there are."""
    lines = [
        json.dumps(
            {
                "uri": reject.path,
                "position": reject.position,
                "reason": reject.reason,
                "raw": base64.b64encode(reject.raw).decode(),
            },
            ensure_ascii=False,
        )
        for reject in rejects
    ]
    path = scratch.rejects / f"{name}.jsonl"
    if lines:
        write_whole(path, "".join(f"{line}\n" for line in lines).encode())
    else:
        path.unlink(missing_ok=True)
    return len(lines)


@contextmanager
def noting_errors(scratch: Scratch) -> Iterator[None]:
    """Keeps an error's message where the launcher finds it, whatever the runner."""
    try:
        yield
    except BaseException as error:
        note = {
            "expected": isinstance(error, RecordmillError | OSError | MemoryError),
            "kind": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }
        Path(scratch.errors).mkdir(parents=True, exist_ok=True)
        write_whole(
            scratch.errors / f"{uuid.uuid4().hex}.json", json.dumps(note).encode()
        )
        if isinstance(error, Exception):
            raise
        # A SystemExit would end a worker's thread in silence and hang the runner.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def read_errors(scratch: Scratch) -> list[dict[str, str | bool]]:
    """The errors noted during the run, oldest first."""
    files = [f for f in scratch.errors.glob("*.json") if not f.name.startswith(".")]
    files.sort(key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(file.read_bytes()) for file in files]
