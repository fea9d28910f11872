"""Calls functions in threads: ahead of the use of their results, or with polling."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_ahead(
    items: Iterable[_Item],
    function: Callable[[_Item], _Result],
    threads: int,
    *,
    most: int | None = None,
    most_bytes: int | None = None,
    size_of: Callable[[_Item], int] = lambda _: 0,
) -> Iterator[_Result]:
    """Yields the result for each item, in order; a single item needs no thread.

    Args:
      items: read in the caller's thread, as far ahead as functions run.
      function: called in another thread.
      threads: maximum number of threads.
      most: maximum number of items running or finished ahead of the yielded one.
      most_bytes: maximum total size of these items; a single item may be larger.
      size_of: returns the size of an item in bytes.
    """
    left = iter(items)
    first = list(islice(left, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    waiting: deque[tuple[Future[_Result], int]] = deque()
    num_bytes = 0
    pool = ThreadPoolExecutor(threads, "ahead")
    try:
        for item in chain(first, left):
            size = size_of(item)
            waiting.append((pool.submit(function, item), size))
            num_bytes += size
            while len(waiting) > 1 and (
                (most is not None and len(waiting) > most)
                or (most_bytes is not None and num_bytes > most_bytes)
            ):
                future, size_of_first = waiting.popleft()
                num_bytes -= size_of_first
                yield future.result()
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_in_thread(
    run: Callable[[], object],
    done: threading.Event,
    on_poll: Callable[[], None],
    seconds: float,
) -> None:
    """Runs a function in a thread, and calls `on_poll` from this thread meanwhile.

    `done` is set when the function has ended. If `on_poll` raises an error, it is raised
    here, and the thread continues.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run()
        except BaseException as error:  # raised again in the caller's thread
            failures.append(error)
        finally:
            done.set()

    # A daemon, because it never ends after the death of a worker.
    threading.Thread(target=work, name="pipeline", daemon=True).start()
    # Not join(): if a signal interrupts it, Python 3.11 reports the thread as ended.
    while not done.wait(seconds):
        on_poll()
    if failures:
        raise failures[0]
