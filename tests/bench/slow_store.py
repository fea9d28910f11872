"""Serve a folder as S3 does, and wait before each answer: `python slow_store.py FOLDER 0.05`.

Prints the port. Only what reading asks for: GET with ranges, and HEAD.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from urllib.parse import unquote

_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d+)", re.IGNORECASE)
_MISSING = b"<Error><Code>NoSuchKey</Code></Error>"


async def serve(folder: Path, seconds: float) -> None:
    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(seconds)
                writer.writelines(_answer(folder, request))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _answer(folder: Path, request: bytes) -> list[bytes]:
    method, target, _ = request.split(b" ", 2)
    path = folder / unquote(target.decode().partition("?")[0]).strip("/")
    if not path.is_file():
        head = f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(_MISSING)}\r\n\r\n"
        return [head.encode(), b"" if method == b"HEAD" else _MISSING]
    size, status, extra = path.stat().st_size, "200 OK", ""
    start, stop = 0, size
    if found := _RANGE.search(request):
        start, stop = int(found[1]), min(size, int(found[2]) + 1)
        status = "206 Partial Content"
        extra = f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Length: {stop - start}\r\n{extra}"
        'ETag: "1"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n'
    )
    if method == b"HEAD":
        return [head.encode()]
    with path.open("rb") as file:
        file.seek(start)
        return [head.encode(), file.read(stop - start)]


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), float(sys.argv[2])))
