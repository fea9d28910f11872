"""Describes who holds a lease and tells whether that run is alive."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MAX_LEASE_SECONDS = 3600.0  # a lock that claims more is no lock of ours
_MAX_PID = (1 << 31) - 1
_MAX_RENEWALS = 1 << 53
# What their lock files do not tell.
_OF_EARLIER_VERSIONS = {"renewals": 0, "unsure": True, "released": False}


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds a lease, as written in its lock file; contains no secrets.

    Attributes:
      host: name of the machine.
      pid: process on it.
      boot_id: changes each time that the machine is started.
      pid_namespace: the namespace in which `pid` is valid (containers have their own).
      process_start: when the process began, in clock ticks since boot. A pid can be
        given to a later process, which has another start.
      nonce: random text that no other lease has.
      started: when the lease was taken, for people.
      renewed: when it was last renewed by the holder's clock, for people.
      lease_seconds: how long a renewal is valid.
      renewals: how often it was renewed, so that no two renewals are the same.
      unsure: whether a run that held the lease before may still be alive, as a machine
        that slept. Such a run may yet remove lock files that it knows of, so the number
        of this one must stay known: it is kept when it is released.
      released: whether nobody holds the lease; the file only keeps its number known.
    """

    host: str
    pid: int
    boot_id: str
    pid_namespace: str
    process_start: str
    nonce: str
    started: str
    renewed: str
    lease_seconds: float
    renewals: int = 0
    unsure: bool = False
    released: bool = False

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

    @classmethod
    def from_bytes(cls, data: bytes) -> Holder | None:
        """Returns the holder written in a lock file, or None if it cannot be parsed."""
        try:
            fields: dict[str, Any] = {**_OF_EARLIER_VERSIONS, **json.loads(data)}
            holder = cls(**{name: fields.pop(name) for name in cls.__slots__})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        others = {"pid", "lease_seconds", *_OF_EARLIER_VERSIONS}
        texts = [getattr(holder, n) for n in cls.__slots__ if n not in others]
        valid = (
            all(isinstance(text, str) for text in texts)
            and type(holder.renewals) is int
            and 0 <= holder.renewals <= _MAX_RENEWALS
            and type(holder.unsure) is type(holder.released) is bool
            and type(holder.pid) is int
            and 0 < holder.pid <= _MAX_PID
            and type(holder.lease_seconds) in (int, float)
            and 0 < holder.lease_seconds <= MAX_LEASE_SECONDS
        )
        return holder if valid else None

    def to_bytes(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        expires = datetime.fromisoformat(self.renewed).timestamp() + self.lease_seconds
        fields["expires"] = datetime.fromtimestamp(expires, UTC).isoformat()
        return json.dumps(fields, indent=1).encode() + b"\n"

    def has_ended(self) -> bool:
        """Tells whether its process is known to have ended, and others before it."""
        return self.has_died() and not self.unsure

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
