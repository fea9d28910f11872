"""Shows the progress of a run: continuously on a terminal, otherwise as periodic lines.

The work may block the main thread for long (it lists a store, imports Beam, waits for a
lease), so a separate thread draws the progress. It reads the run's folder and never calls
the run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, TextIO

from recordmill.beam_jobs.report.terminal import make_console
from recordmill.schemas.input_summary import InputReport, InputWarning
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import escape_unprintable, format_bytes, format_count
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.progress_reader import (
    Reporter,
    RunProgress,
    TaskMonitor,
    run_progress,
)
from recordmill.transforms.tasks.rejects import first_reject_line

if TYPE_CHECKING:
    from rich.console import Console, Group


STAGES = ("scan", "read", "plan", "write", "publish")
_RATE_SECONDS = 30.0  # window over which a rate is averaged
_MIN_RATE_SECONDS = 1.0  # shortest window; a rate over less time would be a guess
_WRITE_RATE = 300e6  # bytes per second, measured; used until the run has its own rate
# time without progress after which the progress line reports it
_STALLED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class View:
    """The displayed progress of a run at one moment."""

    stage: str  # one of STAGES, or the name of another command's work
    activity: str = ""  # the current activity, if no counts show it
    num_done: float = 0  # bytes, or the count that `unit` names
    total: float | None = None  # total of `done`; None if unknown
    unit: str = "bytes"  # "bytes", or the noun that is counted
    rows: int | None = None  # rows read or written; None if unknown
    total_rows: int | None = None  # None if unknown
    is_estimate: bool = False  # whether `total_rows` is extrapolated
    rows_per_second: float | None = None  # None if unknown
    rejected: int = 0  # rows that become no record
    seconds_left: float | None = None  # for the whole run; None if unknown
    seconds_without_progress: float = 0.0  # seconds since the last progress

    @property
    def finished_share(self) -> float | None:
        """Returns the finished share of the stage, from 0 to 1; None if unknown."""
        return min(1.0, self.num_done / self.total) if self.total else None

    def parts(self) -> list[str]:
        """Returns the parts of the progress line, most important first."""
        done, total = self.num_done, self.total
        is_bytes = self.unit == "bytes"
        facts = [self.activity] if self.activity else []
        if self.finished_share is not None:
            facts.append(f"{int(100 * self.finished_share)} %")
        if total and is_bytes:
            facts.append(f"{format_bytes(min(done, total))} of {format_bytes(total)}")
        elif total:
            facts.append(f"{done:,.0f} of {format_count(round(total), self.unit)}")
        elif done:
            whole = format_count(round(done), self.unit)
            facts.append(format_bytes(done) if is_bytes else whole)
        if self.rows is not None and self.total_rows:
            about = "about " if self.is_estimate else ""
            facts.append(
                f"{self.rows:,} of {about}{format_count(self.total_rows, 'row')}"
            )
        elif self.rows:
            facts.append(format_count(self.rows, "row"))
        if self.rows_per_second:
            # Three digits: 182,437 rows/s would suggest more precision than the rate has.
            digits = max(0, len(str(int(self.rows_per_second))) - 3)
            facts.append(f"{round(round(self.rows_per_second, -digits)):,} rows/s")
        if self.rejected:
            facts.append(f"{format_count(self.rejected, 'row')} rejected")
        if self.seconds_without_progress >= _STALLED_SECONDS:
            facts.append(f"no progress for {duration(self.seconds_without_progress)}")
        elif self.seconds_left is not None:
            facts.append(f"about {duration(self.seconds_left)} left")
        return facts

    def line(self) -> str:
        """Returns the progress as one line."""
        return f"{self.stage}: {', '.join(self.parts())}"


def duration(seconds: float) -> str:
    """Returns a duration in one or two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


@dataclass(slots=True)
class Rate:
    """The mean speed of a count over the last half minute."""

    samples: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, timestamp: float, value: float) -> None:
        """Adds a count at a time in seconds; a decreasing count resets the rate."""
        if self.samples and value < self.samples[-1][1]:
            self.samples.clear()
        self.samples.append((timestamp, value))
        while len(self.samples) > 2 and timestamp - self.samples[1][0] >= _RATE_SECONDS:
            self.samples.popleft()

    def per_second(self) -> float | None:
        """Returns the rate; None if it is zero or not known yet."""
        if len(self.samples) < 2:
            return None
        (start_time, first_total), (end_time, last_total) = (
            self.samples[0],
            self.samples[-1],
        )
        if end_time - start_time < _MIN_RATE_SECONDS or last_total <= first_total:
            return None
        return (last_total - first_total) / (end_time - start_time)


