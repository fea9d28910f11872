"""Changes the text files of a dataset as an attacker would, and watches what commands do.

A change puts a path, an address, an escape or an impossible value into a field of one of the
files. The dataset is a folder amid sentinel files, a FIFO, and the address of a listener:
nothing but the dataset and the folder of an export may change, nothing may be connected to.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from job_tools import convert
from small_dataset import write_dataset
from store_servers import free_port

from recordmill.transforms.tfrecord import crc32c

ROWS = 'id,kind,text\n1,cat,a\n2,dog,"b\nc"\n3,cat\n4,dog,d\n5,cat,e,f\n6,dog,g\n'
ROOTS = ("secret", "pipes", "inputs")  # folders whose files no dataset may open
_DEEP, _HUGE = "@@deep@@", "@@huge@@"  # what JSON cannot be dumped of; see `_dumped`
_LEVELS = 100_000


# What commands write beside a dataset because they are asked to.
PRODUCTS = ("page.html", "metrics.prom")


@dataclass
class Watch:
    """A record of the files that this process opened, and of its connections."""

    roots: tuple[
        str, ...
    ] = ()  # folders whose files are recorded; none while it sleeps
    events: list[str] = field(default_factory=list)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Records an audit event of Python."""
        if not self.roots:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.normpath(os.fsdecode(arguments[0]))
            if path.startswith(self.roots):
                self.events.append(f"opened {path}")
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            self.events.append(f"connected to {arguments[1][0]}:{arguments[1][1]}")


# An audit hook cannot be removed, so there is one for the process.
WATCH = Watch()
sys.addaudithook(WATCH.hear)


@dataclass(frozen=True)
class World:
    """A folder with a dataset in it, and all that it might harm.

    Attributes:
      folder: holds sentinel files, the inputs, a FIFO, and `place`.
      url: of a server that nobody has a reason to connect to.
      callers: gets an entry for each request to it.
      hostile: texts and other values to put into fields.
    """

    folder: Path
    url: str
    callers: list[str]
    hostile: tuple[Any, ...]

    @property
    def dataset(self) -> Path:
        return self.folder / "place" / "a" / "ds"

    @property
    def export(self) -> Path:
        return self.folder / "place" / "a" / "export"

    def sentinels(self) -> dict[str, str]:
        """Returns a digest of each file that no command may touch, by its path."""
        digests = {}
        for parent, folders, files in os.walk(self.folder):
            if Path(parent) == self.dataset.parent:
                folders.clear()
                files = [name for name in files if name not in PRODUCTS]
            for name in [*folders, *files]:
                path = Path(parent, name)
                status = path.lstat()
                digest = str(status.st_mode)
                if path.is_file():
                    digest += f" {status.st_nlink} {status.st_mtime_ns} "
                    digest += sha256(path.read_bytes()).hexdigest()
                digests[str(path)] = digest
        return digests

    @contextmanager
    def watched(self, *, reads_inputs: bool) -> Iterator[list[str]]:
        """Yields the list of what was done outside; complete after the block."""
        roots = ROOTS[:-1] if reads_inputs else ROOTS
        before = self.sentinels()
        found = list[str]()
        WATCH.events = found
        WATCH.roots = tuple(str(self.folder / root) + "/" for root in roots)
        try:
            yield found
        finally:
            WATCH.roots = ()
        after = self.sentinels()
        for path in sorted({path for path, _ in before.items() ^ after.items()}):
            found.append(f"changed {path}")
        found += self.callers
        self.callers.clear()


@contextmanager
def hostile_world(folder: Path) -> Iterator[World]:
    """Makes the surroundings: sentinels, a FIFO with a writer, and a listener."""
    for name in ("place/a", "evil", "cwd", *ROOTS):
        (folder / name).mkdir(parents=True)
        (folder / name / "sentinel").write_text(name)
    (folder / "inputs" / "t.csv").write_text(ROWS)
    (folder / "secret" / "t.csv").write_text(ROWS)
    pipe = folder / "pipes" / "t.csv"
    os.mkfifo(pipe)
    # With a writer, whoever opens it is found out and does not wait for ever.
    writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    listener = socket.create_server(("127.0.0.1", free_port()))
    callers = list[str]()
    threading.Thread(target=_answer, args=(listener, callers), daemon=True).start()
    url = "http://{}:{}".format(*listener.getsockname())
    texts = (
        *("../../evil", f"{folder}/evil/x", "../evil", "..", ".", "", "a/b", "a\\b"),
        *(url, f"{url}/x", "s3://bucket/x", "/"),
        *(f"file://{folder}/secret", f"{folder}/secret", f"{folder}/pipes", str(pipe)),
        *("~/x", ".recordmill/x", "-rf", "\x1b]0;x\x07\x1b[31m", "a\nError: forged"),
        *(
            "\u202egnp.exe",
            "x" * 300,
            "\ud800",
            "\udcff",
            "a\0b",
            "9" * 5000,
            "ä" * 130,
        ),
    )
    values = (
        *(None, True, [], {}, -1, 0, 1 << 31, 1 << 63, 1 << 64, -(1 << 70), 10**400),
        *(0.5, 1e300, float("nan"), float("inf"), [[]], [None], {"a": None}, _HUGE),
        *(_DEEP, ["x"] * 3, "int64", "image", "label"),
    )
    try:
        yield World(folder, url, callers, (*texts, *values))
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        os.close(writer)


def _answer(listener: socket.socket, callers: list[str]) -> None:
    """Notes each request, and answers it without a Content-Length."""
    with suppress(OSError):  # it is closed
        while True:
            caller, _ = listener.accept()
            with caller, suppress(OSError):
                request = caller.recv(1 << 16).partition(b"\r\n")[0]
                callers.append(f"asked for {request.decode(errors='replace')}")
                answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + ROWS.encode()
                caller.sendall(answer)


