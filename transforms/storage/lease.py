"""Restricts an output to one writing run at a time, by a lease that its holder renews.

    .recordmill/lock/lease.json      the holder of the lease

Only a swap over the expected bytes changes the file (`Store.swap`). A run creates the
file, or replaces the file of a dead run. The holder renews and removes the file only over
the bytes that it wrote last. So only one of several runs succeeds. A holder that slept
neither takes back nor removes the lease of another run.

If a store cannot swap exclusively, the file is read again after a pause. Two runs that
begin within the same seconds may then both continue, if one takes longer than the pause to
write. The run whose file was overwritten notices it at its next renewal.
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
from recordmill.transforms.storage.store import (
    WORK_FOLDER,
    Store,
    new_probe,
    parse_json,
)

MAX_LEASE_SECONDS = 3600.0  # recordmill writes no lease file with more


@dataclass(frozen=True, slots=True)
class RunProcess:
    """The process of a run, identified on its machine; contains no secrets."""

    host: str  # name of the machine
    pid: Annotated[int, Field(gt=0, lt=1 << 31)]  # process on it
    boot_id: str  # changes each time that the machine is started
    pid_namespace: str  # namespace in which `pid` is valid (containers have their own)
    process_start: str  # in clock ticks since boot; tells apart processes with one pid

    @staticmethod
    def current() -> RunProcess:
        """Returns the current process."""
        return RunProcess(
            host=socket.gethostname(),
            pid=os.getpid(),
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            process_start=_process_start(os.getpid()),
        )

    def has_died(self) -> bool:
        """Returns whether the process ran on this machine and has ended."""
        return self.is_on_this_machine() and not self.is_running()

    def is_on_this_machine(self) -> bool:
        """Returns whether the process would be visible from here if it were alive."""
        this_machine = (socket.gethostname(), _boot_id(), _pid_namespace())
        holders_machine = (self.host, self.boot_id, self.pid_namespace)
        return bool(self.boot_id) and holders_machine == this_machine

    def is_running(self) -> bool:
        """Returns whether the process, which was on this machine, is alive."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's process, so it exists
        if _process_stat(self.pid)[:1] in (["Z"], ["X"]):
            return False  # ended, but its parent has not yet collected its exit status
        return self.process_start in ("", _process_start(self.pid))


@dataclass(frozen=True, slots=True)
class Holder(RunProcess):
    """The run that holds a lease, as stored in the lease file; contains no secrets."""

    nonce: str  # random text that no other lease has
    started: str  # when the lease was taken, for people
    renewed: str  # when it was last renewed by the holder's clock, for people
    # how long a renewal is valid
    lease_seconds: Annotated[float, Field(gt=0, le=MAX_LEASE_SECONDS)]
    # number of renewals, so that no two lease files have the same bytes
    renewals: Annotated[int, Field(ge=0, le=1 << 53)] = 0

    @classmethod
    def this_process(cls, lease_seconds: float) -> Holder:
        start_time = utc_now()
        return cls(
            **asdict(RunProcess.current()),
            nonce=uuid.uuid4().hex,
            started=start_time,
            renewed=start_time,
            lease_seconds=lease_seconds,
        )

    def to_bytes(self) -> bytes:
        expires = datetime.fromisoformat(self.renewed).timestamp() + self.lease_seconds
        until = datetime.fromtimestamp(expires, UTC).isoformat()
        return json.dumps(asdict(self) | {"expires": until}, indent=1).encode() + b"\n"


def utc_now() -> str:
    """Returns the current time as text, in the format of lease files."""
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
    # The second field is the command in parentheses, which may contain both itself.
    text = _read_text(Path(f"/proc/{pid}/stat").read_text)
    return text.rpartition(")")[2].split()


def _process_start(pid: int) -> str:
    fields = _process_stat(pid)
    return fields[19] if len(fields) > 19 else ""


LOCK_FOLDER = f"{WORK_FOLDER}/lock"
LEASE_NAME = f"{LOCK_FOLDER}/lease.json"


