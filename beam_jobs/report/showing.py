"""Shows the progress of commands that start no pipeline: verify, plan, schema infer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, Self, TextIO

from recordmill.beam_jobs.report.progress import PlainLines, Watch
from recordmill.beam_jobs.report.progress_view import View


class _Display(Protocol):
    """A display of the work of a command."""

    watch: Watch

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@contextmanager
def showing(
    stream: TextIO,
    stage: str,
    doing: str = "",
    *,
    unit: str = "bytes",
    wanted: bool = True,
) -> Iterator[Callable[[float, float | None], None]]:
    """Gives a function that shows (done, total) of a command's work.

    Args:
      stream: where it is shown: a terminal always, others a line now and then.
      stage: the work, in one word.
      doing: what goes on before the first counts are known.
      unit: what is counted.
      wanted: whether to show anything.
    """
    if not wanted:
        yield lambda _done, _total: None
        return
    display: _Display = PlainLines(stream)
    if stream.isatty():
        from rich.console import Console

        from recordmill.beam_jobs.report.progress_bars import Bars

        display = Bars(Console(file=stream), stages=(stage,))
    display.watch.set(View(stage, doing))
    with display:
        yield lambda done, total: display.watch.set(
            View(stage, done=done, total=total, unit=unit)
        )
