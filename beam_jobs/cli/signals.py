"""Ends the command on Ctrl-C, SIGTERM and SIGHUP: cleanly, and within a deadline.

The first of these signals raises Interrupted in the main thread. The run then stops its
tasks, reports to metrics and log, and releases the lease last. Further signals have no
effect, except a second Ctrl-C, which ends the process at once. The main thread may be
in a call that does not return, so another thread watches the deadline: after
DEADLINE_SECONDS it reports to metrics and log itself, and ends the process.

Process 1 of a container receives only signals that it handles.
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
from typing import NamedTuple

import click

from recordmill.schemas.errors import Interrupted
from recordmill.schemas.text import escape_message

DEADLINE_SECONDS = 6.0
REPORT_SECONDS = 3.0
PUBLISHED_CHECK_SECONDS = 2.0  # part of REPORT_SECONDS, to find out what was published

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


class Signals:
    """The signals that a process received, and the functions to call at the deadline."""

    def __init__(self) -> None:
        self._received_signals: list[int] = []
        self._deadline_callbacks: list[Callable[[Interrupted], None]] = []

    def handle(self) -> None:
        """Installs the handlers; call it once, in the main thread.

        A signal that is already ignored stays ignored, as `nohup` requires.
        """
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        for number in _NAMES:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._interrupt)
        # C code writes to this descriptor, even while the main thread is blocked.
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        watch = threading.Thread(target=self._watch, args=(read_end,), daemon=True)
        watch.start()

    @staticmethod
    def ignore() -> None:
        """Ignores the handled signals from now on: the process is about to end."""
        for number in _NAMES:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def reporting_at_deadline(
        self, report_interruption: Callable[[Interrupted], None]
    ) -> Iterator[None]:
        """Calls a function in another thread if the main thread does not end in time."""
        self._deadline_callbacks.append(report_interruption)
        try:
            yield
        finally:
            self._deadline_callbacks.remove(report_interruption)

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        self._received_signals.append(number)
        if len(self._received_signals) == 1:
            raise _make_interruption(number)
        if self._received_signals.count(signal.SIGINT) > 1 and number == signal.SIGINT:
            os._exit(128 + number)

    def _watch(self, read_end: int) -> None:
        number = os.read(read_end, 1)[0]
        while number not in _NAMES:
            number = os.read(read_end, 1)[0]
        time.sleep(DEADLINE_SECONDS)
        interrupted = _make_interruption(number)
        teller = threading.Thread(
            target=self._report_interruption, args=(interrupted,), daemon=True
        )
        teller.start()
        teller.join(REPORT_SECONDS)
        os._exit(interrupted.status)

    def _report_interruption(self, interrupted: Interrupted) -> None:
        for report_interruption in reversed(self._deadline_callbacks):
            with suppress(Exception):
                report_interruption(interrupted)
        if interrupted.logged_format:
            return
        with suppress(Exception):
            line = escape_message(interrupted.to_sentence())
            sys.__stderr__.write(f"{line}\n")  # type: ignore[union-attr]
            sys.__stderr__.flush()  # type: ignore[union-attr]


def _make_interruption(number: int) -> Interrupted:
    return Interrupted(number, _NAMES[signal.Signals(number)])


class Invocation(NamedTuple):
    """The process-wide state of a command: the `obj` of click's context."""

    signals: Signals
    beam_args: tuple[str, ...] = ()  # the arguments after --

    @classmethod
    def of_context(cls, context: click.Context) -> Invocation:
        """Returns the invocation of a command; a new one if a test runs the command."""
        return context.find_root().obj or cls(Signals())
