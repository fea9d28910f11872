"""Writes the log lines of a run, one event a line: JSON for machines, or plain text.

{"time": "2026-11-20T02:00:03Z", "level": "info", "event": "run_done", ...}
2026-11-20T02:00:03Z INFO run_done dataset=users version=1.0.7 records=1200
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from recordmill.beam_jobs.report.progress import Watch
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.job import LogFormat
from recordmill.schemas.options import Style, spell
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.tasks.context import RunContext

SECONDS_BETWEEN = 30.0  # two lines on a run's progress


class LogLines:
    """Writes events; as a reporter, those of a run's progress.

    Args:
      form: of a line.
      stream: where they go.
      style: how options are spelled.
    """

    def __init__(
        self, form: LogFormat, stream: TextIO, style: Style = "command"
    ) -> None:
        self._form = form
        self._style: Style = style
        self._warned: set[str] = set()
        self._stream = stream
        self._watch: Watch | None = None
        self._ranges = 0
        self._told = 0.0

    def event(self, event: str, level: str = "info", /, **facts: Any) -> None:
        """Writes one line."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        if self._form == "json":
            line = {"time": now, "level": level, "event": event, **facts}
            text = json.dumps(line, default=str)
        else:
            parts = (
                f"{key.replace(' ', '_')}={_plain(value)}"
                for key, value in facts.items()
            )
            text = " ".join([now, level.upper(), event, *parts])
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def doing(self, stage: str, what: str) -> None:
        pass

    def tell(self, understood: Understood) -> None:
        """Writes what the input was taken for."""
        found = understood.to_dict()
        passed_over = (
            {"passed_over": found["passed_over"]} if found["passed_over"] else {}
        )
        if found["facts"] or passed_over:
            self.event("input_understood", **{**found["facts"], **passed_over})
        self.warn(understood)

    def warn(self, understood: Understood) -> None:
        """Writes the warnings that were not written before."""
        for warning in understood.spelled(
            lambda text: spell(text, self._style)
        ).warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self.event("input_warning", "warning", message=warning)

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        self._watch = Watch(time.monotonic)
        self._watch.follow(context, ranges, input_bytes)
        self._ranges = len(ranges) * context.readings
        self._told = time.monotonic()
        self.event(
            "run_started",
            dataset=context.job.name,
            version=context.job.version,
            run_key=context.run_key,
            output=context.output,
            ranges=len(ranges),
            exchange=context.exchange,
        )

    def poll(self) -> None:
        if self._watch is None or time.monotonic() - self._told < SECONDS_BETWEEN:
            return
        self._told = time.monotonic()
        view = self._watch.look(now=True)
        ranges, shards = self._watch.num_finished()
        self.event(
            "run_progress",
            stage=view.stage,
            ranges_done=ranges,
            ranges=self._ranges,
            shards_done=shards,
            bytes_done=round(view.done) if view.unit == "bytes" else None,
            bytes=round(view.total) if view.total and view.unit == "bytes" else None,
            rows=view.rows,
            rows_rejected=self._watch.rows_rejected(),
            seconds_left=view.seconds_left and round(view.seconds_left),
        )

    def end(self) -> None:
        pass


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    # Quoted where the end of the value would be unclear.
    odd = not text or not text.isprintable() or any(mark in text for mark in ' "=')
    return json.dumps(text, ensure_ascii=not text.isprintable()) if odd else text
