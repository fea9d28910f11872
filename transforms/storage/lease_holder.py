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

    @classmethod
    def this_process(cls, lease_seconds: float) -> Holder:
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
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Holder | None:
        """Returns the holder written in a lock file, or None if it cannot be parsed."""
        try:
            fields: dict[str, Any] = json.loads(data)
            holder = cls(**{name: fields.pop(name) for name in cls.__slots__})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        numbers = {"pid": holder.pid, "lease_seconds": holder.lease_seconds}
        texts = [getattr(holder, n) for n in cls.__slots__ if n not in numbers]
        valid = (
            all(isinstance(text, str) for text in texts)
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
