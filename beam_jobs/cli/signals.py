"""Ends the command on Ctrl-C, SIGTERM and SIGHUP: in order, and soon in any case.

The first of these signals raises Interrupted in the main thread: what the run began is
stopped, metrics and log are told, and the lease is released last. Further ones change
nothing, except a second Ctrl-C, which ends the process at once. A thread watches, as the
main thread may be in a call that does not return: after DEADLINE_SECONDS it tells metrics
and log by itself, and ends the process.

As process 1 of a container a process gets only signals that it handles.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from recordmill.schemas.errors import Interrupted

DEADLINE_SECONDS = 8.0
LAST_WORDS_SECONDS = 1.0

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
_seen: list[int] = []
_last_words: list[Callable[[Interrupted], None]] = []


def handle_signals() -> None:
    """Installs the handlers; call it once, in the main thread.

    A signal that is ignored stays ignored: `nohup` means it so.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in _NAMES:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    # Written by C code, whatever the main thread is doing.
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(
        target=_watch, args=(read_end,), name="signals", daemon=True
    ).start()


def ignore_signals() -> None:
    """Ignores these signals from now on: the process is about to end."""
    for number in _NAMES:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def told_at_the_deadline(tell: Callable[[Interrupted], None]) -> Iterator[None]:
    """Calls a function in another thread if the main thread does not end in time."""
    _last_words.append(tell)
    try:
        yield
    finally:
        _last_words.remove(tell)


def _interrupt(number: int, _: FrameType | None) -> None:
    _seen.append(number)
    if len(_seen) == 1:
        raise Interrupted(number, _NAMES[signal.Signals(number)])
    if _seen.count(signal.SIGINT) > 1 and number == signal.SIGINT:
        os._exit(128 + number)


def _watch(read_end: int) -> None:
    number = os.read(read_end, 1)[0]
    while number not in _NAMES:
        number = os.read(read_end, 1)[0]
    time.sleep(DEADLINE_SECONDS)
    interrupted = Interrupted(number, _NAMES[signal.Signals(number)])
    teller = threading.Thread(target=_tell, args=(interrupted,), daemon=True)
    teller.start()
    teller.join(LAST_WORDS_SECONDS)
    os._exit(interrupted.status)


def _tell(interrupted: Interrupted) -> None:
    for tell in reversed(_last_words):
        with suppress(Exception):
            tell(interrupted)
    if interrupted.in_log:
        return
    with suppress(Exception):
        sys.__stderr__.write(f"{interrupted.for_people()}\n")  # type: ignore[union-attr]
        sys.__stderr__.flush()  # type: ignore[union-attr]
