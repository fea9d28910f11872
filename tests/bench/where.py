"""Tells where the processor time of a recordmill command goes, by function.

    .venv/bin/python tests/bench/where.py [--depth 1] convert csv TABLE OUTPUT --workers 2

Some hundred times a second each thread is looked at: the processor time that it had since
the last look goes to the innermost function of recordmill that it is in, with what that one
calls outside. So other work on the machine does not blur it; what waits costs nothing. With
a depth of 2 callers are named, too.
"""

from __future__ import annotations

import argparse
import collections
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from recordmill.beam_jobs.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("beam_jobs/", "transforms/", "schemas/")
PERIOD_SECONDS = 0.003
LEAST_SHARE = 0.01


class Sampler(threading.Thread):
    """Gives processor time of all other threads to functions, until stopped."""

    def __init__(self, depth: int) -> None:
        super().__init__(daemon=True)
        self.depth = depth
        self.nanoseconds: collections.Counter[str] = collections.Counter()
        self._last: dict[int, int] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        """Samples until stop is called."""
        while not self._stopped.wait(PERIOD_SECONDS):
            frames = sys._current_frames()
            for thread in threading.enumerate():
                if thread is self or thread.ident not in frames:
                    continue
                spent = self._spent(thread)
                if spent:
                    self.nanoseconds[self._place(frames[thread.ident])] += spent

    def _spent(self, thread: threading.Thread) -> int:
        """Returns the nanoseconds that a thread had since it was asked before."""
        known = thread.native_id
        try:
            text = Path(f"/proc/self/task/{known}/schedstat").read_text()
        except OSError:
            return 0  # it has ended
        total = int(text.split()[0])
        before, self._last[known] = self._last.get(known, 0), total
        return total - before

    def _place(self, frame: FrameType | None) -> str:
        """Names the innermost functions of recordmill on a stack."""
        found = []
        while frame is not None and len(found) < self.depth:
            name = str(Path(frame.f_code.co_filename).resolve())
            path = name.removeprefix(f"{ROOT}/")
            if path.startswith(ROOMS):
                found.append(f"{path}:{frame.f_code.co_name}")
            frame = frame.f_back
        return " < ".join(found) or "Python, imports, Beam"

    def stop(self) -> None:
        """Ends the sampling."""
        self._stopped.set()
        self.join()


def main(argv: list[str]) -> int:
    """Runs a command, and prints the shares of its functions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=1, help="functions of each stack")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="of recordmill")
    arguments = parser.parse_args(argv)
    sampler = Sampler(arguments.depth)
    started = time.perf_counter()
    sampler.start()
    status = cli.main(arguments.words, standalone_mode=False)
    sampler.stop()
    total = sum(sampler.nanoseconds.values())
    print(
        f"{time.process_time():.1f} s of processor time, "
        f"{time.perf_counter() - started:.1f} s; seen: {total / 1e9:.1f} s"
    )
    for place, spent in sampler.nanoseconds.most_common():
        if spent >= LEAST_SHARE * total:
            print(f"{spent / 1e9:7.2f} s {spent / total:5.0%}  {place}")
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
