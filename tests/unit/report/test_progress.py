"""The lines and the drawing of a run's progress."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest
from rich.console import Console
from terminal import shown_on

from recordmill.beam_jobs.report.progress import Bars, PlainLines, View, showing
from recordmill.schemas.input_summary import InputSummary

PATIENCE_SECONDS = 60  # generous; nothing here takes a hundredth of it


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def text_of(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_a_line_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = PlainLines(stream, clock=clock)
    lines.doing("scan", "listing the inputs")
    for second in range(35):
        clock.now = 1_000 + second
        if second == 15:
            lines.set(View("read", done=1, total=4))
        lines.write()
    assert stream.getvalue().splitlines() == [
        "scan: listing the inputs",
        "read: 25 %, 1 B of 4 B",
        "read: 25 %, 1 B of 4 B",
    ]


def test_a_stream_that_is_gone_stops_nothing() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = PlainLines(stream, clock=clock)
    stream.close()
    clock.now += 60
    lines.write()


def test_no_line_comes_behind_the_end() -> None:
    """The thread may have looked at the run while the run ended, and was told so."""
    stream, clock = io.StringIO(), Clock()
    with PlainLines(stream, clock=clock) as lines:
        clock.now += 60
    lines.first_reject = "rejected: a.csv byte 17"
    lines.write()
    assert stream.getvalue() == ""


def test_a_short_command_writes_no_line() -> None:
    stream = io.StringIO()
    with showing(stream, "verify", "reading the manifest") as show:
        show(1, 2)
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    """A terminal that tells when so many frames with some text were drawn."""

    def __init__(self, wanted: str, frames: int) -> None:
        super().__init__()
        self._wanted = wanted
        self._left = frames
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._left -= text_of(text).count(self._wanted)
        if self._left <= 0:
            self.drawn.set()
        return super().write(text)


def test_drawn_while_the_main_thread_waits() -> None:
    """It may list a store or import Beam for long: a thread draws meanwhile."""
    stream = Terminal("listing the inputs", 4)
    console = Console(file=stream, force_terminal=True, width=120)
    with Bars(console) as bars:
        bars.doing("scan", "listing the inputs")
        assert stream.drawn.wait(PATIENCE_SECONDS)
    assert stream.getvalue().count("\x1b[?25h"), "the cursor is there again"


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """A real one: where it is read, and where a command writes."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stream:
        yield ours, stream
    os.close(ours)


def test_what_is_drawn(terminal: tuple[int, TextIO]) -> None:
    """The stages, a bar, the counts; what was understood stands above, for good."""
    ours, stream = terminal
    clock = Clock()
    with Bars(Console(file=stream, width=120, force_terminal=True), clock) as bars:
        bars.doing("scan", "reading the first rows")
        bars.tell(InputSummary((("delimiter", "comma"),), ("use `max_rejects`",)))
        clock.now += 75
        bars.set(View("read", done=3, total=4, rows=3, total_rows=4, rejected=1))
        bars.draw()
    stream.flush()
    shown = text_of(shown_on(ours))
    assert "scan > read > plan > write > publish" in shown
    assert "scan: reading the first rows" in shown
    assert "delimiter: comma" in shown
    assert "Warning: use `max_rejects`" in shown
    assert "1 min" in shown
    assert "read: 75 %, 3 B of 4 B, 3 of 4 rows, 1 row rejected" in shown


def test_the_first_reject_is_told_while_the_run_goes_on(
    terminal: tuple[int, TextIO],
) -> None:
    """At once, and in a log only once: who made a mistake need not wait for the end."""
    ours, stream = terminal
    with Bars(Console(file=stream, width=120, force_terminal=True)) as bars:
        bars.first_reject = "rejected: a.csv byte 17: price: '?' is no number"
        bars.draw()
    stream.flush()
    assert "rejected: a.csv byte 17: price: '?' is no number" in text_of(shown_on(ours))
    log = io.StringIO()
    lines = PlainLines(log, clock=Clock())
    lines.first_reject = "rejected: a.csv byte 17"
    lines.write()
    lines.write()
    assert log.getvalue() == "rejected: a.csv byte 17\n"


def test_a_narrow_terminal_shows_all(terminal: tuple[int, TextIO]) -> None:
    ours, stream = terminal
    with Bars(Console(file=stream, width=40, force_terminal=True)) as bars:
        bars.set(View("read", done=3, total=4, rows=3, total_rows=4, rejected=1))
        bars.draw()
    stream.flush()
    shown = re.sub(r"\s+", "", text_of(shown_on(ours)))
    assert "1rowrejected" in shown