@dataclass(slots=True)
class RunStateView:
    """The displayed state of a run, with rates and remaining time from its positions."""

    input_bytes: int  # size of the input
    num_ranges: int  # number of input ranges
    # whether ranges are only listed, and shards read the input
    by_reference: bool = False
    read_rate: Rate = field(default_factory=Rate)
    write_rate: Rate = field(default_factory=Rate)
    row_rate: Rate = field(default_factory=Rate)
    record_rate: Rate = field(default_factory=Rate)
    last_position: RunProgress | None = None
    last_change: float = 0.0  # time of the first look at `last`

    def view_at(self, timestamp: float, position: RunProgress) -> View:
        """Returns the view of a position; `timestamp` is in seconds of a clock."""
        if position != self.last_position:
            self.last_position, self.last_change = position, timestamp
        view = self._compute_view(timestamp, position)
        # While publishing, nothing is counted for long.
        return (
            view
            if view.stage == "publish"
            else replace(view, seconds_without_progress=timestamp - self.last_change)
        )

    def _compute_view(self, timestamp: float, position: RunProgress) -> View:
        rejected = position.rejected
        all_read = position.num_read_ranges >= self.num_ranges * position.readings
        begun = position.num_written_shards or any(
            n.startswith("shard-") for n in position.active_tasks
        )
        if any(name.startswith("publish-") for name in position.active_tasks):
            doing = (
                "checking the shards" if position.verified_bytes else "moving the files"
            )
            return View("publish", doing, position.verified_bytes, rejected=rejected)
        if (
            position.plan_totals
            and position.num_written_shards >= position.plan_totals.shards
        ):
            return View("publish", "checking and moving the files", rejected=rejected)
        if position.plan_totals and (all_read or begun):
            self.write_rate.add(timestamp, position.written_counts.bytes)
            self.record_rate.add(timestamp, position.written_counts.rows)
            return replace(self._writing_view(position), rejected=rejected)
        if all_read and position.num_repeated_ranges:
            again = format_count(position.num_repeated_ranges, "range")
            return View("read", f"{again} again, with wider types")
        if all_read:
            return View("plan", "planning the shards", rejected=rejected)
        ranges = self.num_ranges, "range"
        if not position.num_read_ranges and not position.read_counts.positions:
            if 0 < (done := position.num_scanned_ranges) < self.num_ranges:
                return View("scan", "scanning row boundaries", done, *ranges)
            return View("read", "starting")
        if self.by_reference:
            return View("scan", "listing the rows", position.num_read_ranges, *ranges)
        self.read_rate.add(timestamp, position.read_counts.positions)
        self.row_rate.add(timestamp, position.read_counts.rows)
        return replace(self._reading_view(position), rejected=rejected)

    def _reading_view(self, position: RunProgress) -> View:
        read, total = position.read_counts, position.total_positions
        share = read.positions / total if total else 1.0
        speed = self.read_rate.per_second()
        left = None
        if speed:
            writing = 0 if position.plan_totals else self.input_bytes / _WRITE_RATE
            left = (total - read.positions) / speed + writing
        # If each range is read twice, `read.rows` counts the rows of the current pass.
        of_rows = share
        if position.readings > 1:
            of_rows = share * 2 if share <= 0.5 else share * 2 - 1
        is_row_count_known = position.knows_rows and of_rows > 0
        return View(
            "read",
            num_done=self.input_bytes * position.readings * share,
            total=self.input_bytes * position.readings,
            rows=read.rows if is_row_count_known else None,
            total_rows=round(read.rows / of_rows) if is_row_count_known else None,
            is_estimate=True,
            rows_per_second=self.row_rate.per_second(),
            seconds_left=left,
        )

    def _writing_view(self, position: RunProgress) -> View:
        planned, written = position.plan_totals, position.written_counts
        assert planned is not None  # called only if the shards are planned
        if not position.knows_rows:
            return View(
                "write", "", position.num_written_shards, planned.shards, "shard"
            )
        speed = self.write_rate.per_second()
        left = max(0, planned.bytes - written.bytes) / speed if speed else None
        return View(
            "write",
            num_done=written.bytes,
            total=planned.bytes,
            rows=written.rows,
            total_rows=planned.records,
            rows_per_second=self.record_rate.per_second(),
            seconds_left=left,
        )


SECONDS_BETWEEN_LINES = 10.0
Clock = Callable[[], float]
SpellOptions = Callable[[str], str]


class Display(Reporter):
    """A reporter that follows a run; the base class shows nothing."""

    def __init__(
        self, spell: SpellOptions = str, clock: Clock = time.monotonic
    ) -> None:
        super().__init__()
        self._spell = spell  # options in warnings
        self._shown_warnings: set[InputWarning] = set()
        self._clock = clock
        self._start_time = clock()
        self.view = View(STAGES[0])
        self.first_reject = ""
        self.finished: TaskMonitor | None = None
        self.position: RunProgress | None = None  # of the tasks, at the last look

    def set_view(self, view: View) -> None:
        """Sets the view to the work of a command, in place of a run's tasks."""
        self.finished = None
        self.view = view

    def show_activity(self, stage: str, activity: str) -> None:
        self.set_view(View(stage, activity))

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        super().begin(context, ranges, input_bytes)
        by_reference = context.exchange == "reference" or context.sends_references
        run = RunStateView(input_bytes, len(ranges), by_reference)

        def view(finished: TaskMonitor) -> None:
            self.position = run_progress(finished, ranges, context.num_readings)
            self.view = run.view_at(self._clock(), self.position)
            finished.schedule_next_look()
            if self.view.rejected and not self.first_reject:
                self.first_reject = first_reject_line(context.workspace)

        self._view = view
        self.finished = TaskMonitor(context.workspace, self._clock)

    def new_warnings(self, input_report: InputReport) -> list[InputWarning]:
        """Returns the warnings that were not returned before, with spelled options."""
        warnings = input_report.with_spelling(self._spell).warnings
        unshown_warnings = [
            warning for warning in warnings if warning not in self._shown_warnings
        ]
        self._shown_warnings.update(unshown_warnings)
        return unshown_warnings

    def update_view(self, *, at_once: bool = False) -> View:
        """Returns the view; updates it from the run's tasks if due or forced."""
        finished = self.finished
        # If the folder or store cannot be read, the run itself reports it.
        with suppress(Exception):
            if finished is not None and finished.poll(at_once=at_once):
                self._view(finished)
        return self.view


