"""Creates a run's metrics, and writes them as a Prometheus textfile for node_exporter.

The metrics are created once, when the run ends, successfully or not. An alert can
therefore distinguish a job that fails (recordmill_last_run_success is 0) from a job
that no longer runs (its timestamp no longer changes). Receivers on the network
(receivers.py) get the same metrics.
Source: the text exposition format 0.0.4 of Prometheus.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from recordmill.beam_jobs.report.progress import Display, SpellOptions
from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.schemas.errors import KINDS, OutputError, UsageError, error_kind
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.manifest import Manifest, ManifestSplit
from recordmill.schemas.options import LogFormat
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import escape_json, escape_unprintable
from recordmill.transforms.storage.local import write_named_file
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.rejects import RejectKind

MAX_REASONS = 20  # series of rejects; the rarer reasons are "other"
_REASON_CHARACTERS = 120
_LAST_SUCCESS_GAUGE = "last_success_timestamp_seconds"
_STATUSES = ("done", "unchanged", "described", "failed")
HELP = {  # help texts of all gauges, by name without the prefix recordmill_
    "last_run_success": "1 if the last run succeeded, 0 if not",
    "last_run_status": "outcome of the last run: 1 for its outcome, 0 for the others",
    "last_run_failure": "failure of the last run: 1 for its kind, 0 for the others",
    "last_run_timestamp_seconds": "end time of the last run",
    "last_run_seconds": "duration of the last run",
    "last_run_stage_seconds": "duration of the stages of the last run",
    _LAST_SUCCESS_GAUGE: "end time of the last successful run",
    "dataset_info": "the published dataset",
    "rows_read": "rows in the input",
    "rows_written": "records of each split",
    "rows_rejected": "rejected rows",
    "last_run_rows_rejected": "rows that the last run rejected",
    "rows_rejected_by_reason": "rejected rows by reason",
    "rows_rejected_by_code": "rejected rows by the code of the reason",
    "bytes": "bytes of the shards of each split",
    "shards": "shards of each split",
    "shard_skew": "size of the largest shard divided by the size of the smallest",
}

_Sample = tuple[dict[str, str], float]  # labels, value
Gauges = dict[str, list[_Sample]]


class RunEnd(NamedTuple):
    """The end of a run, as reported by metrics, traces and lineage."""

    dataset: str  # name of the dataset, or "" if the job could not even be read
    output: str  # folder that the job writes to
    started: float  # Unix time
    ended: float
    stages: Mapping[str, float]  # seconds of each stage
    outcome: Outcome | None = None  # None if it failed
    error: BaseException | None = None
    message: str = ""  # of the error


def require_metrics_file(file: str) -> None:
    """Checks, before the run, that the metrics can be written to the file after it."""
    if not is_local(file):
        raise UsageError(f"`metrics_file`: {file} is not a local file")
    folder = local_path(file).absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"`metrics_file`: {file}: no such folder: {folder}; create it first"
        )


def write_metrics(file: str, end: RunEnd) -> None:
    """Writes the metrics of a finished run; replaces the metrics of the last run."""
    path = local_path(file)
    last_dataset, last_success = _read_last_success(path)
    gauges = run_gauges(end)
    if last_success:
        gauges.setdefault(_LAST_SUCCESS_GAUGE, [({}, last_success)])
    try:
        write_named_file(path, metrics_text(gauges, end.dataset or last_dataset))
    except OSError as error:
        raise OutputError(
            f"{file}: cannot write the metrics: {error.strerror}"
        ) from error


def run_gauges(end: RunEnd) -> Gauges:
    """Returns the metrics of a run, by name without the prefix."""
    outcome, error = end.outcome, end.error
    seconds = outcome.seconds if outcome else end.ended - end.started
    failure = error_kind(error) if error else ""
    status = outcome.status if outcome else "failed"
    gauges: Gauges = {
        "last_run_success": [({}, float(outcome is not None))],
        "last_run_status": [({"status": s}, float(s == status)) for s in _STATUSES],
        "last_run_failure": [({"kind": k}, float(k == failure)) for k in KINDS],
        "last_run_timestamp_seconds": [({}, end.ended)],
        "last_run_seconds": [({}, seconds)],
        "last_run_stage_seconds": [({"stage": s}, n) for s, n in end.stages.items()],
    }
    if outcome:
        gauges[_LAST_SUCCESS_GAUGE] = [({}, end.ended)]
        reasons = count_reasons(outcome.reject_kinds)
        gauges |= _dataset_gauges(outcome.manifest, reasons)
        codes = Counter[str]()
        for reject in outcome.reject_kinds:
            codes[reject.code] += reject.num_rows
        gauges["rows_rejected_by_code"] = [({"code": c}, n) for c, n in codes.items()]
        gauges["last_run_rows_rejected"] = [({}, outcome.rows_rejected)]
    return gauges


def _dataset_gauges(manifest: Manifest, reasons: Mapping[str, int]) -> Gauges:
    skews: list[_Sample] = []
    for name, split in manifest.splits.items():
        sizes = [shard.bytes for shard in split.shards]
        if sizes:
            skews.append(({"split": name}, max(sizes) / max(1, min(sizes))))

    def by_split(number: Callable[[ManifestSplit], int]) -> list[_Sample]:
        splits = manifest.splits.items()
        return [({"split": name}, number(split)) for name, split in splits]

    label = {"version": manifest.version, "fingerprint": manifest.fingerprint}
    return {
        "dataset_info": [(label, 1)],
        "rows_read": [({}, manifest.rows_read)],
        "rows_written": by_split(lambda split: split.records),
        "rows_rejected": [({}, manifest.rows_rejected)],
        "rows_rejected_by_reason": [({"reason": r}, n) for r, n in reasons.items()],
        "bytes": by_split(lambda split: split.bytes),
        "shards": by_split(lambda split: len(split.shards)),
        "shard_skew": skews,
    }


def count_reasons(kinds: Sequence[RejectKind]) -> dict[str, int]:
    """Returns the number of rows of each kind of reject; rarer kinds are "other"."""
    counts: Counter[str] = Counter()
    for kind in kinds:
        is_series = kind.has_one_reason and len(counts) < MAX_REASONS
        counts[kind.kind[:_REASON_CHARACTERS] if is_series else "other"] += (
            kind.num_rows
        )
    return dict(counts)


def metrics_text(gauges: Gauges, dataset: str) -> bytes:
    """Returns the metrics of a dataset in Prometheus' text format."""
    return "".join(_format_gauges(gauges, {"dataset": dataset})).encode()


