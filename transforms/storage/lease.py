"""Lets one run at a time write to an output: a lease that its holder renews.

    .recordmill/lock/lease.json      who holds it

The file is only changed by a swap over the bytes that were seen (Store.swap). A run puts it
where there is none, or over that of a dead run; its holder renews it over its own last
bytes, and removes it over them. So of several runs only one succeeds, and a holder that
slept neither takes back nor removes the lease of another one.

Where a store cannot swap exclusively, the file is read again after a pause. Two runs that
begin within the same seconds may then both continue, if one takes longer than the pause to
write; the run whose file was overwritten notices it at its next renewal.
"""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from recordmill.schemas.errors import (
    BusyError,
    Interrupted,
    OutputError,
    RecordmillError,
)
from recordmill.transforms.parallel import run_in_thread
from recordmill.transforms.storage.store import WORK_FOLDER, Store, new_probe, value_of

MAX_LEASE_SECONDS = 3600.0  # a lock that claims more is no lock of ours


@dataclass(frozen=True, slots=True)
class RunProcess:
    """The process of a run, identified on its machine; contains no secrets."""

    host: str  # name of the machine
    pid: Annotated[int, Field(gt=0, lt=1 << 31)]  # process on it
    boot_id: str  # changes each time that the machine is started
    pid_namespace: str  # the one in which `pid` is valid (containers have their own)
    process_start: str  # in clock ticks since boot; a later one of this pid has another

    @staticmethod
    def current() -> RunProcess:
        """Returns the process that calls this."""
        return RunProcess(
            host=socket.gethostname(),
            pid=os.getpid(),
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            process_start=_process_start(os.getpid()),
        )

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


@dataclass(frozen=True, slots=True)
class Holder(RunProcess):
    """The run that holds a lease, as its file says; contains no secrets."""

    nonce: str  # random text that no other lease has
    started: str  # when the lease was taken, for people
    renewed: str  # when it was last renewed by the holder's clock, for people
    # how long a renewal is valid
    lease_seconds: Annotated[float, Field(gt=0, le=MAX_LEASE_SECONDS)]
    # how often it was renewed, so that no two renewals are the same
    renewals: Annotated[int, Field(ge=0, le=1 << 53)] = 0

    @classmethod
    def this_process(cls, lease_seconds: float) -> Holder:
        now = utc_now()
        return cls(
            **asdict(RunProcess.current()),
            nonce=uuid.uuid4().hex,
            started=now,
            renewed=now,
            lease_seconds=lease_seconds,
        )

    def to_bytes(self) -> bytes:
        expires = datetime.fromisoformat(self.renewed).timestamp() + self.lease_seconds
        until = datetime.fromtimestamp(expires, UTC).isoformat()
        return json.dumps(asdict(self) | {"expires": until}, indent=1).encode() + b"\n"


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


LOCK_FOLDER = f"{WORK_FOLDER}/lock"
LEASE_NAME = f"{LOCK_FOLDER}/lease.json"


# A run is dead if its process does not exist any more on this machine, or if its lock
# file was not rewritten for longer than its lease. The age of a lock file is measured
# with the store's own clock, and then the file is watched for a while: so a clock that
# jumps cannot make a living run look dead.

LEASE_SECONDS = 60.0
RENEWALS_PER_LEASE = 4

_CLOCK_SLACK = 5.0  # seconds that a store's clock may go backwards


def require_idle(store: Store) -> bytes | None:
    """Waits until it is certain that no living run holds the lease; takes no lease.

    Returns the file of a dead holder; None if there is none.
    """
    seen = store.find(LEASE_NAME)
    if seen is None:
        return None
    holder = value_of(seen, Holder)
    if holder is not None and holder.is_on_this_machine():
        if holder.is_running():
            raise _held(store, seen)
        return seen
    # One that cannot be read was written by a run of another version.
    seconds = holder.lease_seconds if holder else LEASE_SECONDS
    before = store.modified(LEASE_NAME)
    age = seconds_since(store, before)
    if age is not None and -_CLOCK_SLACK <= age <= seconds:
        raise _held(store, seen)
    renewals = 1.5 if age is not None and age > seconds else RENEWALS_PER_LEASE + 1
    pause = seconds / RENEWALS_PER_LEASE
    until = boot_clock() + renewals * pause
    while boot_clock() < until:
        time.sleep(min(pause / 4, max(0.0, until - boot_clock())))
        now = store.find(LEASE_NAME)
        if now is None:
            return None
        if now != seen or store.modified(LEASE_NAME) != before:
            raise _held(store, now)
    return seen


def seconds_since(store: Store, written: float | None) -> float | None:
    """Returns the seconds since then by the store's clock, or None if unknown."""
    probe = new_probe()
    try:
        store.put_bytes(b"now", probe)
        now = store.modified(probe)
    finally:
        store.delete([probe])
    return None if now is None or written is None else now - written


def _held(store: Store, found: bytes) -> BusyError:
    holder = value_of(found, Holder)
    description = (
        f"process {holder.pid} on {holder.host}, started {holder.started}, last renewed "
        f"{holder.renewed}"
        if holder
        else "its lock file cannot be read"
    )
    return BusyError(
        f"{store.uri}: another run is writing here ({description}). Wait until it has "
        f"ended, or choose another folder. If it is dead, its lock {LEASE_NAME} expires by "
        "itself: run again in a minute"
    )


