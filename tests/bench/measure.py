"""Measure a command: wall seconds and peak memory (bytes) of its process tree.

Memory is the resident set (RSS) summed over the tree. Pages that processes
share count once per process, so a tree of forks looks larger than it is; the
private part (RssAnon + RssShmem) leaves out mapped files.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

POLL_SECONDS = 0.02
# Finding new processes costs more than reading known ones, so it is rarer.
POLLS_PER_TREE_WALK = 3
PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What one run of a command took; memory in bytes, time in seconds.

    `cpu_seconds` are those of the processor, of the command and its children; on a busy
    machine they say more than the others. `written_bytes` are those that they gave to disks,
    scratch with them; what never leaves memory, as on tmpfs, is not among them.
    `other_cores` are those that other processes had meanwhile, on average.
    """

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    peak_private_bytes: int
    written_bytes: int
    other_cores: float
    exit_code: int


def busy_seconds() -> float:
    """Returns the seconds that all cores together worked, or were taken away."""
    words = (PROC / "stat").read_text().split(maxsplit=9)[1:9]
    user, nice, system, _idle, _wait, irq, soft_irq, stolen = map(int, words)
    return (user + nice + system + irq + soft_irq + stolen) / TICKS


def process_tree(root: int) -> list[int]:
    """List root and its descendants that are alive, as process ids."""
    found = [root]
    for pid in found:
        # A process may end between two reads; what is left of it counts nothing.
        with contextlib.suppress(OSError):
            for task in (PROC / str(pid) / "task").iterdir():
                found.extend(map(int, (task / "children").read_text().split()))
    return found


def resident_bytes(pid: int) -> tuple[int, int]:
    """Read (RSS, RssAnon + RssShmem) of a process in bytes; (0, 0) when it is gone."""
    sizes = {"VmRSS": 0, "RssAnon": 0, "RssShmem": 0}
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0, 0
    for line in lines:
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) * 1024
    return sizes["VmRSS"], sizes["RssAnon"] + sizes["RssShmem"]


class MemoryPoller(threading.Thread):
    """Keeps the largest memory sums (bytes) of a process tree until stopped."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root = root
        self.peak_rss_bytes = 0
        self.peak_private_bytes = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        """Poll until stop is called."""
        num_polls = 0
        tree: list[int] = []
        while not self._stopped.is_set():
            if num_polls % POLLS_PER_TREE_WALK == 0:
                tree = process_tree(self.root)
            sizes = [resident_bytes(pid) for pid in tree]
            self.peak_rss_bytes = max(self.peak_rss_bytes, sum(s[0] for s in sizes))
            self.peak_private_bytes = max(
                self.peak_private_bytes, sum(s[1] for s in sizes)
            )
            num_polls += 1
            self._stopped.wait(POLL_SECONDS)

    def stop(self) -> None:
        """End the polling and wait for its last round."""
        self._stopped.set()
        self.join()


def run_measured(command: Sequence[str], *, log: Path | None = None) -> Measurement:
    """Run a command to its end; its output goes to log, or to nowhere."""
    # As users have it: without, each process compiles all modules, which takes a second.
    env = dict(os.environ)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with contextlib.ExitStack() as stack:
        out = stack.enter_context((log or Path(os.devnull)).open("wb"))
        busy = busy_seconds()
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        poller = MemoryPoller(process.pid)
        poller.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            # The new session keeps a Ctrl-C from the command: pass it on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            seconds = time.perf_counter() - start
            poller.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    others = busy_seconds() - busy - cpu_seconds
    return Measurement(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        # The kernel's own peak of the largest process, exact between two polls.
        peak_rss_bytes=max(poller.peak_rss_bytes, usage.ru_maxrss * 1024),
        peak_private_bytes=poller.peak_private_bytes,
        written_bytes=usage.ru_oublock * 512,
        other_cores=max(0.0, others / seconds),
        exit_code=process.returncode,
    )
