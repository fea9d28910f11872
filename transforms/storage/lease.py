"""Lets one run at a time write to an output: a lease that its holder renews.

A lock file (see lock_files.py) is created exclusively and then rewritten only by its
holder, to show that it is alive. A run takes over the lease of a dead run by creating
the lock file with the next number: only one of several runs succeeds, and the previous
holder sees the higher number and stops. So no lock file is ever replaced by another
run.

A run is dead if its process does not exist any more on this machine, or if its lock
file was not rewritten for longer than its lease. The age of a lock file is measured
with the store's own clock, and then the file is watched for a while: so a clock that
jumps cannot make a living run look dead.

Where a store cannot create exclusively, a lock file is written if there is none, and
read again after a pause. Two runs that begin within the same seconds may then both
continue, if one takes longer than the pause to write; the run whose lock file was
overwritten notices it at its next renewal.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from recordmill.schemas.errors import BusyError, Interrupted, OutputError
from recordmill.transforms.storage.lease_holder import Holder, utc_now
from recordmill.transforms.storage.lock_files import (
    LOCK_FOLDER,
    highest_lock,
    list_locks,
    lock_name,
    lock_number,
    read_lock,
)
from recordmill.transforms.storage.store import Store

LEASE_SECONDS = 60.0
RENEWALS_PER_LEASE = 4
SETTLE_SECONDS = 3.0  # pause on stores without exclusive create

_TRIES = 8
_CLOCK_SLACK = 5.0  # seconds that a store's clock may go backwards

_log = logging.getLogger("recordmill")
_until_the_end: list[Lease] = []


class Lease:
    """A lease on an output folder; a thread renews it until it is released."""

    def __init__(self, store: Store, name: str, holder: Holder, since: float) -> None:
        self._store = store.with_short_retries()
        self._name = name
        self._holder = holder
        self._renewed = since  # when the last successful renewal began, by _clock
        self._lost = ""
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    @property
    def holder(self) -> Holder:
        return self._holder

    def require_held(self) -> None:
        """Checks with the store that this run still holds the lease.

        Raises:
          OutputError: another run took the lease over, or it expired.
        """
        with self._guard:
            self._check()
        if self._lost:
            raise _lost_lease(self._store, self._lost)

    def release(self) -> None:
        """Ends the lease. Does nothing in a forked child, or if the lease was lost."""
        if os.getpid() != self._pid:
            return
        self._stop.set()
        self._thread.join(timeout=30)
        with suppress(OutputError), self._guard:
            self._check()
            if not self._lost:
                self._store.delete([self._name])
                self._lost = "the lease was released"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Interrupted):
            # Threads of this run may still write until the process ends.
            _until_the_end.append(self)
        else:
            self.release()

    def _keep(self) -> None:
        interval = self._holder.lease_seconds / RENEWALS_PER_LEASE
        while not self._stop.wait(interval):
            with self._guard:
                try:
                    self._renew()
                except Exception as error:
                    # The next turn tries again, until the lease expires.
                    _log.warning("the lease could not be renewed: %s", error)
                if self._lost:
                    _log.error("the lease on the output was lost: %s", self._lost)
                    return

    def _renew(self) -> None:
        began = _clock()
        self._check()
        if self._lost:
            return
        holder = replace(self._holder, renewed=utc_now())
        self._store.put_bytes(holder.to_bytes(), self._name)
        self._holder = holder
        self._check_time()  # if it slept here, another run may have come and ended
        self._renewed = began

    def _check(self) -> None:
        """Sets _lost unless the lock file still exists, is ours and the highest."""
        self._check_time()
        if self._lost:
            return
        highest = highest_lock(self._store)
        if highest is None:
            self._lost = "its lock file was removed"
            return
        if highest != self._name:
            self._lost = "another run took it over"
            return
        found = read_lock(self._store, self._name)
        if found is None or found.nonce != self._holder.nonce:
            self._lost = "another run overwrote its lock file"

    def _check_time(self) -> None:
        unrenewed = _clock() - self._renewed
        if not self._lost and unrenewed > self._holder.lease_seconds:
            self._lost = (
                f"it could not be renewed for {unrenewed:.0f} s (the machine slept or "
                "the storage did not answer)"
            )


def acquire(
    store: Store,
    *,
    exclusive: bool | None = None,
    lease_seconds: float = LEASE_SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
) -> Lease:
    """Acquires the lease on an output; use it in `with`.

    Args:
      store: of the output.
      exclusive: whether the store creates exclusively, as its preflight found; None
        takes what is expected of its kind.
      lease_seconds: how long a dead run on another machine keeps other runs out.
      settle_seconds: the pause on a store that does not create exclusively.

    Raises:
      OutputError: another run holds it, or the storage refuses.
    """
    if exclusive is None:
        exclusive = store.exclusive
    for turn in range(_TRIES):
        if turn:
            # Several runs came at once and saw each other; do not repeat that together.
            time.sleep(random.uniform(0.05, 0.5))
        judged = highest_lock(store)
        dead = _require_dead(store, judged) if judged is not None else None
        name = lock_name(lock_number(judged) + 1)
        since = _clock()
        holder = Holder.this_process(lease_seconds)
        if not store.create(holder.to_bytes(), name):
            continue
        if not exclusive:
            time.sleep(settle_seconds)
            found = read_lock(store, name)
            if found is None or found.nonce != holder.nonce:
                continue
        others = set(list_locks(store)) - {name}
        if others - {judged} or (judged in others and read_lock(store, judged) != dead):
            # The judged lock was released meanwhile and a third run took it.
            store.delete([name])
            continue
        if judged is not None:
            _log.warning("took over the lease of a dead run: %s", store.uri_of(judged))
            store.delete(sorted(others))
        return Lease(store, name, holder, since)
    raise BusyError(
        f"{store.uri}: other runs begin to write here at the same time; run again later"
    )


def release_interrupted() -> None:
    """Releases the leases that an interruption left; the last act of a process."""
    while _until_the_end:
        _until_the_end.pop().release()


def require_holder(store: Store, nonce: str) -> None:
    """Checks that a lease is still held; for a worker that knows only its nonce.

    Raises:
      OutputError: another run took the output over.
    """
    highest = highest_lock(store)
    holder = read_lock(store, highest) if highest else None
    if holder is None or holder.nonce != nonce:
        raise _lost_lease(store, "another run took it over")


def require_idle(store: Store) -> None:
    """Checks that no living run holds the lease on an output; takes no lease.

    Raises:
      OutputError: a living run holds it.
    """
    highest = highest_lock(store)
    if highest is not None:
        _require_dead(store, highest)


def _require_dead(store: Store, name: str) -> Holder | None:
    """Waits until it is certain that a lock's holder is dead, or the lock is removed.

    Returns:
      The dead holder; None if the lock was removed or cannot be read.

    Raises:
      OutputError: the holder is alive.
    """
    holder = read_lock(store, name)
    if holder is None and store.size(name) is None:
        return None
    if holder is not None and holder.is_on_this_machine():
        if holder.is_running():
            raise _held(store, name, holder)
        return holder
    # A lock that cannot be read was written by a run of another version.
    seconds = holder.lease_seconds if holder else LEASE_SECONDS
    before = store.modified(name)
    age = _age(store, before)
    if age is not None and -_CLOCK_SLACK <= age <= seconds:
        raise _held(store, name, holder)
    renewals = 1.5 if age is not None and age > seconds else RENEWALS_PER_LEASE + 1
    pause = seconds / RENEWALS_PER_LEASE
    until = _clock() + renewals * pause
    while _clock() < until:
        time.sleep(min(pause / 4, max(0.0, until - _clock())))
        now = read_lock(store, name)
        if now is None and store.size(name) is None:
            return None
        if now != holder or store.modified(name) != before:
            raise _held(store, name, now or holder)
    return holder


def _age(store: Store, written: float | None) -> float | None:
    """Returns the seconds since then by the store's clock, or None if unknown."""
    probe = f"{LOCK_FOLDER}/clock-{uuid.uuid4().hex}"
    try:
        store.put_bytes(b"now", probe)
        now = store.modified(probe)
    finally:
        store.delete([probe])
    return None if now is None or written is None else now - written


def _lost_lease(store: Store, reason: str) -> BusyError:
    return BusyError(
        f"{store.uri}: this run lost its lease on the output: {reason}. Nothing more is "
        "published; run again"
    )


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


def _clock() -> float:
    """Returns seconds that only increase and also count while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