# A run is dead if its process on this machine has ended, or if its lease file was not
# rewritten for longer than the lease. The age of a lease file is measured with the
# store's own clock. Then the file is watched for a while, so that a clock that jumps
# cannot make a living run look dead.

LEASE_SECONDS = 60.0
RENEWALS_PER_LEASE = 4

_CLOCK_SLACK = 5.0  # seconds by which a store's clock may jump back


def require_idle(store: Store) -> bytes | None:
    """Checks that no living run holds the lease, which may take a while; takes no lease.

    Returns the lease file of a dead holder; None if there is no lease file.
    """
    lease_bytes = store.read_if_exists(LEASE_NAME)
    if lease_bytes is None:
        return None
    holder = parse_json(lease_bytes, Holder)
    if holder is not None and holder.is_on_this_machine():
        if holder.is_running():
            raise _lease_held_error(store, lease_bytes)
        return lease_bytes
    # A lease file that cannot be parsed was written by another version of recordmill.
    seconds = holder.lease_seconds if holder else LEASE_SECONDS
    modified_time = store.modified_time(LEASE_NAME)
    age = seconds_since(store, modified_time)
    if age is not None and -_CLOCK_SLACK <= age <= seconds:
        raise _lease_held_error(store, lease_bytes)
    renewals = 1.5 if age is not None and age > seconds else RENEWALS_PER_LEASE + 1
    pause = seconds / RENEWALS_PER_LEASE
    until = boot_clock() + renewals * pause
    while boot_clock() < until:
        time.sleep(min(pause / 4, max(0.0, until - boot_clock())))
        current_bytes = store.read_if_exists(LEASE_NAME)
        if current_bytes is None:
            return None
        if (
            current_bytes != lease_bytes
            or store.modified_time(LEASE_NAME) != modified_time
        ):
            raise _lease_held_error(store, current_bytes)
    return lease_bytes


def seconds_since(store: Store, written: float | None) -> float | None:
    """Returns the seconds since a time by the store's clock, or None if unknown."""
    probe = new_probe()
    try:
        store.put_bytes(b"now", probe)
        current_time = store.modified_time(probe)
    finally:
        store.delete([probe])
    return None if current_time is None or written is None else current_time - written


def _lease_held_error(store: Store, lease_bytes: bytes) -> BusyError:
    holder = parse_json(lease_bytes, Holder)
    description = (
        f"process {holder.pid} on {holder.host}, started {holder.started}, last renewed "
        f"{holder.renewed}"
        if holder
        else "its lock file cannot be read"
    )
    return BusyError(
        f"{store.uri}: another run is writing here ({description}). Wait until it has "
        f"ended, or choose another folder. If it was killed, its lock {LEASE_NAME} "
        "expires automatically: run again in a minute"
    )


