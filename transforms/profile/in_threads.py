"""Reads input ranges by threads of one process, without Beam."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import TypeVar

from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.base import Source

_TASKS_AHEAD = 2  # per worker: none waits, and few results wait to be merged

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def surveyed(
    source: Source, ranges: Sequence[InputRange], workers: int
) -> list[InputRange]:
    """Returns ranges that can be read: after a survey of each, if the source needs it."""
    if not source.needs_survey(ranges):
        return list(ranges)
    surveys = dict(in_threads(partial(_survey, source), ranges, workers))
    return source.resolve_ranges(
        ranges, [surveys[input_range.index] for input_range in ranges]
    )


def _survey(source: Source, input_range: InputRange) -> tuple[int, int]:
    return input_range.index, source.survey(input_range)


def in_threads(
    function: Callable[[_In], _Out], items: Iterable[_In], workers: int
) -> Iterator[_Out]:
    """Yields a function's results as they come, in any order; few are held at once."""
    todo = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        running = {
            pool.submit(function, item) for item in islice(todo, workers * _TASKS_AHEAD)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
            running |= {pool.submit(function, item) for item in islice(todo, len(done))}
