"""Serve a folder as S3 does, and wait before each answer: `python slow_store.py FOLDER 0.05`.

Prints the port. Buckets are its folders. It answers what readers and runs ask: objects by
parts, by versions and on conditions, listings, uploads in parts, copies and removals. With
a third argument it writes a line for each request to that file: when it came and when it
was answered (seconds), its kind, bytes in either direction, and the key.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TextIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_TIME = "2026-01-01T00:00:00.000Z"
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
_PAGE = 1000

Answer = tuple[int, dict[str, str], bytes]


class SlowStore:
    """The objects below a folder. Each is tagged with its inode and time."""

    def __init__(self, folder: Path, seconds: float, log: TextIO) -> None:
        self.folder, self.seconds, self.log = folder, seconds, log
        self.parts: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.uploads, self.putting = count(1), Lock()
        self.listed: dict[tuple[str, str, bool], list[str]] = {}  # for further pages

    async def serve(self) -> None:
        server = await asyncio.start_server(
            self.answer, "127.0.0.1", 0, limit=64 << 20, backlog=1024
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                came = time.monotonic()
                first, *lines = head.split("\r\n")
                method, target, _ = first.split(" ")
                pairs = (line.split(": ", 1) for line in lines if ": " in line)
                asked = {name.lower(): value for name, value in pairs}
                if "expect" in asked:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(int(asked.get("content-length", 0)))
                await asyncio.sleep(self.seconds)
                url = urlsplit(target)
                query = {k: v[0] for k, v in parse_qs(url.query, True).items()}
                path = unquote(url.path).strip("/")
                # In a thread: others are answered while a large file is written.
                kind, (status, headers, data) = await asyncio.to_thread(
                    self.act, method, path, query, asked, body
                )
                headers = {"Content-Length": str(len(data)), **headers}
                told = "".join(
                    f"{name}: {value}\r\n" for name, value in headers.items()
                )
                writer.write(f"HTTP/1.1 {status} -\r\n{told}\r\n".encode())
                if method != "HEAD":
                    writer.write(data)
                await writer.drain()
                size = len(body) or len(data)
                row = f"{came:.4f} {time.monotonic():.4f} {kind} {status} {size} {path}"
                print(row, file=self.log, flush=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def act(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        asked: dict[str, str],
        body: bytes,
    ) -> tuple[str, Answer]:
        """Returns the kind of a request, and its answer."""
        file = self.folder / path
        match method:
            case "HEAD":
                return "HEAD", self.read(file, asked, empty=True)
            case "GET" if "list-type" in query:
                return "LIST", self.list(path, query)
            case "GET":
                kind = "GET-RANGE" if "range" in asked else "GET"
                return kind, self.read(file, asked)
            case "PUT" if "partNumber" in query:
                self.parts[query["uploadId"]][int(query["partNumber"])] = body
                return "PUT-PART", (200, {"ETag": f'"{len(body)}"'}, b"")
            case "PUT" if "x-amz-copy-source" in asked:
                source = self.folder / unquote(asked["x-amz-copy-source"]).strip("/")
                if not source.is_file():
                    return "COPY", _missing()
                file.parent.mkdir(parents=True, exist_ok=True)
                file.unlink(missing_ok=True)
                os.link(source, file)  # as quick as it is within a store
                return "COPY", _xml(
                    f"<CopyObjectResult><ETag>{_tag(file)}</ETag>"
                    f"<LastModified>{_TIME}</LastModified></CopyObjectResult>"
                )
            case "PUT":
                return "PUT", self.put(file, asked, body)
            case "POST" if "uploads" in query:
                return "START-UPLOAD", _xml(
                    f"<InitiateMultipartUploadResult><UploadId>{next(self.uploads)}"
                    "</UploadId></InitiateMultipartUploadResult>"
                )
            case "POST" if "uploadId" in query:
                parts = self.parts.pop(query["uploadId"])
                whole = (parts[number] for number in sorted(parts))
                _, headers, _ = self.put(file, asked, *whole)
                return "END-UPLOAD", _xml(
                    f"<CompleteMultipartUploadResult><ETag>{headers['ETag']}</ETag>"
                    "</CompleteMultipartUploadResult>"
                )
            case "POST" if "delete" in query:
                for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                    (file / unescape(key)).unlink(missing_ok=True)
                return "DELETE-MANY", _xml("<DeleteResult></DeleteResult>")
            case "DELETE":
                if asked.get("if-match", _tag(file)) != _tag(file):
                    return "DELETE", _unmet()
                file.unlink(missing_ok=True)
                return "DELETE", (204, {}, b"")
        return method, (400, {}, b"")

    def put(self, file: Path, asked: dict[str, str], *body: bytes) -> Answer:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = self.folder / f".put-{next(self.uploads)}"  # in no bucket
        with new.open("wb", buffering=0) as opened:
            opened.writelines(body)
        with self.putting:
            tag = _tag(file)
            if tag and asked.get("if-none-match") == "*":
                new.unlink()
                return _unmet()
            if "if-match" in asked and asked["if-match"] != tag:
                new.unlink()
                return _unmet() if tag else _missing()
            new.replace(file)
            return 200, {"ETag": _tag(file)}, b""

    def read(self, file: Path, asked: dict[str, str], *, empty: bool = False) -> Answer:
        if not (tag := _tag(file)):
            return _missing()
        if "if-match" in asked and asked["if-match"] != tag:
            return _unmet()
        size, status = file.stat().st_size, 200
        headers = {"ETag": tag, "Last-Modified": _DATE}
        start, stop = 0, size
        if found := _RANGE.search(asked.get("range", "")):
            start, stop = int(found[1]), min(size, int(found[2]) + 1)
            if start >= size:
                return 416, {}, b"<Error><Code>InvalidRange</Code></Error>"
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        if empty:
            return 200, {**headers, "Content-Length": str(size)}, b""
        with file.open("rb") as opened:
            opened.seek(start)
            return status, headers, opened.read(stop - start)

    def list(self, bucket: str, query: dict[str, str]) -> Answer:
        root = self.folder / bucket
        if not root.is_dir():
            return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"
        prefix, begin = query.get("prefix", ""), query.get("continuation-token", "")
        deep, most = not query.get("delimiter"), int(query.get("max-keys", _PAGE))
        key = bucket, prefix, deep
        if not begin or key not in self.listed:
            self.listed[key] = sorted(_keys(root, prefix, deep))
        found = self.listed[key][bisect_right(self.listed[key], begin) :]
        page = "".join(_entry(root, key) for key in found[:most])
        if len(found) > most:
            token = f"<NextContinuationToken>{escape(found[most - 1])}"
            page += f"<IsTruncated>true</IsTruncated>{token}</NextContinuationToken>"
        return _xml(f"<ListBucketResult>{page}</ListBucketResult>")


def _keys(root: Path, prefix: str, deep: bool) -> Iterator[str]:
    """Yields the keys with a prefix; of folders below it, if not deep, their own."""
    for each in (root / prefix.rpartition("/")[0]).glob("*"):
        key = each.relative_to(root).as_posix()
        if not key.startswith(prefix):
            continue
        if each.is_file():
            yield key
        elif inside := list(_keys(root, f"{key}/", True)):
            yield from inside if deep else [f"{key}/"]


def _entry(root: Path, key: str) -> str:
    if key.endswith("/"):
        return f"<CommonPrefixes><Prefix>{escape(key)}</Prefix></CommonPrefixes>"
    file = root / key
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{_TIME}</LastModified>"
        f"<ETag>{_tag(file)}</ETag><Size>{file.stat().st_size}</Size></Contents>"
    )


def _tag(file: Path) -> str:
    if not file.is_file():
        return ""
    stat = file.stat()
    return f'"{stat.st_ino:x}{stat.st_mtime_ns:x}"'


def _xml(body: str) -> Answer:
    return 200, {"Content-Type": "application/xml"}, body.encode()


def _missing() -> Answer:
    return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"


def _unmet() -> Answer:
    return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"


def main(folder: str, seconds: str, log: str = "") -> None:
    with Path(log or os.devnull).open("w") as opened:
        asyncio.run(SlowStore(Path(folder), float(seconds), opened).serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
