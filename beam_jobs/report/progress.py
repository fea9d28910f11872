"""Shows people the progress of a run, read from the checkpoints of finished tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import count
from recordmill.schemas.understood import Understood
from recordmill.transforms.tasks.checkpoints import FinishedTasks
from recordmill.transforms.tasks.context import RunContext

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Silent:
    """A reporter that shows no progress: for JSON, and where there is no terminal.

    Args:
      warn: shows a warning, before the work begins.
    """

    def __init__(self, warn: Callable[[str], None] = lambda _: None) -> None:
        self._warn = warn

    def tell(self, understood: Understood) -> None:
        for warning in understood.warnings:
            self._warn(warning)

    def begin(self, context: RunContext, ranges: Sequence[InputRange]) -> None:
        pass

    def poll(self) -> None:
        pass

    def end(self) -> None:
        pass


class Bars:
    """A reporter with one bar for the ranges read, one for the shards written.

    Args:
      console: of the terminal.
      warn: shows a warning, before the work begins.
    """

    def __init__(self, console: Console, warn: Callable[[str], None]) -> None:
        self._console = console
        self._warn = warn
        self._progress: Progress = _progress_on(console)
        self._finished: FinishedTasks | None = None
        self._read: TaskID | None = None
        self._write: TaskID | None = None

    def tell(self, understood: Understood) -> None:
        for line in understood.lines():
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        for warning in understood.warnings:
            self._warn(warning)

    def begin(self, context: RunContext, ranges: Sequence[InputRange]) -> None:
        self._finished = FinishedTasks(context.workspace)
        total = len(ranges) * context.readings
        self._read = self._progress.add_task("read", total=total, unit="ranges")
        self._write = self._progress.add_task("write", total=None, unit="shards")
        self._progress.start()

    def poll(self) -> None:
        if self._finished is None or self._read is None or self._write is None:
            return
        ranges, shards = self._finished.counts()
        unit = "ranges"
        if rejected := self._finished.rows_rejected():
            unit += f", {count(rejected, 'row')} rejected"
        self._progress.update(self._read, completed=ranges, unit=unit)
        self._progress.update(self._write, completed=shards)

    def end(self) -> None:
        self._progress.stop()


@contextmanager
def showing_ranges(
    stream: TextIO, *, wanted: bool = True
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that shows (ranges done, all ranges) on a terminal."""
    if not (wanted and stream.isatty()):
        yield lambda _done, _total: None
        return
    from rich.console import Console

    with _progress_on(Console(file=stream)) as progress:
        task = progress.add_task("read", total=None, unit="ranges")

        def update(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield update


def _progress_on(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        TextColumn("{task.description:>6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