def boot_clock() -> float:
    """Returns a time in seconds that never decreases and counts during machine sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_RELEASED = "the lease was released"

SETTLE_SECONDS = 3.0  # pause on stores without exclusive swaps

_TRIES = 8

_log = logging.getLogger("recordmill")


# The leases of this process by nonce: the thread that publishes finds the lease of its
# run. Leases of ended runs stay, because a late thread of such a run must not publish any
# more.
_leases: dict[str, Lease] = {}

# A signal raises Interrupted at any line of the main thread, also within `acquire` or
# before `release`. So a lease is registered before its file is written. The file is
# written and removed in threads, which no signal interrupts. The leases of an interrupted
# command are released at the end of its process (`release_all`).

_POLL_SECONDS = 1.0


def _run_uninterrupted(function: Callable[[], object]) -> None:
    """Calls a function in a thread: a signal ends the wait, but not the call."""
    run_in_thread(function, threading.Event(), lambda: None, _POLL_SECONDS)


class Lease:
    """A lease on an output folder; a thread renews it until it is released."""

    published_manifest: bytes | None = None  # the manifest that this process swapped in

    def __init__(self, store: Store, holder: Holder, since: float) -> None:
        self._store = store.with_short_retries()
        self._holder = holder
        self._renewed = since  # when the last successful renewal began, by _clock
        self._loss_reason = ""
        # reason why this process must not swap in a manifest any more
        self._end_reason = ""
        self.swap_lock = threading.Lock()  # held from the manifest's swap to the end
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._file_change = threading.Lock()  # held while it is acquired or released
        self._is_released = False  # whether it was released, or never acquired
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._renew_until_stopped, name="lease", daemon=True
        )
        _leases[holder.nonce] = self

    def try_acquire(self, store: Store, dead: bytes | None) -> bool:
        """Writes the lease file over the file of a dead run, or as a new file.

        `store` is the lease's own store, with all its retries. Returns whether that
        succeeded; then a thread renews the lease.
        """
        _run_uninterrupted(lambda: self._try_acquire(store, dead))
        return not self._is_released

    def _try_acquire(self, store: Store, dead: bytes | None) -> None:
        with self._file_change:
            if self._is_released:
                return  # the process ends
            lease_bytes = self._holder.to_bytes()
            self._is_released = not store.swap(
                lease_bytes, LEASE_NAME, expected_content=dead
            )
            if not self._is_released:
                self._thread.start()

    @property
    def holder(self) -> Holder:
        return self._holder

    def require_held(self) -> None:
        """Checks with the store that this run still holds the lease."""
        with self._guard:
            self._read_held_lease()
        if self._loss_reason:
            raise _lease_lost_error(self._store, self._loss_reason)

    def is_held(self) -> bool:
        """Returns whether this run still holds the lease, according to the store.

        For optional work, such as cleaning up.
        """
        with suppress(OutputError):
            self.require_held()
            return True
        return False

    def require_not_lost(self) -> None:
        """Checks that no loss was noticed before the run published; sends no request."""
        if (
            self._loss_reason
            and self.end_publishing()
            and self.published_manifest is None
        ):
            raise _lease_lost_error(self._store, self._loss_reason)

    def end_publishing(self, seconds: float = -1) -> bool:
        """Stops this process from publishing, and waits for a publication in progress.

        Returns whether the wait ended within `seconds`; by default there is no limit.
        """
        self._end_reason = "the run has ended"
        ended = threading.Event()

        def wait() -> None:
            if self.swap_lock.acquire(timeout=seconds):
                self.swap_lock.release()
                ended.set()

        _run_uninterrupted(wait)
        return ended.is_set()

    def release(self) -> str:
        """Releases the lease; returns the reason if it was lost before, or "".

        Does nothing in a forked child, or if the lease was lost. Safe to repeat.
        """
        if os.getpid() == self._pid:
            _run_uninterrupted(self._release)
        return self._loss_reason if self._loss_reason != _RELEASED else ""

    def _release(self) -> None:
        with self._file_change:
            if self._is_released:
                return
            self._stop.set()
            if self._thread.is_alive():
                self._thread.join(timeout=30)
            # Without the guard: the renewing thread has ended, and an interrupted check
            # may have left the guard locked.
            with suppress(OutputError):
                held_bytes = self._read_held_lease()
                if held_bytes is not None:
                    self._store.discard(LEASE_NAME, expected_content=held_bytes)
                    self._loss_reason = _RELEASED
            self._is_released = True

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
            raise _lease_lost_error(
                self._store, lost
            ) from error  # the cause of the other

    def _renew_until_stopped(self) -> None:
        interval = self._holder.lease_seconds / RENEWALS_PER_LEASE
        while not self._stop.wait(interval):
            with self._guard:
                try:
                    self._renew()
                except Exception as error:
                    # The next iteration tries again, until the lease expires.
                    _log.warning("the lease could not be renewed: %s", error)
                if self._loss_reason:
                    _log.error(
                        "the lease on the output was lost: %s", self._loss_reason
                    )
                    return

    def _renew(self) -> None:
        began = boot_clock()
        lease_bytes = self._read_held_lease()
        if lease_bytes is None:
            return
        count = self._holder.renewals + 1
        holder = replace(self._holder, renewed=utc_now(), renewals=count)
        self._holder = holder  # even if the swap fails: its bytes may arrive
        if not self._store.swap(
            holder.to_bytes(), LEASE_NAME, expected_content=lease_bytes
        ):
            self._loss_reason = "another run took it over"
            return
        self._check_time()  # during a sleep here, another run may have begun and ended
        self._renewed = began

    def _read_held_lease(self) -> bytes | None:
        """Returns the lease file, or None after setting `_lost` if the lease was lost."""
        self._check_time()
        if self._loss_reason:
            return None
        lease_bytes = self._store.read_if_exists(LEASE_NAME)
        if lease_bytes is None:
            self._loss_reason = "its lock file was removed"
            return None
        if lease_bytes == self._holder.to_bytes():
            return lease_bytes
        holder = parse_json(lease_bytes, Holder)
        if holder is None or holder.nonce != self._holder.nonce:
            self._loss_reason = "another run took it over"
            return None
        return lease_bytes

    def _check_time(self) -> None:
        unrenewed = boot_clock() - self._renewed
        if not self._loss_reason and unrenewed > self._holder.lease_seconds:
            self._loss_reason = (
                f"it could not be renewed for {unrenewed:.0f} s (the machine slept or "
                "the storage did not answer)"
            )


def acquire(
    store: Store,
    *,
    lease_seconds: float = LEASE_SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
) -> Lease:
    """Checks an output and acquires the lease on it, for a `with` statement.

    Args:
      store: the store of the output.
      lease_seconds: how long a dead run on another machine blocks other runs.
      settle_seconds: the pause on a store that does not swap exclusively.

    Raises:
      OutputError: another run holds the lease, or the storage refuses.
    """
    exclusive = store.preflight()
    for turn in range(_TRIES):
        if turn:
            # Several runs collided; a random pause avoids another collision.
            time.sleep(random.uniform(0.05, 0.5))
        dead = require_idle(store)
        since = boot_clock()
        lease = Lease(store, Holder.this_process(lease_seconds), since)
        if not lease.try_acquire(store, dead):
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
        f"{store.uri}: other runs started to write here at the same time; run again "
        "later"
    )


def release_all() -> None:
    """Releases all leases of this process, the last one first.

    For an interrupted command, after its threads have stopped writing.
    """
    for lease in reversed([*_leases.values()]):
        lease.end_publishing()  # mostly without a wait: the run did so at its end
        lease.release()


def remove_dead_lease(store: Store) -> None:
    """Removes the lease of a run that was killed on this machine; never waits."""
    lease_bytes = store.read_if_exists(LEASE_NAME)
    holder = parse_json(lease_bytes or b"", Holder)
    if lease_bytes is not None and holder is not None and holder.has_died():
        store.discard(LEASE_NAME, expected_content=lease_bytes)


def require_holder(store: Store, nonce: str) -> None:
    """Checks that a lease is still held, for a worker that knows only its nonce."""
    holder = parse_json(store.read_if_exists(LEASE_NAME) or b"", Holder)
    if holder is None or holder.nonce != nonce:
        raise _lease_lost_error(store, "another run took it over")


@contextmanager
def hold_for_publication(nonce: str) -> Iterator[Lease | None]:
    """Keeps the end of a run waiting while this process swaps in its manifest.

    Yields the lease of the run, or None if another process holds it.

    Raises:
      BusyError: the lease was lost, or the run has ended.
    """
    lease = _leases.get(nonce)
    if lease is None:
        yield None
        return
    with lease.swap_lock:
        if lost := lease._loss_reason or lease._end_reason:
            raise _lease_lost_error(lease._store, lost)
        yield lease


def _lease_lost_error(store: Store, reason: str) -> BusyError:
    return BusyError(
        f"{store.uri}: this run lost its lease on the output: {reason}. Nothing more is "
        "published; run again"
    )
