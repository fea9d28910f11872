"""A server on loopback that keeps what it gets, or never answers, or refuses all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from store_servers import free_port


class Request(NamedTuple):
    """One that came in."""

    method: str
    path: str
    kind: str  # its Content-Type
    body: bytes


@dataclass
class HttpReceiver:
    """A server, and what it got."""

    url: str
    requests: list[Request] = field(default_factory=list)


@contextmanager
def receiver(status: int | None = 200) -> Iterator[HttpReceiver]:
    """Starts one that answers with a status; with None it keeps the connection, silent."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kind = self.headers.get("Content-Type", "")
            found.requests.append(Request(self.command, self.path, kind, body))
            if status is None:
                over.wait()
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/login")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_POST = _take  # noqa: N815  as the base class calls them

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = HttpReceiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        server.shutdown()
        server.server_close()


@contextmanager
def file_server(content: bytes) -> Iterator[str]:
    """Serves one content under any path; without its length below /unsized."""

    class Handler(BaseHTTPRequestHandler):
        def _head(self) -> tuple[int, int]:
            start, stop = 0, len(content)
            wanted = self.headers.get("Range", "").removeprefix("bytes=")
            if wanted and not self.path.startswith("/unsized"):
                first, last = wanted.split("-")
                start, stop = int(first), min(stop, int(last or stop) + 1)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{stop}")
            else:
                self.send_response(200)
            if not self.path.startswith("/unsized"):
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(stop - start))
            self.end_headers()
            return start, stop

        def do_HEAD(self) -> None:
            self._head()

        def do_GET(self) -> None:
            start, stop = self._head()
            self.wfile.write(content[start:stop])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
