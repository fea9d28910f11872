"""Shows people the progress of a run: on a terminal always, else a line now and then.

The work may hold the main thread for long (it lists a store, imports Beam, waits for a
lease), so what is shown is drawn by a thread of its own. It looks at the run's folder,
and never asks the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self, TextIO

from recordmill.beam_jobs.report.progress_view import STAGES, RunView, View
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.finished_tasks import FinishedTasks, find_position
from recordmill.transforms.tasks.read_rejects import first_reject_line

SECONDS_BETWEEN_LINES = 10.0
Clock = Callable[[], float]


class Silent:
    """A reporter that shows no progress: for JSON.

    Args:
      warn: shows a warning, before the work begins.
    """

    def __init__(self, warn: Callable[[str], None] = lambda _: None) -> None:
        self._warn = warn

    def doing(self, stage: str, what: str) -> None:
        pass

    def tell(self, understood: Understood) -> None:
        for warning in understood.warnings:
            self._warn(warning)

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        pass

    def poll(self) -> None:
        pass

    def end(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Watch:
    """What is known of the work that is shown; asked by the thread that draws.

    Args:
      clock: gives seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._run: tuple[FinishedTasks, RunContext, Sequence[InputRange]] | None = None
        self._run_view: RunView | None = None
        self.started = clock()
        self.view = View(STAGES[0])
        self.first_reject = ""  # in a line; of a task that is finished

    def set(self, view: View) -> None:
        """Shows this from now on: the work of a command, not of a run's tasks."""
        self._run = None
        self.view = view

    def follow(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        """Follows the tasks of a run from now on."""
        self._run_view = RunView(
            input_bytes, len(ranges), by_reference=context.exchange == "reference"
        )
        finished = FinishedTasks(context.workspace, self._clock)
        self._run = finished, context, ranges

    def look(self, *, now: bool = False) -> View:
        """Returns what there is to show; looks at the run's tasks if it is time."""
        run = self._run
        # A folder or store that cannot be read is the run's business, not the watch's.
        with suppress(Exception):
            if run is not None and self._run_view is not None and run[0].look(now=now):
                finished, context, ranges = run
                position = find_position(finished, ranges, context.readings)
                self.view = self._run_view.at(self._clock(), position)
                finished.rest()
                if self.view.rejected and not self.first_reject:
                    self.first_reject = first_reject_line(context.workspace)
        return self.view

    def num_finished(self) -> tuple[int, int]:
        """Returns how many ranges were read and shards written, at the last look."""
        return self._run[0].counts() if self._run else (0, 0)

    def rows_rejected(self) -> int | None:
        """Returns the rejects of the finished tasks; None if nobody knows."""
        return self._run[0].rows_rejected() if self._run else None


class PlainLines:
    """A reporter that writes a line every ten seconds, where there is no terminal.

    Args:
      stream: where lines go.
      warn: shows a warning, before the work begins.
      clock: gives seconds.
    """

    def __init__(
        self,
        stream: TextIO,
        warn: Callable[[str], None] = lambda _: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._stream = stream
        self._warn = warn
        self._clock = clock
        self._told = clock()
        self._rejects_told = False
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
        self.watch = Watch(clock)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:  # no line comes behind what is told at the end
            self._over.set()

    def doing(self, stage: str, what: str) -> None:
        self.watch.set(View(stage, what))

    def tell(self, understood: Understood) -> None:
        for warning in understood.warnings:
            self._warn(warning)

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        self.watch.follow(context, ranges, input_bytes)

    def poll(self) -> None:
        pass  # written by a thread

    def end(self) -> None:
        pass

    def write(self) -> None:
        """Writes a line, if it is time; of the first reject at once."""
        now = self._clock()
        view = self.watch.look()
        if self.watch.first_reject and not self._rejects_told:
            self._rejects_told = True
            self._write_line(self.watch.first_reject)
        if now - self._told < SECONDS_BETWEEN_LINES:
            return
        self._told = now
        self._write_line(view.line())

    def _write_line(self, line: str) -> None:
        # It may have looked at the run for long.
        with self._writing, suppress(OSError, ValueError):  # nobody reads it any more
            if self._over.is_set():
                return
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            self.write()
