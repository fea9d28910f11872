"""Who holds a lease: what a lock says of its run, and whether that run is alive."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease; plain facts, no secrets.

    Attributes:
      host: name of the machine.
      pid: process on it.
      boot_id: of the machine since it was last started.
      pid_namespace: within which `pid` means something (containers have their own).
      process_start: of the process, in clock ticks since boot; pids are used again.
      nonce: of this one lease.
      started: when it was taken, for people.
      renewed: when it was last renewed by the holder's clock, for people.
      lease_seconds: for how long a renewal counts.
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
        """The holder written in a lock, or None if it cannot be understood."""
        try:
            facts: dict[str, Any] = json.loads(data)
            holder = cls(**{name: facts[name] for name in cls.__slots__})
            return replace(
                holder, pid=int(holder.pid), lease_seconds=float(holder.lease_seconds)
            )
        except (ValueError, TypeError, KeyError):
            return None

    def to_bytes(self) -> bytes:
        facts = {name: getattr(self, name) for name in self.__slots__}
        expires = datetime.fromisoformat(self.renewed).timestamp() + self.lease_seconds
        facts["expires"] = datetime.fromtimestamp(expires, UTC).isoformat()
        return json.dumps(facts, indent=1).encode() + b"\n"

    def is_on_this_machine(self) -> bool:
        """Whether its process would be visible from here if it were alive."""
        here = (socket.gethostname(), _boot_id(), _pid_namespace())
        there = (self.host, self.boot_id, self.pid_namespace)
        return bool(self.boot_id) and there == here

    def is_running(self) -> bool:
        """Whether its process is alive, on this machine."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # somebody else's, so it is there
        if _process_facts(self.pid)[:1] in (["Z"], ["X"]):
            return False  # killed, but nobody has asked yet how it ended
        return self.process_start in ("", _process_start(self.pid))


def utc_now() -> str:
    """The time of day, as locks tell it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _text_of(read: Callable[[], str]) -> str:
    try:
        return read().strip()
    except OSError:
        return ""


def _boot_id() -> str:
    return _text_of(Path("/proc/sys/kernel/random/boot_id").read_text)


def _pid_namespace() -> str:
    return _text_of(lambda: str(Path("/proc/self/ns/pid").readlink()))


def _process_facts(pid: int) -> list[str]:
    """The fields of a process's stat from the third on: state, parent, ..."""
    # The second is the command in brackets, which may hold blanks and brackets.
    text = _text_of(Path(f"/proc/{pid}/stat").read_text)
    return text.rpartition(")")[2].split()


def _process_start(pid: int) -> str:
    facts = _process_facts(pid)
    return facts[19] if len(facts) > 19 else ""