def boot_clock() -> float:
    """Returns seconds that only increase and also count while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_RELEASED = "the lease was released"

SETTLE_SECONDS = 3.0  # pause on stores without exclusive swaps

_TRIES = 8

_log = logging.getLogger("recordmill")


# Of this process, by their nonces: the thread that publishes finds that of its run. Those of
# runs that have ended stay: their threads may come late, and must not publish any more.
_leases: dict[str, Lease] = {}

# A signal raises Interrupted at any line of the main thread, also within `acquire` or on the
# way to `release`. So a lease is registered before its file is written, the file is written
# and removed in threads, which no signal interrupts, and what a command holds when it is
# interrupted is released at the end of its process (`release_all`).

_POLL_SECONDS = 1.0


def _without_interruption(function: Callable[[], object]) -> None:
    """Calls a function in a thread: a signal ends the waiting for it, but not the call."""
    run_in_thread(function, threading.Event(), lambda: None, _POLL_SECONDS)


class Lease:
    """A lease on an output folder; a thread renews it until it is released."""

    published: bytes | None = None  # the manifest that this process swapped in

    def __init__(self, store: Store, holder: Holder, since: float) -> None:
        self._store = store.with_short_retries()
        self._holder = holder
        self._renewed = since  # when the last successful renewal began, by _clock
        self._lost = ""
        self._ended = ""  # why this process swaps in no manifest any more
        self.swapping = threading.Lock()  # held from that swap to its last put
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._file_change = threading.Lock()  # held while it is acquired or released
        self._is_over = False  # whether it was released, or never acquired
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        _leases[holder.nonce] = self

    def take(self, store: Store, dead: bytes | None) -> bool:
        """Writes the lease over that of a dead run, or where there is none.

        `store` is the lease's own, with all its retries. Returns whether that succeeded;
        then a thread renews it.
        """
        _without_interruption(lambda: self._take(store, dead))
        return not self._is_over

    def _take(self, store: Store, dead: bytes | None) -> None:
        with self._file_change:
            if self._is_over:
                return  # the process ends
            lease_bytes = self._holder.to_bytes()
            self._is_over = not store.swap(lease_bytes, LEASE_NAME, seen=dead)
            if not self._is_over:
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
        ended = threading.Event()

        def wait() -> None:
            if self.swapping.acquire(timeout=seconds):
                self.swapping.release()
                ended.set()

        _without_interruption(wait)
        return ended.is_set()

    def release(self) -> str:
        """Ends the lease, and returns why it was lost before, or "".

        Does nothing in a forked child, or if the lease was lost. Safe to repeat.
        """
        if os.getpid() == self._pid:
            _without_interruption(self._release)
        return self._lost if self._lost != _RELEASED else ""

    def _release(self) -> None:
        with self._file_change:
            if self._is_over:
                return
            self._stop.set()
            if self._thread.is_alive():
                self._thread.join(timeout=30)
            # Without the guard: the thread that renews has ended, and an interrupted
            # check may have left it locked.
            with suppress(OutputError):
                held_bytes = self._check()
                if held_bytes is not None:
                    self._store.discard(LEASE_NAME, seen=held_bytes)
                    self._lost = _RELEASED
            self._is_over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: object
    ) -> None:
        self.end_publishing()
        if isinstance(error, Interrupted):
            return  # threads of this run may still write: see `release_all`
        lost = self.release()
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
        if not self._store.swap(holder.to_bytes(), LEASE_NAME, seen=seen):
            self._lost = "another run took it over"
            return
        self._check_time()  # if it slept here, another run may have come and ended
        self._renewed = began

    def _check(self) -> bytes | None:
        """Returns the lease's bytes if it is still ours; else sets _lost, returns None."""
        self._check_time()
        if self._lost:
            return None
        found = self._store.find(LEASE_NAME)
        if found is None:
            self._lost = "its lock file was removed"
            return None
        if found == self._holder.to_bytes():
            return found
        holder = value_of(found, Holder)
        if holder is None or holder.nonce != self._holder.nonce:
            self._lost = "another run took it over"
            return None
        return found

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
    lease_seconds: float = LEASE_SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
) -> Lease:
    """Checks an output, and acquires the lease on it; use it in `with`.

    Args:
      store: of the output.
      lease_seconds: how long a dead run on another machine keeps other runs out.
      settle_seconds: the pause on a store that does not swap exclusively.

    Raises:
      OutputError: another run holds it, or the storage refuses.
    """
    exclusive = store.preflight()
    for turn in range(_TRIES):
        if turn:
            # Several runs came at once and saw each other; do not repeat that together.
            time.sleep(random.uniform(0.05, 0.5))
        dead = require_idle(store)
        since = boot_clock()
        lease = Lease(store, Holder.this_process(lease_seconds), since)
        if not lease.take(store, dead):
            continue
        if not exclusive:
            time.sleep(settle_seconds)
            if not lease.is_held():
                lease.release()
                continue
        if dead is not None:
            _log.warning("took over the lease of an interrupted run: %s", store.uri)
        return lease
    raise BusyError(
        f"{store.uri}: other runs begin to write here at the same time; run again later"
    )


def release_all() -> None:
    """Releases what this process still holds, the last lease first.

    For a command that was interrupted, when its threads write no more.
    """
    for lease in reversed([*_leases.values()]):
        lease.end_publishing()  # at once, as a rule: its run ended so
        lease.release()


def remove_dead_lease(store: Store) -> None:
    """Removes the lease of a run that was killed on this machine; never waits for it."""
    seen = store.find(LEASE_NAME)
    holder = value_of(seen or b"", Holder)
    if seen is not None and holder is not None and holder.has_died():
        store.discard(LEASE_NAME, seen=seen)


def require_holder(store: Store, nonce: str) -> None:
    """Checks that a lease is still held; for a worker that knows only its nonce."""
    holder = value_of(store.find(LEASE_NAME) or b"", Holder)
    if holder is None or holder.nonce != nonce:
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