@dataclass(frozen=True)
class Template:
    """A dataset to copy and to change.

    Attributes:
      folder: of the dataset.
      command: converts its inputs to a folder that is given last; None if it has none.
    """

    folder: Path
    command: tuple[str, ...] | None


def make_templates(world: World) -> dict[str, Template]:
    """Makes the datasets whose files are changed: of a table, of images, of a version."""
    root = world.folder.parent / f"{world.folder.name}-templates"
    job = (str(world.folder / "inputs" / "t.csv"),)
    options = (
        *("--max-rejects", "9", "--name", "table", "--label", "kind", "--index"),
        *("--split", "train=1/2", "--split", "test=1/2", "--license", "MIT"),
    )
    convert("csv", *job, root / "table", *options)
    write_dataset(root / "zoo")
    (root / "zoo" / "run.json").write_bytes((root / "table" / "run.json").read_bytes())
    convert("csv", *job, root / "versions", *options, "--dataset-version", "auto")
    command = ("csv", *job, *options)
    return {
        "table": Template(root / "table", command),
        "zoo": Template(root / "zoo", None),
        "versions": Template(root / "versions", (*command, "--dataset-version=auto")),
    }


def text_files(dataset: Path) -> list[str]:
    """Returns the names of the text files of a dataset, those in its folders too."""
    names = sorted(
        path.relative_to(dataset).as_posix()
        for path in dataset.rglob("*")
        if path.is_file()
    )
    return [name for name in names if ".tfrecord" not in name]


def change(dataset: Path, name: str, hostile: Sequence[Any], number: int) -> None:
    """Changes one file of a dataset; the manifest then has its size and checksum."""
    path = dataset / name
    changed = _changed(path.read_bytes(), name, hostile, Random(number))
    path.write_bytes(changed)
    manifest = path.parent / "manifest.json"
    if name.endswith("manifest.json") or not manifest.is_file():
        return
    stated = json.loads(manifest.read_bytes())
    if path.name in stated.get("files", {}):
        entry = {"bytes": len(changed), "crc32c": f"{crc32c(changed):08x}"}
        stated["files"][path.name] = entry
        manifest.write_text(json.dumps(stated))


def put(dataset: Path, name: str, field: Sequence[str | int], value: Any) -> None:
    """Puts a value into a field of a JSON file, or of the first line of JSON lines.

    Where the last step is a tuple of a key and a new key, the key is renamed.
    """
    path = dataset / name
    first, *others = path.read_bytes().splitlines() if name.endswith("l") else [b""]
    document = json.loads(first or path.read_bytes())
    holder = document
    for step in field[:-1]:
        holder = holder[step]
    if isinstance(holder, dict) and value == "rename":
        old, new = str(field[-1]).split("=>")
        holder[new] = holder.pop(old)
    else:
        holder[field[-1]] = value
    path.write_bytes(b"\n".join([_dumped(document), *others, b""]))


def _changed(data: bytes, name: str, hostile: Sequence[Any], random: Random) -> bytes:
    """Returns a file with one to three fields, keys or lines that are hostile."""
    if name.endswith(".jsonl.gz"):
        return gzip.compress(
            _changed(gzip.decompress(data), name[:-3], hostile, random), 0
        )
    if name.endswith(".jsonl"):
        lines = data.splitlines()
        number = random.randrange(len(lines))
        lines[number] = _changed(lines[number], "x.json", hostile, random)
        return b"".join(line + b"\n" for line in lines)
    if not name.endswith(".json"):
        return _changed_text(data, hostile, random)
    document = json.loads(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        document = _with_hostile(document, hostile, random)
    return _dumped(document)


def _with_hostile(document: Any, hostile: Sequence[Any], random: Random) -> Any:
    places = list(_places(document))
    value = deepcopy(random.choice(hostile))
    if not places or random.randrange(40) == 0:
        return value
    holder, key = random.choice(places)
    action = random.randrange(8)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict) and isinstance(value, str):
        holder[value] = holder.pop(key)
    elif key == "raw" and action < 6:
        holder[key] = base64.b64encode(str(value).encode(errors="replace")).decode()
    else:
        holder[key] = value
    return document


def _changed_text(data: bytes, hostile: Sequence[Any], random: Random) -> bytes:
    lines = data.splitlines()
    value = random.choice(hostile)
    if isinstance(value, str) and value not in (_DEEP, _HUGE):
        line = value.encode(
            errors="surrogateescape" if "\udcff" in value else "replace"
        )
    else:
        line = _dumped(value)
    line = random.choice((line, b'"' + line, json.dumps(str(value)).encode()))
    at = random.randrange(len(lines) + 1)
    lines[at : at + random.randrange(2)] = [line]
    return b"\n".join([*lines, b""])


def _dumped(document: Any) -> bytes:
    text = json.dumps(document)
    text = text.replace(f'"{_DEEP}"', "[" * _LEVELS + "]" * _LEVELS)
    return text.replace(f'"{_HUGE}"', "9" * 5000).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (holder, key) of every value in a JSON document, plain values twice."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for key, inner in pairs:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)
        else:
            yield value, key


def copy_of(template: Template, target: Path) -> None:
    """Puts a copy of a dataset in the place of an earlier one, and nothing beside it."""
    for name in ("ds", "export"):
        shutil.rmtree(target.parent / name, ignore_errors=True)
    for name in PRODUCTS:
        (target.parent / name).unlink(missing_ok=True)
    shutil.copytree(template.folder, target)
