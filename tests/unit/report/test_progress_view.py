"""What people are told of a run, from its counts and a clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordmill.beam_jobs.report.progress import Rate, RunView, View, duration
from recordmill.transforms.tasks.progress_reader import Counts, PlannedTotals, Position

NOTHING = Position(
    surveyed=0,
    read=Counts(),
    total_positions=1_000,
    readings=1,
    written=Counts(),
    ranges=0,
    shards=0,
    planned=None,
    working=(),
    again=0,
    knows_rows=True,
)
PLANNED = PlannedTotals(shards=4, records=80, bytes=8_000_000)
ALL_READ = replace(NOTHING, read=Counts(1_000, 82, 2), ranges=4)


def view_of_run(*, by_reference: bool = False) -> RunView:
    return RunView(input_bytes=2_000_000, num_ranges=4, by_reference=by_reference)


def test_a_whole_run() -> None:
    """Every stage by its name; totals as soon as something is known of them."""
    run = view_of_run()
    assert run.at(0, NOTHING).line() == "read: starting"
    half = replace(NOTHING, read=Counts(250, 20, 0), working=("range-scratch-000000",))
    assert run.at(10, half).line() == (
        "read: 25 %, 500.0 kB of 2.0 MB, 20 of about 80 rows"
    )
    half = replace(half, read=Counts(500, 41, 1), ranges=1)
    assert run.at(20, half).line() == (
        "read: 50 %, 1.0 MB of 2.0 MB, 41 of about 82 rows, 2 rows/s, 1 row rejected, "
        "about 20 s left"
    )
    assert run.at(30, ALL_READ).line() == ("plan: cutting the shards, 2 rows rejected")
    planned = replace(ALL_READ, planned=PLANNED)
    assert run.at(40, planned).line() == (
        "write: 0 %, 0 B of 8.0 MB, 0 of 80 rows, 2 rows rejected"
    )
    writing = replace(planned, written=Counts(0, 20, 0, 2_000_000), shards=1)
    assert run.at(50, writing).line() == (
        "write: 25 %, 2.0 MB of 8.0 MB, 20 of 80 rows, 2 rows/s, 2 rows rejected, "
        "about 30 s left"
    )
    written = replace(planned, written=Counts(0, 80, 0, 8_000_000), shards=4)
    assert run.at(60, written).line() == (
        "publish: checking and moving the files, 2 rows rejected"
    )
    checking = replace(written, working=("publish-verify",), checked=3_000_000)
    assert run.at(61, checking).line() == (
        "publish: checking the shards, 3.0 MB, 2 rows rejected"
    )


def test_a_survey() -> None:
    view = view_of_run().at(0, replace(NOTHING, surveyed=3))
    assert view.line() == "scan: finding where rows begin, 75 %, 3 of 4 ranges"


def test_ranges_that_are_only_listed() -> None:
    """By reference, the input is read when shards are written."""
    listed = replace(NOTHING, read=Counts(500), ranges=2)
    view = view_of_run(by_reference=True).at(0, listed)
    assert view.line() == "scan: listing the rows, 50 %, 2 of 4 ranges"


def test_ranges_that_are_read_again() -> None:
    position = replace(ALL_READ, again=2, working=("range-scratch-000001",) * 2)
    line = view_of_run().at(0, position).line()
    assert line == "read: again with wider types: 2 ranges at work"


def test_two_readings() -> None:
    """The bytes are those of both; the rows those of the reading at work."""
    position = replace(NOTHING, readings=2, total_positions=2_000, ranges=4)
    run = view_of_run()
    first = replace(position, read=Counts(500, 40))
    assert run.at(0, first).line() == (
        "read: 25 %, 1.0 MB of 4.0 MB, 40 of about 80 rows"
    )
    second = replace(position, read=Counts(1_250, 20), planned=PLANNED)
    assert run.at(9, second).line() == (
        "read: 62 %, 2.5 MB of 4.0 MB, 20 of about 80 rows, about 9 s left"
    )


def test_a_store_tells_of_tasks_only() -> None:
    """Rows are in checkpoints, and each would cost a request."""
    position = replace(NOTHING, knows_rows=False, read=Counts(500), ranges=2)
    run = view_of_run()
    assert run.at(0, position).line() == "read: 50 %, 1.0 MB of 2.0 MB"
    planned = replace(position, ranges=4, planned=PLANNED, shards=1)
    assert run.at(1, planned).line() == "write: 25 %, 1 of 4 shards"


def test_a_resumed_run_counts_its_own_speed() -> None:
    """What an earlier try had finished took none of this run's time."""
    run = view_of_run()
    finished = replace(NOTHING, read=Counts(900, 90), ranges=3)
    assert run.at(0, finished).seconds_left is None
    view = run.at(10, replace(finished, read=Counts(910, 91)))
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
    assert View("write", done=11, total=10).line() == "write: 100 %, 10 B of 10 B"
