"""What people are told of a run, from its counts and a clock, in lines and drawn."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TextIO, cast

import pytest
from rich.console import Console
from terminal import shown_on

from recordmill.beam_jobs.report.progress import (
    Bars,
    PlainLines,
    Rate,
    RunStateView,
    View,
    duration,
    show_progress,
)
from recordmill.schemas.input_summary import InputReport, InputWarning
from recordmill.transforms.report_stream import as_report
from recordmill.transforms.tasks.progress_reader import (
    Counts,
    PlannedTotals,
    RunProgress,
)

NOTHING = RunProgress(
    num_scanned_ranges=0,
    read_counts=Counts(),
    total_positions=1_000,
    readings=1,
    written_counts=Counts(),
    num_read_ranges=0,
    num_written_shards=0,
    plan_totals=None,
    active_tasks=(),
    num_repeated_ranges=0,
    knows_rows=True,
)
PLANNED = PlannedTotals(shards=4, records=80, bytes=8_000_000)
ALL_READ = replace(NOTHING, read_counts=Counts(1_000, 82, 2), num_read_ranges=4)


def view_of_run(*, by_reference: bool = False) -> RunStateView:
    return RunStateView(input_bytes=2_000_000, num_ranges=4, by_reference=by_reference)


def test_a_whole_run() -> None:
    """Every stage by its name; totals as soon as something is known of them."""
    run = view_of_run()
    assert run.view_at(0, NOTHING).line() == "read: starting"
    half = replace(
        NOTHING, read_counts=Counts(250, 20, 0), active_tasks=("range-scratch-000000",)
    )
    assert run.view_at(10, half).line() == (
        "read: 25 %, 500.0 kB of 2.0 MB, 20 of about 80 rows"
    )
    half = replace(half, read_counts=Counts(500, 41, 1), num_read_ranges=1)
    assert run.view_at(20, half).line() == (
        "read: 50 %, 1.0 MB of 2.0 MB, 41 of about 82 rows, 2 rows/s, 1 row rejected, "
        "about 20 s left"
    )
    assert run.view_at(30, ALL_READ).line() == (
        "plan: planning the shards, 2 rows rejected"
    )
    planned = replace(ALL_READ, plan_totals=PLANNED)
    assert run.view_at(40, planned).line() == (
        "write: 0 %, 0 B of 8.0 MB, 0 of 80 rows, 2 rows rejected"
    )
    writing = replace(
        planned, written_counts=Counts(0, 20, 0, 2_000_000), num_written_shards=1
    )
    assert run.view_at(50, writing).line() == (
        "write: 25 %, 2.0 MB of 8.0 MB, 20 of 80 rows, 2 rows/s, 2 rows rejected, "
        "about 30 s left"
    )
    written = replace(
        planned, written_counts=Counts(0, 80, 0, 8_000_000), num_written_shards=4
    )
    assert run.view_at(60, written).line() == (
        "publish: checking and moving the files, 2 rows rejected"
    )
    checking = replace(
        written, active_tasks=("publish-verify",), verified_bytes=3_000_000
    )
    assert run.view_at(61, checking).line() == (
        "publish: checking the shards, 3.0 MB, 2 rows rejected"
    )


def test_nothing_new_for_long() -> None:
    """A runner may wait for ever: people are told, and not how long it will take."""
    run = view_of_run()
    half = replace(NOTHING, read_counts=Counts(500, 41))
    run.view_at(0, replace(NOTHING, read_counts=Counts(250, 20)))
    assert run.view_at(10, half).line().endswith("2 rows/s, about 20 s left")
    assert "no progress" not in run.view_at(309, half).line()
    line = run.view_at(370, half).line()
    assert line.endswith("41 of about 82 rows, no progress for 6 min")
    more = replace(half, read_counts=Counts(750, 60))
    assert "no progress" not in run.view_at(380, more).line()
    written = replace(ALL_READ, plan_totals=PLANNED, num_written_shards=4)
    run.view_at(400, written)
    assert "no progress" not in run.view_at(900, written).line()


def test_a_survey() -> None:
    view = view_of_run().view_at(0, replace(NOTHING, num_scanned_ranges=3))
    assert view.line() == "scan: scanning row boundaries, 75 %, 3 of 4 ranges"


def test_ranges_that_are_only_listed() -> None:
    """By reference, the input is read when shards are written."""
    listed = replace(NOTHING, read_counts=Counts(500), num_read_ranges=2)
    view = view_of_run(by_reference=True).view_at(0, listed)
    assert view.line() == "scan: listing the rows, 50 %, 2 of 4 ranges"


def test_ranges_that_are_read_again() -> None:
    position = replace(
        ALL_READ, num_repeated_ranges=2, active_tasks=("range-scratch-000001",) * 2
    )
    line = view_of_run().view_at(0, position).line()
    assert line == "read: 2 ranges again, with wider types"


def test_two_readings() -> None:
    """The bytes are those of both; the rows those of the reading at work."""
    position = replace(NOTHING, readings=2, total_positions=2_000, num_read_ranges=4)
    run = view_of_run()
    first = replace(position, read_counts=Counts(500, 40))
    assert run.view_at(0, first).line() == (
        "read: 25 %, 1.0 MB of 4.0 MB, 40 of about 80 rows"
    )
    second = replace(position, read_counts=Counts(1_250, 20), plan_totals=PLANNED)
    assert run.view_at(9, second).line() == (
        "read: 62 %, 2.5 MB of 4.0 MB, 20 of about 80 rows, about 9 s left"
    )


def test_a_store_tells_of_tasks_only() -> None:
    """Rows are in checkpoints, and each would cost a request."""
    position = replace(
        NOTHING, knows_rows=False, read_counts=Counts(500), num_read_ranges=2
    )
    run = view_of_run()
    assert run.view_at(0, position).line() == "read: 50 %, 1.0 MB of 2.0 MB"
    planned = replace(
        position, num_read_ranges=4, plan_totals=PLANNED, num_written_shards=1
    )
    assert run.view_at(1, planned).line() == "write: 25 %, 1 of 4 shards"


def test_a_resumed_run_counts_its_own_speed() -> None:
    """What an earlier try had finished took none of this run's time."""
    run = view_of_run()
    finished = replace(NOTHING, read_counts=Counts(900, 90), num_read_ranges=3)
    assert run.view_at(0, finished).seconds_left is None
    view = run.view_at(10, replace(finished, read_counts=Counts(910, 91)))
    assert view.seconds_left == pytest.approx(90, abs=0.1)


