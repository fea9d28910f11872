"""A store of made-up files, listed page by page, and the command with it.

    python tests/bench/made_files.py convert images made://1000000 OUT [--plan ...]
    python tests/bench/made_files.py list made://1000000
    python tests/bench/made_files.py prepare made://1000000 FOLDER
    python tests/bench/made_files.py publish made://1000000 FOLDER

`prepare` leaves in a folder what the tasks of a run leave: the checksums of all files, those
of 1,700 files in random order in a file of each shard. `publish` does with it what the last
step of a run does with its inputs: it finds the content of each file, writes the lists of
inputs, and lists the store again to compare.

`made://N` has N files of one PNG, in a thousand folders of classes, or more: at most 10,000
files in each, as fsspec's `find` gives a folder at once. It answers as an object
store does: a page of 1,000 names takes 20 ms, and so does any other request, or what
MADE_READ_SECONDS says. MADE_BYTES makes the files smaller. At the end, standard error has
the most memory that the process had: anonymous, and all of it with the pages of files.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

PAGE_NAMES = 1000
PAGE_SECONDS = 0.02
FOLDERS, FOLDER_FILES = 1000, 10_000  # so many folders, or more if these had more files
READ_SECONDS = float(os.environ.get("MADE_READ_SECONDS", PAGE_SECONDS))
MORE_BYTES = int(
    os.environ.get("MADE_BYTES", "100000")
)  # in each file, beside its pixel


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


PNG = b"".join(
    (
        b"\x89PNG\r\n\x1a\n",
        _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(b"\0\0\0\0")),
        *([_chunk(b"prVt", bytes(MORE_BYTES))] if MORE_BYTES else []),
        _chunk(b"IEND", b""),
    )
)


def _folders(number: int) -> int:
    return max(FOLDERS, -(-number // FOLDER_FILES))


class MadeFiles(AbstractFileSystem):
    """Files `N/class-000000/0000000.png` of N in all."""

    protocol = "made"
    cachable = True

    def _names(self, path: str) -> Iterator[tuple[str, bool]]:
        """Yields what lies in a folder, and whether it is a file."""
        number, *inside = path.strip("/").split("/")
        if not inside:
            folders = range(_folders(int(number)))
            yield from ((f"{number}/class-{at:06d}", False) for at in folders)
        elif len(inside) == 1:
            own = int(number) // _folders(int(number))
            yield from (
                (f"{number}/{inside[0]}/{at:07d}.png", True) for at in range(own)
            )
        else:
            raise FileNotFoundError(path)

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        for at, (name, is_file) in enumerate(self._names(path)):
            if at % PAGE_NAMES == 0:
                time.sleep(PAGE_SECONDS)
            kind = "file" if is_file else "directory"
            yield {"name": name, "type": kind, "size": len(PNG), "ETag": '"1"'}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = list(self._pages(self._strip_protocol(path)))
        return found if detail else [each["name"] for each in found]

    def find(self, path: str, detail: bool = False, **_: Any) -> Any:
        path = self._strip_protocol(path)
        folders = [path] if "/" in path else [each["name"] for each in self.ls(path)]
        files = {each["name"]: each for top in folders for each in self._pages(top)}
        return files if detail else [*files]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        time.sleep(READ_SECONDS)
        path = self._strip_protocol(path)
        kind = "file" if path.endswith(".png") else "directory"
        return {"name": path, "type": kind, "size": len(PNG), "ETag": '"1"'}

    def cat_file(
        self, path: str, start: Any = None, end: Any = None, **_: Any
    ) -> bytes:
        time.sleep(READ_SECONDS)
        return PNG[start:end]


PREPARED = "prepared.json"
SHARD_FILES = 1700


def _context(url: str, folder: str) -> Any:
    """As much of a run as lists of inputs need."""
    from recordmill.schemas.job import JobSpec
    from recordmill.transforms.storage import LocalStore
    from recordmill.transforms.tasks.workspace import Workspace

    return SimpleNamespace(
        job=JobSpec(source="images", name="made"),
        workspace=Workspace.for_run(LocalStore(folder), "0" * 32),
        source=SimpleNamespace(input=SimpleNamespace(tells_checksums=True)),
        publishing=SimpleNamespace(base="", reading="", input_root=url),
        run_key="1" * 32,
    )


def prepare(url: str, folder: str) -> str:
    """Leaves what the tasks of a run leave."""
    import numpy as np

    from recordmill.schemas.input_files import FileChecksum
    from recordmill.transforms.commit.staging import keep_inventory
    from recordmill.transforms.inventory import NO_FILES
    from recordmill.transforms.sources.listing import list_inputs
    from recordmill.transforms.tasks.workspace import save_checksums

    context, files = _context(url, folder), list_inputs([url])[1]
    context.workspace.create("reference")
    keep_inventory(context, files, NO_FILES, 0.0)
    many, rng = len(files), np.random.default_rng(1)
    order = np.array_split(rng.permutation(many), many // SHARD_FILES + 1)
    own = many // _folders(many)
    for number, part in enumerate(order):
        crcs = rng.integers(0, 1 << 32, len(part)).tolist()
        read = [
            FileChecksum(f"class-{at // own:06d}/{at % own:07d}.png", 0, len(PNG), crc)
            for at, crc in zip(part.tolist(), crcs, strict=True)
        ]
        save_checksums(context.workspace, f"shard-{number:06d}", read)
    Path(folder, PREPARED).write_text(json.dumps(list(map(len, order))))
    return f"{many:,} files in {len(order):,} shards"


def publish(url: str, folder: str) -> str:
    """Does with it what the last step of a run does with its inputs."""
    from recordmill.schemas.input_files import TaskChecksums
    from recordmill.schemas.storage_options import NO_OPTIONS
    from recordmill.transforms.commit import staging
    from recordmill.transforms.temporary import TEMPORARY

    TEMPORARY.choose_folder(folder)
    shards: Any = [
        SimpleNamespace(checksums=TaskChecksums(num_in_file=number))
        for number in json.loads(Path(folder, PREPARED).read_text())
    ]
    began = time.process_time()
    listed = staging._list_converted(_context(url, folder), (), shards)
    halfway = time.process_time()
    staging.require_same_inputs(listed[3], url, [url], NO_OPTIONS)
    each = 1e6 / len(listed[3])
    return (
        f"{len(listed[3]):,} files: {(halfway - began) * each:.2f} us of processor for each "
        f"to list, {(time.process_time() - halfway) * each:.2f} to compare; {listed[0]}, "
        f"{len(listed[1]):,} bytes"
    )


def watched(command: Sequence[str]) -> dict[str, float]:
    """Runs a program; returns its exit status, its times and the most memory it had."""
    began = time.monotonic()
    program = subprocess.Popen(command)
    peaks = {"RssAnon": 0, "VmRSS": 0}
    while not (ended := os.wait4(program.pid, os.WNOHANG))[0]:
        time.sleep(0.05)
        with suppress(OSError):  # it has ended
            for line in Path(f"/proc/{program.pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], int(value.split()[0]) << 10)
    return {
        "status": os.waitstatus_to_exitcode(ended[1]),
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(ended[2].ru_utime + ended[2].ru_stime, 2),
        "anonymous_bytes": peaks["RssAnon"],
        "resident_bytes": peaks["VmRSS"],
    }


def main(argv: list[str]) -> int:
    """Runs the command with the store, or lists it."""
    if argv[:1] == ["--watched"]:
        fsspec.register_implementation("made", MadeFiles)
        if argv[1] == "list":
            from recordmill.transforms.sources.listing import list_inputs

            print(f"{len(list_inputs(argv[2:])[1]):,} files")
            return 0
        if argv[1] in ("prepare", "publish"):
            print((prepare if argv[1] == "prepare" else publish)(*argv[2:]))
            return 0
        from recordmill.beam_jobs.cli.main import main as run

        return run(argv[1:])
    told = watched([sys.executable, __file__, "--watched", *argv])
    print(json.dumps(told), file=sys.stderr)
    return int(told["status"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
