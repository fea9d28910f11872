"""Says in words and numbers how far a run is: pure functions of counts and times."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from recordmill.schemas.text import count, human_bytes
from recordmill.transforms.tasks.finished_tasks import Position

STAGES = ("scan", "read", "plan", "write", "publish")
_RATE_SECONDS = 30.0  # the time that a rate is the mean of
_LEAST_SECONDS = 1.0  # before it, a rate would be a guess
_WRITE_RATE = 300e6  # bytes a second, measured; until the run itself has written some


@dataclass(frozen=True, slots=True)
class View:
    """What people are shown of a run at one moment.

    Attributes:
      stage: one of STAGES, or the name of another command's work.
      doing: what goes on, where no counts tell it.
      done: bytes, or the count that `unit` names.
      total: of the same; None if it is not known.
      unit: "bytes", or what is counted.
      rows: that were read or written; None if not known.
      total_rows: None if not known.
      is_estimate: whether `total_rows` is extrapolated.
      rows_per_second: None if not known.
      rejected: rows that become no record.
      seconds_left: of the whole run; None if not known.
    """

    stage: str
    doing: str = ""
    done: float = 0
    total: float | None = None
    unit: str = "bytes"
    rows: int | None = None
    total_rows: int | None = None
    is_estimate: bool = False
    rows_per_second: float | None = None
    rejected: int = 0
    seconds_left: float | None = None

    @property
    def share(self) -> float | None:
        """Returns what is done of the stage, from 0 to 1; None if nobody knows."""
        return min(1.0, self.done / self.total) if self.total else None

    def facts(self) -> list[str]:
        """Returns what is known, in words, the most important first."""
        facts = [self.doing] if self.doing else []
        if self.share is not None:
            facts.append(f"{int(100 * self.share)} %")
        if self.total and self.unit == "bytes":
            done = min(self.done, self.total)
            facts.append(f"{human_bytes(done)} of {human_bytes(self.total)}")
        elif self.total:
            facts.append(f"{self.done:,.0f} of {count(round(self.total), self.unit)}")
        elif self.done:
            facts.append(
                human_bytes(self.done)
                if self.unit == "bytes"
                else count(round(self.done), self.unit)
            )
        if self.rows is not None and self.total_rows:
            about = "about " if self.is_estimate else ""
            facts.append(f"{self.rows:,} of {about}{count(self.total_rows, 'row')}")
        elif self.rows:
            facts.append(count(self.rows, "row"))
        if self.rows_per_second:
            facts.append(f"{_rounded(self.rows_per_second):,} rows/s")
        if self.rejected:
            facts.append(f"{count(self.rejected, 'row')} rejected")
        if self.seconds_left is not None:
            facts.append(f"about {duration(self.seconds_left)} left")
        return facts

    def line(self) -> str:
        """Returns all of it as one line."""
        return f"{self.stage}: {', '.join(self.facts())}"


def duration(seconds: float) -> str:
    """Returns a duration in one or two units.

    >>> duration(7_384)
    '2 h 3 min'
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def _rounded(rate: float) -> int:
    """Returns three digits of a rate: 182,437 rows/s would say more than is known."""
    digits = len(str(int(rate))) - 3
    return int(round(rate, -max(0, digits)))


@dataclass(slots=True)
class Rate:
    """The mean speed of a count over the last half minute."""

    seen: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now: float, value: float) -> None:
        """Notes a count; one that fell begins anew."""
        if self.seen and value < self.seen[-1][1]:
            self.seen.clear()
        self.seen.append((now, value))
        while len(self.seen) > 2 and now - self.seen[1][0] >= _RATE_SECONDS:
            self.seen.popleft()

    def per_second(self) -> float | None:
        """Returns the speed; None if it is not known yet, or is nothing."""
        if len(self.seen) < 2:
            return None
        (start, before), (now, value) = self.seen[0], self.seen[-1]
        if now - start < _LEAST_SECONDS or value <= before:
            return None
        return (value - before) / (now - start)


@dataclass(slots=True)
class RunView:
    """What is shown of a run: its positions so far become rates and times left.

    Attributes:
      input_bytes: of the input.
      num_ranges: of the input.
      by_reference: whether ranges are only listed, and shards read the input.
    """

    input_bytes: int
    num_ranges: int
    by_reference: bool = False
    read_rate: Rate = field(default_factory=Rate)
    write_rate: Rate = field(default_factory=Rate)
    row_rate: Rate = field(default_factory=Rate)
    record_rate: Rate = field(default_factory=Rate)

    def at(self, now: float, position: Position) -> View:
        """Returns what is shown.

        Args:
          now: seconds of a clock.
          position: how far the run is.
        """
        rejected = position.read.rejected + position.written.rejected
        begun = position.shards or any(
            name.startswith("shard-") for name in position.working
        )
        if any(name.startswith("publish-") for name in position.working):
            doing = "checking the shards" if position.checked else "moving the files"
            return View("publish", doing, position.checked, rejected=rejected)
        if position.planned and position.shards >= position.planned.shards:
            return View("publish", "checking and moving the files", rejected=rejected)
        if position.planned and (position.all_read or begun):
            self.write_rate.add(now, position.written.bytes)
            self.record_rate.add(now, position.written.rows)
            return replace(self._writing(position), rejected=rejected)
        if position.all_read:
            if position.again:
                ranges = count(position.again, "range")
                return View("read", f"again with wider types: {ranges} at work")
            return View("plan", "cutting the shards", rejected=rejected)
        if not position.ranges and not position.read.positions:
            if position.surveyed and position.surveyed < self.num_ranges:
                done = position.surveyed
                return View(
                    "scan", "finding where rows begin", done, self.num_ranges, "range"
                )
            return View("read", "starting")
        if self.by_reference:
            doing = "listing the rows"
            return View("scan", doing, position.ranges, self.num_ranges, "range")
        self.read_rate.add(now, position.read.positions)
        self.row_rate.add(now, position.read.rows)
        return replace(self._reading(position), rejected=rejected)

    def _reading(self, position: Position) -> View:
        read, total = position.read, position.total_positions
        share = read.positions / total if total else 1.0
        speed = self.read_rate.per_second()
        left = None
        if speed:
            writing = 0 if position.planned else self.input_bytes / _WRITE_RATE
            left = (total - read.positions) / speed + writing
        # Where each range is read twice, the rows are those of the reading at work.
        of_rows = share
        if position.readings > 1:
            of_rows = share * 2 if share <= 0.5 else share * 2 - 1
        known = position.knows_rows and of_rows > 0
        return View(
            "read",
            done=self.input_bytes * position.readings * share,
            total=self.input_bytes * position.readings,
            rows=read.rows if known else None,
            total_rows=round(read.rows / of_rows) if known else None,
            is_estimate=True,
            rows_per_second=self.row_rate.per_second(),
            seconds_left=left,
        )

    def _writing(self, position: Position) -> View:
        planned, written = position.planned, position.written
        assert planned is not None  # asked only then
        if not position.knows_rows:
            return View("write", "", position.shards, planned.shards, "shard")
        speed = self.write_rate.per_second()
        left = max(0, planned.bytes - written.bytes) / speed if speed else None
        return View(
            "write",
            done=written.bytes,
            total=planned.bytes,
            rows=written.rows,
            total_rows=planned.records,
            rows_per_second=self.record_rate.per_second(),
            seconds_left=left,
        )