def test_a_rate_is_that_of_the_last_half_minute() -> None:
    rate = Rate()
    for second in range(100):
        rate.add(second, 10 * second)
    for second in range(100, 200):
        rate.add(second, 1000 + 50 * (second - 100))
    assert rate.per_second() == 50
    rate.add(200, 0)  # begins anew
    assert rate.per_second() is None
    rate.add(201, 7)
    assert rate.per_second() == 7


def test_a_rate_of_no_time_is_not_known() -> None:
    rate = Rate()
    rate.add(5, 1)
    rate.add(5, 100)
    assert rate.per_second() is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3_599, "1 h 0 min"),
        (7_384, "2 h 3 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_more_than_was_planned_is_all() -> None:
    """An estimate can be too low: never 101 %."""
    assert View("write", num_done=11, total=10).line() == "write: 100 %, 10 B of 10 B"


PATIENCE_SECONDS = 600  # generous; nothing here takes a hundredth of it


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
    lines.show_activity("scan", "listing the inputs")
    for second in range(35):
        clock.now = 1_000 + second
        if second == 15:
            lines.set_view(View("read", num_done=1, total=4))
        lines.write()
    assert stream.getvalue().splitlines() == [
        "scan: listing the inputs",
        "read: 25 %, 1 B of 4 B",
        "read: 25 %, 1 B of 4 B",
    ]


def test_a_stream_that_is_gone_stops_nothing() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = PlainLines(cast("TextIO", as_report(stream)), clock=clock)
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
    with show_progress(
        stream, "verify", "read only the manifest and the sizes"
    ) as show:
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
        bars.show_activity("scan", "listing the inputs")
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
    with Bars(
        Console(file=stream, width=120, force_terminal=True), clock=clock
    ) as bars:
        bars.show_activity("scan", "reading the first rows")
        warning = InputWarning("odd-cells", "use `max_rejects`")
        bars.report_input(InputReport((("delimiter", "comma"),), (warning,)))
        bars.report_input(InputReport(warnings=(warning,)))
        clock.now += 75
        bars.set_view(
            View("read", num_done=3, total=4, rows=3, total_rows=4, rejected=1)
        )
        bars.refresh()
    stream.flush()
    shown = text_of(shown_on(ours))
    assert "scan > read > plan > write > publish" in shown
    assert "scan: reading the first rows" in shown
    assert "delimiter: comma" in shown
    assert shown.count("Warning: use `max_rejects` [odd-cells]") == 1
    assert "1 min" in shown
    assert "read: 75 %, 3 B of 4 B, 3 of 4 rows, 1 row rejected" in shown


def test_the_first_reject_is_told_while_the_run_goes_on(
    terminal: tuple[int, TextIO],
) -> None:
    """At once, and in a log only once: who made a mistake need not wait for the end."""
    ours, stream = terminal
    with Bars(Console(file=stream, width=120, force_terminal=True)) as bars:
        bars.first_reject = "rejected: a.csv byte 17: price: '?' is no number"
        bars.refresh()
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
        bars.set_view(
            View("read", num_done=3, total=4, rows=3, total_rows=4, rejected=1)
        )
        bars.refresh()
    stream.flush()
    shown = re.sub(r"\s+", "", text_of(shown_on(ours)))
    assert "1rowrejected" in shown
