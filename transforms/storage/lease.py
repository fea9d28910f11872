"""Lets one run at a time write to an output: a lease that its holder renews.

A lock file is created exclusively and then rewritten only by its
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

import json
import logging
import os
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self
from weakref import WeakValueDictionary

from pydantic import Field

from recordmill.schemas.errors import (
    BusyError,
    Interrupted,
    OutputError,
    RecordmillError,
)
from recordmill.transforms.storage.store import WORK_FOLDER, Store, value_of

MAX_LEASE_SECONDS = 3600.0  # a lock that claims more is no lock of ours


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds a lease, as written in its lock file; contains no secrets."""

    host: str  # name of the machine
    pid: Annotated[int, Field(gt=0, lt=1 << 31)]  # process on it
    boot_id: str  # changes each time that the machine is started
    pid_namespace: str  # the one in which `pid` is valid (containers have their own)
    process_start: str  # in clock ticks since boot; a later one of this pid has another
    nonce: str  # random text that no other lease has
    started: str  # when the lease was taken, for people
    renewed: str  # when it was last renewed by the holder's clock, for people
    # how long a renewal is valid
    lease_seconds: Annotated[float, Field(gt=0, le=MAX_LEASE_SECONDS)]
    # how often it was renewed, so that no two renewals are the same
    renewals: Annotated[int, Field(ge=0, le=1 << 53)] = 0
    # Whether a run that held the lease before may still be alive, as a machine that slept.
    # Such a run may yet remove lock files that it knows of, so the number of this one must
    # stay known: it is kept when it is released.
    unsure: bool = False
    released: bool = (
        False  # nobody holds the lease; the file only keeps its number known
    )

    @classmethod
    def this_process(cls, lease_seconds: float, *, unsure: bool = False) -> Holder:
        now = utc_now()
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            process_start=_process_start(os.getpid()),
            nonce=uuid.uuid4().hex,
            started=now,
            renewed=now,
            lease_seconds=lease_seconds,
            unsure=unsure,
        )

    def to_bytes(self) -> bytes:
        expires = datetime.fromisoformat(self.renewed).timestamp() + self.lease_seconds
        until = datetime.fromtimestamp(expires, UTC).isoformat()
        return json.dumps(asdict(self) | {"expires": until}, indent=1).encode() + b"\n"

    def has_died(self) -> bool:
        """Tells whether its process was on this machine and is not there any more."""
        return self.is_on_this_machine() and not self.is_running()

    def is_on_this_machine(self) -> bool:
        """Tells whether its process would be visible from here if it were alive."""
        this_machine = (socket.gethostname(), _boot_id(), _pid_namespace())
        holders_machine = (self.host, self.boot_id, self.pid_namespace)
        return bool(self.boot_id) and holders_machine == this_machine

    def is_running(self) -> bool:
        """Tells whether its process, on this machine, is alive."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's process, so it exists
        if _process_stat(self.pid)[:1] in (["Z"], ["X"]):
            return False  # it ended, but its parent has not yet collected its status
        return self.process_start in ("", _process_start(self.pid))


def utc_now() -> str:
    """Returns the time now as text, in the form that lock files use."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read_text(read: Callable[[], str]) -> str:
    try:
        return read().strip()
    except OSError:
        return ""


def _boot_id() -> str:
    return _read_text(Path("/proc/sys/kernel/random/boot_id").read_text)


def _pid_namespace() -> str:
    return _read_text(lambda: str(Path("/proc/self/ns/pid").readlink()))


def _process_stat(pid: int) -> list[str]:
    """Returns the fields of a process's stat, from the third: state, parent, ..."""
    # The second is the command in brackets, which may contain spaces and brackets.
    text = _read_text(Path(f"/proc/{pid}/stat").read_text)
    return text.rpartition(")")[2].split()


def _process_start(pid: int) -> str:
    fields = _process_stat(pid)
    return fields[19] if len(fields) > 19 else ""


# .recordmill/lock/000001.json      who holds the lease; the highest number counts
#
# A number is not used again while a run may live that knows it (see Holder.unsure): then
# the file stays when the lease is released, and says so.

LOCK_FOLDER = f"{WORK_FOLDER}/lock"  # holds nothing else: listing it must stay cheap

_NAME = re.compile(rf"{re.escape(LOCK_FOLDER)}/(\d{{6,12}})\.json")


def lock_number(name: str | None) -> int:
    """Returns the number in a lock file's name; 0 for None."""
    match = _NAME.fullmatch(name or "")
    return int(match.group(1)) if match else 0


def list_locks(store: Store) -> list[str]:
    """Returns the names of all lock files of an output."""
    return [name for name in store.list(LOCK_FOLDER) if _NAME.fullmatch(name)]


def highest_lock(store: Store) -> str | None:
    """Returns the name of the lock file that counts, or None if there is none."""
    return max(list_locks(store), key=lock_number, default=None)


def unreleased_locks(store: Store, names: Iterable[str]) -> list[str]:
    """Returns those of some lock files that do not say that the lease is released."""
    holders = {name: read_lock(store, name) for name in names}
    return [n for n, holder in holders.items() if not (holder and holder.released)]


def read_lock(store: Store, name: str) -> Holder | None:
    """Returns the holder in a lock file; None if it is missing or cannot be parsed."""
    data = store.find(name)
    return None if data is None else value_of(data, Holder)


