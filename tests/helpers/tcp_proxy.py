"""A TCP proxy that spoils connections: cuts them, delays them, loses answers."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) \S+ HTTP/1\.1\r\n")
_CHUNK = 1 << 16

# What to do with a request: its number from 1 and its first line.
Judge = Callable[[int, bytes], str]  # "" to let it pass, "cut", "mute" or "delay"


@dataclass
class Proxy:
    """Forwards to a server.

    Attributes:
      address: where to connect instead.
      judge: what to do with each request: "cut" breaks the connection before it is
        sent on, "mute" sends it on and breaks off before the answer comes, "delay"
        waits first.
      bytes_per_connection: cut a connection after as many bytes sent, 0: never.
      bytes_per_second: upper speed of what is sent, 0: none.
      requests, spoiled, sent: what happened so far.
    """

    target: tuple[str, int]
    listener: socket.socket
    judge: Judge = lambda number, line: ""
    bytes_per_connection: int = 0
    bytes_per_second: int = 0
    requests: int = 0
    spoiled: int = 0
    sent: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed: the end
            threading.Thread(target=self.forward, args=(client,), daemon=True).start()

    def forward(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target)
        except OSError:
            reset(client)
            return
        muted = threading.Event()
        back = (server, client, muted)
        threading.Thread(target=self.answer, args=back, daemon=True).start()
        sent = 0
        with suppress(OSError):
            while chunk := client.recv(_CHUNK):
                verdict = self.verdict(chunk)
                if verdict == "delay":
                    time.sleep(0.5)
                if verdict == "mute":
                    muted.set()
                sent += len(chunk)
                cut = 0 < self.bytes_per_connection < sent
                if verdict == "cut" or cut:
                    self.spoiled += cut
                    break
                if self.bytes_per_second:
                    time.sleep(len(chunk) / self.bytes_per_second)
                server.sendall(chunk)
                self.sent += len(chunk)
            else:
                return  # the client has gone, answers may still be on their way
        reset(client)
        reset(server)

    def verdict(self, chunk: bytes) -> str:
        found = _REQUEST.match(chunk)
        if found is None:
            return ""
        with self.guard:
            self.requests += 1
            verdict = self.judge(self.requests, found.group())
            self.spoiled += bool(verdict)
        return verdict

    def answer(
        self, server: socket.socket, client: socket.socket, muted: threading.Event
    ) -> None:
        with suppress(OSError):
            while chunk := server.recv(_CHUNK):
                if muted.is_set():
                    reset(client)
                    break
                client.sendall(chunk)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    """Breaks a connection, so that the other side sees an error and no proper end."""
    with suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def proxy_to(address: str) -> Iterator[Proxy]:
    """A proxy before the server at an address, as long as the block lasts."""
    parts = urlsplit(address)
    assert parts.hostname
    assert parts.port
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        proxy = Proxy((parts.hostname, parts.port), listener)
        threading.Thread(target=proxy.serve, daemon=True).start()
        try:
            yield proxy
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
