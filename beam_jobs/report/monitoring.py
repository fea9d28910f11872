"""Writes a run's metrics as a Prometheus textfile, for node_exporter's collector.

It is written in one step when the run ends, with success or not, so an alert can tell a
job that fails (recordmill_last_run_success 0) from one that no longer runs (its time
no longer changes).
Source: the text exposition format 0.0.4 of Prometheus.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from recordmill.beam_jobs.report.progress import Silent
from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.options import LogFormat, Style, spell
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.storage.atomic_files import write_atomic
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.rejects import RejectKind

MAX_REASONS = 20  # series of rejects; the rarer reasons are "other"
_REASON_CHARACTERS = 120
_LAST_SUCCESS = "recordmill_last_success_timestamp_seconds"

_Sample = tuple[Mapping[str, str], float]
_Family = tuple[str, str, list[_Sample]]  # name, help, samples


def require_metrics_file(file: str) -> None:
    """Makes sure before the run that its metrics can be written after it.

    Raises:
      UsageError: no local file, or its folder is not there.
    """
    if not is_local(file):
        raise UsageError(f"`metrics_file`: {file} is not a local file")
    folder = local_path(file).absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"`metrics_file`: {file}: no such folder: {folder}; create it first"
        )


def write_metrics(
    file: str,
    dataset: str,
    seconds: float,
    outcome: Outcome | None,
    stages: Mapping[str, float],
) -> None:
    """Writes the metrics of a run that ended.

    Args:
      file: the textfile; that of the last run is replaced in one step.
      dataset: its name; "" if the job could not even be read.
      seconds: how long it took.
      outcome: how it ended; None if it failed.
      stages: seconds of each stage, as far as the run came.

    Raises:
      OutputError: the file cannot be written.
    """
    path = local_path(file)
    last_dataset, last_success = _last_success(path)
    dataset = dataset or last_dataset
    now = time.time()
    families = _run_families(outcome, now, seconds, stages)
    success = now if outcome else last_success
    if success:
        what = "when a run last ended well"
        families.append((_LAST_SUCCESS, what, [({}, success)]))
    if outcome:
        reasons = reason_counts(outcome.reject_kinds)
        families += _dataset_families(outcome.manifest, reasons)
    text = "".join(_lines(families, {"dataset": dataset}))
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise OutputError(
            f"{file}: cannot write the metrics: {error.strerror}"
        ) from error


def _run_families(
    outcome: Outcome | None, now: float, seconds: float, stages: Mapping[str, float]
) -> list[_Family]:
    status = outcome.status if outcome else "failed"
    return [
        (
            "recordmill_last_run_success",
            "whether the last run ended well",
            [({}, float(outcome is not None))],
        ),
        (
            "recordmill_last_run_status",
            "how the last run ended: done, unchanged or failed",
            [({"status": status}, 1.0)],
        ),
        ("recordmill_last_run_timestamp_seconds", "when it ended", [({}, now)]),
        ("recordmill_last_run_seconds", "how long it took", [({}, seconds)]),
        (
            "recordmill_last_run_stage_seconds",
            "how long its stages took",
            [({"stage": stage}, time) for stage, time in stages.items()],
        ),
    ]


def _dataset_families(manifest: Manifest, reasons: Mapping[str, int]) -> list[_Family]:
    splits = manifest.splits.items()
    skews: list[_Sample] = []
    for name, split in splits:
        sizes = [shard.bytes for shard in split.shards]
        if sizes:
            skews.append(({"split": name}, max(sizes) / max(1, min(sizes))))
    label = {"version": manifest.version, "fingerprint": manifest.fingerprint}
    return [
        ("recordmill_dataset_info", "the dataset published", [(label, 1.0)]),
        ("recordmill_rows_read", "rows found", [({}, float(manifest.rows_read))]),
        (
            "recordmill_rows_written",
            "records of each split",
            [({"split": name}, float(split.records)) for name, split in splits],
        ),
        (
            "recordmill_rows_rejected",
            "rows left out",
            [({}, float(manifest.rows_rejected))],
        ),
        (
            "recordmill_rows_rejected_by_reason",
            "rows left out, by what was wrong",
            [({"reason": reason}, float(n)) for reason, n in reasons.items()],
        ),
        (
            "recordmill_bytes",
            "bytes of each split's shards",
            [({"split": name}, float(split.bytes)) for name, split in splits],
        ),
        (
            "recordmill_shards",
            "shards of each split",
            [({"split": name}, float(len(split.shards))) for name, split in splits],
        ),
        (
            "recordmill_shard_skew",
            "bytes of the largest shard by those of the smallest",
            skews,
        ),
    ]


def reason_counts(kinds: Sequence[RejectKind]) -> dict[str, int]:
    """Returns the rows of each kind of rejects, the rarer kinds as one."""
    counts: Counter[str] = Counter()
    for kind in kinds:
        is_series = kind.is_known and len(counts) < MAX_REASONS
        counts[kind.kind[:_REASON_CHARACTERS] if is_series else "other"] += kind.rows
    return dict(counts)


def _lines(families: Iterable[_Family], common: Mapping[str, str]) -> Iterator[str]:
    for name, what, samples in families:
        if not samples:
            continue
        yield f"# HELP {name} {what}\n# TYPE {name} gauge\n"
        for labels, value in samples:
            pairs = {**common, **labels}.items()
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in pairs)
            yield f"{name}{{{inside}}} {value:.17g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _last_success(path: Path) -> tuple[str, float]:
    """Returns the dataset and the time of the last good run, from the old file."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return "", 0.0
    dataset = re.search(r'^recordmill_\w+\{dataset="(\w*)"', text, re.MULTILINE)
    success = re.search(rf"^{_LAST_SUCCESS}\{{.*\}} (\S+)$", text, re.MULTILINE)
    return (dataset[1] if dataset else ""), (float(success[1]) if success else 0.0)


