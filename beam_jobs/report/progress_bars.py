"""Draws the progress of a run on a terminal, some times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from recordmill.beam_jobs.report.progress import Clock, Watch
from recordmill.beam_jobs.report.progress_view import STAGES, View, duration
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.tasks.context import RunContext

if TYPE_CHECKING:
    from rich.console import Console, Group

_DRAWN_PER_SECOND = 4


class Bars:
    """A reporter that draws on a terminal: the stages, a bar, and the counts.

    Args:
      console: of the terminal.
      clock: gives seconds.
      spell: spells the options in warnings.
      stages: of the work, in order.
    """

    def __init__(
        self,
        console: Console,
        clock: Clock = time.monotonic,
        spell: Callable[[str], str] = lambda text: text,
        stages: Sequence[str] = STAGES,
    ) -> None:
        from rich.live import Live

        self._console = console
        self._clock = clock
        self._spell = spell
        self._stages = stages
        self.watch = Watch(clock)
        self._live = Live(
            console=console,
            get_renderable=self._drawn,
            refresh_per_second=_DRAWN_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        # The cursor stays: a process that is killed could not bring it back.
        self._console.show_cursor(True)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal may be gone: SIGHUP says so
            self._live.stop()

    def doing(self, stage: str, what: str) -> None:
        self.watch.set(View(stage, what))
        self.draw()

    def tell(self, understood: Understood) -> None:
        for line in understood.lines():
            self._print(line)
        for warning in understood.warnings:
            self._print(f"Warning: {self._spell(warning)}")

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        self.watch.follow(context, ranges, input_bytes)

    def poll(self) -> None:
        pass  # drawn by a thread

    def end(self) -> None:
        self.watch.look(now=True)
        self.draw()

    def draw(self) -> None:
        """Draws at once, not only when the thread comes to it."""
        with suppress(OSError):
            self._live.refresh()

    def _print(self, line: str) -> None:
        with suppress(OSError):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        view = self.watch.look()
        elapsed = self._clock() - self.watch.started
        head = Text(no_wrap=True, overflow="ellipsis")
        mark = "|/-\\"[int(elapsed * _DRAWN_PER_SECOND) % 4]
        head.append(f"{mark} {duration(elapsed):>4}  ")
        for at, stage in enumerate(self._stages):
            head.append(" > " if at else "", "dim")
            head.append(stage, "bold" if stage == view.stage else "dim")
        row = Table.grid(padding=(0, 1))
        cells: list[ProgressBar | Text] = []
        if view.share is not None:
            cells.append(ProgressBar(100, 100 * view.share, width=20))
        facts = ", ".join(view.facts())
        cells.append(Text(f"{view.stage}: {facts}", overflow="fold"))
        row.add_row(*cells)
        if self.watch.first_reject:
            return Group(head, row, Text(self.watch.first_reject, overflow="fold"))
        return Group(head, row)
