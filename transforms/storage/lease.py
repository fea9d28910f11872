"""One run at a time on one output: a lease that its holder renews.

    .recordmill/lock/000001.json      who holds it; the highest number counts

A lock is created exclusively and then written by its holder alone, as a sign of life.
To take over that of a dead run is to create the next number: of several only one gets
it, and the one before sees that it lost. So nothing is ever replaced on a guess.

Dead is a run whose process is gone from this very machine, or whose lock nobody has
written for longer than it said. How old a lock is, is told by the store's own clock, and
then it is watched for a while: clocks that jump cannot make a living run look dead.

Where a store cannot create exclusively, a lock is written if there is none, and read
again after a pause. Two runs that begin in the same seconds may then both go on, if one
takes longer than the pause to write; the one overwritten notices at its next renewal.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.transforms.storage.lease_holder import Holder, utc_now
from recordmill.transforms.storage.store import WORK_FOLDER, Store

LEASE_SECONDS = 60.0
RENEWALS_PER_LEASE = 4
SETTLE_SECONDS = 3.0  # for stores without exclusive create

LOCK_FOLDER = f"{WORK_FOLDER}/lock"  # of its own: listing it must stay cheap

_NAME = re.compile(rf"{re.escape(LOCK_FOLDER)}/(\d{{6}})\.json")
_TRIES = 8
_CLOCK_SLACK = 5.0

_log = logging.getLogger("recordmill")


class Lease:
    """A lease that is held, and renewed by a thread until it is released."""

    def __init__(self, store: Store, name: str, holder: Holder, since: float) -> None:
        self._store = store.with_short_retries()
        self._name = name
        self._holder = holder
        self._renewed = since  # by _clock, when the last good renewal began
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
        """Makes sure, by asking the store, that the output is still this run's.

        Raises:
          OutputError: somebody took it over, or the lease ran out meanwhile.
        """
        with self._guard:
            self._check()
        if self._lost:
            raise OutputError(
                f"{self._store.uri}: this run lost its hold of the output: "
                f"{self._lost}. Nothing more is published; run it again"
            )

    def release(self) -> None:
        """Lets go. Does nothing in a forked child, or if it was lost."""
        if os.getpid() != self._pid:
            return
        self._stop.set()
        self._thread.join(timeout=30)
        with suppress(OutputError), self._guard:
            self._check()
            if not self._lost:
                self._store.delete([self._name])
                self._lost = "it was released"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _keep(self) -> None:
        interval = self._holder.lease_seconds / RENEWALS_PER_LEASE
        while not self._stop.wait(interval):
            with self._guard:
                try:
                    self._renew()
                except Exception as error:
                    # The next turn tries again, until the lease has run out.
                    _log.warning("the lease could not be renewed: %s", error)
                if self._lost:
                    _log.error("the lease of the output was lost: %s", self._lost)
                    return

    def _renew(self) -> None:
        began = _clock()
        self._check()
        if self._lost:
            return
        holder = replace(self._holder, renewed=utc_now())
        self._store.put_bytes(holder.to_bytes(), self._name)
        self._holder = holder
        self._check_time()  # stopped in between, somebody may have come and gone
        self._renewed = began

    def _check(self) -> None:
        """Looks whether the lock is still there, ours, and the highest."""
        self._check_time()
        if self._lost:
            return
        highest = _highest(self._store)
        if highest != self._name:
            what = "is gone" if highest is None else "was taken over by another run"
            self._lost = f"its lock {what}"
            return
        found = _read(self._store, self._name)
        if found is None or found.nonce != self._holder.nonce:
            self._lost = "its lock was overwritten by another run"

    def _check_time(self) -> None:
        unrenewed = _clock() - self._renewed
        if not self._lost and unrenewed > self._holder.lease_seconds:
            self._lost = (
                f"it could not be renewed for {unrenewed:.0f} s (the machine slept, or "
                "the storage did not answer)"
            )


def acquire(
    store: Store,
    *,
    exclusive: bool | None = None,
    lease_seconds: float = LEASE_SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
) -> Lease:
    """Takes the lease of an output; use it in `with`.

    Args:
      store: of the output.
      exclusive: whether the store creates exclusively, as its preflight found; None:
        what is known of its kind.
      lease_seconds: how long a dead run on another machine keeps others out.
      settle_seconds: the pause, on a store that does not create exclusively.

    Raises:
      OutputError: another run holds it: who, since when, and what to do; or the storage
        refuses.
    """
    if exclusive is None:
        exclusive = store.exclusive
    for turn in range(_TRIES):
        if turn:
            # Several came at once, and each saw the others: not all again together.
            time.sleep(random.uniform(0.05, 0.5))
        judged = _highest(store)
        dead = _require_dead(store, judged) if judged is not None else None
        name = _name(_number(judged) + 1)
        since = _clock()
        holder = Holder.this_process(lease_seconds)
        if not store.create(holder.to_bytes(), name):
            continue
        if not exclusive:
            time.sleep(settle_seconds)
            found = _read(store, name)
            if found is None or found.nonce != holder.nonce:
                continue
        others = set(_locks(store)) - {name}
        if others - {judged} or (judged in others and _read(store, judged) != dead):
            # Released while it was judged, and taken by a third: that one has it.
            store.delete([name])
            continue
        if judged is not None:
            _log.warning("took over the lock of a dead run: %s", store.uri_of(judged))
            store.delete(sorted(others))
        return Lease(store, name, holder, since)
    raise OutputError(
        f"{store.uri}: other runs begin here at the same time; run it again later"
    )


def require_holder(store: Store, nonce: str) -> None:
    """Makes sure that a lease is still held; for a worker that has but its nonce.

    Raises:
      OutputError: another run took the output over meanwhile.
    """
    highest = _highest(store)
    holder = _read(store, highest) if highest else None
    if holder is None or holder.nonce != nonce:
        raise OutputError(
            f"{store.uri}: this run lost its hold of the output: another one took it "
            "over. Nothing more is published; run it again"
        )


def require_idle(store: Store) -> None:
    """Makes sure that no living run holds the lease of an output; takes nothing.

    Raises:
      OutputError: one does.
    """
    highest = _highest(store)
    if highest is not None:
        _require_dead(store, highest)


def remove_dead_locks(store: Store) -> None:
    """Takes away the locks of runs that were killed on this machine; never waits."""
    locks = _locks(store)
    holders = {name: _read(store, name) for name in locks}
    store.delete(
        name
        for name, holder in holders.items()
        if holder and holder.is_on_this_machine() and not holder.is_running()
    )


def _require_dead(store: Store, name: str) -> Holder | None:
    """Goes on only if a lock's holder is dead or the lock disappears.

    Returns:
      The dead holder; None if there is no lock any more, or one that cannot be read.

    Raises:
      OutputError: the holder lives.
    """
    holder = _read(store, name)
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
        now = _read(store, name)
        if now is None and store.size(name) is None:
            return None
        if now != holder or store.modified(name) != before:
            raise _held(store, name, now or holder)
    return holder


def _age(store: Store, written: float | None) -> float | None:
    """How long ago that was, by the clock of the store; None if it does not tell."""
    probe = f"{LOCK_FOLDER}/clock-{uuid.uuid4().hex}"
    try:
        store.put_bytes(b"now", probe)
        now = store.modified(probe)
    finally:
        store.delete([probe])
    return None if now is None or written is None else now - written


def _held(store: Store, name: str, holder: Holder | None) -> OutputError:
    who = (
        f"process {holder.pid} on {holder.host}, since {holder.started}, last sign of "
        f"life {holder.renewed}"
        if holder
        else "its lock cannot be read"
    )
    return OutputError(
        f"{store.uri}: another run is writing here ({who}). Wait until it has ended, or "
        f"choose another folder. If it is dead its lock {name} is taken over as soon as "
        "it has expired: run this again in a minute"
    )


def _locks(store: Store) -> list[str]:
    return [name for name in store.list(LOCK_FOLDER) if _NAME.fullmatch(name)]


def _highest(store: Store) -> str | None:
    return max(_locks(store), default=None)


def _number(name: str | None) -> int:
    found = _NAME.fullmatch(name or "")
    return int(found.group(1)) if found else 0


def _name(number: int) -> str:
    return f"{LOCK_FOLDER}/{number:06d}.json"


def _read(store: Store, name: str) -> Holder | None:
    try:
        return Holder.from_bytes(store.read(name))
    except MissingFileError:
        return None


def _clock() -> float:
    """Seconds that only go forward, and go on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