# {"time": "2026-11-20T02:00:03Z", "level": "info", "event": "run_done", ...}
# 2026-11-20T02:00:03Z INFO run_done dataset=users version=1.0.7 records=1200

SECONDS_BETWEEN = 30.0  # two lines on a run's progress


class LogLines(Silent):
    """Writes events; as a reporter, those of a run's progress.

    Args:
      form: of a line.
      stream: where they go.
      style: how options are spelled.
    """

    def __init__(
        self, form: LogFormat, stream: TextIO, style: Style = "command"
    ) -> None:
        super().__init__()
        self._form = form
        self._style: Style = style
        self._warned: set[str] = set()
        self._stream = stream
        self._ranges = 0
        self._told = float("inf")

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

    def tell(self, understood: InputSummary) -> None:
        """Writes what the input was taken for."""
        found = understood.to_dict()
        passed_over = (
            {"passed_over": found["passed_over"]} if found["passed_over"] else {}
        )
        if found["facts"] or passed_over:
            self.event("input_understood", **{**found["facts"], **passed_over})
        self.warn(understood)

    def warn(self, understood: InputSummary) -> None:
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
        super().begin(context, ranges, input_bytes)
        self._ranges = len(ranges) * context.readings
        self._told = time.monotonic()
        self.event(
            "run_started",
            dataset=context.job.name,
            version=context.job.version,
            run_key=context.run_key,
            output=context.workspace.store.uri,
            ranges=len(ranges),
            exchange=context.exchange,
        )

    def poll(self) -> None:
        super().poll()
        if time.monotonic() - self._told < SECONDS_BETWEEN:
            return
        self._told = time.monotonic()
        view = self.watch.look(now=True)
        ranges, shards = self.watch.num_finished()
        self.event(
            "run_progress",
            stage=view.stage,
            ranges_done=ranges,
            ranges=self._ranges,
            shards_done=shards,
            bytes_done=round(view.done) if view.unit == "bytes" else None,
            bytes=round(view.total) if view.total and view.unit == "bytes" else None,
            rows=view.rows,
            rows_rejected=self.watch.rows_rejected(),
            seconds_left=view.seconds_left and round(view.seconds_left),
        )


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    # Quoted where the end of the value would be unclear.
    odd = not text or not text.isprintable() or any(mark in text for mark in ' "=')
    return json.dumps(text, ensure_ascii=not text.isprintable()) if odd else text
