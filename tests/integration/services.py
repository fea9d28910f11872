"""Processes that tests start, wait for and stop; what those of Java need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from job_tools import children
from store_servers import READY_SECONDS, tool

STOP_SECONDS = 15

# Flink and Spark reach into the JDK; their own scripts give these options, too.
_OPEN = (
    "java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net",
    "java.nio", "java.text", "java.time", "java.util", "java.util.concurrent",
    "java.util.concurrent.atomic", "java.util.concurrent.locks", "jdk.internal.ref",
    "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
)  # fmt: skip
_OPENED = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN]
_EXPORTED = ["--add-exports=java.base/sun.net.util=ALL-UNNAMED"]
# The serial collector has no threads of its own, and gives memory back.
JAVA_OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_EXPORTED, *_OPENED]


class Service:
    """A process group that a test started, with its log."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] = {}
    ) -> None:
        """Starts it in the folder of its log: Beam's boot program leaves files there."""
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, what: str, ready: Callable[[], bool]) -> None:
        """Waits until it is ready; RuntimeError with its log if it never is."""
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            if self._process.poll() is not None:
                raise RuntimeError(f"{what} ended: {tail(self.log)}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{what}: not there after {READY_SECONDS} s: {tail(self.log)}"
                )
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the process itself; what it started lives on."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends it and what it started."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # nobody of the group is left
            os.killpg(self._process.pid, number)


def tail(log: Path, lines: int = 40) -> str:
    text = log.read_text(errors="replace").splitlines()
    return "\n".join([f"{log}:", *text[-lines:]])


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


@contextmanager
def service(
    command: Sequence[str], log: Path, environment: Mapping[str, str] = {}
) -> Iterator[Service]:
    started = Service(command, log, environment)
    try:
        yield started
    finally:
        started.stop()


def python_first() -> dict[str, str]:
    """Makes plain `python` ours."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise FileNotFoundError("java: Flink and Spark need Java 17 on PATH")
    return found


def class_path(name: str) -> str:
    """The jars that `make test-integration` gets, "flink" or "spark"."""
    return str(Path(tool(f"{name}/.ready")).parent / "*")
