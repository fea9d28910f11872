"""Judges whether the run that a lock file names is alive.

A run is dead if its process does not exist any more on this machine, or if its lock
file was not rewritten for longer than its lease. The age of a lock file is measured
with the store's own clock, and then the file is watched for a while: so a clock that
jumps cannot make a living run look dead.
"""

from __future__ import annotations

import time
import uuid

from recordmill.schemas.errors import BusyError
from recordmill.transforms.storage.lease_holder import Holder
from recordmill.transforms.storage.lock_files import (
    LOCK_FOLDER,
    highest_lock,
    read_lock,
)
from recordmill.transforms.storage.store import Store

LEASE_SECONDS = 60.0
RENEWALS_PER_LEASE = 4

_CLOCK_SLACK = 5.0  # seconds that a store's clock may go backwards


def require_idle(store: Store) -> None:
    """Checks that no living run holds the lease on an output; takes no lease.

    Raises:
      OutputError: a living run holds it.
    """
    highest = highest_lock(store)
    if highest is not None:
        require_dead(store, highest)


def require_dead(store: Store, name: str) -> Holder | None:
    """Waits until it is certain that nobody holds a lock, or that it is removed.

    Returns:
      The holder, dead or released; None if the lock was removed or cannot be read.

    Raises:
      OutputError: the holder is alive.
    """
    holder = read_lock(store, name)
    if holder is None and store.size(name) is None:
        return None
    if holder is not None and holder.released:
        return holder
    if holder is not None and holder.is_on_this_machine():
        if holder.is_running():
            raise _held(store, name, holder)
        return holder
    # A lock that cannot be read was written by a run of another version.
    seconds = holder.lease_seconds if holder else LEASE_SECONDS
    before = store.modified(name)
    age = seconds_since(store, before)
    if age is not None and -_CLOCK_SLACK <= age <= seconds:
        raise _held(store, name, holder)
    renewals = 1.5 if age is not None and age > seconds else RENEWALS_PER_LEASE + 1
    pause = seconds / RENEWALS_PER_LEASE
    until = boot_clock() + renewals * pause
    while boot_clock() < until:
        time.sleep(min(pause / 4, max(0.0, until - boot_clock())))
        now = read_lock(store, name)
        if now is None and store.size(name) is None:
            return None
        if now != holder or store.modified(name) != before:
            raise _held(store, name, now or holder)
    return holder


def seconds_since(store: Store, written: float | None) -> float | None:
    """Returns the seconds since then by the store's clock, or None if unknown."""
    probe = f"{LOCK_FOLDER}/clock-{uuid.uuid4().hex}"
    try:
        store.put_bytes(b"now", probe)
        now = store.modified(probe)
    finally:
        store.delete([probe])
    return None if now is None or written is None else now - written


def _held(store: Store, name: str, holder: Holder | None) -> BusyError:
    description = (
        f"process {holder.pid} on {holder.host}, started {holder.started}, last renewed "
        f"{holder.renewed}"
        if holder
        else "its lock file cannot be read"
    )
    return BusyError(
        f"{store.uri}: another run is writing here ({description}). Wait until it has "
        f"ended, or choose another folder. If it is dead, its lock {name} expires by "
        "itself: run again in a minute"
    )


def boot_clock() -> float:
    """Returns seconds that only increase and also count while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
