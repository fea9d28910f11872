"""A store that speaks as much of S3 as reading takes, each answer late by some time.

    python tests/bench/slow_store.py FOLDER [--delay 0.05]

It serves the files below a folder, whose first level are the buckets, on a free port of
127.0.0.1, and prints its address. A line of standard input is answered by a line of JSON
with the requests since the last one; the end of standard input stops it.

Written for measurements: a request costs it some 0.2 ms of one core, where moto's server
takes ten times as much and would be what is measured. Every file is kept in memory, and none
can be written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_DATE = "2026-01-01T00:00:00.000Z"
_HTTP_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
_PAGE = 1000


@dataclass
class Store:
    """The files of a store, and what was asked of it."""

    delay: float
    files: dict[str, bytes]  # by "bucket/key", sorted
    tags: dict[str, str]
    asked: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    at_once: int = 0
    most_at_once: int = 0

    @classmethod
    def of_folder(cls, folder: Path, delay: float) -> Store:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in paths
        }
        files = dict(sorted(files.items()))
        tags = {name: md5(data).hexdigest() for name, data in files.items()}
        return cls(delay, files, tags)

    def report(self) -> dict[str, object]:
        """Returns what was asked since the last report."""
        found = {
            "requests": dict(sorted(self.asked.items())),
            "bytes": self.sent,
            "most_at_once": self.most_at_once,
        }
        self.asked.clear()
        self.sent = self.most_at_once = 0
        return found

    def answer(self, method: str, target: str, headers: dict[str, str]) -> bytes:
        parts = urlsplit(target)
        name, query = unquote(parts.path).strip("/"), parse_qs(parts.query)
        if "list-type" in query:
            self.asked["LIST"] += 1
            return _reply(200, self._listing(name, query), "application/xml")
        self.asked[method] += 1
        data = self.files.get(name)
        if data is None:
            return _reply(404, b"", "application/xml")
        tag = f'"{self.tags[name]}"'
        if headers.get("if-match", tag) != tag:
            return _reply(412, b"", "application/xml")
        facts = (
            f"ETag: {tag}\r\nLast-Modified: {_HTTP_DATE}\r\nAccept-Ranges: bytes\r\n"
        )
        if method == "HEAD":
            return _reply(200, b"", "application/octet-stream", facts, len(data))
        status = 200
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", "")):
            first, last = int(found[1]), int(found[2] or len(data) - 1)
            last = min(last, len(data) - 1)
            if first > last:
                return _reply(416, b"", "application/xml")
            facts += f"Content-Range: bytes {first}-{last}/{len(data)}\r\n"
            data, status = data[first : last + 1], 206
        self.sent += len(data)
        return _reply(status, data, "application/octet-stream", facts)

    def _listing(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        def asked(name: str, usual: str = "") -> str:
            return query.get(name, [usual])[0]

        prefix, delimiter = asked("prefix"), asked("delimiter")
        after, most = asked("continuation-token"), int(asked("max-keys", str(_PAGE)))
        entries: dict[str, str] = {}
        is_cut = False
        for name in self.files:
            key = name.removeprefix(f"{bucket}/")
            if key == name or not key.startswith(prefix):
                continue
            behind = key[len(prefix) :]
            folder = ""
            if delimiter and delimiter in behind:
                folder = prefix + behind.partition(delimiter)[0] + delimiter
            if (folder or key) <= after or folder in entries:
                continue
            if len(entries) == min(most, _PAGE):
                is_cut = True
                break
            entries[folder or key] = (
                f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                if folder
                else f"<Contents><Key>{escape(key)}</Key><LastModified>{_DATE}"
                f"</LastModified><ETag>&quot;{self.tags[name]}&quot;</ETag>"
                f"<Size>{len(self.files[name])}</Size></Contents>"
            )
        token = f"<NextContinuationToken>{escape(list(entries)[-1])}" if is_cut else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(entries)}</KeyCount><MaxKeys>{most}</MaxKeys>"
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>"
            f"{token}{'</NextContinuationToken>' if token else ''}"
            f"{''.join(entries.values())}</ListBucketResult>"
        ).encode()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answers the requests of one connection, one after the other."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").split("\r\n")[:-2]
                pairs = (line.partition(":") for line in lines)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = first.split(" ")
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await asyncio.sleep(self.delay)
                    writer.write(self.answer(method, target, headers))
                    await writer.drain()
                finally:
                    self.at_once -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()


def _reply(
    status: int, data: bytes, kind: str, facts: str = "", size: int | None = None
) -> bytes:
    length = len(data) if size is None else size
    head = (
        f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
    )
    return f"{head}{facts}\r\n".encode() + data


async def run(folder: Path, delay: float) -> None:
    """Serves until standard input ends."""
    store = Store.of_folder(folder, delay)
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0, backlog=512)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(store.report()), flush=True)
    os._exit(0)  # as connections are open still


class SlowStore:
    """A server in a process of its own.

    Attributes:
      address: where it listens.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def report(self) -> dict[str, object]:
        """Returns what was asked since the last report."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, object] = json.loads(self._line())
        return found

    @property
    def environment(self) -> dict[str, str]:
        """Returns the variables that a client needs; any credentials will do."""
        return {
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }


@contextmanager
def serving(folder: Path, delay: float) -> Iterator[SlowStore]:
    """A server of the files below a folder, as long as the block lasts."""
    command = [sys.executable, __file__, str(folder), "--delay", str(delay)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield SlowStore(process)
        assert process.stdin
        process.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.05)
    given = parser.parse_args()
    asyncio.run(run(given.folder, given.delay))


if __name__ == "__main__":
    main()
