"""Watches a folder that nothing may change: checksums, and every change that inotify sees.

A file that is made and removed again leaves no trace in a comparison of before and after.
The kernel reports it, whichever process and whichever system call made it.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

# Of <sys/inotify.h>: IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO,
# IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF.
CHANGES = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name
_LIBC = ctypes.CDLL(None, use_errno=True)


def states_below(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Returns (mode, mtime in ns, content or target) of each entry, by its path."""
    states = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = ""
        if stat.S_ISREG(status.st_mode):
            content = sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(status.st_mode):
            content = str(path.readlink())
        states[str(path.relative_to(folder))] = (
            status.st_mode,
            status.st_mtime_ns,
            content,
        )
    return states


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Fails if anything in a folder, or below it, is changed meanwhile."""
    before = states_below(folder)
    watches = {}
    descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    try:
        for path in (folder, *(p for p in folder.rglob("*") if p.is_dir())):
            watch = _LIBC.inotify_add_watch(descriptor, os.fsencode(path), CHANGES)
            assert watch >= 0, os.strerror(ctypes.get_errno())
            watches[watch] = path
        yield
        assert list(_changes(descriptor, watches)) == []
    finally:
        os.close(descriptor)
    assert states_below(folder) == before


def _changes(descriptor: int, watches: dict[int, Path]) -> Iterator[str]:
    while True:
        try:
            events = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        at = 0
        while at < len(events):
            watch, mask, _, length = _HEAD.unpack_from(events, at)
            at += _HEAD.size
            name = events[at : at + length].rstrip(b"\0").decode()
            at += length
            yield f"{watches[watch] / name}: {mask:#x}"