class PlainLines(Display):
    """A reporter that writes a line every ten seconds, for output without a terminal."""

    def __init__(
        self, stream: TextIO, spell: SpellOptions = str, clock: Clock = time.monotonic
    ) -> None:
        super().__init__(spell, clock)
        self._stream = stream
        self._last_line = clock()
        self._is_reject_shown = False
        self._is_over = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:  # no line follows the summary
            self._is_over.set()

    def report_input(self, input_report: InputReport) -> None:
        for warning in self.new_warnings(input_report):
            self._write_line(f"Warning: {warning}")

    def write(self) -> None:
        """Writes a progress line if it is due, and the first reject immediately."""
        timestamp = self._clock()
        view = self.update_view()
        if self.first_reject and not self._is_reject_shown:
            self._is_reject_shown = True
            self._write_line(self.first_reject)
        if timestamp - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = timestamp
            self._write_line(view.line())

    def _write_line(self, line: str) -> None:
        # The look at the run may have taken long, and the run may be over.
        with self._writing:
            if self._is_over.is_set():
                return
            self._stream.write(f"{escape_unprintable(line)}\n")
            self._stream.flush()

    def _tick(self) -> None:
        while not self._is_over.wait(1.0):
            self.write()


_DRAWN_PER_SECOND = 4


class Bars(Display):
    """A reporter that draws on a terminal: stages, a bar, and counts."""

    def __init__(
        self,
        console: Console,
        spell: SpellOptions = str,
        clock: Clock = time.monotonic,
        stages: Sequence[str] = STAGES,
    ) -> None:
        from rich.live import Live

        super().__init__(spell, clock)
        self._console = console
        self._stages = stages
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=_DRAWN_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        # The cursor stays visible: a killed process could not restore it.
        self._console.show_cursor(True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show_activity(self, stage: str, activity: str) -> None:
        super().show_activity(stage, activity)
        self.refresh()

    def report_input(self, input_report: InputReport) -> None:
        for line in input_report.to_lines():
            self._print(line)
        for warning in self.new_warnings(input_report):
            self._print(f"Warning: {warning}")

    def end(self) -> None:
        super().end()
        self.update_view(at_once=True)
        self.refresh()

    def refresh(self) -> None:
        """Draws immediately, without waiting for the thread."""
        self._live.refresh()

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        view = self.update_view()
        elapsed = self._clock() - self._start_time
        head = Text(no_wrap=True, overflow="ellipsis")
        mark = "|/-\\"[int(elapsed * _DRAWN_PER_SECOND) % 4]
        head.append(f"{mark} {duration(elapsed):>4}  ")
        for at, stage in enumerate(self._stages):
            head.append(" > " if at else "", "dim")
            head.append(stage, "bold" if stage == view.stage else "dim")
        row = Table.grid(padding=(0, 1))
        cells: list[ProgressBar | Text] = []
        if view.finished_share is not None:
            cells.append(ProgressBar(100, 100 * view.finished_share, width=20))
        facts = ", ".join(view.parts())
        cells.append(
            Text(escape_unprintable(f"{view.stage}: {facts}"), overflow="fold")
        )
        row.add_row(*cells)
        rejected = Text(escape_unprintable(self.first_reject), overflow="fold")
        return Group(head, row, *([rejected] if self.first_reject else []))


@contextmanager
def show_progress(
    stream: TextIO,
    stage: str,
    doing: str = "",
    *,
    unit: str = "bytes",
    is_shown: bool = True,
) -> Iterator[Callable[[float, float | None], None]]:
    """Yields a function that shows the progress (done, total) of a command's work.

    `stage` names the work in one word, `doing` the activity before the first counts are
    known, and `unit` the noun that is counted.
    """
    if not is_shown:
        yield lambda _done, _total: None
        return
    display: PlainLines | Bars = PlainLines(stream)
    if stream.isatty():
        display = Bars(make_console(stream), stages=(stage,))
    display.set_view(View(stage, doing))
    with display:
        yield lambda done, total: display.set_view(
            View(stage, num_done=done, total=total, unit=unit)
        )