def _format_gauges(gauges: Gauges, common: Mapping[str, str]) -> Iterator[str]:
    for gauge, samples in gauges.items():
        if not samples:
            continue
        name = f"recordmill_{gauge}"
        yield f"# HELP {name} {HELP[gauge]}\n# TYPE {name} gauge\n"
        for labels, value in samples:
            pairs = {**common, **labels}.items()
            inside = ",".join(f'{key}="{_escape_label(text)}"' for key, text in pairs)
            yield f"{name}{{{inside}}} {float(value):.17g}\n"


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _read_last_success(path: Path) -> tuple[str, float]:
    """Returns the dataset and the time of the last successful run, from the old file."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return "", 0.0
    dataset = re.search(r'^recordmill_\w+\{dataset="(\w*)"', text, re.MULTILINE)
    success = re.search(
        rf"^recordmill_{_LAST_SUCCESS_GAUGE}\{{.*\}} (\S+)$", text, re.MULTILINE
    )
    return (dataset[1] if dataset else ""), (float(success[1]) if success else 0.0)


# {"time": "2026-11-20T02:00:03Z", "level": "info", "event": "run_done", ...}
# 2026-11-20T02:00:03Z INFO run_done dataset=users version=1.0.7 records=1200

SECONDS_BETWEEN = 30.0  # between two lines about a run's progress


class LogLines(Display):
    """A log of events, and a reporter that logs the progress of a run."""

    def __init__(
        self, form: LogFormat, stream: TextIO, spell: SpellOptions = str
    ) -> None:
        super().__init__(spell)
        self._log_format = form
        self._stream = stream
        self._ranges = 0
        self._last_line = float("inf")

    def write_event(self, event: str, level: str = "info", /, **facts: Any) -> None:
        """Writes an event as one line."""
        timestamp = (
            datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        )
        if self._log_format == "json":
            line = {"time": timestamp, "level": level, "event": event, **facts}
            text = escape_json(json.dumps(line, default=str))
        else:
            pairs = (
                f"{_format_key(k)}={_format_plain_text(v)}" for k, v in facts.items()
            )
            text = " ".join([timestamp, level.upper(), event, *pairs])
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def report_input(self, input_report: InputReport) -> None:
        """Writes the interpretation of the input, and its warnings."""
        report_fields = input_report.to_dict()
        facts = report_fields["facts"]
        if skipped := report_fields["passed_over"]:
            facts |= {"passed_over": skipped}
        if facts:
            self.write_event("input_understood", **facts)
        self.write_warnings(input_report)

    def write_warnings(self, input_report: InputReport) -> None:
        """Writes the warnings that have not been written yet."""
        for warning in self.new_warnings(input_report):
            self.write_event("input_warning", "warning", **warning._asdict())

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        super().begin(context, ranges, input_bytes)
        self._ranges = len(ranges) * context.num_readings
        self._last_line = time.monotonic()
        self.write_event(
            "run_started",
            dataset=context.job.name,
            version=context.job.version,
            run_key=context.run_key,
            output=context.workspace.store.uri,
            ranges=len(ranges),
            exchange=context.exchange,
        )

    def poll(self) -> None:
        if time.monotonic() - self._last_line < SECONDS_BETWEEN or not self.finished:
            return
        self._last_line = time.monotonic()
        view, position = self.update_view(at_once=True), self.position
        if position is None:  # nothing could be read
            return
        is_bytes = view.unit == "bytes"
        self.write_event(
            "run_progress",
            stage=view.stage,
            ranges_done=position.num_read_ranges,
            ranges=self._ranges,
            shards_done=position.num_written_shards,
            bytes_done=round(view.num_done) if is_bytes else None,
            bytes=round(view.total) if view.total and is_bytes else None,
            rows=view.rows,
            rows_rejected=position.rejected if position.knows_rows else None,
            seconds_left=view.seconds_left and round(view.seconds_left),
        )


def _format_plain_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    # Quoted if the end of the value would be ambiguous.
    odd = not text or not text.isprintable() or any(mark in text for mark in ' "=')
    if not odd:
        return text
    return escape_json(json.dumps(text, ensure_ascii=not text.isprintable()))


def _format_key(key: str) -> str:
    return escape_unprintable(key).replace(" ", "_")
