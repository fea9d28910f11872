"""Run Python scripts in processes that have TensorFlow and TFDS imported already.

Run by the interop environment's python (requirements-interop.lock). TensorFlow takes
seconds to import and the tests ask it some thirty times, so this process imports it once
and forks a child for each request. It never calls TensorFlow itself: what is forked has
no threads and no state of it.

A request is a line of JSON on stdin: what follows `python`, the current folder, and the
files that become stdin, stdout and stderr. The answer on stdout is the exit status.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

# Set before the import: TensorFlow reads it while loading.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy  # noqa: F401 (for those who ask)
import tensorflow  # noqa: F401
import tensorflow_datasets  # noqa: F401


def run(command: list[str]) -> None:
    """Run `-c CODE ...` or `SCRIPT ...` as `python` would."""
    if command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        sys.path[0] = ""
        exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})
        return
    sys.argv = command
    sys.path[0] = str(Path(command[0]).resolve().parent)
    runpy.run_path(command[0], run_name="__main__")


def serve(request: dict[str, Any]) -> int:
    """Run one request in a child, and give its exit status; -9 if it was killed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        os.chdir(request["folder"])
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            file = os.open(request[name], os.O_RDWR)
            os.dup2(file, number)
            os.close(file)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        status = finish(request["command"])
    finally:
        # At once: what the parent registered to run at exit is not the child's.
        os._exit(status)


def finish(command: list[str]) -> int:
    """Run a command to its end, and give its exit status."""
    try:
        run(command)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


for line in sys.stdin:
    print(serve(json.loads(line)), flush=True)
