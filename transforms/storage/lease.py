"""Lets one run at a time write to an output: a lease that its holder renews.

A lock file (see lock_files.py) is created exclusively and then rewritten only by its
holder, to show that it is alive. A run takes over the lease of a dead run by creating
the lock file with the next number: only one of several runs succeeds, and the previous
holder sees the higher number and stops. So no lock file is ever replaced by another
run.

A lock file is rewritten only over its own last bytes (Store.swap), so a holder that slept
cannot bring back a lock that another run has removed.

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
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from recordmill.schemas.errors import (
    BusyError,
    Interrupted,
    MissingFileError,
    OutputError,
)
from recordmill.transforms.storage.lease_holder import Holder, utc_now
from recordmill.transforms.storage.lease_liveness import (
    LEASE_SECONDS,
    RENEWALS_PER_LEASE,
    require_dead,
)
from recordmill.transforms.storage.lease_liveness import boot_clock as _clock
from recordmill.transforms.storage.lock_files import (
    highest_lock,
    list_locks,
    lock_name,
    lock_number,
    read_lock,
)
from recordmill.transforms.storage.store import Store

SETTLE_SECONDS = 3.0  # pause on stores without exclusive create

_TRIES = 8

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
        self.require_not_lost()

    def is_held(self) -> bool:
        """Asks the store whether this run still holds the lease.

        For work that is left undone without harm, such as cleaning up.
        """
        with suppress(OutputError):
            self.require_held()
            return True
        return False

    def require_not_lost(self) -> None:
        """Checks that the loss of the lease was not noticed yet; asks no store.

        Raises:
          OutputError: it was lost.
        """
        if self._lost:
            raise _lost_lease(self._store, self._lost)

    def release(self) -> None:
        """Ends the lease. Does nothing in a forked child, or if the lease was lost."""
        if os.getpid() != self._pid:
            return
        self._stop.set()
        self._thread.join(timeout=30)
        with suppress(OutputError), self._guard:
            seen = self._check()
            if seen is None:
                return
            if self._holder.unsure:
                released = replace(self._holder, released=True, renewed=utc_now())
                self._store.swap(released.to_bytes(), self._name, seen=seen)
            else:
                # Nobody has this number in mind but this run: it can be used again.
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
        seen = self._check()
        if seen is None:
            return
        count = self._holder.renewals + 1
        holder = replace(self._holder, renewed=utc_now(), renewals=count)
        self._holder = holder  # even if it fails: its bytes may arrive
        if not self._store.swap(holder.to_bytes(), self._name, seen=seen):
            self._lost = "another run took it over"
            return
        self._check_time()  # if it slept here, another run may have come and ended
        self._renewed = began

    def _check(self) -> bytes | None:
        """Returns the lock file's bytes if it is still ours and the highest.

        Otherwise sets _lost and returns None.
        """
        self._check_time()
        if self._lost:
            return None
        highest = highest_lock(self._store)
        if highest is None:
            self._lost = "its lock file was removed"
        elif highest != self._name:
            self._lost = "another run took it over"
        else:
            try:
                found = self._store.read(self._name)
            except MissingFileError:
                self._lost = "its lock file was removed"
                return None
            holder = Holder.from_bytes(found)
            if holder is not None and holder.nonce == self._holder.nonce:
                return found
            self._lost = "another run overwrote its lock file"
        return None

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
        dead = require_dead(store, judged) if judged is not None else None
        if judged is not None and dead is None and store.size(judged) is None:
            continue  # its holder released it: then its number may be used again
        # Else a run that is judged dead by its silence may yet remove what it knows.
        unsure = judged is not None and not (dead and dead.has_ended())
        name = lock_name(lock_number(judged) + 1)
        since = _clock()
        holder = Holder.this_process(lease_seconds, unsure=unsure)
        if not store.create(holder.to_bytes(), name):
            continue
        if not exclusive:
            time.sleep(settle_seconds)
            found = read_lock(store, name)
            if found is None or found.nonce != holder.nonce:
                continue
        others = set(list_locks(store)) - {name}
        rivals = others
        if judged in others and read_lock(store, judged) == dead:
            rivals = {n for n in others if lock_number(n) > lock_number(judged)}
        if rivals:
            # The judged lock was released meanwhile and a third run took it.
            store.delete([name])
            continue
        if judged is not None:
            if not (dead and dead.released):
                _log.warning(
                    "took over the lease of a dead run: %s", store.uri_of(judged)
                )
            store.delete(sorted(others))
        return Lease(store, name, holder, since)
    raise BusyError(
        f"{store.uri}: other runs begin to write here at the same time; run again later"
    )


def release_interrupted() -> None:
    """Releases the leases that an interruption left; the last act of a process."""
    while _until_the_end:
        _until_the_end.pop().release()


def remove_dead_locks(store: Store) -> None:
    """Removes the lock of a run that was killed on this machine; never waits for it."""
    highest = highest_lock(store)
    holder = read_lock(store, highest) if highest else None
    if holder and not holder.released and holder.has_died():
        with suppress(BusyError):  # another run is faster
            acquire(store).release()


def require_holder(store: Store, nonce: str) -> None:
    """Checks that a lease is still held; for a worker that knows only its nonce.

    Raises:
      OutputError: another run took the output over.
    """
    highest = highest_lock(store)
    holder = read_lock(store, highest) if highest else None
    if holder is None or holder.nonce != nonce or holder.released:
        raise _lost_lease(store, "another run took it over")


def _lost_lease(store: Store, reason: str) -> BusyError:
    return BusyError(
        f"{store.uri}: this run lost its lease on the output: {reason}. Nothing more is "
        "published; run again"
    )