def _highest_holder(store: Store) -> Holder | None:
    highest = highest_lock(store)
    return read_lock(store, highest) if highest else None


# A run is dead if its process does not exist any more on this machine, or if its lock
# file was not rewritten for longer than its lease. The age of a lock file is measured
# with the store's own clock, and then the file is watched for a while: so a clock that
# jumps cannot make a living run look dead.

LEASE_SECONDS = 60.0
RENEWALS_PER_LEASE = 4

_CLOCK_SLACK = 5.0  # seconds that a store's clock may go backwards


def require_idle(store: Store) -> None:
    """Checks that no living run holds the lease on an output; takes no lease."""
    highest = highest_lock(store)
    if highest is not None:
        require_dead(store, highest)


def require_dead(store: Store, name: str) -> Holder | None:
    """Waits until it is certain that nobody holds a lock, or that it is removed.

    Returns the holder, dead or released; None if the lock was removed or cannot be read.
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


SETTLE_SECONDS = 3.0  # pause on stores without exclusive create

_TRIES = 8

_log = logging.getLogger("recordmill")


# Of this process, by their nonces: the thread that publishes finds that of its run.
_leases: WeakValueDictionary[str, Lease] = WeakValueDictionary()


class Lease:
    """A lease on an output folder; a thread renews it until it is released."""

    published: bytes | None = None  # the manifest that this process swapped in

    def __init__(self, store: Store, name: str, holder: Holder, since: float) -> None:
        self._store = store.with_short_retries()
        self._name = name
        self._holder = holder
        self._renewed = since  # when the last successful renewal began, by _clock
        self._lost = ""
        self._ended = ""  # why this process swaps in no manifest any more
        self.swapping = threading.Lock()  # held from that swap to its last put
        self._pid = os.getpid()
        self._guard = threading.Lock()
        _leases[holder.nonce] = self
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    @property
    def holder(self) -> Holder:
        return self._holder

    def require_held(self) -> None:
        """Checks with the store that this run still holds the lease."""
        with self._guard:
            self._check()
        if self._lost:
            raise _lost_lease(self._store, self._lost)

    def is_held(self) -> bool:
        """Asks the store whether this run still holds the lease.

        For work that is left undone without harm, such as cleaning up.
        """
        with suppress(OutputError):
            self.require_held()
            return True
        return False

    def require_not_lost(self) -> None:
        """Checks that no loss was noticed before the run published; asks no store."""
        if self._lost and self.end_publishing() and self.published is None:
            raise _lost_lease(self._store, self._lost)

    def end_publishing(self, seconds: float = -1) -> bool:
        """Lets this process publish nothing more, and waits until it does not.

        Returns whether that was so within the time; by default there is no limit.
        """
        self._ended = "the run has ended"
        if ended := self.swapping.acquire(timeout=seconds):
            self.swapping.release()
        return ended

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
        self, _kind: object, error: BaseException | None, _trace: object
    ) -> None:
        self.end_publishing()
        if isinstance(error, Interrupted):
            error.ending.callback(self.release)  # threads of this run may still write
            return
        with suppress(OutputError), self._guard:
            self._check()
        lost = self._lost
        self.release()
        if lost and isinstance(error, RecordmillError | OSError):
            raise _lost_lease(self._store, lost) from error  # the cause of the other

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
        began = boot_clock()
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
        found = self._store.find(self._name) if highest == self._name else None
        if found == self._holder.to_bytes():
            return found
        holder = value_of(found, Holder) if found is not None else None
        if holder is not None and holder.nonce == self._holder.nonce:
            return found
        if highest not in (None, self._name):
            self._lost = "another run took it over"
        elif found is None:
            self._lost = "its lock file was removed"
        else:
            self._lost = "another run overwrote its lock file"
        return None

    def _check_time(self) -> None:
        unrenewed = boot_clock() - self._renewed
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
        has_ended = dead is not None and dead.has_died() and not dead.unsure
        unsure = judged is not None and not has_ended
        name = f"{LOCK_FOLDER}/{lock_number(judged) + 1:06d}.json"
        since = boot_clock()
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


def remove_dead_locks(store: Store) -> None:
    """Removes the lock of a run that was killed on this machine; never waits for it."""
    holder = _highest_holder(store)
    if holder and not holder.released and holder.has_died():
        with suppress(BusyError):  # another run is faster
            acquire(store).release()


def require_holder(store: Store, nonce: str) -> None:
    """Checks that a lease is still held; for a worker that knows only its nonce."""
    holder = _highest_holder(store)
    if holder is None or holder.nonce != nonce or holder.released:
        raise _lost_lease(store, "another run took it over")


@contextmanager
def publishing(nonce: str) -> Iterator[Lease | None]:
    """Makes the end of a run wait, while this process swaps in its manifest.

    Yields its lease, if this process holds it.

    Raises:
      BusyError: the lease was lost, or the run has ended.
    """
    lease = _leases.get(nonce)
    if lease is None:
        yield None
        return
    with lease.swapping:
        if lost := lease._lost or lease._ended:
            raise _lost_lease(lease._store, lost)
        yield lease


def _lost_lease(store: Store, reason: str) -> BusyError:
    return BusyError(
        f"{store.uri}: this run lost its lease on the output: {reason}. Nothing more is "
        "published; run again"
    )
