"""A store of made-up files, listed page by page, and the command with it.

    python tests/bench/made_files.py convert images made://1000000 OUT [--plan ...]

`made://N` has N files of one PNG, in a thousand folders of classes. It answers as an object
store does: a page of 1,000 names takes 20 ms, and so does any other request, or what
MADE_READ_SECONDS says. MADE_BYTES makes the files smaller. At the end, standard error has
the most memory that the process had: anonymous, and all of it with the pages of files.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator
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


def _watch(peaks: dict[str, int], done: threading.Event) -> None:
    """Keeps the most memory that the process had."""
    while not done.wait(0.05):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("RssAnon", "VmRSS"):
                peaks[name] = max(peaks.get(name, 0), int(value.split()[0]) << 10)


def main(argv: list[str]) -> int:
    """Runs the command with the store."""
    fsspec.register_implementation("made", MadeFiles)
    from recordmill.beam_jobs.cli.main import main as run

    peaks: dict[str, int] = {}
    done = threading.Event()
    threading.Thread(target=_watch, args=(peaks, done), daemon=True).start()
    began = time.monotonic(), time.process_time()
    try:
        return run(argv)
    finally:
        done.set()
        took = time.monotonic() - began[0], time.process_time() - began[1]
        names = ("seconds", "cpu_seconds", "anonymous_bytes", "resident_bytes")
        told = (*(round(each, 2) for each in took), peaks["RssAnon"], peaks["VmRSS"])
        print(json.dumps(dict(zip(names, told, strict=True))), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
