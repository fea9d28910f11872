"""Measure what receivers that never answer add to a run: Prometheus push, OTLP, OpenLineage.

    python tests/bench/hanging_receivers.py [PAIRS]

Each pair is two whole commands, one after the other: receivers that answer, and receivers
that accept connections and are silent. Prints the seconds of both, and at the end the
differences, which the pages promise to be two seconds at most.
"""

from __future__ import annotations

import os
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
IRIS = ROOT / "tests/samples/iris/iris.csv"


class Answers(socketserver.StreamRequestHandler):
    """Reads a request with a body of a known size, and answers 200."""

    def handle(self) -> None:
        size = 0
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        self.rfile.read(size)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Hangs(socketserver.StreamRequestHandler):
    """Takes the connection, and never answers."""

    def handle(self) -> None:
        while self.rfile.readline():
            pass


class Server(socketserver.ThreadingTCPServer):
    """Each connection has a thread, which goes with the process."""

    daemon_threads = True


def seconds_with(handler: type[socketserver.BaseRequestHandler]) -> float:
    """Returns the seconds of a whole command that tells four receivers."""
    with (
        Server(("127.0.0.1", 0), handler) as server,
        tempfile.TemporaryDirectory() as out,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        given = {"OPENLINEAGE_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        command = [ROOT / ".venv/bin/recordmill", "convert", "csv", IRIS, f"{out}/iris"]
        begun = time.perf_counter()
        done = subprocess.run(
            [*command, "--metrics-push", url],
            env=os.environ | given,
            capture_output=True,
            text=True,
            check=True,
        )
        seconds = time.perf_counter() - begun
        server.shutdown()
    assert done.stderr.count("no response in time") == 4 * (handler is Hangs), (
        done.stderr
    )
    return seconds


def main() -> None:
    differences = []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        answered, silent = seconds_with(Answers), seconds_with(Hangs)
        differences.append(silent - answered)
        print(
            f"answered {answered:.2f} s, silent {silent:.2f} s: {differences[-1]:+.2f} s"
        )
    middle = statistics.median(differences)
    print(f"differences: median {middle:.2f} s, largest {max(differences):.2f} s")


if __name__ == "__main__":
    main()
