"""Commands that get a signal at one moment of acquiring or releasing their lease.

`python signalled_release.py FOLDER NUMBER...` makes numbered tries. For each it prints a
JSON object with the exit status and the files that the command left. Of every three
numbers each is another signal at the same step. A step is the number of a line of
`lease.py`, of the functions that it waits in, and of those that call it, in the order in
which the main thread executes them.

Tries are forked from a process that has loaded everything and started no thread.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from recordmill.beam_jobs.cli import main as cli
from recordmill.transforms import parallel
from recordmill.transforms.commit import cleanup
from recordmill.transforms.storage import lease

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RUN_LOG = ".recordmill/0123456789abcdef/run.log"  # what is to be cleaned
FILES = tuple(m.__file__ for m in (lease, parallel, cleanup, cli))


def at_step(step: int, act: Callable[[], object]) -> Callable[..., Any]:
    """Returns a trace function that acts at one of the traced lines of a thread.

    The count begins when the lease is acquired.
    """
    steps = -1

    def trace(frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        nonlocal steps
        code = frame.f_code
        if code.co_filename not in FILES:
            return None
        if steps < 0 and code.co_name != "acquire":
            return None
        steps += 1
        if steps == step:
            act()
        return trace

    return trace


def attempt(folder: Path, try_number: int) -> tuple[int, list[str]]:
    """Runs `clean` with a signal at a step; returns its status and the files it left.

    What it was to remove is not among them, as it may be interrupted before that.
    """
    output = folder / f"{try_number}"
    step, signal_index = divmod(try_number, len(SIGNALS))
    (output / RUN_LOG).parent.mkdir(parents=True)
    (output / RUN_LOG).touch()
    pid = os.fork()
    if not pid:
        try:
            log = os.open(folder / f"{try_number}.log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.settrace(
                at_step(step, lambda: signal.raise_signal(SIGNALS[signal_index]))
            )
            cli.main(["clean", str(output)])
        finally:
            os._exit(70)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left = (path for path in output.rglob("*") if path.is_file())
    names = {str(path.relative_to(output)) for path in left}
    return status, sorted(names - {RUN_LOG})


def main() -> None:
    folder = Path(sys.argv[1])
    for number in map(int, sys.argv[2:]):
        status, left = attempt(folder, number)
        line = {"number": number, "status": status, "left": left}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
