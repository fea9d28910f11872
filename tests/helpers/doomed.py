"""What a process of its own does until a test kills it: `python doomed.py NAME ...`."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage import LocalStore, open_store
from recordmill.transforms.storage.lease import acquire


def start(name: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Starts a process that calls one of the functions below."""
    child = subprocess.Popen([sys.executable, __file__, name], stdin=subprocess.PIPE)
    assert child.stdin is not None
    with child.stdin as pipe:
        pipe.write(pickle.dumps(arguments))
    return child


def hold_and_wait(root: str) -> None:
    with acquire(LocalStore(root)):
        time.sleep(600)


def put_slowly(root: str, options: StorageOptions, source: Path) -> None:
    open_store(root, options).put_file(source, "shard")


def put_and_wait(root: str, source: Path) -> None:
    def wait(descriptor: int) -> None:
        time.sleep(600)

    os.fsync = wait
    LocalStore(root).put_file(source, "shard")


if __name__ == "__main__":
    globals()[sys.argv[1]](*pickle.load(sys.stdin.buffer))
