"""A store of made-up files, listed page by page, and the command with it.

    python tests/bench/made_files.py convert images made://1000000 OUT [--plan ...]
    python tests/bench/made_files.py list made://1000000

`made://N` has N files of one PNG, in a thousand folders of classes. It answers as an object
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
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

PAGE_NAMES = 1000
PAGE_SECONDS = 0.02
FOLDERS = 1000
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


class MadeFiles(AbstractFileSystem):
    """Files `N/class-0000/0000000.png` of N in all."""

    protocol = "made"
    cachable = True

    def _names(self, path: str) -> Iterator[tuple[str, bool]]:
        """Yields what lies in a folder, and whether it is a file."""
        number, *inside = path.strip("/").split("/")
        if not inside:
            yield from ((f"{number}/class-{at:04d}", False) for at in range(FOLDERS))
        elif len(inside) == 1:
            own = int(number) // FOLDERS
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
        from recordmill.beam_jobs.cli.main import main as run

        return run(argv[1:])
    told = watched([sys.executable, __file__, "--watched", *argv])
    print(json.dumps(told), file=sys.stderr)
    return int(told["status"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
